//! One strategy in a process of its own: two threads, every word compared.
//!
//! Word n of the stream is n. In the first part the sender waits until the receiver has all of a
//! chunk, so that its way is timed alone; in the second it writes as fast as the ring takes it.

use std::{
    collections::BTreeMap,
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    thread,
    time::{Duration, Instant},
};

use bytering::PageCounts;
use sealane_lab_harness::{
    processor,
    trial::{Body, Reply},
};
use sealane_lab_model::{error::Error, histogram::Times};
use sealane_libssl::heap;
use serde::{Deserialize, Serialize};

use crate::ring::{
    Strategy,
    ends::{CAP_BYTES, Locked, PAGE_BYTES, Receiver, Sender, limits},
    paged,
};

/// What is sent through which ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingTask {
    /// The ring.
    pub strategy: Strategy,
    /// Bytes of a write and of a read, a multiple of eight.
    pub chunk_bytes: usize,
    /// Chunks one by one.
    pub handovers: u64,
    /// Then, chunks as fast as they are taken.
    pub chunks: u64,
}

impl Body for RingTask {
    const NAME: &'static str = "ring";

    fn perform(&self) -> Result<Reply, Error> {
        run(self)
    }
}

/// Does the task.
///
/// # Errors
/// A byte was wrong, or an end waited for too long.
fn run(task: &RingTask) -> Result<Reply, Error> {
    let broken = |error: bytering::LimitsError| Error::Check(error.to_string());
    match task.strategy {
        Strategy::Bytering => {
            let mut line = measure(task, bytering::ring(limits().map_err(broken)?))?;
            if let Reply::Figures { figures, .. } = &mut line {
                figures.extend(memory().map_err(broken)?);
            }
            Ok(line)
        }
        Strategy::Mutex => measure(task, Locked::pair()),
        Strategy::Paged => measure(task, paged::pair()),
        Strategy::Rtrb => measure(task, rtrb::RingBuffer::new(CAP_BYTES)),
    }
}

fn measure(
    task: &RingTask,
    (sender, receiver): (impl Sender, impl Receiver),
) -> Result<Reply, Error> {
    let meeting = Meeting { received: AtomicU64::new(0), start: Instant::now() };
    let (sent, received) = thread::scope(|scope| {
        let sending = scope.spawn(|| send(task, sender, &meeting));
        let received = receive(task, receiver, &meeting);
        let sent = sending.join().unwrap_or_else(|_| Err(Error::Check("a thread died".into())));
        (sent, received)
    });
    let (received, sent) = (received?, sent?);
    let chunks = task.chunks.max(1) as f64;
    let mut figures = BTreeMap::from([
        ("bytes".into(), received.bytes as f64),
        ("consumer_ns".into(), received.cpu_ns as f64 / chunks),
        ("mb_per_s".into(), chunks * task.chunk_bytes as f64 / 1e6 / received.time.as_secs_f64()),
        ("producer_ns".into(), sent.cpu_ns as f64 / chunks),
        ("waits".into(), sent.waits as f64),
    ]);
    for (name, pages) in [("kept_up", sent.kept_up), ("stream", sent.streamed)] {
        figures.insert(format!("{name}_pages_allocated"), pages.allocated as f64);
        figures.insert(format!("{name}_pages_live"), pages.live as f64);
    }
    let times = BTreeMap::from([("handover".to_owned(), received.handovers.document()?)]);
    Ok(Reply::Figures { figures, times })
}

/// What both threads see.
struct Meeting {
    /// Chunks.
    received: AtomicU64,
    start: Instant,
}

impl Meeting {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

struct Sent {
    cpu_ns: u64,
    waits: u64,
    /// After the first part; `live` is the most at once.
    kept_up: PageCounts,
    streamed: PageCounts,
}

fn send(task: &RingTask, mut sender: impl Sender, meeting: &Meeting) -> Result<Sent, Error> {
    let mut patience = Patience::default();
    let mut chunk = vec![0; task.chunk_bytes];
    let mut live = 0;
    for number in 0..task.handovers {
        fill(&mut chunk, number);
        chunk[..WORD_BYTES].copy_from_slice(&meeting.now_ns().to_ne_bytes());
        write(&mut sender, &chunk, &mut patience)?;
        live = live.max(sender.pages().live);
        while meeting.received.load(Acquire) <= number {
            patience.wait()?;
        }
        patience.after(chunk.len())?;
    }
    let kept_up = PageCounts { live, ..sender.pages() };
    let (before, waited) = (processor::thread_cpu_ns(), patience.waits);
    for number in task.handovers..task.handovers + task.chunks {
        fill(&mut chunk, number);
        write(&mut sender, &chunk, &mut patience)?;
    }
    let cpu_ns = processor::thread_cpu_ns() - before;
    Ok(Sent { cpu_ns, waits: patience.waits - waited, kept_up, streamed: sender.pages() })
}

fn write(sender: &mut impl Sender, chunk: &[u8], patience: &mut Patience) -> Result<(), Error> {
    let mut done = 0;
    while done < chunk.len() {
        let taken = sender.write(&chunk[done..]);
        done += taken;
        patience.after(taken)?;
    }
    Ok(())
}

struct Received {
    bytes: u64,
    cpu_ns: u64,
    time: Duration,
    handovers: Times,
}

fn receive(
    task: &RingTask,
    mut receiver: impl Receiver,
    meeting: &Meeting,
) -> Result<Received, Error> {
    let mut patience = Patience::default();
    let (mut chunk, mut handovers) = (vec![0; task.chunk_bytes], Times::new()?);
    let (mut before, mut began) = (processor::thread_cpu_ns(), Instant::now());
    for number in 0..task.handovers + task.chunks {
        if number == task.handovers {
            (before, began) = (processor::thread_cpu_ns(), Instant::now());
        }
        let mut done = 0;
        while done < chunk.len() {
            let taken = receiver.read(&mut chunk[done..]);
            done += taken;
            patience.after(taken)?;
        }
        let is_stamped = number < task.handovers;
        if is_stamped {
            let now = meeting.now_ns();
            let (words, _) = chunk.as_chunks::<WORD_BYTES>();
            handovers.record(now.saturating_sub(u64::from_ne_bytes(words[0])));
        }
        compare(&chunk, number, usize::from(is_stamped))?;
        meeting.received.store(number + 1, Release);
    }
    let (cpu_ns, time) = (processor::thread_cpu_ns() - before, began.elapsed());
    let bytes = (task.chunks + task.handovers) * task.chunk_bytes as u64;
    Ok(Received { bytes, cpu_ns, time, handovers })
}

/// The words of chunk `number`.
fn fill(chunk: &mut [u8], number: u64) {
    let first = number * (chunk.len() / WORD_BYTES) as u64;
    let (words, _) = chunk.as_chunks_mut::<WORD_BYTES>();
    words.iter_mut().zip(first..).for_each(|(word, value)| *word = value.to_ne_bytes());
}

/// Whether these are, from word `from` on.
fn compare(chunk: &[u8], number: u64, from: usize) -> Result<(), Error> {
    let first = number * (chunk.len() / WORD_BYTES) as u64;
    let (words, _) = chunk.as_chunks::<WORD_BYTES>();
    let expected = words.iter().zip(first..).skip(from);
    let wrong = expected.filter(|(word, value)| **word != value.to_ne_bytes()).count();
    if wrong > 0 {
        return Err(Error::Check(format!("{wrong} words of chunk {number} are wrong")));
    }
    Ok(())
}

/// What bytering does with memory when its consumer is paused, and when rings come and go.
fn memory() -> Result<[(String, f64); 3], bytering::LimitsError> {
    let limits = limits()?;
    let bytes = vec![1; 2 * CAP_BYTES];
    let grow = |len: usize| {
        let (mut producer, consumer) = bytering::ring(limits);
        let taken = producer.write(&bytes[..len]);
        (producer, consumer, taken)
    };
    // What the allocator makes once is not a ring's.
    drop(grow(2 * CAP_BYTES));
    let before = heap::used_bytes();
    let (producer, consumer, taken) = grow(2 * CAP_BYTES);
    let growth = heap::used_bytes().saturating_sub(before);
    drop((producer, consumer));
    for _ in 0..RINGS {
        drop(grow(GROWN_PAGES * PAGE_BYTES));
    }
    let leaked = heap::used_bytes().saturating_sub(before);
    let figures = [("leaked", leaked), ("paused_growth", growth), ("paused_taken", taken as u64)];
    Ok(figures.map(|(name, value)| (name.to_owned(), value as f64)))
}

/// How often an end waited, and how long it may.
#[derive(Default)]
struct Patience {
    waits: u64,
    waiting_since: Option<Instant>,
}

impl Patience {
    /// Waits if the ring did nothing.
    fn after(&mut self, done: usize) -> Result<(), Error> {
        if done == 0 {
            self.waits += u64::from(self.waiting_since.is_none());
            return self.wait();
        }
        self.waiting_since = None;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Error> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        if since.elapsed() > WAIT_MAX {
            return Err(Error::Check("the other end of the ring does not go on".into()));
        }
        thread::yield_now();
        Ok(())
    }
}

const WORD_BYTES: usize = size_of::<u64>();
const WAIT_MAX: Duration = Duration::from_secs(30);
/// B6's.
const RINGS: u32 = 10_000;
const GROWN_PAGES: usize = 5;
