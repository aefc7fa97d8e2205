//! The engine's own client, as the lab drives an end.

use sealane_engine::session::ClientSession;
use sealane_lab_model::{error::Error, scenario::Negotiated};

use super::{lent, negotiated};
use crate::stack::{Endpoint, Progress, Session};

/// An end that says hello with its first step.
pub fn client(session: ClientSession) -> Box<dyn Endpoint> {
    Box::new(ClientEnd(session))
}

struct ClientEnd(ClientSession);

impl Endpoint for ClientEnd {
    fn handshake(&mut self, incoming: &[u8], outgoing: &mut Vec<u8>) -> Result<Progress, Error> {
        lent::feed(&mut self.0, incoming, None, outgoing)?;
        Ok(if self.0.is_established() { Progress::Done } else { Progress::Wants })
    }

    fn send(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        lent::seal(&mut self.0, plaintext, outgoing)
    }

    fn receive(
        &mut self,
        incoming: &[u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        lent::feed(&mut self.0, incoming, Some(plaintext), outgoing)
    }

    fn negotiated(&self) -> Result<Negotiated, Error> {
        negotiated(&self.0, true)
    }

    /// A lane keeps them, in its replica.
    fn session(&mut self) -> Option<Session> {
        None
    }
}
