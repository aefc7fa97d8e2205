//! Sealane's engine, `sealane`: a lane per thread drives the server, as in the terminator; the
//! client is rustls with the engine's own lane provider.
//!
//! A lane always has its own replica of a context, so [`Share::Context`] shares what the
//! terminator's lanes share: the immutable context, and the root that ticket keys come from. The
//! engine offers all its suites; the client offers one.

mod client;
mod lent;

use std::{
    fs,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sealane_engine::{
    certificates::{DefaultCertificate, IndexBuilder},
    client_certificates::ClientRoots,
    context::{Context, ContextId, LaneContext, LaneResources, TICKETS_MAX},
    hello::{self, Peek},
    policy::{self, ClientCertificates, Policy, UnknownNames, Versions},
    provider::{ProviderChoice, SelfTests, lane_provider, random},
    session::{Awaited, Role, ServerSession, TlsSession},
    tickets::{LIFETIME_DEFAULT_S, LaneClock, TicketRoot, UnixSeconds},
};
use sealane_lab_harness::credentials::{Credentials, Side};
use sealane_lab_model::{
    error::Error,
    library::Identity,
    scenario::{Group, Kind, Negotiated, Scenario, Share, Version},
};

use crate::{
    stack::{Endpoint, Prepared, Progress, Session, Stack, Worker},
    stacks::{
        Loaded, linked,
        rustls::{Client, issues_tickets},
    },
};

pub use client::client;

/// The names of these stacks.
pub(super) fn names() -> Vec<String> {
    ENGINES.iter().map(|engine| engine.name.to_owned()).collect()
}

/// The stack of that name.
pub(super) fn load(name: &str) -> Option<Loaded> {
    let engine = ENGINES.iter().find(|engine| engine.name == name)?;
    Some(Ok(Box::new(engine) as Box<dyn Stack>))
}

struct Engine {
    name: &'static str,
    provider: ProviderChoice,
}

/// What real lanes need for `scenario`: the context that they share, and the text of the root from
/// which each makes its ticket keys.
pub(crate) fn for_lanes(
    scenario: &Scenario,
    credentials: &Credentials,
) -> Result<(Arc<Context>, String), Error> {
    let provider = ProviderChoice::Auto;
    let plan = Plan { provider, scenario: scenario.clone(), credentials: credentials.clone() };
    let Common { context, ticket_root, .. } = plan.build()?;
    Ok((context, ticket_root))
}

impl Stack for &'static Engine {
    fn identity(&self) -> Identity {
        linked::identity(self.name, &["sealane-engine", "rustls", "graviola", "aws-lc-rs"])
    }

    fn prepare(
        &self,
        scenario: &Scenario,
        credentials: &Credentials,
    ) -> Result<Box<dyn Prepared>, Error> {
        let refused = match scenario {
            Scenario { kind: Kind::SessionId, .. } => "Sealane resumes from tickets only",
            Scenario { tickets, .. } if usize::from(*tickets) > TICKETS_MAX => {
                "Sealane sends at most 4 tickets"
            }
            _ => return prepare(self.provider, scenario, credentials),
        };
        Err(Error::Unsupported(refused.into()))
    }
}

fn prepare(
    provider: ProviderChoice,
    scenario: &Scenario,
    credentials: &Credentials,
) -> Result<Box<dyn Prepared>, Error> {
    let plan = Plan { provider, scenario: scenario.clone(), credentials: credentials.clone() };
    let shared = plan.build()?;
    Ok(match scenario.share {
        Share::Context | Share::Session => Box::new(shared),
        Share::Thread => Box::new(plan),
    })
}

/// What a thread needs to build everything of its own.
struct Plan {
    provider: ProviderChoice,
    scenario: Scenario,
    credentials: Credentials,
}

impl Prepared for Plan {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        self.build()?.worker()
    }
}

impl Plan {
    fn build(&self) -> Result<Common, Error> {
        let group = group(self.scenario.group);
        let crypto =
            lane_provider(self.provider, &[group]).map_err(|error| refused(&error))?.crypto;
        let client = Client::new(&crypto, &self.scenario, &self.credentials)?;
        let read = |path| fs::read(&path).map_err(Error::file(path));
        let mut builder = IndexBuilder::new(&crypto, now().0.cast_signed());
        builder.add_pair(
            "server.pem",
            &read(self.credentials.certificate(Side::Server))?,
            "server.key",
            &read(self.credentials.key(Side::Server))?,
        );
        let indexed = builder.finish(DefaultCertificate::First);
        if let Some(error) = indexed.errors.first() {
            return Err(refused(error));
        }
        let tickets = match (issues_tickets(&self.scenario), self.scenario.version) {
            (false, _) => 0,
            (true, Version::Tls12) => 1,
            (true, Version::Tls13) => usize::from(self.scenario.tickets),
        };
        let versions = match self.scenario.version {
            Version::Tls12 => Versions::Tls12,
            Version::Tls13 => Versions::Tls13,
        };
        let clients = match self.scenario.client_certificate {
            true => {
                let root = self.credentials.root();
                let text = fs::read(&root).map_err(Error::file(root))?;
                let roots = ClientRoots::from_pem(&[&text], &[]);
                ClientCertificates::Required(Arc::new(roots.map_err(|error| refused(&error))?))
            }
            false => ClientCertificates::NotAsked,
        };
        let context = Arc::new(Context {
            id: ContextId::fresh(),
            policy: Policy {
                clients,
                groups: vec![group],
                unknown_names: UnknownNames::Refuse,
                versions,
                ..Policy::default()
            },
            certificates: Arc::new(indexed.index),
            key_log: false,
            store: None,
            provider: self.provider,
            tickets,
        });
        let mut secret = [0; 32];
        random::fill(&mut secret).map_err(|error| refused(&error))?;
        let lifetime = Duration::from_secs(u64::from(LIFETIME_DEFAULT_S));
        let root = TicketRoot::generate(lifetime, now(), |bytes| bytes.copy_from_slice(&secret))
            .map_err(|error| refused(&error))?;
        let text = root.to_text().map_err(|error| refused(&error))?;
        Ok(Common { context, client, ticket_root: text.to_string() })
    }
}

/// What the terminator's lanes have in common, and one client config.
struct Common {
    context: Arc<Context>,
    client: Client,
    /// In its text form, from which each lane makes its own replica.
    ticket_root: String,
}

impl Prepared for Common {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        let root = TicketRoot::from_text(&self.ticket_root).map_err(|error| refused(&error))?;
        let resources = LaneResources::new(root, now(), NonZeroUsize::MIN);
        let lane = LaneContext::new(&self.context, &resources).map_err(|error| refused(&error))?;
        lane.warm_up(&mut SelfTests::default()).map_err(|error| refused(&error))?;
        let clock = Arc::clone(&resources.clock);
        Ok(Box::new(Lane { context: Arc::new(lane), clock, client: self.client.share() }))
    }
}

/// One thread's.
struct Lane {
    context: Arc<LaneContext>,
    clock: Arc<LaneClock>,
    client: Client,
}

impl Worker for Lane {
    fn server(&mut self) -> Result<Box<dyn Endpoint>, Error> {
        // A lane reads the time once per turn of its loop.
        self.clock.set(now());
        let context = Arc::clone(&self.context);
        Ok(Box::new(Server { context, session: None, early: Vec::new() }))
    }

    fn client(&mut self, session: Option<Session>) -> Result<Box<dyn Endpoint>, Error> {
        self.client.connect(session)
    }
}

/// A connection as a lane has it: no session until the whole hello has been looked at.
struct Server {
    context: Arc<LaneContext>,
    session: Option<ServerSession>,
    /// The start of a hello whose end has not come.
    early: Vec<u8>,
}

impl Endpoint for Server {
    fn handshake(&mut self, incoming: &[u8], outgoing: &mut Vec<u8>) -> Result<Progress, Error> {
        if let Some(session) = &mut self.session {
            lent::feed(session, incoming, None, outgoing)?;
        } else if self.early.is_empty() {
            self.begin(incoming, outgoing)?;
        } else {
            let mut hello = std::mem::take(&mut self.early);
            hello.extend_from_slice(incoming);
            self.begin(&hello, outgoing)?;
        }
        let established = self.session.as_ref().is_some_and(ServerSession::is_established);
        Ok(if established { Progress::Done } else { Progress::Wants })
    }

    fn send(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        lent::seal(established(&mut self.session)?, plaintext, outgoing)
    }

    fn receive(
        &mut self,
        incoming: &[u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        lent::feed(established(&mut self.session)?, incoming, Some(plaintext), outgoing)
    }

    fn negotiated(&self) -> Result<Negotiated, Error> {
        let session = self.session.as_ref().ok_or_else(|| untold("session"))?;
        negotiated(session, !session.peer_certificates().is_empty())
    }

    fn session(&mut self) -> Option<Session> {
        None
    }
}

impl Server {
    /// Looks at the hello, chooses the configuration and makes the session.
    fn begin(&mut self, bytes: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        match hello::peek(bytes, HELLO_BYTES_MAX) {
            Peek::Hello(hello) => {
                let config = self.context.admit(&hello).map_err(|refusal| {
                    Error::Check(format!("Sealane refused the client: {refusal:?}"))
                })?;
                let session = ServerSession::new(config).map_err(|error| broken(&error))?;
                let awaited = Awaited::new(self.context.asks_certificates(), false);
                let session = session.awaiting(awaited);
                lent::feed(self.session.insert(session), bytes, None, outgoing).map(|_| ())
            }
            Peek::NeedMore => {
                self.early.extend_from_slice(bytes);
                Ok(())
            }
            other => Err(Error::Check(format!("Sealane took the client's hello for {other:?}"))),
        }
    }
}

/// What an end tells, and whether it has verified the other's certificate.
fn negotiated<R: Role>(
    session: &TlsSession<R>,
    peer_certificate: bool,
) -> Result<Negotiated, Error> {
    Ok(Negotiated {
        version: match session.version().ok_or_else(|| untold("version"))? {
            "TLSv1.3" => Version::Tls13,
            _ => Version::Tls12,
        },
        suite: session.suite().ok_or_else(|| untold("suite"))?.to_owned(),
        group: session.group().and_then(named),
        resumed: session.resumed(),
        peer_certificate,
    })
}

fn untold(what: &str) -> Error {
    Error::Check(format!("Sealane tells no {what}"))
}

fn established(session: &mut Option<ServerSession>) -> Result<&mut ServerSession, Error> {
    session.as_mut().ok_or_else(|| Error::Check("no client has said hello to Sealane".into()))
}

fn group(group: Group) -> policy::Group {
    match group {
        Group::P256 => policy::Group::Secp256r1,
        Group::P384 => policy::Group::Secp384r1,
        Group::X25519 => policy::Group::X25519,
        Group::X25519MlKem768 => policy::Group::X25519MlKem768,
    }
}

/// The lab's word for a group that the engine names.
pub(crate) fn named(name: &str) -> Option<Group> {
    [Group::P256, Group::P384, Group::X25519, Group::X25519MlKem768]
        .into_iter()
        .find(|known| group(*known).name() == name)
}

/// The time of day.
pub fn now() -> UnixSeconds {
    UnixSeconds(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

fn refused(error: &dyn std::fmt::Display) -> Error {
    Error::Unsupported(error.to_string())
}

fn broken(error: &dyn std::fmt::Display) -> Error {
    Error::Check(error.to_string())
}

/// The engine as the terminator runs it, and with the provider that `provider = "aws-lc"` asks for.
static ENGINES: [Engine; 2] = [
    Engine { name: "sealane", provider: ProviderChoice::Auto },
    Engine { name: "sealane-aws-lc", provider: ProviderChoice::AwsLc },
];
/// The terminator's default.
const HELLO_BYTES_MAX: usize = 16 * 1024;
