//! What a person sees while a count runs: [`Progress`], one line on a terminal, nothing elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// One line that is rewritten.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts to show.
    pub(super) fn start() -> Self {
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} [{elapsed}]") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// What is being done from now on.
    pub(super) fn step(&self, what: impl Into<String>) {
        self.bar.set_prefix(what.into());
        self.bar.set_message(self.bar.prefix());
    }

    /// How far a trace is: its lines, whether the warm-up is over, and the time that is left, if
    /// that can be told.
    pub(super) fn trace(&self, lines: u64, begun: bool, left: Option<Duration>) {
        let what = self.bar.prefix();
        let state = match left {
            Some(left) => format!("counting, about {} s left", left.as_secs()),
            None if begun => "counting".to_owned(),
            None => "warming up".to_owned(),
        };
        let millions = lines as f64 / 1e6;
        self.bar.set_message(format!("{what}: {millions:.1} million lines of trace, {state}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

const TICK: Duration = Duration::from_millis(200);
