//! Rounds: in each, every server is started anew, so that no figure rests on one process's luck
//! with its memory layout, and each case is measured on all of them in turn.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
};

use sealane_lab_harness::{descriptors, interrupt::Interrupt, progress::Progress};
use sealane_lab_model::{
    error::Error,
    scenario::{Group, Key},
};
use serde::{Deserialize, Serialize};

use crate::{
    load::Roots,
    servers::{
        case::{Amount, Case, Column, Level, Profile},
        floor::Primitives,
        key_files::KeyFiles,
        measure::{Bench, OPEN_CONNECTIONS_MAX, Sample},
        names::Names,
        placement::Placement,
        programs::{Choice, Entry, Program},
        running::{Circumstances, Running},
        storm::settings::{CONNECTIONS_SPARE, Storm, open_max},
    },
};

/// What the operator asked for.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) choice: Choice,
    pub(crate) rounds: usize,
    pub(crate) amount: Amount,
    pub(crate) workers: usize,
    pub(crate) levels: Vec<Level>,
    pub(crate) placement: Placement,
    pub(crate) storm: Storm,
}

impl Settings {
    /// Connections that a server must hold.
    fn connections_max(&self) -> u64 {
        CONNECTIONS_SPARE
            + match self.choice.cases.iter().any(|case| case.is_storm()) {
                true => open_max(),
                false => self.amount.idle_connections.max(OPEN_CONNECTIONS_MAX as u64),
            }
    }
}

/// Everything that one round found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) cells: Vec<Cell>,
    /// By column: the primitives' part of the floor.
    pub(crate) primitives: BTreeMap<String, f64>,
    /// By server: why it had shown nothing by the round's end.
    #[serde(default)]
    pub(crate) failures: BTreeMap<String, Failed>,
}

/// A server that has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) why: String,
    /// Whether it is not installed, which is no failure of the comparison.
    pub(crate) absent: bool,
}

/// One server's sample in one column.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) server: String,
    pub(crate) column: String,
    pub(crate) sample: Sample,
}

/// One server of the table, as far as it is known.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) entry: Entry,
    pub(crate) version: String,
    pub(crate) tls_library: String,
    pub(crate) command: Vec<String>,
    /// What its configuration sets for the sake of speed.
    pub(crate) settings: Vec<String>,
    /// Why there are no figures.
    pub(crate) failure: Option<Failed>,
}

/// What lasts through all rounds.
pub(crate) struct Laboratory {
    settings: Settings,
    folder: PathBuf,
    keys: BTreeMap<Key, KeyFiles>,
    names: Option<Names>,
    primitives: Primitives,
    pub(crate) rows: Vec<Row>,
    interrupted: Interrupt,
    progress: Progress,
}

impl Laboratory {
    /// Makes the certificates, in `folder`.
    pub(crate) fn new(
        settings: Settings,
        folder: &Path,
        interrupted: Interrupt,
        rounds_done: usize,
    ) -> Result<Self, Error> {
        // A server with one process holds two for each connection.
        descriptors::allow(2 * settings.connections_max())?;
        let rows: Vec<Row> = settings.choice.entries()?.into_iter().map(Row::new).collect();
        let cases = &settings.choice.cases;
        let mut keys = BTreeMap::new();
        for case in cases {
            let key = case.profile().key;
            if let std::collections::btree_map::Entry::Vacant(vacant) = keys.entry(key) {
                vacant.insert(KeyFiles::make(&folder.join(format!("{key:?}")), key)?);
            }
        }
        let names = match cases.contains(&Case::Names) {
            true => Some(Names::make(&folder.join("names"), settings.amount.names)?),
            false => None,
        };
        let cells = rows.iter().map(|row| row.entry.cases.len()).sum::<usize>();
        let progress = Progress::new((cells * settings.rounds.saturating_sub(rounds_done)) as u64);
        Ok(Self {
            settings,
            folder: folder.to_owned(),
            keys,
            names,
            primitives: Primitives::new()?,
            rows,
            interrupted,
            progress,
        })
    }

    /// One whole round. Rows that fail have a reason instead of figures.
    ///
    /// # Errors
    /// [`Error::Interrupted`], or what keeps the lab itself from working.
    pub(crate) fn round(&mut self, number: usize) -> Result<Round, Error> {
        let mut round = Round::default();
        let cases = Case::ALL.into_iter().filter(|case| self.settings.choice.cases.contains(case));
        let cases: Vec<Case> = cases.collect();
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        if number % 2 == 1 {
            order.reverse();
        }
        let mut profiles: Vec<Profile> = Vec::new();
        for case in cases.iter().filter(|case| **case != Case::Names) {
            if !profiles.contains(&case.profile()) {
                profiles.push(case.profile());
            }
        }
        for profile in profiles {
            let has = |case: &&Case| case.profile() == profile && **case != Case::Names;
            let cases: Vec<Case> = cases.iter().filter(has).copied().collect();
            self.profile(number, &mut round, profile, &cases, &order)?;
        }
        if cases.contains(&Case::Names) {
            self.many_names(number, &mut round, &order)?;
        }
        round.failures = failures(&self.rows);
        Ok(round)
    }

    /// Takes note of a run that goes on: a server that failed in an earlier round has shown
    /// nothing, and would have fewer rounds than the others.
    pub(crate) fn recall(&mut self, rounds: &[Round]) {
        if let Some(round) = rounds.last() {
            restore(&mut self.rows, &round.failures);
        }
    }

    fn profile(
        &mut self,
        number: usize,
        round: &mut Round,
        profile: Profile,
        cases: &[Case],
        order: &[usize],
    ) -> Result<(), Error> {
        let mut servers = Vec::new();
        for index in order.iter().copied() {
            let row = &self.rows[index];
            let its_cases = cases.iter().filter(|case| row.entry.cases.contains(case));
            let its_cases: Vec<Case> = its_cases.copied().collect();
            if row.failure.is_some() || its_cases.is_empty() {
                continue;
            }
            let is_sealane = row.entry.program == Program::Sealane;
            match self.start(index, profile) {
                Ok(server) => servers.push((index, server)),
                // A peer that does not know the group refuses it at its start or in the handshake;
                // sealane knows it, and has failed.
                Err(error @ (Error::Start { .. } | Error::Check(_)))
                    if profile.group == Group::X25519MlKem768 && !is_sealane =>
                {
                    let why = refusal(&error);
                    let sample = Sample { not_offered: Some(why), ..Sample::default() };
                    for case in its_cases {
                        let columns = case.columns(&self.settings.levels).len();
                        self.keep(number, round, index, case, vec![sample.clone(); columns]);
                    }
                }
                Err(error) => self.fail(index, error)?,
            }
        }
        for case in cases {
            if let Some(figure) = self.primitives.figure(*case)? {
                let columns = case.columns(&self.settings.levels);
                for column in columns.into_iter().filter(Column::has_floor) {
                    round.primitives.insert(column.name, figure);
                }
            }
            for (index, server) in &servers {
                let row = &self.rows[*index];
                if row.failure.is_some() || !row.entry.cases.contains(case) {
                    continue;
                }
                let bench = self.bench(&row.entry, profile);
                self.progress.step(&format!("{case:?}, {}", row.entry.name));
                let samples = match case.is_storm() {
                    true => bench.storm(&self.settings.storm, server),
                    false => bench.measure(*case, server),
                };
                match samples {
                    Ok(samples) => self.keep(number, round, *index, *case, samples),
                    Err(error) => self.fail(*index, error)?,
                }
            }
        }
        Ok(())
    }

    /// One server after the other: several with 10,000 certificates each would fill the memory.
    fn many_names(
        &mut self,
        number: usize,
        round: &mut Round,
        order: &[usize],
    ) -> Result<(), Error> {
        for index in order.iter().copied() {
            let row = &self.rows[index];
            let Some(names) = &self.names else { continue };
            if row.failure.is_some() || !row.entry.cases.contains(&Case::Names) {
                continue;
            }
            let folder = self.folder.join(format!("{index}-names"));
            let bench = self.bench(&row.entry, Case::Names.profile());
            let samples =
                row.entry.program.find(&self.settings.choice.sealane).and_then(|binary| {
                    let measured = names.measure(&bench, &row.entry, &binary, &folder)?;
                    Ok((measured, row.entry.program.version(&binary)))
                });
            match samples {
                Ok((samples, version)) => {
                    // Without another case nobody has asked it yet.
                    self.rows[index].version = version;
                    self.keep(number, round, index, Case::Names, samples);
                }
                Err(error) => self.fail(index, error)?,
            }
        }
        Ok(())
    }

    fn start(&mut self, index: usize, profile: Profile) -> Result<Running, Error> {
        let entry = &self.rows[index].entry;
        let binary = entry.program.find(&self.settings.choice.sealane)?;
        let folder = self.folder.join(format!("{index}-{}", profile.label()));
        let files = self.key_files(profile.key)?;
        let circumstances = Circumstances {
            pem: &files.pem,
            many: None,
            profile,
            placement: &self.settings.placement,
            workers: self.settings.workers,
            connections_max: self.settings.connections_max(),
            interrupted: &self.interrupted,
        };
        let server = Running::start(entry, &binary, &folder, circumstances)?;
        self.bench(entry, profile).warm_up(&server).map_err(|error| match error {
            Error::Interrupted => error,
            error => server.did_not_start(&error),
        })?;
        if self.rows[index].tls_library.is_empty() {
            // Once: it takes a look at every byte of the binary.
            let version = entry.program.version(&binary);
            let tls_library = entry.program.tls_library(&server.process, &binary)?;
            let row = &mut self.rows[index];
            (row.version, row.tls_library) = (version, tls_library);
            row.command.clone_from(&server.command);
            row.settings.clone_from(&server.settings);
        }
        Ok(server)
    }

    fn bench(&self, entry: &Entry, profile: Profile) -> Bench {
        let (files, placement) = (self.keys.get(&profile.key), &self.settings.placement);
        Bench {
            amount: self.settings.amount,
            levels: self.settings.levels.clone(),
            workers: self.settings.workers,
            placement: placement.clone(),
            client_threads: NonZeroUsize::new(placement.client()).unwrap_or(NonZeroUsize::MIN),
            roots: files.map_or(Roots::Anyone, |files| files.roots.clone()),
            leaf: files.map(|files| files.leaf.clone()),
            profile,
            has_tls: entry.has_tls(),
            interrupted: self.interrupted.clone(),
        }
    }

    fn key_files(&self, key: Key) -> Result<&KeyFiles, Error> {
        self.keys.get(&key).ok_or_else(|| Error::Check(format!("no certificate of type {key:?}")))
    }

    fn keep(
        &mut self,
        number: usize,
        round: &mut Round,
        index: usize,
        case: Case,
        samples: Vec<Sample>,
    ) {
        let server = self.rows[index].entry.name.clone();
        for (column, sample) in case.columns(&self.settings.levels).into_iter().zip(samples) {
            let figure = match &sample.figure {
                Some(figure) => format!("{figure:.0$} {1}", column.decimals, column.unit),
                None if sample.refused.is_some() => "refused".into(),
                None => "not offered".into(),
            };
            let (number, rounds, title) = (number + 1, self.settings.rounds, &column.title);
            let line = format!("round {number}/{rounds}  {title:<33} {server:<20} {figure:>18}");
            self.progress.note(&line);
            round.cells.push(Cell { server: server.clone(), column: column.name, sample });
        }
        self.progress.done();
    }

    /// A server that fails one check has shown nothing.
    fn fail(&mut self, index: usize, error: Error) -> Result<(), Error> {
        if matches!(error, Error::Interrupted) {
            return Err(error);
        }
        let row = &mut self.rows[index];
        let _ = writeln!(io::stderr(), "{}: {error}", row.entry.name);
        // A peer that is not installed is skipped; without sealane there is nothing to compare.
        let absent =
            matches!(error, Error::Missing { .. }) && row.entry.program != Program::Sealane;
        row.failure = Some(Failed { why: error.to_string(), absent });
        Ok(())
    }
}

impl Row {
    fn new(entry: Entry) -> Self {
        Self {
            entry,
            version: String::new(),
            tls_library: String::new(),
            command: Vec::new(),
            settings: Vec::new(),
            failure: None,
        }
    }
}

fn failures(rows: &[Row]) -> BTreeMap<String, Failed> {
    rows.iter().filter_map(|row| Some((row.entry.name.clone(), row.failure.clone()?))).collect()
}

fn restore(rows: &mut [Row], failures: &BTreeMap<String, Failed>) {
    for row in rows {
        row.failure = failures.get(&row.entry.name).cloned();
    }
}

/// The line that names the group, or the last one.
fn refusal(error: &Error) -> String {
    let text = error.to_string();
    let named = text.lines().find(|line| line.contains("MLKEM"));
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    named.or(last).unwrap_or("it refused").trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::programs::Tuning;

    #[test]
    fn what_failed_before_a_stop_has_failed_after_it() {
        let row = |name: &str| {
            let (program, cases) = (Program::Hitch, vec![Case::Full]);
            Row::new(Entry { name: name.into(), program, tuning: Tuning::Usual, cases })
        };
        let mut before = [row("a"), row("b")];
        let failed = Failed { why: "a wrong byte".into(), absent: false };
        before[1].failure = Some(failed.clone());
        let round = Round { failures: failures(&before), ..Round::default() };
        let text = serde_json::to_string(&round).unwrap();
        let read: Round = serde_json::from_str(&text).unwrap();
        let mut after = [row("a"), row("b")];
        restore(&mut after, &read.failures);
        assert_eq!(after.map(|row| row.failure), [None, Some(failed)]);
    }
}
