//! An authority's validation that a name is served here (`tls-alpn-01`, RFC 8737). It is answered
//! with a certificate that is in the store for that purpose alone.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::sign::SingleCertAndKey;

use super::{LaneContext, without_tickets};
use crate::certificates::StoreFailure;
use crate::hello::Hello;

impl LaneContext {
    /// The configuration for an authority that asks with `hello`, if the store has an answer for
    /// the name; the connection ends with the handshake. All others pay a comparison.
    ///
    /// An answer that cannot be read is counted, and is none.
    pub fn challenge(&self, hello: &Hello) -> Option<Arc<ServerConfig>> {
        if *hello.alpn != *ASKED {
            return None;
        }
        let store = self.context.store.as_ref()?;
        let name = hello.server_name.as_deref()?;
        let answer = store.certificates.view().and_then(|view| view.challenge(name));
        let answered = answer.and_then(|found| {
            found
                .map(|opened| {
                    let provider = Arc::clone(self.settings.configs.server_order.crypto_provider());
                    let certified = opened.decode(name, &provider).map_err(|_| StoreFailure)?;
                    let resolver = Arc::new(SingleCertAndKey::from(certified));
                    let policy = &self.context.policy;
                    let config = without_tickets(policy, provider, &None, resolver, &self.clock);
                    let mut config = config.map_err(|_| StoreFailure)?;
                    config.alpn_protocols = vec![PROTOCOL.to_vec()];
                    Ok(Arc::new(config))
                })
                .transpose()
        });
        answered.unwrap_or_else(|StoreFailure| {
            if let Ok(keys) = self.keys.try_get() {
                keys.borrow_mut().note_store_failure();
            }
            None
        })
    }
}

const PROTOCOL: &[u8] = b"acme-tls/1";
/// The list of protocols of such a hello, which has no other.
const ASKED: &[u8] = b"\x0aacme-tls/1";
