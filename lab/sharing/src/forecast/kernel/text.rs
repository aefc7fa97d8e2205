//! Kernel forecasts as Markdown, beside the ledgers that they are made from: [`section`].

use std::fmt::Write as _;

use sealane_lab_model::document::{KernelForecast, KernelPath};

use super::table::{BESIDE_HEADS, TWO_MACHINES, beside, held, title, work};
use crate::transfer::MEASURED;

/// All of them; nothing if there are none.
pub(crate) fn section(forecasts: &[&KernelForecast]) -> String {
    if forecasts.is_empty() {
        return String::new();
    }
    let mut out = format!("\n## FORECAST: one file table with many threads\n\n{LEAD}\n");
    let mut sources: Vec<&str> = forecasts.iter().map(|it| it.published.as_str()).collect();
    sources.dedup();
    sources.iter().for_each(|source| out += &format!("\nPublished: {source}.\n"));
    for forecast in forecasts {
        let profile = &forecast.profile;
        let _ = writeln!(
            out,
            "\n### A line moves in {:.1} ns\n\n- {}: {}.\n- {}\n- {}",
            profile.transfer_ns,
            profile.name,
            profile.source,
            held(&forecast.hold),
            work(forecast),
        );
        if profile.name != MEASURED {
            let _ = writeln!(out, "- {TWO_MACHINES}");
        }
        forecast.paths.iter().for_each(|path| one(&mut out, path));
    }
    out
}

/// At the threads of what was published; `forecast` shows the others.
fn one(out: &mut String, path: &KernelPath) {
    let [_, forecast, published, off] = BESIDE_HEADS.map(str::to_owned);
    let _ = writeln!(out);
    line(out, &[title(path), forecast, published, off]);
    let _ = writeln!(out, "|---|---:|---:|---:|");
    beside(path).for_each(|cells| line(out, &cells));
}

fn line(out: &mut String, cells: &[String; 4]) {
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

const LEAD: &str = "\
`sealane-lab forecast --kernel` replays a connection of the servers above whose threads share a file
table: each time that it takes the table's lock is a step, held for as long as measured, with the
lines that move meanwhile; a call *of nobody* takes it twice. Each thread has a core of its own, and
is as fast as one of this machine. In brackets stands the band, twice and half as for
[every forecast](FORECAST.md).

The published pair is the only one there is. It is one contributor's figure, in a pull request that
was open and that nobody reviewed; it validates nothing, and a forecast that meets it would not be
right for that. *Off* is the forecast over it, a *miss* more than twice or less than half. The last
row is the time from one hold to the next; beside it stands what the published rate leaves for that,
if the lock was never free.";
