//! What servers share in the kernel, of `count --kernel`: a table by object, and what writes it.

use sealane_lab_model::{
    document::{KernelLedger, KernelRow},
    number::number,
    words::kernel::{amount, by_call, objects, sharers},
};

use crate::plot::escape;

use super::{
    frame::{Cell, Section, Tag, table},
    sources::Sources,
};

/// The section, if a ledger was kept.
pub(super) fn section(sources: &Sources) -> Option<Section> {
    let ledgers = sources.runs.iter().flat_map(|source| &source.run.kernel_ledgers);
    let ledgers: Vec<&KernelLedger> = ledgers.filter(|ledger| ledger.failure.is_none()).collect();
    if ledgers.is_empty() {
        return None;
    }
    let each: String = ledgers.iter().map(|ledger| one(ledger)).collect();
    let body = overview(&ledgers) + &each;
    let title = "What servers share in the kernel, per connection";
    Some(Section { id: "kernel", short: "Kernel", title, lead: LEAD.to_owned(), body })
}

/// Who writes a shared file table how often, for a page of nothing else.
pub(super) fn sentence(sources: &Sources) -> Option<String> {
    let ledgers = sources.runs.iter().flat_map(|source| &source.run.kernel_ledgers);
    let told = ledgers.filter_map(|ledger| {
        let table = ledger.rows.first().filter(|_| ledger.failure.is_none())?;
        Some(format!("{} {}", ledger.server, amount(table)))
    });
    let told: Vec<String> = told.collect();
    let of = "Writes per connection of a file table that several threads share";
    (!told.is_empty()).then(|| format!("{of}: {}.", told.join(", ")))
}

/// Totals, a row for each server.
fn overview(ledgers: &[&KernelLedger]) -> String {
    let objects = objects(ledgers.iter().copied());
    let rows = ledgers.iter().map(|ledger| {
        let of = |object: &&str| ledger.rows.iter().find(|row| row.object == **object);
        let cell = |row: Option<&KernelRow>| Cell::Number(row.map_or("-".into(), amount));
        let grown = ledger.growth.as_ref();
        let growth = grown.map_or("-".into(), |growth| number(growth.shared as f64));
        let mut cells = vec![Cell::Text(ledger.server.clone())];
        cells.extend(objects.iter().map(|object| cell(of(object))));
        cells.push(Cell::Number(growth));
        cells
    });
    let mut heads = vec!["server".to_owned()];
    heads.extend(objects.iter().map(|object| format!("#{object}")));
    heads.push("#growths of a shared table".into());
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let caption = "Writes per connection of what several threads share";
    table(caption, &heads, &rows.collect::<Vec<_>>())
}

fn one(ledger: &KernelLedger) -> String {
    let same = match (ledger.repeats, ledger.exact) {
        (0 | 1, _) => String::new(),
        (repeats, true) => format!(", {repeats} times the same"),
        (repeats, false) => format!(", {repeats} times, NOT the same"),
    };
    let mut html = format!(
        "<h3 class=\"group\">{} {}</h3><p class=\"look\">{}, {} workers{same}.</p>",
        escape(&ledger.server),
        Tag::Counted.html(),
        escape(&ledger.version),
        ledger.workers,
    );
    let rows = ledger.rows.iter().map(|row| {
        let removal = if row.per_connection > 0 { row.removal.clone() } else { String::new() };
        vec![
            Cell::Text(row.object.clone()),
            Cell::Text(sharers(row)),
            Cell::Number(amount(row)),
            Cell::Text(by_call(row)),
            Cell::Text(removal),
        ]
    });
    let heads = ["object", "shared by", "#writes per connection", "by call", "removed by"];
    let caption = format!("What connections of {} write", ledger.server);
    html += &table(&caption, &heads, &rows.collect::<Vec<_>>());
    html + &contention(ledger)
}

fn contention(ledger: &KernelLedger) -> String {
    let Some(contention) = &ledger.contention else { return String::new() };
    let rows = contention.waits.iter().map(|wait| {
        vec![
            Cell::Text(wait.object.clone()),
            Cell::Number(number(wait.waits as f64)),
            Cell::Number(number((wait.waited_ns as f64 / 1e3).round())),
        ]
    });
    let caption = format!(
        "MEASURED: waits for locks of the kernel, {} connections, {} at once",
        contention.connections, contention.at_once
    );
    table(&caption, &["lock of", "#waits", "#\u{b5}s"], &rows.collect::<Vec<_>>())
}

const LEAD: &str = "System calls that write a file table, a memory map, an epoll instance, a \
    listening socket, a futex or a timer which several threads have: the slope of N, 2N and 3N \
    connections, each alone. Who shares, the kernel tells. That is where many cores meet; how long \
    they wait there is another question.";
