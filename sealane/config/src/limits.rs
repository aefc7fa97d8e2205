//! What is bounded, by name, and how the whole is divided among lanes.

use std::num::NonZeroUsize;
use std::time::Duration;

use sealane_engine::certificates::CERTIFICATES_MAX;
use sealane_lanes::timeouts::Timeouts;

/// The limits of a whole process; see [`Limits::per_lane`] for those of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Certificates of one listener.
    pub certificates_max: usize,
    /// One attempt to connect to a backend.
    pub connect_timeout: Duration,
    /// From accept to the end of an established connection; none unless asked for.
    pub connection_age_max: Option<Duration>,
    /// Open client connections in all.
    pub connections_max: usize,
    /// Open client connections of one lane; without it, its share of `connections_max`.
    pub connections_per_lane_max: Option<usize>,
    /// Private keys that a lane keeps decoded; the least recently used goes first.
    pub decoded_keys_per_lane_max: usize,
    /// From the first signal to the closing of the listeners; who comes meanwhile is served.
    pub drain_delay: Duration,
    /// From the closing of the listeners to the end of the last connection.
    pub drain_timeout: Duration,
    /// Handshakes in flight in all.
    pub handshakes_max: usize,
    /// From the first signal to the moment when the admin address calls the process unhealthy; at
    /// most `drain_delay`.
    pub health_delay: Duration,
    /// Bytes of a ClientHello.
    pub hello_bytes_max: usize,
    /// Addresses listened on, over all listeners.
    pub listeners_max: usize,
    /// Server names of one listener.
    pub names_max: usize,
    /// From accept to the end of the PROXY header, where one is required.
    pub proxy_timeout: Duration,
    /// How long a connection may take, and be still, unless its listener says otherwise.
    pub timeouts: Timeouts,
    /// Bytes of unfinished hellos, messages and records that a lane keeps.
    pub unfinished_bytes_per_lane_max: usize,
}

impl Limits {
    /// The limits of each of `lanes`: what is counted in all is divided, because a shared counter
    /// would be a cache line that every lane writes. All lanes together never have more than the
    /// whole, so up to `lanes` - 1 of it are nobody's.
    pub fn per_lane(&self, lanes: NonZeroUsize) -> sealane_lanes::limits::Limits {
        let share = self.connections_max / lanes;
        let connections_max = self.connections_per_lane_max.unwrap_or(share);
        sealane_lanes::limits::Limits {
            connection_age_max: self.connection_age_max,
            connections_max,
            handshakes_max: (self.handshakes_max / lanes).min(connections_max),
            hello_bytes_max: self.hello_bytes_max,
            unfinished_bytes_max: self.unfinished_bytes_per_lane_max,
        }
    }
}

impl Default for Limits {
    /// What lanes keep to themselves is by default what the lanes crate says.
    fn default() -> Self {
        let lane = sealane_lanes::limits::Limits::default();
        Self {
            certificates_max: CERTIFICATES_MAX,
            connect_timeout: Duration::from_secs(5),
            connection_age_max: lane.connection_age_max,
            connections_max: lane.connections_max,
            connections_per_lane_max: None,
            decoded_keys_per_lane_max: 1_024,
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            handshakes_max: 16_384,
            health_delay: Duration::ZERO,
            hello_bytes_max: lane.hello_bytes_max,
            listeners_max: 256,
            names_max: 1_000_000,
            proxy_timeout: Duration::from_secs(3),
            timeouts: Timeouts::default(),
            unfinished_bytes_per_lane_max: lane.unfinished_bytes_max,
        }
    }
}
