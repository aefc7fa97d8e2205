//! Why a connection ended, and whose doing it was.

use rustls::AlertDescription;
use sealane_engine::context::Refusal;
use sealane_engine::session::SessionError;

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $blame:ident;)*) => {
        /// Why a connection ended. Every connection ends with exactly one, and each is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Cause {
            $($(#[$doc])* $name,)*
        }

        impl Cause {
            /// All of them, in the order of their counters.
            pub const ALL: [Self; [$(Self::$name),*].len()] = [$(Self::$name),*];

            /// The name in logs and metrics.
            pub fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Who brought it about.
            pub fn blame(self) -> Blame {
                match self { $(Self::$name => Blame::$blame,)* }
            }
        }
    };
}

causes! {
    /// An authority's question for a name (`tls-alpn-01`) was answered out of the store.
    AcmeChallenge = "acme_challenge", Nobody;
    /// The backend's certificate has expired, or is not valid yet.
    BackendCertificateExpired = "backend_certificate_expired", Backend;
    /// The backend's certificate is for another name than the one asked for.
    BackendCertificateName = "backend_certificate_name", Backend;
    /// The backend's certificate does not lead to a root that is believed.
    BackendCertificateUntrusted = "backend_certificate_untrusted", Backend;
    /// The TLS handshake with the backend failed for another reason: it refused us or what we
    /// offer, speaks no TLS, left, or took longer than `connect_timeout`.
    BackendHandshakeFailed = "backend_handshake_failed", Backend;
    /// The backend broke the protocol of an established TLS connection.
    BackendProtocolError = "backend_protocol_error", Backend;
    /// The backend could not be reached, nor any other.
    BackendRefused = "backend_refused", Backend;
    /// The backend reset the connection or died; the client is reset, never told a clean end.
    BackendReset = "backend_reset", Backend;
    /// The backend sent nothing for `backend_timeout`, although the client took all.
    BackendTimeout = "backend_timeout", Backend;
    /// The backend's stream ended without close_notify; the client is reset, never told a clean
    /// end.
    BackendTruncated = "backend_truncated", Backend;
    /// No name of a backend has led anywhere yet.
    BackendUnresolved = "backend_unresolved", Backend;
    /// The service admits nobody from the client's address.
    Blocked = "blocked", Client;
    /// Both sides ended cleanly.
    Clean = "clean", Nobody;
    /// The certificate that the client was asked for is missing, or was refused in the handshake.
    ClientCertificate = "client_certificate", Client;
    /// The client left before the handshake was complete.
    ClientGone = "client_gone", Client;
    /// The client reset an established connection.
    ClientReset = "client_reset", Client;
    /// A revocation list that came later has the client's certificate, and the listener cuts such.
    ClientRevoked = "client_revoked", Client;
    /// The client sent nothing for `client_timeout`, although all it had sent was taken.
    ClientTimeout = "client_timeout", Client;
    /// The client's stream ended without close_notify; the backend is reset, never told a clean
    /// end.
    ClientTruncated = "client_truncated", Client;
    /// The client's address is among those that `deny` names, or not among those of `allow`.
    Denied = "denied", Client;
    /// One direction had ended, and in the other nothing came for `half_closed_timeout`.
    HalfClosed = "half_closed_timeout", Nobody;
    /// The handshake failed for a reason without a cause of its own.
    HandshakeFailed = "handshake_failed", Client;
    /// The handshake took longer than `handshake_timeout`.
    HandshakeTimeout = "handshake_timeout", Client;
    /// A ClientHello of more than `hello_bytes_max`, or as much together with what follows it while
    /// the hello waits for an answer.
    HelloTooLong = "hello_too_long", Client;
    /// Nothing came for `idle_timeout`, neither plaintext nor a whole record, and nothing left.
    Idle = "idle", Nobody;
    /// A fault of ours: a panic or a broken promise, contained in this connection.
    Internal = "internal", Us;
    /// The connection was as old as `connection_age_max` allows; the client was told the end.
    LimitAge = "limit_age", Limit;
    /// Every backend that was left had as many connections as it may have; the client was reset.
    LimitBackend = "limit_backend", Limit;
    /// The client had as many connections as `connections_per_client` allows; its newest was reset.
    LimitClientConnections = "limit_client_connections", Limit;
    /// The client began more handshakes than `handshakes_per_client` allows; its newest was reset.
    LimitClientHandshakes = "limit_client_handshakes", Limit;
    /// `connections_max` was reached; the newest connection was reset.
    LimitConnections = "limit_connections", Limit;
    /// The process had no descriptor left for a connection to a backend; the client was reset.
    LimitDescriptors = "limit_descriptors", Limit;
    /// The lane had more handshakes than it can make in time, and clients of this address have not
    /// completed theirs.
    LimitHandshakeQueue = "limit_handshake_queue", Limit;
    /// The hello waited for the lane so long that its client has likely given up.
    LimitHandshakeWait = "limit_handshake_wait", Limit;
    /// `handshakes_max` was reached; the oldest handshake in flight was reset.
    LimitHandshakes = "limit_handshakes", Limit;
    /// The listener's own `connections` was reached; the newest connection was reset.
    LimitListener = "limit_listener_connections", Limit;
    /// `unfinished_bytes_max` was reached; the connection whose bytes had waited longest was reset.
    LimitUnfinished = "limit_unfinished", Limit;
    /// The lane stopped: at the end of a drain, or at a second signal.
    LaneStopped = "lane_stopped", Us;
    /// No protocol in common with the client's ALPN offer.
    NoCommonAlpn = "no_common_alpn", Client;
    /// No version, suite, group or signature scheme in common.
    NothingInCommon = "nothing_in_common", Client;
    /// Something else than TLS.
    NotTls = "not_tls", Client;
    /// A plain HTTP request on the TLS port; answered with a 400 that says so.
    PlainHttp = "plain_http", Client;
    /// The preamble took longer than `preamble_timeout`.
    PreambleTimeout = "preamble_timeout", Client;
    /// The client broke the protocol on an established connection, or in its preamble.
    ProtocolError = "protocol_error", Client;
    /// The PROXY header breaks its specification, or says what it may not.
    ProxyMalformed = "proxy_malformed", Client;
    /// No PROXY header where one is required.
    ProxyMissing = "proxy_missing", Client;
    /// A peer whose PROXY header is not believed.
    ProxyUntrusted = "proxy_untrusted", Client;
    /// A plain HTTP request was answered with where to go instead.
    Redirected = "redirected", Nobody;
    /// The service closed the connection: without a reset, so what the kernel holds still arrives.
    ServiceClosed = "service_closed", Nobody;
    /// The service reset the connection.
    ServiceReset = "service_reset", Nobody;
    /// A name that no certificate covers, or none, where unknown names are refused.
    UnknownName = "unknown_name", Client;
}

/// Who brought the end about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The server behind us.
    Backend,
    /// Whoever connected to us.
    Client,
    /// A configured limit.
    Limit,
    /// Nobody: this is how connections end.
    Nobody,
    /// Sealane.
    Us,
}

impl Blame {
    /// All of them, in the order of counters by blame.
    pub const ALL: [Self; 5] = [Self::Backend, Self::Client, Self::Limit, Self::Nobody, Self::Us];
}

impl Cause {
    /// Whether the sockets are closed without a reset: the kernel still delivers what it holds.
    pub(crate) fn closes_plainly(self) -> bool {
        matches!(self, Self::Clean | Self::ServiceClosed)
    }

    /// Whether the client has ended its stream by itself. If nobody's answer is cut by that, it is
    /// not reset: it may still read what was sent before, which does not look whole without
    /// close_notify.
    pub(crate) fn client_left(self) -> bool {
        matches!(self, Self::ClientGone | Self::ClientTruncated)
    }

    /// The cause behind a hello that a context does not admit.
    pub(crate) fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Fallback | Refusal::MissingExtension | Refusal::Renegotiation => {
                Self::HandshakeFailed
            }
            Refusal::NoName | Refusal::NoNameTls12 | Refusal::UnknownName => Self::UnknownName,
        }
    }

    /// The cause behind a failed session, during its handshake or afterwards.
    pub(crate) fn of_session(error: &SessionError, established: bool) -> Self {
        use rustls::Error;
        match error {
            SessionError::Tls(Error::NoApplicationProtocol) => Self::NoCommonAlpn,
            SessionError::Tls(Error::PeerIncompatible(_)) => Self::NothingInCommon,
            SessionError::Tls(_) | SessionError::PartialTooLong(_) if established => {
                Self::ProtocolError
            }
            SessionError::Tls(Error::NoCertificatesPresented | Error::InvalidCertificate(_)) => {
                Self::ClientCertificate
            }
            SessionError::Tls(_) | SessionError::PartialTooLong(_) => Self::HandshakeFailed,
            SessionError::KeysExhausted
            | SessionError::NotEstablished
            | SessionError::PlainTooSmall
            | SessionError::WireTooSmall(_) => Self::Internal,
        }
    }

    /// The cause behind a failed session with a backend.
    pub(crate) fn of_backend(error: &SessionError, established: bool) -> Self {
        use rustls::{CertificateError as Refused, Error};
        match error {
            SessionError::Tls(Error::InvalidCertificate(refused)) => match refused {
                Refused::Expired
                | Refused::ExpiredContext { .. }
                | Refused::NotValidYet
                | Refused::NotValidYetContext { .. } => Self::BackendCertificateExpired,
                Refused::NotValidForName | Refused::NotValidForNameContext { .. } => {
                    Self::BackendCertificateName
                }
                _ => Self::BackendCertificateUntrusted,
            },
            SessionError::Tls(Error::AlertReceived(alert)) if refuses_us(*alert) => {
                Self::BackendHandshakeFailed
            }
            SessionError::Tls(_) | SessionError::PartialTooLong(_) if established => {
                Self::BackendProtocolError
            }
            SessionError::Tls(_) | SessionError::PartialTooLong(_) => Self::BackendHandshakeFailed,
            SessionError::KeysExhausted
            | SessionError::NotEstablished
            | SessionError::PlainTooSmall
            | SessionError::WireTooSmall(_) => Self::Internal,
        }
    }
}

/// Whether a server says so of its client's certificate. Under TLS 1.3 that comes when the
/// handshake is complete for the client already.
fn refuses_us(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRequired
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::UnsupportedCertificate
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_distinct_and_counters_are_in_order() {
        let mut labels: Vec<_> = Cause::ALL.iter().map(|cause| cause.label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Cause::ALL.len());
        assert!(Cause::ALL.iter().enumerate().all(|(index, cause)| *cause as usize == index));
    }
}
