//! Two threads that add to two lines: [`Meter`].
//!
//! ```text
//! window   first thread    second thread
//!   alone  A B A B A B     waits
//!   alone  waits           B A B A B A
//!   both   A B A B A B     B A B A B A
//! ```
//! Time is the processor's time of each thread, and a window counts only if both threads really ran
//! then, and at the same time: other programs may have the processor in between.

use std::{
    hint,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::processor::{confine, thread_cpu_ns};
use sealane_lab_model::{error::Error, statistics::Spread};

/// Measures two processors, in rounds.
pub(super) struct Meter {
    processors: [usize; 2],
    windows: Vec<Window>,
}

impl Meter {
    pub(super) fn new(processors: [usize; 2]) -> Self {
        Self { processors, windows: Vec::new() }
    }

    /// Until enough windows count.
    pub(super) fn round(&mut self) -> Result<(), Error> {
        let enough = self.windows.len() + WINDOWS_MIN;
        for _ in 0..TRIES_MAX {
            self.play()?;
            if self.windows.len() >= enough {
                return Ok(());
            }
        }
        Err(Error::Check(format!(
            "processors {:?} were both free for too short: of {} windows {WINDOWS_MIN} must count; \
             stop what else runs here, and measure again",
            self.processors,
            TRIES_MAX * WINDOWS
        )))
    }

    /// What a moved line costs a thread, over the windows of all rounds.
    pub(super) fn transfer_ns(&self) -> Result<Spread, Error> {
        let cost = |window: &Window| window.together_ns - window.alone_ns;
        let figures: Vec<f64> = self.windows.iter().map(cost).collect();
        Spread::of(&figures).ok_or_else(broken)
    }

    fn play(&mut self) -> Result<(), Error> {
        let board = Board::default();
        let [first, second] = thread::scope(|scope| {
            let started = [0, 1].map(|player| {
                let (board, processor) = (&board, self.processors[player]);
                scope.spawn(move || board.play(player, processor))
            });
            started.map(|player| player.join().unwrap_or_else(|_| Err(broken())))
        });
        let (first, second) = (first?, second?);
        self.windows.extend(first.iter().zip(&second).filter_map(|(a, b)| Window::of(*a, *b)));
        Ok(())
    }
}

fn broken() -> Error {
    Error::Check("a thread of the ping-pong broke off: a fault of the lab".into())
}

/// Per addition.
struct Window {
    alone_ns: f64,
    together_ns: f64,
}

impl Window {
    /// `None` if it does not count.
    fn of(first: [Lap; 2], second: [Lap; 2]) -> Option<Self> {
        let mean = |lap: usize| (first[lap].cpu_ns + second[lap].cpu_ns) as f64 / 2.0;
        let undisturbed = first
            .iter()
            .chain(&second)
            .all(|lap| lap.cpu_ns as f64 >= RUNNING_MIN * lap.wall().as_nanos() as f64);
        let (a, b) = (first[1], second[1]);
        let both = a.end.min(b.end).saturating_duration_since(a.start.max(b.start));
        let longest = a.wall().max(b.wall());
        (undisturbed && both.as_secs_f64() >= OVERLAP_MIN * longest.as_secs_f64()).then(|| Self {
            alone_ns: mean(0) / ADDITIONS as f64,
            together_ns: mean(1) / ADDITIONS as f64,
        })
    }
}

/// One thread's additions.
#[derive(Clone, Copy)]
struct Lap {
    start: Instant,
    end: Instant,
    cpu_ns: u64,
}

impl Lap {
    fn wall(&self) -> Duration {
        self.end - self.start
    }
}

/// What two threads share, each in lines of its own.
#[derive(Default)]
struct Board {
    lines: [CacheLine<AtomicU64>; 2],
    /// How often threads have come to a meeting.
    met: CacheLine<AtomicU64>,
    /// A thread cannot go on: the other one must not wait for it.
    given_up: CacheLine<AtomicBool>,
}

/// Two lines: processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct CacheLine<T>(T);

impl Board {
    /// Alone and together, for each window.
    fn play(&self, player: usize, processor: usize) -> Result<Vec<[Lap; 2]>, Error> {
        let played = confine(&[processor]).and_then(|()| self.windows(player));
        if played.is_err() {
            self.given_up.0.store(true, Ordering::Relaxed);
        }
        played
    }

    fn windows(&self, player: usize) -> Result<Vec<[Lap; 2]>, Error> {
        let mut meetings = 0;
        let mut windows = Vec::with_capacity(WINDOWS);
        for _ in 0..WINDOWS {
            let mut alone = None;
            for turn in 0..2 {
                self.meet(&mut meetings)?;
                if turn == player {
                    alone = Some(self.lap(player));
                }
            }
            self.meet(&mut meetings)?;
            let together = self.lap(player);
            windows.extend(alone.map(|alone| [alone, together]));
        }
        Ok(windows)
    }

    fn lap(&self, player: usize) -> Lap {
        let (first, second) = (&self.lines[player].0, &self.lines[1 - player].0);
        let start = Instant::now();
        let begun_ns = thread_cpu_ns();
        for _ in 0..ADDITIONS / 2 {
            first.fetch_add(1, Ordering::Relaxed);
            second.fetch_add(1, Ordering::Relaxed);
        }
        let cpu_ns = thread_cpu_ns() - begun_ns;
        Lap { start, end: Instant::now(), cpu_ns }
    }

    /// Waits for the other one, awake: who sleeps comes back late.
    fn meet(&self, meetings: &mut u64) -> Result<(), Error> {
        *meetings += 1;
        self.met.0.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        while self.met.0.load(Ordering::Relaxed) < 2 * *meetings {
            if self.given_up.0.load(Ordering::Relaxed) || begun.elapsed() > MEETING_TIME_MAX {
                return Err(Error::Check(format!(
                    "one of two threads of the ping-pong did not come in {} s; stop what else runs \
                     on its processor",
                    MEETING_TIME_MAX.as_secs()
                )));
            }
            hint::spin_loop();
        }
        Ok(())
    }
}

/// Additions of each thread in each lap: a third of a millisecond, in which others seldom get the
/// processor.
const ADDITIONS: u64 = 10_000;
/// Windows of a pair in a row, and how often a round tries.
const WINDOWS: usize = 24;
const TRIES_MAX: usize = 32;
/// Windows that must count in a round.
const WINDOWS_MIN: usize = 9;
/// A thread that ran for less of a lap was interrupted.
const RUNNING_MIN: f64 = 0.9;
/// Laps of two threads that have less in common were not together.
const OVERLAP_MIN: f64 = 0.8;
/// Long enough for a thread to get its processor under any load.
const MEETING_TIME_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// A lap that begins after `start_us`, takes `wall_us`, and ran for `cpu_us` of it.
    fn lap(zero: Instant, start_us: u64, wall_us: u64, cpu_us: u64) -> Lap {
        let start = zero + Duration::from_micros(start_us);
        Lap { start, end: start + Duration::from_micros(wall_us), cpu_ns: cpu_us * 1_000 }
    }

    #[test]
    fn a_window_counts_if_both_threads_ran_together() {
        let zero = Instant::now();
        let lap = |start, wall, cpu| lap(zero, start, wall, cpu);
        let alone = lap(0, 50, 50);
        let first = [alone, lap(100, 350, 350)];
        let window = Window::of(first, [alone, lap(110, 330, 330)]).expect("it counts");
        assert_eq!((window.alone_ns, window.together_ns), (5.0, 34.0));
        for second in [lap(400, 350, 350), lap(110, 900, 330), lap(110, 330, 200)] {
            assert!(Window::of(first, [alone, second]).is_none());
        }
        assert!(Window::of(first, [lap(0, 500, 50), first[1]]).is_none());
    }

    #[test]
    fn who_cannot_go_on_stops_the_other() {
        let board = Board::default();
        assert!(board.play(0, 1_023).is_err());
        assert!(board.meet(&mut 0).is_err());
    }
}
