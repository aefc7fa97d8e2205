//! rustls with each of its cryptographic libraries, as linked into the lab: `rustls-aws-lc`,
//! `rustls-graviola`, `rustls-ring`. What is the same in every version of rustls is below, in
//! [`contexts`].

mod contexts;
mod end;
mod plaintext;
mod settings;
mod store;

use rustls::crypto::{aws_lc_rs, ring};
use sealane_lab_harness::credentials::Credentials;
use sealane_lab_model::{error::Error, library::Identity, scenario::Scenario};

pub(super) use contexts::{Client, issues_tickets};

use crate::{
    stack::{Prepared, Stack},
    stacks::{Loaded, linked},
};
use contexts::Library;

/// The names of these stacks.
pub(super) fn names() -> Vec<String> {
    LIBRARIES.iter().map(|library| library.name.to_owned()).collect()
}

/// The stack of that name.
pub(super) fn load(name: &str) -> Option<Loaded> {
    let library = LIBRARIES.iter().find(|library| library.name == name)?;
    Some(Ok(Box::new(library)))
}

struct Rustls {
    name: &'static str,
    /// The cryptography, as Cargo calls it.
    package: &'static str,
    library: Library,
}

const LIBRARIES: [Rustls; 3] = [
    Rustls {
        name: "rustls-aws-lc",
        package: "aws-lc-rs",
        library: Library {
            provider: aws_lc_rs::default_provider,
            ticketer: aws_lc_rs::Ticketer::new,
        },
    },
    Rustls {
        name: "rustls-graviola",
        package: "graviola",
        library: Library {
            provider: rustls_graviola::default_provider,
            ticketer: rustls_graviola::Ticketer::new,
        },
    },
    Rustls {
        name: "rustls-ring",
        package: "ring",
        library: Library { provider: ring::default_provider, ticketer: ring::Ticketer::new },
    },
];

impl Stack for &'static Rustls {
    fn identity(&self) -> Identity {
        linked::identity(self.name, &["rustls", self.package])
    }

    fn prepare(
        &self,
        scenario: &Scenario,
        credentials: &Credentials,
    ) -> Result<Box<dyn Prepared>, Error> {
        contexts::prepare(self.library, scenario, credentials)
    }
}
