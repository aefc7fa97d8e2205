//! MB/s without sockets: each thread has a connection of its own whose server sends and whose
//! client receives, all in that thread's memory, for a fixed window.
//!
//! All threads start together, and all work on until the last has closed its window. A batch of
//! messages is encrypted, then decrypted, then compared; wall and CPU time of the three are kept
//! apart, so that `send + receive + other` is all there is.

use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::processor::{self, thread_cpu_ns};
use sealane_lab_model::{
    document::{BulkEnds, BulkRound, BulkThread},
    error::Error,
    scenario::Negotiated,
};

use crate::{
    bulk::{
        content::{Content, Harm, Sink, Source, flip_bit},
        task::{BulkTask, Verify},
    },
    pair::shake_hands,
    stack::{Endpoint, Prepared},
};

/// Works through one window.
pub(crate) fn run(
    task: &BulkTask,
    prepared: &dyn Prepared,
) -> Result<(Negotiated, BulkRound), Error> {
    let gate = Gate {
        start: Barrier::new(task.threads),
        failed: AtomicBool::new(false),
        closed: AtomicUsize::new(0),
    };
    let parts: Vec<Result<Option<Part>, Error>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..task.threads)
            .map(|number| {
                scope.spawn({
                    let gate = &gate;
                    move || one(task, prepared, number, gate)
                })
            })
            .collect();
        let panicked = || Err(Error::Check("a thread of the trial panicked".into()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let mut round = BulkRound::default();
    let mut ends = BulkEnds::default();
    let mut negotiated = None;
    for part in parts {
        // A thread that only followed another's failure has nothing to tell.
        let Some(part) = part? else { continue };
        round.bytes += part.bytes;
        round.check_ns += part.check_ns;
        round.cpu_ns += part.cpu_ns;
        round.wall_ns = round.wall_ns.max(part.wall_ns);
        ends.send_ns += part.ends.send_ns;
        ends.receive_ns += part.ends.receive_ns;
        ends.other_ns += part.ends.other_ns;
        ends.send_cpu_ns += part.ends.send_cpu_ns;
        ends.receive_cpu_ns += part.ends.receive_cpu_ns;
        let BulkEnds { send_ns, receive_ns, .. } = part.ends;
        ends.per_thread.push(BulkThread { bytes: part.bytes, send_ns, receive_ns });
        negotiated = Some(part.negotiated);
    }
    round.threads = ends.per_thread.len() as u64;
    if round.threads != task.threads as u64 {
        let text = format!("{} threads worked, wanted {}", round.threads, task.threads);
        return Err(Error::Check(text));
    }
    round.ends = Some(ends);
    let negotiated = negotiated.ok_or_else(|| Error::Check("no thread reported".into()))?;
    if round.bytes == 0 {
        return Err(Error::Check("no batch ended inside the window; make it longer".into()));
    }
    Ok((negotiated, round))
}

/// What threads wait for together.
struct Gate {
    start: Barrier,
    failed: AtomicBool,
    closed: AtomicUsize,
}

/// One thread's share.
struct Part {
    negotiated: Negotiated,
    bytes: u64,
    wall_ns: u64,
    cpu_ns: u64,
    check_ns: u64,
    ends: BulkEnds,
}

fn one(
    task: &BulkTask,
    prepared: &dyn Prepared,
    number: usize,
    gate: &Gate,
) -> Result<Option<Part>, Error> {
    let begun = begin(task, prepared, number);
    let mut warm = begun.and_then(|(mut pair, negotiated)| {
        let until = Instant::now() + Duration::from_millis(task.window_ms / WARM_UP_SHARE);
        while Instant::now() < until {
            pair.batch()?;
        }
        Ok((pair, negotiated))
    });
    if warm.is_err() {
        gate.failed.store(true, Relaxed);
    }
    gate.start.wait();
    let (pair, negotiated) = warm.as_mut().map_err(|error| Error::Check(error.to_string()))?;
    if gate.failed.load(Relaxed) {
        return Ok(None);
    }
    let outcome = pair.window(task.window_ms);
    gate.closed.fetch_add(1, Relaxed);
    let mut part = outcome?;
    while gate.closed.load(Relaxed) < task.threads {
        pair.batch()?;
    }
    part.negotiated = negotiated.clone();
    Ok(Some(part))
}

fn begin(
    task: &BulkTask,
    prepared: &dyn Prepared,
    number: usize,
) -> Result<(Pair, Negotiated), Error> {
    processor::pin(&task.processors, number)?;
    let mut worker = prepared.worker()?;
    let content = Content::new(task.message_bytes, task.messages);
    let mut pair = Pair {
        server: worker.server()?,
        client: worker.client(None)?,
        source: Source::new(&content, number, task.fault),
        sink: Sink::new(&content, number, Verify::Compare),
        record_bytes: task.record_bytes.min(task.message_bytes),
        batch_messages: (BATCH_BYTES / task.message_bytes).max(1),
        wire: Vec::new(),
        back: Vec::new(),
        plaintext: Vec::new(),
        spent: Spent::default(),
    };
    let negotiated = pair.shake_hands(task)?;
    Ok((pair, negotiated))
}

/// Both ends of one connection, and what goes from one to the other.
struct Pair {
    server: Box<dyn Endpoint>,
    client: Box<dyn Endpoint>,
    source: Source,
    sink: Sink,
    record_bytes: usize,
    batch_messages: usize,
    wire: Vec<u8>,
    back: Vec<u8>,
    plaintext: Vec<u8>,
    spent: Spent,
}

/// Times of all batches so far.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    bytes: u64,
    send: Span,
    receive: Span,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    wall_ns: u64,
    cpu_ns: u64,
}

impl Span {
    fn add(&mut self, from: &Reading, to: &Reading) {
        let wall = to.wall.duration_since(from.wall).as_nanos();
        self.wall_ns += u64::try_from(wall).unwrap_or(u64::MAX);
        self.cpu_ns += to.cpu_ns.saturating_sub(from.cpu_ns);
    }
}

/// Both clocks.
struct Reading {
    wall: Instant,
    cpu_ns: u64,
}

impl Reading {
    fn now() -> Self {
        Self { wall: Instant::now(), cpu_ns: thread_cpu_ns() }
    }
}

impl Pair {
    fn shake_hands(&mut self, task: &BulkTask) -> Result<Negotiated, Error> {
        shake_hands(&mut *self.server, &mut *self.client)?;
        let (at_server, at_client) = (self.server.negotiated()?, self.client.negotiated()?);
        task.scenario.check(&at_server, &at_client, false)?;
        Ok(Negotiated { group: at_client.group.or(at_server.group), ..at_server })
    }

    /// Batches for as long as the window is.
    fn window(&mut self, window_ms: u64) -> Result<Part, Error> {
        self.spent = Spent::default();
        let checks_before_ns = self.sink.check_ns();
        let start = Reading::now();
        let until = start.wall + Duration::from_millis(window_ms);
        let mut end = Reading::now();
        while end.wall < until {
            self.batch()?;
            end = Reading::now();
        }
        let mut all = Span::default();
        all.add(&start, &end);
        let Spent { bytes, send, receive } = self.spent;
        Ok(Part {
            negotiated: self.client.negotiated()?,
            bytes,
            wall_ns: all.wall_ns,
            cpu_ns: all.cpu_ns,
            check_ns: self.sink.check_ns() - checks_before_ns,
            ends: BulkEnds {
                send_ns: send.wall_ns,
                receive_ns: receive.wall_ns,
                other_ns: all.wall_ns - send.wall_ns - receive.wall_ns,
                send_cpu_ns: send.cpu_ns,
                receive_cpu_ns: receive.cpu_ns,
                per_thread: Vec::new(),
            },
        })
    }

    /// A few messages from one end to the other, each compared.
    fn batch(&mut self) -> Result<(), Error> {
        self.wire.clear();
        self.plaintext.clear();
        let before = self.source.sent_bytes();
        let start = Reading::now();
        let (mut harmed, mut pieces) = (Harm::None, 0);
        for _ in 0..self.batch_messages.saturating_mul(self.message_pieces()) {
            let Some((piece, harm)) = self.source.next(self.record_bytes) else {
                return Err(Error::Check("the window is too long for one connection".into()));
            };
            harmed = if harmed == Harm::None { harm } else { harmed };
            self.server.send(piece, &mut self.wire)?;
            pieces += 1;
        }
        let sent = Reading::now();
        let records = records(&self.wire);
        if self.record_bytes <= RECORD_PLAIN_BYTES && records != pieces {
            let text = format!("{pieces} pieces of a record's size went out in {records} records");
            return Err(Error::Check(text));
        }
        match harmed {
            Harm::Ciphertext => flip_bit(&mut self.wire),
            Harm::None => {}
            Harm::Reset => self.wire.truncate(self.wire.len() / 2),
        }
        let incoming = Reading::now();
        let ended = self.client.receive(&self.wire, &mut self.plaintext, &mut self.back)?;
        let received = Reading::now();
        self.spent.send.add(&start, &sent);
        self.spent.receive.add(&incoming, &received);
        let bytes = self.source.sent_bytes() - before;
        if ended || self.plaintext.len() as u64 != bytes || !self.back.is_empty() {
            let text = format!("{} bytes of {bytes} arrived in memory", self.plaintext.len());
            return Err(Error::Check(text));
        }
        self.sink.take(&self.plaintext)?;
        self.spent.bytes += bytes;
        Ok(())
    }

    /// Pieces that a message is cut into.
    fn message_pieces(&self) -> usize {
        self.source.message_bytes().div_ceil(self.record_bytes.max(1))
    }
}

/// How many records `wire` holds.
fn records(mut wire: &[u8]) -> usize {
    let mut count = 0;
    while let [_, _, _, high, low, behind @ ..] = wire {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        wire = behind.get(length..).unwrap_or_default();
        count += 1;
    }
    count
}

/// Plaintext of a full record.
const RECORD_PLAIN_BYTES: usize = 16 * 1024;
/// Plaintext between two readings of the clocks: enough to make them cheap, little enough to stay
/// in a cache.
const BATCH_BYTES: usize = 256 * 1024;
/// The warm-up is this share of the window.
const WARM_UP_SHARE: u64 = 4;
