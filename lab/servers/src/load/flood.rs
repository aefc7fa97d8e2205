//! Clients that send one ClientHello each and wait for the ServerHello, [`Flood`]: one thread, one
//! epoll, and no TLS but for the share of clients that complete their handshakes, so that one
//! processor can ask more of a server than the server can do.

use std::{
    collections::VecDeque,
    io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt},
    time::Timespec,
};
use rustls::{ClientConfig, ClientConnection, pki_types::ServerName};
use sealane_lab_harness::{interrupt::Interrupt, processor::thread_cpu_ns};
use sealane_lab_model::{error::Error, histogram::Times};
use slab::Slab;

/// The clients of a flood.
#[derive(Clone)]
pub(crate) struct Flood {
    /// The server's address.
    pub(crate) address: SocketAddr,
    /// The record that each client sends. The same key share serves all.
    pub(crate) hello: Vec<u8>,
    /// The addresses that clients connect from, in turn.
    pub(crate) sources: Vec<Ipv4Addr>,
    /// The time in which clients start.
    pub(crate) lasts: Duration,
    /// The time from its scheduled start after which a client resets its connection.
    pub(crate) patience: Duration,
    /// The most connections at once. The oldest client gives up when one more starts.
    pub(crate) open_max: usize,
    /// Percent of the clients that complete their handshakes, with these settings.
    pub(crate) completing: u8,
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
    /// Ctrl-C, which ends the flood.
    pub(crate) interrupted: Interrupt,
}

/// The times at which clients start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rhythm {
    /// This many at any time: the next one starts when one is answered.
    Closed(usize),
    /// At fixed times, with this interval, whatever became of the clients before.
    Open(Duration),
}

/// The clients of a flood by their end.
pub(crate) struct FloodResult {
    /// Clients that started.
    pub(crate) started: u64,
    /// Clients whose ServerHello came, or that completed their handshakes, by the time from the
    /// scheduled start to it.
    pub(crate) answers: Times,
    /// Those of them within [`PROMPT`].
    pub(crate) prompt: u64,
    /// Clients that the server reset, closed or sent an alert.
    pub(crate) refused: u64,
    /// The longest time from a scheduled start to the actual one.
    pub(crate) late: Duration,
    /// Processor time of the thread.
    pub(crate) cpu_ns: u64,
}

struct Client {
    socket: TcpStream,
    /// The state of a client that completes its handshake.
    tls: Option<Box<ClientConnection>>,
    intended: Instant,
    number: u64,
    has_sent: bool,
}

/// The state of a client's connection.
#[derive(Debug, PartialEq)]
enum Reply {
    Answer,
    Nothing,
    Refusal,
}

impl Flood {
    /// Runs until the last client has its answer or has given up.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or a system call that failed.
    pub(crate) fn run(&self, rhythm: Rhythm) -> Result<FloodResult, Error> {
        let mut flow = Flow::new(self, rhythm)?;
        let cpu_before = thread_cpu_ns();
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while !flow.is_over() {
            if self.interrupted.is_pressed() {
                return Err(Error::Interrupted);
            }
            flow.start_due()?;
            flow.give_up(Instant::now());
            let wait = flow.next_step().saturating_duration_since(Instant::now()).min(WAIT_MAX);
            let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&flow.epoll, spare, Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(system("epoll")(error)),
            }
            for event in events.drain(..) {
                flow.turn(usize::try_from(event.data.u64()).unwrap_or(usize::MAX));
            }
        }
        flow.result.cpu_ns = thread_cpu_ns().saturating_sub(cpu_before);
        Ok(flow.result)
    }
}

impl Flood {
    /// Whether a client is one of those that complete their handshakes, which are spread evenly.
    fn completes(&self, number: u64) -> bool {
        let before = |number: u64| number * u64::from(self.completing) / 100;
        before(number) < before(number + 1)
    }

    fn tls(&self) -> io::Result<Box<ClientConnection>> {
        let tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        tls.map(Box::new).map_err(io::Error::other)
    }
}

/// A flood under way.
struct Flow<'a> {
    flood: &'a Flood,
    rhythm: Rhythm,
    began: Instant,
    epoll: OwnedFd,
    clients: Slab<Client>,
    /// Clients by their start, with some that have ended.
    oldest: VecDeque<(usize, u64)>,
    result: FloodResult,
}

impl<'a> Flow<'a> {
    fn new(flood: &'a Flood, rhythm: Rhythm) -> Result<Self, Error> {
        let result = FloodResult {
            started: 0,
            answers: Times::new()?,
            prompt: 0,
            refused: 0,
            late: Duration::ZERO,
            cpu_ns: 0,
        };
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system("epoll"))?;
        let (clients, oldest, began) = (Slab::new(), VecDeque::new(), Instant::now());
        Ok(Self { flood, rhythm, began, epoll, clients, oldest, result })
    }

    fn is_over(&self) -> bool {
        self.clients.is_empty() && self.next_start(Instant::now()).is_none()
    }

    /// The scheduled start of the next client, if there is one.
    fn next_start(&self, now: Instant) -> Option<Instant> {
        let start = match self.rhythm {
            Rhythm::Closed(_) => now,
            Rhythm::Open(interval) => {
                let nanoseconds = interval.as_nanos().saturating_mul(self.result.started.into());
                self.began + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
            }
        };
        (start < self.began + self.flood.lasts).then_some(start)
    }

    fn start_due(&mut self) -> Result<(), Error> {
        for _ in 0..STARTS_MAX {
            let now = Instant::now();
            let Some(intended) = self.next_start(now).filter(|start| *start <= now) else { break };
            if matches!(self.rhythm, Rhythm::Closed(at_once) if self.clients.len() >= at_once) {
                break;
            }
            if self.clients.len() >= self.flood.open_max {
                self.reset_oldest();
            }
            self.result.late = self.result.late.max(now - intended);
            self.start(intended).map_err(Error::io("start a client"))?;
        }
        Ok(())
    }

    fn start(&mut self, intended: Instant) -> io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // Its end is a reset.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        let number = self.result.started;
        let place = usize::try_from(number).unwrap_or(0) % self.flood.sources.len().max(1);
        if let Some(source) = self.flood.sources.get(place) {
            rustix::net::bind(&socket, &SocketAddr::from((*source, 0)))?;
        }
        match rustix::net::connect(&socket, &self.flood.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        self.result.started += 1;
        let tls = self.flood.completes(number).then(|| self.flood.tls()).transpose()?;
        let mut client = Client { socket: socket.into(), tls, intended, number, has_sent: false };
        // On the loopback interface a connection is open at once unless the backlog is full.
        client.send(&self.flood.hello);
        let mut interest = EventFlags::IN | EventFlags::ET;
        interest.set(EventFlags::OUT, !client.has_sent || client.tls.is_some());
        let entry = self.clients.vacant_entry();
        let key = entry.key();
        epoll::add(&self.epoll, &client.socket, EventData::new_u64(key as u64), interest)?;
        entry.insert(client);
        self.oldest.push_back((key, number));
        Ok(())
    }

    fn turn(&mut self, key: usize) {
        let Some(client) = self.clients.get_mut(key) else { return };
        client.send(&self.flood.hello);
        match client.look() {
            Reply::Nothing => return,
            Reply::Answer => {
                let took = client.intended.elapsed();
                self.result.answers.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
                self.result.prompt += u64::from(took <= PROMPT);
            }
            Reply::Refusal => self.result.refused += 1,
        }
        self.clients.remove(key);
    }

    fn give_up(&mut self, now: Instant) {
        while let Some((key, number)) = self.oldest.front().copied() {
            let client = self.clients.get(key).filter(|client| client.number == number);
            if client.is_some_and(|client| now < client.intended + self.flood.patience) {
                break;
            }
            self.reset_oldest();
        }
    }

    fn reset_oldest(&mut self) {
        if let Some((key, number)) = self.oldest.pop_front()
            && self.clients.get(key).is_some_and(|client| client.number == number)
        {
            self.clients.remove(key);
        }
    }

    /// The time to go on without an event.
    fn next_step(&self) -> Instant {
        let now = Instant::now();
        let start = match self.rhythm {
            Rhythm::Open(_) => self.next_start(now),
            Rhythm::Closed(_) => None,
        };
        let oldest = self.oldest.front().and_then(|(key, _)| self.clients.get(*key));
        let end = oldest.map(|client| client.intended + self.flood.patience);
        start.into_iter().chain(end).min().unwrap_or(now)
    }
}

impl Client {
    fn send(&mut self, hello: &[u8]) {
        if self.tls.is_none() && !self.has_sent {
            self.has_sent = rustix::net::send(&self.socket, hello, SendFlags::NOSIGNAL).is_ok();
        }
    }

    /// Completes the handshake as far as it can, or reads the beginning of the server's first
    /// record.
    fn look(&mut self) -> Reply {
        if let Some(tls) = &mut self.tls {
            return match tls.complete_io(&mut self.socket) {
                Ok(_) => Reply::Answer,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Reply::Nothing,
                Err(_) => Reply::Refusal,
            };
        }
        let mut first = [0; FIRST_BYTES];
        match rustix::net::recv(&self.socket, &mut first, RecvFlags::PEEK) {
            Ok((FIRST_BYTES, _)) => match (first[0], first[FIRST_BYTES - 1]) {
                (HANDSHAKE, SERVER_HELLO) => Reply::Answer,
                _ => Reply::Refusal,
            },
            Ok((0, _)) => Reply::Refusal,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Reply::Nothing,
            Err(_) => Reply::Refusal,
        }
    }
}

fn system(what: &'static str) -> impl Fn(Errno) -> Error {
    move |error| Error::io(what)(error.into())
}

/// An answer after this time is late.
pub(crate) const PROMPT: Duration = Duration::from_secs(1);
const EVENTS_MAX: usize = 256;
const STARTS_MAX: usize = 32;
const WAIT_MAX: Duration = Duration::from_millis(100);
/// A record's head and the type of its first message.
const FIRST_BYTES: usize = 6;
const HANDSHAKE: u8 = 22;
const SERVER_HELLO: u8 = 2;

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    fn flood(address: SocketAddr, lasts_ms: u64, patience_ms: u64) -> Flood {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        Flood {
            completing: 0,
            config: Arc::new(config),
            name: "localhost".try_into().unwrap(),
            address,
            hello: b"hello".to_vec(),
            sources: vec![Ipv4Addr::new(127, 1, 0, 1), Ipv4Addr::new(127, 1, 1, 1)],
            lasts: Duration::from_millis(lasts_ms),
            patience: Duration::from_millis(patience_ms),
            open_max: 1_000,
            interrupted: Interrupt::default(),
        }
    }

    /// Starts do not wait for a server that answers none.
    #[test]
    fn open_rhythm_keeps_its_schedule() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let flood = flood(listener.local_addr().unwrap(), 100, 500);
        let result = flood.run(Rhythm::Open(Duration::from_millis(10))).unwrap();
        assert!(result.late < flood.patience / 2, "{:?}", result.late);
        assert_eq!((result.started, result.answers.count(), result.refused), (10, 0, 0));
        let sources: Vec<_> =
            (0..2).map(|_| listener.accept().unwrap().1.ip().to_string()).collect();
        assert_eq!(sources, ["127.1.0.1", "127.1.1.1"]);
    }

    #[test]
    fn oldest_client_gives_up_for_one_more() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut flood = flood(listener.local_addr().unwrap(), 50, 10_000);
        flood.open_max = 2;
        let pressed = flood.interrupted.clone();
        let end = thread::spawn(move || {
            // The third client's start resets the first.
            let mut first = listener.accept().unwrap().0;
            let mut bytes = Vec::new();
            let end = first.read_to_end(&mut bytes);
            pressed.press();
            end.is_err() && bytes == b"hello"
        });
        let result = flood.run(Rhythm::Open(Duration::from_millis(10)));
        assert!(matches!(result, Err(Error::Interrupted)));
        assert!(end.join().unwrap());
    }

    #[test]
    fn answers_and_refusals_are_told_apart() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let flood = flood(listener.local_addr().unwrap(), 40, 5_000);
        let answers: [&[u8]; 4] =
            [&[22, 3, 3, 0, 90, 2], &[21, 3, 3, 0, 2, 2], &[22, 3, 3, 0, 90, 1], &[]];
        let server = thread::spawn(move || {
            for answer in answers {
                let mut client = listener.accept().unwrap().0;
                client.read_exact(&mut [0; 5]).unwrap();
                client.write_all(answer).unwrap();
            }
        });
        let result = flood.run(Rhythm::Open(Duration::from_millis(10))).unwrap();
        server.join().unwrap();
        assert_eq!((result.started, result.answers.count(), result.refused), (4, 1, 3));
    }
}
