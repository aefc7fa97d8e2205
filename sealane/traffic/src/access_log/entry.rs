//! One line of the access log, formatted without an allocation that another thread frees.

use std::fmt::{self, Write};
use std::net::SocketAddr;

use sealane_engine::alert;
use sealane_engine::hello::Offered;
use sealane_engine::session::ServerSession;
use sealane_engine::text;
use sealane_lanes::cause::Blame;
use sealane_operator::timestamp::Timestamp;
use serde::{Serialize, Serializer};

use crate::connection_number::ConnectionNumber;
use crate::proxy_header::Source;

use super::Ended;
use super::client::ClientFields;

/// Appends the line of `end` to `into`, with its newline.
pub(super) fn format(
    into: &mut Vec<u8>,
    time: Timestamp,
    ended: &Ended<'_>,
) -> Result<(), serde_json::Error> {
    let Ended { backend, connection, doubted, end, listener, source } = *ended;
    let session = end.session;
    let client = ClientFields::of(end, doubted);
    let presented = client.presented.as_ref();
    let alert = end.failure.and_then(|failure| failure.alert);
    let offered = end.offered.filter(|_| end.handshake_us.is_none());
    let entry = Entry {
        time,
        connection,
        client: end.client,
        peer: source.and_then(|source| source.peer),
        listener,
        lane: end.lane,
        generation: end.generation,
        authority: source.and_then(Source::authority).map(Printable),
        unique_id: source.and_then(Source::unique_id).map(Printable),
        server_name: end.server_name.map(|name| Printable(name.as_bytes())),
        tls_version: session.and_then(ServerSession::version),
        extended_master_secret: session.and_then(extended_master_secret),
        suite: session.and_then(ServerSession::suite),
        group: session.and_then(ServerSession::group),
        alpn: session.and_then(|session| session.alpn()).map(Printable),
        // Before the handshake is complete nothing has been resumed.
        resumed: session.filter(|_| end.handshake_us.is_some()).map(ServerSession::resumed),
        handshake_ms: end.handshake_us.map(Milliseconds),
        duration_ms: end.duration_ms,
        received_bytes: end.received_bytes,
        sent_bytes: end.sent_bytes,
        backend,
        cause: end.cause.label(),
        blame: blame_label(end.cause.blame()),
        reason: end.failure.and_then(|failure| failure.reason),
        alert: alert.map(|(description, _)| alert::name(description)),
        alert_from: alert.map(|(_, sender)| sender.name()),
        // Of a session that came about, its own version and suite say more.
        offered_versions: offered.map(OfferedVersions),
        offered_suites: offered.map(|offered| offered.suites),
        ja4: end.ja4,
        client_subject: presented.map(|shown| &*shown.subject),
        client_issuer: presented.map(|shown| &*shown.issuer),
        client_serial: presented.map(|shown| &*shown.serial),
        client_names: presented.map(|shown| &*shown.names),
        client_distrust: client.distrust,
    };
    serde_json::to_writer(&mut *into, &entry)?;
    into.push(b'\n');
    Ok(())
}

/// Whether a session of TLS 1.2 has it.
fn extended_master_secret(session: &ServerSession) -> Option<bool> {
    (session.version() == Some("TLSv1.2")).then(|| !session.lacks_extended_master_secret())
}

/// How a blame is written in logs and metrics.
pub fn blame_label(blame: Blame) -> &'static str {
    match blame {
        Blame::Backend => "backend",
        Blame::Client => "client",
        Blame::Limit => "limit",
        Blame::Nobody => "nobody",
        Blame::Us => "us",
    }
}

/// The fields in the order in which they are written; what is not known is null.
#[derive(Serialize)]
struct Entry<'a> {
    time: Timestamp,
    connection: ConnectionNumber,
    client: Option<SocketAddr>,
    /// Who announced the client.
    peer: Option<SocketAddr>,
    listener: &'a str,
    lane: usize,
    generation: u64,
    authority: Option<Printable<'a>>,
    unique_id: Option<Printable<'a>>,
    server_name: Option<Printable<'a>>,
    tls_version: Option<&'static str>,
    /// Null unless TLS 1.2 is spoken.
    extended_master_secret: Option<bool>,
    suite: Option<&'static str>,
    group: Option<&'static str>,
    alpn: Option<Printable<'a>>,
    resumed: Option<bool>,
    handshake_ms: Option<Milliseconds>,
    duration_ms: u64,
    received_bytes: u64,
    sent_bytes: u64,
    backend: Option<&'a str>,
    cause: &'static str,
    blame: &'static str,
    /// What was wrong, in a word.
    reason: Option<&'static str>,
    alert: Option<&'static str>,
    alert_from: Option<&'static str>,
    offered_versions: Option<OfferedVersions>,
    offered_suites: Option<u16>,
    ja4: Option<&'a str>,
    client_subject: Option<&'a str>,
    client_issuer: Option<&'a str>,
    client_serial: Option<&'a str>,
    client_names: Option<&'a str>,
    client_distrust: Option<&'static str>,
}

/// Versions as a list of names, without an allocation.
struct OfferedVersions(Offered);

impl Serialize for OfferedVersions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.versions())
    }
}

/// Bytes from a peer as text that a terminal can be trusted with: what is not UTF-8 and what steers
/// a terminal becomes U+FFFD; the JSON writer escapes the rest.
pub(super) struct Printable<'a>(pub(super) &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                f.write_char(if text::steers(c) { char::REPLACEMENT_CHARACTER } else { c })?;
            }
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

impl Serialize for Printable<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Microseconds, written as milliseconds with a fraction.
struct Milliseconds(u64);

impl Serialize for Milliseconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Exact up to 2^53 us, which is 285 years.
        #[expect(clippy::cast_precision_loss, reason = "a handshake takes less than 285 years")]
        serializer.serialize_f64(self.0 as f64 / 1_000.0)
    }
}
