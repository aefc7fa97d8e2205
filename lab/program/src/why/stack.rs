//! What the threads of a stack share: counts its locks and the cache lines that two threads write,
//! with the call paths to the locks and the writers of the lines.
//!
//! ```text
//! locks and call paths --> shared lines, and who writes them --> text, page
//! ```

use std::{
    env,
    io::{self, Write},
    path::{Path, PathBuf},
};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal::{self, Journal},
};
use sealane_lab_model::{document::CountResult, error::Error, scenario::Scenario};
use sealane_lab_report::page;
use sealane_lab_sharing::count;
use sealane_lab_stacks::stacks;

/// The arguments about stacks.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Of a stack")]
pub(crate) struct Question {
    #[command(flatten)]
    scenario: count::Asked,
}

/// Where results go.
pub(super) struct Output<'a> {
    pub(super) json: Option<&'a Path>,
    pub(super) html: Option<&'a Path>,
}

/// `true` if every stack was counted. `stacks` are names or paths, separated by commas.
///
/// # Errors
/// The reason why it stopped; earlier results are written all the same.
pub(super) fn run(stacks: &str, asked: &Question, output: &Output<'_>) -> Result<bool, Error> {
    let stop = Interrupt::catch()?;
    count::needs_valgrind()?;
    let mut journal = Journal::begin(env::args().collect(), output.json);
    let scenario = asked.scenario.scenario();
    let mut well = true;
    for stack in stacks.split(',').filter(|stack| !stack.is_empty()) {
        let result = match counted(stack, &scenario, &stop) {
            Ok(result) => result,
            Err(Error::Check(reason) | Error::Unsupported(reason)) => {
                well = false;
                CountResult {
                    stack: stack.to_owned(),
                    scenario: scenario.clone(),
                    failure: Some(reason),
                    ..CountResult::default()
                }
            }
            Err(error) => {
                journal.save(false)?;
                return Err(error);
            }
        };
        show(&count::text(&result))?;
        journal.run.stacks.extend(stacks::identity(stack).ok());
        journal.run.counts.push(result);
        journal.save(false)?;
    }
    journal.save(true)?;
    if let Some(html) = output.html {
        let headline = draw(&journal, html)?;
        show(&format!("\n{headline}\n{}\n", html.display()))?;
    }
    Ok(well)
}

/// Locks and lines of one stack.
fn counted(stack: &str, scenario: &Scenario, stop: &Interrupt) -> Result<CountResult, Error> {
    let locks = count::locks(stack, scenario.clone(), stop)?;
    let lines = count::shared_lines(stack, scenario.clone(), stop)?;
    Ok(CountResult { locks: locks.locks, ..lines })
}

/// Draws the page of all results; returns its first sentence.
fn draw(journal: &Journal, html: &Path) -> Result<String, Error> {
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let document: PathBuf = folder.path().join("why.json");
    journal::write(&document, &journal.run)?;
    Ok(page::write(&[document], Vec::new(), html)?.headline)
}

fn show(text: &str) -> Result<(), Error> {
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))
}
