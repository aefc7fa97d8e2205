//! The sessions that a lane may resume with servers: [`LaneSessions`].

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;

use crate::session::is_bound_to_handshake;

/// The store of rustls, without sessions of TLS 1.2 that lack extended master secret: they are not
/// to be resumed (RFC 7627 section 5.3). It is behind a lock, which no other lane ever takes.
#[derive(Debug)]
pub(super) struct LaneSessions(ClientSessionMemoryCache);

impl LaneSessions {
    pub(super) fn new(sessions_max: usize) -> Self {
        Self(ClientSessionMemoryCache::new(sessions_max))
    }
}

impl ClientSessionStore for LaneSessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        if is_bound_to_handshake() {
            self.0.set_tls12_session(server_name, value);
        }
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(server_name)
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.0.remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(
        &self,
        server_name: ServerName<'static>,
        value: Tls13ClientSessionValue,
    ) {
        self.0.insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(
        &self,
        server_name: &ServerName<'static>,
    ) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(server_name)
    }
}
