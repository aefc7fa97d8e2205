//! What the strategies build contexts with: a [`Library`], which counts them where they are built.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use sealane_lab_model::error::Error;
use sealane_lab_stacks::stack::Endpoint;

use crate::contexts::{openssl::OpenSsl, sealane::Sealane, task::Files};

/// A TLS library as its users see it.
pub(super) trait Library: Send + Sync {
    /// A new context, whatever was built before.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    fn build(&self, files: &Files) -> Result<SharedContext, Error>;

    /// Reads the options that clients have in common, and builds nothing.
    ///
    /// # Errors
    /// What [`build`](Self::build) says.
    fn options<'a>(&'a self, files: &Files) -> Result<Box<dyn Options + 'a>, Error>;

    /// A place for a context that is swapped while threads connect.
    ///
    /// # Errors
    /// What [`build`](Self::build) says.
    fn slot<'a>(&'a self, files: &Files) -> Result<Box<dyn Slot + 'a>, Error>;

    /// What was built and freed so far.
    fn census(&self) -> Census;

    /// The same, once nothing is kept any more.
    fn end(self: Box<Self>) -> Census;
}

/// Options of which there may be others that are equal.
pub(super) trait Options: Send + Sync {
    /// Their context, built if the process has none for such options.
    ///
    /// # Errors
    /// What [`Library::build`] says.
    fn context(&self) -> Result<SharedContext, Error>;
}

/// Where threads find the context of the moment.
pub(super) trait Slot: Send + Sync {
    /// A thread's way to it: each of its connections is made from the context of that moment.
    ///
    /// # Errors
    /// What the library tells.
    fn lane<'a>(&'a self) -> Result<Box<dyn Lane + 'a>, Error>;

    /// Builds another one and puts it there; the old one stays if that fails.
    ///
    /// # Errors
    /// What [`Library::build`] says.
    fn swap(&self, files: &Files) -> Result<(), Error>;
}

/// What connections are made from; it knows no server.
pub(super) trait ClientContext: Send + Sync {
    /// Where it lies, which tells it from others while it is there.
    fn address(&self) -> usize;

    /// A thread's way to connect with it.
    ///
    /// # Errors
    /// What the library tells.
    fn lane(&self) -> Result<Box<dyn Lane>, Error>;
}

/// What one thread connects with.
pub(super) trait Lane {
    /// A client at the start of a connection to `name`, which must stand in the certificate.
    ///
    /// # Errors
    /// What the library tells.
    fn connect(&mut self, name: &str) -> Result<Box<dyn Endpoint>, Error>;
}

/// A context that threads have in common.
pub(super) type SharedContext = Arc<dyn ClientContext>;

/// Counts of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Census {
    /// Contexts that were built.
    pub(super) built: u64,
    /// Those of them that are gone.
    pub(super) freed: u64,
    /// Root certificates that were read into them.
    pub(super) certificates: u64,
}

impl Census {
    /// Contexts that are there now.
    pub(super) fn live(self) -> u64 {
        self.built.saturating_sub(self.freed)
    }
}

/// The library of the stack `name`.
///
/// # Errors
/// There is none, or the lab has no use for its contexts.
pub(super) fn load(name: &str) -> Result<Box<dyn Library>, Error> {
    match name {
        SEALANE => Ok(Box::new(Sealane::default())),
        _ => Ok(Box::new(OpenSsl::load(name)?)),
    }
}

/// Distinct certificates in a PEM file.
///
/// # Errors
/// The file cannot be read.
pub(super) fn certificates_in(file: &Path) -> Result<u64, Error> {
    let text = fs::read_to_string(file).map_err(Error::file(file))?;
    let bodies: BTreeSet<&str> =
        text.split(BEGIN).skip(1).filter_map(|rest| rest.split(END).next()).collect();
    Ok(bodies.len() as u64)
}

/// The engine's name as a stack.
pub(super) const SEALANE: &str = "sealane";
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";
