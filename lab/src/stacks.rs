//! The stacks, one file each, and the list of them.

pub mod command;
