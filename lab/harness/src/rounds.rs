//! Interleaved rounds: what is compared is measured side by side in time, in an order that drift
//! cannot favour, and every finished round is kept. [`run`] drives a [`Measurement`] by a
//! [`Schedule`].
//!
//! ```text
//! round 0   [B A] [C D]      blocks shuffled, and the cells in each
//! round 1   [D C] [A B]      the same backwards: A and B see the same drift, B A A B
//! round 2   [C D] [A B]      shuffled anew
//! ```

use std::ops::Range;

use fastrand::Rng;
use sealane_lab_model::error::Error;

use crate::{interrupt::Interrupt, progress::Progress};

/// A number of cells that are measured in rounds, once per round each.
pub trait Measurement {
    /// The result of a cell in one round.
    type Outcome;

    /// The name of the cell while it is measured.
    fn name(&self, cell: usize) -> String;

    /// Whether the cell has failed. It has no figures then, and is not measured again.
    fn has_failed(&self, cell: usize) -> bool;

    /// Measures a cell once.
    ///
    /// # Errors
    /// The cell fails; the others go on.
    fn measure(&mut self, turn: Turn) -> Result<Self::Outcome, Error>;

    /// Keeps the outcomes of a whole round, by cell, where Ctrl-C and a crash cannot reach them.
    ///
    /// # Errors
    /// They cannot be kept.
    fn keep(&mut self, outcomes: Vec<(usize, Result<Self::Outcome, Error>)>) -> Result<(), Error>;
}

/// One cell's turn in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which cell.
    pub cell: usize,
    /// Which round, from 0.
    pub round: u32,
    /// The place in the whole run's order, from 0.
    pub order: u32,
}

/// Which cell comes when.
#[derive(Clone, Debug)]
pub struct Schedule {
    blocks: Vec<Vec<usize>>,
    seed: u64,
}

impl Schedule {
    /// Cells are numbered from 0; each block holds cells that are compared, and stays together. The
    /// same seed gives the same order.
    #[must_use]
    pub fn new(blocks: Vec<Vec<usize>>, seed: u64) -> Self {
        Self { blocks, seed }
    }

    /// How many cells there are.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.blocks.iter().map(Vec::len).sum()
    }

    /// The cells in the order of this round.
    #[must_use]
    pub fn order(&self, round: u32) -> Vec<usize> {
        let mut random = Rng::with_seed(self.seed.wrapping_add(u64::from(round / 2)));
        let mut blocks = self.blocks.clone();
        random.shuffle(&mut blocks);
        blocks.iter_mut().for_each(|block| random.shuffle(block));
        let mut order: Vec<usize> = blocks.into_iter().flatten().collect();
        if round % 2 == 1 {
            order.reverse();
        }
        order
    }
}

/// Measures all cells of each of `rounds`. An interrupt ends it after the cell under way; the round
/// that it leaves unfinished is not kept.
///
/// # Errors
/// [`Error::Interrupted`], or the measurement's own.
pub fn run(
    rounds: Range<u32>,
    schedule: &Schedule,
    interrupt: &Interrupt,
    measurement: &mut impl Measurement,
) -> Result<(), Error> {
    let cells = u32::try_from(schedule.cells()).unwrap_or(u32::MAX);
    let all = rounds.len() as u64 * u64::from(cells);
    let mut progress = Progress::new(all);
    for round in rounds {
        let places = round.saturating_mul(cells)..;
        let mut outcomes = Vec::new();
        for (cell, order) in schedule.order(round).into_iter().zip(places) {
            if interrupt.is_pressed() {
                return Err(Error::Interrupted);
            }
            progress.step(&format!("round {}, {}", round + 1, measurement.name(cell)));
            if !measurement.has_failed(cell) {
                outcomes.push((cell, measurement.measure(Turn { cell, round, order })));
            }
            progress.done();
        }
        outcomes.sort_unstable_by_key(|(cell, _)| *cell);
        measurement.keep(outcomes)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule() -> Schedule {
        Schedule::new(vec![vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8]], 7)
    }

    #[test]
    fn every_other_round_goes_backwards() {
        for round in [0, 2, 10] {
            let mut back = schedule().order(round + 1);
            back.reverse();
            assert_eq!(schedule().order(round), back);
        }
        assert_ne!(schedule().order(0), schedule().order(2));
        assert_ne!(schedule().order(0), Schedule { seed: 8, ..schedule() }.order(0));
    }

    #[test]
    fn what_is_compared_stays_together_and_nothing_is_left_out() {
        for round in 0..20 {
            let order = schedule().order(round);
            for neighbours in order.chunks(3) {
                let block = neighbours[0] / 3;
                assert!(neighbours.iter().all(|cell| cell / 3 == block), "{order:?}");
            }
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..9).collect::<Vec<_>>());
        }
    }

    /// Notes everything; its operator presses Ctrl-C in turn `pressed`, and cell `failing` fails.
    #[derive(Default)]
    struct Noted {
        turns: Vec<Turn>,
        kept: Vec<Vec<usize>>,
        failing: Option<usize>,
        has_failed: bool,
        pressed: Option<u32>,
        interrupt: Interrupt,
    }

    impl Measurement for Noted {
        type Outcome = ();

        fn name(&self, cell: usize) -> String {
            cell.to_string()
        }

        fn has_failed(&self, cell: usize) -> bool {
            self.has_failed && self.failing == Some(cell)
        }

        fn measure(&mut self, turn: Turn) -> Result<(), Error> {
            self.turns.push(turn);
            if self.pressed == Some(turn.order) {
                self.interrupt.press();
            }
            if self.failing == Some(turn.cell) { Err(Error::Interrupted) } else { Ok(()) }
        }

        fn keep(&mut self, outcomes: Vec<(usize, Result<(), Error>)>) -> Result<(), Error> {
            self.has_failed |= outcomes.iter().any(|(_, outcome)| outcome.is_err());
            self.kept.push(outcomes.into_iter().map(|(cell, _)| cell).collect());
            Ok(())
        }
    }

    #[test]
    fn a_run_can_go_on_where_another_one_stopped() {
        let run = |rounds: Range<u32>| {
            let mut noted = Noted::default();
            run(rounds, &schedule(), &Interrupt::default(), &mut noted).unwrap();
            (noted.turns, noted.kept)
        };
        let (whole, kept) = run(0..4);
        let cells: Vec<usize> = (0..9).collect();
        assert_eq!(kept, vec![cells; 4]);
        assert!(whole.iter().zip(0..).all(|(turn, place)| turn.order == place));
        let mut parts = run(0..2).0;
        parts.extend(run(2..4).0);
        assert_eq!(whole, parts);
    }

    #[test]
    fn ctrl_c_ends_it_after_the_cell_under_way_and_keeps_whole_rounds_only() {
        let interrupt = Interrupt::default();
        let mut noted =
            Noted { pressed: Some(12), interrupt: interrupt.clone(), ..Noted::default() };
        let ended = run(0..4, &schedule(), &interrupt, &mut noted);
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        assert_eq!((noted.turns.len(), noted.kept.len()), (13, 1));
    }

    #[test]
    fn failed_cell_is_measured_once() {
        let mut noted = Noted { failing: Some(4), ..Noted::default() };
        run(0..3, &schedule(), &Interrupt::default(), &mut noted).unwrap();
        assert_eq!(noted.turns.iter().filter(|turn| turn.cell == 4).count(), 1);
        assert_eq!(noted.kept.iter().map(Vec::len).collect::<Vec<_>>(), [9, 8, 8]);
    }
}
