//! A thread that does the TLS of the connections that are bound to it, for life: [`Worker`].
//!
//! ```text
//! loop   enc_in ----> open ----> clear_out   loop
//! loop   enc_out <--- seal <---- clear_in    loop
//! ```
//! A worker owns no socket. Whatever a connection does ends that connection alone.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Acquire, Ordering::Release},
    },
};

use sealane_lab_model::error::Error;
use sealane_lab_stacks::stack;

use crate::offload::{
    account::{Ledger, Wakes},
    notice::{Inbox, Job, News, UnderWay},
    pipe::{CHUNK_BYTES, Inlet, Outlet},
    tls::Tls,
};

/// A connection as the loop hands it to its worker.
pub(super) struct Opened {
    pub(super) token: u64,
    pub(super) shared: Arc<Signals>,
    pub(super) enc_in: Outlet,
    pub(super) clear_in: Outlet,
    pub(super) enc_out: Inlet,
    pub(super) clear_out: Inlet,
}

/// What both halves of a connection say to each other beside the bytes.
#[derive(Default)]
pub(super) struct Signals {
    pub(super) under_way: UnderWay,
    /// The worker puts no more into its pipes; the socket is to be closed behind what is there.
    ended: AtomicBool,
    /// The loop has closed the socket.
    gone: AtomicBool,
    /// The worker has nothing more of it.
    left: AtomicBool,
}

impl Signals {
    /// Whether the worker has said its last; to be asked before its pipes are emptied.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    /// The loop has closed the socket: a job for the worker.
    pub(super) fn close(&self) {
        self.gone.store(true, Release);
    }

    /// Whether the worker has nothing more of the connection.
    pub(super) fn has_left(&self) -> bool {
        self.left.load(Acquire)
    }
}

/// One thread's.
pub(super) struct Worker {
    tls: Box<dyn stack::Worker>,
    inbox: Inbox,
    news: News,
    halves: HashMap<u64, Half>,
    /// Connections that have more to do at once than others should wait for.
    again: Vec<u64>,
    scratch: Vec<u8>,
    wakes: Wakes,
    broken: u64,
    ledger: Arc<Ledger>,
}

impl Worker {
    /// A worker without connections, on the thread that it is to run on.
    pub(super) fn new(
        tls: Box<dyn stack::Worker>,
        inbox: Inbox,
        news: News,
        ledger: Arc<Ledger>,
    ) -> Self {
        ledger.begin();
        let (halves, again, scratch) = (HashMap::new(), Vec::new(), vec![0; CHUNK_BYTES]);
        Self {
            tls,
            inbox,
            news,
            halves,
            again,
            scratch,
            wakes: Wakes::default(),
            broken: 0,
            ledger,
        }
    }

    /// Works until it is told to stop.
    ///
    /// # Errors
    /// A fault of the lab, or the system refuses; never one of a connection.
    pub(super) fn run(&mut self) -> Result<(), Error> {
        loop {
            if self.again.is_empty()
                && let Some(job) = self.inbox.next()?
                && !self.work(job)?
            {
                return Ok(());
            }
            for token in std::mem::take(&mut self.again) {
                self.visit(token)?;
                // Others come between.
                if let Some(job) = self.inbox.try_next()
                    && !self.work(job)?
                {
                    return Ok(());
                }
            }
        }
    }

    /// Does one job; `false` if it was the last.
    fn work(&mut self, job: Job) -> Result<bool, Error> {
        match job {
            Job::Open(opened) => {
                self.halves.insert(opened.token, Half::new(*opened));
            }
            Job::Stop => return Ok(false),
            Job::Work(token) => self.visit(token)?,
        }
        Ok(true)
    }

    /// One connection goes on, as far as it can.
    fn visit(&mut self, token: u64) -> Result<(), Error> {
        let Some(half) = self.halves.get_mut(&token) else { return Ok(()) };
        half.opened.shared.under_way.take_job();
        if half.opened.shared.gone.load(Acquire) {
            return self.leave(token);
        }
        if !half.ended {
            match half.advance(self.tls.as_mut(), &mut self.scratch) {
                Ok(Turn::Again) => self.again.push(token),
                Ok(Turn::Waits) => {}
                Ok(Turn::Ended) => half.ended = true,
                // The client's doing: it ends this connection, and no other.
                Err(_) => {
                    half.ended = true;
                    self.broken += 1;
                }
            }
            half.opened.shared.ended.store(half.ended, Release);
        }
        let told = self.news.tell(token, &half.opened.shared.under_way, &mut self.wakes);
        self.ledger.write(self.wakes, self.broken);
        told
    }

    /// The loop has closed the socket: the connection's last visit.
    fn leave(&mut self, token: u64) -> Result<(), Error> {
        let Some(half) = self.halves.remove(&token) else { return Ok(()) };
        half.opened.shared.left.store(true, Release);
        let told = self.news.tell(token, &half.opened.shared.under_way, &mut self.wakes);
        self.ledger.write(self.wakes, self.broken);
        told
    }
}

/// The worker's half of a connection.
struct Half {
    opened: Opened,
    /// From the first byte on.
    tls: Option<Tls>,
    /// What the pipes had no room for; at most what one chunk makes.
    plaintext: Vec<u8>,
    outgoing: Vec<u8>,
    closes: bool,
    ended: bool,
}

enum Turn {
    Again,
    Ended,
    Waits,
}

impl Half {
    fn new(opened: Opened) -> Self {
        let (plaintext, outgoing) = (Vec::new(), Vec::new());
        Self { opened, tls: None, plaintext, outgoing, closes: false, ended: false }
    }

    /// Goes on for a bounded number of steps.
    fn advance(
        &mut self,
        worker: &mut dyn stack::Worker,
        scratch: &mut [u8],
    ) -> Result<Turn, Error> {
        for _ in 0..STEPS_MAX {
            if !self.hand_over() {
                return Ok(Turn::Waits);
            }
            if self.closes {
                return Ok(Turn::Ended);
            }
            let moved = self.step(worker, scratch);
            if moved.is_err() {
                // An alert may be among what is left.
                self.hand_over();
            }
            if !moved? {
                return Ok(Turn::Waits);
            }
        }
        Ok(Turn::Again)
    }

    /// Takes a chunk each way; whether there was one.
    fn step(&mut self, worker: &mut dyn stack::Worker, scratch: &mut [u8]) -> Result<bool, Error> {
        let tls = match &mut self.tls {
            Some(tls) => tls,
            None => self.tls.insert(Tls::new(worker)?),
        };
        let Self { opened, plaintext, outgoing, closes, .. } = self;
        let taken = opened.enc_in.drain(scratch, |bytes| {
            *closes |= tls.open(bytes, plaintext, outgoing)?;
            Ok::<_, Error>(bytes.len())
        })?;
        let sealed = opened.clear_in.drain(scratch, |bytes| {
            tls.seal(bytes, outgoing)?;
            Ok::<_, Error>(bytes.len())
        })?;
        Ok(taken + sealed > 0)
    }

    /// Puts into the pipes what fits; whether that was all.
    fn hand_over(&mut self) -> bool {
        let pairs = [
            (&mut self.opened.enc_out, &mut self.outgoing),
            (&mut self.opened.clear_out, &mut self.plaintext),
        ];
        pairs.into_iter().fold(true, |all, (pipe, bytes)| {
            while !bytes.is_empty() {
                match pipe.write(bytes) {
                    0 => {
                        pipe.starve();
                        return false;
                    }
                    written => drop(bytes.drain(..written)),
                }
            }
            all
        })
    }
}

/// Chunks of one connection before others have their turn.
const STEPS_MAX: usize = 8;
