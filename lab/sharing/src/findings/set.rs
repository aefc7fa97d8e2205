//! The recordings that the page is made of, [`wanted`], and how they are made one after the other,
//! `record`: what is there already stays.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use sealane_lab_harness::{child::Child, interrupt::Interrupt, progress::Progress};
use sealane_lab_model::{
    error::Error,
    scenario::{Kind, Scenario},
};

/// One recording that the page needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name on the command line.
    pub(super) stack: String,
    scenario: Scenario,
}

impl Wanted {
    /// Where it is kept, in `folder`.
    pub(super) fn file(&self, folder: &Path) -> PathBuf {
        let stack = self.stack.replace(['@', '/'], "-");
        folder.join(format!("{stack}-{}-1.3.{SUFFIX}", kind(&self.scenario)))
    }

    /// The arguments that make it, in `file`.
    fn arguments(&self, file: &Path) -> [String; 7] {
        let file = file.display().to_string();
        let words = ["count", "--stack", &self.stack, "--kind", kind(&self.scenario), "--record"];
        let [count, stack, name, kind, of, record] = words.map(str::to_owned);
        [count, stack, name, kind, of, record, file]
    }

    /// Makes it, in a process of its own, so that its command is the one that makes it again.
    ///
    /// # Errors
    /// What that process says; Ctrl-C, which ends it.
    pub(super) fn make(&self, file: &Path, stop: &Interrupt) -> Result<(), Error> {
        let binary = env::current_exe().map_err(Error::io("this program's path"))?;
        let mut command = Command::new(binary);
        let (folder, name) = (file.parent(), file.file_name());
        // The recording keeps its command, which tells nobody how folders are called here.
        command.args(self.arguments(Path::new(name.unwrap_or_default())));
        if let Some(folder) = folder.filter(|folder| folder.is_dir()) {
            command.current_dir(folder);
        }
        let log = file.with_extension("log");
        let mut child = Child::logged(&mut command, &log)?;
        let status = loop {
            if let Some(status) = child.ended() {
                break status;
            }
            if stop.is_pressed() {
                return Err(Error::Interrupted);
            }
            thread::sleep(END_CHECK);
        };
        let words = child.last_line();
        drop(child);
        let _ = fs::remove_file(log);
        if status.success() && file.exists() {
            return Ok(());
        }
        Err(Error::Check(words.trim_start_matches("sealane-lab: ").to_owned()))
    }
}

/// The whole set, or that of `stacks`: a full handshake and one resumed by ticket, TLS 1.3.
///
/// # Errors
/// If one of `stacks` is not in it.
pub fn wanted(stacks: &[String]) -> Result<Vec<Wanted>, Error> {
    if let Some(unknown) = stacks.iter().find(|stack| !STACKS.contains(&stack.as_str())) {
        return Err(Error::Unsupported(format!(
            "{unknown} is not in the set, which is {}; count --record records any stack, and \
             findings shows whatever lies in its folder",
            STACKS.join(", ")
        )));
    }
    let is_asked = |stack: &&&str| stacks.is_empty() || stacks.iter().any(|asked| asked == **stack);
    let both = |stack: &&str| {
        [Kind::Full, Kind::Ticket].map(|kind| Wanted {
            stack: (*stack).to_owned(),
            scenario: Scenario { kind, ..Scenario::default() },
        })
    };
    Ok(STACKS.iter().filter(is_asked).flat_map(both).collect())
}

/// Makes those of `set` that are not in `folder` yet; `false` if some could not be made, which are
/// told and passed over.
///
/// # Errors
/// Ctrl-C; a folder that cannot be written.
pub(super) fn record(
    set: &[Wanted],
    folder: &Path,
    mut make: impl FnMut(&Wanted, &Path) -> Result<(), Error>,
) -> Result<bool, Error> {
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let unfinished = tempfile::tempdir_in(folder).map_err(Error::file(folder))?;
    let missing: Vec<&Wanted> = set.iter().filter(|it| !it.file(folder).exists()).collect();
    let mut progress = Progress::new(missing.len() as u64);
    let mut well = true;
    for wanted in missing {
        progress.step(&format!("recording {}, {}", wanted.stack, kind(&wanted.scenario)));
        let file = wanted.file(folder);
        // In its folder once it is whole, so that one that was cut short is made again.
        let scratch = unfinished.path().join(file.file_name().unwrap_or_default());
        let made = make(wanted, &scratch);
        let made = made.and_then(|()| fs::rename(&scratch, &file).map_err(Error::file(&file)));
        match made {
            Ok(()) => {}
            Err(error @ (Error::Interrupted | Error::Io { .. })) => return Err(error),
            Err(error) => {
                well = false;
                progress.note(&format!("{}: {error}", wanted.stack));
            }
        }
        progress.done();
    }
    Ok(well)
}

/// The commands of `set`, a line each.
#[must_use]
pub fn commands(set: &[Wanted], folder: &Path) -> String {
    let command = |wanted: &Wanted| {
        format!("sealane-lab {}\n", wanted.arguments(&wanted.file(folder)).join(" "))
    };
    set.iter().map(command).collect()
}

fn kind(scenario: &Scenario) -> &'static str {
    match scenario.kind {
        Kind::Full => "full",
        Kind::SessionId => "session-id",
        Kind::Ticket => "ticket",
    }
}

/// Those whose libraries lie beside the lab first: the others need a build that valgrind can run.
const STACKS: [&str; 14] = [
    "openssl@1.1.1",
    "openssl@3.0",
    "openssl@3.4",
    "openssl@3.5",
    "openssl@4.0",
    "boringssl",
    "aws-lc",
    "s2n-tls",
    "rustls@0.23.16",
    "rustls-ring@0.23.16",
    "rustls@0.23.17",
    "rustls-ring@0.23.17",
    "rustls-ring",
    "sealane",
];
const END_CHECK: Duration = Duration::from_millis(200);
/// How the file of a recording ends.
pub(super) const SUFFIX: &str = "json.gz";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_and_a_stack_that_cannot_be_recorded_stops_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let set = wanted(&["boringssl".into(), "openssl@3.0".into()]).expect("known");
        assert_eq!(set.len(), 4);
        fs::write(set[0].file(folder.path()), "first").expect("written");
        let mut asked = Vec::new();
        let well = record(&set, folder.path(), |wanted, file| {
            asked.push(wanted.clone());
            fs::write(file, "half").expect("written");
            match wanted.stack.as_str() {
                "boringssl" => Err(Error::Unsupported("not built".into())),
                _ => Ok(()),
            }
        });
        assert!(!well.expect("not interrupted"));
        assert_eq!(asked, set[1..], "the first is there");
        let mut asked = Vec::new();
        let again = record(&set, folder.path(), |wanted, file| {
            asked.push(wanted.clone());
            fs::write(file, "whole").map_err(Error::file(file))
        });
        assert!(again.expect("recorded"));
        assert_eq!(asked, set[2..], "half a file is none");
        let text = fs::read_to_string(set[0].file(folder.path()));
        assert_eq!(text.expect("there"), "first");
    }

    #[test]
    fn an_interruption_ends_the_set() {
        let folder = tempfile::tempdir().expect("a folder");
        let set = wanted(&["aws-lc".into()]).expect("known");
        let ended = record(&set, folder.path(), |_, _| Err(Error::Interrupted));
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn a_stack_outside_the_set_is_refused_by_name() {
        let error = wanted(&["schannel".into()]).expect_err("unknown").to_string();
        assert!(error.contains("schannel") && error.contains("boringssl"), "{error}");
    }
}
