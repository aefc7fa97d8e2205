//! How long each gap between two steps takes, if nobody waits: by instructions, but by the native
//! clock while a lock is held, and so that each part takes exactly its uncontended time.

use sealane_lab_model::recording::{ByPart, Event, Part, Recording};

use super::{PS_PER_NS, Question, SMALL_GAP_INSTRUCTIONS_MAX, SMALL_GAP_NS_PER_INSTRUCTION_MAX};

/// A pass's gaps, in picoseconds.
pub(super) struct Times {
    /// Before each step.
    pub(super) gaps_ps: Vec<u64>,
    /// Time of parts that no step enters: spent at the end.
    pub(super) rest_ps: u64,
}

impl Times {
    /// The times of a question that was checked.
    pub(super) fn new(question: &Question<'_>) -> Self {
        let recording = question.recording;
        let gaps = gaps(recording);
        let mut sums = ByPart::<Sums>::default();
        gaps.iter().for_each(|gap| sums.of_mut(gap.part).add(gap));
        let mut rest_ns = 0.0;
        let mut rates = ByPart::<Rates>::default();
        for part in Part::ALL {
            let whole_ns = question.base_ns.of(part) * recording.operations as f64;
            match sums.of(part).rates(whole_ns) {
                Some(found) => *rates.of_mut(part) = found,
                None => rest_ns += whole_ns,
            }
        }
        let mut done = ByPart::<(f64, u64)>::default();
        let gaps_ps = gaps.iter().map(|gap| {
            // The sum is rounded, not the gap: no part loses time by being cut into small gaps.
            let (exact_ps, rounded_ps) = done.of_mut(gap.part);
            *exact_ps += rates.of(gap.part).ns(gap) * PS_PER_NS;
            let gap_ps = in_ps(*exact_ps).saturating_sub(*rounded_ps);
            *rounded_ps += gap_ps;
            gap_ps
        });
        Self { gaps_ps: gaps_ps.collect(), rest_ps: in_ps(rest_ns * PS_PER_NS) }
    }
}

/// Whole picoseconds; what is not in the range of a question stays within that of a `u64`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
pub(super) fn in_ps(ps: f64) -> u64 {
    ps.round() as u64
}

/// Instructions, or a time, in one part.
struct Gap {
    part: Part,
    instructions: u32,
    /// Within a lock whose hold the native clock told.
    held_ns: Option<f64>,
}

impl Gap {
    fn is_small(&self) -> bool {
        self.instructions <= SMALL_GAP_INSTRUCTIONS_MAX
    }
}

fn gaps(recording: &Recording) -> Vec<Gap> {
    let mut part = Part::default();
    let mut gaps: Vec<Gap> = Vec::with_capacity(recording.steps.len());
    let mut taken: Vec<Vec<(usize, Part)>> = vec![Vec::new(); recording.locks.len()];
    for (number, step) in recording.steps.iter().enumerate() {
        gaps.push(Gap { part, instructions: step.gap, held_ns: None });
        let place = step.place as usize;
        match step.event {
            Event::Enter => part = Part::ALL[place],
            Event::Load | Event::Store | Event::Update => {}
            Event::MutexLock | Event::ReadLock | Event::WriteLock => {
                taken[place].push((number, part));
            }
            Event::MutexUnlock | Event::ReadUnlock | Event::WriteUnlock => {
                let Some((start, part)) = taken[place].pop() else { continue };
                let read = step.event == Event::ReadUnlock;
                let holds = &recording.locks[place].holds;
                if let Some(hold) = holds.iter().find(|hold| hold.part == part && hold.read == read)
                {
                    // Whoever is given back first is the inner one of two, and keeps its time.
                    hold_for(hold.ns, &mut gaps[start + 1..=number]);
                }
            }
        }
    }
    gaps
}

/// Gives `gaps` that time together, by instructions; those that have a time keep it.
fn hold_for(ns: f64, gaps: &mut [Gap]) {
    let known_ns: f64 = gaps.iter().filter_map(|gap| gap.held_ns).sum();
    let free = || gaps.iter().filter(|gap| gap.held_ns.is_none());
    let instructions: f64 = free().map(|gap| f64::from(gap.instructions)).sum();
    let count = free().count() as f64;
    let left_ns = (ns - known_ns).max(0.0);
    for gap in gaps.iter_mut().filter(|gap| gap.held_ns.is_none()) {
        let share = if instructions > 0.0 {
            f64::from(gap.instructions) / instructions
        } else {
            1.0 / count
        };
        gap.held_ns = Some(left_ns * share);
    }
}

/// What a part's gaps have together.
#[derive(Clone, Copy, Default)]
struct Sums {
    gaps: f64,
    held_ns: f64,
    instructions: f64,
    large: f64,
    small: f64,
}

impl Sums {
    fn add(&mut self, gap: &Gap) {
        let instructions = f64::from(gap.instructions);
        self.gaps += 1.0;
        self.instructions += instructions;
        match gap.held_ns {
            Some(ns) => self.held_ns += ns,
            None if gap.is_small() => self.small += instructions,
            None => self.large += instructions,
        }
    }

    /// So that the gaps take `whole_ns` together; `None` if there are none.
    fn rates(&self, whole_ns: f64) -> Option<Rates> {
        let left_ns = whole_ns - self.held_ns;
        let rates = Rates { held: 1.0, ..Rates::default() };
        if self.gaps == 0.0 {
            return None;
        }
        if self.instructions == 0.0 && self.held_ns == 0.0 {
            return Some(Rates { each_ns: whole_ns / self.gaps, ..rates });
        }
        if left_ns <= 0.0 || self.small + self.large == 0.0 {
            let held = if self.held_ns > 0.0 { whole_ns / self.held_ns } else { 0.0 };
            return Some(Rates { held, ..rates });
        }
        if self.large == 0.0 {
            return Some(Rates { small_ns: left_ns / self.small, ..rates });
        }
        let even_ns = whole_ns / self.instructions;
        let small_ns = even_ns.min(SMALL_GAP_NS_PER_INSTRUCTION_MAX);
        let small_ns = small_ns.min(left_ns / self.small.max(1.0));
        Some(Rates { small_ns, large_ns: (left_ns - small_ns * self.small) / self.large, ..rates })
    }
}

/// The rates of one part.
#[derive(Clone, Copy, Default)]
struct Rates {
    /// Per gap, where there are no instructions to go by.
    each_ns: f64,
    /// The rate of a native hold; 1, unless holds do not fit into the part's time.
    held: f64,
    /// Per instruction of a large gap.
    large_ns: f64,
    /// Per instruction of a small one.
    small_ns: f64,
}

impl Rates {
    fn ns(&self, gap: &Gap) -> f64 {
        let instructions = f64::from(gap.instructions);
        self.each_ns
            + match gap.held_ns {
                Some(ns) => ns * self.held,
                None if gap.is_small() => instructions * self.small_ns,
                None => instructions * self.large_ns,
            }
    }
}
