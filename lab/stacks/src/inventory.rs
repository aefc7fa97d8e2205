//! The command `stacks`: which ones this machine has, and building more.

mod build;

use std::{
    io::{self, Write},
    path::PathBuf,
};

use sealane_lab_harness::options::Json;
use sealane_lab_model::{error::Error, library::Identity};
use serde::Serialize;

use crate::stacks::{self, cache};

/// The arguments of `stacks`.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    json: Json,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Builds stacks that are not there, from packages of cargo's registry
    Build {
        /// Which: a name from the list, or `all` that packages carry
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// The sources of a stack that no package carries: openssl@1.0.2, libressl, libmongoc@1.30
        #[arg(long, value_name = "FOLDER")]
        from: Option<PathBuf>,
    },
}

/// `true` if all went well: every stack of the list can be loaded, or is built.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    if let Some(Action::Build { names, from }) = &arguments.action {
        return build::build(names, from.as_deref()).map(|()| true);
    }
    let entries: Vec<Entry> = stacks::known().iter().map(|name| Entry::of(name)).collect();
    let missing: Vec<&str> =
        build::names().filter(|(_, built)| !built).map(|(name, _)| name).collect();
    arguments.json.write(&List { stacks: &entries, can_be_built: &missing })?;
    let text = table(&entries, &missing);
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))?;
    Ok(entries.iter().all(|entry| entry.failure.is_none()))
}

/// Where pkg-config finds the MongoDB driver that was built, if one was.
#[must_use]
pub fn libmongoc() -> Option<PathBuf> {
    let library = cache::library(build::LIBMONGOC, "libmongoc-1.0.so")?;
    Some(library.with_file_name("pkgconfig"))
}

#[derive(Serialize)]
struct List<'a> {
    stacks: &'a [Entry],
    can_be_built: &'a [&'a str],
}

/// One stack, or why it cannot be loaded.
#[derive(Serialize)]
struct Entry {
    #[serde(flatten)]
    identity: Identity,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl Entry {
    /// Asked of a process of its own, since each holds one stack.
    fn of(name: &str) -> Self {
        match stacks::identity(name) {
            Ok(identity) => Self { identity, failure: None },
            Err(error) => Self {
                identity: Identity { name: name.to_owned(), ..Identity::default() },
                failure: Some(error.to_string()),
            },
        }
    }
}

/// A block of lines for each stack: flags are too long for columns.
fn table(entries: &[Entry], missing: &[&str]) -> String {
    let mut text = String::new();
    for Entry { identity, failure } in entries {
        let Identity { name, version, path, sha256, build } = identity;
        text += &match failure {
            Some(failure) => format!("{name}\n  CANNOT BE LOADED: {failure}\n"),
            None => format!(
                "{name}\n  version  {version}\n  path     {path}\n  sha256   {sha256}\n  \
                 build    {build}\n"
            ),
        };
    }
    if !missing.is_empty() {
        let names = missing.join(" ");
        text += &format!("\nnot here; sealane-lab stacks build NAME builds one: {names}\n");
    }
    text
}
