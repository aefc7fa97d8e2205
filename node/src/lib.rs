//! The Node addon.
#![deny(unsafe_code)]
pub mod message;
