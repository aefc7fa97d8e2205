//! What `handshake` compares: every stack with the first of its scenario, [`comparisons`].

use sealane_lab_model::{
    document::{Comparison, HandshakePoint, HandshakeSeries, Run},
    figures::{
        handshake::{CLIENT_CPU, RATE, SERVER_CPU},
        rounds::counting,
    },
    statistics::{Row, compare},
    words::scenario::whole,
};

use super::table;

/// Every stack against the first of its scenario, at every number of threads.
pub(super) fn comparisons(run: &Run) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for group in run.handshakes.chunk_by(|one, other| one.scenario == other.scenario) {
        let Some((first, others)) = group.split_first() else { continue };
        for other in others {
            for (to, of) in first.points.iter().zip(&other.points) {
                comparisons.extend(compared(first, other, to, of));
            }
        }
    }
    comparisons
}

fn compared(
    first: &HandshakeSeries,
    other: &HandshakeSeries,
    to: &HandshakePoint,
    of: &HandshakePoint,
) -> impl Iterator<Item = Comparison> {
    let (threads, title) = (table::threads(to.threads), whole(&first.scenario));
    [RATE, SERVER_CPU, CLIENT_CPU].into_iter().filter_map(move |figure| {
        let measure = format!("{}, {threads}, {title}", figure.name);
        let [of, to] = [of, to].map(|point| counting(&point.rounds, &figure));
        let of = Row { name: &other.stack, figures: &of };
        compare(&measure, of, Row { name: &first.stack, figures: &to })
    })
}
