//! The keys that say what a listener's clients speak: plain bytes, HTTP that is sent elsewhere, or
//! something before TLS.

use std::path::PathBuf;

use sealane_operator::mistake::Problem;
use sealane_operator::reader::Table;
use serde::Serialize;

use crate::certificates::store_path;

/// What a listener's clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spoken {
    /// PostgreSQL's request to begin with TLS, and then TLS.
    Postgres,
    /// HTTP in the clear, of which every request is sent to HTTPS, but for challenges of ACME.
    Redirect,
    /// Whatever it is, in the clear; backends are spoken to in TLS.
    Relay,
    /// TLS, from the first byte on.
    #[default]
    Tls,
}

impl Spoken {
    /// Whether it is TLS, sooner or later.
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Postgres | Self::Tls)
    }
}

/// Out of what challenges of ACME are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChallengeSource {
    /// What a client of others writes into a folder.
    Folder(PathBuf),
    /// What the listener's store keeps for that.
    Store,
}

/// What clients speak, as it is written.
pub(crate) fn spoken(table: &mut Table<'_>) -> Spoken {
    let plain = table.value("plain");
    let starttls = table.value("starttls");
    let in_clear = plain.as_ref().and_then(|v| v.choice(&PLAIN)).flatten();
    let before_tls = starttls.as_ref().and_then(|v| v.choice(&STARTTLS)).flatten();
    if let (Some(_), Some(_), Some(written)) = (in_clear, before_tls, starttls) {
        let what = "no TLS follows where clients speak in the clear";
        written.wrong(Problem::new(what, "remove it, or plain"));
    }
    in_clear.or(before_tls).unwrap_or_default()
}

/// Out of what challenges of ACME are answered, and the store if it is one.
pub(crate) fn acme_responder(
    spoken: Spoken,
    table: &mut Table<'_>,
) -> Option<(ChallengeSource, Option<PathBuf>)> {
    if spoken != Spoken::Redirect {
        let what = "means nothing but with plain = \"redirect\", at the port 80 of a name";
        table.refuse(&["acme_responder"], what, "remove it, or put it there");
    }
    let written = table.value("acme_responder")?;
    match store_path(&written) {
        Some(store) => Some((ChallengeSource::Store, Some(store?))),
        None => Some((ChallengeSource::Folder(written.path()?), None)),
    }
}

const PLAIN: [(&str, Option<Spoken>); 3] =
    [("off", None), ("redirect", Some(Spoken::Redirect)), ("relay", Some(Spoken::Relay))];

const STARTTLS: [(&str, Option<Spoken>); 2] = [("off", None), ("postgres", Some(Spoken::Postgres))];
