//! The log of the push listener: [`Complaints`].

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

/// Log lines about refused clients. Their rate is limited, so that clients cannot fill the journal.
#[derive(Default)]
pub(super) struct Complaints(Mutex<Option<(Instant, u32)>>);

impl Complaints {
    pub(super) fn say(&self, text: &str) {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let (began, said) = since.get_or_insert((now, 0));
        if now.duration_since(*began) >= COMPLAINTS_TIME {
            if let Some(left_out) = said.checked_sub(COMPLAINTS_MAX).filter(|count| *count > 0) {
                info!("push: {left_out} clients more were turned away like that");
            }
            (*began, *said) = (now, 0);
        }
        *said += 1;
        if *said <= COMPLAINTS_MAX {
            warn!("push: {}", on_one_line(text));
        }
    }
}

/// Escapes a text for the log, so that clients can add no line to it, and no command for a
/// terminal.
fn on_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for each in text.chars() {
        match each.is_control() {
            true => line.extend(each.escape_default()),
            false => line.push(each),
        }
    }
    line
}

/// Lines about clients that were turned away, in a time.
const COMPLAINTS_MAX: u32 = 20;
const COMPLAINTS_TIME: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(on_one_line("ä\n\u{1b}[2Jb: \"c\""), "ä\\n\\u{1b}[2Jb: \"c\"");
    }
}
