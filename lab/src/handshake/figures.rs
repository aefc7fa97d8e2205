//! Figures out of rounds: what the table shows and what is compared.

use crate::{
    counted::Counted,
    document::{Comparison, HandshakePoint, HandshakeRound, HandshakeSeries, Run},
    statistics::{Row, Spread, compare},
};

/// One round's figure.
pub(super) type Figure = fn(&HandshakeRound) -> f64;

/// Handshakes per second of wall time and thread.
pub(crate) fn rate_per_thread(round: &HandshakeRound) -> f64 {
    count(round) * 1e9 / (round.window_ns as f64 * round.per_thread.len() as f64)
}

/// Wall time per handshake in the server, its making and dropping included.
pub(super) fn server_us(round: &HandshakeRound) -> f64 {
    (round.server_ns + round.server_setup_ns) as f64 / count(round) / 1e3
}

/// Wall time per handshake in the client, its making and dropping included.
pub(super) fn client_us(round: &HandshakeRound) -> f64 {
    (round.client_ns + round.client_setup_ns) as f64 / count(round) / 1e3
}

/// CPU time per handshake in the server: the threads' CPU time, divided as the median times are.
pub(super) fn server_cpu_us(round: &HandshakeRound) -> f64 {
    cpu_us(round, round.median_ns[0])
}

/// CPU time per handshake in the client.
pub(super) fn client_cpu_us(round: &HandshakeRound) -> f64 {
    cpu_us(round, round.median_ns[1])
}

fn cpu_us(round: &HandshakeRound, median_ns: u64) -> f64 {
    let all: u64 = round.median_ns.iter().sum();
    round.cpu_ns as f64 / count(round) / 1e3 * median_ns as f64 / all as f64
}

fn count(round: &HandshakeRound) -> f64 {
    round.per_thread.iter().sum::<u64>() as f64
}

/// The rounds that the figures of a point are made of.
pub(crate) fn shown(point: &HandshakePoint) -> Counted<'_, HandshakeRound> {
    Counted::of(&point.rounds)
}

/// The median over the rounds shown.
pub(super) fn median(rounds: &[&HandshakeRound], figure: Figure) -> Option<f64> {
    let values: Vec<f64> = rounds.iter().map(|round| figure(round)).collect();
    Spread::of(&values).map(|spread| spread.median)
}

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
    let figures = |point: &HandshakePoint, figure: Figure| -> Vec<Option<f64>> {
        let valid = |round: &HandshakeRound| round.invalid.is_none().then(|| figure(round));
        point.rounds.iter().map(valid).collect()
    };
    let measures: [(&str, Figure); 3] = [
        ("rate per thread", rate_per_thread),
        ("server CPU per handshake", server_cpu_us),
        ("client CPU per handshake", client_cpu_us),
    ];
    let title = super::table::title(&first.scenario);
    measures.into_iter().filter_map(move |(measure, figure)| {
        let measure = format!("{measure}, {}, {title}", super::table::threads(to.threads));
        let (of, to) = (figures(of, figure), figures(to, figure));
        let of = Row { name: &other.stack, figures: &of };
        compare(&measure, of, Row { name: &first.stack, figures: &to })
    })
}
