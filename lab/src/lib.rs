//! Measures TLS libraries in memory and TLS servers over sockets, counts what they share between
//! threads, and draws the results. Nothing is printed that was not checked: a stack or a server
//! that fails one check gets no figure.
//!
//! The contracts that everything here meets in: [`scenario`] (what is asked), [`stack`] (a library
//! under test), [`document`] (the results).
#![forbid(unsafe_code)]

mod authority;
pub mod bulk;
pub mod certificates;
mod child;
pub mod cli;
pub mod compat;
pub mod connect;
pub mod contexts;
pub mod count;
pub mod credentials;
mod demangle;
mod descendants;
mod descriptors;
pub mod document;
pub mod error;
pub mod figures;
pub mod findings;
pub mod forecast;
pub mod gate;
pub mod handshake;
pub mod histogram;
pub mod interrupt;
pub mod inventory;
mod issuance;
pub mod journal;
mod kernel_ledger;
pub mod library;
mod live;
mod load;
pub mod machine;
pub mod memory;
mod native;
pub mod node;
mod number;
pub mod offload;
mod options;
pub mod page;
pub mod phase;
mod plot;
mod process;
mod processor;
mod programs;
pub mod progress;
pub mod quick;
pub mod recording;
pub mod replay;
mod reserve;
pub mod ring;
pub mod rounds;
pub mod scenario;
pub mod servers;
pub mod stack;
pub mod stacks;
pub mod statistics;
mod steps;
mod strategies;
pub mod tables;
pub mod tickets;
pub mod transfer;
pub mod trial;
mod unwinding;
pub mod validate;
mod verdict;
pub mod why;
mod words;
pub mod writeups;
