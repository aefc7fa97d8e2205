//! What is asked of a stack or a server, and what was found: [`scenario`], [`document`] and
//! [`recording`], what figures mean, and their words. Starts nothing and draws nothing.
#![forbid(unsafe_code)]

pub mod document;
pub mod error;
pub mod figures;
pub mod histogram;
pub mod library;
pub mod number;
pub mod recording;
pub mod scenario;
pub mod statistics;
pub mod verdict;
pub mod words;
