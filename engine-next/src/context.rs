//! What the shared tests admit clients with: the engine's context decides, and the settings are
//! made again for rustls 0.24, as far as the tests of a session need them.

use std::sync::Arc;

use rustls_next::ServerConfig;
use rustls_next::crypto::Identity;
use rustls_next::pki_types::{CertificateDer, PrivateKeyDer};
use rustls_next::server::{NoServerSessionStorage, Tls13Tickets};
pub(crate) use sealane_engine::context::*;

use crate::hello::Hello;
use crate::session::subject::Stopped;

/// A lane's replica of a context with one certificate and the group X25519.
pub(crate) struct LaneContext {
    admission: sealane_engine::context::LaneContext,
    config: Arc<ServerConfig>,
}

impl LaneContext {
    pub(crate) fn new(context: &Arc<Context>, lane: &LaneResources) -> Result<Self, ContextError> {
        let certificate = &context.certificates.default_certificates()[0];
        let chain = certificate.chain().map(|der| CertificateDer::from(der.to_vec())).collect();
        let identity = Identity::from_cert_chain(chain).unwrap();
        let key = PrivateKeyDer::try_from(certificate.key().der().to_vec()).unwrap();
        let mut provider = rustls_aws_lc_rs::DEFAULT_PROVIDER;
        provider.kx_groups = vec![rustls_aws_lc_rs::kx_group::X25519].into();
        let ticketer = provider.ticketer_factory.ticketer().unwrap();
        let now = lane.clock.now().unwrap();
        let mut config =
            ServerConfig::builder_with_details(Arc::new(provider), Arc::new(Stopped(now)))
                .with_no_client_auth()
                .with_single_cert(Arc::new(identity), key)
                .unwrap();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.require_ems = true;
        config.send_tls13_tickets = Tls13Tickets { default: context.tickets, max: context.tickets };
        config.max_early_data_size = EARLY_DATA_SKIPPED_MAX;
        config.ticketer = Some(ticketer);
        let admission = sealane_engine::context::LaneContext::new(context, lane)?;
        Ok(Self { admission, config: Arc::new(config) })
    }

    pub(crate) fn admit(&self, hello: &Hello) -> Result<Arc<ServerConfig>, Refusal> {
        self.admission.admit(hello)?;
        Ok(Arc::clone(&self.config))
    }
}
