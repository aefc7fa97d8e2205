//! Secrets of sessions, for decrypting their traffic in a debugger such as Wireshark. Off unless a
//! context asks for them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::fmt::Write as _;
use std::rc::Rc;

use fragile::Fragile;
use rustls::KeyLog;
use zeroize::Zeroizing;

/// The key log of one lane and one context.
///
/// rustls wants it shareable; on another thread than its lane's it takes nothing.
pub(super) struct LaneKeyLog {
    lines: Fragile<Rc<RefCell<Lines>>>,
}

impl LaneKeyLog {
    pub(super) fn new() -> Self {
        Self { lines: Fragile::new(Rc::default()) }
    }

    /// Takes the lines since the last call.
    pub(super) fn take(&self) -> Vec<u8> {
        self.lines.try_get().map(|lines| lines.borrow_mut().take()).unwrap_or_default()
    }
}

impl KeyLog for LaneKeyLog {
    /// Every resumption derives a secret for early data, which is not accepted here: nothing is
    /// sealed with it.
    fn will_log(&self, label: &str) -> bool {
        label != EARLY_DATA
    }

    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if let Ok(lines) = self.lines.try_get() {
            lines.borrow_mut().push(line(label, client_random, secret));
        }
    }
}

impl fmt::Debug for LaneKeyLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneKeyLog").finish_non_exhaustive()
    }
}

/// Lines in separate allocations that never grow, so that no secret is left behind in freed memory.
#[derive(Default)]
struct Lines {
    bytes: usize,
    lines: VecDeque<Zeroizing<String>>,
}

impl Lines {
    fn push(&mut self, line: Zeroizing<String>) {
        self.bytes += line.len();
        self.lines.push_back(line);
        while self.bytes > KEY_LOG_BYTES_MAX {
            let Some(oldest) = self.lines.pop_front() else { return };
            self.bytes -= oldest.len();
        }
    }

    fn take(&mut self) -> Vec<u8> {
        let mut taken = Vec::with_capacity(self.bytes);
        for line in self.lines.drain(..) {
            taken.extend_from_slice(line.as_bytes());
        }
        self.bytes = 0;
        taken
    }
}

/// `<label> <client random> <secret>`, the bytes in hexadecimal.
fn line(label: &str, client_random: &[u8], secret: &[u8]) -> Zeroizing<String> {
    // Two spaces and the end of the line.
    let bytes = label.len() + 2 * (client_random.len() + secret.len()) + 3;
    let mut line = Zeroizing::new(String::with_capacity(bytes));
    line.push_str(label);
    for part in [client_random, secret] {
        line.push(' ');
        for byte in part {
            // Writing to a String cannot fail.
            let _ = write!(line, "{byte:02x}");
        }
    }
    line.push('\n');
    line
}

const EARLY_DATA: &str = "CLIENT_EARLY_TRAFFIC_SECRET";

/// Bytes of the lines that wait to be taken: those of some 60 handshakes.
pub const KEY_LOG_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_go_for_want_of_room() {
        let log = LaneKeyLog::new();
        for number in 0..1_000_u16 {
            log.log("LABEL", &[0; 32], &number.to_be_bytes().repeat(16));
        }
        let taken = log.take();
        assert!(taken.len() <= KEY_LOG_BYTES_MAX);
        let lines: Vec<_> = taken.split_inclusive(|byte| *byte == b'\n').collect();
        assert!(taken.len() + lines[0].len() > KEY_LOG_BYTES_MAX);
        let last = format!("LABEL {} {}\n", "00".repeat(32), "03e7".repeat(16));
        assert_eq!(lines.last(), Some(&last.as_bytes()));
        assert_eq!(log.take(), b"");
    }

    #[test]
    fn a_line_has_all_its_room_from_the_start() {
        let line = line("SERVER_TRAFFIC_SECRET_0", &[1; 32], &[2; 48]);
        assert_eq!(line.len(), line.capacity());
    }

    #[test]
    fn another_thread_logs_nothing() {
        let log = LaneKeyLog::new();
        std::thread::scope(|scope| {
            scope.spawn(|| log.log("LABEL", &[0; 32], &[0; 32]));
        });
        assert_eq!(log.take(), b"");
    }
}
