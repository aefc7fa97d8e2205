//! What a configuration takes in memory and file descriptors when it is used to its limits.

use sealane_config::{Config, Listener};
use sealane_engine::certificates::{Certificate, CertificateIndex, KeyType};
use sealane_engine::provider::EXPANDED_BYTES_MAX;
use sealane_traffic::admission::CLIENT_TABLE_BYTES;
use serde::Serialize;

use crate::file_tables::{Descriptors, FileTables};

/// An estimate, at the limits.
#[derive(Debug, Serialize)]
pub struct Cost {
    /// Event loops.
    pub lanes: usize,
    /// Client connections that all lanes together may have.
    pub connections: usize,
    /// The certificate indexes, which all lanes share.
    pub index_bytes: u64,
    /// Decoded keys and chains over all lanes, when each lane has decoded as many as it keeps.
    pub decoded_keys_bytes: u64,
    /// Receive and send buffers over all lanes, and the keys of records that are in use.
    pub buffer_bytes: u64,
    /// The tables of clients over all lanes, if what one client may take is limited.
    pub client_table_bytes: u64,
    /// Idle connections, all that there may be.
    pub connection_bytes: u64,
    /// File descriptors, and the tables that they stand in.
    pub descriptors: Descriptors,
    /// All of that.
    pub total_bytes: u64,
}

impl Cost {
    /// What `config` takes with these certificates: an index for each listener, and so many more in
    /// stores, which cost nothing before they are decoded; and with these tables of open files.
    pub fn of<'i>(
        config: &Config,
        indexes: impl Iterator<Item = &'i CertificateIndex> + Clone,
        stored: u64,
        tables: &FileTables,
    ) -> Self {
        let lanes = config.lanes.get();
        let connections =
            config.limits.per_lane(config.lanes).connections_max.saturating_mul(lanes);
        let index_bytes = indexes.clone().map(|index| index.memory_bytes() as u64).sum();
        let mut decoded: Vec<_> =
            indexes.flat_map(CertificateIndex::iter).map(|c| decoded_bytes(c)).collect();
        let places = config.limits.decoded_keys_per_lane_max;
        let stored = usize::try_from(stored).unwrap_or(places).min(places);
        decoded.extend(std::iter::repeat_n(STORED_CERTIFICATE_BYTES, stored));
        decoded.sort_unstable_by(|a, b| b.cmp(a));
        let per_lane_decoded: u64 = decoded.iter().take(places).sum();
        let decoded_keys_bytes = per_lane_decoded * lanes as u64;
        let buffer_bytes = lanes as u64 * (BUFFERS_PER_LANE_BYTES + EXPANDED_BYTES_MAX);
        let listeners = config.listeners.iter();
        let counts_clients = listeners.clone().any(|each| each.limits.per_client.is_limited());
        let client_table_bytes = if counts_clients { lanes as u64 * CLIENT_TABLE_BYTES } else { 0 };
        let mut destinations = listeners.flat_map(Listener::destinations);
        let secured = destinations.any(|(_, destination)| destination.backend_tls.is_some());
        let each_bytes = IDLE_CONNECTION_BYTES + if secured { IDLE_BACKEND_TLS_BYTES } else { 0 };
        let connection_bytes = connections as u64 * each_bytes;
        let descriptors = Descriptors::of(config, tables);
        Self {
            lanes,
            connections,
            index_bytes,
            decoded_keys_bytes,
            buffer_bytes,
            client_table_bytes,
            connection_bytes,
            total_bytes: index_bytes
                + decoded_keys_bytes
                + buffer_bytes
                + client_table_bytes
                + connection_bytes
                + descriptors.table_bytes,
            descriptors,
        }
    }
}

/// What a lane's idle connections take, all that it may have.
pub(crate) fn connection_bytes_of_lane(config: &Config) -> usize {
    let connections = config.limits.per_lane(config.lanes).connections_max;
    // Far less than there are addresses.
    connections.saturating_mul(usize::try_from(IDLE_CONNECTION_BYTES).unwrap_or(usize::MAX))
}

/// A decoded key, its chain, and the entry in the lane's cache.
fn decoded_bytes(certificate: &Certificate) -> u64 {
    let chain: usize = certificate.chain().map(<[u8]>::len).sum();
    let key = match certificate.key_type() {
        KeyType::EcdsaP256 | KeyType::EcdsaP384 | KeyType::EcdsaP521 | KeyType::Ed25519 => {
            CURVE_KEY_BYTES
        }
        KeyType::Rsa { bits } => RSA_KEY_BYTES_PER_BIT * u64::from(bits),
    };
    chain as u64 + key
}

/// Two of a lane's own of 288 KiB, and four spare ones.
const BUFFERS_PER_LANE_BYTES: u64 = 6 * 288 * 1024;
/// A decoded key on a curve with what is around it.
const CURVE_KEY_BYTES: u64 = 1024;
/// What TLS to its backend adds to a connection with nothing pending.
const IDLE_BACKEND_TLS_BYTES: u64 = 3 * 1024;
/// A connection with nothing pending, in user space, where rustls has its records.
const IDLE_CONNECTION_BYTES: u64 = 3 * 1024;
/// A certificate of a store when it is decoded, which a check does not do: a key on a curve, and a
/// chain of usual length.
const STORED_CERTIFICATE_BYTES: u64 = CURVE_KEY_BYTES + 3 * 1024;
/// Both primes, their inverses and Montgomery forms.
const RSA_KEY_BYTES_PER_BIT: u64 = 3;
