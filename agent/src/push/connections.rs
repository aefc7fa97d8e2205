//! Connections of clients, each bounded in time, and all of them in number: [`run`].

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::CertificateError;
use sealane_engine::client_certificates::Distrust;
use sealane_engine::session::SessionError;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_rustls::server::TlsStream;
use tracing::error;

use super::complaints::Complaints;
use super::handshakes::Handshakes;
use super::requests::{ANSWER_TIMEOUT, Asker, Keeper};
use super::roles::{Client, Rights};
use super::streams::STREAMS_MAX;
use super::{Current, Shared};

/// Serves clients on this thread until it is to close, and those who are there have their answers.
pub(super) fn run(
    listener: StdListener,
    shared: &Shared,
    keeper: &Arc<Keeper>,
    closed: watch::Receiver<bool>,
) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(DISK_THREADS_MAX)
        .thread_name("push-store")
        .build();
    let served = runtime.and_then(|runtime| {
        let _within = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let handshakes = Arc::new(Handshakes::start()?);
        runtime.block_on(serve_all(&listener, &handshakes, shared, keeper, closed));
        Ok(())
    });
    if let Err(error) = served {
        error!("push: takes no clients: {error}; restart the agent");
    }
}

async fn serve_all(
    listener: &TcpListener,
    handshakes: &Arc<Handshakes>,
    shared: &Shared,
    keeper: &Arc<Keeper>,
    mut closed: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let mut waiting = Waiting::default();
    let complaints = Arc::new(Complaints::default());
    loop {
        tokio::select! {
            _ = closed.changed() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    let current = shared.read().unwrap_or_else(PoisonError::into_inner);
                    let connection = Connection {
                        complaints: Arc::clone(&complaints),
                        current: Arc::clone(&current),
                        handshakes: Arc::clone(handshakes),
                        is_in: Arc::default(),
                        keeper: Arc::clone(keeper),
                        peer,
                    };
                    let is_in = Arc::clone(&connection.is_in);
                    waiting.make_room();
                    let task = connections.spawn(connection.serve(socket));
                    waiting.0.push_back((task, is_in));
                }
                Err(error) => {
                    complaints.say(&format!("no more clients for a moment: {error}"));
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    waiting.end_all();
    while connections.join_next().await.is_some() {}
}

/// Connections of whoever has not said who it is, or has no room yet; the oldest in front.
#[derive(Default)]
struct Waiting(VecDeque<(AbortHandle, Arc<AtomicBool>)>);

impl Waiting {
    /// Ends the oldest if there are too many: a client that is quick always gets in.
    fn make_room(&mut self) {
        self.0.retain(|(task, is_in)| !task.is_finished() && !is_in.load(Ordering::Relaxed));
        while self.0.len() >= WAITING_MAX
            && let Some((task, _)) = self.0.pop_front()
        {
            task.abort();
        }
    }

    fn end_all(&mut self) {
        for (task, is_in) in self.0.drain(..) {
            if !is_in.load(Ordering::Relaxed) {
                task.abort();
            }
        }
    }
}

/// A connection of a client.
struct Connection {
    complaints: Arc<Complaints>,
    current: Arc<Current>,
    handshakes: Arc<Handshakes>,
    /// Whether the client is known, and has room.
    is_in: Arc<AtomicBool>,
    keeper: Arc<Keeper>,
    peer: SocketAddr,
}

impl Connection {
    async fn serve(self, socket: TcpStream) {
        let peer = self.peer;
        let handshake = self.handshakes.accept(Arc::clone(&self.current.config), socket);
        let stream = match timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                let remedy = "a client shows a certificate of one of client_roots that is in \
                              date, as are revocation_lists";
                return self.complaints.say(&format!("{peer}: {}; {remedy}", reason(&error)));
            }
            Err(_) => {
                let limit_s = HANDSHAKE_TIMEOUT.as_secs();
                return self.complaints.say(&format!("{peer}: no handshake within {limit_s} s"));
            }
        };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let (rights, room) = self.current.roles.of(Client::of(chain));
        let Ok(Ok(_place)) = timeout(ROOM_TIMEOUT, room.acquire_owned()).await else {
            let what = "has too many connections at once; wait for their answers";
            return self.complaints.say(&format!("{rights} ({peer}) {what}"));
        };
        self.is_in.store(true, Ordering::Relaxed);
        self.answer(stream, rights).await;
    }

    /// Answers one request: with one more to a connection, a client could keep its place.
    async fn answer(self, stream: TlsStream<TcpStream>, rights: Rights) {
        let (peer, name) = (self.peer, rights.to_string());
        let (until, mut limit) = watch::channel(Instant::now() + ANSWER_TIMEOUT);
        let asker = Arc::new(Asker { keeper: self.keeper, peer, rights, until });
        let service = service_fn(move |request| {
            let asker = Arc::clone(&asker);
            async move { asker.answer(request).await }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .keep_alive(false)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        loop {
            let until = *limit.borrow_and_update();
            tokio::select! {
                ended = &mut connection => {
                    if let Err(error) = ended {
                        self.complaints.say(&format!("{name} ({peer}): {error}"));
                    }
                    return;
                }
                () = sleep_until(until) => {
                    let what = "took too long to ask, or to take its answer";
                    return self.complaints.say(&format!("{name} ({peer}) {what}"));
                }
                Ok(()) = limit.changed() => {}
            }
        }
    }
}

/// Why a handshake failed.
fn reason(error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) = tls {
        return other.to_string();
    }
    let Some(tls) = tls.map(|tls| SessionError::Tls(tls.clone())) else { return error.to_string() };
    Distrust::of_handshake(&tls).map_or_else(|| tls.to_string(), |distrust| distrust.to_string())
}

/// After a connection could not be accepted: the process is short of something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What is held of a connection's bytes in each direction: a line and headers have to fit.
const BUFFER_BYTES: usize = 64 << 10;
/// Threads that wait for the disk: one for each stream, and as many for other requests.
const DISK_THREADS_MAX: usize = 2 * STREAMS_MAX;
/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers of a request.
const HEADERS_MAX: usize = 64;
/// How long the head of a request may take.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client waits for room among its own connections.
const ROOM_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections without room, or of whoever has not said who it is.
const WAITING_MAX: usize = 256;
