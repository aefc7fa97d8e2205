//! The highest cost of each message of a stranger, counted. COSTS.md holds the same numbers.

mod chains;
mod hellos;
mod messages;

use std::fmt::Write as _;

use crate::peer_chain::PEER_CHAIN_BYTES_MAX;
use crate::tickets::TICKET_BYTES_MAX;

/// The document has the same numbers as the counts, row by row.
#[test]
fn the_document_has_the_counts() {
    let counted: Vec<_> = chain_rows().into_iter().chain(message_rows()).collect();
    let mut wrong = String::new();
    for (message, counts) in &counted {
        let cells: Vec<_> = counts.iter().map(ToString::to_string).collect();
        let line = format!("| {message} | {} |", cells.join(" | "));
        if !DOCUMENT.lines().any(|known| known == line) {
            let _ = writeln!(wrong, "{line}");
        }
    }
    assert_eq!(wrong, "", "COSTS.md has other numbers; these were counted");
    let is_row = |line: &&str| line.starts_with('|') && !line.starts_with("|---");
    let heads = DOCUMENT.lines().filter(|line| line.starts_with("|---")).count();
    assert_eq!(DOCUMENT.lines().filter(is_row).count(), heads + counted.len());
}

/// A message, and its counts in the order of the table's columns.
type Row = (&'static str, Vec<usize>);

fn chain_rows() -> Vec<Row> {
    use chains::{bytes, certificate_verify, chain_cost, client_verdict, resumed_verdict};
    let ladder = chains::ladder();
    assert!(bytes(&ladder) <= TICKET_BYTES_MAX);
    let beyond = chains::beyond();
    let row = |sent, cost: chains::Cost| vec![sent, cost.parsed, cost.searched, cost.verified];
    let largest = PEER_CHAIN_BYTES_MAX;
    vec![
        ("client's Certificate", row(largest, chain_cost(&ladder, &client_verdict))),
        (
            "client's Certificate, beyond the limits",
            row(bytes(&beyond), chain_cost(&beyond, &client_verdict)),
        ),
        (
            "client's certificates in a ticket that resumes",
            row(TICKET_BYTES_MAX, chain_cost(&ladder, &resumed_verdict)),
        ),
        ("client's CertificateVerify", row(512, certificate_verify())),
        ("backend's Certificate", row(largest, chain_cost(&ladder, &chains::server_verdict))),
    ]
}

fn message_rows() -> Vec<Row> {
    let row =
        |cost: messages::Cost| vec![cost.sent, cost.hellos, cost.shown, cost.opened, cost.held];
    let [later, later_with_rustls] = messages::unfinished_later();
    [
        ("junk instead of a hello", hellos::junk()),
        ("ClientHello with as many extensions as fit", hellos::full_of_extensions()),
        ("ClientHello with as many tickets as fit", hellos::full_of_tickets()),
        ("ClientHello in records of one byte", hellos::in_single_bytes()),
        ("ClientHello that never ends", hellos::unfinished()),
        ("second ClientHello that never ends", messages::second_hello(1 << 10)),
        ("second ClientHello in records of one byte", messages::second_hello(1)),
        ("message that never ends, where a certificate is due", messages::unfinished(true)),
        ("message that never ends, where none is due", messages::unfinished(false)),
        ("message that never ends, after the handshake", later),
        ("the same from a client with a certificate", later_with_rustls),
        ("client's Certificate in records of one byte", messages::in_single_bytes()),
        (
            "client's Certificate, the end of it in records of one byte",
            messages::in_single_bytes_behind_long_records(),
        ),
        ("64 KiB of early data that does not open", messages::early_data()),
        ("16 KeyUpdates that each ask for one back", messages::key_updates()),
    ]
    .map(|(message, cost)| (message, row(cost)))
    .into()
}

const DOCUMENT: &str = include_str!("../../COSTS.md");
