//! What a listener is made of, for people: [`Summary`] is what `check`, `/state` and `/metrics`
//! show of it.

use std::path::PathBuf;
use std::sync::Arc;

use sealane_engine::certificates::{CertificateStore, Inventory};

use super::{ClientsSummary, Expiry, Survey};

/// A listener as it is shown.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// What it listens on.
    pub addresses: Vec<String>,
    /// Where its plaintext goes.
    pub backends: Vec<String>,
    /// How a backend is chosen.
    pub balance: &'static str,
    /// The certificates that it serves from files.
    pub certificates: Inventory,
    /// What its clients are asked for, if they are.
    pub clients: Option<ClientsSummary>,
    /// When what it takes beside them expires.
    pub expiries: Vec<Expiry>,
    /// The store that it serves from beside them.
    pub store: Option<StoreSummary>,
}

/// A store as it is shown: what is in it is asked of it when somebody wants to know.
#[derive(Clone, Debug)]
pub struct StoreSummary {
    /// The certificates.
    pub certificates: Arc<dyn CertificateStore>,
    /// Its folder.
    pub path: PathBuf,
}

impl From<&Survey<'_>> for Summary {
    fn from(survey: &Survey<'_>) -> Self {
        let listener = survey.listener;
        let index = survey.certificates.as_ref();
        let store = survey.store.as_ref().zip(listener.store.as_ref());
        Self {
            name: listener.name.clone(),
            addresses: listener.addresses.iter().map(ToString::to_string).collect(),
            backends: listener.backend_labels().collect(),
            balance: listener.balance.name(),
            certificates: index.map(|i| i.inventory(EXPIRIES_SHOWN_MAX)).unwrap_or_default(),
            clients: ClientsSummary::of(survey),
            expiries: survey.expiries.clone(),
            store: store.map(|(store, path)| StoreSummary {
                certificates: Arc::clone(&store.certificates),
                path: path.clone(),
            }),
        }
    }
}

/// Certificates of files or of a store that are shown: those that expire first.
pub const EXPIRIES_SHOWN_MAX: usize = 100;
