//! A run's document while it grows, [`Journal`]: written whole after every round, beside the old
//! one and then over it, so that no moment exists at which a finished round could be lost.

use std::{
    fs::Permissions,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Instant,
};

use sealane_lab_model::{
    document::{self, Noise, Run, SCHEMA, Tool},
    error::Error,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::machine::{self, Watch};

/// A document under way.
pub struct Journal {
    /// The caller's results go here.
    pub run: Run,
    path: Option<PathBuf>,
    begun: Instant,
    seconds_before: f64,
    /// Noise of the part before the run was stopped.
    noise_before: Option<Noise>,
    watch: Watch,
}

impl Journal {
    /// A new one. `command` is the command line with which to repeat the run, seed included; with
    /// no `path`, nothing is written.
    #[must_use]
    pub fn begin(command: Vec<String>, path: Option<&Path>) -> Self {
        let started = OffsetDateTime::now_utc();
        // To the second: nobody needs more, and the text is shorter.
        let started = started.replace_nanosecond(0).unwrap_or(started);
        let run = Run {
            schema: SCHEMA.to_owned(),
            started: started.format(&Rfc3339).unwrap_or_default(),
            command,
            tool: Tool {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                profile: PROFILE.to_owned(),
            },
            machine: machine::describe(),
            ..Run::default()
        };
        Self::of(run, path)
    }

    /// One that was stopped, to go on with.
    ///
    /// # Errors
    /// It cannot be read, is complete, or was begun on another machine or by another lab.
    pub fn resume(path: &Path) -> Result<Self, Error> {
        let run = read(path)?;
        let fresh = Self::begin(Vec::new(), None).run;
        let differs = if run.complete {
            "it is complete"
        } else if (&run.machine.processor, run.machine.processors)
            != (&fresh.machine.processor, fresh.machine.processors)
        {
            "it was begun on another machine"
        } else if run.tool != fresh.tool {
            "another version of the lab began it"
        } else {
            return Ok(Self::of(run, Some(path)));
        };
        Err(Error::Check(format!("{} cannot be resumed: {differs}", path.display())))
    }

    fn of(run: Run, path: Option<&Path>) -> Self {
        Self {
            seconds_before: run.seconds,
            noise_before: (run.seconds > 0.0).then(|| run.noise.clone()),
            run,
            path: path.map(Path::to_owned),
            begun: Instant::now(),
            watch: Watch::begin(),
        }
    }

    /// Writes what there is; `complete` after the last round.
    ///
    /// # Errors
    /// The file cannot be written; the one before it is as it was.
    pub fn save(&mut self, complete: bool) -> Result<(), Error> {
        self.run.complete = complete;
        self.run.seconds = self.seconds_before + self.begun.elapsed().as_secs_f64();
        let now = self.watch.noise();
        self.run.noise = match &self.noise_before {
            None => now,
            // The worse of the two: what was noisy before stays so.
            Some(before) => Noise {
                load_average: [before.load_average[0], now.load_average[1]],
                steal_percent: before.steal_percent.max(now.steal_percent),
                spin_variation: before.spin_variation.max(now.spin_variation),
            },
        };
        match &self.path {
            Some(path) => write(path, &self.run),
            None => Ok(()),
        }
    }
}

/// Reads a document, which may be packed with gzip.
///
/// # Errors
/// It cannot be read, or its schema is not ours.
pub fn read(path: &Path) -> Result<Run, Error> {
    let text = document::text(path)?;
    let wrong = |why: String| Error::Check(format!("{}: {why}", path.display()));
    let run: Run = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if run.schema != SCHEMA {
        return Err(wrong(format!("its schema is {}, this lab reads {SCHEMA}", run.schema)));
    }
    Ok(run)
}

/// Writes a document, whole or not at all; packed as [`document::bytes`] has it.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, run: &Run) -> Result<(), Error> {
    let mut json = serde_json::to_vec_pretty(run)
        .map_err(|error| Error::Check(format!("a document as JSON: {error}")))?;
    json.push(b'\n');
    let bytes = document::bytes(path, json)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(Error::file(path))?;
    file.write_all(&bytes).and_then(|()| file.as_file().sync_all()).map_err(Error::file(path))?;
    file.persist(path).map_err(|error| Error::file(path)(error.error))?;
    Ok(())
}

const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };
/// The mode of any file that a program writes; a temporary one would be its owner's alone.
const MODE: u32 = 0o644;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_stopped_run_goes_on_and_a_complete_one_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let mut journal = Journal::begin(vec!["handshake".into()], Some(&path));
        journal.save(false).unwrap();
        journal.run.noise.steal_percent = 99.0;
        write(&path, &journal.run).unwrap();
        let mut resumed = Journal::resume(&path).unwrap();
        assert_eq!(resumed.run, journal.run);
        resumed.save(true).unwrap();
        assert_eq!(resumed.run.noise.steal_percent, 99.0, "what was noisy before stays so");
        assert!(resumed.run.seconds >= journal.run.seconds);
        let error = Journal::resume(&path).err().unwrap().to_string();
        assert!(error.ends_with("it is complete"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left there");
    }

    #[test]
    fn a_packed_run_goes_on_packed() {
        let folder = tempfile::tempdir().unwrap();
        let [packed, path] = ["run.json.gz", "run.json"].map(|name| folder.path().join(name));
        Journal::begin(Vec::new(), Some(&packed)).save(false).unwrap();
        fs::rename(&packed, &path).unwrap();
        Journal::resume(&path).unwrap().save(true).unwrap();
        assert!(fs::read(&path).unwrap().starts_with(&[0x1f, 0x8b]));
        assert!(read(&path).unwrap().complete);
    }

    #[test]
    fn another_machine_or_lab_does_not_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let mut journal = Journal::begin(Vec::new(), None);
        journal.run.machine.processors += 1;
        write(&path, &journal.run).unwrap();
        assert!(Journal::resume(&path).is_err());
        let mut journal = Journal::begin(Vec::new(), None);
        journal.run.tool.version.push('x');
        write(&path, &journal.run).unwrap();
        assert!(Journal::resume(&path).is_err());
    }

    #[test]
    fn an_unknown_schema_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let mut run = Journal::begin(Vec::new(), None).run;
        assert!(run.started.ends_with('Z') && run.started.len() == 20, "{}", run.started);
        run.schema = "sealane-lab/2".into();
        write(&path, &run).unwrap();
        let error = read(&path).err().unwrap().to_string();
        assert!(error.contains("sealane-lab/2"), "{error}");
    }
}
