//! The reason why a handshake failed, in words for the operator.

use sealane_lanes::cause::Cause;

/// The event, and the party at fault.
pub fn text(cause: Cause) -> &'static str {
    match cause {
        Cause::ClientCertificate => {
            "the client showed no certificate, or one that is not believed; it is asked for one"
        }
        Cause::ClientGone => "the client left before the handshake was complete",
        Cause::HandshakeFailed => "the client broke off the handshake, or broke its rules",
        Cause::HandshakeTimeout => "the client took longer than handshakeTimeout",
        Cause::HelloTooLong => "the client's hello is too long",
        Cause::Internal => "a fault of Sealane broke the handshake off",
        Cause::LimitConnections => "the lane has as many connections as it takes",
        Cause::LimitHandshakeQueue | Cause::LimitHandshakeWait => {
            "the lane has more handshakes than it can make in time"
        }
        Cause::LimitHandshakes => "too many other clients were in their handshake",
        Cause::NoCommonAlpn => "the client offers none of ALPNProtocols",
        Cause::NotTls => "the client speaks something else than TLS",
        Cause::NothingInCommon => {
            "client and server have no version, suite, group or signature in common"
        }
        Cause::PlainHttp => "the client speaks plain HTTP on a port for HTTPS",
        Cause::UnknownName => "there is no certificate for the name that the client asks for",
        other => other.label(),
    }
}

/// Causes by which only handshakes fail.
pub const OF_HANDSHAKES: [Cause; 14] = [
    Cause::ClientCertificate,
    Cause::ClientGone,
    Cause::HandshakeFailed,
    Cause::HandshakeTimeout,
    Cause::HelloTooLong,
    Cause::LimitConnections,
    Cause::LimitHandshakeQueue,
    Cause::LimitHandshakeWait,
    Cause::LimitHandshakes,
    Cause::NoCommonAlpn,
    Cause::NotTls,
    Cause::NothingInCommon,
    Cause::PlainHttp,
    Cause::UnknownName,
];
