//! What is counted: [`Subject`], one stack in one scenario, as a trial of fixed length under each
//! instrument.

use std::{env, path::PathBuf};

use sealane_lab_harness::{
    credentials::Credentials,
    phase, programs,
    trial::{Fixed, Task},
};
use sealane_lab_model::{
    document::{ALLOCATOR, BySide, CountResult, LockCounts, SharedWrites},
    error::Error,
    scenario::Scenario,
    statistics::Spread,
};
use sealane_lab_stacks::handshake::{Handshakes, task::fault::Fault};

use crate::count::{
    Tools, instructions,
    lines::{self, Lines},
    locks,
    run::Program,
};

/// One stack in one scenario.
pub(super) struct Subject {
    /// The stack's name or path.
    pub(super) stack: String,
    scenario: Scenario,
    /// Whether MiB are counted, not handshakes.
    pub(super) is_bulk: bool,
    fault: Option<Fault>,
    binary: PathBuf,
}

impl Subject {
    /// Nothing is run yet.
    ///
    /// # Errors
    /// This program's own path is not known.
    pub(super) fn new(
        stack: &str,
        scenario: Scenario,
        fault: Option<Fault>,
    ) -> Result<Self, Error> {
        let binary = env::current_exe().map_err(Error::io("this program's path"))?;
        Ok(Self { stack: stack.to_owned(), scenario, is_bulk: false, fault, binary })
    }

    /// Without figures yet.
    pub(super) fn result(&self) -> CountResult {
        CountResult {
            stack: self.stack.clone(),
            scenario: self.scenario.clone(),
            unit: self.is_bulk.then(|| BULK_UNIT.to_owned()),
            repeats: 1,
            ..CountResult::default()
        }
    }

    /// Lock acquisitions, `with_sites` also where.
    ///
    /// # Errors
    /// What stopped the trial.
    pub(super) fn locks(&self, tools: &Tools, with_sites: bool) -> Result<LockCounts, Error> {
        let folder = tools.folder.path();
        let (program, handshakes) = self.trial(tools, THREADS, LOCKS)?;
        let mut counts = locks::count(&program, handshakes, folder, &tools.stop)?;
        if with_sites {
            let (program, handshakes) = self.trial(tools, THREADS, SITES)?;
            counts.sites = locks::sites(&program, handshakes, folder, &tools.stop)?;
        }
        Ok(counts)
    }

    /// Instructions by side.
    ///
    /// # Errors
    /// What stopped the trial, or this build does not run under valgrind.
    pub(super) fn instructions(&self, tools: &Tools) -> Result<BySide<f64>, Error> {
        needs_a_build_for_counting(&self.stack)?;
        let (short, few) = self.trial(tools, 1, SHORT)?;
        let (long, many) = self.trial(tools, 1, LONG)?;
        let side = |function| {
            let lengths = [(&short, few), (&long, many)];
            instructions::count(function, lengths, tools.folder.path(), &tools.stop)
        };
        let [server, client] = phase::FUNCTIONS;
        Ok(BySide { server: side(server)?, client: side(client)? })
    }

    /// Writes to lines that both threads write.
    ///
    /// # Errors
    /// Those of [`Self::instructions`].
    pub(super) fn lines(&self, tools: &Tools) -> Result<Lines, Error> {
        needs_a_build_for_counting(&self.stack)?;
        let length = Fixed { warm_up: tools.handshakes, count: tools.handshakes };
        let (program, handshakes) = self.trial(tools, THREADS, length)?;
        lines::count(&program, handshakes, &tools.stop, &tools.progress)
    }

    /// The trial and how many handshakes it does, all threads together.
    fn trial(&self, tools: &Tools, threads: usize, fixed: Fixed) -> Result<(Program, u64), Error> {
        let task = Task::new(&self.task(tools, threads, fixed)?)?;
        let task = serde_json::to_string(&task)
            .map_err(|error| Error::Check(format!("a task as JSON: {error}")))?;
        let operations = fixed.count * threads as u64;
        let program = Program {
            binary: self.binary.clone(),
            arguments: vec!["trial".into(), task.into()],
            operations: Some(operations),
            warm_up: Some(fixed.warm_up * threads as u64),
            environment: Vec::new(),
        };
        Ok((program, operations))
    }

    fn task(&self, tools: &Tools, threads: usize, fixed: Fixed) -> Result<Handshakes, Error> {
        let key = self.scenario.key;
        let folder = tools.folder.path().join(format!("{key:?}"));
        if !folder.exists() {
            Credentials::make_chain(&folder, key, self.scenario.chain)?;
        }
        Ok(Handshakes {
            stack: self.stack.clone(),
            scenario: self.scenario.clone(),
            credentials: folder,
            threads,
            pin: Vec::new(),
            window_ms: 0,
            fixed: Some(fixed),
            bulk: self.is_bulk,
            fault: self.fault,
        })
    }
}

/// Stacks that are linked into the lab need it; of others, the lab cannot tell.
pub(super) fn needs_a_build_for_counting(stack: &str) -> Result<(), Error> {
    programs::installed("valgrind", VALGRIND)?;
    let linked = stack.starts_with("rustls-") || stack.starts_with("sealane");
    // With a version behind it, it is a library of its own.
    let linked = linked && !stack.contains('@');
    if !linked || IS_BUILT_FOR_COUNTING {
        return Ok(());
    }
    Err(Error::Missing {
        program: format!("a build of the lab in which {stack} runs under valgrind"),
        remedy: "lab/build-for-counting && target/count/count/sealane-lab ...".into(),
    })
}

/// One result of several times: locks and lines of the first, the instructions' median; and in
/// words what was not the same.
pub(super) fn merged(times: Vec<CountResult>) -> (CountResult, String) {
    let mut differences = String::new();
    let said: Vec<Vec<String>> = times.iter().map(integers).collect();
    for (number, said_now) in said.iter().enumerate().skip(1) {
        let only = |of: &Vec<String>, not: &Vec<String>| -> Vec<String> {
            of.iter().filter(|line| !not.contains(line)).cloned().collect()
        };
        for line in only(&said[0], said_now) {
            differences += &format!("  only the 1st time: {line}\n");
        }
        for line in only(said_now, &said[0]) {
            differences += &format!("  only time {}: {line}\n", number + 1);
        }
    }
    let repeats = u32::try_from(times.len()).unwrap_or(u32::MAX);
    let instructions: Vec<_> = times.iter().filter_map(|time| time.instructions).collect();
    let mut result = times.into_iter().next().unwrap_or_default();
    let side =
        |of: fn(&BySide<f64>) -> f64| Spread::of(&instructions.iter().map(of).collect::<Vec<_>>());
    if let (Some(server), Some(client)) = (side(|both| both.server), side(|both| both.client)) {
        result.instructions = Some(BySide { server: server.median, client: client.median });
        let apart = |Spread { median, min, max }| (max - min) / median;
        let spread = BySide { server: apart(server), client: apart(client) };
        result.instructions_spread = (instructions.len() > 1).then_some(spread);
    }
    result.repeats = repeats;
    result.exact = repeats > 1 && differences.is_empty();
    (result, differences)
}

/// What must be the same every time: locks, and lines but for the allocator's.
fn integers(result: &CountResult) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(locks) = &result.locks {
        let LockCounts { read, write, mutex, shared, .. } = locks;
        said.push(format!("{read:?} read, {write:?} write, {mutex:?} mutex, {shared} shared"));
    }
    if let Some(SharedWrites { total, lines, .. }) = &result.shared_writes {
        said.push(format!("{total:?} shared writes"));
        for line in lines.iter().filter(|line| line.class != ALLOCATOR) {
            let (class, symbol, writes) = (&line.class, &line.symbol, &line.writes);
            said.push(format!("{writes:?} {class} {symbol} {}", line.writers.join(", ")));
        }
    }
    said
}

/// What figures are per where they are not per handshake.
pub(crate) const BULK_UNIT: &str = "MiB";
/// The Debian packages of valgrind; the second one names the inner functions of malloc.
const VALGRIND: &str = "valgrind libc6-dbg";
/// Whether the two libraries that ask for it were told of valgrind.
const IS_BUILT_FOR_COUNTING: bool = option_env!("VALGRIND_BUG_494162").is_some()
    && option_env!("AWS_LC_SYS_NO_JITTER_ENTROPY").is_some();
/// So many that rare events show as what they are.
const LOCKS: Fixed = Fixed { warm_up: 20, count: 200 };
const LONG: Fixed = Fixed { warm_up: 2, count: 15 };
const SHORT: Fixed = Fixed { warm_up: 2, count: 5 };
/// Each call path is walked, which takes twenty times as long.
const SITES: Fixed = Fixed { warm_up: 2, count: 20 };
/// Two are enough to share.
const THREADS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(server: f64, writes: f64) -> CountResult {
        let total = BySide { server: writes, client: 0.0 };
        CountResult {
            instructions: Some(BySide { server, client: 2.0 * server }),
            shared_writes: Some(SharedWrites { total, ..SharedWrites::default() }),
            ..CountResult::default()
        }
    }

    #[test]
    fn equal_times_are_exact_whatever_their_instructions() {
        let times = vec![counted(100.0, 8.0), counted(104.0, 8.0), counted(101.0, 8.0)];
        let (result, differences) = merged(times);
        assert!(result.exact && differences.is_empty(), "{differences}");
        assert_eq!(result.instructions, Some(BySide { server: 101.0, client: 202.0 }));
        let spread = result.instructions_spread.expect("three times");
        assert!((spread.server - 4.0 / 101.0).abs() < 1e-9);
    }

    #[test]
    fn a_difference_is_told() {
        let (result, differences) = merged(vec![counted(1.0, 8.0), counted(1.0, 9.0)]);
        assert!(!result.exact);
        assert!(differences.contains("9"), "{differences}");
    }

    #[test]
    fn a_single_time_proves_nothing() {
        assert!(!merged(vec![counted(1.0, 8.0)]).0.exact);
    }
}
