//! The thread that empties the lanes' rings into a file or a standard stream.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rtrb::Consumer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use sealane_config::AccessLogDestination;
use sealane_lanes::counters::Counter;
use sealane_sandbox::{Need, outside_for};

use super::{AccessLogError, LaneLogCounters};

/// The running writer of the access log.
///
/// Dropping it tells its thread to write what is there and end; [`LogWriter::stop`] waits for that.
pub struct LogWriter {
    orders: Arc<Orders>,
    thread: JoinHandle<()>,
    ended: Receiver<()>,
    lanes: Vec<Arc<LaneLogCounters>>,
    counters: Arc<WriterCounters>,
}

impl LogWriter {
    pub(super) fn start(
        destination: &AccessLogDestination,
        rings: Vec<Consumer<u8>>,
        lanes: Vec<Arc<LaneLogCounters>>,
        report: Box<dyn Fn(&AccessLogError) + Send>,
    ) -> Result<Self, AccessLogError> {
        let orders = Arc::new(Orders::default());
        let counters = Arc::new(WriterCounters::default());
        let (outlet, refused) = Outlet::open(destination);
        let mut work = Work {
            outlet,
            rings,
            batch: Vec::new(),
            torn: false,
            has_open_fault: false,
            has_write_fault: false,
            opened_last: Instant::now(),
            orders: Arc::clone(&orders),
            counters: Arc::clone(&counters),
            report,
        };
        if let Some(error) = refused {
            work.note_closed(&error, true);
        }
        let (end, ended) = sync_channel::<()>(0);
        let run = move || {
            work.run();
            drop(end);
        };
        let builder = thread::Builder::new().name("access-log".to_owned());
        let thread = builder.spawn(run).map_err(AccessLogError::Thread)?;
        Ok(Self { orders, thread, ended, lanes, counters })
    }

    /// Opens the file again before the next line is written: it may have been moved away. Returns
    /// when that is done, and after `REOPEN_WAIT` at the latest.
    pub fn reopen(&self) {
        let (done, is_done) = sync_channel(0);
        *self.orders.reopen.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
        self.thread.thread().unpark();
        // Nothing is ever sent: the thread hangs up when it is done.
        let _ = is_done.recv_timeout(REOPEN_WAIT);
    }

    /// What each lane counts about its lines.
    pub fn lane_counters(&self) -> &[Arc<LaneLogCounters>] {
        &self.lanes
    }

    /// What the writer counts.
    pub fn counters(&self) -> &Arc<WriterCounters> {
        &self.counters
    }

    /// Writes all that the lanes have handed over and ends. Lanes must have ended before, or what
    /// they write meanwhile may be lost.
    ///
    /// False if the destination did not take it within [`STOP_WAIT`], such as a pipe that nobody
    /// reads.
    pub fn stop(self) -> bool {
        self.orders.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        // Nothing is ever sent: the thread hangs up when it is done.
        let hung_up = self.ended.recv_timeout(STOP_WAIT);
        matches!(hung_up, Err(std::sync::mpsc::RecvTimeoutError::Disconnected))
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }
}

/// What the writer counts; written by its thread alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct WriterCounters {
    /// Bytes written.
    pub bytes: Counter,
    /// Failed writes, and failed attempts to open the file anew.
    pub errors: Counter,
    /// Lines lost in failed writes.
    pub lost: Counter,
    /// Written by the thread and read by the control plane; no lane takes it.
    fault: Mutex<Option<LogFault>>,
}

impl WriterCounters {
    /// Why lines are not written where they should be, if so.
    pub fn fault(&self) -> Option<LogFault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_fault(&self, fault: Option<LogFault>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }
}

/// A fault of the destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFault {
    /// The file, or the name of the stream.
    pub destination: PathBuf,
    /// The problem and the remedy.
    pub text: String,
    /// The effect on log lines.
    pub without: &'static str,
}

#[derive(Default)]
struct Orders {
    reopen: Mutex<Option<SyncSender<()>>>,
    stop: AtomicBool,
}

struct Work {
    outlet: Outlet,
    rings: Vec<Consumer<u8>>,
    batch: Vec<u8>,
    /// The last write ended inside a line.
    torn: bool,
    /// The file could not be opened, at the start or again, and that was reported.
    has_open_fault: bool,
    /// The last write failed and was reported.
    has_write_fault: bool,
    /// When it was last tried to open the file.
    opened_last: Instant,
    orders: Arc<Orders>,
    counters: Arc<WriterCounters>,
    report: Box<dyn Fn(&AccessLogError) + Send>,
}

impl Work {
    fn run(&mut self) {
        loop {
            // Read before the rings, so that what came before the order is written.
            let stop = self.orders.stop.load(Ordering::Acquire);
            let order = self.orders.reopen.lock().unwrap_or_else(PoisonError::into_inner).take();
            let is_to_retry = self.has_open_fault && self.opened_last.elapsed() >= OPEN_INTERVAL;
            if order.is_some() || is_to_retry {
                self.reopen(order.is_some());
            }
            // Hangs up.
            drop(order);
            for ring in 0..self.rings.len() {
                self.collect(ring);
            }
            self.flush(self.batch.len());
            if stop {
                return;
            }
            thread::park_timeout(POLL_INTERVAL);
        }
    }

    fn reopen(&mut self, is_ordered: bool) {
        self.opened_last = Instant::now();
        match self.outlet.reopen() {
            Ok(Reopened::Nothing) => {}
            // Only a line that was written shows that it can be written again.
            Ok(Reopened::SameFile) if self.has_write_fault => self.has_open_fault = false,
            Ok(Reopened::OtherFile | Reopened::SameFile) => {
                self.torn = false;
                self.has_open_fault = false;
                self.has_write_fault = false;
                self.counters.set_fault(None);
            }
            Err(error) => self.note_closed(&error, is_ordered),
        }
    }

    /// Notes that the file cannot be opened, and reports that unless it is a mere retry.
    fn note_closed(&mut self, error: &AccessLogError, is_to_report: bool) {
        self.has_open_fault = true;
        if is_to_report {
            self.counters.errors.add(1);
            (self.report)(error);
        }
        if !self.has_write_fault {
            let without = if self.outlet.is_open() { WITH_OLD_FILE } else { WITHOUT_FILE };
            self.note_fault(error, without);
        }
    }

    fn note_fault(&self, error: &AccessLogError, without: &'static str) {
        let destination = PathBuf::from(self.outlet.name());
        let outside = self.outlet.path().and_then(|path| outside_for(path, Need::Log));
        let outside = outside.map(|problem| format!("access_log.path: {problem}"));
        let text = outside.unwrap_or_else(|| error.to_string());
        self.counters.set_fault(Some(LogFault { destination, text, without }));
    }

    /// Takes what is in a ring now, and no more, for its lane may be faster than the disk.
    fn collect(&mut self, ring: usize) {
        let mut left = self.rings[ring].slots();
        while left > 0 {
            let take = left.min(BATCH_BYTES_MAX.saturating_sub(self.batch.len()).max(1));
            let Ok(chunk) = self.rings[ring].read_chunk(take) else { return };
            let (front, back) = chunk.as_slices();
            self.batch.extend_from_slice(front);
            self.batch.extend_from_slice(back);
            chunk.commit_all();
            left -= take;
            if self.batch.len() >= BATCH_BYTES_MAX {
                // Up to the end of a line, so that a write never ends inside one.
                let lines = self.batch.iter().rposition(|byte| *byte == b'\n');
                self.flush(lines.map_or(self.batch.len(), |end| end + 1));
            }
        }
    }

    /// Writes the first `len` bytes of the batch.
    fn flush(&mut self, len: usize) {
        if len == 0 {
            return;
        }
        if self.torn && self.outlet.write(b"\n").is_ok() {
            self.torn = false;
        }
        let mut written = 0;
        let result = loop {
            match self.outlet.write(&self.batch[written..len]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A pipe that is full: its reader may be slow.
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock
                        && !self.has_write_fault
                        && self.outlet.has_room_soon() => {}
                Err(error) => break Err(error),
            }
            if written == len {
                break Ok(());
            }
        };
        self.counters.bytes.add(written as u64);
        match result {
            Ok(()) if self.has_write_fault => {
                self.has_write_fault = false;
                if !self.has_open_fault {
                    self.counters.set_fault(None);
                }
            }
            Ok(()) => {}
            Err(source) => self.failed(source, written, len),
        }
        self.batch.drain(..len);
    }

    fn failed(&mut self, source: io::Error, written: usize, len: usize) {
        let lost = self.batch[written..len].iter().filter(|byte| **byte == b'\n').count();
        self.counters.lost.add(lost as u64);
        self.counters.errors.add(1);
        self.torn |= self.batch[..written].last().is_some_and(|byte| *byte != b'\n');
        // Without a file, that it cannot be opened was reported.
        if !self.has_write_fault && self.outlet.is_open() {
            let destination = self.outlet.name();
            let error = AccessLogError::Write { destination, source };
            (self.report)(&error);
            self.note_fault(&error, WITHOUT_FILE);
            self.has_write_fault = true;
        }
    }
}

/// Where the lines go.
enum Outlet {
    /// Without a file until it can be opened.
    File {
        file: Option<File>,
        path: Box<Path>,
    },
    Stderr,
    Stdout,
}

impl Outlet {
    /// The destination, and why it cannot be opened yet, if so.
    fn open(destination: &AccessLogDestination) -> (Self, Option<AccessLogError>) {
        match destination {
            AccessLogDestination::File(path) => {
                let (file, refused) = match append_to(path) {
                    Ok(file) => (Some(file), None),
                    Err(error) => (None, Some(error)),
                };
                (Self::File { file, path: path.as_path().into() }, refused)
            }
            AccessLogDestination::Stderr => (Self::Stderr, None),
            AccessLogDestination::Stdout => (Self::Stdout, None),
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Stderr | Self::Stdout => None,
        }
    }

    /// Whether lines go anywhere.
    fn is_open(&self) -> bool {
        !matches!(self, Self::File { file: None, .. })
    }

    /// Keeps the old file if there is no new one.
    fn reopen(&mut self) -> Result<Reopened, AccessLogError> {
        let Self::File { file, path } = self else { return Ok(Reopened::Nothing) };
        let new = append_to(path)?;
        let old = file.as_ref().and_then(identity);
        let is_same = old.is_some() && old == identity(&new);
        *file = Some(new);
        Ok(if is_same { Reopened::SameFile } else { Reopened::OtherFile })
    }

    /// Waits until it takes bytes, for [`ROOM_WAIT`] at most.
    fn has_room_soon(&self) -> bool {
        let Self::File { file: Some(file), .. } = self else { return false };
        let ready = poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&ROOM_WAIT));
        ready.is_ok_and(|count| count > 0)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File { file: Some(file), .. } => file.write(bytes),
            Self::File { file: None, .. } => Err(ErrorKind::NotFound.into()),
            // Not std's streams: those hold a lock, and stdout a buffer.
            Self::Stderr => Ok(rustix::io::write(io::stderr(), bytes)?),
            Self::Stdout => Ok(rustix::io::write(io::stdout(), bytes)?),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::Stderr => "standard error".to_owned(),
            Self::Stdout => "standard output".to_owned(),
        }
    }
}

/// The file that was opened again.
enum Reopened {
    /// The outlet is a stream.
    Nothing,
    OtherFile,
    SameFile,
}

/// The device and the inode of a file. None for a pipe: another reader may have it now.
fn identity(file: &File) -> Option<(u64, u64)> {
    let facts = file.metadata().ok().filter(|facts| !facts.file_type().is_fifo())?;
    Some((facts.dev(), facts.ino()))
}

/// Opens the file without blocking: otherwise, opening a pipe waits for its reader.
fn append_to(path: &Path) -> Result<File, AccessLogError> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(FILE_MODE).custom_flags(flags);
    options.open(path).map_err(|error| {
        let is_unread = error.raw_os_error() == Some(Errno::NXIO.raw_os_error());
        let source = if is_unread { io::Error::other(UNREAD) } else { error };
        AccessLogError::Open { path: path.to_owned(), source }
    })
}

/// How often the rings are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often a file that could not be opened is tried again.
const OPEN_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes written at once; a line that is longer goes on its own.
const BATCH_BYTES_MAX: usize = 256 * 1024;
/// How long [`LogWriter::reopen`] waits for the thread.
const REOPEN_WAIT: Duration = Duration::from_secs(1);
/// How long a pipe may be full before its lines are lost.
const ROOM_WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// The system's words are: no such device or address.
const UNREAD: &str = "no process reads this pipe or socket";
const WITHOUT_FILE: &str = "its lines are lost, and counted";
const WITH_OLD_FILE: &str = "lines go into the file that was open before";
/// How long [`LogWriter::stop`] waits for the destination.
pub const STOP_WAIT: Duration = Duration::from_secs(5);
/// The mode of a new file: it names clients, which is not everyone's to read.
const FILE_MODE: u32 = 0o640;

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_write_cut_inside_a_line_costs_that_line_and_no_other() {
        let (mut reader, writer) = pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let mut work = work_on(OwnedFd::from(writer).into());
        let line = format!("{}\n", "x".repeat(9_999));
        work.batch = line.repeat(20).into_bytes();
        work.flush(work.batch.len());
        let taken = usize::try_from(work.counters.bytes.value()).unwrap();
        assert!(taken > 0 && taken < 200_000 && taken % line.len() != 0, "cut inside a line");
        assert_eq!(work.counters.lost.value(), 20 - (taken / line.len()) as u64);

        let mut text = vec![0; taken];
        reader.read_exact(&mut text).unwrap();
        work.batch = b"next\n".to_vec();
        work.flush(5);
        drop(work);
        reader.read_to_end(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let whole = text.lines().filter(|each| each.len() == 9_999).count();
        assert_eq!((whole, text.lines().last()), (taken / line.len(), Some("next")));
    }

    #[test]
    fn a_batch_ends_at_the_end_of_a_line() {
        let (mut producer, consumer) = rtrb::RingBuffer::new(2 * BATCH_BYTES_MAX);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut work = work_on(append_to(&path).unwrap());
        work.rings.push(consumer);
        let line = [[b'x'; 999].as_slice(), b"\n"].concat();
        let lines = 3 * BATCH_BYTES_MAX / 2 / line.len();
        for _ in 0..lines {
            producer.push_entire_slice(&line).unwrap();
        }
        work.collect(0);
        let (written, waiting) = (std::fs::read(&path).unwrap(), work.batch.len());
        assert!(!written.is_empty() && written.len() % line.len() == 0);
        assert_eq!(written.len() + waiting, lines * line.len());
        work.flush(waiting);
        assert_eq!(std::fs::read(&path).unwrap(), line.repeat(lines));
    }

    fn work_on(file: File) -> Work {
        Work {
            outlet: Outlet::File { file: Some(file), path: Path::new("log").into() },
            rings: Vec::new(),
            batch: Vec::new(),
            torn: false,
            has_open_fault: false,
            has_write_fault: false,
            opened_last: Instant::now(),
            orders: Arc::default(),
            counters: Arc::default(),
            report: Box::new(|_| ()),
        }
    }
}
