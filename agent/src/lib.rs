//! The agent beside the lanes: obtains certificates by ACME and keeps them in the certificate
//! store, out of which `sealane serve` serves them and answers challenges.
//!
//! ```text
//!   agent.toml --> Settings --> Schedule (what, when, by whom: sans-IO, sealane-renewal)
//!                                  |  Order, AskRenewalInfo
//!                                  v
//!   CA <--HTTPS--  Agent, an order each  --one transaction per step-->  certificate store
//!                                  |                                        |  the next hello
//!                                  +--> a command of the operator's, for DNS  v
//!                                                                       sealane serve
//! ```
//!
//! [`Agent`] does what the schedule says. What an order has come to is in the store, sealed, before
//! its next step is taken, so an agent that is killed goes on where it was.
#![forbid(unsafe_code)]

mod account;
mod agent;
pub mod args;
mod authorization;
mod certificate;
mod clock;
mod dns;
mod etcd;
mod examination;
mod failure;
mod fleet;
mod http;
mod ledger;
mod nonces;
mod on_demand;
mod order;
mod push;
mod renew;
mod renewal_info;
pub mod run;
mod sandbox;
mod secret;
pub mod settings;
mod trust;

pub use agent::Agent;
