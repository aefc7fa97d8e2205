//! Why a connection ended, and whose doing it was.

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
    /// The backend could not be reached, nor any other.
    BackendRefused = "backend_refused", Backend;
    /// The backend reset the connection or died; the client is reset, never told a clean end.
    BackendReset = "backend_reset", Backend;
    /// Both sides ended cleanly.
    Clean = "clean", Nobody;
    /// The client left before the handshake was complete.
    ClientGone = "client_gone", Client;
    /// The client reset an established connection.
    ClientReset = "client_reset", Client;
    /// The client's stream ended without close_notify; the backend is reset, never told a clean
    /// end.
    ClientTruncated = "client_truncated", Client;
    /// The handshake failed for a reason without a cause of its own.
    HandshakeFailed = "handshake_failed", Client;
    /// The handshake took longer than `handshake_timeout`.
    HandshakeTimeout = "handshake_timeout", Client;
    /// A ClientHello of more than `hello_bytes_max`.
    HelloTooLong = "hello_too_long", Client;
    /// No byte moved for `idle_timeout`.
    Idle = "idle", Nobody;
    /// A fault of ours: a panic or a broken promise, contained in this connection.
    Internal = "internal", Us;
    /// `connections_max` was reached; the newest connection was reset.
    LimitConnections = "limit_connections", Limit;
    /// `handshakes_max` was reached; the oldest handshake in flight was reset.
    LimitHandshakes = "limit_handshakes", Limit;
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
    /// The client broke the protocol on an established connection.
    ProtocolError = "protocol_error", Client;
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
    /// It is how connections end.
    Nobody,
    /// Sealane.
    Us,
}

impl Cause {
    /// The cause behind a failed session, during its handshake or afterwards.
    pub(crate) fn of_session(error: &SessionError, established: bool) -> Self {
        use rustls::Error;
        match error {
            SessionError::Tls(Error::NoApplicationProtocol) => Self::NoCommonAlpn,
            SessionError::Tls(Error::PeerIncompatible(_)) => Self::NothingInCommon,
            SessionError::Tls(_) | SessionError::PartialTooLong if established => {
                Self::ProtocolError
            }
            SessionError::Tls(_) | SessionError::PartialTooLong => Self::HandshakeFailed,
            SessionError::KeysExhausted
            | SessionError::NotEstablished
            | SessionError::PlainTooSmall
            | SessionError::WireTooSmall(_) => Self::Internal,
        }
    }
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
