//! Configs of both ends for a scenario, and what the threads of a trial share of them:
//! [`prepare`].
//!
//! With [`Share::Context`] all threads clone the same two configs, so their reference counts are
//! shared lines; with [`Share::Thread`] there are none. In neither case does the client keep its
//! sessions in the config (see `store`); with [`Share::Session`] it does, as rustls's own
//! benchmark: all threads take their sessions from one store behind one lock, and who finds none
//! does a full handshake.
//!
//! This folder is compiled with older versions of rustls too, by `sealane-lab stacks build`, and
//! but for `plaintext` uses nothing that they lack.

use std::sync::Arc;

use rustls::{
    ClientConfig, ServerConfig,
    crypto::CryptoProvider,
    server::{
        NoServerSessionStorage, ProducesTickets, ServerSessionMemoryCache, WebPkiClientVerifier,
    },
};
use sealane_lab_harness::credentials::{Credentials, Side};
use sealane_lab_model::{
    error::Error,
    scenario::{Kind, Scenario, Share, Version},
};

use super::{end, settings};
use crate::stack::{Endpoint, Prepared, Session, Worker};

/// A cryptographic library behind rustls.
#[derive(Clone, Copy)]
pub(crate) struct Library {
    /// All that it offers.
    pub(crate) provider: fn() -> CryptoProvider,
    /// What makes its tickets.
    pub(crate) ticketer: fn() -> Result<Arc<dyn ProducesTickets>, rustls::Error>,
}

/// See [`Stack::prepare`](crate::stack::Stack::prepare).
pub(crate) fn prepare(
    library: Library,
    scenario: &Scenario,
    credentials: &Credentials,
) -> Result<Box<dyn Prepared>, Error> {
    let plan = Plan { library, scenario: scenario.clone(), credentials: credentials.clone() };
    // Built even if each thread builds its own, so that what cannot be built is told here.
    let pair = plan.pair()?;
    Ok(match scenario.share {
        Share::Context | Share::Session => Box::new(OnePair(pair)),
        Share::Thread => Box::new(plan),
    })
}

/// A client of rustls for a server of another make, which lives in this crate too.
pub(crate) struct Client(Arc<ClientConfig>);

impl Client {
    /// With the suite and group of `scenario` out of those of `provider`.
    pub(crate) fn new(
        provider: &CryptoProvider,
        scenario: &Scenario,
        credentials: &Credentials,
    ) -> Result<Self, Error> {
        let provider = settings::narrowed(provider, scenario)?;
        Ok(Self(Arc::new(settings::client_config(provider, scenario, credentials)?)))
    }

    /// The same config for one more thread.
    pub(crate) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// See [`Worker::client`].
    pub(crate) fn connect(&self, session: Option<Session>) -> Result<Box<dyn Endpoint>, Error> {
        end::client(&self.0, session)
    }
}

/// One pair of configs for all threads.
struct OnePair(Pair);

impl Prepared for OnePair {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        let Self(pair) = self;
        Ok(Box::new(Pair { server: Arc::clone(&pair.server), client: pair.client.share() }))
    }
}

/// What a thread needs to build a pair.
struct Plan {
    library: Library,
    scenario: Scenario,
    credentials: Credentials,
}

impl Prepared for Plan {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        Ok(Box::new(self.pair()?))
    }
}

impl Plan {
    fn pair(&self) -> Result<Pair, Error> {
        let provider = (self.library.provider)();
        let client = Client::new(&provider, &self.scenario, &self.credentials)?;
        let server = settings::narrowed(&provider, &self.scenario)?;
        Ok(Pair { server: Arc::new(self.server_config(server)?), client })
    }

    fn server_config(&self, provider: CryptoProvider) -> Result<ServerConfig, Error> {
        let provider = Arc::new(provider);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(settings::versions(&self.scenario))
            .map_err(|error| settings::refused(&error))?;
        let builder = if self.scenario.client_certificate {
            let roots = settings::roots(&self.credentials)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| settings::refused(&error))?)
        } else {
            builder.with_no_client_auth()
        };
        let (chain, key) = settings::chain_and_key(&self.credentials, Side::Server)?;
        let mut config =
            builder.with_single_cert(chain, key).map_err(|error| settings::refused(&error))?;
        config.session_storage = match self.scenario.kind {
            Kind::SessionId => ServerSessionMemoryCache::new(match self.scenario.share {
                Share::Session => settings::SHARED_SESSIONS_MAX,
                Share::Context | Share::Thread => SESSIONS_MAX,
            }),
            Kind::Full | Kind::Ticket => Arc::new(NoServerSessionStorage {}),
        };
        config.send_tls13_tickets = usize::from(self.scenario.tickets);
        if issues_tickets(&self.scenario) {
            config.ticketer =
                (self.library.ticketer)().map_err(|error| settings::refused(&error))?;
        }
        Ok(config)
    }
}

/// Whether the server issues tickets.
pub(crate) fn issues_tickets(scenario: &Scenario) -> bool {
    match scenario.version {
        Version::Tls12 => scenario.kind == Kind::Ticket,
        Version::Tls13 => scenario.tickets > 0,
    }
}

/// Both ends' configs.
struct Pair {
    server: Arc<ServerConfig>,
    client: Client,
}

impl Worker for Pair {
    fn server(&mut self) -> Result<Box<dyn Endpoint>, Error> {
        end::server(&self.server)
    }

    fn client(&mut self, session: Option<Session>) -> Result<Box<dyn Endpoint>, Error> {
        self.client.connect(session)
    }
}

/// Sessions that the server keeps; each thread needs one at a time.
const SESSIONS_MAX: usize = 4_096;
