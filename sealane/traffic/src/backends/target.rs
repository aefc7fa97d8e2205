//! A backend that is checked: [`Target`].

use sealane_config::{Check, CheckKind};
use sealane_lanes::kernel::Address;

use super::BackendTls;

/// What is checked, and how.
pub struct Target {
    /// Where it is.
    pub address: Address,
    /// How.
    pub check: Check,
    /// The bytes at the start of a connection: a PROXY header without a client.
    pub header: &'static [u8],
    /// By what the control plane knows it.
    pub id: u64,
    /// Whether it was up when it was made; none if nothing was known of it.
    pub is_up: Option<bool>,
    /// How TLS is spoken to it, if it is.
    pub tls: Option<BackendTls>,
}

impl Target {
    /// Whether the check speaks TLS to it.
    pub(crate) fn speaks_tls(&self) -> bool {
        match self.check.kind {
            CheckKind::Connect | CheckKind::Proxy => false,
            CheckKind::Ask { .. } | CheckKind::Tls => self.tls.is_some(),
        }
    }
}
