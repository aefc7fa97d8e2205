//! The same connection without a session around it, in the two halves that rustls 0.24 has for it.

use std::sync::Arc;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use rustls_next::SliceInput;
use rustls_next::server::{ServerConfig, ServerHandshake, ServerSide};
use rustls_next::split::{ReceiveTraffic, SendTraffic};
use sealane_libssl::heap;

use crate::settings::{NAME, Settings};
use crate::{IDLE_SESSIONS, Result, read, written};

/// Bytes on the heap of an established connection, the halves themselves included, when what was
/// learned in the handshake has been dropped.
pub(crate) fn idle(settings: &Settings, config: &Arc<ServerConfig>) -> Result<u64> {
    let mut halves = Vec::with_capacity(IDLE_SESSIONS);
    for _ in 0..IDLE_SESSIONS {
        halves.push(Box::new(establish(settings, config)?));
    }
    let before = heap::used_bytes();
    halves.clear();
    Ok((before - heap::used_bytes()) / IDLE_SESSIONS as u64)
}

type Halves = (SendTraffic, ReceiveTraffic<ServerSide>);

fn establish(settings: &Settings, config: &Arc<ServerConfig>) -> Result<Halves> {
    let name = ServerName::try_from(NAME)?;
    let mut client = ClientConnection::new(Arc::clone(&settings.client), name)?;
    let mut state = ServerHandshake::NeedsInput(ServerHandshake::start());
    let mut wire = Vec::new();
    loop {
        state = match state {
            ServerHandshake::NeedsInput(waiting) => {
                read(&mut client, &wire)?;
                wire.clear();
                let mut bytes = written(&mut client)?;
                waiting.process(&mut SliceInput::new(&mut bytes), &mut wire)?
            }
            ServerHandshake::Accepted(accepted) => {
                accepted.choose_config(Arc::clone(config), &mut wire)?
            }
            ServerHandshake::VerifyClientIdentity(verify) => verify.with_config(&mut wire)?,
            ServerHandshake::Complete(split) => return Ok((split.send, split.receive)),
            _ => return Err("another state".into()),
        }
    }
}
