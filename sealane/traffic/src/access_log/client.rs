//! Who came: what a client's certificate says, and why it was not believed.

use sealane_engine::client_certificates::{Distrust, Presented};
use sealane_lanes::cause::Cause;
use sealane_lanes::service::EndedConnection;

/// What a line says of a client's certificate, if one was shown.
pub(super) struct ClientFields {
    pub(super) presented: Option<Presented>,
    pub(super) distrust: Option<&'static str>,
}

impl ClientFields {
    /// `doubted` is why a certificate that was only asked for is not believed.
    pub(super) fn of(end: &EndedConnection<'_>, doubted: Option<&Distrust>) -> Self {
        let shown = end.session.and_then(|session| session.peer_certificates().first());
        let own = end.refused_certificate.or(shown.map(AsRef::as_ref));
        // Of the same cause, but without a certificate, there is no more to tell.
        let missing = (end.cause == Cause::ClientCertificate).then_some("missing");
        let distrust = end.distrust.or(doubted).map(Distrust::label);
        Self { presented: own.and_then(Presented::of), distrust: distrust.or(missing) }
    }
}
