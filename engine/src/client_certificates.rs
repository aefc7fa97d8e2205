//! Certificates that clients show to a listener: trust, verification and standing.
//!
//! [`ClientRoots`] are the authorities of one policy
//! ([`ClientCertificates`](crate::policy::ClientCertificates)) with their revocation lists, parsed
//! once and read by all lanes. Each lane's context has its own verifier. Where the policy requires
//! a certificate, it verifies in the handshake. At any later time,
//! [`LaneContext::standing`](crate::context::LaneContext::standing) returns a [`ClientStanding`].
//!
//! ```text
//!   Asked     any chain, or none -> the handshake goes on -> standing: Absent, Verified, ...
//!   Required  no chain, or one that is not verified       -> the handshake ends with an alert
//!   both      a ticket holds the chain: a resumed session has it without showing it again
//! ```
//!
//! In both modes the client proves in the handshake that it holds the key of the certificate it
//! shows. A ticket never resumes under other roots or another mode: the policy's digest has both.
//! Where a certificate is required, a ticket resumes only while its chain is verified by the lane's
//! present knowledge, its revocation lists included: see `client_certificates/proof.rs`.

mod error;
mod names;
mod presented;
mod proof;
mod roots;
mod shared;
mod standing;
mod verifier;

pub use crate::revocation::RevocationList;
pub use error::ClientRootsError;
pub use names::{CLIENT_NAMES_MAX, ClientName};
pub use presented::{PRESENTED_BYTES_MAX, Presented};
pub(crate) use presented::{alternative_names, distinguished};
pub(crate) use proof::Proofs;
pub use roots::{CRL_BYTES_MAX, CRLS_MAX, ClientRoots, ClientRules};
pub use standing::{ClientStanding, Distrust};
pub(crate) use verifier::LaneVerifier;
