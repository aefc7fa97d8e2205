//! A small HTTP/1.1 server for pages of our own: GET and HEAD, one response per connection.
//!
//! [`serve`] starts one thread that polls the listener and at most [`CONNECTIONS_MAX`] connections,
//! so that a silent client holds up nobody. It is for admins and demos, not for a lane's path.
//! [`serve_orders`] takes what changes something too, with a body if need be, and carries out what
//! takes a while on threads of its own.

mod body;
mod host;
mod message;
mod query;
mod work;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec, ioctl_fionbio};
use rustix::net::{
    RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown, sockopt,
};
use rustix::process::geteuid;
use zeroize::{Zeroize as _, Zeroizing};

use crate::proxy_header;

use work::{Work, Workers};

pub use body::{BODY_TIMEOUT, Body, BodyError, Chunk, Framing, SILENCE_TIMEOUT};
pub use host::Hosts;
pub use message::{Answer, ContentType, Method, Request, Response, Status};
pub use query::{Query, encode};
pub use work::WORKERS_MAX;

/// Serves `listener`, a bound TCP or unix socket that listens, on a thread called `name`.
///
/// `handler` is called for each GET or HEAD, on that thread: while it works nobody else is served.
///
/// # Errors
/// The thread or its wake-up socket could not be had.
pub fn serve(
    listener: impl Into<OwnedFd>,
    name: &str,
    handler: impl Fn(&Request<'_>) -> Response + Send + 'static,
) -> io::Result<Server> {
    serve_within(REQUEST_TIMEOUT, listener.into(), name, Opening::Request(None), at_once(handler))
}

/// The same on a unix socket, where a request may be an order: `handler` may put its answer off,
/// and is told whether this user or root asks.
///
/// # Errors
/// The thread or its wake-up socket could not be had.
pub fn serve_orders(
    listener: impl Into<OwnedFd>,
    name: &str,
    handler: impl Fn(&Request<'_>) -> Answer + Send + 'static,
) -> io::Result<Server> {
    serve_within(REQUEST_TIMEOUT, listener.into(), name, Opening::Order, handler)
}

/// The same on a port of this machine, for requests whose `Host` is one of `hosts`.
///
/// # Errors
/// The thread or its wake-up socket could not be had.
pub fn serve_hosts(
    listener: impl Into<OwnedFd>,
    hosts: Hosts,
    name: &str,
    handler: impl Fn(&Request<'_>) -> Response + Send + 'static,
) -> io::Result<Server> {
    let opening = Opening::Request(Some(hosts));
    serve_within(REQUEST_TIMEOUT, listener.into(), name, opening, at_once(handler))
}

/// The same behind a terminator: every connection must open with a PROXY protocol header of
/// version 2, which `handler` finds in its request.
///
/// # Errors
/// The thread or its wake-up socket could not be had.
pub fn serve_proxied(
    listener: impl Into<OwnedFd>,
    name: &str,
    handler: impl Fn(&Request<'_>) -> Response + Send + 'static,
) -> io::Result<Server> {
    serve_within(REQUEST_TIMEOUT, listener.into(), name, Opening::ProxyHeader, at_once(handler))
}

fn at_once(
    handler: impl Fn(&Request<'_>) -> Response + Send + 'static,
) -> impl Fn(&Request<'_>) -> Answer + Send + 'static {
    move |request| Answer::Now(handler(request))
}

fn serve_within(
    request_timeout: Duration,
    listener: OwnedFd,
    name: &str,
    opening: Opening,
    handler: impl Fn(&Request<'_>) -> Answer + Send + 'static,
) -> io::Result<Server> {
    ioctl_fionbio(&listener, true)?;
    let (wake, woken) = UnixStream::pair()?;
    let mut turn = Turn {
        listener,
        woken,
        workers: Workers::new()?,
        opening,
        handler,
        request_timeout,
        connections: Vec::new(),
        accept_again: Instant::now(),
        buffer: vec![0; READ_BYTES].into(),
    };
    let thread =
        thread::Builder::new().name(name.to_owned()).spawn(move || while turn.run().is_ok() {})?;
    Ok(Server { _wake: wake, thread })
}

/// A running server. Dropping it tells the thread to end; [`Server::stop`] also waits for that.
#[derive(Debug)]
pub struct Server {
    /// The thread ends when this end is closed.
    _wake: UnixStream,
    thread: JoinHandle<()>,
}

impl Server {
    /// Whether its thread has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Closes the listener and all connections, and waits until that is done.
    pub fn stop(self) {
        let Self { _wake: wake, thread } = self;
        drop(wake);
        // The thread has reported its panic, if it ended by one.
        let _ = thread.join();
    }
}

/// All that the thread works on.
struct Turn<H> {
    listener: OwnedFd,
    woken: UnixStream,
    workers: Workers,
    opening: Opening,
    handler: H,
    request_timeout: Duration,
    /// The oldest first.
    connections: Vec<Connection>,
    /// Not before this is the listener looked at, after an accept that failed.
    accept_again: Instant,
    buffer: Box<[u8]>,
}

/// What a connection begins with.
#[derive(Clone, Debug)]
pub enum Opening {
    /// A request that may be an order, on a unix socket.
    Order,
    /// A PROXY protocol header of version 2, and then a request.
    ProxyHeader,
    /// A request, whose `Host` is judged if there are some.
    Request(Option<Hosts>),
}

/// The server was told to stop, or its poll failed.
struct Stopped;

impl<H: Fn(&Request<'_>) -> Answer> Turn<H> {
    fn run(&mut self) -> Result<(), Stopped> {
        let ready = self.wait()?;
        let Self { workers, opening, handler, connections, buffer, .. } = self;
        let has_finished = !ready[2].is_empty();
        if has_finished {
            workers.silence();
        }
        let mut ready_connections = ready[3..].iter();
        connections.retain_mut(|connection| {
            let events = ready_connections.next().copied().unwrap_or(PollFlags::empty());
            let advanced = match &connection.state {
                State::Waiting { .. } if !events.is_empty() => Err(Done),
                State::Waiting { .. } if has_finished => connection.collect(),
                _ if events.is_empty() => Ok(()),
                _ => connection.advance(buffer, opening, handler, workers),
            };
            advanced.is_ok()
        });
        let now = Instant::now();
        connections.retain(|connection| now < connection.deadline);
        if !ready[1].is_empty() {
            self.accept(now);
        }
        Ok(())
    }

    /// What happened to the wake-up, the listener, the workers and each connection, in this order.
    fn wait(&self) -> Result<Vec<PollFlags>, Stopped> {
        let now = Instant::now();
        let accepting = self.accept_again <= now && self.has_room();
        let interest = if accepting { PollFlags::IN } else { PollFlags::empty() };
        let mut polled = vec![
            PollFd::new(&self.woken, PollFlags::IN),
            PollFd::new(&self.listener, interest),
            PollFd::new(&self.workers, PollFlags::IN),
        ];
        polled.extend(
            self.connections.iter().map(|each| PollFd::new(&each.socket, each.state.interest())),
        );
        let deadlines = self.connections.iter().map(|connection| connection.deadline);
        let pause = (self.accept_again > now).then_some(self.accept_again);
        let timeout = deadlines.chain(pause).min().and_then(|until| {
            // Rounded up, or the last millisecond would be spent spinning.
            let left = until.saturating_duration_since(now) + Duration::from_millis(1);
            Timespec::try_from(left).ok()
        });
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(Stopped),
        }
        let ready: Vec<_> = polled.iter().map(PollFd::revents).collect();
        if ready[0].is_empty() { Ok(ready) } else { Err(Stopped) }
    }

    /// Whether another connection fits, if need be in place of one that is still asking.
    fn has_room(&self) -> bool {
        self.connections.len() < CONNECTIONS_MAX || self.oldest_asking().is_some()
    }

    fn oldest_asking(&self) -> Option<usize> {
        self.connections.iter().position(|each| matches!(each.state, State::Asking(_)))
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_PER_TURN {
            if !self.has_room() {
                return;
            }
            match accept_with(&self.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => {
                    if self.connections.len() >= CONNECTIONS_MAX
                        && let Some(oldest) = self.oldest_asking()
                    {
                        self.connections.remove(oldest);
                    }
                    let deadline = now + self.request_timeout;
                    let is_owners = matches!(self.opening, Opening::Order) && is_of_owner(&socket);
                    let state = State::Asking(Zeroizing::new(Vec::with_capacity(ASKING_BYTES)));
                    self.connections.push(Connection { socket, is_owners, state, deadline });
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                // Such as for want of descriptors: the poll would say ready over and over.
                Err(_) => {
                    self.accept_again = now + ACCEPT_PAUSE;
                    return;
                }
            }
        }
    }
}

/// Whether this user or root is at the other end of a unix socket: whoever connected, the kernel
/// says, and it cannot be talked into another answer.
fn is_of_owner(socket: &OwnedFd) -> bool {
    let peer = sockopt::socket_peercred(socket).map(|peer| peer.uid);
    peer.is_ok_and(|user| user.is_root() || user == geteuid())
}

struct Connection {
    socket: OwnedFd,
    /// Whether this user or root is there.
    is_owners: bool,
    state: State,
    deadline: Instant,
}

enum State {
    /// The client sends its request; what came so far, and with it may be the beginning of a body
    /// that is a secret.
    Asking(Zeroizing<Vec<u8>>),
    /// The response is on its way, this much of it has left.
    Answering { response: Vec<u8>, sent: usize },
    /// A worker has the request; the client is heard of only if it leaves.
    Waiting { response: Receiver<Response>, with_body: bool },
    /// All is sent. A close with bytes unread would reset the connection, and the client might
    /// lose the response: so many more bytes are read before that.
    Lingering { left: usize },
}

impl State {
    fn interest(&self) -> PollFlags {
        match self {
            Self::Asking(_) | Self::Lingering { .. } => PollFlags::IN,
            Self::Answering { .. } => PollFlags::OUT,
            Self::Waiting { .. } => PollFlags::empty(),
        }
    }
}

/// The connection is done with, well or badly.
struct Done;

impl Connection {
    fn advance(
        &mut self,
        buffer: &mut [u8],
        opening: &Opening,
        handler: &impl Fn(&Request<'_>) -> Answer,
        workers: &Workers,
    ) -> Result<(), Done> {
        match &mut self.state {
            State::Asking(head) => {
                let count = receive(&self.socket, buffer)?;
                head.extend_from_slice(&buffer[..count]);
                buffer[..count].zeroize();
                let Some(answered) = answer(head, opening, self.is_owners, handler) else {
                    return Ok(());
                };
                let (with_body, body) = (answered.with_body, answered.body);
                let (work, timeout): (Work, _) = match (answered.answer, body) {
                    (Answer::Later(work), _) => (work, WORK_TIMEOUT),
                    (Answer::WithBody(work), Some(body)) => {
                        let socket = fcntl_dupfd_cloexec(&self.socket, 0).map_err(|_| Done)?;
                        let came = &head[body.head_len.min(head.len())..];
                        let body = Body::new(socket, came, body.framing, body.is_awaited);
                        (Box::new(|| work(body)), BODY_TIMEOUT + WORK_TIMEOUT)
                    }
                    (Answer::WithBody(_), None) => return Err(Done),
                    (Answer::Now(response), _) => return self.answer(response, with_body),
                };
                match workers.start(work) {
                    Ok(response) => {
                        self.deadline = Instant::now() + timeout;
                        self.state = State::Waiting { response, with_body };
                        Ok(())
                    }
                    Err(refusal) => self.answer(refusal, with_body),
                }
            }
            State::Answering { .. } => self.send(),
            State::Waiting { .. } => Ok(()),
            State::Lingering { left } => {
                let count = receive(&self.socket, buffer)?;
                // It may be the body of a request that was rejected at once.
                buffer[..count].zeroize();
                *left = left.checked_sub(count).ok_or(Done)?;
                Ok(())
            }
        }
    }

    /// Takes the response of a worker, if it is this one's that is there.
    fn collect(&mut self) -> Result<(), Done> {
        let State::Waiting { response, with_body } = &self.state else { return Ok(()) };
        let with_body = *with_body;
        match response.try_recv() {
            Ok(response) => self.answer(response, with_body),
            Err(TryRecvError::Empty) => Ok(()),
            // It panicked, which its thread has reported.
            Err(TryRecvError::Disconnected) => {
                let status = Status::InternalError;
                self.answer(Response::text(status, status.line()), with_body)
            }
        }
    }

    fn answer(&mut self, response: Response, with_body: bool) -> Result<(), Done> {
        self.deadline = Instant::now() + RESPONSE_TIMEOUT;
        self.state = State::Answering { response: response.encode(with_body), sent: 0 };
        self.send()
    }

    fn send(&mut self) -> Result<(), Done> {
        let State::Answering { response, sent } = &mut self.state else { return Ok(()) };
        match send(&self.socket, &response[*sent..], SendFlags::NOSIGNAL) {
            Ok(count) => *sent += count,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return Err(Done),
        }
        if *sent == response.len() {
            shutdown(&self.socket, Shutdown::Write).map_err(|_| Done)?;
            self.deadline = Instant::now() + LINGER_TIMEOUT;
            self.state = State::Lingering { left: LINGER_BYTES_MAX };
        }
        Ok(())
    }
}

/// How many bytes arrived; the end of the stream is the end of the connection.
fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<usize, Done> {
    match recv(socket, &mut *buffer, RecvFlags::empty()) {
        Ok((0, _)) => Err(Done),
        Ok((count, _)) => Ok(count),
        Err(Errno::AGAIN | Errno::INTR) => Ok(0),
        Err(_) => Err(Done),
    }
}

/// What becomes of a request.
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// What is to come of the request, if the answer waits for that.
    pub body: Option<Awaited>,
    /// Whether the client wants the body of the answer.
    pub with_body: bool,
}

/// The body of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// How its end is told.
    pub framing: Framing,
    /// Bytes before it.
    pub head_len: usize,
    /// Whether the client waits to hear that it may send it.
    pub is_awaited: bool,
}

/// The answer to what came so far; `None` as long as that is incomplete. A client gets nothing but
/// this, so it is what is fuzzed.
pub fn answer(
    received: &[u8],
    opening: &Opening,
    is_owners: bool,
    handler: &impl Fn(&Request<'_>) -> Answer,
) -> Option<Answered> {
    let refused = |status, words: &dyn std::fmt::Display, with_body| {
        let answer = Answer::Now(Response::text(status, words));
        Some(Answered { answer, body: None, with_body })
    };
    let (proxy_header, head, hosts) = match opening {
        Opening::ProxyHeader => match proxy_header::Facts::decode(received) {
            Ok(None) => return None,
            Ok(Some((facts, len))) => (Some(facts), &received[len..], None),
            Err(error) => return refused(Status::BadRequest, &error, true),
        },
        Opening::Order => (None, received, None),
        Opening::Request(hosts) => (None, received, hosts.as_ref()),
    };
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let method = match parsed.parse(head) {
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Err(Status::HeadTooLarge)
        }
        Err(_) => Err(Status::BadRequest),
        Ok(httparse::Status::Complete(head_len)) => {
            method(parsed.method, opening).map(|method| (method, head_len))
        }
    };
    let (method, head_len) = match method {
        Ok(known) => known,
        Err(status) => return refused(status, &status.line(), true),
    };
    let with_body = parsed.method != Some("HEAD");
    let judged = hosts.map(|hosts| hosts.judge(parsed.version.unwrap_or(1), parsed.headers));
    if let Some(Err((status, words))) = judged {
        return refused(status, &words, with_body);
    }
    let target = parsed.path.unwrap_or("/");
    let (path, query) =
        target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let header = |name: &str| {
        let found = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    let accept = header("accept");
    let request = Request { method, path, query, accept, proxy_header, is_owners };
    // The thread has reported the panic. It goes on with the other connections.
    let answer = catch_unwind(AssertUnwindSafe(|| handler(&request))).unwrap_or_else(|_| {
        let status = Status::InternalError;
        Answer::Now(Response::text(status, status.line()))
    });
    if !matches!(answer, Answer::WithBody(_)) {
        return Some(Answered { answer, body: None, with_body });
    }
    match Framing::of(parsed.headers) {
        Ok(framing) => {
            let is_awaited =
                header("expect").is_some_and(|text| text.eq_ignore_ascii_case("100-continue"));
            let body = Some(Awaited { framing, head_len, is_awaited });
            Some(Answered { answer, body, with_body })
        }
        Err((status, words)) => refused(status, &words, with_body),
    }
}

/// What a request is, if it may be that.
fn method(name: Option<&str>, opening: &Opening) -> Result<Method, Status> {
    match (name, opening) {
        (Some("GET" | "HEAD"), _) => Ok(Method::Get),
        (Some("DELETE"), Opening::Order) => Ok(Method::Delete),
        (Some("POST"), Opening::Order) => Ok(Method::Post),
        (Some("PUT"), Opening::Order) => Ok(Method::Put),
        _ => Err(Status::MethodNotAllowed),
    }
}

/// Open connections. Beyond it the oldest one that is still asking is cut; if all are being
/// answered, new ones wait in the listener's queue.
pub const CONNECTIONS_MAX: usize = 256;
/// Bytes of a request line with its headers.
pub const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Headers of a request.
pub const HEADERS_MAX: usize = 64;
/// From accept to the end of the request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// From the end of the request until the response has left.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// From the end of the request until a worker's response is there: a reload may look many names up,
/// and read many certificates.
pub const WORK_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// From the end of the response until the client closes too.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that a client may send in vain behind its request, such as a body.
const LINGER_BYTES_MAX: usize = 64 * 1024;
/// Connections accepted before those that are open are looked at again.
const ACCEPTS_PER_TURN: usize = 32;
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Room for a request: it never moves, and leaves no copy of what came behind it.
const ASKING_BYTES: usize = HEAD_BYTES_MAX + READ_BYTES;
/// Bytes taken off a socket at once.
const READ_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests;
