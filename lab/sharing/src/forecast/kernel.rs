//! The command `forecast --kernel`: what servers come to with many threads that share a file table,
//! and with a table for each. The lock that system calls hold is a step of the replay like any
//! other.
//!
//! ```text
//! ledger: times a connection takes the lock --.
//! recording: CPU time of a handshake ----------> path --replay--> one table, a table each
//! here: how long the lock is held, lines -----'                     beside what was published
//! ```

mod hold;
mod path;
mod published;
mod table;
#[cfg(test)]
mod tests;
mod text;

use std::{collections::BTreeMap, path::Path};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal::{self, Journal},
};
use sealane_lab_model::{
    document::{FILE_TABLE, KernelForecast, KernelHold, KernelLedger, KernelPath, Run},
    error::Error,
    recording::{ByPart, Recording},
};

use super::{
    Target, base,
    replays::{KNEE_STEPS_MAX, Replays, Speed, Watch},
};
use crate::{
    forecast::SERVER,
    show,
    transfer::{self, MEASURED},
};
use path::ServerPath;
use published::Published;

pub(crate) use text::section;

/// Forecasts of the servers in `ledger` with the handshake of each of `recordings`; `true` if there
/// is one.
///
/// # Errors
/// What stopped it.
pub(super) fn run(
    ledger: &Path,
    recordings: &[Recording],
    target: &Target,
    journal: &mut Journal,
    stop: &Interrupt,
) -> Result<bool, Error> {
    let servers = servers(ledger, &journal::read(ledger)?)?;
    let published = Published::shipped()?;
    let transfer_ns = match target.profile.name == MEASURED {
        true => target.profile.transfer_ns,
        false => transfer::profile(MEASURED, stop)?.transfer_ns,
    };
    let hold = hold::measure(transfer_ns, &journal.run.machine, stop)?;
    let cores = [&target.cores[..], &[published.threads]].concat();
    let target = Target { seed: target.seed, ..Target::new(target.profile.clone(), &cores) };
    let each_max = 4 * target.cores.len() as u64 + u64::from(KNEE_STEPS_MAX) + 2;
    let watch = Watch::new(stop, (recordings.len() * servers.len()) as u64 * each_max);
    for (at, recording) in recordings.iter().enumerate() {
        let forecast = of(recording, (&servers, &hold, &published), &target, &watch)?;
        watch.skip_to(((at + 1) * servers.len()) as u64 * each_max);
        journal.run.stacks.push(recording.stack.clone());
        journal.run.kernel_forecasts.push(forecast);
        journal.save(false)?;
    }
    drop(watch);
    journal.save(true)?;
    let texts: String = journal.run.kernel_forecasts.iter().map(table::text).collect();
    show(&texts)?;
    Ok(!journal.run.kernel_forecasts.is_empty())
}

/// Names of the servers of which several threads write one table, by the times that a connection
/// takes its lock.
fn servers(file: &Path, run: &Run) -> Result<BTreeMap<u64, Vec<String>>, Error> {
    let mut servers: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for KernelLedger { server, rows, .. } in &run.kernel_ledgers {
        let table = rows.iter().find(|row| row.object == FILE_TABLE);
        if let Some(row) = table.filter(|row| row.per_connection > 0 && row.writers > 1) {
            let times = row.calls.iter().map(|call| call.per_connection * call.table_holds());
            servers.entry(times.sum()).or_default().push(server.clone());
        }
    }
    match servers.is_empty() {
        false => Ok(servers),
        true => Err(Error::Check(format!(
            "{}: no server in it has a file table that several threads write at each connection; \
             count one that has, such as: sealane-lab count --kernel --only haproxy --json FILE",
            file.display()
        ))),
    }
}

/// How long it takes from one hold to the next if all threads wait for one: with the profile's cost
/// of a moved line, and with half of it.
fn turn_ns(
    path: ServerPath,
    published: &Published,
    target: &Target,
    watch: &Watch<'_>,
) -> Result<[f64; 2], Error> {
    let crowd = ServerPath { work_ns: NO_WORK_NS, ..path };
    let recording = crowd.recording();
    let (transfer_ns, seed) = (target.profile.transfer_ns, target.seed);
    let replays = Replays::new(&recording, crowd.base_ns(), transfer_ns, seed, watch);
    let turns = crowd.holds as f64 * f64::from(published.threads);
    let of = |speed| Ok(replays.at(published.threads, speed)?.ns.server / turns);
    Ok([of(Speed::Given)?, of(Speed::Fast)?])
}

/// With one stack's handshake.
fn of(
    recording: &Recording,
    (servers, hold, published): (&BTreeMap<u64, Vec<String>>, &KernelHold, &Published),
    target: &Target,
    watch: &Watch<'_>,
) -> Result<KernelForecast, Error> {
    let (ns, source) = base::measured(recording);
    let work_ns = ns.server + ns.server_setup;
    let mut paths = Vec::new();
    for (holds, servers) in servers.iter().rev() {
        let path = ServerPath { holds: *holds, work_ns, hold_ns: hold.hold_ns, lines: hold.lines };
        let found = forecast(path, published, target, watch)?;
        paths.push(KernelPath { servers: servers.clone(), ..found });
    }
    Ok(KernelForecast {
        profile: target.profile.clone(),
        hold: hold.clone(),
        stack: recording.stack.name.clone(),
        version: recording.stack.version.clone(),
        base: base::described(&ByPart { server: work_ns, ..ByPart::default() }, source.source),
        paths,
        published: published.source(),
    })
}

/// The forecast of one way through a server, with one table and with a table for each thread.
fn forecast(
    path: ServerPath,
    published: &Published,
    target: &Target,
    watch: &Watch<'_>,
) -> Result<KernelPath, Error> {
    let recording = path.recording();
    let (transfer_ns, seed) = (target.profile.transfer_ns, target.seed);
    let together = Replays::new(&recording, path.base_ns(), transfer_ns, seed, watch);
    let own_tables = together.without(&path.table()).curve(SERVER, &target.cores)?;
    let one_table = together.curve(SERVER, &target.cores)?;
    let alone_ns = path.base_ns().server;
    let mut beside = published.beside(alone_ns, [&one_table, &own_tables]);
    beside.push(published.beside_turn(path.holds, turn_ns(path, published, target, watch)?));
    Ok(KernelPath {
        servers: Vec::new(),
        holds: path.holds,
        alone_ns,
        one_table,
        own_tables,
        beside,
    })
}

/// The work of a connection that only holds the lock; the replay wants some.
const NO_WORK_NS: f64 = 1.0;
