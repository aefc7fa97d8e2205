//! Results of `forecast --kernel`: what a file table that all threads share comes to with many.

use serde::{Deserialize, Serialize};

use super::{Base, Curve, Profile};

/// Servers of one ledger, with one stack's handshake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelForecast {
    /// The machine it is made for.
    pub profile: Profile,
    /// What a system call does under the table's lock, measured here.
    pub hold: KernelHold,
    /// Whose handshake it is: [`Identity::name`](crate::library::Identity::name).
    pub stack: String,
    /// The version, as the library tells it.
    pub version: String,
    /// CPU time of a connection outside of the lock: the server's part alone.
    pub base: Base,
    /// One for each number of holds per connection, the most first.
    pub paths: Vec<KernelPath>,
    /// What somebody published, for [`KernelPath::beside`].
    pub published: String,
}

/// A call that writes a file table and does little else, by two threads on a processor each, at
/// the same time. Times are CPU times of two calls, a value per round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelHold {
    /// Two calls that look a descriptor up and write no table, with a table for each thread.
    pub look_ns: Vec<f64>,
    /// A descriptor is duplicated and closed, with a table for each thread.
    pub apart_ns: Vec<f64>,
    /// The same with one table.
    pub together_ns: Vec<f64>,
    /// What it costs here to move a line.
    pub transfer_ns: f64,
    /// How long a call holds the lock, at most: half of what `apart_ns` is above `look_ns`.
    pub hold_ns: f64,
    /// Lines that move under the lock, beside its own: with so many, the replay of two threads
    /// comes nearest to `together_ns`.
    pub lines: u32,
    /// What it comes to.
    pub replayed_ns: f64,
}

/// A connection that takes the lock so many times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelPath {
    /// Servers of the ledger whose connections do so.
    pub servers: Vec<String>,
    /// Times that a connection takes the lock.
    pub holds: u64,
    /// CPU time of a connection that waits for nobody, the holds with it.
    pub alone_ns: f64,
    /// With one table for all threads.
    pub one_table: Curve,
    /// With a table for each.
    pub own_tables: Curve,
    /// Beside what was published, at the threads of that.
    pub beside: Vec<KernelFigure>,
}

/// A forecast beside a published figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelFigure {
    /// What it tells.
    pub what: String,
    /// In the middle of the band.
    pub forecast: f64,
    /// The band's lower end.
    pub low: f64,
    /// The band's upper end.
    pub high: f64,
    /// By somebody else, of another machine.
    pub published: f64,
    /// How far off: `forecast` over `published`.
    pub off: f64,
}
