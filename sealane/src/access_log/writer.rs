//! The thread that empties the lanes' rings into a file or a standard stream.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rtrb::Consumer;
use sealane_lanes::counters::Counter;

use super::{AccessLogError, LaneLogCounters};
use crate::config::AccessLogDestination;

/// The running writer of the access log.
///
/// Dropping it tells its thread to write what is there and end; [`LogWriter::stop`] waits for that.
pub struct LogWriter {
    orders: Arc<Orders>,
    path: Option<PathBuf>,
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
        if let Some(error) = &refused {
            counters.errors.add(1);
            report(error);
        }
        counters.is_closed.store(refused.is_some(), Ordering::Relaxed);
        let path = outlet.path().map(Path::to_owned);
        let mut work = Work {
            outlet,
            rings,
            batch: Vec::new(),
            torn: false,
            failing: refused.is_some(),
            opened_last: Instant::now(),
            orders: Arc::clone(&orders),
            counters: Arc::clone(&counters),
            report,
        };
        let (end, ended) = sync_channel::<()>(0);
        let run = move || {
            work.run();
            drop(end);
        };
        let builder = thread::Builder::new().name("access-log".to_owned());
        let thread = builder.spawn(run).map_err(AccessLogError::Thread)?;
        Ok(Self { orders, path, thread, ended, lanes, counters })
    }

    /// Opens the file anew before the next line is written: it may have been moved away.
    pub fn reopen(&self) {
        self.orders.reopen.store(true, Ordering::Release);
        self.thread.thread().unpark();
    }

    /// The file, unless it is a standard stream.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
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
    is_closed: AtomicBool,
}

impl WriterCounters {
    /// Whether the file could not be opened since the start.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Orders {
    reopen: AtomicBool,
    stop: AtomicBool,
}

struct Work {
    outlet: Outlet,
    rings: Vec<Consumer<u8>>,
    batch: Vec<u8>,
    /// The last write ended inside a line.
    torn: bool,
    /// The last write failed and was reported.
    failing: bool,
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
            if self.orders.reopen.swap(false, Ordering::AcqRel) {
                self.reopen();
            } else if self.counters.is_closed() && self.opened_last.elapsed() >= OPEN_INTERVAL {
                // Reported when it failed first.
                self.opened_last = Instant::now();
                self.counters.is_closed.store(self.outlet.reopen().is_err(), Ordering::Relaxed);
            }
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

    fn reopen(&mut self) {
        match self.outlet.reopen() {
            Ok(()) => {
                self.torn = false;
                self.counters.is_closed.store(false, Ordering::Relaxed);
            }
            Err(error) => {
                self.counters.errors.add(1);
                (self.report)(&error);
            }
        }
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
                Err(error) => break Err(error),
            }
            if written == len {
                break Ok(());
            }
        };
        self.counters.bytes.add(written as u64);
        match result {
            Ok(()) => self.failing = false,
            Err(source) => self.failed(source, written, len),
        }
        self.batch.drain(..len);
    }

    fn failed(&mut self, source: io::Error, written: usize, len: usize) {
        let lost = self.batch[written..len].iter().filter(|byte| **byte == b'\n').count();
        self.counters.lost.add(lost as u64);
        self.counters.errors.add(1);
        self.torn |= self.batch[..written].last().is_some_and(|byte| *byte != b'\n');
        if !self.failing {
            let destination = self.outlet.name();
            (self.report)(&AccessLogError::Write { destination, source });
        }
        self.failing = true;
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

    /// Keeps the old file if there is no new one.
    fn reopen(&mut self) -> Result<(), AccessLogError> {
        if let Self::File { file, path } = self {
            *file = Some(append_to(path)?);
        }
        Ok(())
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

fn append_to(path: &Path) -> Result<File, AccessLogError> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(FILE_MODE)
        .open(path)
        .map_err(|source| AccessLogError::Open { path: path.to_owned(), source })
}

/// How often the rings are looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How often a file that could not be opened at the start is tried again.
const OPEN_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes written at once; a line that is longer goes on its own.
const BATCH_BYTES_MAX: usize = 256 * 1024;
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
            failing: false,
            opened_last: Instant::now(),
            orders: Arc::default(),
            counters: Arc::default(),
            report: Box::new(|_| ()),
        }
    }
}
