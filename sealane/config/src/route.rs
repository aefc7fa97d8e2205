//! What clients get that ask for certain names, in place of what their listener has.

use std::collections::HashMap;

use sealane_engine::policy::Policy;

use super::client_trust::ClientTrust;
use super::destination::Destination;

/// What clients get that ask for certain names. It has no place in an order: an exact name counts
/// before a wildcard, and a wildcard before the listener itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Protocols of which one must be agreed on for the route to count; empty: it counts anyway.
    pub alpn: Vec<Vec<u8>>,
    /// Whose certificates they are asked for, if they are.
    pub clients: Option<ClientTrust>,
    /// Where their plaintext goes; without it, where that of their listener goes.
    pub destination: Option<Destination>,
    /// In lower case, or `*.` before a name for exactly one more label. Empty: all names for which
    /// no route without protocols is; then there are protocols.
    pub names: Vec<String>,
    /// How their TLS is ended; without it, it is passed on as it is.
    pub policy: Option<Policy>,
}

impl Route {
    /// The route in messages.
    pub fn label(&self) -> String {
        match self.names.first() {
            Some(name) => format!("route {name:?}"),
            None => {
                let protocols = self.alpn.iter().map(|each| each.escape_ascii().to_string());
                format!("route of all names with {}", protocols.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

/// The routes that count whatever was agreed on, by name.
pub fn unconditional(routes: &[Route]) -> HashMap<&str, usize> {
    let routes = routes.iter().enumerate().filter(|(_, route)| route.alpn.is_empty());
    routes.flat_map(|(index, route)| route.names.iter().map(move |n| (&**n, index))).collect()
}

/// The one of `unconditional` that counts for `name` where no protocol leads elsewhere: its own, or
/// that of the wildcard for it.
pub fn base_of(unconditional: &HashMap<&str, usize>, name: &str) -> Option<usize> {
    let wildcard = || unconditional.get(&*format!("*.{}", name.split_once('.')?.1));
    unconditional.get(name).or_else(wildcard).copied()
}
