//! The runtimes `tokio` (one multi-thread runtime, the shared loop) and `tokio-per-core` (a runtime
//! per thread): any stack of the lab over `TcpStream`, a task for each end of each connection.

use std::{
    cell::RefCell,
    io,
    net::TcpStream as StdStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Instant,
};

use sealane_lab_harness::{credentials::Side, processor};
use sealane_lab_model::{document::BulkRound, error::Error, scenario::Negotiated};
use tokio::{
    net::TcpStream,
    runtime::{Builder, Runtime},
    sync::watch,
};

use crate::{
    bulk::{
        content::{Content, Harm, Sink, Source, flip_bit},
        sockets::{self, Event, Judge, Pair, Threads, of_connection},
        task::{BulkTask, Loops},
    },
    stack::{Endpoint, Prepared, Progress, Worker},
};

/// Carries everything once.
pub(crate) fn run(
    task: &BulkTask,
    prepared: &dyn Prepared,
) -> Result<(Negotiated, BulkRound), Error> {
    let (judge, events, content) = Judge::new(task);
    let pairs = sockets::pairs(task.connections)?;
    let (stage, stages) = watch::channel(Stage::Handshake);
    let shared = Common { task: task.clone(), content, events, stages };
    if task.loops == Some(Loops::PerLane) {
        per_core(judge, &shared, prepared, pairs, &stage)
    } else {
        multi_thread(judge, &shared, prepared, pairs, &stage)
    }
}

/// What all ends wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Handshake,
    Transfer,
    End,
}

/// What the ends have in common; cloned before the clock starts.
#[derive(Clone)]
struct Common {
    task: BulkTask,
    content: Arc<Content>,
    events: mpsc::Sender<Event>,
    stages: watch::Receiver<Stage>,
}

fn conduct(
    mut judge: Judge<'_>,
    stage: &watch::Sender<Stage>,
) -> Result<(Negotiated, BulkRound), Error> {
    let shaken = judge.await_handshakes(judge.ends());
    let result = shaken.and_then(|()| {
        judge.start();
        let _ = stage.send(Stage::Transfer);
        judge.await_transfer()
    });
    let _ = stage.send(Stage::End);
    result
}

fn multi_thread(
    judge: Judge<'_>,
    shared: &Common,
    prepared: &dyn Prepared,
    pairs: Vec<Pair>,
    stage: &watch::Sender<Stage>,
) -> Result<(Negotiated, BulkRound), Error> {
    let processors = shared.task.processors.clone();
    let started = AtomicUsize::new(0);
    let pin = move || {
        // A thread that cannot be pinned runs all the same; the round's figures show it.
        let _ = processor::pin(&processors, started.fetch_add(1, Relaxed));
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(shared.task.threads)
        .on_thread_start(pin)
        .enable_io()
        .build()
        .map_err(Error::io("start tokio"))?;
    let mut worker = prepared.worker()?;
    for (connection, pair) in pairs.into_iter().enumerate() {
        spawn(&runtime, shared, worker.as_mut(), connection, pair)?;
    }
    let result = conduct(judge, stage);
    runtime.shutdown_background();
    result
}

fn per_core(
    judge: Judge<'_>,
    shared: &Common,
    prepared: &dyn Prepared,
    pairs: Vec<Pair>,
    stage: &watch::Sender<Stage>,
) -> Result<(Negotiated, BulkRound), Error> {
    let threads = shared.task.threads;
    let mut of_threads: Vec<Vec<(usize, Pair)>> = (0..threads).map(|_| Vec::new()).collect();
    for (connection, pair) in pairs.into_iter().enumerate() {
        of_threads[connection % threads].push((connection, pair));
    }
    thread::scope(|scope| {
        for (number, pairs) in of_threads.into_iter().enumerate() {
            scope.spawn(move || {
                if let Err(error) = one_core(shared, prepared, number, pairs) {
                    let _ = shared.events.send(Event::Failed(error));
                }
            });
        }
        conduct(judge, stage)
    })
}

/// One thread's runtime, until the end.
fn one_core(
    shared: &Common,
    prepared: &dyn Prepared,
    number: usize,
    pairs: Vec<(usize, Pair)>,
) -> Result<(), Error> {
    processor::pin(&shared.task.processors, number)?;
    let runtime =
        Builder::new_current_thread().enable_io().build().map_err(Error::io("start tokio"))?;
    let mut worker = prepared.worker()?;
    for (connection, pair) in pairs {
        spawn(&runtime, shared, worker.as_mut(), connection, pair)?;
    }
    let mut stages = shared.stages.clone();
    runtime.block_on(async {
        // An error means that whoever conducts is gone, which is an end too.
        let _ = stages.wait_for(|stage| *stage == Stage::End).await;
    });
    Ok(())
}

fn spawn(
    runtime: &Runtime,
    shared: &Common,
    worker: &mut dyn Worker,
    connection: usize,
    (client, server): Pair,
) -> Result<(), Error> {
    let end = |socket: StdStream, endpoint: Box<dyn Endpoint>| -> Result<Peer, Error> {
        let _runtime = runtime.enter();
        let socket = TcpStream::from_std(socket).map_err(Error::io("a socket of tokio"))?;
        Ok(Peer { connection, socket, endpoint, outgoing: Vec::new(), threads: Threads::default() })
    };
    let server = end(server, worker.server()?)?;
    let client = end(client, worker.client(None)?)?;
    runtime.spawn(watched(shared.clone(), server, receive));
    runtime.spawn(watched(shared.clone(), client, transmit));
    Ok(())
}

/// Runs one end and tells if it fails.
async fn watched<F>(shared: Common, peer: Peer, run: impl FnOnce(Common, Peer) -> F)
where
    F: Future<Output = Result<(), Error>>,
{
    let events = shared.events.clone();
    if let Err(error) = run(shared, peer).await {
        // Nobody listens any more once another connection has failed.
        let _ = events.send(Event::Failed(error));
    }
}

/// One end of a connection.
struct Peer {
    connection: usize,
    socket: TcpStream,
    endpoint: Box<dyn Endpoint>,
    outgoing: Vec<u8>,
    threads: Threads,
}

/// The server: takes everything, checks it, and stays until the end.
async fn receive(mut shared: Common, mut peer: Peer) -> Result<(), Error> {
    peer.shake_hands(Side::Server, &shared.events).await?;
    let mut sink = Sink::new(&shared.content, peer.connection, shared.task.verify);
    while !peer.take(&mut sink).await? {}
    let (connection, threads) = (peer.connection, peer.threads.clone());
    let _ = shared.events.send(Event::Received { connection, sink, threads, at: Instant::now() });
    let _ = shared.stages.wait_for(|stage| *stage == Stage::End).await;
    Ok(())
}

/// The client: sends everything, and stays until the end.
async fn transmit(mut shared: Common, mut peer: Peer) -> Result<(), Error> {
    peer.shake_hands(Side::Client, &shared.events).await?;
    let mut source = Source::new(&shared.content, peer.connection, shared.task.fault);
    let _ = shared.stages.wait_for(|stage| *stage >= Stage::Transfer).await;
    let first = Instant::now();
    while let Some((piece, harm)) = source.next(SEND_BYTES) {
        peer.take_tickets()?;
        let failed = of_connection(peer.connection, "the client cannot encrypt");
        peer.endpoint.send(piece, &mut peer.outgoing).map_err(|error| failed(&error))?;
        match harm {
            Harm::None => {}
            Harm::Ciphertext => flip_bit(&mut peer.outgoing),
            Harm::Reset => {
                let reset = peer.socket.set_zero_linger();
                return reset.map_err(Error::io("reset a connection"));
            }
        }
        peer.flush().await?;
    }
    let (connection, threads) = (peer.connection, peer.threads.clone());
    let bytes = source.sent_bytes();
    let _ = shared.events.send(Event::Sent { connection, bytes, threads, first });
    let _ = shared.stages.wait_for(|stage| *stage == Stage::End).await;
    Ok(())
}

impl Peer {
    async fn shake_hands(&mut self, end: Side, events: &mpsc::Sender<Event>) -> Result<(), Error> {
        let failed = of_connection(self.connection, "handshake");
        let mut progress = match end {
            Side::Client => self.endpoint.handshake(&[], &mut self.outgoing),
            Side::Server => Ok(Progress::Wants),
        };
        loop {
            // Before an error there may be an alert to send.
            self.flush().await?;
            if progress.map_err(|error| failed(&error))? == Progress::Done {
                break;
            }
            progress = self
                .read(|endpoint, Scratch { incoming, .. }, len, outgoing| {
                    endpoint.handshake(&incoming[..len], outgoing)
                })
                .await?;
        }
        let _ = events.send(Event::Shaken(end, self.endpoint.negotiated()?));
        Ok(())
    }

    /// Reads once, decrypts and checks; whether that was all.
    async fn take(&mut self, sink: &mut Sink) -> Result<bool, Error> {
        let failed = of_connection(self.connection, "the server cannot decrypt");
        let is_complete = self
            .read(|endpoint, Scratch { incoming, plaintext }, len, outgoing| {
                plaintext.clear();
                let ended = endpoint
                    .receive(&incoming[..len], plaintext, outgoing)
                    .map_err(|error| failed(&error))?;
                let is_complete = sink.take(plaintext)?;
                if ended && !is_complete {
                    return Err(failed(&"the client said that it sends no more"));
                }
                Ok(is_complete)
            })
            .await??;
        self.flush().await?;
        Ok(is_complete)
    }

    /// Tickets come behind the handshake: a client that only sends takes them in between.
    fn take_tickets(&mut self) -> Result<(), Error> {
        let failed = of_connection(self.connection, "the client");
        SCRATCH.with_borrow_mut(|Scratch { incoming, plaintext }| {
            match self.socket.try_read(incoming) {
                Ok(0) => Err(failed(&"the server has left")),
                Ok(len) => {
                    plaintext.clear();
                    let received =
                        self.endpoint.receive(&incoming[..len], plaintext, &mut self.outgoing);
                    received.map_err(|error| failed(&error))?;
                    if plaintext.is_empty() { Ok(()) } else { Err(failed(&"data came back")) }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(error) => Err(failed(&error)),
            }
        })
    }

    /// Waits for bytes, reads once into the thread's buffer and gives them to `take`.
    async fn read<T>(
        &mut self,
        take: impl FnOnce(&mut dyn Endpoint, &mut Scratch, usize, &mut Vec<u8>) -> T,
    ) -> Result<T, Error> {
        let failed = of_connection(self.connection, "read");
        loop {
            self.socket.readable().await.map_err(|error| failed(&error))?;
            let read = SCRATCH.with_borrow_mut(|scratch| {
                match self.socket.try_read(&mut scratch.incoming) {
                    Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(len) => Ok(Some(len)),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                    Err(error) => Err(error),
                }
            });
            let Some(len) = read.map_err(|error| failed(&error))? else { continue };
            self.threads.note();
            let (endpoint, outgoing) = (self.endpoint.as_mut(), &mut self.outgoing);
            return Ok(SCRATCH.with_borrow_mut(|scratch| take(endpoint, scratch, len, outgoing)));
        }
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let failed = of_connection(self.connection, "write");
        let mut sent = 0;
        while sent < self.outgoing.len() {
            self.threads.note();
            match self.socket.try_write(&self.outgoing[sent..]) {
                Ok(len) => sent += len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await.map_err(|error| failed(&error))?;
                }
                Err(error) => return Err(failed(&error)),
            }
        }
        self.outgoing.clear();
        Ok(())
    }
}

/// Buffers of a thread, lent to one connection after the other: nothing is awaited meanwhile.
struct Scratch {
    incoming: Vec<u8>,
    plaintext: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { incoming: vec![0; RECEIVE_BYTES], plaintext: Vec::new() });
}

/// Plaintext that is encrypted at a time: four full records.
const SEND_BYTES: usize = 64 * 1024;
/// Ciphertext that is read at a time.
const RECEIVE_BYTES: usize = 256 * 1024;
