//! Machines that share certificates through a cluster of etcd: [`Fleet`].
//!
//! ```text
//!   this machine's store  <---- Replica: list, watch, batches ----  PREFIX/certificate/HASH
//!           |  what is newer here                                    PREFIX/entry/NAME
//!           +------------------------------------------------------> (all sealed)
//!   an order  -- Claim: a lease, a revision as its fence ----------> PREFIX/claim/ID
//!   status    -- under a lease of its own -------------------------> PREFIX/status/MACHINE
//! ```
//!
//! The local store stays what lanes serve from; the cluster only fills it. What leaves the machine
//! is sealed with the store's sealing key, for its place: the cluster holds no key in clear, and
//! nobody without a sealing key can put anything there that a machine takes.

mod claim;
mod clocks;
mod entries;
mod member;
mod places;
mod replica;
mod sealed;
mod share;
mod status;
#[cfg(test)]
mod tests;
mod tickets;

pub(crate) use claim::Claim;
pub(crate) use member::{Fleet, leave_word};
pub(crate) use status::{Statuses, table};
pub(crate) use tickets::rotate_tickets;
