//! The command `count --kernel`: a ledger of what the threads or processes of a server share in the
//! kernel, and how often one connection writes it.
//!
//! ```text
//! a server under strace ---> calls, by thread  ---.
//! kcmp(2), and how threads are born -> who has what --> writes of shared objects, N, 2N, 3N
//! ```
//! Valgrind does not see the kernel; this is the other half of `count`. Connections come one after
//! the other, each when all threads sleep again, so that the integers are the same every time.

mod account;
mod calls;
mod contention;
mod owners;
mod served;
mod text;
mod trace;
mod watch;

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use sealane_lab_harness::{
    descriptors,
    interrupt::Interrupt,
    journal::{self, Journal},
    machine,
};
use sealane_lab_model::{
    document::{FILE_TABLE, KernelLedger, KernelRow, Run},
    error::Error,
    scenario::Key,
};
use sealane_lab_servers::servers::{
    self,
    case::Case,
    key_files::KeyFiles,
    placement::Placement,
    programs::{Choice, Entry},
};

use crate::{
    count::{Server, Tools},
    kernel_ledger::{
        served::{Bed, PHASE_LENGTHS},
        watch::Watch,
    },
    show,
};

/// The arguments of `count --kernel`.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Arguments {
    /// Counts what threads or processes of servers share in the kernel: file tables, memory maps,
    /// epoll instances, listening sockets, futexes, timers
    #[arg(long, conflicts_with_all = ["stack", "serve", "handshakes", "instructions",
        "locks", "lines"])]
    kernel: bool,
    /// The binary of sealane, a release build
    #[arg(
        long,
        value_name = "PATH",
        default_value = "target/release/sealane",
        requires = "kernel"
    )]
    sealane: PathBuf,
    /// Another binary of HAProxy; may be repeated
    #[arg(long, value_name = "PATH", requires = "kernel")]
    haproxy: Vec<PathBuf>,
    /// Another server, as for `servers`; may be repeated
    #[arg(long, value_name = "NAME=COMMAND", value_parser = servers::named, requires = "kernel")]
    peer: Vec<(String, String)>,
    /// Only these servers, by the names of `servers`
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', requires = "kernel")]
    only: Vec<String>,
    /// Workers, threads or lanes of every server
    #[arg(long, value_name = "N", default_value_t = 2, requires = "kernel",
        value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Connections in the shortest length; the others have twice and three times as many
    #[arg(long, value_name = "N", default_value_t = 8, requires = "kernel",
        value_parser = clap::value_parser!(u64).range(2..=1_000))]
    connections: u64,
    /// Connections that come and stay, for the growth of file tables
    #[arg(long, value_name = "N", default_value_t = 300, requires = "kernel",
        value_parser = clap::value_parser!(u64).range(0..=20_000))]
    held: u64,
    /// Starts nothing, and takes the ledgers that were kept in that document; may be repeated
    #[arg(long, value_name = "FILE.json", requires = "kernel", conflicts_with = "json")]
    from: Vec<PathBuf>,
    /// Writes there what it prints, which is Markdown
    #[arg(long, value_name = "FILE.md", requires = "kernel")]
    text: Option<PathBuf>,
}

impl Arguments {
    /// Whether this is what was asked.
    pub fn is_asked(&self) -> bool {
        self.kernel
    }
}

/// `true` if every server that is installed was counted, and every repeat gave the same.
///
/// # Errors
/// What kept the lab from counting at all.
pub fn run(arguments: &Arguments, json: Option<&Path>, repeats: u32) -> Result<bool, Error> {
    let (runs, well) = match arguments.from.is_empty() {
        true => {
            let (run, well) = servers_counted(arguments, json, repeats)?;
            (vec![run], well)
        }
        false => {
            let runs: Result<Vec<Run>, Error> =
                arguments.from.iter().map(|file| journal::read(file)).collect();
            (runs?, true)
        }
    };
    let text = text::text(&runs);
    if let Some(file) = &arguments.text {
        fs::write(file, &text).map_err(Error::file(file))?;
    }
    show(&text)?;
    Ok(well)
}

/// Counts all servers that were asked for; whether all went well.
fn servers_counted(
    arguments: &Arguments,
    json: Option<&Path>,
    repeats: u32,
) -> Result<(Run, bool), Error> {
    let stop = Interrupt::catch()?;
    // A server with one process holds two for each connection.
    descriptors::allow(2 * (arguments.held + 3 * arguments.connections))?;
    let mut journal = Journal::begin(env::args().collect(), json);
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let files = KeyFiles::make(&folder.path().join("key"), Key::P256)?;
    let bed = Bed {
        files: &files,
        placement: Placement::together(&machine::describe().pin_order),
        workers: usize::from(arguments.workers),
        connections: arguments.connections,
        held: arguments.held,
        stop,
    };
    let mut well = true;
    for entry in entries(arguments)? {
        let ledger = match counted(&bed, &entry, arguments, (folder.path(), repeats)) {
            Ok(ledger) => ledger,
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                // One that is not installed is skipped, as in `servers`.
                well &= matches!(error, Error::Missing { .. });
                let failure = Some(error.to_string());
                KernelLedger { server: entry.name.clone(), failure, ..KernelLedger::default() }
            }
        };
        well &= ledger.exact || ledger.failure.is_some();
        journal.run.kernel_ledgers.push(ledger);
        journal.save(false)?;
    }
    journal.save(true)?;
    Ok((journal.run, well))
}

fn entries(arguments: &Arguments) -> Result<Vec<Entry>, Error> {
    let Arguments { sealane, haproxy, peer, only, .. } = arguments.clone();
    let (haproxies, peers, cases) = (haproxy, peer, vec![Case::Full]);
    let mut entries = Choice { sealane, haproxies, peers, only, cases }.entries()?;
    entries.retain(Entry::has_tls);
    Ok(entries)
}

/// One server, as often as asked.
fn counted(
    bed: &Bed<'_>,
    entry: &Entry,
    arguments: &Arguments,
    (folder, repeats): (&Path, u32),
) -> Result<KernelLedger, Error> {
    let binary = entry.program.find(&arguments.sealane)?;
    let mut all: Option<KernelLedger> = None;
    for repeat in 1..=repeats.max(1) {
        let _ = writeln!(io::stderr(), "{}: {repeat} of {repeats}", entry.name);
        let folder = folder.join(format!("{}-{repeat}", entry.name));
        let ledger = bed.ledger((entry, &binary), &folder, repeat == repeats.max(1))?;
        all = Some(match all {
            None => ledger,
            Some(first) => merged(first, ledger),
        });
    }
    all.ok_or_else(|| Error::Check("it was counted no time".into()))
}

/// Two times of one server. Where they differ, the smaller figure stands: what chance adds to one
/// of them is not what a connection does.
fn merged(first: KernelLedger, next: KernelLedger) -> KernelLedger {
    let KernelLedger { rows, growth, contention, unseen, .. } = next;
    let one = |(first, next): (KernelRow, KernelRow)| {
        let exact = first.exact && integers(&first) == integers(&next);
        let row = if next.per_connection < first.per_connection { next } else { first };
        KernelRow { exact, ..row }
    };
    let rows: Vec<KernelRow> = first.rows.into_iter().zip(rows).map(one).collect();
    let exact = first.exact && growth == first.growth && rows.iter().all(|row| row.exact);
    let repeats = first.repeats + 1;
    KernelLedger { rows, exact, repeats, contention, unseen, ..first }
}

/// What must be the same every time.
fn integers(row: &KernelRow) -> ([u64; 4], Vec<(&str, u64)>) {
    let each = row.calls.iter().filter(|call| call.per_connection > 0);
    let calls: Vec<(&str, u64)> =
        each.map(|call| (call.call.as_str(), call.per_connection)).collect();
    // What is written now and then alone may not have been seen.
    let sharers = if calls.is_empty() { [0, 0] } else { [row.shared, row.threads] };
    let [shared, threads] = sharers;
    ([shared, threads, row.per_connection, row.apart], calls)
}

/// The row of file tables, for a server of a budget.
///
/// # Errors
/// What kept it from starting, working or being traced.
pub(crate) fn file_table(server: &Server, tools: &Tools) -> Result<KernelRow, Error> {
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let mut row = None;
    server.at_work(tools, &mut |first, connect| {
        let mut watch = Watch::begin(first, &folder.path().join("trace"), tools.stop())?;
        for (phase, times) in PHASE_LENGTHS.into_iter().enumerate() {
            watch.phase(phase, times * server.connections, connect)?;
        }
        let rows = watch.rows(server.connections);
        watch.end();
        row = rows.into_iter().find(|row| row.object == FILE_TABLE);
        Ok(())
    })?;
    let row = row.ok_or_else(|| Error::Check("there is no row of file tables".into()))?;
    seen(row)
}

/// The row, unless it says that nobody wrote any table: without that there is no connection, so the
/// trace was blind, and a figure of 0 means nothing.
fn seen(row: KernelRow) -> Result<KernelRow, Error> {
    if row.per_connection + row.apart == 0 {
        return Err(Error::Check("no write of any file table was seen".into()));
    }
    Ok(row)
}

/// For the end of the help.
pub const EXAMPLES: &str = "\
What threads share in the kernel, of servers that are installed and of one of your own (what the
command line may have in braces, `servers --help` says):

  sealane-lab count --kernel --only haproxy,nginx-stream --repeats 3 --json kernel.json
  sealane-lab count --kernel --only mine --peer 'mine=./mine {port} {backend} {workers} {cert}'

It needs strace and the right to trace. lab/KERNEL.md has the figures of ten servers, and
lab/FINDINGS.md what would remove what they share; `findings kernel.json` says that of yours.";
#[cfg(test)]
mod tests {
    use sealane_lab_model::document::KernelCall;

    use super::*;

    #[test]
    fn a_trace_that_saw_no_table_written_is_no_count_of_none() {
        let row = |per_connection, apart| KernelRow { per_connection, apart, ..Default::default() };
        assert!(seen(row(0, 0)).is_err());
        assert_eq!(seen(row(0, 4)).unwrap().per_connection, 0);
        assert_eq!(seen(row(4, 0)).unwrap().per_connection, 4);
    }

    #[test]
    fn what_differs_between_two_times_is_told_and_the_smaller_figure_stands() {
        let row = |per_connection| {
            let call = KernelCall { call: "close".into(), per_connection, lengths: [0; 3] };
            KernelRow { per_connection, calls: vec![call], exact: true, ..KernelRow::default() }
        };
        let ledger = |figures: [u64; 2]| KernelLedger {
            rows: figures.map(row).to_vec(),
            repeats: 1,
            exact: true,
            ..KernelLedger::default()
        };
        let same = merged(ledger([4, 0]), ledger([4, 0]));
        assert!(same.exact && same.repeats == 2);
        let differs = merged(merged(ledger([4, 9]), ledger([4, 1])), ledger([4, 3]));
        assert!(!differs.exact && differs.repeats == 3);
        let told: Vec<_> = differs.rows.iter().map(|row| (row.per_connection, row.exact)).collect();
        assert_eq!(told, [(4, true), (1, false)]);
    }
}
