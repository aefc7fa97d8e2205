//! The program `sealane`: its arguments, its commands and its exit codes.
#![forbid(unsafe_code)]

pub mod args;
pub mod commands;
pub mod exit;
mod own_log;
