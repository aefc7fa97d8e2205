//! `PUT /certificates`: a stream of certificates into a store, one stream at a time for each store.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use sealane_engine::certificates::StoreId;
use sealane_listeners::StoreSummary;
use sealane_listeners::stores::checking_provider;
use sealane_operator::timestamp::unix_now;
use sealane_store::Store;
use sealane_store_requests::{NotStored, StreamEnd, Upload};
use sealane_traffic::http::{Body, Response, Status};
use serde::Serialize;

use super::{EVERYTHING, Orders, Serving, answered, examined};

/// The uploads of a process that are under way.
#[derive(Clone, Default)]
pub struct Uploads(Arc<Mutex<Vec<Running>>>);

/// An upload, as it is told to whoever wants to begin another.
struct Running {
    began: Instant,
    /// The process that sends it, if that is known.
    sender: Option<i32>,
    store: StoreId,
    /// Certificates that were stored.
    stored: Arc<AtomicU64>,
}

/// The place of an upload, for as long as that runs.
struct Place {
    all: Uploads,
    store: StoreId,
    stored: Arc<AtomicU64>,
}

impl Uploads {
    /// Lets an upload into `store` begin.
    ///
    /// # Errors
    /// What is answered where it may not.
    fn begin(&self, store: &Store, sender: Option<i32>) -> Result<Place, Response> {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = running.iter().find(|other| other.store == store.id()) {
            let who = match other.sender {
                Some(sender) => format!("process {sender}"),
                None => "a process that the kernel does not name".into(),
            };
            let words = format!(
                "{}: {who} sends certificates since {} s, {} so far; wait for it, and send these \
                 again",
                store.path().display(),
                other.began.elapsed().as_secs(),
                other.stored.load(Ordering::Relaxed),
            );
            return Err(Response::text(Status::Conflict, words));
        }
        if running.len() >= UPLOADS_MAX {
            let words =
                format!("{UPLOADS_MAX} streams of certificates are on their way; try again");
            return Err(Response::text(Status::ServiceUnavailable, words));
        }
        let (store, stored) = (store.id(), Arc::default());
        let told = Arc::<AtomicU64>::clone(&stored);
        running.push(Running { began: Instant::now(), sender, store, stored: told });
        Ok(Place { all: self.clone(), store, stored })
    }
}

/// An upload that is under way, as it is told.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    /// Certificates that were stored so far.
    certificates: u64,
    /// The process that sends them, if the kernel tells.
    sender: Option<i32>,
    /// How long it takes already.
    since_s: u64,
}

impl Uploads {
    /// The one that has `store`.
    pub(super) fn told(&self, store: StoreId) -> Option<Told> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.iter().find(|one| one.store == store).map(|one| Told {
            certificates: one.stored.load(Ordering::Relaxed),
            sender: one.sender,
            since_s: one.began.elapsed().as_secs(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut running = self.all.0.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|other| other.store != self.store);
    }
}

/// Takes a stream, and answers what came of it.
pub(super) fn take(orders: &Orders, summary: &StoreSummary, mut body: Body) -> Response {
    let store = summary.certificates.store();
    let place = match orders.uploads.begin(store, body.sender()) {
        Ok(place) => place,
        Err(refusal) => return refusal,
    };
    let provider = match checking_provider() {
        Ok(provider) => provider.crypto,
        Err(error) => return Response::text(Status::InternalError, error),
    };
    if let Err(words) = examined(store) {
        return Response::text(Status::InternalError, words);
    }
    let mut upload = Upload::new(&summary.certificates, SOURCE, &provider, &EVERYTHING);
    let end = pump(&mut upload, store, &mut body, &place);
    let status = match &end {
        Ok(()) => Status::Ok,
        Err((status, _)) => *status,
    };
    let came = upload.answer(end.map_err(|(_, end)| end));
    // Whoever has the answer may send the next one.
    drop(place);
    answered(status, summary, &came, Serving::of(orders, summary))
}

fn pump(
    upload: &mut Upload<'_>,
    store: &Store,
    body: &mut Body,
    place: &Place,
) -> Result<(), (Status, StreamEnd)> {
    loop {
        let read = body.read(upload.space());
        let count = read.map_err(|error| (error.status(), StreamEnd::Cut(error.to_string())))?;
        // It may be an hour since it was examined, or milliseconds since somebody changed it.
        examined(store).map_err(|words| (Status::InternalError, StreamEnd::Cut(words)))?;
        let now_s = i64::try_from(unix_now().0).unwrap_or(i64::MAX);
        let stored = match count {
            0 => upload.end(now_s),
            _ => upload.filled(count, now_s),
        };
        place.stored.store(upload.tally().stored(), Ordering::Relaxed);
        stored.map_err(|refused| (status_of(&refused), StreamEnd::NotStored(refused)))?;
        if count == 0 {
            return Ok(());
        }
    }
}

fn status_of(refused: &NotStored) -> Status {
    match refused {
        NotStored::Mistakes(_) | NotStored::Nothing => Status::Unprocessable,
        NotStored::Quota(_) => Status::Forbidden,
        NotStored::Store(_) => Status::InternalError,
        NotStored::TooLong => Status::ContentTooLarge,
    }
}

/// Uploads at a time, of different stores; there are threads for as many other orders beside them.
const UPLOADS_MAX: usize = sealane_traffic::http::WORKERS_MAX / 2;
/// Where certificates come from, as it is remembered of each.
const SOURCE: &str = "admin socket";
