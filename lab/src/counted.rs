//! Which rounds figures are made of: [`Counted`], one rule for every table, page and plot.

use crate::document::{BulkRound, HandshakeRound};

/// The rounds of a point that its figures are made of.
pub(crate) struct Counted<'a, R> {
    pub(crate) rounds: Vec<&'a R>,
    /// Whether no round counts and these were only disturbed: their figures are a hint.
    pub(crate) is_hint: bool,
}

impl<'a, R: Round> Counted<'a, R> {
    /// The rounds that count; if there is none, the disturbed ones, as a hint. A round whose time
    /// does not add up, or in which nothing happened, is neither.
    pub(crate) fn of(rounds: &'a [R]) -> Self {
        let usable = |round: &&R| round.cause() != Some(ACCOUNTING) && round.has_figures();
        let usable: Vec<&R> = rounds.iter().filter(usable).collect();
        let count = |round: &&R| round.cause().is_none();
        let counting: Vec<&R> = usable.iter().copied().filter(count).collect();
        let is_hint = counting.is_empty() && !usable.is_empty();
        Self { rounds: if is_hint { usable } else { counting }, is_hint }
    }
}

/// What the rule asks of a round.
pub(crate) trait Round {
    /// Why the round does not count, if it does not.
    fn cause(&self) -> Option<&str>;

    /// Whether anything was done, in time that passed.
    fn has_figures(&self) -> bool;
}

impl Round for HandshakeRound {
    fn cause(&self) -> Option<&str> {
        self.invalid.as_deref()
    }

    fn has_figures(&self) -> bool {
        self.window_ns > 0 && self.per_thread.iter().any(|count| *count > 0)
    }
}

impl Round for BulkRound {
    fn cause(&self) -> Option<&str> {
        self.invalid.as_deref()
    }

    fn has_figures(&self) -> bool {
        self.wall_ns > 0 && self.bytes > 0
    }
}

/// The cause of a round whose time does not add up: a mistake of the harness, not a disturbance.
pub(crate) const ACCOUNTING: &str = "accounting";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bulk,
        document::{BulkSeries, HandshakePoint},
        handshake, page,
        scenario::Scenario,
    };

    /// Every cause that a trial tells, none, and one of a later version.
    const CAUSES: [Option<&str>; 7] = [
        None,
        Some(ACCOUNTING),
        Some("starved"),
        Some("steal"),
        Some("preempted"),
        Some("start"),
        Some("later"),
    ];

    /// Every three causes in every order.
    fn combinations() -> impl Iterator<Item = [Option<&'static str>; 3]> {
        CAUSES.into_iter().flat_map(|a| {
            CAUSES.into_iter().flat_map(move |b| CAUSES.into_iter().map(move |c| [a, b, c]))
        })
    }

    /// What must be shown: the numbers of the rounds from 1, and whether they are a hint.
    fn expected(causes: [Option<&str>; 3]) -> (Vec<f64>, bool) {
        let of = |wanted: fn(Option<&str>) -> bool| -> Vec<f64> {
            let numbered = [1.0, 2.0, 3.0].into_iter().zip(causes);
            numbered.filter(|(_, cause)| wanted(*cause)).map(|(number, _)| number).collect()
        };
        let valid = of(|cause| cause.is_none());
        let disturbed = of(|cause| cause.is_some_and(|cause| cause != ACCOUNTING));
        match valid.is_empty() {
            true => (disturbed.clone(), !disturbed.is_empty()),
            false => (valid, false),
        }
    }

    #[test]
    fn terminal_and_page_show_the_same_handshakes_whatever_disturbed_them() {
        for causes in combinations() {
            let round = |(number, cause): (u64, Option<&str>)| HandshakeRound {
                window_ns: 1_000_000_000,
                per_thread: vec![number],
                invalid: cause.map(str::to_owned),
                ..HandshakeRound::default()
            };
            let rounds = (1..).zip(causes).map(round).collect();
            let point = HandshakePoint { threads: 1, pinned: Vec::new(), rounds };
            let shown = handshake::figures::shown(&point);
            let rates = shown.rounds.iter().map(|round| handshake::figures::rate_per_thread(round));
            let terminal: Vec<f64> = rates.collect();
            let page = page::threads::rates(&point);
            let (numbers, is_hint) = expected(causes);
            assert_eq!((&terminal, shown.is_hint), (&numbers, is_hint), "{causes:?}");
            assert_eq!((page, page::threads::is_hint(&point)), (numbers, is_hint), "{causes:?}");
        }
    }

    fn no_rounds() -> BulkSeries {
        BulkSeries {
            stack: "x".into(),
            runtime: "lanes".into(),
            driver: None,
            loops: None,
            emulate: None,
            scenario: Scenario::default(),
            threads: 1,
            connections: 1,
            messages: 1,
            message_bytes: 1,
            record_bytes: None,
            verify: None,
            negotiated: None,
            rounds: Vec::new(),
            failure: None,
        }
    }

    #[test]
    fn terminal_and_page_show_the_same_transfers_whatever_disturbed_them() {
        for causes in combinations() {
            let round = |(number, cause): (u64, Option<&str>)| BulkRound {
                bytes: number * 1_000_000,
                wall_ns: 1_000_000_000,
                invalid: cause.map(str::to_owned),
                ..BulkRound::default()
            };
            let rounds = (1..).zip(causes).map(round).collect();
            let series = BulkSeries { rounds, ..no_rounds() };
            let (numbers, is_hint) = expected(causes);
            let range = numbers.first().map(|_| (numbers[0], numbers[numbers.len() - 1]));
            let ends = |spread: crate::statistics::Spread| (spread.min, spread.max);
            assert_eq!(bulk::table::rates(&series).map(ends), range, "{causes:?}");
            let page = page::transfer::mb_per_s(&series);
            assert_eq!(page.map(ends), range, "{causes:?}");
            assert_eq!(page::transfer::is_hint(&series), is_hint, "{causes:?}");
            assert_eq!(bulk::table::rounds(&series).ends_with('*'), numbers.is_empty() || is_hint);
        }
    }
}
