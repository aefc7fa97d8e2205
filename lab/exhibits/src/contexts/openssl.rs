//! OpenSSL, or any other libssl: a context holds what was read from the bundle, so that building
//! one parses it. The library itself counts, see [`sealane_libssl::Census`].
//!
//! libssl knows no digests of options and no swap; what is here is the least that a program writes
//! around it.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex, PoisonError},
};

use sealane_lab_harness::credentials::SERVER_NAME;
use sealane_lab_model::error::Error;
use sealane_lab_stacks::{stack::Endpoint, stacks::libssl};
use sealane_libssl::{Context, Identification, Resumption, Settings, Side};
use sha2::{Digest, Sha256};

use crate::contexts::{
    library::{Census, ClientContext, Lane, Library, Options, SharedContext, Slot},
    task::Files,
};

/// The one libssl of this process, with the contexts by the digest of their options.
pub(super) struct OpenSsl {
    library: &'static sealane_libssl::Library,
    known: Mutex<HashMap<[u8; 32], SharedContext>>,
}

impl OpenSsl {
    /// The stack `name`.
    ///
    /// # Errors
    /// The stack is no libssl, or is not here.
    pub(super) fn load(name: &str) -> Result<Self, Error> {
        let no_libssl = || {
            let text = format!("{name} has no contexts to compare: try sealane or openssl");
            Err(Error::Unsupported(text))
        };
        let library = libssl::library(name).unwrap_or_else(no_libssl)?;
        Ok(Self { library, known: Mutex::default() })
    }
}

impl Library for OpenSsl {
    fn build(&self, files: &Files) -> Result<SharedContext, Error> {
        let identification = files
            .identification
            .as_ref()
            .map(|(certificate, key)| Identification { certificate, key });
        let settings = Settings {
            side: Side::Client,
            version: TLS_1_3,
            suite: "TLS_AES_128_GCM_SHA256",
            group: X25519,
            key_curve: None,
            identification,
            root: Some(&files.ca),
            // Every connection has its own.
            name: SERVER_NAME,
            resumption: Resumption::None,
            tickets: 0,
            ed25519: false,
            release_buffers: false,
        };
        // The library's words on a file leave its name out.
        let context = Context::new(self.library, &settings)
            .map_err(|error| Error::Check(format!("{}: {error}", named(files))))?;
        Ok(Arc::new(Built(Arc::new(context))))
    }

    fn options<'a>(&'a self, files: &Files) -> Result<Box<dyn Options + 'a>, Error> {
        let mut digest = Sha256::new();
        let identification =
            files.identification.iter().flat_map(|(certificate, key)| [certificate, key]);
        for file in std::iter::once(&files.ca).chain(identification) {
            let bytes = fs::read(file).map_err(Error::file(file))?;
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        }
        Ok(Box::new(Digested {
            library: self,
            files: files.clone(),
            digest: digest.finalize().into(),
        }))
    }

    fn slot<'a>(&'a self, files: &Files) -> Result<Box<dyn Slot + 'a>, Error> {
        Ok(Box::new(OpenSslSlot { library: self, held: Mutex::new(self.build(files)?) }))
    }

    fn census(&self) -> Census {
        census()
    }

    fn end(self: Box<Self>) -> Census {
        drop(self);
        census()
    }
}

/// The process's contexts, as the library's own hooks count them.
fn census() -> Census {
    let sealane_libssl::Census { built, freed, roots } = sealane_libssl::Census::now();
    Census { built, freed, certificates: roots }
}

/// A context of the library's, which threads share as it is.
#[derive(Clone)]
struct Built(Arc<Context>);

impl ClientContext for Built {
    fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn lane(&self) -> Result<Box<dyn Lane>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Lane for Built {
    fn connect(&mut self, name: &str) -> Result<Box<dyn Endpoint>, Error> {
        Ok(libssl::endpoint(self.0.connect_to(name).map_err(libssl::failed)?))
    }
}

struct Digested<'a> {
    library: &'a OpenSsl,
    files: Files,
    digest: [u8; 32],
}

impl Options for Digested<'_> {
    fn context(&self) -> Result<SharedContext, Error> {
        // Whoever comes while one is built waits for that one.
        let mut known = self.library.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&self.digest) {
            return Ok(Arc::clone(found));
        }
        let built = self.library.build(&self.files)?;
        known.insert(self.digest, Arc::clone(&built));
        Ok(built)
    }
}

struct OpenSslSlot<'a> {
    library: &'a OpenSsl,
    held: Mutex<SharedContext>,
}

impl Slot for OpenSslSlot<'_> {
    fn lane<'a>(&'a self) -> Result<Box<dyn Lane + 'a>, Error> {
        Ok(Box::new(self))
    }

    fn swap(&self, files: &Files) -> Result<(), Error> {
        // Built before the lock is taken: nobody waits for a file.
        let built = self.library.build(files)?;
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = built;
        Ok(())
    }
}

impl Lane for &OpenSslSlot<'_> {
    fn connect(&mut self, name: &str) -> Result<Box<dyn Endpoint>, Error> {
        let held = Arc::clone(&self.held.lock().unwrap_or_else(PoisonError::into_inner));
        held.lane()?.connect(name)
    }
}

/// The files of a client, for a message.
fn named(files: &Files) -> String {
    let ca = files.ca.display();
    match &files.identification {
        None => ca.to_string(),
        Some((certificate, key)) => {
            format!("{ca}, {} or {}", certificate.display(), key.display())
        }
    }
}

const TLS_1_3: u16 = 0x0304;
/// The group's IANA number.
const X25519: u16 = 0x001d;
