//! Versions of rustls from before and after a change, `rustls@0.23.16` and `rustls-ring@0.23.17`:
//! what `stacks build` made of the lab's own sources and that version, since Cargo links one 0.23
//! only. Loaded as a libssl is, and driven as the linked one is.

use std::path::{Path, PathBuf};

use sealane_lab_harness::credentials::Credentials;
use sealane_lab_model::{
    error::Error,
    library::Identity,
    scenario::{Negotiated, Scenario},
};
use sealane_libssl::old_rustls::{Connection, Contexts, Library, Session as Kept, Thread};
use serde_json::json;

use crate::{
    stack::{Endpoint, Prepared, Session, Stack, Worker},
    stacks::{Loaded, cache, libssl::failed},
};

/// Those that were built.
pub(super) fn names() -> Vec<String> {
    let built = BUILT.iter().filter(|name| cache::library(name, FILE).is_some());
    built.map(|name| (*name).to_owned()).collect()
}

/// The stack of that name or path.
pub(super) fn load(name: &str) -> Option<Loaded> {
    let file = Path::new(name).file_name().and_then(|file| file.to_str());
    let path = if BUILT.contains(&name) {
        cache::library(name, FILE).ok_or_else(|| Error::Missing {
            program: name.to_owned(),
            remedy: format!("sealane-lab stacks build {name}"),
        })
    } else if name.contains('/') && file == Some(FILE) {
        Ok(PathBuf::from(name))
    } else {
        return None;
    };
    Some(path.and_then(|path| OldRustls::boxed(name, &path)))
}

struct OldRustls {
    name: String,
    library: &'static Library,
}

impl OldRustls {
    fn boxed(name: &str, path: &Path) -> Loaded {
        let library = Library::open(path).map_err(failed)?;
        Ok(Box::new(Self { name: name.to_owned(), library }))
    }
}

impl Stack for OldRustls {
    fn identity(&self) -> Identity {
        let build = cache::note(self.library.path());
        // It does not tell itself; the package that it was built from does.
        let version = build.split(';').next().filter(|package| !package.is_empty());
        Identity {
            name: self.name.clone(),
            version: version.unwrap_or("rustls of unknown version").to_owned(),
            path: self.library.path().display().to_string(),
            // Only here: a trial under an instrument would wait for millions of instructions.
            sha256: cache::sha256(self.library.path()).unwrap_or_default(),
            build,
        }
    }

    fn prepare(
        &self,
        scenario: &Scenario,
        credentials: &Credentials,
    ) -> Result<Box<dyn Prepared>, Error> {
        let request = json!({
            "scenario": scenario,
            "credentials": credentials.folder(),
        });
        Ok(Box::new(Prepares(self.library.prepare(&request.to_string()).map_err(failed)?)))
    }
}

struct Prepares(Contexts);

impl Prepared for Prepares {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        Ok(Box::new(Works(self.0.thread().map_err(failed)?)))
    }
}

struct Works(Thread);

impl Worker for Works {
    fn server(&mut self) -> Result<Box<dyn Endpoint>, Error> {
        Ok(Box::new(One(self.0.server().map_err(failed)?)))
    }

    fn client(&mut self, session: Option<Session>) -> Result<Box<dyn Endpoint>, Error> {
        let session = session.map(|session| {
            let foreign = |_| Error::Check("a session of another stack".into());
            session.0.downcast::<Kept>().map_err(foreign)
        });
        let session = session.transpose()?.map(|session| *session);
        Ok(Box::new(One(self.0.client(session).map_err(failed)?)))
    }
}

struct One(Connection);

impl Endpoint for One {
    carried!();

    fn negotiated(&self) -> Result<Negotiated, Error> {
        let text = self.0.negotiated().map_err(failed)?;
        serde_json::from_str(&text)
            .map_err(|error| Error::Check(format!("what was agreed on: {error}: {text}")))
    }
}

/// Those that `stacks build` makes.
const BUILT: [&str; 4] =
    ["rustls@0.23.16", "rustls@0.23.17", "rustls-ring@0.23.16", "rustls-ring@0.23.17"];
const FILE: &str = "libold_rustls.so";
