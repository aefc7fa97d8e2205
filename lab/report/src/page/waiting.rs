//! Where time goes as threads are added: CPU and wall time per handshake side by side, as one
//! sentence per stack.

use sealane_lab_model::{
    document::{Comparison, HandshakeRound, HandshakeSeries, Machine},
    figures::{
        Figure,
        handshake::{CPU, WALL},
        rounds::counting,
    },
    number::number,
    statistics::{self, NOT_ENOUGH, ROUNDS_MIN, Row},
    words,
};

use crate::plot::escape;

use super::{
    frame::Tag,
    sources::{Part, Sources},
};

/// A list with a sentence per stack; empty if nothing was measured.
pub(crate) fn sentences(sources: &Sources, parts: &[Part<'_, HandshakeSeries>]) -> String {
    let mut items = String::new();
    for part in parts.iter().filter(|part| !part.of.points.is_empty()) {
        let machine = &sources.runs[part.run].run.machine;
        let (label, said) = (escape(&part.label), escape(&sentence(part.of, machine)));
        items += &format!("<li><b>{label}</b>: {said}</li>");
    }
    if items.is_empty() {
        return items;
    }
    let tag = Tag::Measured.html();
    format!("<h3>{TITLE} {tag}</h3><p class=\"look\">{LOOK}</p><ul class=\"remarks\">{items}</ul>")
}

/// What the fewest threads wait, and the most that have a processor each.
fn sentence(series: &HandshakeSeries, machine: &Machine) -> String {
    let last = series.points.iter().rfind(|point| point.threads <= machine.processors.max(1));
    let (Some(first), Some(last)) = (series.points.first(), last) else {
        return format!("{NOT_ENOUGH}: no number of threads had a processor each.");
    };
    if first.threads >= last.threads {
        return format!("{NOT_ENOUGH}: it takes two numbers of threads with a processor each.");
    }
    let compare = |figure: &Figure<HandshakeRound>| {
        let [of, to] = [last, first].map(|point| counting(&point.rounds, figure));
        let counted = of.iter().zip(&to).filter(|(of, to)| of.is_some() && to.is_some()).count();
        let row = |figures| Row { name: "", figures };
        (statistics::compare("", row(&of), row(&to)).filter(|_| counted >= ROUNDS_MIN), counted)
    };
    let (cpu, counted) = compare(&CPU);
    let (wall, _) = compare(&WALL);
    let (Some(cpu), Some(wall)) = (cpu, wall) else {
        let rounds = words::count(first.rounds.len().max(last.rounds.len()), "round");
        return format!(
            "{NOT_ENOUGH}: {counted} of {rounds} count at both numbers of threads, and \
             {ROUNDS_MIN} are needed."
        );
    };
    let siblings = last.threads * machine.threads_per_core.max(1) > machine.processors;
    let siblings = siblings && machine.threads_per_core > 1;
    format!(
        "from {} to {}, {} {}, {} {}: {}.",
        first.threads,
        words::count(last.threads, "thread"),
        CPU.name,
        ratio(&cpu),
        WALL.name,
        ratio(&wall),
        verdict(rises(&cpu), rises(&wall), siblings)
    )
}

fn verdict(cpu: bool, wall: bool, siblings: bool) -> &'static str {
    match (cpu, wall) {
        (true, _) if siblings => {
            "CPU rises, which is cache lines that threads contend for, or spinning, or threads \
             that share a core"
        }
        (true, _) => "CPU rises, which is cache lines that threads contend for, or spinning",
        (false, true) => "CPU stays and wall time rises, which is waiting: threads block",
        (false, false) => "neither rises, so no contention is shown",
    }
}

/// Whether a ratio is above 1 beyond doubt, and by more than the accounts are exact to.
fn rises(comparison: &Comparison) -> bool {
    comparison.interval[0] > 1.0 && comparison.ratio > RISE_MIN
}

fn ratio(comparison: &Comparison) -> String {
    let [low, high] = comparison.interval.map(number);
    format!("\u{d7}{} [{low}\u{2013}{high}]", number(comparison.ratio))
}

/// The accounts of a round add up within 2%.
const RISE_MIN: f64 = 1.02;
const TITLE: &str = "Contending or waiting";
const LOOK: &str = "CPU and wall time of one handshake, both ends, at the most threads that have a \
    processor each, divided by those at the fewest: median of the rounds' ratios and its 95% \
    bootstrap interval. A rise counts if the interval is above 1 and the median more than 2%.";

#[cfg(test)]
mod tests {
    use sealane_lab_model::{
        document::{HandshakePoint, Invalid},
        scenario::Scenario,
    };

    use super::*;

    /// Three points; the second's CPU and wall time are so many percent of the first's.
    fn series(rounds: u32, cpu: u64, wall: u64) -> HandshakeSeries {
        let point = |threads: usize, cpu: u64, wall: u64| {
            let each = 100_000 / wall;
            let round = |order| HandshakeRound {
                order,
                window_ns: 1_000_000_000,
                per_thread: vec![each; threads],
                cpu_ns: each * threads as u64 * cpu * 10_000,
                ..HandshakeRound::default()
            };
            let rounds = (0..rounds).map(round).collect();
            HandshakePoint { threads, pinned: Vec::new(), rounds }
        };
        HandshakeSeries {
            stack: "x".into(),
            scenario: Scenario::default(),
            negotiated: None,
            points: vec![point(1, 100, 100), point(2, cpu, wall), point(3, 900, 900)],
            times: None,
            failure: None,
        }
    }

    fn said(series: &HandshakeSeries) -> String {
        let machine = Machine { processors: 2, threads_per_core: 1, ..Machine::default() };
        sentence(series, &machine)
    }

    #[test]
    fn each_of_the_cases_has_its_sentence() {
        let contended = said(&series(5, 130, 130));
        assert!(contended.contains("from 1 to 2 threads, CPU per handshake \u{d7}1.3"));
        assert!(contended.contains("contend") && !contended.contains("share a core"));
        assert!(said(&series(5, 130, 100)).contains("spinning"));
        assert!(said(&series(5, 100, 130)).contains("waiting"));
        assert!(said(&series(5, 100, 100)).contains("no contention is shown"));
        assert!(said(&series(5, 101, 101)).contains("no contention is shown"));
        let machine = Machine { processors: 2, threads_per_core: 2, ..Machine::default() };
        assert!(sentence(&series(5, 130, 130), &machine).contains("share a core"));
    }

    #[test]
    fn too_few_rounds_or_threads_say_nothing() {
        let said_of = |series: &HandshakeSeries| {
            let said = said(series);
            assert!(said.starts_with(NOT_ENOUGH), "{said}");
            said
        };
        assert!(said_of(&series(2, 130, 130)).contains("2 of 2 rounds"));
        let mut disturbed = series(6, 130, 130);
        for round in disturbed.points[1].rounds.iter_mut().take(2) {
            round.invalid = Some(Invalid::Steal);
        }
        assert!(said_of(&disturbed).contains("4 of 6 rounds"));
        let mut alone = series(5, 130, 130);
        alone.points.remove(1);
        assert!(said_of(&alone).contains("two numbers of threads"));
    }
}
