//! Programs of ours in C and C++ that use what a system has installed, [`Program`]: compiled at
//! first use, kept, and run as children.
//!
//! They are kept in `$XDG_CACHE_HOME` (or `~/.cache`) under `sealane/NAME-HASH`, where the hash
//! covers the source and the command that compiles it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use sealane_lab_model::error::Error;
use sha2::{Digest, Sha256};

use crate::child::{Child, Output};

/// A source with all that its compiler is told.
pub struct Program<'a> {
    /// The compiled file's name.
    pub name: &'a str,
    /// For messages, such as `Asio's driver`.
    pub title: &'a str,
    /// The source's file name, whose ending tells the language.
    pub file: &'a str,
    /// The source.
    pub source: &'a str,
    /// The program that compiles it.
    pub compiler: &'a str,
    /// Before the source on the command line.
    pub flags: &'a [String],
    /// Behind it.
    pub libraries: &'a [String],
}

impl Program<'_> {
    /// Where it is, compiled; compiles it if nobody has. `check_installed` runs before that, and
    /// names the package of what is missing.
    ///
    /// # Errors
    /// `check_installed`'s; else what the compiler says.
    pub fn compiled(
        &self,
        check_installed: impl FnOnce() -> Result<(), Error>,
    ) -> Result<PathBuf, Error> {
        let folder = cache()?.join(format!("{}-{}", self.name, self.hash()));
        let compiled = folder.join(self.name);
        if compiled.exists() {
            return Ok(compiled);
        }
        check_installed()?;
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        // Two trials may compile at once; each then puts a whole program in place.
        let own = tempfile::tempdir_in(&folder).map_err(Error::file(&folder))?;
        let source = own.path().join(self.file);
        fs::write(&source, self.source).map_err(Error::file(&source))?;
        let made = own.path().join(self.name);
        let mut command = Command::new(self.compiler);
        command.args(self.flags).arg("-o").arg(&made).arg(&source).args(self.libraries);
        self.compile(&mut command)?;
        fs::rename(&made, &compiled).map_err(Error::file(&compiled))?;
        Ok(compiled)
    }

    /// Runs it, compiled as `command`, for a limited time, and returns what it printed.
    ///
    /// # Errors
    /// Its first line on standard error if it failed, or that it took longer than `time_max`.
    pub fn output_of(&self, mut command: Command, time_max: Duration) -> Result<String, Error> {
        let title = self.title;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = Child::start(&mut command)?;
        let (out, said) = (Output::of(child.take_output()), Output::of(child.take_errors()));
        let Some(status) = child.wait(time_max) else {
            return Err(Error::Check(format!("{title} did not end in time")));
        };
        if status.success() {
            return Ok(out.text());
        }
        let said = said.text();
        let own = format!("{}: ", self.name);
        let said = said.lines().next().unwrap_or_default().trim_start_matches(&own).to_owned();
        Err(Error::Check(if said.is_empty() { format!("{title}: {status}") } else { said }))
    }

    fn hash(&self) -> String {
        let mut hash = Sha256::new();
        let words = self.flags.iter().chain(self.libraries).map(String::as_str);
        for part in [self.source, self.compiler].into_iter().chain(words) {
            hash.update(part);
            hash.update([0]);
        }
        hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn compile(&self, command: &mut Command) -> Result<(), Error> {
        let output = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(Error::io(format!("start the compiler {}", self.compiler)))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let tells = |line: &&str| line.contains("error") || line.contains("undefined reference");
        let first: Vec<&str> = said.lines().filter(tells).take(LINES_SHOWN).collect();
        Err(Error::Unsupported(format!(
            "{} does not compile with the libraries and headers that are here:\n{}",
            self.title,
            first.join("\n")
        )))
    }
}

fn cache() -> Result<PathBuf, Error> {
    let home = || env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(home)
        .map(|cache| cache.join("sealane"))
        .ok_or_else(|| Error::Unsupported("neither XDG_CACHE_HOME nor HOME is set".into()))
}

/// Lines shown of what the compiler says.
const LINES_SHOWN: usize = 5;
