//! The options and the figures of storms, [`Storm`] and [`FIGURES`].

use sealane_lab_harness::descriptors;

/// The options of storms.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Storm {
    /// Storms: ClientHellos per second, as a multiple of the server's own capacity
    #[arg(long, value_name = "TIMES", default_value_t = 3.0, value_parser = times)]
    pub(crate) storm_rate: f64,
    /// Storms: networks of 24 bits that have the 250 addresses of clients
    #[arg(long, value_name = "N", default_value_t = 250,
        value_parser = clap::value_parser!(u8).range(1..=250))]
    pub(crate) storm_prefixes: u8,
    /// Storms: seconds, 1 to 8
    #[arg(long, value_name = "S", default_value_t = 8,
        value_parser = clap::value_parser!(u64).range(1..=8))]
    pub(crate) storm_seconds: u64,
    /// Storms: clients wait for an answer, instead of a reset after 1 s
    #[arg(long)]
    pub(crate) storm_waits: bool,
    /// Storms: percent of the clients that complete their handshakes; the others only wait for the
    /// ServerHello
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
        value_parser = clap::value_parser!(u8).range(0..=100))]
    pub(crate) storm_completes: u8,
}

/// Storm clients at once. Some servers need two descriptors for each, or do not start.
pub(crate) fn open_max() -> u64 {
    (descriptors::most() / 2).saturating_sub(CONNECTIONS_SPARE).min(STORM_OPEN_MAX)
}

fn times(text: &str) -> Result<f64, String> {
    let times = text.parse().ok().filter(|times| (0.1..=100.0).contains(times));
    times.ok_or_else(|| "want 0.1 to 100".into())
}

/// Name, title, unit and decimals of each figure.
pub(crate) const FIGURES: [(&str, &str, &str, usize); 15] = [
    ("capacity", "capacity", "per s", 0),
    ("offered", "ClientHellos", "per s", 0),
    ("answered", "answered within 1 s", "%", 1),
    ("useful", "useful work", "of capacity", 2),
    ("users", "users connected", "count", 0),
    ("failed", "users failed", "count", 0),
    ("calm-p50", "users before, p50", "ms", 1),
    ("calm-p99", "users before, p99", "ms", 1),
    ("p50", "users, p50", "ms", 1),
    ("p99", "users, p99", "ms", 1),
    ("stall", "stream, longest stall", "ms", 0),
    ("normal", "normal again after", "s", 2),
    ("cpu", "server CPU", "s", 1),
    ("each", "CPU per useful handshake", "times calm", 2),
    ("memory", "peak RSS", "MiB", 0),
];
/// Connections of a server beyond those that are asked for.
pub(crate) const CONNECTIONS_SPARE: u64 = 500;
const STORM_OPEN_MAX: u64 = 16_000;
