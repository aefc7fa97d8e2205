//! Documents as pages and pictures: [`page`] and `plot`. Starts nothing.
#![forbid(unsafe_code)]

pub mod page;
mod plot;
