//! The text of a kernel forecast, for people: [`text`], and the cells of its tables.

use std::fmt::Write as _;

use sealane_lab_model::{
    document::{Curve, KernelFigure, KernelForecast, KernelHold, KernelPath},
    number::number,
    statistics::Spread,
    verdict::{self, TWICE},
};

use super::published::{GAIN, WAITING};
use crate::{
    forecast::table::{cell, knee},
    transfer::MEASURED,
};

/// One stack's handshake in the servers of a ledger.
pub(super) fn text(forecast: &KernelForecast) -> String {
    let KernelForecast { stack, version, profile, published, .. } = forecast;
    let mut out = format!(
        "\nOne file table for all threads, and a table for each; with the handshake of {stack} \
         ({version})\n  {}\n  {}\n  s = {:.1} ns to move a line: {}\n",
        held(&forecast.hold),
        work(forecast),
        profile.transfer_ns,
        profile.source,
    );
    if profile.name != MEASURED {
        let _ = writeln!(out, "  {TWO_MACHINES}");
    }
    for path in &forecast.paths {
        let _ = writeln!(out, "\n  {}: FORECAST, with its band", title(path));
        let heads = HEADS.map(str::to_owned);
        for cells in [heads].into_iter().chain(rows(path)).chain([last(path)]) {
            row(&mut out, &cells);
        }
        let _ = writeln!(out);
        for cells in [BESIDE_HEADS.map(str::to_owned)].into_iter().chain(beside(path)) {
            let [what, forecast, published, off] = cells;
            let _ = writeln!(out, "  {what:46}  {forecast:>28}  {published:>9}  {off:>10}");
        }
    }
    let _ = writeln!(out, "\n  published: {published}");
    out
}

/// What was measured of the lock.
pub(super) fn held(hold: &KernelHold) -> String {
    let KernelHold { look_ns, apart_ns, together_ns, hold_ns, lines, replayed_ns, .. } = hold;
    let spread = |figures: &[f64]| match Spread::of(figures) {
        Some(Spread { median, min, max }) => format!("{median:.0} ({min:.0}-{max:.0})"),
        None => "-".into(),
    };
    format!(
        "MEASURED: a system call holds a file table's lock for {hold_ns:.0} ns at most. Two \
         threads, F_DUPFD and close: {} ns with a table each, {} ns with one; two calls that \
         write no table: {} ns. The replay of the two comes nearest with {lines} lines that move \
         under the lock beside its own: {replayed_ns:.0} ns, at {:.1} ns a line.",
        spread(apart_ns),
        spread(together_ns),
        spread(look_ns),
        hold.transfer_ns,
    )
}

/// What else a connection takes.
pub(super) fn work(forecast: &KernelForecast) -> String {
    format!(
        "Assumed of a connection: {} us of CPU outside of the lock, the server's handshake with \
         {} ({}), {}. What else a server does for it, TCP in the kernel first, is not in it: more \
         work waits less.",
        number(forecast.base.server_ns / 1e3),
        forecast.stack,
        forecast.version,
        forecast.base.source,
    )
}

/// `4 holds per connection (haproxy)`.
pub(super) fn title(path: &KernelPath) -> String {
    format!("{} holds per connection ({})", path.holds, path.servers.join(", "))
}

/// By threads.
pub(super) fn rows(path: &KernelPath) -> impl Iterator<Item = [String; 4]> {
    path.one_table.points.iter().zip(&path.own_tables.points).map(|(one, own)| {
        let rate = |share: f64| rounded(share * f64::from(one.threads) * 1e9 / path.alone_ns);
        let [one_per_s, own_per_s] = [one, own].map(|point| {
            let [middle, low, high] = [point.efficiency, point.low, point.high].map(rate);
            format!("{middle} ({low}-{high})")
        });
        [one.threads.to_string(), cell(one), one_per_s, own_per_s]
    })
}

/// Where they fall below 70%.
pub(super) fn last(path: &KernelPath) -> [String; 4] {
    let told = |curve: &Curve| knee(&curve.knee);
    let each = format!("a table each: {}", told(&path.own_tables));
    ["70% at".into(), told(&path.one_table), String::new(), each]
}

/// Beside what was published.
pub(super) fn beside(path: &KernelPath) -> impl Iterator<Item = [String; 4]> {
    path.beside.iter().map(|figure| {
        let KernelFigure { what, forecast, low, high, published, off } = figure;
        let shown = |value: &f64| match what.as_str() {
            GAIN => format!("x{value:.2}"),
            WAITING => format!("{:.0}%", value * 100.0),
            _ => rounded(*value),
        };
        let [forecast, low, high] = [forecast, low, high].map(shown);
        let missed = if verdict::off((*off, 1.0)) > TWICE { " miss" } else { "" };
        let band = format!("{forecast} ({low}-{high})");
        [what.clone(), band, shown(published), format!("x{off:.2}{missed}")]
    })
}

fn row(out: &mut String, [threads, keeps, one, own]: &[String; 4]) {
    let _ = writeln!(out, "  {threads:>10}  {keeps:>18}  {one:>30}  {own:>30}");
}

/// To three digits.
fn rounded(value: f64) -> String {
    let digits = value.abs().max(1.0).log10().floor() - 2.0;
    let unit = 10_f64.powf(digits.max(0.0));
    number((value / unit).round() * unit)
}

pub(super) const TWO_MACHINES: &str = "Two machines: a line is moved on the one that is named, the \
    lock and the handshake are of where they were measured.";
pub(super) const HEADS: [&str; 4] =
    ["threads", "one table: keeps", "handshakes per second", "with a table for each"];
pub(super) const BESIDE_HEADS: [&str; 4] = ["", "FORECAST (band)", "published", "off"];
