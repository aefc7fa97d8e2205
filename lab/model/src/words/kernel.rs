//! Rows of a kernel ledger in words: who shares, how much is written, by which call.

use crate::{
    document::{KernelCall, KernelLedger, KernelRow},
    number::number,
};

/// `haproxy (HAProxy version 2.6.12)`.
pub fn titled(ledger: &KernelLedger) -> String {
    let KernelLedger { server, version, .. } = ledger;
    match version.contains(['{', '\'']) {
        // A command line tells nothing that stands not at the end.
        true => server.clone(),
        false => format!("{server} ({})", version.split(" - ").next().unwrap_or_default()),
    }
}

/// Writes per connection; the smallest figure of several that differ.
pub fn amount(row: &KernelRow) -> String {
    told(row.per_connection, row.exact)
}

fn told(per_connection: u64, exact: bool) -> String {
    let figure = number(per_connection as f64);
    if exact { figure } else { format!("{figure} or more") }
}

/// Who shares objects of that kind.
pub fn sharers(row: &KernelRow) -> String {
    match (row.shared, row.threads) {
        (0, _) => "none written".into(),
        (_, threads) if row.writers < threads => {
            format!("{threads} threads, {} write", row.writers)
        }
        (_, threads) => format!("{threads} threads"),
    }
}

/// What a connection does to them, by system call.
pub fn by_call(row: &KernelRow) -> String {
    let (each, rare): (Vec<&KernelCall>, Vec<&KernelCall>) =
        row.calls.iter().partition(|call| call.per_connection > 0);
    let mut parts: Vec<String> =
        each.iter().map(|call| format!("{} {}", call.call, call.per_connection)).collect();
    if !rare.is_empty() {
        let names: Vec<&str> = rare.iter().map(|call| call.call.as_str()).collect();
        parts.push(format!("now and then {}", names.join(", ")));
    }
    if row.apart > 0 {
        parts.push(format!("({} to what one thread has alone)", row.apart));
    }
    if !row.exact {
        parts.push("NOT the same every time".into());
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_who_shares_and_what_a_connection_does() {
        let call = |call: &str, per_connection| KernelCall {
            call: call.into(),
            per_connection,
            lengths: [8, 16, 24].map(|length| length * per_connection),
        };
        let row = KernelRow {
            shared: 1,
            threads: 5,
            writers: 2,
            calls: vec![call("close", 2), call("accept4", 1), call("dup", 0)],
            apart: 3,
            exact: true,
            ..KernelRow::default()
        };
        assert_eq!(sharers(&row), "5 threads, 2 write");
        assert_eq!(
            by_call(&row),
            "close 2, accept4 1, now and then dup, (3 to what one thread has alone)"
        );
        assert_eq!(sharers(&KernelRow::default()), "none written");
    }
}
