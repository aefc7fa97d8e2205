//! The question to a stack or a server and the answer: [`scenario`] and [`document`], what figures
//! mean, and their words. Starts nothing and draws nothing.
#![forbid(unsafe_code)]

pub mod document;
pub mod error;
pub mod figures;
pub mod histogram;
pub mod library;
pub mod number;
pub mod scenario;
pub mod statistics;
pub mod words;
