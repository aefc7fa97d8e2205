//! Sealane's engine: contexts that know their digest, a replica per thread, and slots that swap.
//!
//! A context that is to be built whatever there is comes from a table of its own, because one table
//! never builds equal options twice. The engine's tables count, see [`ClientContextCounts`].

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use rustls::{ClientConfig, pki_types::ServerName};
use sealane_engine::{
    client::{
        self, ClientContextCounts, ClientContexts, ClientIdentity, ClientOptions, ContextSlot,
        LaneClient, Roots,
    },
    policy::{Group, Versions},
    session::ClientSession,
    tickets::LaneClock,
};
use sealane_lab_model::error::Error;
use sealane_lab_stacks::{
    stack::Endpoint,
    stacks::sealane::{client, now},
};

use crate::contexts::{
    library::{Census, ClientContext, Lane, Library, Options, SharedContext, Slot},
    task::Files,
};

/// The engine in this process.
#[derive(Default)]
pub(super) struct Sealane {
    /// Where equal options meet.
    table: Mutex<ClientContexts>,
    /// One for each context that was to be built whatever there is; they keep counts only.
    others: Mutex<Vec<ClientContexts>>,
}

impl Library for Sealane {
    fn build(&self, files: &Files) -> Result<SharedContext, Error> {
        Ok(Arc::new(Built(self.build_alone(files)?)))
    }

    fn options<'a>(&'a self, files: &Files) -> Result<Box<dyn Options + 'a>, Error> {
        let (options, kept) = (read(files)?, OnceLock::new());
        Ok(Box::new(Digested { table: &self.table, options, kept }))
    }

    fn slot<'a>(&'a self, files: &Files) -> Result<Box<dyn Slot + 'a>, Error> {
        let slot = ContextSlot::new(self.build_alone(files)?);
        Ok(Box::new(SealaneSlot { library: self, slot }))
    }

    fn census(&self) -> Census {
        let (table, others) = (held(&self.table), held(&self.others));
        let mut all = Census { built: 0, freed: 0, certificates: 0 };
        for counted in others.iter().chain([&*table]) {
            let ClientContextCounts { built, certificates_parsed, freed } = counted.counts();
            all.built += built;
            all.freed += freed;
            all.certificates += certificates_parsed;
        }
        all
    }

    fn end(self: Box<Self>) -> Census {
        self.census()
    }
}

impl Sealane {
    fn build_alone(&self, files: &Files) -> Result<Arc<client::ClientContext>, Error> {
        let mut table = ClientContexts::new();
        let built = table.context(&read(files)?);
        held(&self.others).push(table);
        built.map_err(|error| refused(&error))
    }
}

struct Digested<'a> {
    table: &'a Mutex<ClientContexts>,
    options: ClientOptions,
    /// The table keeps no context alive; a pool does, also while no client of it is connected.
    kept: OnceLock<Arc<client::ClientContext>>,
}

impl Options for Digested<'_> {
    fn context(&self) -> Result<SharedContext, Error> {
        let found = held(self.table).context(&self.options).map_err(|error| refused(&error))?;
        self.kept.get_or_init(|| Arc::clone(&found));
        Ok(Arc::new(Built(found)))
    }
}

/// A context of the engine's.
struct Built(Arc<client::ClientContext>);

impl ClientContext for Built {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn lane(&self) -> Result<Box<dyn Lane>, Error> {
        let clock = Arc::new(LaneClock::new(now()));
        let config = self.0.replica(Arc::clone(&clock)).map_err(|error| refused(&error))?;
        Ok(Box::new(Replica { config, clock }))
    }
}

/// A thread's own.
struct Replica {
    config: Arc<ClientConfig>,
    clock: Arc<LaneClock>,
}

impl Lane for Replica {
    fn connect(&mut self, name: &str) -> Result<Box<dyn Endpoint>, Error> {
        self.clock.set(now());
        let session = ClientSession::new(Arc::clone(&self.config), server_name(name)?);
        Ok(client(session.map_err(|error| refused(&error))?))
    }
}

struct SealaneSlot<'a> {
    library: &'a Sealane,
    slot: ContextSlot,
}

impl Slot for SealaneSlot<'_> {
    fn lane<'a>(&'a self) -> Result<Box<dyn Lane + 'a>, Error> {
        let clock = Arc::new(LaneClock::new(now()));
        let lane = LaneClient::new(&self.slot, Arc::clone(&clock));
        Ok(Box::new(Watcher { lane: lane.map_err(|error| refused(&error))?, clock }))
    }

    fn swap(&self, files: &Files) -> Result<(), Error> {
        self.slot.publish(&self.library.build_alone(files)?);
        Ok(())
    }
}

/// A thread that looks at the slot before each connection.
struct Watcher {
    lane: LaneClient,
    clock: Arc<LaneClock>,
}

impl Lane for Watcher {
    fn connect(&mut self, name: &str) -> Result<Box<dyn Endpoint>, Error> {
        self.clock.set(now());
        let session = self.lane.connect(server_name(name)?);
        Ok(client(session.map_err(|error| refused(&error))?))
    }
}

/// What the files say, in what OpenSSL is asked for too: TLS 1.3, X25519, no resumption.
fn read(files: &Files) -> Result<ClientOptions, Error> {
    let text = |file: &Path| fs::read(file).map_err(Error::file(file));
    let ca = files.ca.display().to_string();
    let roots = Roots::from_pem(&ca, &text(&files.ca)?).map_err(|error| refused(&error))?;
    let identity = files.identification.as_ref().map(|(certificate, key)| {
        let labels = [certificate, key].map(|file| file.display().to_string());
        ClientIdentity::from_pem_pair((&labels[0], &text(certificate)?), (&labels[1], &text(key)?))
            .map_err(|error| refused(&error))
    });
    Ok(ClientOptions {
        groups: vec![Group::X25519],
        identity: identity.transpose()?,
        resumption: false,
        versions: Versions::Tls13,
        ..ClientOptions::trusting(roots)
    })
}

fn server_name(name: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name.to_owned()).map_err(|error| refused(&error))
}

fn refused(error: &dyn std::fmt::Display) -> Error {
    Error::Check(error.to_string())
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
