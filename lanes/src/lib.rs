//! One event loop per core.
#![forbid(unsafe_code)]

pub mod limits;
