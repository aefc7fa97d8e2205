//! The text of a forecast, for people: [`text`].

use std::fmt::Write as _;

use sealane_lab_model::{
    document::{Curve, CurvePoint, Forecast, ForecastComparison, KNEE, Knee, LineCost, Verdict},
    verdict::{share, thousands},
    words::scenario::whole,
};

use crate::transfer::MEASURED;

/// One stack in one scenario.
pub fn text(forecast: &Forecast) -> String {
    let Forecast { stack, version, scenario, verdict, .. } = forecast;
    let mut out = format!("\n{stack} ({version}): {}\n", whole(scenario));
    sentences(&mut out, verdict);
    if verdict.forecast.is_empty() {
        return out;
    }
    curves(&mut out, forecast);
    lines(&mut out, &forecast.lines);
    causes(&mut out, forecast);
    let (profile, base) = (&forecast.profile, &forecast.base);
    let _ = writeln!(
        out,
        "  s = {:.1} ns to move a line: {}\n  one thread: {:.1} us in the server, {:.1} us in the \
         client, {:.1} us around them; {}",
        profile.transfer_ns,
        profile.source,
        base.server_ns / 1e3,
        base.client_ns / 1e3,
        base.untimed_ns / 1e3,
        base.source
    );
    if profile.name != MEASURED {
        let _ = writeln!(
            out,
            "  two machines: a line is moved on {}, the thread's time is of where it was \
             recorded",
            profile.name
        );
    }
    out
}

/// What was compared.
pub fn comparisons(comparisons: &[ForecastComparison]) -> String {
    let mut out = String::new();
    for ForecastComparison { of, to, verdict, .. } in comparisons {
        let _ = writeln!(out, "\n{of} beside {to}");
        sentences(&mut out, verdict);
    }
    out
}

fn sentences(out: &mut String, verdict: &Verdict) {
    for sentence in [&verdict.measured, &verdict.forecast].into_iter().filter(|it| !it.is_empty()) {
        let _ = writeln!(out, "  {sentence}");
    }
}

/// A knee in words.
pub(crate) fn knee(knee: &Knee) -> String {
    match knee {
        Knee::FewCores => "few cores".into(),
        Knee::At { threads } => format!("about {threads}"),
        Knee::NoneBelow { threads } => format!("none below {threads}"),
        Knee::Unknown => "not looked for".into(),
    }
}

fn curves(out: &mut String, forecast: &Forecast) {
    let all = [&forecast.server, &forecast.client, &forecast.whole];
    let _ = writeln!(out, "  FORECAST: share of its per-thread speed that a thread keeps (band)");
    row(out, "threads", ["server", "client", "whole loop"].map(str::to_owned));
    for (at, point) in forecast.server.points.iter().enumerate() {
        let cells = all.map(|curve| curve.points.get(at).map(cell).unwrap_or_default());
        row(out, &point.threads.to_string(), cells);
    }
    row(out, "70% at", all.map(|curve: &Curve| knee(&curve.knee)));
}

/// What a thread keeps.
pub(crate) fn cell(point: &CurvePoint) -> String {
    if point.efficiency >= KNEE { "above 70%".into() } else { share(point) }
}

fn row(out: &mut String, name: &str, cells: [String; 3]) {
    let [server, client, whole] = cells;
    let _ = writeln!(out, "  {name:>10}  {server:>18}  {client:>18}  {whole:>18}");
}

fn lines(out: &mut String, lines: &[LineCost]) {
    if lines.is_empty() {
        let _ = writeln!(out, "  FORECAST: no thread waits for another");
        return;
    }
    let _ = writeln!(
        out,
        "  FORECAST: lines by share of all waiting, and the server had each not been there\n  \
         {:>8}  {:>18}  {:>14}  line",
        "waiting", "keeps without", "70% without"
    );
    for line in lines {
        let LineCost { class, symbol, owner, lock, without, without_band, path, .. } = line;
        let [low, high] = *without_band;
        let point = CurvePoint { threads: 0, efficiency: *without, low, high };
        let class = lock.as_ref().unwrap_or(class);
        let _ = writeln!(
            out,
            "  {:>7.0}%  {:>18}  {:>14}  {symbol} ({class}, {owner})",
            line.share_of_waiting * 100.0,
            cell(&point),
            knee(&line.knee_without)
        );
        if !path.is_empty() {
            let shown: Vec<&str> = path.iter().take(PATH_SHOWN).map(String::as_str).collect();
            let _ = writeln!(out, "{:48}{}", "", shown.join(" < "));
        }
    }
}

fn causes(out: &mut String, forecast: &Forecast) {
    let _ = writeln!(out, "  MEASURED: writes per handshake to shared lines");
    row(out, "", ["server", "client", "around them"].map(str::to_owned));
    for cause in &forecast.writes {
        let [server, client, rest] = cause.writes.map(thousands);
        let _ = writeln!(out, "  {:>16}  {server:>12}  {client:>18}  {rest:>18}", cause.cause);
    }
}

/// Functions of a path; `--json` has all.
const PATH_SHOWN: usize = 6;
