//! The rounds of a run: every cell once per round, in an order that turns round each time, a
//! process for each.

use std::{env, time::Duration};

use crate::{
    bulk::{
        Arguments,
        task::{BulkOutcome, BulkTask, Emulate, Loops, Runtime},
    },
    document::{BulkSeries, Machine, Run, SCHEMA, Tool},
    error::Error,
    machine::Watch,
    trial::{Line, Task, launch},
};

/// Measures everything; a cell that fails has its reason and no figures.
pub(super) fn measure(
    arguments: &Arguments,
    tasks: &[BulkTask],
    machine: Machine,
) -> Result<Run, Error> {
    let watch = Watch::begin();
    let mut run = Run {
        schema: SCHEMA.to_owned(),
        command: env::args().collect(),
        complete: true,
        tool: Tool {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        },
        machine,
        bulk: tasks.iter().map(series).collect(),
        ..Run::default()
    };
    let mut order = 0;
    for round in 0..arguments.rounds() {
        let cells = 0..tasks.len();
        let cells: Vec<usize> =
            if round % 2 == 0 { cells.collect() } else { cells.rev().collect() };
        for cell in cells {
            if run.bulk[cell].failure.is_none() {
                one(&tasks[cell], &mut run, cell, order);
                order += 1;
            }
        }
    }
    run.noise = watch.noise();
    Ok(run)
}

fn one(task: &BulkTask, run: &mut Run, cell: usize, order: u32) {
    let series = &mut run.bulk[cell];
    match outcome(task) {
        Ok(outcome) => {
            if !run.stacks.contains(&outcome.stack) {
                run.stacks.push(outcome.stack);
            }
            series.negotiated = Some(outcome.negotiated);
            let mut round = outcome.round;
            round.order = order;
            series.rounds.push(round);
        }
        Err(error) => {
            series.rounds.clear();
            series.failure = Some(error.to_string());
        }
    }
}

fn outcome(task: &BulkTask) -> Result<BulkOutcome, Error> {
    let time_max = Duration::from_secs(task.seconds_max() + TRIAL_BESIDE_S);
    match launch::run(&Task::Bulk(task.clone()), time_max)? {
        Line::Bulk(outcome) => Ok(outcome),
        _ => Err(Error::Check("the trial told something else than bytes".into())),
    }
}

fn series(task: &BulkTask) -> BulkSeries {
    let is_memory = task.runtime == Runtime::Memory;
    BulkSeries {
        stack: task.stack.clone(),
        runtime: task.runtime.name().to_owned(),
        loops: task.loops.map(Loops::name).map(str::to_owned),
        emulate: task.emulate.map(|Emulate::ErrorLock| "error-lock".to_owned()),
        scenario: task.scenario.clone(),
        threads: task.threads,
        connections: task.connections,
        messages: if is_memory { 0 } else { task.messages },
        message_bytes: task.message_bytes as u64,
        record_bytes: is_memory.then_some(task.record_bytes as u64),
        verify: Some(task.verify.name().to_owned()),
        negotiated: None,
        rounds: Vec::new(),
        failure: None,
    }
}

/// What a trial takes beside its own limit: compiling Asio's driver at first use.
const TRIAL_BESIDE_S: u64 = 300;
