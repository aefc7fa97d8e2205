//! What somebody published of one table and of a table for each thread: [`Published`].

use sealane_lab_model::{
    document::{Curve, CurvePoint, KernelFigure},
    error::Error,
};
use serde::Deserialize;

use crate::forecast::replays::OFF;

/// One report's figures, and where they stand.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    /// The curve's title.
    title: String,
    /// When it was published.
    date: String,
    /// Where it stands.
    address: String,
    /// What its word is worth.
    standing: String,
    /// How the figures were read.
    read: String,
    /// What a forecast would have to know.
    untold: String,
    /// How many.
    pub(super) threads: u32,
    /// Full handshakes per second.
    pub(super) one_table_per_s: f64,
    /// The same.
    pub(super) own_tables_per_s: f64,
    /// The share of the CPU time, with one table, in the lock's slow path: 0 to 1.
    pub(super) waiting_share: f64,
}

impl Published {
    /// The one that is shipped.
    ///
    /// # Errors
    /// The file is broken.
    pub(super) fn shipped() -> Result<Self, Error> {
        toml::from_str(TRAFFIC_SERVER).map_err(|error| Error::Document {
            file: format!("lab/published/{FILE}"),
            reason: format!("{error}; the lab was built with it: correct the file, build again"),
        })
    }

    /// In a line.
    pub(super) fn source(&self) -> String {
        let Self { title, date, address, standing, read, untold, .. } = self;
        format!("{title}, {date}, {address}: {standing}; read {read}; not told: {untold}")
    }

    /// Forecasts at its threads: of one table, and of a table for each thread, of a connection
    /// that takes `alone_ns` if it waits for nobody.
    pub(super) fn beside(&self, alone_ns: f64, curves: [&Curve; 2]) -> Vec<KernelFigure> {
        let of = |curve: &Curve| {
            let point = curve.points.iter().find(|point| point.threads == self.threads);
            point.copied().unwrap_or_default()
        };
        let [one, own] = curves.map(of);
        let all_per_s = f64::from(self.threads) * 1e9 / alone_ns;
        let rate = |point: CurvePoint| {
            [point.efficiency, point.low, point.high].map(|share| share * all_per_s)
        };
        // Both have the same time alone: what is wrong with that is not in the ratio.
        let gain = [one.efficiency, one.high, one.low].map(|share| own.efficiency / share);
        let waiting = [one.efficiency, one.high, one.low].map(|share| 1.0 - share);
        let gained = self.own_tables_per_s / self.one_table_per_s;
        vec![
            figure(ONE_TABLE, rate(one), self.one_table_per_s),
            figure(OWN_TABLES, rate(own), self.own_tables_per_s),
            figure(GAIN, gain, gained),
            figure(WAITING, waiting, self.waiting_share),
        ]
    }

    /// From one hold to the next, beside what the rate with one table leaves, of a connection that
    /// takes the lock so many times: as the profile says, and where a line moves in half the time.
    pub(super) fn beside_turn(&self, holds: u64, [given_ns, fast_ns]: [f64; 2]) -> KernelFigure {
        let left_ns = 1e9 / self.one_table_per_s / holds as f64;
        figure(TURN, [given_ns, fast_ns / OFF, given_ns * OFF], left_ns)
    }
}

fn figure(what: &str, [forecast, low, high]: [f64; 3], published: f64) -> KernelFigure {
    let (what, off) = (what.to_owned(), forecast / published);
    KernelFigure { what, forecast, low, high, published, off }
}

const ONE_TABLE: &str = "handshakes per second, one table";
const OWN_TABLES: &str = "handshakes per second, a table for each thread";
pub(super) const GAIN: &str = "what tables of their own bring";
pub(super) const WAITING: &str = "share of the CPU time that waits";
pub(super) const TURN: &str = "ns from hold to hold, if all wait";
const FILE: &str = "trafficserver-13086-2026-04-13.toml";
const TRAFFIC_SERVER: &str =
    include_str!("../../../../published/trafficserver-13086-2026-04-13.toml");
