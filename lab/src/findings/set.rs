//! The recordings that the page is made of, [`wanted`], and how they are made one after the other,
//! [`record`]: what is there already stays.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    error::Error,
    progress::Progress,
    recording::Recording,
    scenario::{Kind, Scenario},
};

/// One recording that the page needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its name on the command line.
    pub(super) stack: String,
    pub(super) scenario: Scenario,
}

impl Wanted {
    /// Where it is kept, in `folder`.
    pub(super) fn file(&self, folder: &Path) -> PathBuf {
        let stack = self.stack.replace(['@', '/'], "-");
        folder.join(format!("{stack}-{}-1.3.{SUFFIX}", kind(&self.scenario)))
    }

    /// The command line that makes it.
    pub(super) fn command(&self, folder: &Path) -> String {
        format!(
            "sealane-lab count --stack {} --kind {} --record {}",
            self.stack,
            kind(&self.scenario),
            self.file(folder).display()
        )
    }
}

/// The whole set, or that of `stacks`: a full handshake and one resumed by ticket, TLS 1.3.
///
/// # Errors
/// If one of `stacks` is not in it.
pub(super) fn wanted(stacks: &[String]) -> Result<Vec<Wanted>, Error> {
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
    mut make: impl FnMut(&Wanted) -> Result<Recording, Error>,
) -> Result<bool, Error> {
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let missing: Vec<&Wanted> = set.iter().filter(|it| !it.file(folder).exists()).collect();
    let mut progress = Progress::new(missing.len() as u64);
    let mut well = true;
    for wanted in missing {
        progress.step(&format!("recording {}, {}", wanted.stack, kind(&wanted.scenario)));
        match make(wanted) {
            Ok(recording) => keep(&recording, &wanted.file(folder))?,
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

/// Under its name once it is whole, so that one that was cut short is made again.
fn keep(recording: &Recording, file: &Path) -> Result<(), Error> {
    let scratch = file.with_extension("part");
    recording.write(&scratch)?;
    fs::rename(&scratch, file).map_err(Error::file(file))
}

/// Prints the commands of `set`.
///
/// # Errors
/// Standard output is closed.
pub(super) fn print(set: &[Wanted], folder: &Path) -> Result<(), Error> {
    let commands: String = set.iter().map(|wanted| wanted.command(folder) + "\n").collect();
    io::stdout().write_all(commands.as_bytes()).map_err(Error::io("standard output"))
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
    "rustls@0.23.16-ring",
    "rustls@0.23.17",
    "rustls@0.23.17-ring",
    "rustls-ring",
    "sealane",
];
/// How the file of a recording ends.
pub(super) const SUFFIX: &str = "json.gz";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::SCHEMA;

    fn made(wanted: &Wanted) -> Recording {
        let mut recording = Recording { schema: SCHEMA.into(), ..Recording::default() };
        recording.stack.name = wanted.stack.clone();
        recording
    }

    #[test]
    fn what_is_there_stays_and_a_stack_that_cannot_be_recorded_stops_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let set = wanted(&["boringssl".into(), "openssl@3.0".into()]).expect("known");
        assert_eq!(set.len(), 4);
        made(&set[0]).write(&set[0].file(folder.path())).expect("written");
        let mut asked = Vec::new();
        let well = record(&set, folder.path(), |wanted| {
            asked.push(wanted.clone());
            match wanted.stack.as_str() {
                "boringssl" => Err(Error::Unsupported("not built".into())),
                _ => Ok(made(wanted)),
            }
        });
        assert!(!well.expect("not interrupted"));
        assert_eq!(asked, set[1..], "the first is there");
        let again = record(&set, folder.path(), |wanted| Ok(made(wanted)));
        assert!(again.expect("recorded"));
        for wanted in &set {
            let recording = Recording::read(&wanted.file(folder.path())).expect("there");
            assert_eq!(recording.stack.name, wanted.stack);
        }
    }

    #[test]
    fn an_interruption_ends_the_set_and_leaves_no_part() {
        let folder = tempfile::tempdir().expect("a folder");
        let set = wanted(&["aws-lc".into()]).expect("known");
        let ended = record(&set, folder.path(), |_| Err(Error::Interrupted));
        assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0);
    }

    #[test]
    fn a_stack_outside_the_set_is_refused_by_name() {
        let error = wanted(&["schannel".into()]).expect_err("unknown").to_string();
        assert!(error.contains("schannel") && error.contains("boringssl"), "{error}");
    }

    #[test]
    fn every_command_is_a_command_line() {
        for wanted in wanted(&[]).expect("all") {
            let command = wanted.command(Path::new("recordings"));
            let words = command.split(' ').skip(1).map(str::to_owned);
            crate::cli::parses(words).unwrap_or_else(|error| panic!("{command}: {error}"));
        }
    }
}
