//! What a listener takes from outside, one file for each.

pub mod backend_trust;
pub mod certificates;
