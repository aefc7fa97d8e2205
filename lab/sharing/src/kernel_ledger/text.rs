//! Ledgers as Markdown, to be read where no terminal is: [`text`].

use std::fmt::Write as _;

use sealane_lab_model::{
    document::{KernelLedger, KernelRow, Run, Unseen},
    words::{
        self,
        kernel::{amount, by_call, sharers, titled},
    },
};

use crate::kernel_ledger::calls::Kind;

/// All of it. The same documents give the same bytes.
pub(super) fn text(runs: &[Run]) -> String {
    let ledgers = || runs.iter().flat_map(|run| &run.kernel_ledgers);
    let counted: Vec<&KernelLedger> = ledgers().filter(|ledger| ledger.failure.is_none()).collect();
    let mut out = format!("# {TITLE}\n\n{LEAD}\n\n");
    for run in runs.iter().filter(|run| !run.kernel_ledgers.is_empty()) {
        let date = run.started.split('T').next().unwrap_or_default();
        let _ = writeln!(
            out,
            "Counted on {date}, Linux {}, {} processors.",
            run.machine.kernel, run.machine.processors
        );
    }
    overview(&mut out, &counted);
    not_counted(&mut out, ledgers());
    for kind in Kind::ALL {
        of_kind(&mut out, kind, &counted);
    }
    growth(&mut out, &counted);
    contention(&mut out, &counted);
    let _ = writeln!(out, "\n## How to make it again\n\n```sh");
    for run in runs {
        let _ = writeln!(out, "{}", words::shell(&run.command));
    }
    out + "```\n"
}

/// Totals by kind, and what was counted.
fn overview(out: &mut String, ledgers: &[&KernelLedger]) {
    let heads: Vec<&str> = Kind::ALL.iter().map(|kind| kind.words()).collect();
    let _ = writeln!(
        out,
        "\n| writes per connection of what is shared | {} | times |",
        heads.join(" | ")
    );
    let _ = writeln!(out, "|---|{}---:|", "---:|".repeat(heads.len()));
    for ledger in ledgers {
        let cells: Vec<String> =
            Kind::ALL.iter().map(|kind| row(ledger, *kind).map_or("-".into(), amount)).collect();
        let cells = cells.join(" | ");
        let _ = writeln!(out, "| {} | {cells} | {} |", escape(&titled(ledger)), ledger.repeats);
    }
}

/// What has no figures, and why.
fn not_counted<'a>(out: &mut String, ledgers: impl Iterator<Item = &'a KernelLedger>) {
    for KernelLedger { server, failure, unseen, .. } in ledgers {
        if let Some(failure) = failure {
            let _ = writeln!(out, "\n{server}: no figures: {failure}");
        }
        for Unseen { what, why, remedy } in unseen {
            let _ = writeln!(out, "\n{server}: not seen: {what}: {why}; {remedy}");
        }
    }
}

fn of_kind(out: &mut String, kind: Kind, ledgers: &[&KernelLedger]) {
    let rows: Vec<(&KernelLedger, &KernelRow)> =
        ledgers.iter().filter_map(|ledger| Some((*ledger, row(ledger, kind)?))).collect();
    if rows.iter().all(|(_, row)| row.shared == 0 && row.apart == 0) {
        return;
    }
    let _ = writeln!(out, "\n## {}\n", capital(kind.words()));
    let _ = writeln!(out, "What removes the sharing: {}.\n", kind.removal());
    let _ = writeln!(out, "| server | shared by | writes per connection | by call |");
    let _ = writeln!(out, "|---|---|---:|---|");
    for (ledger, row) in rows {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            escape(&ledger.server),
            sharers(row),
            amount(row),
            by_call(row)
        );
    }
}

fn growth(out: &mut String, ledgers: &[&KernelLedger]) {
    let rows = ledgers.iter().filter_map(|ledger| Some((ledger, ledger.growth.as_ref()?)));
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## Growths of file tables\n\n{GROWTH}\n");
    let _ =
        writeln!(out, "| server | connections that stay | shared tables | tables of one thread |");
    let _ = writeln!(out, "|---|---:|---:|---:|");
    for (ledger, growth) in rows {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            escape(&ledger.server),
            growth.held,
            growth.shared,
            growth.apart
        );
    }
}

fn contention(out: &mut String, ledgers: &[&KernelLedger]) {
    let seen = ledgers.iter().filter_map(|ledger| Some((ledger, ledger.contention.as_ref()?)));
    let seen: Vec<_> = seen.collect();
    let Some((_, first)) = seen.first() else { return };
    let (connections, at_once) = (first.connections, first.at_once);
    let _ = writeln!(out, "\n## MEASURED: waits for locks of what is counted above\n");
    let _ = writeln!(
        out,
        "By bpftrace at `lock:contention_begin`, {connections} connections, {at_once} at once, one \
         run. {CONTENTION}\n"
    );
    let heads: Vec<&str> = Kind::ALL.iter().map(|kind| kind.words()).collect();
    let _ = writeln!(out, "| server | {} |", heads.join(" | "));
    let _ = writeln!(out, "|---|{}", "---:|".repeat(heads.len()));
    for (ledger, contention) in seen {
        let waits = |kind: &Kind| {
            let of = contention.waits.iter().find(|wait| wait.object == kind.words());
            of.map_or("0".into(), |wait| {
                format!("{}, {} \u{b5}s", wait.waits, wait.waited_ns / 1_000)
            })
        };
        let cells: Vec<String> = Kind::ALL.iter().map(waits).collect();
        let _ = writeln!(out, "| {} | {} |", escape(&ledger.server), cells.join(" | "));
    }
}

fn row(ledger: &KernelLedger, kind: Kind) -> Option<&KernelRow> {
    ledger.rows.iter().find(|row| row.object == kind.words())
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The text as a cell of a table.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

const TITLE: &str = "What servers share in the kernel, per connection";
const LEAD: &str = "\
`sealane-lab count --kernel` counts how often one connection writes what several threads or
processes of a server share in the kernel. A connection is a full handshake, one request with its
answer and the end; each comes alone, when all threads sleep again. Figures are the slope of N, 2N
and 3N connections, to the nearest whole number. Who shares is asked by kcmp(2), and followed from
the flags of clone(2). A write of a file table is a call that takes its lock: accept(2) takes a
number before it looks for a connection, so that one *of nobody* counts too. *Now and then* is
less than once in two connections. In brackets stands the same work on what one thread has alone.
Every server was counted several times; a figure *or more* was not the same each time, and the
smallest stands here.

Not seen: what the kernel shares by itself (ports, hash tables of sockets, counts of a file), what
goes through io_uring, and how long anybody waits. That one object is written often by several
threads is where many cores meet; that they wait for it here, on two, nobody says.";
const GROWTH: &str = "\
Doublings of the table while connections come and stay. Of a table that several threads share,
each waits until all processors have passed a quiet state, and so does whoever needs a number
meanwhile.";
const CONTENTION: &str = "\
Times with bpftrace in them, of two processors that others use too: an order of magnitude, and no \
verdict.";
