//! What strace wrote, as [`Event`]s: [`Trace`] reads its file while it grows, and puts calls
//! together that other threads' lines have cut in two.

use std::{collections::HashMap, fs::File, io::Read, path::Path};

use sealane_lab_model::error::Error;

/// One line, or two that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Call(Call),
    /// The thread has ended.
    Ended(u32),
}

/// One system call that has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) thread: u32,
    pub(super) name: String,
    /// What stood between its brackets.
    pub(super) arguments: String,
    /// What it returned; -1 is a failure.
    pub(super) result: i64,
    /// Such as EAGAIN, of one that failed.
    pub(super) error: String,
}

impl Call {
    /// The descriptor that is its first argument, such as 7 of `7<socket:[123]>, ...`.
    pub(super) fn descriptor(&self) -> Option<u32> {
        let digits = self.arguments.find(|c: char| !c.is_ascii_digit());
        self.arguments[..digits.unwrap_or(self.arguments.len())].parse().ok()
    }

    /// The number of the socket that is its first argument.
    pub(super) fn socket(&self) -> Option<u64> {
        let first = self.arguments.split(',').next()?;
        first.split_once("socket:[")?.1.split(']').next()?.parse().ok()
    }

    /// The call's argument with that number, counted from 0; none of those before it has a comma.
    pub(super) fn argument(&self, number: usize) -> &str {
        self.arguments.split(", ").nth(number).unwrap_or_default()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.result == -1
    }
}

/// The file that strace writes.
pub(super) struct Trace {
    file: File,
    /// The last line, as far as it was there.
    part: Vec<u8>,
    /// What threads were doing when another one's line came.
    begun: HashMap<u32, String>,
}

impl Trace {
    /// # Errors
    /// There is no such file.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(Error::file(path))?;
        Ok(Self { file, part: Vec::new(), begun: HashMap::new() })
    }

    /// What has come since the last time.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(&mut self) -> Result<Vec<Event>, Error> {
        self.file.read_to_end(&mut self.part).map_err(Error::io("read what strace wrote"))?;
        let end = self.part.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let rest = self.part.split_off(end);
        let whole = std::mem::replace(&mut self.part, rest);
        let whole = String::from_utf8_lossy(&whole);
        Ok(whole.lines().filter_map(|line| self.event(line)).collect())
    }

    fn event(&mut self, line: &str) -> Option<Event> {
        let (thread, text) = line.split_once(' ')?;
        let thread = thread.parse().ok()?;
        let text = text.trim_start();
        if text.starts_with("+++ exited") || text.starts_with("+++ killed") {
            return Some(Event::Ended(thread));
        }
        if let Some(begin) = text.strip_suffix(UNFINISHED) {
            self.begun.insert(thread, begin.to_owned());
            return None;
        }
        let joined = match text.strip_prefix("<... ") {
            Some(resumed) => {
                let (_, end) = resumed.split_once(" resumed>")?;
                self.begun.remove(&thread)? + end
            }
            None => text.to_owned(),
        };
        call(thread, &joined).map(Event::Call)
    }
}

/// `accept4(7<socket:[1]>, NULL, NULL, 0) = -1 EAGAIN (Resource temporarily unavailable)`.
fn call(thread: u32, text: &str) -> Option<Call> {
    let (name, rest) = text.split_once('(')?;
    if !name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_') {
        return None;
    }
    let (arguments, after) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')')?.to_owned();
    let mut words = after.split([' ', '<']);
    let result = words.next()?;
    // Of one that was interrupted by the tracer, which begins anew, it is a question mark.
    let result = match result.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).unwrap_or(0),
        None => result.parse().ok()?,
    };
    let error =
        if result == -1 { words.next().unwrap_or_default().to_owned() } else { String::new() };
    Some(Call { thread, name: name.to_owned(), arguments, result, error })
}

const UNFINISHED: &str = " <unfinished ...>";

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, io::Write};

    const LINES: &str = "\
12 accept4(7<socket:[90]>, NULL, NULL, SOCK_CLOEXEC|SOCK_NONBLOCK) = 9<socket:[91]>
12 accept4(7<socket:[90]>, NULL, NULL, SOCK_CLOEXEC) = -1 EAGAIN (Resource temporarily unavailable)
12 epoll_wait(4<anon_inode:[eventpoll]>,  <unfinished ...>
13 close(9<socket:[91]>)                   = 0
13 --- SIGCHLD {si_signo=SIGCHLD} ---
12 <... epoll_wait resumed>[{events=EPOLLIN}], 8, -1) = 1
12 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000
13 futex(0x5500, FUTEX_WAIT_PRIVATE, 2, NULL) = ? ERESTARTSYS (To be restarted)
13 +++ exited with 0 +++
14 dup(";

    fn read(text: &str) -> (Trace, Vec<Event>, tempfile::NamedTempFile) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let mut trace = Trace::open(file.path()).unwrap();
        let events = trace.read().unwrap();
        (trace, events, file)
    }

    fn calls(events: &[Event]) -> Vec<(u32, &str, i64, &str)> {
        let mut told = Vec::new();
        for event in events {
            told.push(match event {
                Event::Call(call) => {
                    (call.thread, call.name.as_str(), call.result, call.error.as_str())
                }
                Event::Ended(thread) => (*thread, "ended", 0, ""),
            });
        }
        told
    }

    #[test]
    fn calls_that_were_cut_in_two_are_put_together() {
        let (_, events, _file) = read(LINES);
        let expected = [
            (12, "accept4", 9, ""),
            (12, "accept4", -1, "EAGAIN"),
            (13, "close", 0, ""),
            (12, "epoll_wait", 1, ""),
            (12, "mmap", 0x7f00_0000_0000, ""),
            (13, "ended", 0, ""),
        ];
        assert_eq!(calls(&events), expected);
        let Event::Call(accept) = &events[0] else { panic!("{events:?}") };
        assert_eq!((accept.descriptor(), accept.socket()), (Some(7), Some(90)));
        assert_eq!(accept.argument(1), "NULL");
        let Event::Call(mmap) = &events[4] else { panic!("{events:?}") };
        assert_eq!((mmap.descriptor(), mmap.socket()), (None, None));
    }

    #[test]
    fn a_line_is_read_when_its_end_has_come() {
        let (mut trace, _, file) = read(LINES);
        let mut end = fs::OpenOptions::new().append(true).open(file.path()).unwrap();
        writeln!(end, "3) = 5").unwrap();
        assert_eq!(calls(&trace.read().unwrap()), [(14, "dup", 5, "")]);
        assert_eq!(trace.read().unwrap(), []);
    }
}
