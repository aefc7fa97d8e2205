//! A lane's timers: two wheels of buckets, driven by the wait of the event loop.
//!
//! An entry is a wish to be looked at, not a promise: whoever is woken checks what is really due
//! and arms again. So nothing is ever removed, a busy connection costs nothing, and a stale entry
//! is recognised by its token.

/// Deadlines in milliseconds since the lane started, each for a token.
pub(crate) struct TimerWheel {
    near: Vec<Vec<Entry>>,
    far: Vec<Vec<Entry>>,
    /// The tick up to which everything has been handed out.
    tick: u64,
    len: usize,
}

#[derive(Clone, Copy)]
struct Entry {
    due_ms: u64,
    token: u64,
}

/// Resolution: entries come up to this much late.
const TICK_MS: u64 = 4;
const NEAR_TICKS: u64 = 256;
const FAR_SPANS: u64 = 256;

impl TimerWheel {
    pub(crate) fn new() -> Self {
        Self {
            near: (0..NEAR_TICKS).map(|_| Vec::new()).collect(),
            far: (0..FAR_SPANS).map(|_| Vec::new()).collect(),
            tick: 0,
            len: 0,
        }
    }

    /// Wakes `token` at `due_ms`, or a tick later; an entry beyond the horizon of about four
    /// minutes goes around again.
    pub(crate) fn arm(&mut self, due_ms: u64, token: u64) {
        self.len += 1;
        self.place(Entry { due_ms, token });
    }

    fn place(&mut self, entry: Entry) {
        let tick = (entry.due_ms / TICK_MS + 1).max(self.tick + 1);
        let ahead = tick - self.tick;
        if ahead < NEAR_TICKS {
            self.near[slot(tick % NEAR_TICKS)].push(entry);
        } else {
            let span = (tick / NEAR_TICKS).min(self.tick / NEAR_TICKS + FAR_SPANS - 1);
            self.far[slot(span % FAR_SPANS)].push(entry);
        }
    }

    /// Moves the tokens that are due into `due`.
    pub(crate) fn advance(&mut self, now_ms: u64, due: &mut Vec<u64>) {
        let target = now_ms / TICK_MS;
        if self.len == 0 {
            self.tick = self.tick.max(target);
            return;
        }
        while self.tick < target {
            self.tick += 1;
            if self.tick.is_multiple_of(NEAR_TICKS) {
                let span = slot(self.tick / NEAR_TICKS % FAR_SPANS);
                for entry in std::mem::take(&mut self.far[span]) {
                    self.place_from_far(entry);
                }
            }
            let bucket = &mut self.near[slot(self.tick % NEAR_TICKS)];
            self.len -= bucket.len();
            due.extend(bucket.drain(..).map(|entry| entry.token));
        }
    }

    /// An entry of the span that begins at this very tick may be due in it.
    fn place_from_far(&mut self, entry: Entry) {
        let tick = entry.due_ms / TICK_MS + 1;
        if tick <= self.tick {
            self.near[slot(self.tick % NEAR_TICKS)].push(entry);
        } else {
            self.place(entry);
        }
    }

    /// Milliseconds until the next bucket that holds something; `None` when there is nothing.
    pub(crate) fn wait_ms(&self, now_ms: u64) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let ticks_to_span = NEAR_TICKS - self.tick % NEAR_TICKS;
        let ticks = (1..ticks_to_span)
            .find(|ahead| !self.near[slot((self.tick + ahead) % NEAR_TICKS)].is_empty())
            .unwrap_or(ticks_to_span);
        Some(((self.tick + ticks) * TICK_MS).saturating_sub(now_ms))
    }
}

fn slot(index: u64) -> usize {
    // Both wheels have 256 slots.
    usize::from(index.to_le_bytes()[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(wheel: &mut TimerWheel, from_ms: u64, to_ms: u64) -> Vec<(u64, u64)> {
        let mut woken = Vec::new();
        let mut due = Vec::new();
        for now_ms in from_ms..=to_ms {
            wheel.advance(now_ms, &mut due);
            woken.extend(due.drain(..).map(|token| (now_ms, token)));
        }
        woken
    }

    #[test]
    fn an_entry_wakes_once_never_early_and_at_most_two_ticks_late() {
        for due_ms in [0, 1, 3, 4, 10, 1_000, 1_023, 1_024, 1_025, 5_000, 70_000] {
            for start_ms in [0, 5, 1_020, 2_047] {
                let mut wheel = TimerWheel::new();
                wheel.arm(1, 0);
                run(&mut wheel, 0, start_ms);
                let due_ms = start_ms + due_ms;
                wheel.arm(due_ms, 7);
                let woken = run(&mut wheel, start_ms + 1, due_ms + 3 * TICK_MS);
                let woken: Vec<_> = woken.into_iter().filter(|(_, token)| *token == 7).collect();
                assert_eq!(woken.len(), 1, "due {due_ms} from {start_ms}: {woken:?}");
                assert!(woken[0].0 >= due_ms, "{woken:?} before {due_ms}");
            }
        }
    }

    #[test]
    fn beyond_the_horizon_it_goes_around_again() {
        let mut wheel = TimerWheel::new();
        wheel.arm(600_000, 7);
        let woken = run(&mut wheel, 0, 700_000);
        assert_eq!(woken.len(), 1, "{woken:?}");
        assert!((600_000..600_010).contains(&woken[0].0), "{woken:?}");
    }

    #[test]
    fn the_wait_leads_exactly_to_the_next_entry() {
        let mut wheel = TimerWheel::new();
        assert_eq!(wheel.wait_ms(0), None);
        wheel.arm(40, 1);
        let mut now_ms = 0;
        let mut due = Vec::new();
        for _ in 0..10 {
            now_ms += wheel.wait_ms(now_ms).unwrap();
            wheel.advance(now_ms, &mut due);
            if !due.is_empty() {
                break;
            }
        }
        assert_eq!(due, [1]);
        assert!((40..=48).contains(&now_ms), "{now_ms}");
        assert_eq!(wheel.wait_ms(now_ms), None);
    }
}
