//! The command `gate`: holds stacks, servers and tests to a budget of shared writes, lock
//! acquisitions and instructions per operation, and ends with a status that a build can act on.
//!
//! ```text
//! budget.toml -> [[stack]]  a trial of the lab's      per handshake
//!                [[server]] a program that listens    per connection, a slope    -> limits -> 0, 1
//!                [[test]]   a program that is told    per operation, a slope
//!                           how much to do
//! ```

mod budget;
mod judge;
mod reader;
mod table;

use std::{
    collections::BTreeSet,
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use sealane_lab_harness::{journal::Journal, options::Json};
use sealane_lab_model::{
    document::{BySide, CountResult, GateResult},
    error::Error,
};
use sealane_lab_stacks::handshake::task::fault::Fault;

use crate::{
    count::{self, Counts, OfStack, Plain, Tools, Wanted, found},
    gate::{
        budget::{Budget, Entry, Figure, Stack, Subject, Test},
        judge::Found,
    },
    kernel_ledger::file_table,
    show,
};

/// The arguments of `gate`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = AFTER_HELP)]
pub struct Arguments {
    /// The limits; lab/GATE.md has its format
    #[arg(long, value_name = "FILE")]
    budget: PathBuf,
    /// Only the entry of that name; may be given again
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    #[command(flatten)]
    json: Json,
}

/// How it went, as an exit status: see `gate --help`.
///
/// # Errors
/// [`Error::Interrupted`]; whatever else stops it has a status.
pub fn run(arguments: &Arguments) -> Result<ExitCode, Error> {
    match gate(arguments) {
        Err(error) if !matches!(error, Error::Interrupted) => {
            let _ = writeln!(io::stderr(), "sealane-lab: {error}");
            Ok(ExitCode::from(NOT_COUNTED_STATUS))
        }
        other => other,
    }
}

fn gate(arguments: &Arguments) -> Result<ExitCode, Error> {
    let file = arguments.budget.display().to_string();
    let budget = match Budget::read(&arguments.budget).and_then(|it| chosen(it, arguments, &file)) {
        Ok(budget) => budget,
        Err(told) => {
            let _ = writeln!(io::stderr(), "{told}");
            return Ok(ExitCode::from(WRONG_FILE_STATUS));
        }
    };
    let mut tools = Tools::new(1)?;
    let mut journal = Journal::begin(env::args().collect(), arguments.json.path());
    for entry in &budget.entries {
        let result = gated(entry, &file, &mut tools)?;
        show(&table::text(entry, &result))?;
        let prove = result.kept && matches!(&entry.subject, Subject::Stack(stack) if stack.prove);
        journal.run.gates.push(result);
        if prove {
            let proof = proven(entry, &file, &mut tools)?;
            show(&proof_text(&proof))?;
            journal.run.gates.push(proof);
        }
        journal.save(false)?;
    }
    journal.save(true)?;
    status(&journal.run.gates)
}

/// The last line, and what it means.
fn status(results: &[GateResult]) -> Result<ExitCode, Error> {
    let failed = results.iter().filter(|result| result.failure.is_some()).count();
    let exceeded = results.iter().filter(|result| !result.kept).count() - failed;
    let kept = results.len() - exceeded - failed;
    show(&format!("\ngate: {kept} kept, {exceeded} exceeded, {failed} not counted\n"))?;
    Ok(match (exceeded, failed) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(NOT_COUNTED_STATUS),
        _ => ExitCode::FAILURE,
    })
}

/// The entries that were asked for.
fn chosen(mut budget: Budget, arguments: &Arguments, file: &str) -> Result<Budget, String> {
    let names: BTreeSet<&str> = budget.entries.iter().map(|entry| entry.name.as_str()).collect();
    if let Some(unknown) = arguments.only.iter().find(|name| !names.contains(name.as_str())) {
        let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
        return Err(format!(
            "{file}: nothing is called {unknown:?}; there is {}",
            names.join(", ")
        ));
    }
    if !arguments.only.is_empty() {
        budget.entries.retain(|entry| arguments.only.contains(&entry.name));
    }
    Ok(budget)
}

/// One entry, counted and judged; what it cannot be counted for is in the result.
fn gated(entry: &Entry, file: &str, tools: &mut Tools) -> Result<GateResult, Error> {
    failed_or(entry, counted(entry, None, tools).map(|found| judge::judged(entry, found, file)))
}

/// The same with one clone of a global `Arc` in each handshake or MiB, which must exceed it.
fn proven(entry: &Entry, file: &str, tools: &mut Tools) -> Result<GateResult, Error> {
    let judged = counted(entry, Some(Fault::ArcClone), tools)
        .map(|found| judge::judged(entry, found, file))
        .and_then(|judged| match judged.kept {
            true => Err(Error::Check(format!(
                "one clone of a global Arc in each {} did not exceed the budget: it is too wide, \
                 or this gate is blind",
                entry.subject.unit()
            ))),
            false => Ok(GateResult { kept: true, ..judged }),
        });
    let result = failed_or(entry, judged)?;
    Ok(GateResult { name: format!("{}, and one clone of a global Arc", entry.name), ..result })
}

fn proof_text(proof: &GateResult) -> String {
    match &proof.failure {
        Some(failure) => format!("  {}: NOT FOUND: {failure}\n", proof.name),
        None => {
            let found = proof.excess.join("\n").replace('\n', "\n    ");
            format!("  {}: exceeds the budget, as it must:\n    {found}\n", proof.name)
        }
    }
}

fn failed_or(entry: &Entry, result: Result<GateResult, Error>) -> Result<GateResult, Error> {
    let reason = match result {
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(Error::Check(reason)) => reason,
        Err(error) => error.to_string(),
        Ok(result) => return Ok(result),
    };
    Ok(GateResult { failure: Some(reason), ..judge::unjudged(entry) })
}

fn counted(entry: &Entry, fault: Option<Fault>, tools: &mut Tools) -> Result<Found, Error> {
    let with_locks = entry.limits.iter().any(|limit| limit.figure.is_lock());
    let with_trace = entry.limits.iter().any(|limit| !limit.figure.is_lock());
    let found = match &entry.subject {
        Subject::Stack(stack) => {
            let Stack { stack, scenario, is_bulk, handshakes, .. } = stack;
            let asked = OfStack { stack, scenario, is_bulk: *is_bulk, fault };
            let wanted = (with_trace, with_locks, *handshakes);
            return Ok(of_stack(count::of_stack(&asked, wanted, tools)?));
        }
        Subject::Server(server) => {
            let limits = |figure: Figure| entry.limits.iter().any(|limit| limit.figure == figure);
            let writes = limits(Figure::Writes) || !entry.allowed.is_empty();
            let instructions = limits(Figure::Instructions);
            // What takes seconds comes first.
            let table =
                limits(Figure::TableWrites).then(|| file_table(server, tools)).transpose()?;
            let wanted = Wanted { instructions, locks: with_locks, writes };
            return Ok(Found { table, ..of_counts(server.count(wanted, tools)?) });
        }
        Subject::Test(test) => plain(test)?.count(with_locks, tools)?,
    };
    Ok(of_counts(found))
}

fn of_counts(Counts { writes, instructions, locks }: Counts) -> Found {
    let instructions = BySide { server: instructions, client: 0.0 };
    Found { writes, instructions, locks: locks.unwrap_or_default(), table: None }
}

fn of_stack(result: CountResult) -> Found {
    Found {
        writes: result.shared_writes.unwrap_or_default(),
        instructions: result.instructions.unwrap_or_default(),
        locks: result.locks.unwrap_or_default(),
        table: None,
    }
}

fn plain(test: &Test) -> Result<Plain, Error> {
    let binary = match test.binary.contains('*') {
        true => newest(&test.binary)?,
        false => found(&test.binary)?,
    };
    Ok(Plain { binary, arguments: test.arguments.clone(), operations: test.operations })
}

/// The program that was built last of those that match, where `*` stands for anything in the name.
fn newest(pattern: &str) -> Result<PathBuf, Error> {
    let path = Path::new(pattern);
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let entries = fs::read_dir(folder.unwrap_or(Path::new("."))).into_iter().flatten().flatten();
    let built = |entry: &fs::DirEntry| -> Option<(SystemTime, PathBuf)> {
        let metadata = entry.metadata().ok()?;
        let is_program = metadata.is_file() && is_executable(&metadata);
        let matches = matches(&name, &entry.file_name().to_string_lossy());
        (is_program && matches).then_some((metadata.modified().ok()?, entry.path()))
    };
    let newest = entries.filter_map(|entry| built(&entry)).max();
    newest.map(|(_, path)| path).ok_or_else(|| Error::Missing {
        program: format!("a program at {pattern}"),
        remedy: "cargo test --no-run, with the profile that the path is of".into(),
    })
}

fn is_executable(metadata: &fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o111 != 0
}

/// Whether `name` is `pattern`, where each `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            ends.into_iter().any(|at| matches(rest, &name[at..]))
        }),
    }
}

const AFTER_HELP: &str = "\
Exit status: 0 every limit is kept; 1 one is exceeded; 2 the budget or the command line is wrong;
3 something could not be counted (a program is missing, crashed, or does not do what it is told) and
nothing is exceeded; 130 interrupted.

The budget, of a project that has a test `adds` which does SEALANE_GATE_OPERATIONS operations:

  [[test]]
  name = \"adding\"
  binary = \"target/gate/deps/adds-*\"
  writes_max = 0
  mutexes_max = 0
  instructions_max = 100

Paths are from the folder in which gate runs. lab/GATE.md has the rest.";
const NOT_COUNTED_STATUS: u8 = 3;
const WRONG_FILE_STATUS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::{OPERATIONS, PLACEHOLDERS};

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, name, expected) in [
            ("adds-*", "adds-0123", true),
            ("adds-*", "adds", false),
            ("a*s", "adds", true),
            ("*", "", true),
            ("adds", "adds-1", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_exceeded_weighs_more_than_what_was_not_counted() {
        let of = |kept: bool, failure: Option<&str>| GateResult {
            kept,
            failure: failure.map(str::to_owned),
            ..GateResult::default()
        };
        let status = |results: &[GateResult]| format!("{:?}", status(results).expect("output"));
        let code = |number: u8| format!("{:?}", ExitCode::from(number));
        let (kept, exceeded, failed) = (of(true, None), of(false, None), of(false, Some("no")));
        assert_eq!(status(std::slice::from_ref(&kept)), code(0));
        assert_eq!(status(&[kept.clone(), failed.clone()]), code(3));
        assert_eq!(status(&[exceeded, failed, kept]), code(1));
    }

    #[test]
    fn the_help_names_what_the_code_does() {
        assert!(AFTER_HELP.contains(OPERATIONS));
        let page = include_str!("../../GATE.md");
        for word in PLACEHOLDERS.iter().chain([&OPERATIONS]) {
            assert!(page.contains(word), "GATE.md does not explain {word}");
        }
    }
}
