//! Requests, and how they are carried out: [`Request`].

use sealane_store::{KeyedStore, Store, StoreError};

use crate::answer::{ReadBack, Removed, cursor, open_cursor, shown};
use crate::batches::May;

/// A request to a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Certificates are listed, those that expire first first.
    List {
        /// The sealed place of the last one that is known already: `next` of an answer.
        after: Option<String>,
        /// The most certificates in the answer.
        limit: usize,
    },
    /// Certificates come in a stream, for an [`Upload`](crate::Upload).
    Put,
    /// Nothing is served for these names any more.
    Remove {
        /// The names.
        names: Vec<String>,
    },
    /// Shows the certificates that a client gets.
    Show {
        /// The name that it asks for.
        name: String,
    },
}

/// The answer to a request without a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Certificates; without any nothing is served for the name that was asked for.
    ReadBack(ReadBack),
    /// The result of a removal.
    Removed(Removed),
}

impl Request {
    /// The request of a method of HTTP with such parameters.
    ///
    /// # Errors
    /// There is no such method, or a parameter is not in order.
    pub fn parse(method: &str, parameters: &[(String, String)]) -> Result<Self, Refused> {
        let of = |name: &str| {
            let values = parameters.iter().filter(|(each, _)| each == name);
            values.map(|(_, value)| value.clone()).collect::<Vec<_>>()
        };
        let known: &[&str] = match method {
            "DELETE" => &["name"],
            "GET" => &["after", "limit", "name"],
            "PUT" => &[],
            _ => return Err(Refused::Method),
        };
        if let Some((unknown, _)) = parameters.iter().find(|(name, _)| !known.contains(&&**name)) {
            return Err(Refused::Parameter(format!(
                "{unknown}: {method} takes no such parameter; it takes {}",
                match known {
                    [] => "none".into(),
                    _ => known.join(", "),
                }
            )));
        }
        match (method, of("name")) {
            ("PUT", _) => Ok(Self::Put),
            ("DELETE", names) => match names.len() {
                0 => Err(Refused::Parameter("name what is served no more: ?name=NAME".into())),
                1..=NAMES_MAX => {
                    Ok(Self::Remove { names: names.iter().map(|name| plain(name)).collect() })
                }
                _ => Err(Refused::Parameter(format!("name: at most {NAMES_MAX} at once"))),
            },
            (_, names) => Self::of_reader(&names, &of("after"), &of("limit")),
        }
    }

    fn of_reader(names: &[String], after: &[String], limit: &[String]) -> Result<Self, Refused> {
        let wrong = |what: String| Err(Refused::Parameter(what));
        match (names, after, limit) {
            ([name], [], []) => return Ok(Self::Show { name: plain(name) }),
            ([], [] | [_], [] | [_]) => {}
            ([_, ..], ..) => return wrong("name: one at a time, and nothing beside it".into()),
            _ => return wrong("after, limit: one of each at most".into()),
        }
        let limit = match limit.first().map(|text| (text, text.parse())) {
            None => LIMIT_DEFAULT,
            Some((_, Ok(limit @ 1..=LIMIT_MAX))) => limit,
            Some((text, _)) => {
                return wrong(format!("limit: {text:?} is no number from 1 to {LIMIT_MAX}"));
            }
        };
        Ok(Self::List { after: after.first().cloned(), limit })
    }

    /// Carries out the request, which has no body to come. `may` allows or rejects each name.
    ///
    /// `now_s` is Unix time.
    ///
    /// # Errors
    /// It may not be done, or the store cannot be read or written.
    pub fn carry_out(
        &self,
        store: &KeyedStore,
        may: May<'_>,
        now_s: i64,
    ) -> Result<Answer, Refused> {
        match self {
            Self::List { after, limit } => list(store, after.as_deref(), *limit, may),
            Self::Put => Err(Refused::Method),
            Self::Remove { names } => {
                names.iter().try_for_each(|name| allow(name, may))?;
                Ok(Answer::Removed(remove(store.store(), names, now_s)?))
            }
            Self::Show { name } => {
                allow(name, may)?;
                let read = store.store().read_back(name)?;
                let mut certificates: Vec<_> = read.served.iter().map(shown).collect();
                // One that is served for others' names too is shown, and those names are not.
                certificates.iter_mut().for_each(|shown| shown.names.retain(|name| may(name)));
                let generation = read.generation;
                Ok(Answer::ReadBack(ReadBack { certificates, generation, next: None }))
            }
        }
    }
}

fn list(
    store: &KeyedStore,
    after: Option<&str>,
    limit: usize,
    may: May<'_>,
) -> Result<Answer, Refused> {
    let opened = after.map(|text| open_cursor(store, text).ok_or(text));
    let after = opened.transpose().map_err(|text| {
        // It may be as long as a line of a request.
        let text: String = text.chars().take(CURSOR_SHOWN_MAX).collect();
        Refused::Parameter(format!("after: {text:?} is not the `next` of an answer"))
    })?;
    let is_allowed = |names: &[String]| names.iter().all(|name| may(name));
    let read = store.store().read_back_by_expiry(after, limit, &is_allowed)?;
    let next = read.next.map(|place| cursor(store, place)).transpose()?;
    let certificates = read.served.iter().map(shown).collect();
    Ok(Answer::ReadBack(ReadBack { certificates, generation: read.generation, next }))
}

/// Serves nothing for these names any more, and erases the keys of certificates that nothing leads
/// to from the file.
///
/// `now_s` is Unix time.
///
/// # Errors
/// The store cannot be written; then nothing is removed, but with [`StoreError::NotNoted`].
pub fn remove(store: &Store, names: &[String], now_s: i64) -> Result<Removed, StoreError> {
    let removed = store.remove(names, now_s)?;
    // An earlier removal may have been interrupted before it erased.
    let is_due = removed.names > 0 || store.is_erasure_due();
    let erased = is_due.then(|| store.erase_deleted()).and_then(Result::err);
    let warnings = erased.map(|error| format!("removed, but not erased from the file: {error}"));
    let mut covered = Vec::new();
    for name in names {
        if store.covers(name)? {
            covered.push(name.clone());
        }
    }
    Ok(Removed {
        covered,
        generation: store.generation()?,
        removed_certificates: removed.certificates,
        removed_names: removed.names,
        unknown: removed.unknown,
        warnings: warnings.into_iter().collect(),
    })
}

fn allow(name: &str, may: May<'_>) -> Result<(), Refused> {
    if may(name) { Ok(()) } else { Err(Refused::Forbidden(name.to_owned())) }
}

/// A name in the form of stores, so that a right to a name does not depend on its spelling.
fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// The reason why a request is not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The client may not do this with that name.
    #[error("who asks may do nothing with {0}; ask for other names")]
    Forbidden(String),
    /// There is no such method.
    #[error("GET shows certificates, PUT stores them, DELETE removes them")]
    Method,
    /// A parameter is not in order.
    #[error("{0}")]
    Parameter(String),
    /// The store cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Characters of a wrong `after` that are shown.
const CURSOR_SHOWN_MAX: usize = 64;
/// Certificates that are listed unless another number is wanted.
pub const LIMIT_DEFAULT: usize = 100;
/// Certificates that are listed at most.
pub const LIMIT_MAX: usize = 1_000;
/// The most errors and warnings of an upload in an answer.
pub(crate) const MISTAKES_TOLD_MAX: usize = 100;
/// Names that are removed at once.
pub const NAMES_MAX: usize = 100;
