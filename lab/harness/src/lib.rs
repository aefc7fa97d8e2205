//! What every measurement stands on: [`trial`]s in processes of their own, [`rounds`] in turn, a
//! [`journal`] that loses nothing, guards of children, credentials, and this machine.
#![forbid(unsafe_code)]

pub mod authority;
pub mod child;
pub mod credentials;
pub mod descendants;
pub mod descriptors;
pub mod interrupt;
mod issuance;
pub mod journal;
pub mod machine;
pub mod native;
pub mod options;
pub mod phase;
pub mod process;
pub mod processor;
pub mod programs;
pub mod progress;
pub mod reserve;
pub mod rounds;
pub mod search;
pub mod strategies;
pub mod trial;
