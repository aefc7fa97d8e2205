//! The keys that say what a listener's clients speak: plain bytes, HTTP that is sent elsewhere, or
//! something before TLS.

use std::path::PathBuf;

use sealane_lanes::kernel::Address;
use sealane_operator::mistake::Problem;
use sealane_operator::reader::Table;
use serde::Serialize;

use crate::certificates::store_path;
use crate::destination::{DESTINATION_KEYS, Destination};
use crate::policy::HANDSHAKE_KEYS;
use crate::proxy_header::ProxyHeader;
use crate::route::Route;
use crate::value;

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

/// Says what else means nothing, or is dangerous, where that is spoken at `addresses`.
pub(crate) fn check_spoken(
    spoken: Spoken,
    table: &mut Table<'_>,
    addresses: &[Address],
    destination: Option<&Destination>,
    routes: &[Route],
) {
    let allow_remote = table.boolean("allow_remote").unwrap_or(false);
    if spoken != Spoken::Relay {
        let what = "means nothing but with plain = \"relay\"";
        table.refuse(&["allow_remote"], what, "remove it");
    }
    match spoken {
        Spoken::Postgres => {
            let of_routes = routes.iter().filter_map(|route| route.destination.as_ref());
            let mut told = destination.into_iter().chain(of_routes).map(|to| to.proxy_header);
            if told.any(|told| told != ProxyHeader::Off) {
                let what = "PostgreSQL does not read PROXY headers";
                table.refuse(&["starttls"], what, "remove proxy_header");
            }
            let passes_on = table.value("passthrough").and_then(|v| v.boolean()).unwrap_or(false);
            if passes_on || routes.iter().any(|route| route.policy.is_none()) {
                let what = "who answers the request for TLS has to end it";
                table.refuse(&["starttls"], what, "remove passthrough");
            }
        }
        Spoken::Redirect => {
            let remedy = "remove it, or plain";
            let what = "means nothing where every request is sent elsewhere";
            table.refuse(&DESTINATION_KEYS, what, remedy);
            table.refuse(&["check", "resolve"], what, remedy);
            refuse_tls(table, remedy);
        }
        Spoken::Relay => {
            refuse_tls(table, "remove it, or plain");
            if destination.is_some_and(|destination| destination.backend_tls.is_none()) {
                let what = "relays plain bytes to plain backends";
                table.refuse(&["plain"], what, "write \"tls://...\" or remove plain");
            }
            if !allow_remote && !addresses.iter().all(value::is_local) {
                let what = "whoever reaches this address speaks to the backends as if it were you";
                table.refuse(
                    &["plain"],
                    what,
                    "use 127.0.0.1, [::1] or unix:PATH, or say allow_remote = true",
                );
            }
        }
        Spoken::Tls => {}
    }
}

fn refuse_tls(table: &mut Table<'_>, remedy: &str) {
    let what = "means nothing where clients speak in the clear";
    table.refuse(&HANDSHAKE_KEYS, what, remedy);
    table.refuse(&TLS_KEYS, what, remedy);
}

/// Keys of a listener, beside [`HANDSHAKE_KEYS`].
const TLS_KEYS: [&str; 8] = [
    "alpn",
    "certificates",
    "clients",
    "default_certificate",
    "on_demand",
    "passthrough",
    "route",
    "unknown_names",
];

const PLAIN: [(&str, Option<Spoken>); 3] =
    [("off", None), ("redirect", Some(Spoken::Redirect)), ("relay", Some(Spoken::Relay))];

const STARTTLS: [(&str, Option<Spoken>); 2] = [("off", None), ("postgres", Some(Spoken::Postgres))];
