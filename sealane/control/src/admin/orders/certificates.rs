//! `/certificates`: what is in the stores that are served from is put there, shown and removed.
//!
//! What a request means is told by `sealane-store-requests`; here is which store it is about, and
//! what lanes make of it.

mod uploads;

use std::sync::Arc;

use sealane_engine::certificates::{CertificateDigest, CertificateStore as _, ServedFrom};
use sealane_listeners::StoreSummary;
use sealane_listeners::stores::examination;
use sealane_operator::timestamp::unix_now;
use sealane_store::{KeyedStore, Store};
use sealane_store_requests as requests;
use sealane_store_requests::{Refused, ShownCertificate, fingerprint, hex};
use sealane_traffic::http::{Answer, Method, Query, Request, Response, Status};
use serde::Serialize;

use crate::state::{Phase, SharedState};

use super::{Orders, json};

pub use uploads::Uploads;

/// The answer to a request of whoever may order.
pub(super) fn answer(request: &Request<'_>, orders: &Orders) -> Answer {
    let method = match request.method {
        Method::Delete => "DELETE",
        Method::Get => "GET",
        Method::Put => "PUT",
        Method::Post => {
            let status = Status::DeleteGetPutOnly;
            return Response::text(status, Refused::Method).into();
        }
    };
    let (orders, query) = (orders.clone(), Query::of(request));
    let asked = match Asked::of(method, &query) {
        Ok(asked) => asked,
        Err(words) => return Response::text(Status::BadRequest, words).into(),
    };
    match asked.request {
        requests::Request::Put => Answer::WithBody(Box::new(move |body| {
            let found = asked.store(&orders.state);
            found.map_or_else(|refusal| refusal, |store| uploads::take(&orders, &store, body))
        })),
        _ => Answer::Later(Box::new(move || {
            let found = asked.store(&orders.state);
            found.map_or_else(|refusal| refusal, |store| asked.carry_out(&orders, &store))
        })),
    }
}

/// What is asked, and of which store.
struct Asked {
    request: requests::Request,
    /// The store's folder, if it is named.
    store: Option<String>,
}

impl Asked {
    fn of(method: &str, query: &Query) -> Result<Self, String> {
        let mut pairs = query.pairs()?;
        let mut named = pairs.extract_if(.., |(name, _)| name == "store");
        let store = named.next().map(|(_, path)| path);
        if named.next().is_some() {
            return Err("store: one of them".into());
        }
        drop(named);
        let request =
            requests::Request::parse(method, &pairs).map_err(|refused| refused.to_string());
        Ok(Self { request: request?, store })
    }

    /// The store that is meant, as the first of its listeners has it.
    fn store(&self, state: &SharedState) -> Result<StoreSummary, Response> {
        let mut all: Vec<StoreSummary> = Vec::new();
        for listener in &state.lock().listeners {
            let is_new = |new: &&StoreSummary| all.iter().all(|known| !is_same(known, new));
            all.extend(listener.store.as_ref().filter(is_new).cloned());
        }
        let path = |store: &StoreSummary| store.path.display().to_string();
        let paths = || all.iter().map(path).collect::<Vec<_>>().join(", ");
        let refused = |status, words: String| Err(Response::text(status, words));
        match (&self.store, &all[..]) {
            (_, []) => refused(
                Status::NotFound,
                "no listener has certificates = [\"store:PATH\"]; add one, and reload".into(),
            ),
            (None, [store]) => Ok(store.clone()),
            (None, _) => {
                refused(Status::BadRequest, format!("say which store: ?store=PATH of {}", paths()))
            }
            (Some(named), _) => match all.iter().find(|store| path(store) == *named) {
                Some(store) => Ok(store.clone()),
                None => refused(
                    Status::NotFound,
                    format!("store: none of this configuration is {named}; there is {}", paths()),
                ),
            },
        }
    }

    fn carry_out(&self, orders: &Orders, store: &StoreSummary) -> Response {
        if let requests::Request::Remove { .. } = self.request
            && let Err(words) = examined(store.certificates.store())
        {
            return Response::text(Status::InternalError, words);
        }
        let now_s = i64::try_from(unix_now().0).unwrap_or(i64::MAX);
        match self.request.carry_out(&store.certificates, &EVERYTHING, now_s) {
            Ok(requests::Answer::ReadBack(read)) => {
                let status = match self.request {
                    requests::Request::Show { .. } if read.certificates.is_empty() => {
                        Status::NotFound
                    }
                    _ => Status::Ok,
                };
                let serving = match &self.request {
                    requests::Request::Show { name } => {
                        Serving::of_name(orders, store, name, &read.certificates)
                    }
                    _ => Serving::of(orders, store),
                };
                answered(status, store, &read, serving)
            }
            Ok(requests::Answer::Removed(removed)) => {
                let is_any = removed.removed_names > 0;
                let status = if is_any { Status::Ok } else { Status::NotFound };
                answered(status, store, &removed, Serving::of(orders, store))
            }
            Err(refused) => Response::text(status_of(&refused), refused),
        }
    }
}

/// Lets nothing be written to a file that somebody else than Sealane has changed, unless another
/// process finds it in order: a damaged one may end the process that writes.
fn examined(store: &Store) -> Result<(), String> {
    match store.look() {
        Ok(Some(look)) if look.is_ours && look.is_open_file => Ok(()),
        // A process of Sealane's changes it, which looked at it before.
        Ok(None) => Ok(()),
        Ok(Some(look)) => {
            examination::examine_apart(store.path()).map_err(|error| error.to_string())?;
            // Where that cannot be said, the control plane examines it once more.
            let _ = store.vouch(look.stamp);
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn status_of(refused: &Refused) -> Status {
    match refused {
        Refused::Forbidden(_) => Status::Forbidden,
        Refused::Method => Status::DeleteGetPutOnly,
        Refused::Parameter(_) => Status::BadRequest,
        Refused::Store(_) => Status::InternalError,
    }
}

fn is_same(one: &StoreSummary, other: &StoreSummary) -> bool {
    Arc::ptr_eq(one.certificates.store(), other.certificates.store())
}

/// What came of a request, for which store, and who serves it.
fn answered(
    status: Status,
    store: &StoreSummary,
    came: &impl Serialize,
    serving: Serving,
) -> Response {
    /// The answer that goes over the wire.
    #[derive(Serialize)]
    struct Written<'w, T> {
        store: String,
        #[serde(flatten)]
        came: &'w T,
        #[serde(flatten)]
        serving: Serving,
    }
    // What is not Unicode cannot be written as it is.
    let store = store.path.to_string_lossy().into_owned();
    json(status, &Written { store, came, serving })
}

/// Whether lanes serve what is in a store. They ask it for each hello: what was committed before
/// the hello came is what they get.
#[derive(Debug, Serialize)]
struct Serving {
    /// Lanes in all.
    lanes: usize,
    /// Those that have the listeners as they are now, and so the store.
    lanes_serving: usize,
    /// The listeners that have the store.
    listeners: Vec<ListenerServing>,
    /// Who is putting certificates there at this moment, if anybody is.
    #[serde(skip_serializing_if = "Option::is_none")]
    upload: Option<uploads::Told>,
}

/// What a listener serves.
#[derive(Debug, Serialize)]
struct ListenerServing {
    /// The listener's name.
    listener: String,
    /// What a client gets that asks it for the name in question.
    #[serde(skip_serializing_if = "Option::is_none")]
    serves: Option<Serves>,
}

/// What a client gets that asks for a name.
#[derive(Debug, Serialize)]
struct Serves {
    /// Where it comes from: `files`, `nothing`, `store`, or `unknown` where that cannot be read.
    from: &'static str,
    /// SHA-256 of the server's own certificates, one for each kind of key.
    leaves: Vec<String>,
}

impl Serving {
    fn of(orders: &Orders, store: &StoreSummary) -> Self {
        let state = orders.state.lock();
        let newest = state.generations.newest();
        let is_serving =
            state.phase != Phase::Starting && !store.certificates.store().is_withdrawn();
        let serving = state.lanes.iter().filter(|lane| lane.generation.value() >= newest).count();
        let with_store = state
            .listeners
            .iter()
            .filter(|listener| listener.store.as_ref().is_some_and(|its| is_same(its, store)));
        let named = |name: &String| ListenerServing { listener: name.clone(), serves: None };
        Self {
            lanes: state.lanes.len(),
            lanes_serving: if is_serving { serving } else { 0 },
            listeners: with_store.map(|listener| named(&listener.name)).collect(),
            upload: orders.uploads.told(store.certificates.store().id()),
        }
    }

    /// The same with what each listener serves for `name`, for which the store has `stored`.
    fn of_name(
        orders: &Orders,
        store: &StoreSummary,
        name: &str,
        stored: &[ShownCertificate],
    ) -> Self {
        let mut serving = Self::of(orders, store);
        let summaries: Vec<_> = {
            let state = orders.state.lock();
            let with_store = state.listeners.iter().filter_map(|listener| {
                let its = listener.store.as_ref().filter(|its| is_same(its, store))?;
                Some((listener.name.clone(), its.clone()))
            });
            with_store.collect()
        };
        // Not while it is locked: a store is read.
        let served = summaries.into_iter().map(|(listener, its)| ListenerServing {
            listener,
            serves: Some(Serves::of(&its, name, stored)),
        });
        serving.listeners = served.collect();
        serving
    }
}

impl Serves {
    fn of(store: &StoreSummary, name: &str, stored: &[ShownCertificate]) -> Self {
        match store.served.look_up(name) {
            Ok(ServedFrom::Files(files)) => {
                let leaves = files.iter().filter_map(|file| file.chain().next()).map(fingerprint);
                Self { from: "files", leaves: leaves.collect() }
            }
            Ok(ServedFrom::Nothing) => Self { from: "nothing", leaves: Vec::new() },
            Ok(ServedFrom::Store(digests)) => {
                let leaf = |digest: &CertificateDigest| {
                    let hex = hex(&digest.0);
                    let known = stored.iter().find(|shown| shown.digest == hex);
                    let known = known.and_then(|shown| shown.chain.first().cloned());
                    // It may have changed since, or be the default.
                    known.or_else(|| leaf_of(&store.certificates, *digest))
                };
                Self { from: "store", leaves: digests.iter().filter_map(leaf).collect() }
            }
            Err(_) => Self { from: "unknown", leaves: Vec::new() },
        }
    }
}

fn leaf_of(store: &KeyedStore, digest: CertificateDigest) -> Option<String> {
    let opened = store.view().ok()?.open(digest).ok()?;
    opened.chain.first().map(|der| fingerprint(der))
}

/// Who may order may do it with all names.
const EVERYTHING: fn(&str) -> bool = |_| true;
