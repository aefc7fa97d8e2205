//! The keys that say what a listener's clients speak: plain bytes, HTTP that is sent elsewhere, or
//! something before TLS.

use std::path::PathBuf;

use sealane_operator::key::{Bool, Choice, Key, Or, PathKind};
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
pub(crate) fn spoken(table: &Table<'_>) -> Spoken {
    let in_clear = table.get(&PLAIN);
    let starttls = table.value(&STARTTLS);
    let before_tls = starttls.as_ref().and_then(|v| STARTTLS.read(v)).flatten();
    if let (Some(_), Some(_), Some(written)) = (in_clear, before_tls, starttls) {
        let what = "no TLS follows where clients speak in the clear";
        written.wrong(Problem::new(what, "remove it, or plain"));
    }
    in_clear.or(before_tls).unwrap_or_default()
}

/// Out of what challenges of ACME are answered, and the store if it is one.
pub(crate) fn acme_responder(
    spoken: Spoken,
    table: &Table<'_>,
) -> Option<(ChallengeSource, Option<PathBuf>)> {
    if spoken != Spoken::Redirect {
        let what = "means nothing but with plain = \"redirect\", at the port 80 of a name";
        table.refuse(&[ACME_RESPONDER.name], what, "remove it, or put it there");
    }
    let written = table.value(&ACME_RESPONDER)?;
    match store_path(&written) {
        Some(store) => Some((ChallengeSource::Store, Some(store?))),
        None => Some((ChallengeSource::Folder(written.path()?), None)),
    }
}

pub(crate) static PLAIN: Key<Or<Choice<Option<Spoken>>>> = Key::new(
    "plain",
    Or(
        Choice(&[
            ("off", None),
            ("redirect", Some(Spoken::Redirect)),
            ("relay", Some(Spoken::Relay)),
        ]),
        None,
    ),
    "What the listener does without TLS. \"redirect\" is plain HTTP: every request is answered \
     with 308 and the same URL under https, at the port of the first TLS listener. \"relay\" is \
     client mode: it takes plain bytes and speaks TLS to its backends.",
)
.examples(&["\"redirect\"", "\"relay\""])
.see(&["listener.acme_responder", "listener.allow_remote"]);

pub(crate) static STARTTLS: Key<Or<Choice<Option<Spoken>>>> = Key::new(
    "starttls",
    Or(Choice(&[("off", None), ("postgres", Some(Spoken::Postgres))]), None),
    "\"postgres\": clients ask for TLS as PostgreSQL does, and so does Sealane where a backend is \
     tls://. Requests to cancel a query go to all backends, without TLS too.",
)
.examples(&["\"postgres\""]);

pub(crate) static ACME_RESPONDER: Key<PathKind> = Key::new(
    "acme_responder",
    PathKind,
    "A folder: requests for /.well-known/acme-challenge/TOKEN are answered from it, for an ACME \
     client on this machine that proves a name by HTTP. Write the webroot of the client, as \
     certbot (-w), lego (--http.webroot) and acme.sh (-w) take it, or WELLKNOWN of dehydrated. The \
     token's file is in that folder, or in .well-known/acme-challenge below it, and is read at \
     each request. Only key authorizations are sent. Or \"store:PATH\": the answers that are kept \
     in that store. Only with plain = \"redirect\".",
)
.examples(&["\"/var/lib/acme-challenges\""])
.without("such requests are redirected too");

pub(crate) static ALLOW_REMOTE: Key<Or<Bool>> = Key::new(
    "allow_remote",
    Or(Bool, false),
    "With plain = \"relay\", an address that other machines reach is refused unless this is true.",
);

pub(crate) static PASSTHROUGH: Key<Or<Bool>> = Key::new(
    "passthrough",
    Or(Bool, false),
    "TLS is not terminated: backends get the ClientHello and all that follows. Clients with a \
     route get the route. A listener with it needs no certificates.",
)
.see(&["listener.route.passthrough"]);
