//! Why a handshake failed, as its two ends said and saw it: [`Failure`].

use rustls::{Error, PeerIncompatible};
use sealane_engine::alert::{self, ALERT_RECORD_LEN, AlertDescription};
use sealane_engine::hello::Fault;
use sealane_engine::session::SessionError;

/// What is known of a session that failed, beside the cause that it is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The alert that ended it, and who sent that, if it is known.
    pub alert: Option<(AlertDescription, Sender)>,
    /// What was wrong, in a word of a fixed vocabulary, where there is one.
    pub reason: Option<&'static str>,
}

/// Who sent an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The client.
    Client,
    /// Sealane.
    Us,
}

impl Sender {
    /// The sender as written in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Us => "sealane",
        }
    }
}

impl Failure {
    /// Behind a hello that was refused as it is.
    pub(crate) fn of_fault(fault: Fault) -> Self {
        let reason = match fault {
            Fault::Fallback => Some("fallback"),
            Fault::IllegalLimit => Some("misbehaved"),
            Fault::NotTls | Fault::TooLong => None,
            Fault::OldVersion => Some("old_version"),
            Fault::RecordTooLong => Some("record_too_long"),
            Fault::Undecodable => Some("undecodable"),
            Fault::Unexpected => Some("unexpected_message"),
        };
        Self { reason, ..Self::by_alert(&fault.alert()) }
    }

    /// Behind a hello that was refused with this alert.
    pub(crate) fn by_alert(alert: &[u8; ALERT_RECORD_LEN]) -> Self {
        let alert = alert::at_end_of(alert).map(|description| (description, Sender::Us));
        Self { alert, reason: None }
    }

    /// Behind a session that failed and left `wire` to send.
    pub(crate) fn of_session(error: &SessionError, wire: &[u8]) -> Self {
        let alert = match error {
            SessionError::Tls(Error::AlertReceived(alert)) => Some((*alert, Sender::Client)),
            _ => sent(error, wire).map(|alert| (alert, Sender::Us)),
        };
        Self { alert, reason: reason(error) }
    }
}

/// The alert that we sent: in the clear it is there to read, and encrypted it is told by the error
/// where only one stands for that.
fn sent(error: &SessionError, wire: &[u8]) -> Option<AlertDescription> {
    alert::at_end_of(wire).or_else(|| match error {
        SessionError::Tls(Error::InvalidCertificate(refused)) => Some(refused.clone().into()),
        SessionError::Tls(Error::NoCertificatesPresented) => {
            Some(AlertDescription::CertificateRequired)
        }
        _ => None,
    })
}

fn reason(error: &SessionError) -> Option<&'static str> {
    use PeerIncompatible as P;
    let SessionError::Tls(error) = error else { return None };
    Some(match error {
        Error::PeerIncompatible(why) => match why {
            P::ExtendedMasterSecretExtensionRequired => "no_extended_master_secret",
            P::KeyShareExtensionRequired
            | P::NamedGroupsExtensionRequired
            | P::SignatureAlgorithmsExtensionRequired => "missing_extension",
            P::NoCertificateRequestSignatureSchemesInCommon | P::NoSignatureSchemesInCommon => {
                "no_common_scheme"
            }
            P::NoCipherSuitesInCommon => "no_common_suite",
            P::NoKxGroupsInCommon => "no_common_group",
            P::ServerDoesNotSupportTls12Or13
            | P::ServerTlsVersionIsDisabledByOurConfig
            | P::SupportedVersionsExtensionRequired
            | P::Tls12NotOffered
            | P::Tls12NotOfferedOrEnabled => "no_common_version",
            _ => "incompatible",
        },
        Error::DecryptError => "cannot_decrypt",
        Error::InappropriateHandshakeMessage { .. } | Error::InappropriateMessage { .. } => {
            "unexpected_message"
        }
        Error::InvalidMessage(_) => "undecodable",
        Error::PeerMisbehaved(_) => "misbehaved",
        Error::PeerSentOversizedRecord => "record_too_long",
        _ => return None,
    })
}
