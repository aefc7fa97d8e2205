//! The root of all ticket keys: made at start, or kept in a file that restarts and machines share.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sealane_engine::provider::random;
use sealane_engine::tickets::TicketRoot;
use zeroize::Zeroizing;

use super::build::unix_now;
use crate::config::Tickets;

/// A ticket root that follows the clock, in memory and, if there is one, in its file.
pub(super) struct KeptRoot {
    root: TicketRoot,
    file: Option<PathBuf>,
    /// What was last reported, so that it is reported once.
    reported: Option<String>,
}

impl KeptRoot {
    /// Reads the file that `settings` name, or makes a root, and the file if it is missing.
    ///
    /// # Errors
    /// What is wrong with the file, as text.
    pub(super) fn open(settings: &Tickets) -> Result<Self, String> {
        let Some(file) = &settings.root else {
            return Ok(Self { root: generate(settings)?, file: None, reported: None });
        };
        let root = match fs::read_to_string(file).map(Zeroizing::new) {
            Ok(text) => parse(file, &text, settings)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let root = generate(settings)?;
                write(file, &root)?;
                root
            }
            Err(error) => {
                return Err(format!("tickets.root: {}: cannot be read: {error}", file.display()));
            }
        };
        let mut kept = Self { root, file: Some(file.clone()), reported: None };
        kept.advance().map_or(Ok(kept), Err)
    }

    pub(super) fn current(&self) -> &TicketRoot {
        &self.root
    }

    /// Erases what the clock has passed, here and in the file; returns what went wrong, once.
    pub(super) fn advance(&mut self) -> Option<String> {
        let problem = self.try_advance().err();
        let known = problem == self.reported;
        self.reported.clone_from(&problem);
        problem.filter(|_| !known)
    }

    fn try_advance(&mut self) -> Result<(), String> {
        let oldest = self.root.oldest_accepted_at(unix_now());
        if oldest <= self.root.epoch() {
            return Ok(());
        }
        self.root.advance_to(oldest).map_err(|error| error.to_string())?;
        self.file.as_ref().map_or(Ok(()), |file| write(file, &self.root))
    }
}

fn generate(settings: &Tickets) -> Result<TicketRoot, String> {
    let mut secret = Zeroizing::new([0; 32]);
    random::fill(secret.as_mut_slice()).map_err(|error| error.to_string())?;
    let fill = |into: &mut [u8]| into.copy_from_slice(secret.as_slice());
    TicketRoot::generate(settings.lifetime, unix_now(), fill).map_err(|error| error.to_string())
}

fn parse(file: &Path, text: &str, settings: &Tickets) -> Result<TicketRoot, String> {
    let named = |what: String| format!("tickets.root: {}: {what}", file.display());
    let root = TicketRoot::from_text(text).map_err(|error| named(error.to_string()))?;
    if u64::from(root.lifetime_s()) != settings.lifetime.as_secs() {
        return Err(named(format!(
            "it was made for a lifetime of {} s, tickets.lifetime says {} s; machines that share \
             the file must agree: change the setting, or remove the file to have a new one made",
            root.lifetime_s(),
            settings.lifetime.as_secs()
        )));
    }
    Ok(root)
}

/// Replaces the file whole, readable by its owner only.
fn write(file: &Path, root: &TicketRoot) -> Result<(), String> {
    let new = file.with_extension("new");
    let replace = || {
        let mut to =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        to.write_all(root.to_text().as_bytes())?;
        to.sync_all()?;
        fs::rename(&new, file)
    };
    replace().map_err(|error| {
        format!(
            "tickets.root: {}: cannot be written: {error}; after a restart old keys may be back",
            file.display()
        )
    })
}
