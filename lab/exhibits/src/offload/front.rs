//! The one loop that does all I/O: [`Front`]. It takes connections, moves their bytes to and from
//! TLS, answers requests, and measures how long each of its turns takes.

use std::{
    collections::HashMap,
    io::{self, Write},
    net::TcpListener,
    os::fd::OwnedFd,
    sync::Arc,
    thread::JoinHandle,
    time::Instant,
};

use rustix::{
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    net::SocketFlags,
    time::Timespec,
};
use sealane_lab_harness::processor::thread_cpu_ns;
use sealane_lab_model::error::Error;
use sealane_lab_servers::{load::Pattern, servers::answers::Answers};
use sealane_lab_stacks::stack;

use crate::offload::{
    account::{Account, Ledger, Sums, Ticks},
    bell::Bell,
    connection::{Here, Socket, There, Tools, Turn},
    notice::{CONNECTIONS_MAX, Job, Jobs, NewsIn},
    pipe::{CHUNK_BYTES, Carriage, Content, pipe},
    tls::Tls,
    worker::{Opened, Signals},
};

/// Where TLS is done.
pub(super) enum Executor {
    /// In the loop.
    Here(Box<dyn stack::Worker>),
    /// On these workers, dealt out in turn.
    There(Carriage, Vec<Desk>),
}

/// What the loop has of a worker.
pub(super) struct Desk {
    pub(super) jobs: Jobs,
    pub(super) news: NewsIn,
    pub(super) ledger: Arc<Ledger>,
    pub(super) thread: JoinHandle<Result<(), Error>>,
}

/// The loop.
pub(super) struct Front {
    epoll: OwnedFd,
    listener: TcpListener,
    bell: Arc<Bell>,
    place: Executor,
    connections: HashMap<u64, Connection>,
    next_token: u64,
    again: Vec<u64>,
    tools: Tools,
    ticks: Ticks,
    /// The loop's own part of all sums.
    sums: Sums,
    /// All sums, as the last account had them.
    told: Sums,
}

struct Connection {
    /// Until it is closed; the worker may then still have its half.
    socket: Option<Socket>,
    answers: Answers,
    tls: Half,
}

enum Half {
    Here(Here),
    There(There),
}

impl Front {
    /// A loop that listens, with `bell` for news from workers, and takes orders from standard
    /// input.
    ///
    /// # Errors
    /// The system refuses a descriptor.
    pub(super) fn new(
        listener: TcpListener,
        bell: Arc<Bell>,
        place: Executor,
    ) -> Result<Self, Error> {
        let new = || {
            listener.set_nonblocking(true)?;
            let epoll = epoll::create(CreateFlags::CLOEXEC)?;
            epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
            epoll::add(&epoll, io::stdin(), EventData::new_u64(ORDERS), EventFlags::IN)?;
            bell.watch(&epoll, BELL)?;
            Ok(epoll)
        };
        let epoll = new().map_err(Error::io("the loop's epoll"))?;
        Ok(Self {
            epoll,
            listener,
            bell,
            place,
            connections: HashMap::new(),
            next_token: 0,
            again: Vec::new(),
            tools: Tools { scratch: vec![0; CHUNK_BYTES], pattern: Pattern::default() },
            ticks: Ticks::new()?,
            sums: Sums::default(),
            told: Sums::default(),
        })
    }

    /// Serves until standard input ends, or until `deadline`; then stops the workers.
    ///
    /// # Errors
    /// A fault of the lab, the system refuses, or it is late; never one of a connection.
    pub(super) fn serve(&mut self, deadline: Instant) -> Result<(), Error> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            self.wait(&mut events)?;
            let (began, cpu_before) = (Instant::now(), thread_cpu_ns());
            if events.is_empty() {
                self.place.check()?;
            }
            if began > deadline {
                return Err(Error::Check("the server was not ended in time".into()));
            }
            let mut worked = !self.again.is_empty();
            let mut ordered = false;
            for Event { data, flags } in events.drain(..) {
                match data.u64() {
                    BELL => {}
                    LISTENER => self.accept()?,
                    ORDERS => ordered = true,
                    token => self.report(token, flags)?,
                }
                worked |= !matches!(data.u64(), BELL | ORDERS);
            }
            worked |= self.read_news()?;
            for token in std::mem::take(&mut self.again) {
                self.visit(token)?;
            }
            self.flush();
            if worked {
                let wall_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.ticks.record(wall_ns, thread_cpu_ns().saturating_sub(cpu_before));
            }
            if ordered && !self.obey()? {
                return self.stop();
            }
        }
    }

    /// Sleeps until something is there to do, at most [`SLEEP_TIME_MAX_S`].
    fn wait(&self, events: &mut Vec<Event>) -> Result<(), Error> {
        let mut longest_s = 0;
        if !self.is_busy() {
            self.bell.lie_down();
            if !self.is_busy() {
                longest_s = SLEEP_TIME_MAX_S;
            }
        }
        let longest = Timespec { tv_sec: longest_s, tv_nsec: 0 };
        let waited =
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&longest));
        self.bell.rise();
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::io("the loop's epoll")(error.into())),
        }
    }

    fn is_busy(&self) -> bool {
        let news = match &self.place {
            Executor::Here(_) => false,
            Executor::There(_, desks) => desks.iter().any(|desk| desk.news.keeps_awake()),
        };
        news || !self.again.is_empty()
    }

    fn accept(&mut self) -> Result<(), Error> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        for _ in 0..ACCEPTS_MAX {
            // Level-triggered: what is left is told again.
            let Ok(stream) = rustix::net::accept_with(&self.listener, flags) else { break };
            let socket = Socket::new(stream.into());
            let token = self.next_token;
            let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            let watched = || {
                socket.stream().set_nodelay(true)?;
                epoll::add(&self.epoll, socket.stream(), EventData::new_u64(token), interest)?;
                Ok::<_, io::Error>(())
            };
            // One that is gone again, or one too many, which is closed at once.
            if self.connections.len() >= CONNECTIONS_MAX || watched().is_err() {
                self.sums.broken += 1;
                continue;
            }
            self.next_token += 1;
            self.sums.accepted += 1;
            let tls = self.bind(token)?;
            let connection = Connection { socket: Some(socket), answers: Answers::default(), tls };
            self.connections.insert(token, connection);
        }
        Ok(())
    }

    /// Binds a new connection to the place where its TLS is done.
    fn bind(&mut self, token: u64) -> Result<Half, Error> {
        match &mut self.place {
            Executor::Here(worker) => Ok(Half::Here(Here::new(Tls::new(worker.as_mut())?))),
            Executor::There(carriage, desks) => {
                let count = desks.len() as u64;
                let worker = usize::try_from(token % count.max(1)).unwrap_or(0);
                let [(enc_in, worker_enc_in), (clear_in, worker_clear_in)] =
                    [Content::Requests, Content::Answers].map(|content| pipe(*carriage, content));
                let [(worker_enc_out, enc_out), (worker_clear_out, clear_out)] =
                    [Content::Answers, Content::Requests].map(|content| pipe(*carriage, content));
                let shared = Arc::new(Signals::default());
                let opened = Opened {
                    token,
                    shared: Arc::clone(&shared),
                    enc_in: worker_enc_in,
                    clear_in: worker_clear_in,
                    enc_out: worker_enc_out,
                    clear_out: worker_clear_out,
                };
                desks[worker].jobs.send(Job::Open(Box::new(opened)), &mut self.sums.wakes)?;
                Ok(Half::There(There { worker, shared, enc_in, clear_in, enc_out, clear_out }))
            }
        }
    }

    /// What epoll says of a connection.
    fn report(&mut self, token: u64, flags: EventFlags) -> Result<(), Error> {
        if let Some(Connection { socket: Some(socket), .. }) = self.connections.get_mut(&token) {
            socket.note(flags);
        }
        self.visit(token)
    }

    /// Looks after all connections that workers told of; whether there were any.
    fn read_news(&mut self) -> Result<bool, Error> {
        let mut any = false;
        for number in 0..self.place.desks().len() {
            // What comes meanwhile is for the next turn.
            for _ in 0..self.place.desks()[number].news.len() {
                if let Some(token) = self.place.desks()[number].news.next() {
                    any = true;
                    self.hear(token)?;
                }
            }
        }
        Ok(any)
    }

    /// A worker has told of a connection.
    fn hear(&mut self, token: u64) -> Result<(), Error> {
        if let Some(Connection { tls: Half::There(there), .. }) = self.connections.get(&token) {
            there.shared.under_way.take_news();
            if there.shared.has_left() {
                self.connections.remove(&token);
                return Ok(());
            }
        }
        self.visit(token)
    }

    /// One connection goes on, as far as it can.
    fn visit(&mut self, token: u64) -> Result<(), Error> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let Connection { socket: Some(socket), answers, tls } = connection else { return Ok(()) };
        let mut work = false;
        let turn = match tls {
            Half::Here(here) => here.advance(socket, answers, &mut self.tools),
            Half::There(there) => there.advance(socket, answers, &mut self.tools, &mut work),
        };
        match turn {
            Ok(Turn::Again) => self.again.push(token),
            Ok(Turn::Waits) => {}
            Ok(Turn::Over) => return self.close(token),
            Err(error) => {
                // A client may end when it likes.
                self.sums.broken += u64::from(error.kind() != io::ErrorKind::UnexpectedEof);
                return self.close(token);
            }
        }
        if let (true, Half::There(there)) = (work, tls) {
            let jobs = &mut self.place.desks()[there.worker].jobs;
            jobs.work(token, &there.shared.under_way, &mut self.sums.wakes)?;
        }
        Ok(())
    }

    /// Closes the socket. A worker's half is kept account of until the worker has let go of it, so
    /// that [`CONNECTIONS_MAX`] holds for both.
    fn close(&mut self, token: u64) -> Result<(), Error> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        connection.socket = None;
        if let Half::There(there) = &connection.tls {
            there.shared.close();
            let jobs = &mut self.place.desks()[there.worker].jobs;
            return jobs.work(token, &there.shared.under_way, &mut self.sums.wakes);
        }
        self.connections.remove(&token);
        Ok(())
    }

    /// The turn is over: what it had for workers is a batch for each.
    fn flush(&mut self) {
        for desk in self.place.desks() {
            desk.jobs.flush(&mut self.sums.wakes);
        }
    }

    /// Gives an account for each line on standard input; `false` at its end.
    fn obey(&mut self) -> Result<bool, Error> {
        self.place.check()?;
        let mut orders = [0; ORDERS_BYTES_MAX];
        let read = rustix::io::read(io::stdin(), &mut orders)
            .map_err(|error| Error::io("standard input")(error.into()))?;
        for _ in orders[..read].iter().filter(|byte| **byte == b'\n') {
            let mut sums = Sums { loop_ns: thread_cpu_ns(), ..self.sums };
            for desk in self.place.desks() {
                sums.wakes.add(desk.ledger.wakes());
                sums.broken += desk.ledger.broken();
                sums.workers_ns += desk.ledger.cpu_ns();
            }
            let account = Account::between(self.told, sums, &self.ticks)?;
            (self.told, self.ticks) = (sums, Ticks::new()?);
            let text = serde_json::to_string(&account)
                .map_err(|error| Error::Check(format!("an account as JSON: {error}")))?;
            writeln!(io::stdout(), "{text}").map_err(Error::io("standard output"))?;
        }
        Ok(read > 0)
    }

    /// Stops the workers and waits for them.
    fn stop(&mut self) -> Result<(), Error> {
        for desk in self.place.desks() {
            desk.jobs.send(Job::Stop, &mut self.sums.wakes)?;
            desk.jobs.flush(&mut self.sums.wakes);
        }
        let Executor::There(_, desks) = &mut self.place else { return Ok(()) };
        desks.drain(..).try_for_each(|desk| desk.thread.join().unwrap_or_else(|_| Err(ended())))
    }
}

impl Executor {
    /// All workers; none if TLS is done in the loop.
    fn desks(&mut self) -> &mut [Desk] {
        match self {
            Self::Here(_) => &mut [],
            Self::There(_, desks) => desks,
        }
    }

    /// Whether all workers still work.
    fn check(&mut self) -> Result<(), Error> {
        let all = self.desks().iter().all(|desk| !desk.thread.is_finished());
        if all { Ok(()) } else { Err(ended()) }
    }
}

fn ended() -> Error {
    Error::Check("a worker has ended: a fault of the lab".into())
}

const LISTENER: u64 = u64::MAX;
const ORDERS: u64 = u64::MAX - 1;
const BELL: u64 = u64::MAX - 2;
const ACCEPTS_MAX: usize = 64;
const EVENTS_MAX: usize = 256;
const ORDERS_BYTES_MAX: usize = 64;
/// A loop with nothing to do looks up that often, for workers that ended and for its deadline.
const SLEEP_TIME_MAX_S: i64 = 1;
