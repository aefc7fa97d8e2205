//! A small HTTP/1.1 server for pages of our own: GET and HEAD, one response per connection.
//!
//! [`serve`] starts one thread that polls the listener and at most [`CONNECTIONS_MAX`] connections,
//! so that a silent client holds up nobody. It is for admins and demos, not for a lane's path.

mod host;
mod message;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, Shutdown, SocketFlags, accept_with, recv, send, shutdown};

use crate::proxy_header;

pub use host::Hosts;
pub use message::{ContentType, Request, Response, Status};

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
    serve_within(REQUEST_TIMEOUT, listener.into(), name, Opening::Request(None), handler)
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
    serve_within(REQUEST_TIMEOUT, listener.into(), name, Opening::Request(Some(hosts)), handler)
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
    serve_within(REQUEST_TIMEOUT, listener.into(), name, Opening::ProxyHeader, handler)
}

fn serve_within(
    request_timeout: Duration,
    listener: OwnedFd,
    name: &str,
    opening: Opening,
    handler: impl Fn(&Request<'_>) -> Response + Send + 'static,
) -> io::Result<Server> {
    ioctl_fionbio(&listener, true)?;
    let (wake, woken) = UnixStream::pair()?;
    let mut turn = Turn {
        listener,
        woken,
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
        // A panic of the handler has been reported by the thread itself.
        let _ = thread.join();
    }
}

/// All that the thread works on.
struct Turn<H> {
    listener: OwnedFd,
    woken: UnixStream,
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
    /// A PROXY protocol header of version 2, and then a request.
    ProxyHeader,
    /// A request, whose `Host` is judged if there are some.
    Request(Option<Hosts>),
}

/// The server was told to stop, or its poll failed.
struct Stopped;

impl<H: Fn(&Request<'_>) -> Response> Turn<H> {
    fn run(&mut self) -> Result<(), Stopped> {
        let ready = self.wait()?;
        let Self { opening, handler, connections, buffer, .. } = self;
        let mut ready_connections = ready[2..].iter();
        connections.retain_mut(|connection| {
            let events = ready_connections.next().copied().unwrap_or(PollFlags::empty());
            events.is_empty() || connection.advance(buffer, opening, handler).is_ok()
        });
        let now = Instant::now();
        connections.retain(|connection| now < connection.deadline);
        if !ready[1].is_empty() {
            self.accept(now);
        }
        Ok(())
    }

    /// What happened to the wake-up, the listener and each connection, in this order.
    fn wait(&self) -> Result<Vec<PollFlags>, Stopped> {
        let now = Instant::now();
        let accepting = self.accept_again <= now && self.has_room();
        let interest = if accepting { PollFlags::IN } else { PollFlags::empty() };
        let mut polled =
            vec![PollFd::new(&self.woken, PollFlags::IN), PollFd::new(&self.listener, interest)];
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
                    let state = State::Asking(Vec::new());
                    self.connections.push(Connection { socket, state, deadline });
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

struct Connection {
    socket: OwnedFd,
    state: State,
    deadline: Instant,
}

enum State {
    /// The client sends its request; what came so far.
    Asking(Vec<u8>),
    /// The response is on its way, this much of it has left.
    Answering { response: Vec<u8>, sent: usize },
    /// All is sent. A close with bytes unread would reset the connection, and the client might
    /// lose the response: so many more bytes are read before that.
    Lingering { left: usize },
}

impl State {
    fn interest(&self) -> PollFlags {
        match self {
            Self::Asking(_) | Self::Lingering { .. } => PollFlags::IN,
            Self::Answering { .. } => PollFlags::OUT,
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
        handler: &impl Fn(&Request<'_>) -> Response,
    ) -> Result<(), Done> {
        match &mut self.state {
            State::Asking(head) => {
                let count = receive(&self.socket, buffer)?;
                head.extend_from_slice(&buffer[..count]);
                if let Some(response) = answer(head, opening, handler) {
                    self.deadline = Instant::now() + RESPONSE_TIMEOUT;
                    self.state = State::Answering { response, sent: 0 };
                    return self.send();
                }
                Ok(())
            }
            State::Answering { .. } => self.send(),
            State::Lingering { left } => {
                let count = receive(&self.socket, buffer)?;
                *left = left.checked_sub(count).ok_or(Done)?;
                Ok(())
            }
        }
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

/// The response to what came so far; `None` as long as that is incomplete. A client gets nothing
/// but this, so it is what is fuzzed.
pub fn answer(
    received: &[u8],
    opening: &Opening,
    handler: &impl Fn(&Request<'_>) -> Response,
) -> Option<Vec<u8>> {
    let (proxy_header, head, hosts) = match opening {
        Opening::ProxyHeader => match proxy_header::Facts::decode(received) {
            Ok(None) => return None,
            Ok(Some((facts, len))) => (Some(facts), &received[len..], None),
            Err(error) => return Some(Response::text(Status::BadRequest, error).encode(true)),
        },
        Opening::Request(hosts) => (None, received, hosts.as_ref()),
    };
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut headers);
    let refusal = match parsed.parse(head) {
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Some(Status::HeadTooLarge)
        }
        Err(_) => Some(Status::BadRequest),
        Ok(httparse::Status::Complete(_)) => match parsed.method {
            Some("GET" | "HEAD") => None,
            _ => Some(Status::MethodNotAllowed),
        },
    };
    if let Some(status) = refusal {
        return Some(Response::text(status, status.line()).encode(true));
    }
    let judged = hosts.map(|hosts| hosts.judge(parsed.version.unwrap_or(1), parsed.headers));
    if let Some(Err((status, words))) = judged {
        return Some(Response::text(status, words).encode(parsed.method == Some("GET")));
    }
    let target = parsed.path.unwrap_or("/");
    let (path, query) =
        target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let accept = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case("accept"));
    let accept = accept.and_then(|header| std::str::from_utf8(header.value).ok());
    let response = handler(&Request { path, query, accept, proxy_header });
    Some(response.encode(parsed.method == Some("GET")))
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
/// From the end of the response until the client closes too.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes that a client may send in vain behind its request, such as a body.
const LINGER_BYTES_MAX: usize = 64 * 1024;
/// Connections accepted before those that are open are looked at again.
const ACCEPTS_PER_TURN: usize = 32;
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Bytes taken off a socket at once.
const READ_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests;
