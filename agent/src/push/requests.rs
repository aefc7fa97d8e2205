//! Requests of clients that are known: [`Asker`] answers each out of the store.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{ALLOW, EXPECT, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use rustls::crypto::CryptoProvider;
use sealane_store::{KeyedStore, Store};
use sealane_store_requests as requests;
use sealane_store_requests::{NotStored, Refused, STREAM_BYTES_MAX, Stored, StreamEnd, Upload};
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{error, info};

use crate::examination::examine_apart;
use crate::settings::PushVerb;
use crate::trust::{TrustError, our_provider};

use super::answer::{Answer, answer, text};
use super::complaints::Complaints;
use super::quotas::Quotas;
use super::roles::Rights;
use super::streams::{StreamPlace, Streams};

/// The store, as all clients share it.
pub(super) struct Keeper {
    provider: CryptoProvider,
    quotas: Quotas,
    /// What is said of requests that are refused.
    refusals: Complaints,
    store: Arc<KeyedStore>,
    streams: Streams,
}

impl Keeper {
    pub(super) fn new(store: Arc<KeyedStore>) -> Result<Self, TrustError> {
        let (provider, quotas) = (our_provider()?, Quotas::default());
        let (refusals, streams) = (Complaints::default(), Streams::default());
        Ok(Self { provider, quotas, refusals, store, streams })
    }

    /// What came of a request.
    fn told(&self, status: StatusCode, came: &impl Serialize) -> Answer {
        /// The answer that goes over the wire.
        #[derive(Serialize)]
        struct Written<'w, T> {
            store: String,
            #[serde(flatten)]
            came: &'w T,
        }
        let store = self.store.store().path().to_string_lossy().into_owned();
        match serde_json::to_vec_pretty(&Written { store, came }) {
            Ok(mut body) => {
                body.push(b'\n');
                answer(status, "application/json", body)
            }
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    /// Lets nothing be read from a file that somebody else than Sealane has changed, or written to
    /// it, unless another process finds it in order: a damaged one may end whoever maps it.
    fn examined(&self) -> Result<(), String> {
        let store: &Store = self.store.store();
        match store.look() {
            Ok(Some(look)) if look.is_ours && look.is_open_file && !store.is_withdrawn() => Ok(()),
            // A process of Sealane's changes it, which looked at it before.
            Ok(None) => Ok(()),
            Ok(Some(look)) => {
                let examined = examine_apart(store.path());
                // Others of this process read from it too.
                if look.is_open_file {
                    store.withdraw(examined.is_err());
                }
                examined?;
                // Where that cannot be said, whoever serves examines it once more.
                let _ = store.vouch(look.stamp);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Who asks, and for how long.
pub(super) struct Asker {
    pub(super) keeper: Arc<Keeper>,
    pub(super) peer: SocketAddr,
    pub(super) rights: Rights,
    /// Until when it may take to ask, and to take its answer.
    pub(super) until: watch::Sender<Instant>,
}

impl Asker {
    /// The answer to a request.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Answer, Infallible> {
        let answer = match self.asked(&request) {
            Ok((_, requests::Request::Put)) => {
                self.allow(STREAM_TIMEOUT + ANSWER_TIMEOUT);
                self.take(request).await
            }
            Ok((verb, asked)) => {
                let asker = Arc::clone(&self);
                let done = spawn_blocking(move || asker.carry_out(verb, &asked)).await;
                done.unwrap_or_else(|error| broken(&error))
            }
            Err(refusal) => {
                let is_patient = request.headers().contains_key(EXPECT);
                // It sends nothing before it is told to, and reads this instead.
                if !is_patient {
                    drain(request.into_body()).await;
                }
                *refusal
            }
        };
        self.allow(ANSWER_TIMEOUT);
        Ok(answer)
    }

    fn allow(&self, time: Duration) {
        self.until.send_replace(Instant::now() + time);
    }

    fn asked(&self, request: &Request<Incoming>) -> Result<Asked, Box<Answer>> {
        if request.uri().path() != PATH {
            let words = format!("there is only {PATH}");
            return Err(text(StatusCode::NOT_FOUND, words).into());
        }
        let verb = match *request.method() {
            Method::DELETE => PushVerb::Delete,
            Method::GET => PushVerb::Get,
            Method::PUT => PushVerb::Put,
            _ => return Err(refused(&Refused::Method).into()),
        };
        if let Some(words) = self.rights.refuse(verb) {
            self.complain(&words);
            return Err(text(StatusCode::FORBIDDEN, words).into());
        }
        let bad = |words| Box::new(text(StatusCode::BAD_REQUEST, words));
        let pairs = requests::query::pairs(request.uri().query().unwrap_or_default());
        let method = request.method().as_str();
        let asked = requests::Request::parse(method, &pairs.map_err(bad)?);
        if request.body().size_hint().lower() > STREAM_BYTES_MAX {
            let words = NotStored::TooLong.to_string();
            return Err(text(StatusCode::PAYLOAD_TOO_LARGE, words).into());
        }
        Ok((verb, asked.map_err(|error| Box::new(refused(&error)))?))
    }

    fn carry_out(&self, verb: PushVerb, asked: &requests::Request) -> Answer {
        let keeper = &self.keeper;
        if let Err(words) = keeper.examined() {
            return text(StatusCode::INTERNAL_SERVER_ERROR, words);
        }
        let may = |name: &str| self.rights.may(verb, name);
        match asked.carry_out(&keeper.store, &may, now_s()) {
            Ok(requests::Answer::ReadBack(read)) => {
                let is_one = matches!(asked, requests::Request::Show { .. });
                let is_nothing = is_one && read.certificates.is_empty();
                keeper.told(found(!is_nothing), &read)
            }
            Ok(requests::Answer::Removed(removed)) => {
                let (names, certificates) = (removed.removed_names, removed.removed_certificates);
                let what = format!("removed {names} names, {certificates} certificates");
                if names > 0 {
                    keeper.quotas.forget(self.rights.role());
                    self.say(&what);
                }
                keeper.told(found(names > 0), &removed)
            }
            Err(Refused::Forbidden(name)) => {
                let words = self.rights.refuse_name(verb, &name);
                self.complain(&words);
                text(StatusCode::FORBIDDEN, words)
            }
            Err(error) => refused(&error),
        }
    }

    /// Takes a stream, and stores it on another thread while it comes.
    async fn take(self: &Arc<Self>, request: Request<Incoming>) -> Answer {
        let place = match self.keeper.streams.place_for(self.rights.role()).await {
            Ok(place) => place,
            Err(refusal) => {
                if !request.headers().contains_key(EXPECT) {
                    drain(request.into_body()).await;
                }
                return *refusal;
            }
        };
        let (sender, pieces) = mpsc::channel(PIECES_MAX);
        let asker = Arc::clone(self);
        let stored = spawn_blocking(move || asker.store(pieces, place));
        let mut body = request.into_body();
        let until = Instant::now() + STREAM_TIMEOUT;
        loop {
            let piece = next_piece(&mut body, until).await;
            let is_last = !matches!(piece, Piece::Bytes(_));
            // Without a receiver the rest is not wanted.
            if sender.send(piece).await.is_err() {
                drain(body).await;
                break;
            }
            if is_last {
                break;
            }
        }
        drop(sender);
        stored.await.unwrap_or_else(|error| broken(&error))
    }

    fn store(&self, mut pieces: mpsc::Receiver<Piece>, place: StreamPlace) -> Answer {
        let keeper = &self.keeper;
        if let Err(words) = keeper.examined() {
            return text(StatusCode::INTERNAL_SERVER_ERROR, words);
        }
        let forbidden = Mutex::new(None);
        let may = |name: &str| {
            let is_allowed = self.rights.may(PushVerb::Put, name);
            if !is_allowed {
                let mut first = forbidden.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert_with(|| name.to_owned());
            }
            is_allowed
        };
        let role = self.rights.role();
        let source = format!("pushed by {role:?}");
        let max = self.rights.certificates_max();
        let mut counted = match keeper.quotas.take(role, &source, max, keeper.store.store()) {
            Ok(counted) => counted,
            Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        let upload = Upload::new(&keeper.store, &source, &keeper.provider, &may);
        let mut upload = upload.within(&mut counted.quota);
        let end = self.pump(&mut upload, &mut pieces);
        let mut status = end.as_ref().err().map_or(StatusCode::OK, |(status, _)| *status);
        let mut came = upload.answer(end.map_err(|(_, end)| end));
        let forbidden = forbidden.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = forbidden {
            came.errors.push(self.rights.refuse_name(PushVerb::Put, &name));
            status = StatusCode::FORBIDDEN;
        }
        keeper.quotas.put_back(role, counted);
        self.say_stored(&came);
        // Whoever has the answer may send the next one.
        drop(place);
        keeper.told(status, &came)
    }

    fn pump(
        &self,
        upload: &mut Upload<'_>,
        pieces: &mut mpsc::Receiver<Piece>,
    ) -> Result<(), (StatusCode, StreamEnd)> {
        let cut = |status, why: &str| Err((status, StreamEnd::Cut(why.to_owned())));
        loop {
            let piece = pieces.blocking_recv();
            // It may be an hour since it was examined, or milliseconds since somebody changed it.
            self.keeper.examined().or_else(|why| cut(StatusCode::INTERNAL_SERVER_ERROR, &why))?;
            let (stored, is_end) = match piece {
                Some(Piece::Bytes(bytes)) => (fill(upload, &bytes), false),
                Some(Piece::End) => (upload.end(now_s()), true),
                Some(Piece::Cut(status, why)) => return cut(status, &why),
                None => return cut(StatusCode::BAD_REQUEST, "the client went away"),
            };
            stored.map_err(|error| (status_of(&error), StreamEnd::NotStored(error)))?;
            if is_end {
                return Ok(());
            }
        }
    }

    fn say_stored(&self, came: &Stored) {
        let Stored { added, replaced, unchanged, errors, .. } = came;
        let what = format!("stored {added} new, {replaced} for others, {unchanged} as before");
        match &errors[..] {
            [] => self.say(&what),
            [.., last] => self.complain(&format!("{what}, and no more: {last}")),
        }
    }

    fn say(&self, what: &str) {
        info!("push: {} ({}): {what}", self.rights, self.peer);
    }

    /// Says what was refused, which a client may ask for as often as it likes.
    fn complain(&self, what: &str) {
        self.keeper.refusals.say(&format!("{} ({}): {what}", self.rights, self.peer));
    }
}

/// A part of a stream, or its end.
enum Piece {
    Bytes(Bytes),
    Cut(StatusCode, String),
    End,
}

async fn next_piece(body: &mut Incoming, until: Instant) -> Piece {
    loop {
        let limit = (Instant::now() + IDLE_TIMEOUT).min(until);
        return match timeout_at(limit, body.frame()).await {
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) => Piece::Bytes(bytes),
                // Trailers say nothing here.
                Err(_) => continue,
            },
            Ok(Some(Err(error))) => {
                Piece::Cut(StatusCode::BAD_REQUEST, format!("the stream broke off: {error}"))
            }
            Ok(None) => Piece::End,
            Err(_) => {
                let (idle_s, all_s) = (IDLE_TIMEOUT.as_secs(), STREAM_TIMEOUT.as_secs());
                let what = format!("nothing came for {idle_s} s, or not all within {all_s} s");
                Piece::Cut(StatusCode::REQUEST_TIMEOUT, what)
            }
        };
    }
}

/// Reads what a client still sends, so that it comes to read its answer; not for long.
async fn drain(mut body: Incoming) {
    let read_all = async { while let Some(Ok(_)) = body.frame().await {} };
    // Whoever sends on meets a closed connection.
    let _ = timeout(DRAIN_TIMEOUT, read_all).await;
}

fn fill(upload: &mut Upload<'_>, mut bytes: &[u8]) -> Result<(), NotStored> {
    while !bytes.is_empty() {
        let space = upload.space();
        let count = space.len().min(bytes.len());
        let (next, rest) = bytes.split_at(count);
        space[..count].copy_from_slice(next);
        bytes = rest;
        upload.filled(count, now_s())?;
    }
    Ok(())
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn found(is_any: bool) -> StatusCode {
    if is_any { StatusCode::OK } else { StatusCode::NOT_FOUND }
}

fn status_of(refused: &NotStored) -> StatusCode {
    match refused {
        NotStored::Mistakes(_) | NotStored::Nothing => StatusCode::UNPROCESSABLE_ENTITY,
        NotStored::Quota(_) => StatusCode::FORBIDDEN,
        NotStored::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        NotStored::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
    }
}

fn refused(refused: &Refused) -> Answer {
    let status = match refused {
        Refused::Forbidden(_) => StatusCode::FORBIDDEN,
        Refused::Method => StatusCode::METHOD_NOT_ALLOWED,
        Refused::Parameter(_) => StatusCode::BAD_REQUEST,
        Refused::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut answer = text(status, refused.to_string());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("DELETE, GET, PUT"));
    }
    answer
}

/// The answer where this program is at fault.
fn broken(error: &JoinError) -> Answer {
    error!("push: a request ended by a fault of the agent's: {error}");
    text(StatusCode::INTERNAL_SERVER_ERROR, "a fault of the agent's; its log has more".into())
}

/// What is asked for: whether that is allowed at all, and what it is.
type Asked = (PushVerb, requests::Request);

/// How long a client may take over its answer, or over anything but a stream.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the rest of a request is read that nobody wants.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a stream may stand still.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The one path that there is.
const PATH: &str = "/certificates";
/// Parts of a stream that are in memory.
const PIECES_MAX: usize = 2;
/// How long a stream may take.
const STREAM_TIMEOUT: Duration = Duration::from_secs(3_600);
