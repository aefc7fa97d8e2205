//! The session on either release of rustls, behind one trait.

use std::sync::Arc;

use crate::Result;
use crate::settings::Settings;

/// What a lane lends to the sessions of one release.
pub(crate) trait Release: Default {
    type Config;
    type Session;

    fn config(settings: &Settings) -> Result<Arc<Self::Config>>;

    fn begin(config: &Arc<Self::Config>) -> Result<Self::Session>;

    /// Puts what a client has sent where the session will find it.
    fn receive(&mut self, session: &mut Self::Session, bytes: &[u8]);

    fn feed(&mut self, session: &mut Self::Session) -> Result<()>;

    fn seal(&mut self, session: &mut Self::Session, plain: &[u8]) -> Result<()>;

    fn received(&self) -> &[u8];

    fn sent(&self) -> &[u8];

    fn clear(&mut self);

    fn is_established(session: &Self::Session) -> bool;

    /// Version, suite and group.
    fn agreed(session: &Self::Session) -> (Name, Name, Name);
}

type Name = Option<&'static str>;

macro_rules! release {
    ($name:ident, $engine:ident, $config:ty, $settings:path) => {
        pub(crate) struct $name {
            received: $engine::buffer::Buffer,
            plain: $engine::buffer::Buffer,
            wire: $engine::buffer::Buffer,
        }

        impl Default for $name {
            fn default() -> Self {
                let buffer = || $engine::buffer::Buffer::with_capacity(BUFFER_BYTES);
                Self { received: buffer(), plain: buffer(), wire: buffer() }
            }
        }

        impl Release for $name {
            type Config = $config;
            type Session = $engine::session::ServerSession;

            fn config(settings: &Settings) -> Result<Arc<$config>> {
                $settings(settings)
            }

            fn begin(config: &Arc<$config>) -> Result<Self::Session> {
                Ok($engine::session::ServerSession::new(Arc::clone(config))?)
            }

            fn receive(&mut self, session: &mut Self::Session, bytes: &[u8]) {
                use $engine::session::Session;
                self.received.clear();
                session.take_partial(&mut self.received);
                self.received.append(bytes);
            }

            fn feed(&mut self, session: &mut Self::Session) -> Result<()> {
                use $engine::session::Session;
                let incoming = self.received.filled_mut();
                session.feed(incoming, &mut self.plain, &mut self.wire)?;
                Ok(())
            }

            fn seal(&mut self, session: &mut Self::Session, plain: &[u8]) -> Result<()> {
                use $engine::session::Session;
                session.seal(plain, &mut self.wire)?;
                Ok(())
            }

            fn received(&self) -> &[u8] {
                self.plain.filled()
            }

            fn sent(&self) -> &[u8] {
                self.wire.filled()
            }

            fn clear(&mut self) {
                self.plain.clear();
                self.wire.clear();
            }

            fn is_established(session: &Self::Session) -> bool {
                session.is_established()
            }

            fn agreed(session: &Self::Session) -> (Name, Name, Name) {
                (session.version(), session.suite(), session.group())
            }
        }
    };
}

release!(Rustls23, sealane_engine, rustls::ServerConfig, old_config);
release!(Rustls24, sealane_engine_next, rustls_next::ServerConfig, new_config);

fn old_config(settings: &Settings) -> Result<Arc<rustls::ServerConfig>> {
    use rustls::crypto::aws_lc_rs;
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    let mut config = rustls::ServerConfig::builder_with_provider(provider.into())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![settings.certificate.clone()], settings.key.clone_key())?;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn new_config(settings: &Settings) -> Result<Arc<rustls_next::ServerConfig>> {
    use rustls_next::crypto::Identity;
    use rustls_next::server::{NoServerSessionStorage, Tls13Tickets};
    let mut provider = rustls_aws_lc_rs::DEFAULT_TLS13_PROVIDER;
    provider.tls13_cipher_suites =
        vec![rustls_aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256].into();
    provider.kx_groups = vec![rustls_aws_lc_rs::kx_group::X25519].into();
    let identity = Identity::from_cert_chain(vec![settings.certificate.clone()])?;
    let mut config = rustls_next::ServerConfig::builder(provider.into())
        .with_no_client_auth()
        .with_single_cert(Arc::new(identity), settings.key.clone_key())?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = Tls13Tickets { default: 0, max: 0 };
    Ok(Arc::new(config))
}

/// A record more than a lane sends at once.
const BUFFER_BYTES: usize = 17 * (16_384 + 64);
