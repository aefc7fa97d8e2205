//! What runs are told on the command line, the same words in every command: [`Json`], [`Resume`],
//! [`Rounds`], [`Seed`], and [`Shuffled`] for three of them.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use sealane_lab_model::error::Error;
use serde::Serialize;

use crate::{interrupt::Interrupt, journal::Journal};

/// The file that the document goes to.
#[derive(Clone, Debug, clap::Args)]
pub struct Json {
    /// Writes the document there; what is measured in rounds, after each of them
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Json {
    /// The file's path, if there is to be one.
    pub fn path(&self) -> Option<&Path> {
        self.json.as_deref()
    }

    /// Writes `document`, of a command whose document is no
    /// [`Run`](sealane_lab_model::document::Run).
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, document: &impl Serialize) -> Result<(), Error> {
        let Some(path) = &self.json else { return Ok(()) };
        let text = serde_json::to_string_pretty(document)
            .map_err(|error| Error::Check(format!("a document as JSON: {error}")))?;
        fs::write(path, text + "\n").map_err(Error::file(path))
    }
}

/// The run to go on with.
#[derive(Clone, Debug, clap::Args)]
pub struct Resume {
    /// Goes on with the run in that document, which Ctrl-C or a crash left incomplete, as it began
    #[arg(long, value_name = "FILE", exclusive = true)]
    resume: Option<PathBuf>,
}

impl Resume {
    /// The document's path, if there is one to go on with.
    pub fn path(&self) -> Option<&Path> {
        self.resume.as_deref()
    }

    /// The journal to go on with and the arguments that it began with, or a new one and
    /// `arguments`.
    ///
    /// # Errors
    /// The document cannot be read, is complete, or is of another command, machine or lab.
    pub fn journal<A: clap::Args + Clone>(
        &self,
        command: &'static str,
        arguments: &A,
        json: &Json,
    ) -> Result<(Journal, A), Error> {
        let Some(path) = &self.resume else {
            let journal = Journal::begin(env::args().collect(), json.path());
            return Ok((journal, arguments.clone()));
        };
        let wrong = |why: &str| Error::Check(format!("{}: {why}", path.display()));
        let journal = Journal::resume(path)?;
        let words = &journal.run.command;
        if words.get(1).is_none_or(|word| word != command) {
            return Err(wrong(&format!("it is no run of `{command}`")));
        }
        let parser = A::augment_args(clap::Command::new(command));
        let begun = parser
            .try_get_matches_from(words.iter().skip(1))
            .and_then(|matches| A::from_arg_matches(&matches))
            .map_err(|error| wrong(&error.to_string()))?;
        // The document says what is run, and may be another's.
        let _ = writeln!(io::stderr(), "goes on with: {}", shown(words));
        Ok((journal, begun))
    }
}

/// A command as it could be typed; what a terminal would not show as it stands is escaped.
fn shown(words: &[String]) -> String {
    let plain = |word: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:@%+".contains(c);
        !word.is_empty() && word.chars().all(is_plain)
    };
    let words = words.iter().map(|word| match plain(word) {
        true => word.clone(),
        false => format!("{word:?}"),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The number of rounds.
#[derive(Clone, Debug, clap::Args)]
pub struct Rounds {
    /// How often everything is measured, in turn [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    rounds: Option<u32>,
}

impl Rounds {
    /// The number that was given, or 5.
    pub fn number(&self) -> u32 {
        self.number_or(ROUNDS_DEFAULT)
    }

    /// The number that was given, or `usual`.
    pub fn number_or(&self, usual: u32) -> u32 {
        self.rounds.unwrap_or(usual)
    }
}

/// The seed of everything that is random.
#[derive(Clone, Debug, clap::Args)]
pub struct Seed {
    /// Determines all that is random: the order in each round, which names are asked for, the
    /// places at which threads begin
    #[arg(long, default_value_t = SEED_DEFAULT, value_name = "N")]
    pub seed: u64,
}

/// Rounds in a random order, kept in a document.
#[derive(Clone, Debug, clap::Args)]
pub struct Shuffled {
    #[command(flatten)]
    rounds: Rounds,
    #[command(flatten)]
    seed: Seed,
    /// The document.
    #[command(flatten)]
    pub json: Json,
}

impl Shuffled {
    /// What every run of rounds begins with: Ctrl-C that ends it between two of them, and its
    /// journal.
    ///
    /// # Errors
    /// Ctrl-C cannot be caught.
    pub fn begin(&self) -> Result<(Journal, Interrupt), Error> {
        let interrupt = Interrupt::catch()?;
        Ok((Journal::begin(env::args().collect(), self.json.path()), interrupt))
    }

    /// The number of rounds, as [`Rounds::number`] has it.
    pub fn number(&self) -> u32 {
        self.rounds.number()
    }

    /// The number of rounds, as [`Rounds::number_or`] has it.
    pub fn number_or(&self, usual: u32) -> u32 {
        self.rounds.number_or(usual)
    }

    /// The seed of the order, and of what else is random.
    pub fn seed(&self) -> u64 {
        self.seed.seed
    }
}

/// The seed that is taken if none is given.
pub const SEED_DEFAULT: u64 = 1;
const ROUNDS_DEFAULT: u32 = 5;

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Clone, Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        shuffled: Shuffled,
        #[command(flatten)]
        resume: Resume,
    }

    fn parsed(words: &[&str]) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(["lab"].iter().chain(words))
    }

    #[test]
    fn a_run_goes_on_with_the_arguments_that_it_began_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let file = path.to_str().unwrap();
        let words = ["sealane-lab", "ring", "--rounds=7", "--seed=3", "--json", file];
        let command = words.map(str::to_owned).to_vec();
        Journal::begin(command, Some(&path)).save(false).unwrap();
        let again = parsed(&["--resume", file]).unwrap();
        let journal = |name| again.resume.journal(name, &again, &again.shuffled.json);
        let (journal_of_ring, begun) = journal("ring").unwrap();
        assert_eq!((begun.shuffled.number(), begun.shuffled.seed()), (7, 3));
        assert_eq!(journal_of_ring.run.command, words);
        let other = journal("bulk").err().unwrap().to_string();
        assert!(other.contains("it is no run of `bulk`"), "{other}");
        assert!(parsed(&["--resume", file, "--rounds=7"]).is_err());
    }

    #[test]
    fn a_command_is_shown_as_it_could_be_typed_and_rules_no_terminal() {
        let words = ["sealane-lab", "servers", "--peer", "a=rm -r x", "\u{1b}[2J", ""];
        let shown = shown(&words.map(str::to_owned));
        assert_eq!(shown, "sealane-lab servers --peer \"a=rm -r x\" \"\\u{1b}[2J\" \"\"");
    }

    #[test]
    fn a_run_that_is_told_nothing_has_five_rounds_in_the_order_of_the_first_seed() {
        Arguments::command().debug_assert();
        let told = parsed(&[]).unwrap().shuffled;
        assert_eq!((told.number(), told.number_or(1), told.seed()), (5, 1, SEED_DEFAULT));
        assert_eq!(told.json.path(), None);
        assert!(parsed(&["--rounds=0"]).is_err());
    }
}
