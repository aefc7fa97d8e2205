//! The certificate of a client that ended its connection.

use sealane_engine::client_certificates::Distrust;
use sealane_engine::context::LaneContext;
use sealane_engine::session::SessionError;

/// A client's certificate that ended a connection.
pub(crate) struct Refused {
    pub(crate) distrust: Distrust,
    /// If no session has it: the client's own, without its issuers'.
    pub(crate) certificate: Option<Box<[u8]>>,
}

impl Refused {
    /// Why a handshake failed under `context`, if it was for the client's certificate.
    pub(crate) fn in_handshake(
        error: &SessionError,
        context: Option<&LaneContext>,
    ) -> Option<Self> {
        let distrust = Distrust::of_handshake(error)?;
        Some(Self { distrust, certificate: context.and_then(LaneContext::take_refused) })
    }
}
