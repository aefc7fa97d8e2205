//! The command `findings`: what each stack's threads share today, from recordings, and what servers
//! share in the kernel, with who writes it and what would remove it; one page, the same as text,
//! and a document.
//!
//! ```text
//! recordings --> what is shared, summed --+--> page, text, document
//! documents of `forecast` ----------------+
//! ledgers of `count --kernel` ------------+
//! findings.toml: what people know --------+
//! ```

mod sharing;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use sealane_lab_harness::{
    journal::{self, Journal},
    options::Json,
};
use sealane_lab_model::{
    document::{Forecast, KernelLedger, KernelOrigin, Run},
    error::Error,
    recording::Recording,
};

use crate::show;

/// The arguments of `findings`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Recordings, documents of `count --kernel`, `findings`, `forecast` and `validate`, or folders
    /// of these
    #[arg(value_name = "FROM", required = true, num_args = 1..=FROM_MAX)]
    from: Vec<PathBuf>,
    /// Prints the command that makes each recording again instead, into the folder where it runs
    #[arg(long)]
    commands: bool,
    /// The page to write
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    #[command(flatten)]
    json: Json,
}

/// Draws the page of a run into a file, if one is given, and says the same as text.
pub type Tell = fn(&Run, Option<&Path>) -> Result<String, Error>;

/// `tell` shows what was found.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments, tell: Tell) -> Result<(), Error> {
    let mut journal = Journal::begin(env::args().collect(), arguments.json.path());
    gather(&files(&arguments.from)?, &mut journal.run)?;
    if arguments.commands {
        let commands = journal.run.findings.iter().map(|it| it.recorded.command.join(" ") + "\n");
        return show(&commands.collect::<String>());
    }
    journal.save(true)?;
    show(&tell(&journal.run, arguments.output.as_deref())?)
}

/// What `files` say of stacks and servers, each stack and scenario and each server once: the last
/// file that tells of it counts.
fn gather(files: &[PathBuf], run: &mut Run) -> Result<(), Error> {
    let mut forecasts = Vec::new();
    for file in files {
        if file.to_string_lossy().ends_with(RECORDING) {
            run.findings.push(sharing::finding(&Recording::read(file)?));
        } else {
            let mut document = journal::read(file)?;
            run.findings.append(&mut document.findings);
            forecasts.append(&mut document.forecasts);
            run.validation = document.validation.take().or(run.validation.take());
            run.kernel_ledgers.extend(ledgers(document));
        }
    }
    if run.findings.is_empty() && run.kernel_ledgers.is_empty() {
        return Err(Error::Check(format!(
            "there is no recording and no ledger among {} files; sealane-lab count --record FILE \
             makes a recording, sealane-lab count --kernel --json FILE ledgers of servers",
            files.len()
        )));
    }
    sort(run);
    for finding in &mut run.findings {
        let same = |forecast: &&Forecast| {
            (&forecast.stack, &forecast.version, &forecast.scenario)
                == (&finding.stack, &finding.version, &finding.scenario)
        };
        if let Some(forecast) = forecasts.iter().rfind(same) {
            finding.forecast = Some(forecast.clone());
        }
    }
    Ok(())
}

/// The ledgers of a document, each with where it comes from; those without figures tell nothing.
fn ledgers(document: Run) -> impl Iterator<Item = KernelLedger> {
    let origin = KernelOrigin {
        started: document.started,
        kernel: document.machine.kernel,
        processors: document.machine.processors as u64,
        command: as_typed(document.command),
    };
    let counted = document.kernel_ledgers.into_iter().filter(|ledger| ledger.failure.is_none());
    counted.map(move |ledger| {
        let origin = ledger.origin.or_else(|| Some(origin.clone()));
        KernelLedger { origin, ..ledger }
    })
}

/// Without the folder of whoever built the lab.
fn as_typed(mut words: Vec<String>) -> Vec<String> {
    if let Some(program) = words.first_mut() {
        "sealane-lab".clone_into(program);
    }
    words
}

/// By name and scenario, of each the last.
fn sort(run: &mut Run) {
    run.findings.reverse();
    run.findings.sort_by(|a, b| (&a.stack, &a.scenario).cmp(&(&b.stack, &b.scenario)));
    run.findings.dedup_by(|b, a| (&a.stack, &a.scenario) == (&b.stack, &b.scenario));
    run.kernel_ledgers.reverse();
    run.kernel_ledgers.sort_by(|a, b| a.server.cmp(&b.server));
    run.kernel_ledgers.dedup_by(|b, a| a.server == b.server);
}

/// All recordings and documents of `from`, folders' in the order of their names.
fn files(from: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for path in from {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let entries = fs::read_dir(path).map_err(Error::file(path))?;
        let mut inside: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        inside.retain(|file| {
            let name = file.to_string_lossy();
            name.ends_with(RECORDING) || name.ends_with(".json")
        });
        inside.sort_unstable();
        files.append(&mut inside);
    }
    match files.len() {
        0..=FILES_MAX => Ok(files),
        many => Err(Error::Check(format!("{many} files; at most {FILES_MAX} fit on a page"))),
    }
}

const FILES_MAX: usize = 256;
const FROM_MAX: usize = 64;
/// How the file of a recording ends.
const RECORDING: &str = "json.gz";

#[cfg(test)]
mod tests {
    use super::*;

    /// A document of another command keeps where its ledgers come from.
    #[test]
    fn a_ledger_keeps_its_origin_through_documents() {
        let run = |started: &str, ledger: KernelLedger| Run {
            started: started.into(),
            command: vec!["/somewhere/sealane-lab".into(), "count".into()],
            kernel_ledgers: vec![ledger],
            ..Run::default()
        };
        let one = KernelLedger { server: "a".into(), ..KernelLedger::default() };
        let first: Vec<_> = ledgers(run("2026-01-02T03:04:05Z", one)).collect();
        let again: Vec<_> = ledgers(run("2027-01-02T03:04:05Z", first[0].clone())).collect();
        assert_eq!(again, first);
        let origin = again[0].origin.as_ref().expect("an origin");
        assert_eq!(origin.started, "2026-01-02T03:04:05Z");
        assert_eq!(origin.command, ["sealane-lab", "count"]);
    }
}
