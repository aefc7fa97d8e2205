//! What may be wrong with a cluster, and what to do about it: [`EtcdError`].

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use http::StatusCode;
use sealane_engine::session::SessionError;
use serde::Deserialize;

use crate::http::causes;

/// Why the cluster did not do what it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EtcdError {
    kind: Kind,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Another endpoint may do it.
    Endpoint,
    /// The whole cluster refuses.
    Cluster,
    /// The answer is larger than any is let to be.
    Size,
    /// The endpoint has forgotten who this is.
    Token,
}

impl EtcdError {
    /// Another endpoint of the cluster may do it.
    pub(crate) fn is_of_endpoint(&self) -> bool {
        self.kind == Kind::Endpoint
    }

    /// Less has to be asked for.
    pub(crate) fn is_of_size(&self) -> bool {
        self.kind == Kind::Size
    }

    /// A new token may do.
    pub(crate) fn is_of_token(&self) -> bool {
        self.kind == Kind::Token
    }

    /// Something on this machine.
    pub(crate) fn ours(text: &str) -> Self {
        Self { kind: Kind::Cluster, text: text.to_owned() }
    }

    pub(super) fn nowhere() -> Self {
        Self { kind: Kind::Cluster, text: "no endpoint is named".into() }
    }

    /// Nobody was heard.
    pub(super) fn unheard(endpoint: &str, error: &(dyn Error + 'static)) -> Self {
        Self::of(Kind::Endpoint, endpoint, &unheard_text(error))
    }

    pub(super) fn late(endpoint: &str, limit: Duration) -> Self {
        let text = format!("no answer within {} s; is it overloaded?", limit.as_secs());
        Self::of(Kind::Endpoint, endpoint, &text)
    }

    pub(super) fn ended(endpoint: &str) -> Self {
        Self::of(Kind::Endpoint, endpoint, "the watch ended")
    }

    pub(super) fn endless(endpoint: &str, bytes: usize) -> Self {
        let text = format!("a message of more than {} MiB", bytes >> 20);
        Self::of(Kind::Size, endpoint, &text)
    }

    pub(super) fn senseless(endpoint: &str, what: &str, error: &serde_json::Error) -> Self {
        let text = format!(
            "its answer to {what} is not etcd's (line {} column {}); name etcd's client URL, \
             version 3.4 or newer",
            error.line(),
            error.column()
        );
        Self::of(Kind::Endpoint, endpoint, &text)
    }

    /// The answer with a status that is none of success.
    pub(super) fn refused(
        endpoint: &str,
        status: StatusCode,
        body: &[u8],
        user: Option<&str>,
    ) -> Self {
        let said = serde_json::from_slice::<Refusal>(body).map(|refusal| refusal.error);
        let said = said.unwrap_or_else(|_| status.to_string());
        let user = user.unwrap_or("nobody");
        let is_there = |words: &str| said.contains(words);
        let (kind, remedy) = if is_there("invalid auth token") {
            (Kind::Token, "")
        } else if is_there("permission denied") {
            let remedy = format!(
                "; the user {user} needs a role with readwrite on this prefix: etcdctl role \
                 grant-permission ROLE --prefix=true readwrite PREFIX"
            );
            return Self::of(Kind::Cluster, endpoint, &format!("{said}{remedy}"));
        } else if is_there("authentication failed") || is_there("user name is empty") {
            (Kind::Cluster, "; see that user and password are those that etcd has")
        } else if is_there("database space exceeded") {
            (
                Kind::Cluster,
                "; its quota is used up: etcdctl compact, then defrag, then alarm disarm, and a \
                 larger --quota-backend-bytes",
            )
        } else if is_there("no leader") || is_there("leader changed") || is_there("timed out") {
            (Kind::Endpoint, "; are more than half of its members there?")
        } else if is_there("etcdserver:") || is_there("auth:") {
            (Kind::Cluster, "")
        } else {
            (Kind::Endpoint, "; is this etcd's client URL?")
        };
        Self::of(kind, endpoint, &format!("{said}{remedy}"))
    }

    /// A word in the middle of a watch.
    pub(super) fn said(endpoint: &str, text: &str) -> Self {
        let kind = if text.contains("invalid auth token") { Kind::Token } else { Kind::Endpoint };
        Self::of(kind, endpoint, &format!("the watch was ended: {text}"))
    }

    fn of(kind: Kind, endpoint: &str, text: &str) -> Self {
        Self { kind, text: format!("etcd {endpoint}: {text}") }
    }
}

/// What kept an endpoint from being heard, and what to do about it.
fn unheard_text(error: &(dyn Error + 'static)) -> String {
    let all: Vec<_> = causes(error).collect();
    let deepest = all.last().copied().unwrap_or(error);
    let io = all.iter().rev().find_map(|each| each.downcast_ref()).map(io::Error::kind);
    let tls = all.iter().find_map(|each| each.downcast_ref::<rustls::Error>());
    let words = tls.map(|tls| SessionError::Tls(tls.clone()).to_string()).unwrap_or_default();
    match (tls, io) {
        (Some(rustls::Error::InvalidCertificate(_)), _) => format!(
            "its certificate is not trusted here ({words}); name the authority of etcd in \
             fleet.roots, and an address in fleet.etcd that the certificate has"
        ),
        (Some(rustls::Error::AlertReceived(_)), _) => format!(
            "it ended the handshake ({words}); fleet.certificate has to be of an authority in its \
             --trusted-ca-file, and good for a client"
        ),
        (None, Some(io::ErrorKind::ConnectionRefused)) => {
            "nobody listens there; is etcd running, and is this its client URL?".into()
        }
        (None, Some(io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)) => {
            "the connection broke off; has it ended?".into()
        }
        (Some(_), _) => format!("{words}; is this etcd's client URL, and https where it is?"),
        _ => format!("{deepest}; is it there, and can it be reached from here?"),
    }
}

impl fmt::Display for EtcdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for EtcdError {}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> EtcdError {
        let status = StatusCode::BAD_REQUEST;
        EtcdError::refused("https://e:2379", status, body.as_bytes(), Some("sealane"))
    }

    #[test]
    fn a_refusal_says_whose_fault_it_is_and_what_to_do() {
        let error = refused("{\"error\":\"etcdserver: permission denied\",\"code\":7}");
        assert_eq!(error.kind, Kind::Cluster);
        let text = error.to_string();
        assert!(text.starts_with("etcd https://e:2379: etcdserver: permission denied; the user"));
        let error = refused("{\"error\":\"etcdserver: mvcc: database space exceeded\"}");
        assert!(error.to_string().contains("alarm disarm"), "{error}");
        assert!(refused("{\"error\":\"etcdserver: invalid auth token\"}").is_of_token());
        assert!(refused("{\"error\":\"etcdserver: no leader\"}").is_of_endpoint());
        assert!(refused("<html>").is_of_endpoint());
    }
}
