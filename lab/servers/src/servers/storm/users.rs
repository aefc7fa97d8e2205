//! The clients next to a storm: users that connect all the time, and one established connection.
//! Both connect to one [`Door`].

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use rustls::{ClientConfig, ClientConnection, StreamOwned, pki_types::ServerName};

use crate::load::{Pattern, Request};

/// A server as users see it.
pub(super) struct Door {
    pub(super) address: SocketAddr,
    /// Full handshakes with the certificate verified.
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
    pub(super) host: String,
    /// The time that times are counted from.
    pub(super) origin: Instant,
    pub(super) is_over: AtomicBool,
    pattern: Pattern,
    nonce: AtomicU64,
}

/// An attempt of a user: a connection, a full handshake, a request and its answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attempt {
    /// The scheduled start, from the origin on.
    pub(super) at: Duration,
    /// The time from the scheduled start to the answer, or the reason why there was none.
    pub(super) took: Result<Duration, String>,
}

type Session = StreamOwned<ClientConnection, DeadlineStream>;

impl Door {
    pub(super) fn new(
        address: SocketAddr,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Self {
        let host = name.to_str().into_owned();
        let (is_over, nonce) = (AtomicBool::new(false), AtomicU64::new(0));
        let (origin, pattern) = (Instant::now(), Pattern::default());
        Self { address, config, name, host, origin, is_over, pattern, nonce }
    }

    fn open(&self, deadline: Instant) -> io::Result<Session> {
        let left = deadline.saturating_duration_since(Instant::now()).max(SHORTEST);
        let tcp = TcpStream::connect_timeout(&self.address, left)?;
        tcp.set_nodelay(true)?;
        let tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        Ok(StreamOwned::new(tls.map_err(io::Error::other)?, DeadlineStream { tcp, deadline }))
    }

    /// A request that the backend answers with the same number.
    fn echo(&self, session: &mut Session) -> io::Result<()> {
        let nonce = self.nonce.fetch_add(1, Relaxed);
        let mut head = Vec::new();
        Request::Echo.write_head(&self.host, nonce, &mut head);
        session.write_all(&head)?;
        session.flush()?;
        let mut answer = Request::Echo.answer(nonce);
        let mut bytes = [0; 1_024];
        while !answer.is_done() {
            let read = session.read(&mut bytes)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = answer.take(&bytes[..read], &self.pattern);
            taken.map_err(|failure| io::Error::other(failure.text))?;
        }
        Ok(())
    }

    fn attempt(&self, at: Duration, patience: Duration) -> Attempt {
        let deadline = self.origin + at + patience;
        let ended = self.open(deadline).and_then(|mut session| self.echo(&mut session));
        let took = self.origin.elapsed().saturating_sub(at);
        Attempt { at, took: ended.map(|()| took).map_err(|error| error.to_string()) }
    }

    /// Users until the end: an attempt at each interval, whatever became of those before.
    pub(super) fn users(
        &self,
        interval: Duration,
        patience: Duration,
        attempts: &mpsc::Sender<Attempt>,
    ) {
        thread::scope(|scope| {
            let first = self.origin.elapsed();
            for number in 0.. {
                let at = first + interval * number;
                thread::sleep(at.saturating_sub(self.origin.elapsed()));
                if self.is_over.load(Relaxed) {
                    break;
                }
                let attempts = attempts.clone();
                scope.spawn(move || attempts.send(self.attempt(at, patience)));
            }
        });
    }

    /// One connection until the end, with a request at each interval: the scheduled starts, and the
    /// times from them to the answers. A late answer delays the next request, not its schedule.
    pub(super) fn stream(&self, interval: Duration) -> io::Result<Vec<(Duration, Duration)>> {
        let deadline = Instant::now() + STREAM_PATIENCE;
        let mut session = self.open(deadline)?;
        self.echo(&mut session)?;
        let (first, mut times) = (self.origin.elapsed(), Vec::new());
        for number in 1.. {
            let at = first + interval * number;
            thread::sleep(at.saturating_sub(self.origin.elapsed()));
            if self.is_over.load(Relaxed) {
                break;
            }
            session.sock.deadline = Instant::now() + STREAM_PATIENCE;
            self.echo(&mut session)?;
            times.push((at, self.origin.elapsed() - at));
        }
        Ok(times)
    }
}

/// A connection of which every call ends by a deadline.
struct DeadlineStream {
    tcp: TcpStream,
    deadline: Instant,
}

impl DeadlineStream {
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()).max(SHORTEST)
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.tcp.set_read_timeout(Some(self.left()))?;
        self.tcp.read(bytes)
    }
}

impl Write for DeadlineStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.set_write_timeout(Some(self.left()))?;
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A timeout of zero would be none.
const SHORTEST: Duration = Duration::from_millis(1);
const STREAM_PATIENCE: Duration = Duration::from_secs(10);
