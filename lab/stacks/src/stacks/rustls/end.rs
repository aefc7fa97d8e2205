//! Both ends of a rustls connection, over its buffered interface as most programs use it.

use std::{io::Write, ops::DerefMut, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, CommonState, ConnectionCommon, HandshakeKind, ProtocolVersion,
    ServerConfig, ServerConnection, SideData, pki_types::ServerName,
};
use sealane_lab_harness::credentials::SERVER_NAME;
use sealane_lab_model::{
    error::Error,
    scenario::{Negotiated, Version},
};

use super::{
    plaintext,
    settings::{group, iana_name},
    store,
};
use crate::stack::{Endpoint, Progress, Session};

/// A client that offers `session`.
pub(super) fn client(
    config: &Arc<ClientConfig>,
    session: Option<Session>,
) -> Result<Box<dyn Endpoint>, Error> {
    let name = ServerName::try_from(SERVER_NAME).map_err(|error| broken(&error))?;
    store::offer(session);
    let tls = ClientConnection::new(Arc::clone(config), name).map_err(|error| broken(&error))?;
    Ok(Box::new(One { tls, session: store::take }))
}

/// A server.
pub(super) fn server(config: &Arc<ServerConfig>) -> Result<Box<dyn Endpoint>, Error> {
    let tls = ServerConnection::new(Arc::clone(config)).map_err(|error| broken(&error))?;
    Ok(Box::new(One { tls, session: || None }))
}

/// One end, of either side.
struct One<T> {
    tls: T,
    /// The last session that any connection of this thread was given.
    session: fn() -> Option<Session>,
}

impl<D: SideData, T: DerefMut<Target = ConnectionCommon<D>> + Send> Endpoint for One<T> {
    fn handshake(
        &mut self,
        mut incoming: &[u8],
        outgoing: &mut Vec<u8>,
    ) -> Result<Progress, Error> {
        while !incoming.is_empty() {
            take_records(&mut self.tls, &mut incoming)?;
        }
        write(&mut self.tls, outgoing)?;
        Ok(if self.tls.is_handshaking() { Progress::Wants } else { Progress::Done })
    }

    fn send(&mut self, mut plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        while !plaintext.is_empty() {
            // rustls takes no more than its own buffer holds.
            let taken = self.tls.writer().write(plaintext).map_err(|error| broken(&error))?;
            plaintext = &plaintext[taken..];
            write(&mut self.tls, outgoing)?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        mut incoming: &[u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let mut ended = false;
        while !incoming.is_empty() {
            ended |= take_records(&mut self.tls, &mut incoming)?;
            plaintext::take(self.tls.reader(), plaintext);
        }
        write(&mut self.tls, outgoing)?;
        Ok(ended)
    }

    fn negotiated(&self) -> Result<Negotiated, Error> {
        negotiated(&self.tls)
    }

    fn session(&mut self) -> Option<Session> {
        (self.session)()
    }
}

/// Lets rustls read some of `incoming`; `true` if the peer has said that it sends no more.
fn take_records<D: SideData>(
    tls: &mut impl DerefMut<Target = ConnectionCommon<D>>,
    incoming: &mut &[u8],
) -> Result<bool, Error> {
    if tls.read_tls(incoming).map_err(|error| broken(&error))? == 0 {
        return Err(Error::Check("rustls takes no more bytes".into()));
    }
    let state = tls.process_new_packets().map_err(|error| broken(&error))?;
    Ok(state.peer_has_closed())
}

fn write<D: SideData>(
    tls: &mut impl DerefMut<Target = ConnectionCommon<D>>,
    outgoing: &mut Vec<u8>,
) -> Result<(), Error> {
    while tls.wants_write() {
        tls.write_tls(outgoing).map_err(|error| broken(&error))?;
    }
    Ok(())
}

fn negotiated(tls: &CommonState) -> Result<Negotiated, Error> {
    let missing = |what: &str| Error::Check(format!("rustls tells no {what}"));
    let version = match tls.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
        Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
        _ => return Err(missing("version that a scenario has a word for")),
    };
    let suite = tls.negotiated_cipher_suite().ok_or_else(|| missing("suite"))?;
    Ok(Negotiated {
        version,
        suite: iana_name(suite.suite()),
        group: tls.negotiated_key_exchange_group().and_then(|agreed| group(agreed.name())),
        resumed: tls.handshake_kind() == Some(HandshakeKind::Resumed),
        peer_certificate: tls.peer_certificates().is_some_and(|chain| !chain.is_empty()),
    })
}

fn broken(error: &dyn std::fmt::Display) -> Error {
    Error::Check(error.to_string())
}
