//! The highest rate at which round trips keep to a given 99th percentile, by strategy: [`find`].

use std::{path::Path, time::Duration};

use sealane_lab_harness::{
    interrupt::Interrupt,
    progress::Progress,
    search,
    trial::{Reply, Task, launch},
};
use sealane_lab_model::{document::Strategies, error::Error};

use crate::certificates::{Arguments, task::CertificateTask};

/// Searches up to what each ordinary row bore in a closed loop, that without TLS included, and
/// tells it there: in each round once, one row after the other. Zero is told where not even the
/// lowest rate that was tried keeps to `p99_max_ms`.
///
/// # Errors
/// A trial failed, or [`Error::Interrupted`].
pub(super) fn find(
    arguments: &Arguments,
    folder: &Path,
    p99_max_ms: u32,
    strategies: &mut Strategies,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    strategies.settings.insert("99% to take at most".to_owned(), format!("{p99_max_ms} ms"));
    let tasks: Vec<_> = arguments.tasks(folder).into_iter().map(|(_, task)| task).collect();
    let mut searched: Vec<_> = strategies
        .rows
        .iter_mut()
        .zip(tasks)
        .filter(|(row, task)| arguments.is_searched(task) && row.failure.is_none())
        .collect();
    let rounds = arguments.shuffled.number();
    let mut progress =
        Progress::new(u64::from(rounds) * searched.len() as u64 * u64::from(STEPS_MAX));
    for _ in 0..rounds {
        for (row, task) in &mut searched {
            let Some(most) = row.median("rate") else { continue };
            let name = row.strategy.clone();
            let mut steps = 0..STEPS_MAX;
            let kept = search::highest(most, STEPS_MAX, |rate| {
                if interrupt.is_pressed() {
                    return Err(Error::Interrupted);
                }
                steps.next();
                progress.step(&format!("{name}: {rate:.0} per second"));
                let keeps = keeps(&at_rate(task, rate), p99_max_ms, arguments.time_max())?;
                progress.done();
                Ok(keeps)
            })?;
            steps.for_each(|_| progress.done());
            let kept = kept.unwrap_or(0.0);
            progress.note(&format!("{name}: 99% take at most {p99_max_ms} ms up to {kept:.0}/s"));
            row.figures.entry(KEPT_RATE.to_owned()).or_default().push(kept);
        }
    }
    Ok(())
}

/// The same connections, so many each second.
fn at_rate(task: &CertificateTask, rate: f64) -> CertificateTask {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let connections = (rate * STEP_SECONDS).max(STEP_CONNECTIONS_MIN) as usize;
    CertificateTask { rate: Some(rate), connections, ..task.clone() }
}

/// Whether all connections are right, and 99% of them are at their end in time.
fn keeps(task: &CertificateTask, p99_max_ms: u32, time_max: Duration) -> Result<bool, Error> {
    let load = task.rate.map_or(0.0, |rate| task.connections as f64 / rate);
    let time_max = time_max + Duration::from_secs_f64(load);
    let Reply::Figures { figures, .. } = launch::run(&Task::new(task)?, time_max)? else {
        return Err(Error::Check("the trial told something else than figures".into()));
    };
    let is_whole = figures.get("verified") == Some(&(task.connections as f64));
    let in_time = figures.get("p99_ms").is_some_and(|p99_ms| *p99_ms <= f64::from(p99_max_ms));
    Ok(is_whole && in_time)
}

/// The figure's name.
pub(super) const KEPT_RATE: &str = "kept_rate";
/// So the answer is within a thirty-second of what was borne.
const STEPS_MAX: u32 = 6;
/// The length of a step's load, and fewer connections would have no 99th percentile.
const STEP_SECONDS: f64 = 3.0;
const STEP_CONNECTIONS_MIN: f64 = 100.0;
