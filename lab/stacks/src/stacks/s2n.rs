//! s2n-tls as a stack: `s2n-tls` is the one that `stacks build` made, and the path of a libs2n is
//! that one.
//!
//! s2n-tls is set by policies, which are fixed lists by name. [`POLICIES`] are those whose first
//! choice is what a scenario asks for; where there is none, the scenario is not supported. A
//! policy offers more than its first choice, so what was negotiated decides, as everywhere.
//!
//! | what a scenario asks | s2n-tls |
//! |---|---|
//! | X25519 in TLS 1.2 | no policy without TLS 1.3 prefers it |
//! | ChaCha20-Poly1305 | no policy prefers it |
//! | Ed25519 | it has no such signatures |
//! | `session-id` | it has no cache of its own, only calls to one |

use std::path::{Path, PathBuf};

use sealane_lab_harness::credentials::{Credentials, SERVER_NAME, Side};
use sealane_lab_model::{
    error::Error,
    library::Identity,
    scenario::{Cipher, Group, Key, Kind, Negotiated, Scenario, Share, Version},
};
use sealane_libssl::{
    Identification,
    s2n::{Connection, Context, Library, Session as Kept, Settings},
};

use crate::{
    stack::{Endpoint, Prepared, Session, Stack, Worker},
    stacks::{Loaded, cache, libssl},
};

/// Those that are on this machine.
pub(super) fn names() -> Vec<String> {
    cache::library(NAME, FILE).map(|_| NAME.to_owned()).into_iter().collect()
}

/// The stack of that name or path.
pub(super) fn load(name: &str) -> Option<Loaded> {
    let file = Path::new(name).file_name().and_then(|file| file.to_str());
    let path = if name == NAME {
        cache::library(NAME, FILE).ok_or_else(|| Error::Missing {
            program: NAME.to_owned(),
            remedy: format!("sealane-lab stacks build {NAME}"),
        })
    } else if name.contains('/') && file.is_some_and(|file| file.starts_with("libs2n")) {
        Ok(PathBuf::from(name))
    } else {
        return None;
    };
    Some(path.and_then(|path| S2n::open(name, &path)))
}

struct S2n {
    name: String,
    library: &'static Library,
}

impl S2n {
    fn open(name: &str, path: &Path) -> Loaded {
        let library = Library::open(path).map_err(libssl::failed)?;
        Ok(Box::new(Self { name: name.to_owned(), library }))
    }
}

impl Stack for S2n {
    fn identity(&self) -> Identity {
        let note = cache::note(self.library.path());
        // The library does not tell; the package that it was built from does.
        let own = note.split(';').next().filter(|package| !package.is_empty());
        let own = own.unwrap_or("s2n-tls of unknown version");
        let libcrypto = cache::libcrypto(self.library.libcrypto());
        Identity {
            name: self.name.clone(),
            version: format!("{own}, on {}", self.library.libcrypto_version()),
            path: self.library.path().display().to_string(),
            // Only here: a trial under an instrument would wait for millions of instructions.
            sha256: cache::sha256(self.library.path()).unwrap_or_default(),
            build: format!("{note}; memory by malloc, not locked; {libcrypto}"),
        }
    }

    fn prepare(
        &self,
        scenario: &Scenario,
        credentials: &Credentials,
    ) -> Result<Box<dyn Prepared>, Error> {
        scenario.exists()?;
        let plan = Plan {
            library: self.library,
            policy: policy(scenario)?,
            scenario: scenario.clone(),
            credentials: credentials.clone(),
        };
        // Built even if each thread builds its own, so that what cannot be built is told here.
        let pair = plan.pair()?;
        Ok(match scenario.share {
            Share::Context | Share::Session => Box::new(OnePair(pair)),
            Share::Thread => Box::new(plan),
        })
    }
}

/// The policy that prefers what `scenario` asks for.
fn policy(scenario: &Scenario) -> Result<&'static str, Error> {
    let refused = match scenario {
        Scenario { kind: Kind::SessionId, .. } => "s2n-tls has no session cache of its own",
        Scenario { kind: Kind::Ticket, share: Share::Session, .. } => {
            "s2n-tls has no session that connections could share"
        }
        Scenario { key: Key::Ed25519, .. } => "s2n-tls has no Ed25519",
        Scenario { version, cipher, group, .. } => {
            let wanted = (*version, *cipher, *group);
            match POLICIES.iter().find(|(choice, _)| *choice == wanted) {
                Some((_, policy)) => return Ok(policy),
                None => "s2n-tls has no policy that prefers this version, suite and group",
            }
        }
    };
    Err(Error::Unsupported(refused.into()))
}

/// One pair of contexts for all threads.
struct OnePair(Pair);

impl Prepared for OnePair {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        Ok(Box::new(self.0))
    }
}

/// What a thread needs to build a pair.
struct Plan {
    library: &'static Library,
    policy: &'static str,
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
        Ok(Pair { server: self.context(Side::Server)?, client: self.context(Side::Client)? })
    }

    fn context(&self, own: Side) -> Result<&'static Context, Error> {
        let side = match own {
            Side::Client => sealane_libssl::Side::Client,
            Side::Server => sealane_libssl::Side::Server,
        };
        let (certificate, key) = (self.credentials.certificate(own), self.credentials.key(own));
        let (root, scenario) = (self.credentials.root(), &self.scenario);
        let shows = own == Side::Server || scenario.client_certificate;
        let verifies = own == Side::Client || scenario.client_certificate;
        // A server sends the tickets of TLS 1.3 behind a full handshake too; a client that asks
        // for none would not be sent any.
        let tickets = match (scenario.version, scenario.kind) {
            (Version::Tls12, Kind::Full) => None,
            _ => Some(scenario.tickets).filter(|count| *count > 0),
        };
        let settings = Settings {
            side,
            policy: self.policy,
            identification: shows
                .then_some(Identification { certificate: &certificate, key: &key }),
            root: verifies.then_some(&root),
            name: SERVER_NAME,
            tickets,
        };
        Context::leak(self.library, &settings).map_err(libssl::failed)
    }
}

#[derive(Clone, Copy)]
struct Pair {
    server: &'static Context,
    client: &'static Context,
}

impl Worker for Pair {
    fn server(&mut self) -> Result<Box<dyn Endpoint>, Error> {
        Ok(Box::new(One(self.server.accept().map_err(libssl::failed)?)))
    }

    fn client(&mut self, session: Option<Session>) -> Result<Box<dyn Endpoint>, Error> {
        let session = session.map(|session| {
            let foreign = |_| Error::Check("a session of another stack".into());
            session.0.downcast::<Kept>().map_err(foreign)
        });
        let session = session.transpose()?.map(|session| *session);
        Ok(Box::new(One(self.client.connect(session).map_err(libssl::failed)?)))
    }
}

struct One(Connection);

impl Endpoint for One {
    carried!();

    fn negotiated(&self) -> Result<Negotiated, Error> {
        libssl::negotiated(self.0.agreed())
    }
}

const NAME: &str = "s2n-tls";
const FILE: &str = "libs2n.so";

/// The first choice of a policy, and its name.
const POLICIES: [((Version, Cipher, Group), &str); 6] = [
    ((Version::Tls12, Cipher::Aes128Gcm, Group::P256), "ELBSecurityPolicy-TLS-1-2-2017-01"),
    ((Version::Tls12, Cipher::Aes256Gcm, Group::P256), concat!("CloudFront-Up", "stream-TLS-1-2")),
    ((Version::Tls13, Cipher::Aes128Gcm, Group::P256), "default_tls13"),
    ((Version::Tls13, Cipher::Aes128Gcm, Group::X25519), "20240603"),
    ((Version::Tls13, Cipher::Aes128Gcm, Group::X25519MlKem768), "default_pq"),
    ((Version::Tls13, Cipher::Aes256Gcm, Group::P384), "20250414"),
];
