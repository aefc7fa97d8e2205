//! The conduct of a round and the one function that decides whether the round counts.

use crate::document::Invalid;

/// Facts about the run of a round that decide whether it counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conduct {
    /// Percent of the machine's processor time that the hypervisor took.
    pub stolen_percent: f64,
    /// The window of a round of `handshake`. `None` in `bulk`, where threads wait for each other,
    /// and in `servers`, where they wait for clients: time without work belongs to the figure.
    pub window: Option<Window>,
}

/// A fixed time that all threads of a round work through without a pause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Window {
    /// The time of all threads together.
    pub length_ns: u64,
    /// The part of it that the threads account for.
    pub accounted_ns: u64,
    /// Operations of the thread that did the fewest.
    pub least_done: u64,
    /// `None` with more threads than processors: they take turns, which is what such a round is to
    /// show.
    pub exclusive: Option<Exclusive>,
}

/// Threads that have a processor each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exclusive {
    /// Wall time of all threads.
    pub wall_ns: u64,
    /// CPU time of all threads in the same time.
    pub cpu_ns: u64,
    /// From the first thread's start to the last thread's.
    pub start_spread_ns: u64,
}

impl Conduct {
    /// The reason why the round does not count, if it does not. A mistake of the lab comes before
    /// a disturbance.
    #[must_use]
    pub fn invalid(&self) -> Option<Invalid> {
        if let Some(Window { length_ns, accounted_ns, least_done, .. }) = self.window {
            let off = accounted_ns.abs_diff(length_ns) as f64 / length_ns as f64;
            if off > ACCOUNTING_TOLERANCE {
                return Some(Invalid::Accounting);
            } else if least_done == 0 {
                return Some(Invalid::Starved);
            }
        }
        if self.stolen_percent > STEAL_PERCENT_MAX {
            return Some(Invalid::Steal);
        }
        let Exclusive { wall_ns, cpu_ns, start_spread_ns } = self.window?.exclusive?;
        if wall_ns as f64 > cpu_ns as f64 * WALL_PER_CPU_MAX {
            return Some(Invalid::Preempted);
        }
        (start_spread_ns > START_SPREAD_NS_MAX).then_some(Invalid::Start)
    }
}

/// The share of a window by which the accounted time may differ from it.
const ACCOUNTING_TOLERANCE: f64 = 0.02;
/// Percent of the machine's processor time that a hypervisor may take.
pub const STEAL_PERCENT_MAX: f64 = 1.0;
/// Beyond it, another program used the processors.
const WALL_PER_CPU_MAX: f64 = 1.05;
const START_SPREAD_NS_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads, 100 ns each.
    fn good() -> Window {
        let exclusive = Exclusive { wall_ns: 205, cpu_ns: 200, start_spread_ns: 1_000_000 };
        Window { length_ns: 200, accounted_ns: 200, least_done: 1, exclusive: Some(exclusive) }
    }

    #[track_caller]
    fn judged(stolen_percent: f64, window: Option<Window>, expected: Option<&Invalid>) {
        assert_eq!(Conduct { stolen_percent, window }.invalid().as_ref(), expected);
    }

    #[test]
    fn each_disturbance_has_its_name() {
        judged(0.5, Some(good()), None);
        judged(0.5, None, None);
        for accounted_ns in [190, 210] {
            judged(0.0, Some(Window { accounted_ns, ..good() }), Some(&Invalid::Accounting));
        }
        judged(0.0, Some(Window { least_done: 0, ..good() }), Some(&Invalid::Starved));
        judged(1.1, Some(good()), Some(&Invalid::Steal));
        judged(1.1, None, Some(&Invalid::Steal));
        let with = |exclusive| Some(Window { exclusive, ..good() });
        let exclusive = Exclusive { wall_ns: 211, cpu_ns: 200, start_spread_ns: 0 };
        judged(0.0, with(Some(exclusive)), Some(&Invalid::Preempted));
        let late = Exclusive { wall_ns: 200, start_spread_ns: 1_000_001, ..exclusive };
        judged(0.0, with(Some(late)), Some(&Invalid::Start));
        judged(0.0, with(None), None);
    }
}
