//! Why a stack stops scaling: counts its locks, records one thread, forecasts many, and says which
//! line they would wait for.
//!
//! ```text
//! locks and call paths --> shared lines, recorded --> time alone --> replays --> text, page
//! ```

use std::{
    env,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal::{self, Journal},
    progress::Progress,
};
use sealane_lab_model::{
    document::CountResult, error::Error, library::Identity, recording::Recording,
};
use sealane_lab_report::page;
use sealane_lab_sharing::{
    count,
    forecast::{self, Target, replays::Watch, table},
    replay, transfer,
};

/// What is asked of stacks.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Of a stack")]
pub(crate) struct Question {
    #[command(flatten)]
    scenario: count::Asked,
    /// Numbers of threads, one per core, to forecast, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,32,48,64,80",
        value_parser = clap::value_parser!(u32).range(2..=i64::from(replay::THREADS_MAX)))]
    cores: Vec<u32>,
    /// What a moved cache line costs: `measured` here, or of a machine by its name
    #[arg(long, default_value = "measured")]
    profile: String,
}

/// Where results go.
pub(super) struct Output<'a> {
    pub(super) json: Option<&'a Path>,
    pub(super) html: Option<&'a Path>,
}

/// `true` if every stack has a forecast. `stacks` are names or paths, separated by commas.
///
/// # Errors
/// What stopped it; what was found before is written all the same.
pub(super) fn run(stacks: &str, asked: &Question, output: &Output<'_>) -> Result<bool, Error> {
    let stop = Interrupt::catch()?;
    count::needs_valgrind()?;
    let mut journal = Journal::begin(env::args().collect(), output.json);
    let stacks: Vec<&str> = stacks.split(',').filter(|stack| !stack.is_empty()).collect();
    let done = all(&stacks, asked, &mut journal, &stop);
    let run = &mut journal.run;
    run.forecast_comparisons = forecast::comparisons(&run.forecasts);
    journal.save(done.is_ok())?;
    show(&table::comparisons(&journal.run.forecast_comparisons))?;
    let found = !journal.run.counts.is_empty();
    if let Some(html) = output.html.filter(|_| found) {
        let headline = draw(&journal, html)?;
        show(&format!("\n{headline}\n{}\n", html.display()))?;
    }
    done
}

/// Where no terminal shows each count's own line.
struct Steps {
    progress: Progress,
    number: u64,
    all: u64,
}

fn all(
    stacks: &[&str],
    asked: &Question,
    journal: &mut Journal,
    stop: &Interrupt,
) -> Result<bool, Error> {
    let target = Target::new(transfer::profile(&asked.profile, stop)?, &asked.cores);
    // On a terminal, each count has its own line.
    let all = STEPS * stacks.len() as u64;
    let steps = || Steps { progress: Progress::new(all), number: 0, all };
    let mut said = (!io::stderr().is_terminal()).then(steps);
    let mut well = true;
    for stack in stacks {
        match one(stack, asked, &target, journal, stop, said.as_mut()) {
            Ok(text) => show(&text)?,
            Err(Error::Check(reason) | Error::Unsupported(reason)) => {
                well = false;
                show(&format!("\n{stack}: not enough to say: {reason}\n"))?;
                let scenario = asked.scenario.scenario();
                let result = journal.run.counts.iter_mut().find(|count| count.stack == *stack);
                match result {
                    Some(count) => count.failure = Some(reason),
                    None => journal.run.counts.push(CountResult {
                        stack: (*stack).to_owned(),
                        scenario,
                        failure: Some(reason),
                        ..CountResult::default()
                    }),
                }
            }
            Err(error) => return Err(error),
        }
        journal.save(false)?;
    }
    Ok(well)
}

/// One stack: what was counted of it is in the journal even if the forecast is not reached.
fn one(
    stack: &str,
    asked: &Question,
    target: &Target,
    journal: &mut Journal,
    stop: &Interrupt,
    mut said: Option<&mut Steps>,
) -> Result<String, Error> {
    // A step may take minutes: each is told, however short the one before it was.
    let mut step = |what: &str| {
        if let Some(steps) = said.as_deref_mut() {
            steps.number += 1;
            let Steps { progress, number, all } = steps;
            progress.note(&format!("{number} of {all}: {stack}: {what}"));
        }
    };
    let scenario = asked.scenario.scenario();
    step("locks, and where they are taken");
    let locks = count::locks(stack, scenario.clone(), stop)?;
    journal.run.counts.push(locks);
    journal.save(false)?;
    step("shared lines, and what a thread does between them: minutes under valgrind");
    let (count, recording) = count::recorded(stack, scenario, stop)?;
    add(journal, count, &recording);
    journal.save(false)?;
    step("forecasts");
    let watch = Watch::new(stop, forecast::replays_max(target));
    let forecast = forecast::of(&recording, target, &watch)?;
    drop(watch);
    let text = table::text(&forecast);
    journal.run.forecasts.push(forecast);
    Ok(text)
}

/// Puts the lines to the locks of the same stack, under the name that the stack itself tells.
fn add(journal: &mut Journal, count: CountResult, recording: &Recording) {
    let Identity { name, .. } = &recording.stack;
    if let Some(result) = journal.run.counts.last_mut() {
        result.stack.clone_from(name);
        result.shared_writes = count.shared_writes;
        result.instructions = count.instructions;
    }
    journal.run.stacks.push(recording.stack.clone());
}

/// The page of what there is; returns what it says first.
fn draw(journal: &Journal, html: &Path) -> Result<String, Error> {
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let document: PathBuf = folder.path().join("why.json");
    journal::write(&document, &journal.run)?;
    Ok(page::write(&[document], Vec::new(), html)?.headline)
}

fn show(text: &str) -> Result<(), Error> {
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))
}

/// Locks, lines, forecasts.
const STEPS: u64 = 3;
