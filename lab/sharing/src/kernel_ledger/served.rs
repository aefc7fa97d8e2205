//! One server of the table, started and driven as `servers` does it, and its ledger.

use std::{num::NonZeroUsize, path::Path};

use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::{document::KernelLedger, error::Error};
use sealane_lab_servers::{
    load::{Crew, Load, Request, Until, Work},
    servers::{
        case::{Amount, Case},
        key_files::KeyFiles,
        measure::Bench,
        placement::Placement,
        programs::Entry,
        running::{Circumstances, Running},
    },
};

use crate::kernel_ledger::{contention::Contention, watch::Watch};

/// What all servers are asked alike.
pub(super) struct Bed<'a> {
    pub(super) files: &'a KeyFiles,
    pub(super) placement: Placement,
    pub(super) workers: usize,
    /// In the shortest length.
    pub(super) connections: u64,
    /// That come and stay; 0 for none.
    pub(super) held: u64,
    pub(super) stop: Interrupt,
}

impl Bed<'_> {
    /// The ledger of `entry`, whose program is at `binary`, with its files in `folder`. Contention
    /// is measured too if that is asked.
    ///
    /// # Errors
    /// What kept it from starting, working or being traced.
    pub(super) fn ledger(
        &self,
        (entry, binary): (&Entry, &Path),
        folder: &Path,
        with_contention: bool,
    ) -> Result<KernelLedger, Error> {
        let circumstances = Circumstances {
            pem: &self.files.pem,
            many: None,
            profile: Case::Full.profile(),
            placement: &self.placement,
            workers: self.workers,
            connections_max: self.held + CONNECTIONS_SPARE,
            interrupted: &self.stop,
        };
        let server = Running::start(entry, binary, folder, circumstances)?;
        let bench = self.bench();
        bench.warm_up(&server).map_err(|error| match error {
            Error::Interrupted => error,
            error => server.did_not_start(&error),
        })?;
        let mut ledger = KernelLedger {
            server: entry.name.clone(),
            version: entry.program.version(binary),
            command: self.command(&server.command, folder),
            workers: self.workers as u64,
            connections: self.connections,
            repeats: 1,
            exact: true,
            ..KernelLedger::default()
        };
        let plan = bench.plan(&server, false)?;
        let mut crew = Crew::new(&plan, NonZeroUsize::MIN)?;
        let first = server.process.id();
        // Not in the server's folder: some look at what changes in there.
        let trace = tempfile::NamedTempFile::new().map_err(Error::io("a temporary file"))?;
        let mut watch = Watch::begin(first, trace.path(), &self.stop)?;
        for (phase, times) in PHASE_LENGTHS.into_iter().enumerate() {
            let mut one = |count| crew.run(&closed(Work::Connections, 1, count)).map(drop);
            watch.phase(phase, times * self.connections, &mut one)?;
        }
        ledger.rows = watch.rows(self.connections);
        if self.held > 0 {
            let mut stay = |count| crew.run(&closed(Work::Establish, 1, count)).map(drop);
            ledger.growth = Some(watch.growth(self.held, &mut stay)?);
        }
        watch.end();
        crew.close()?;
        if with_contention {
            match Contention::begin(first) {
                Ok(contention) => {
                    crew.run(&closed(Work::Connections, AT_ONCE, UNDER_LOAD))?;
                    ledger.contention = Some(contention.end(UNDER_LOAD, AT_ONCE as u64));
                }
                Err(unseen) => ledger.unseen.push(unseen),
            }
        }
        Ok(ledger)
    }

    /// The command line as it is on any machine.
    fn command(&self, words: &[String], folder: &Path) -> Vec<String> {
        let (folder, pem) = (folder.display().to_string(), self.files.pem.display().to_string());
        let told = |word: &String| word.replace(&pem, "{cert}").replace(&folder, "{folder}");
        let name = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
        let first = words.first().map(name);
        first.into_iter().chain(words.iter().skip(1).map(told)).collect()
    }

    fn bench(&self) -> Bench {
        Bench {
            amount: Amount { warm_up: WARM_UP, ..Amount::QUICK },
            levels: Vec::new(),
            workers: self.workers,
            placement: self.placement.clone(),
            client_threads: NonZeroUsize::MIN,
            roots: self.files.roots.clone(),
            leaf: Some(self.files.leaf.clone()),
            profile: Case::Full.profile(),
            has_tls: true,
            interrupted: self.stop.clone(),
        }
    }
}

fn closed(work: fn(Option<Request>) -> Work, at_once: usize, count: u64) -> Load {
    Load::closed(work(Some(Request::Echo)), at_once, Until::Count(count))
}

/// The warm-up, then N, 2N and 3N.
pub(super) const PHASE_LENGTHS: [u64; 4] = [1, 1, 2, 3];
const AT_ONCE: usize = 16;
const CONNECTIONS_SPARE: u64 = 1_500;
/// Connections while waits are measured.
const UNDER_LOAD: u64 = 2_000;
/// Connections before all others: some compile what they do often.
const WARM_UP: u64 = 400;
