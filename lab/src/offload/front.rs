//! The one loop that does all I/O: [`Front`]. It takes connections, moves their bytes to and from
//! TLS, answers requests, and measures how long each of its turns takes.

use std::{
    collections::HashMap,
    io::{self, Write},
    net::TcpListener,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    net::SocketFlags,
    time::Timespec,
};

use crate::{
    error::Error,
    histogram::Times,
    load::Pattern,
    offload::{
        account::{Account, Ledger, Wakes},
        bell::Bell,
        connection::{Here, Socket, There, Tools, Turn},
        notice::{CONNECTIONS_MAX, Job, Jobs, NewsIn},
        pipe::{CHUNK_BYTES, Carriage, pipe},
        tls::Tls,
        worker::{Opened, Shared},
    },
    processor::thread_cpu_ns,
    servers::answers::Answers,
    stack,
};

/// Where TLS is done.
pub(super) enum Place {
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
}

/// The loop.
pub(super) struct Front {
    epoll: OwnedFd,
    listener: TcpListener,
    bell: Arc<Bell>,
    place: Place,
    connections: HashMap<u64, Connection>,
    next_token: u64,
    again: Vec<u64>,
    tools: Tools,
    count: Count,
    before: Sums,
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

/// Since the last account.
struct Count {
    accepted: u64,
    broken: u64,
    wakes: Wakes,
    tick: Times,
    tick_cpu: Times,
}

/// What only grows, as the last account had it.
#[derive(Clone, Copy, Default)]
struct Sums {
    wakes: Wakes,
    broken: u64,
    loop_ns: u64,
    workers_ns: u64,
}

impl Front {
    /// A loop that listens, with `bell` for news from workers, and takes orders from standard
    /// input.
    ///
    /// # Errors
    /// The system refuses a descriptor.
    pub(super) fn new(listener: TcpListener, bell: Arc<Bell>, place: Place) -> Result<Self, Error> {
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
            tools: Tools { scratch: vec![0; CHUNK_BYTES], pattern: Pattern::new() },
            count: Count::new()?,
            before: Sums::default(),
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
                self.count.tick.record(nanoseconds(began.elapsed()));
                self.count.tick_cpu.record(thread_cpu_ns().saturating_sub(cpu_before));
            }
            if ordered && !self.obey()? {
                return self.stop();
            }
        }
    }

    /// Sleeps until something is there to do, at most [`SLEEP_TIME_MAX`].
    fn wait(&self, events: &mut Vec<Event>) -> Result<(), Error> {
        self.bell.lie_down();
        let news = match &self.place {
            Place::Here(_) => false,
            Place::There(_, desks) => desks.iter().any(|desk| desk.news.len() > 0),
        };
        let busy = news || !self.again.is_empty();
        let longest = if busy { Duration::ZERO } else { SLEEP_TIME_MAX };
        let longest =
            Timespec { tv_sec: longest.as_secs().cast_signed(), tv_nsec: longest.subsec_nanos().into() };
        let waited = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&longest));
        self.bell.rise();
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(Error::io("the loop's epoll")(error.into())),
        }
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
                epoll::add(&self.epoll, socket.stream(), EventData::new_u64(token), interest)
            };
            // One that is gone again, or one too many, which is closed at once.
            if self.connections.len() >= CONNECTIONS_MAX || watched().is_err() {
                self.count.broken += 1;
                continue;
            }
            self.next_token += 1;
            self.count.accepted += 1;
            let tls = self.bind(token)?;
            let connection = Connection { socket: Some(socket), answers: Answers::default(), tls };
            self.connections.insert(token, connection);
        }
        Ok(())
    }

    /// Binds a new connection to the place where its TLS is done.
    fn bind(&mut self, token: u64) -> Result<Half, Error> {
        match &mut self.place {
            Place::Here(worker) => Ok(Half::Here(Here::new(Tls::new(worker.as_mut())?))),
            Place::There(carriage, desks) => {
                let count = desks.len() as u64;
                let worker = usize::try_from(token % count.max(1)).unwrap_or(0);
                let [(enc_in, worker_enc_in), (clear_in, worker_clear_in)] =
                    [pipe(*carriage), pipe(*carriage)];
                let [(worker_enc_out, enc_out), (worker_clear_out, clear_out)] =
                    [pipe(*carriage), pipe(*carriage)];
                let shared = Arc::new(Shared::default());
                let opened = Opened {
                    token,
                    shared: Arc::clone(&shared),
                    enc_in: worker_enc_in,
                    clear_in: worker_clear_in,
                    enc_out: worker_enc_out,
                    clear_out: worker_clear_out,
                };
                desks[worker].jobs.send(Job::Open(Box::new(opened)), &mut self.count.wakes)?;
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
        for number in 0.. {
            let Place::There(_, desks) = &mut self.place else { break };
            let Some(desk) = desks.get_mut(number) else { break };
            // What comes meanwhile is for the next turn.
            for _ in 0..desk.news.len() {
                any = true;
                self.hear(number)?;
            }
        }
        Ok(any)
    }

    /// One connection goes on, as far as it can.
    fn visit(&mut self, token: u64) -> Result<(), Error> {
        let Some(connection) = self.connections.get_mut(&token) else { return Ok(()) };
        let Connection { socket: Some(socket), answers, tls } = connection else { return Ok(()) };
        let (turn, work) = match tls {
            Half::Here(here) => match here.advance(socket, answers, &mut self.tools) {
                Ok(turn) => (Ok(turn), false),
                Err(error) => (Err(error), false),
            },
            Half::There(there) => match there.advance(socket, answers, &mut self.tools) {
                Ok((turn, work)) => (Ok(turn), work),
                Err(error) => (Err(error), false),
            },
        };
        let _ = (turn, work);
        Ok(())
    }
}
