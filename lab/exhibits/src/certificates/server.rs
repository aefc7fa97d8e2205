//! The server under load: a [`Server`] of threads that each serve one connection after the other,
//! by the engine's session.
//!
//! ```text
//! accept -> read the hello -> Resolver: a certificate -> handshake -> request -> answer -> close
//!                                                                     GET /hold: kept, as one of
//!                                                                     those that are live
//! ```
//! All strategies run the same code under the same settings; only the resolver differs. Without
//! TLS, the same code passes the bytes on as they are. A thread is a lane in this: its connections
//! stay with it, and so does what it decoded.

mod connection;

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustls::{ServerConfig, server::ResolvesServerCert};
use sealane_engine::{
    context::{LaneContext, LaneResources},
    hello::Hello,
    provider::SelfTests,
    tickets::{LIFETIME_DEFAULT_S, TicketRoot, UnixSeconds},
};
use sealane_lab_model::error::Error;

use crate::certificates::{
    Fault, Strategy,
    generation::Generation,
    owner::Owner,
    resolver::{Notes, Resolver, Source},
    server::connection::{Connection, Lent, Served},
    task::CertificateTask,
};

/// Threads that serve; stopped by [`stop`](Self::stop).
pub(super) struct Server {
    pub(super) address: SocketAddr,
    common: Arc<Common>,
    threads: Vec<JoinHandle<Result<Told, Error>>>,
}

/// What the threads have in common.
pub(super) struct Common {
    task: CertificateTask,
    /// Keys that a lane decodes at most. Both generations fit: what evictions cost is another
    /// question.
    decoded_keys_max: NonZeroUsize,
    listener: TcpListener,
    /// The owner of all certificates, under [`Strategy::Central`].
    owner: Option<Owner>,
    published: Mutex<Published>,
    /// Changes with what is published, so that threads need not look there for each connection.
    number: AtomicU64,
    /// Connections that are over.
    closed: AtomicU64,
    /// Certificates that connections decoded for themselves.
    decoded: Arc<AtomicU64>,
    stops: AtomicBool,
}

/// What connections get that are accepted from now on.
struct Published {
    generation: Arc<Generation>,
    strategy: Strategy,
}

/// What threads tell at their end, summed up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    /// Certificates that connections or lanes decoded, and not the owner.
    pub(super) decoded: u64,
    /// Names that a thread was asked for the first time.
    pub(super) first_uses: u64,
    /// Held connections that got one more answer at the end.
    pub(super) held_answered: u64,
}

impl Server {
    /// Starts the threads, and waits until each can serve.
    ///
    /// # Errors
    /// The engine takes no such context, or the system refuses.
    pub(super) fn start(
        task: &CertificateTask,
        owner: Option<Owner>,
        generation: Generation,
    ) -> Result<Self, Error> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(any).map_err(Error::io("listen"))?;
        let address = listener.local_addr().map_err(Error::io("listen"))?;
        let common = Arc::new(Common {
            task: task.clone(),
            decoded_keys_max: NonZeroUsize::MIN.saturating_add(2 * generation.names().count()),
            listener,
            owner,
            published: Mutex::new(Published {
                generation: Arc::new(generation),
                strategy: task.strategy,
            }),
            number: AtomicU64::new(0),
            closed: AtomicU64::new(0),
            decoded: Arc::default(),
            stops: AtomicBool::new(false),
        });
        let (sender, readiness) = mpsc::channel();
        let mut server = Self { address, common, threads: Vec::new() };
        for number in 0..task.threads {
            let (common, sender) = (Arc::clone(&server.common), sender.clone());
            let thread = thread::Builder::new().name(format!("server-{number}"));
            let thread = thread.spawn(move || {
                let mut worker = Worker::new(common)?;
                let _ = sender.send(());
                drop(sender);
                worker.serve()
            });
            server.threads.push(thread.map_err(Error::io("start a thread"))?);
        }
        drop(sender);
        for _ in 0..task.threads {
            if readiness.recv_timeout(START_TIME_MAX).is_err() {
                return Err(server.stop().err().unwrap_or_else(|| {
                    Error::Check("a thread of the server did not start".into())
                }));
            }
        }
        Ok(server)
    }

    /// Connections that are over.
    pub(super) fn closed(&self) -> u64 {
        self.common.closed.load(Relaxed)
    }

    /// What connections accepted from now on get; returns the one that they got so far.
    pub(super) fn publish(&self, next: Arc<Generation>) -> Arc<Generation> {
        self.change(|published| std::mem::replace(&mut published.generation, next))
    }

    /// For connections accepted from now on, `strategy` decodes.
    pub(super) fn deploy(&self, strategy: Strategy) {
        self.change(|published| published.strategy = strategy);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Published) -> T) -> T {
        let mut published = self.common.published.lock().unwrap_or_else(PoisonError::into_inner);
        let told = change(&mut published);
        self.common.number.fetch_add(1, Relaxed);
        told
    }

    /// Accepts no more. Threads go on to what they hold.
    pub(super) fn stop_accepting(&self) {
        self.common.stops.store(true, Relaxed);
        // Wakes whoever waits in accept; one that is shut down already needs no second time.
        let _ = rustix::net::shutdown(&self.common.listener, rustix::net::Shutdown::Both);
    }

    /// Waits until the clients of all held connections have had an answer and closed.
    ///
    /// # Errors
    /// The first of a thread.
    pub(super) fn stop(self) -> Result<Told, Error> {
        self.stop_accepting();
        let mut sum = Told::default();
        let mut failed = None;
        for thread in self.threads {
            let panicked = |_| Err(Error::Check("a thread of the server panicked".into()));
            match thread.join().unwrap_or_else(panicked) {
                Ok(told) => {
                    sum.decoded += told.decoded;
                    sum.first_uses += told.first_uses;
                    sum.held_answered += told.held_answered;
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        sum.decoded += self.common.decoded.load(Relaxed);
        failed.map_or(Ok(sum), Err)
    }
}

/// One thread.
struct Worker {
    common: Arc<Common>,
    resources: LaneResources,
    notes: Arc<Notes>,
    config: Arc<ServerConfig>,
    /// The number of what was published when `config` was made of it.
    number: u64,
    lent: Lent,
    held: Vec<Connection>,
}

impl Worker {
    fn new(common: Arc<Common>) -> Result<Self, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let lifetime = Duration::from_secs(u64::from(LIFETIME_DEFAULT_S));
        // No ticket is ever made of it: nothing resumes here.
        let root = TicketRoot::generate(lifetime, UnixSeconds(now), |bytes| bytes.fill(0))
            .map_err(|error| wrong(&error))?;
        let resources = LaneResources::new(root, UnixSeconds(now), common.decoded_keys_max);
        let (notes, lent) = (Arc::default(), Lent::new());
        let (number, config) = configure(&common, &resources, &notes)?;
        Ok(Self { common, resources, notes, config, number, lent, held: Vec::new() })
    }

    fn serve(&mut self) -> Result<Told, Error> {
        while let Some(tcp) = self.accept()? {
            if self.common.number.load(Relaxed) != self.number {
                let configured = configure(&self.common, &self.resources, &self.notes)?;
                (self.number, self.config) = configured;
            }
            let config = (!self.common.task.is_plain).then(|| Arc::clone(&self.config));
            match Connection::new(tcp, config).and_then(|new| self.attend(new)) {
                Ok((connection, Served::Held)) => self.held.push(connection),
                Ok((connection, _)) => self.end(connection),
                // It is the client's to count: it knows what it asked for.
                Err(_) => self.count_closed(),
            }
        }
        let mut held_answered = 0;
        // Their clients close only after all have their answer.
        let mut held = std::mem::take(&mut self.held);
        for connection in &mut held {
            let served = connection.serve(&mut self.lent);
            held_answered += u64::from(matches!(served, Ok(Served::Answered)));
        }
        for mut connection in held {
            let _ = connection.serve(&mut self.lent);
            self.end(connection);
        }
        let decoded = self.resources.keys.borrow().counters().decoded;
        Ok(Told { decoded, first_uses: self.notes.names_asked(), held_answered })
    }

    fn accept(&self) -> Result<Option<TcpStream>, Error> {
        match self.common.listener.accept() {
            _ if self.common.stops.load(Relaxed) => Ok(None),
            Ok((tcp, _)) => Ok(Some(tcp)),
            Err(error) => Err(Error::io("accept")(error)),
        }
    }

    /// Serves it to its end, or until it is to be held.
    fn attend(&mut self, mut connection: Connection) -> Result<(Connection, Served), Error> {
        loop {
            let served = connection.serve(&mut self.lent);
            if let Some(reference) = self.notes.take_reference() {
                connection.reference = Some(reference);
            }
            match served? {
                Served::Answered => {}
                served => return Ok((connection, served)),
            }
        }
    }

    fn end(&self, connection: Connection) {
        if self.common.task.fault == Some(Fault::LeakedReference) {
            std::mem::forget(connection.reference);
        } else {
            drop(connection);
        }
        self.count_closed();
    }

    /// After the connection is gone, its message to the owner included.
    fn count_closed(&self) {
        self.common.closed.fetch_add(1, Relaxed);
    }
}

/// The settings of a lane of Sealane; another strategy only puts its own resolver there.
fn configure(
    common: &Common,
    resources: &LaneResources,
    notes: &Arc<Notes>,
) -> Result<(u64, Arc<ServerConfig>), Error> {
    let (number, strategy, generation) = {
        let published = common.published.lock().unwrap_or_else(PoisonError::into_inner);
        let Published { generation, strategy } = &*published;
        (common.number.load(Relaxed), *strategy, Arc::clone(generation))
    };
    let lane = LaneContext::new(&generation.context, resources).map_err(|error| wrong(&error))?;
    lane.warm_up(&mut SelfTests::default()).map_err(|error| wrong(&error))?;
    let refused = |refusal| wrong(&format!("{refusal:?}"));
    let engine = lane.admit(&Hello::default()).map_err(refused)?;
    let source = match (strategy, &common.owner) {
        (Strategy::Central, Some(owner)) => Source::Central(owner.clone()),
        (Strategy::Central, None) => return Err(wrong(&"central without an owner")),
        (Strategy::Lane, _) => {
            Source::Lane(Arc::<dyn ResolvesServerCert>::clone(&engine.cert_resolver))
        }
        (Strategy::PerConnection, _) => Source::PerConnection(Arc::clone(&common.decoded)),
    };
    let mut config = ServerConfig::clone(&engine);
    config.cert_resolver = Arc::new(Resolver {
        source,
        generation,
        provider: Arc::clone(engine.crypto_provider()),
        fault: common.task.fault,
        notes: Arc::clone(notes),
    });
    Ok((number, Arc::new(config)))
}

fn wrong(error: &dyn std::fmt::Display) -> Error {
    Error::Check(format!("the server: {error}"))
}

const START_TIME_MAX: Duration = Duration::from_secs(20);
