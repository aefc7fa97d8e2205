//! The text of a ledger: [`text`] prints one server for people.

use std::fmt::Write as _;

use sealane_lab_model::{
    document::KernelLedger,
    number::number,
    words::kernel::{by_call, sharers},
};

/// One server.
pub(super) fn text(ledger: &KernelLedger) -> String {
    let mut out = String::new();
    let KernelLedger { server, version, workers, connections, .. } = ledger;
    let _ = writeln!(out, "\n{server}: {version}");
    if let Some(failure) = &ledger.failure {
        let _ = writeln!(out, "  no figures: {failure}");
        return out;
    }
    let same = match (ledger.repeats, ledger.exact) {
        (0 | 1, _) => String::new(),
        (repeats, true) => format!("; {repeats} times the same"),
        (repeats, false) => format!("; {repeats} times, NOT the same"),
    };
    let _ = writeln!(
        out,
        "  {workers} workers; {connections}, {} and {} connections, one after the other{same}",
        connections * 2,
        connections * 3
    );
    let _ = writeln!(out, "  {:18} {:24} {:>14}  by call", "shared", "by", "per connection");
    for row in &ledger.rows {
        let _ = writeln!(
            out,
            "  {:18} {:24} {:>14}  {}",
            row.object,
            sharers(row),
            row.per_connection,
            by_call(row)
        );
    }
    if let Some(growth) = &ledger.growth {
        let _ = writeln!(
            out,
            "  shared file tables grew {} times while {} connections came and stayed{}",
            growth.shared,
            growth.held,
            match growth.apart {
                0 => String::new(),
                apart => format!("; tables of one thread alone {apart} times"),
            }
        );
    }
    for row in ledger.rows.iter().filter(|row| row.per_connection > 0) {
        let _ = writeln!(out, "  {}: removed by {}", row.object, row.removal);
    }
    if let Some(contention) = &ledger.contention {
        let _ = writeln!(
            out,
            "  MEASURED waits for locks of the kernel, {} connections, {} at once:",
            contention.connections, contention.at_once
        );
        for wait in contention.waits.iter().take(WAITS_SHOWN) {
            let micros = number(wait.waited_ns as f64 / 1e3);
            let _ =
                writeln!(out, "    {:24} {:>6} waits, {micros} \u{b5}s", wait.object, wait.waits);
        }
    }
    for unseen in &ledger.unseen {
        let _ = writeln!(out, "  not seen: {}: {}; {}", unseen.what, unseen.why, unseen.remedy);
    }
    out
}

const WAITS_SHOWN: usize = 6;
