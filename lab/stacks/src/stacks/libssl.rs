//! Any libssl as a stack: `openssl` is the system's, `openssl@3.5`, `boringssl` and `aws-lc` are
//! those that `stacks build` made, and a path is the library that it names.
//!
//! The client keeps no session in its context, and a connection is closed on both sides when it
//! is dropped, or OpenSSL would spoil its session and lock the context to do so.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use clap::ValueEnum;
use sealane_lab_harness::credentials::{Credentials, SERVER_NAME, Side};
use sealane_lab_model::{
    error::Error,
    library::Identity,
    scenario::{Group, Key, Kind, Negotiated, Scenario, Share, Version},
};
use sealane_libssl::{
    Agreed, Connection, Context, Flavour, Identification, Library, Resumption, Settings,
};

use crate::{
    stack::{Endpoint, Prepared, Session, Stack, Worker},
    stacks::{Loaded, cache},
};

/// Those that are on this machine.
pub(super) fn names() -> Vec<String> {
    let built = BUILT.iter().filter(|(name, file)| cache::library(name, file).is_some());
    let system =
        FOLDERS.iter().any(|folder| FILES.iter().any(|file| Path::new(folder).join(file).exists()));
    let system = system.then_some(SYSTEM);
    system.into_iter().chain(built.map(|(name, _)| *name)).map(str::to_owned).collect()
}

/// The stack of that name or path.
pub(super) fn load(name: &str) -> Option<Loaded> {
    Some(library(name)?.and_then(|library| Libssl::boxed(name, library)))
}

/// The library of that name or path; `None` if the name is another family's.
pub fn library(name: &str) -> Option<Result<&'static Library, Error>> {
    Some(path_of(name)?.and_then(|path| Library::open(&path).map_err(failed)))
}

/// The file of that name or path, which may be no library that can be loaded here.
pub(crate) fn path_of(name: &str) -> Option<Result<PathBuf, Error>> {
    Some(if name == SYSTEM {
        Library::of_the_system().map_err(|error| Error::Missing {
            program: format!("OpenSSL ({error})"),
            remedy: "apt-get install libssl3".into(),
        })
    } else if let Some((_, file)) = BUILT.iter().chain([&OLD]).find(|(built, _)| *built == name) {
        cache::library(name, file).ok_or_else(|| Error::Missing {
            program: name.to_owned(),
            remedy: format!("sealane-lab stacks build {name}"),
        })
    } else if is_path(name) {
        Ok(PathBuf::from(name))
    } else {
        return None;
    })
}

/// One end of a connection, as the lab drives it.
pub fn endpoint(connection: Connection) -> Box<dyn Endpoint> {
    Box::new(One(connection))
}

/// Whether a stack's name is the path of a library.
fn is_path(name: &str) -> bool {
    name.contains('/') && Path::new(name).file_name().is_some()
}

struct Libssl {
    name: String,
    library: &'static Library,
}

impl Libssl {
    fn boxed(name: &str, library: &'static Library) -> Loaded {
        Ok(Box::new(Self { name: name.to_owned(), library }))
    }
}

impl Stack for Libssl {
    fn identity(&self) -> Identity {
        let set = if self.library.flavour() == Flavour::OpenSsl { SET } else { "" };
        let parts = [
            cache::note(self.library.path()),
            self.library.build_flags(),
            cache::libcrypto(self.library.libcrypto()),
            set.to_owned(),
        ];
        let build: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Identity {
            name: self.name.clone(),
            version: self.library.version(),
            path: self.library.path().display().to_string(),
            // Only here: a trial under an instrument would wait for millions of instructions.
            sha256: cache::sha256(self.library.path()).unwrap_or_default(),
            build: build.join("; "),
        }
    }

    fn prepare(
        &self,
        scenario: &Scenario,
        credentials: &Credentials,
    ) -> Result<Box<dyn Prepared>, Error> {
        scenario.exists()?;
        if self.library.is_libressl()
            && let Some(what) = lacks_in_libressl(scenario)
        {
            let text = format!("{} {what}", self.library.version());
            return Err(Error::Unsupported(text));
        }
        let plan = Plan {
            library: self.library,
            scenario: scenario.clone(),
            credentials: credentials.clone(),
        };
        // Built even if each thread builds its own, so that what cannot be built is told here.
        let pair = plan.pair()?;
        let shared = |session| Box::new(OnePair(Contexts { pair: Arc::new(pair), session }));
        Ok(match scenario.share {
            Share::Context => shared(None),
            Share::Session => shared(Some(Arc::new(OnceLock::new()))),
            Share::Thread => Box::new(plan),
        })
    }
}

/// What LibreSSL cannot be asked, though it takes the settings, or refuses them for another reason.
fn lacks_in_libressl(scenario: &Scenario) -> Option<&'static str> {
    if scenario.version == Version::Tls13 && scenario.kind != Kind::Full {
        Some("resumes no session of TLS 1.3")
    } else if scenario.key == Key::Ed25519 {
        Some("takes no certificate with an Ed25519 key")
    } else if scenario.group == Group::X25519MlKem768 {
        Some("does not tell that X25519MLKEM768 was agreed on")
    } else {
        None
    }
}

/// One pair of contexts for all threads.
struct OnePair(Contexts);

impl Prepared for OnePair {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        let Contexts { pair, session } = &self.0;
        let session = session.as_ref().map(Arc::clone);
        Ok(Box::new(Contexts { pair: Arc::clone(pair), session }))
    }
}

/// What a thread needs to build a pair.
struct Plan {
    library: &'static Library,
    scenario: Scenario,
    credentials: Credentials,
}

impl Prepared for Plan {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        Ok(Box::new(Contexts { pair: Arc::new(self.pair()?), session: None }))
    }
}

impl Plan {
    fn pair(&self) -> Result<Pair, Error> {
        Ok(Pair { server: self.context(Side::Server)?, client: self.context(Side::Client)? })
    }

    fn context(&self, own: Side) -> Result<Context, Error> {
        let side = match own {
            Side::Client => sealane_libssl::Side::Client,
            Side::Server => sealane_libssl::Side::Server,
        };
        let (certificate, key) = (self.credentials.certificate(own), self.credentials.key(own));
        let (root, scenario) = (self.credentials.root(), &self.scenario);
        let shows = own == Side::Server || scenario.client_certificate;
        let verifies = own == Side::Client || scenario.client_certificate;
        let settings = Settings {
            side,
            version: if scenario.version == Version::Tls12 { 0x0303 } else { 0x0304 },
            suite: &scenario.suite(),
            group: iana_group(scenario.group),
            key_curve: match scenario.key {
                Key::P256 => Some(iana_group(Group::P256)),
                Key::P384 => Some(iana_group(Group::P384)),
                Key::Ed25519 | Key::Rsa2048 | Key::Rsa4096 => None,
            },
            identification: shows
                .then_some(Identification { certificate: &certificate, key: &key }),
            root: verifies.then_some(&root),
            name: SERVER_NAME,
            resumption: match scenario.kind {
                Kind::Full => Resumption::None,
                Kind::SessionId => Resumption::SessionId,
                Kind::Ticket => Resumption::Ticket,
            },
            tickets: scenario.tickets,
            ed25519: scenario.key == Key::Ed25519,
            release_buffers: true,
        };
        Context::new(self.library, &settings).map_err(failed)
    }
}

struct Pair {
    server: Context,
    client: Context,
}

/// A thread's hold on its contexts, or on those of all.
struct Contexts {
    pair: Arc<Pair>,
    /// What all clients offer, as soon as one of them was given it.
    session: Option<Arc<OnceLock<sealane_libssl::Session>>>,
}

impl Worker for Contexts {
    fn server(&mut self) -> Result<Box<dyn Endpoint>, Error> {
        Ok(endpoint(self.pair.server.accept().map_err(failed)?))
    }

    fn client(&mut self, session: Option<Session>) -> Result<Box<dyn Endpoint>, Error> {
        let session = session.map(|session| {
            let foreign = |_| Error::Check("a session of another stack".into());
            session.0.downcast::<sealane_libssl::Session>().map_err(foreign)
        });
        let session = session.transpose()?;
        let connection = match (&self.session, session) {
            (None, own) => self.pair.client.connect(own.as_deref()),
            (Some(shared), given) => {
                if let Some(given) = given {
                    // The first stays; a later one is dropped.
                    let _ = shared.set(*given);
                }
                self.pair.client.connect(shared.get())
            }
        };
        Ok(endpoint(connection.map_err(failed)?))
    }
}

struct One(Connection);

impl Endpoint for One {
    carried!();

    fn negotiated(&self) -> Result<Negotiated, Error> {
        negotiated(self.0.agreed())
    }
}

/// In the scenario's words.
pub(super) fn negotiated(agreed: Agreed) -> Result<Negotiated, Error> {
    let version = match agreed.version {
        0x0303 => Version::Tls12,
        0x0304 => Version::Tls13,
        other => return Err(Error::Check(format!("negotiated version {other:#06x}"))),
    };
    let group = agreed.group.map(group);
    Ok(Negotiated {
        version,
        suite: agreed.suite,
        group: group.transpose()?,
        resumed: agreed.resumed,
        peer_certificate: agreed.peer_verified,
    })
}

/// In the lab's words.
pub fn failed(error: sealane_libssl::Error) -> Error {
    match error {
        sealane_libssl::Error::Older { .. }
        | sealane_libssl::Error::Refused(_)
        | sealane_libssl::Error::Unsupported { .. } => Error::Unsupported(error.to_string()),
        error => Error::Check(error.to_string()),
    }
}

/// The group of that IANA number.
pub(crate) fn group(number: u16) -> Result<Group, Error> {
    let found = Group::value_variants().iter().find(|group| iana_group(**group) == number);
    found.copied().ok_or_else(|| Error::Check(format!("negotiated group {number:#06x}")))
}

fn iana_group(group: Group) -> u16 {
    match group {
        Group::P256 => 0x0017,
        Group::P384 => 0x0018,
        Group::X25519 => 0x001d,
        Group::X25519MlKem768 => 0x11ec,
    }
}

/// Whether the stack is [`OLD`], by name or by its library's path.
pub(crate) fn is_old(stack: &str) -> bool {
    stack == OLD.0 || stack.ends_with(OLD.1)
}

/// Whether [`OLD`] has been built on this machine.
#[must_use]
pub fn old_is_here() -> bool {
    path_of(OLD.0).is_some_and(|path| path.is_ok())
}

/// What the lab sets beside a scenario, as nginx and HAProxy do; OpenSSL's forks always do so.
const SET: &str = "set: SSL_MODE_RELEASE_BUFFERS";

/// The libssl of the system.
const SYSTEM: &str = "openssl";

/// Those that `stacks build` makes, with the file to load.
const BUILT: [(&str, &str); 8] = [
    ("openssl@1.1.1", "libssl.so.1.1"),
    ("openssl@3.0", "libssl.so.3"),
    ("openssl@3.4", "libssl.so.3"),
    ("openssl@3.5", "libssl.so.3"),
    ("openssl@4.0", "libssl.so.4"),
    ("boringssl", "libssl.so"),
    ("aws-lc", "libssl.so"),
    ("libressl", "libssl.so"),
];

/// The one that only Asio's driver uses.
pub const OLD: (&str, &str) = ("openssl@1.0.2", "libssl.so.1.0.0");

/// Where a system keeps its libraries; the dynamic linker itself decides when one is loaded.
const FOLDERS: [&str; 7] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
];
const FILES: [&str; 3] = ["libssl.so.4", "libssl.so.3", "libssl.so.1.1"];
