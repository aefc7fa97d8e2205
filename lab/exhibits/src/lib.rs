//! The write-ups' faults beside their remedies, a module each.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod contexts;
pub mod offload;
pub mod references;
pub mod ring;
pub mod tickets;
