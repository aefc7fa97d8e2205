//! What lanes have to tell an operator about their clients: seldom, so that no client can fill a
//! log.

use std::time::{Duration, Instant};

/// A lane's way to say something about its clients: a line at a time, and one in
/// [`NOTICE_INTERVAL`].
pub struct Notices {
    last: Option<Instant>,
    /// What was not said since.
    omitted: u64,
    tell: Box<dyn Fn(String) + Send>,
}

/// Between two notices of a lane.
pub const NOTICE_INTERVAL: Duration = Duration::from_secs(10);

impl Notices {
    /// Notices that `tell` passes on, without waiting for anybody.
    pub fn new(tell: impl Fn(String) + Send + 'static) -> Self {
        Self { last: None, omitted: 0, tell: Box::new(tell) }
    }

    /// Says `line`, unless the last was said just now.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        self.say_at(Instant::now(), line);
    }

    fn say_at(&mut self, now: Instant, line: impl FnOnce() -> String) {
        if self.last.is_some_and(|last| now.duration_since(last) < NOTICE_INTERVAL) {
            self.omitted += 1;
            return;
        }
        self.last = Some(now);
        let mut line = line();
        match std::mem::take(&mut self.omitted) {
            0 => {}
            omitted => line.push_str(&format!(" ({omitted} more like this were not told)")),
        }
        (self.tell)(line);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn one_line_is_said_in_ten_seconds_and_the_others_are_counted() {
        let (sender, said) = channel();
        let mut notices = Notices::new(move |line| sender.send(line).unwrap());
        let start = Instant::now();
        let almost = NOTICE_INTERVAL - Duration::from_millis(1);
        for (after, line) in [
            (Duration::ZERO, "first"),
            (Duration::ZERO, "second"),
            (almost, "third"),
            (NOTICE_INTERVAL, "fourth"),
            (NOTICE_INTERVAL * 2, "fifth"),
        ] {
            notices.say_at(start + after, || line.to_owned());
        }
        let lines: Vec<_> = said.try_iter().collect();
        assert_eq!(lines, ["first", "fourth (2 more like this were not told)", "fifth"]);
    }
}
