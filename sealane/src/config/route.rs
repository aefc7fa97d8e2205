//! What clients get that ask for certain names, in place of what their listener has.

use sealane_engine::policy::Policy;

use super::client_trust::ClientTrust;
use super::destination::Destination;

/// What clients get that ask for certain names. It has no place in an order: an exact name counts
/// before a wildcard, and a wildcard before the listener itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// It counts only where one of these protocols was agreed on; empty: in any case.
    pub alpn: Vec<Vec<u8>>,
    /// Whose certificates they are asked for, if they are.
    pub clients: Option<ClientTrust>,
    /// Where their plaintext goes; without it, where that of their listener goes.
    pub destination: Option<Destination>,
    /// In lower case, or `*.` before a name for exactly one more label. At least one.
    pub names: Vec<String>,
    /// How their TLS is ended; without it, it is passed on as it is.
    pub policy: Option<Policy>,
}

impl Route {
    /// What it is called in messages.
    pub fn label(&self) -> String {
        format!("route {:?}", self.names.first().map_or("", |name| name))
    }
}
