//! How far a long run has come, on standard error: a bar on a terminal, else a line now and then.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Counts steps of about the same length.
pub struct Progress {
    bar: ProgressBar,
    /// Where no terminal is; else the bar speaks.
    plain: bool,
    done: u64,
    all: u64,
    begun: Instant,
    said: Option<Instant>,
}

impl Progress {
    /// Begins to count `all` steps.
    #[must_use]
    pub fn new(all: u64) -> Self {
        let plain = !io::stderr().is_terminal();
        let target =
            if plain { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(all), target);
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style);
        }
        Self { bar, plain, done: 0, all, begun: Instant::now(), said: None }
    }

    /// The next step begins, and this is it.
    pub fn step(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.bar.tick();
        let due = self.said.is_none_or(|said| said.elapsed() >= LINE_EVERY);
        if self.plain && due {
            self.said = Some(Instant::now());
            let left = self.left().map(|left| format!(", about {left} left")).unwrap_or_default();
            let (next, all) = (self.done + 1, self.all);
            let _ = writeln!(io::stderr(), "{next} of {all}{left}: {what}");
        }
    }

    /// That step is done.
    pub fn done(&mut self) {
        self.done += 1;
        self.bar.inc(1);
    }

    /// A line that stays.
    pub fn note(&self, line: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{line}");
        });
    }

    fn left(&self) -> Option<String> {
        let done = u32::try_from(self.done).ok().filter(|done| *done > 0)?;
        let left = u32::try_from(self.all.saturating_sub(self.done)).ok()?;
        let seconds = (self.begun.elapsed() / done * left).as_secs();
        Some(format!("{} min {:02} s", seconds / 60, seconds % 60))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

const TEMPLATE: &str = "{wide_bar} {pos}/{len}, {eta} left\n{msg}";
/// A log is not flooded; the first line comes at once.
const LINE_EVERY: Duration = Duration::from_secs(5);
