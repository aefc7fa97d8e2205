//! What came out: a [`Report`], as a table to read and as JSON.

use std::{collections::BTreeMap, fmt::Write, fs, thread};

use serde::Serialize;

use crate::{
    compare::Settings,
    error::Error,
    load::Case,
    servers::Program,
    statistics::{Spread, least_per_round},
};

/// All figures, with what they depend on.
#[derive(Serialize)]
pub(crate) struct Report {
    machine: Machine,
    settings: Settings,
    /// One, five and fifteen minutes, before and after.
    load_average: [String; 2],
    rows: Vec<Row>,
    ratios: Vec<Ratio>,
}

/// One server's figures by case, one per round; none if a check failed.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    #[serde(skip)]
    program: Program,
    pub(crate) version: String,
    pub(crate) tls_library: String,
    pub(crate) figures: BTreeMap<Case, Vec<f64>>,
    /// Why there are no figures.
    pub(crate) failure: Option<String>,
    /// It is not installed, which is no failure of the comparison.
    absent: bool,
}

/// How many times as much the first takes as the second, median of all rounds.
#[derive(Serialize)]
struct Ratio {
    of: &'static str,
    to: &'static str,
    case: Case,
    spread: Spread,
}

#[derive(Serialize)]
struct Machine {
    processor: String,
    processors: usize,
    kernel: String,
}

impl Report {
    pub(crate) fn new(settings: Settings, rows: Vec<Row>, load_average: [String; 2]) -> Self {
        let ratios = ratios(&rows);
        Self { machine: Machine::this(), settings, load_average, rows, ratios }
    }

    /// Whether every server that is installed passed every check.
    pub(crate) fn is_complete(&self) -> bool {
        self.rows.iter().all(|row| row.failure.is_none() || row.absent)
    }

    /// The report as JSON.
    pub(crate) fn json(&self) -> Result<String, Error> {
        serde_json::to_string_pretty(self).map_err(|error| Error::io("write JSON")(error.into()))
    }

    /// The report as text, the figures as a Markdown table.
    pub(crate) fn text(&self) -> String {
        let Self { machine, settings, load_average, .. } = self;
        let amount = &settings.amount;
        let mut text = format!(
            "Machine: {}, {} processors, Linux {}; load average {} before, {} after\n\
             Rounds: {}, interleaved; each per server: {} handshakes by {} clients at once, \
             {} x {} bytes each way over {} connections, {} idle connections\n",
            machine.processor,
            machine.processors,
            machine.kernel,
            load_average[0],
            load_average[1],
            settings.rounds,
            amount.handshakes,
            amount.handshake_threads,
            amount.transfers,
            amount.transfer_bytes,
            amount.transfer_threads,
            amount.idle_connections
        );
        for row in &self.rows {
            let _ = match &row.failure {
                Some(failure) if row.absent => writeln!(text, "{}: skipped: {failure}", row.name),
                Some(failure) => writeln!(text, "{}: NO FIGURES: {failure}", row.name),
                None => writeln!(text, "{}: {}; {}", row.name, row.version, row.tls_library),
            };
        }
        text + "\nMedian [least-most] of the rounds.\n\n" + &self.table()
    }

    fn table(&self) -> String {
        let mut table = String::from("| server |");
        for case in Case::ALL {
            let _ = write!(table, " {} |", case.title());
        }
        table += "\n|---|---|---|---|---|---|\n";
        for row in self.rows.iter().filter(|row| row.failure.is_none()) {
            let cell = |case: Case| Some((Spread::of(row.figures.get(&case)?)?, case.decimals()));
            line(&mut table, row.name, cell);
        }
        let mut pairs: Vec<_> = self.ratios.iter().map(|ratio| (ratio.of, ratio.to)).collect();
        pairs.dedup();
        for (of, to) in pairs {
            let cell = |case: Case| {
                let mut ratios = self.ratios.iter();
                let ratio = ratios.find(|r| r.of == of && r.to == to && r.case == case)?;
                Some((ratio.spread, RATIO_DECIMALS))
            };
            line(&mut table, &format!("{of} / {to}"), cell);
        }
        table
    }
}

impl Row {
    pub(crate) fn new(name: &'static str, program: Program) -> Self {
        let (version, tls_library) = (String::new(), String::new());
        let (figures, failure) = (BTreeMap::new(), None);
        Self { name, program, version, tls_library, figures, failure, absent: false }
    }

    /// Takes its figures back: a server that fails one check has shown nothing.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.figures.clear();
        // A peer that is not installed is skipped; without sealane there is nothing to compare.
        self.absent = matches!(error, Error::Missing { .. }) && self.program != Program::Sealane;
        self.failure = Some(error.to_string());
    }
}

/// One line of the table; a case without a figure stays empty.
fn line(table: &mut String, name: &str, cell: impl Fn(Case) -> Option<(Spread, usize)>) {
    let _ = write!(table, "| {name} |");
    for case in Case::ALL {
        let _ = match cell(case) {
            Some((Spread { median, min, max }, decimals)) => {
                write!(table, " {median:.decimals$} [{min:.decimals$}-{max:.decimals$}] |")
            }
            None => write!(table, " |"),
        };
    }
    table.push('\n');
}

/// Each peer to sealane, then sealane to whichever peer was best in the round.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let whole = || rows.iter().filter(|row| row.failure.is_none());
    let Some(sealane) = whole().find(|row| row.program == Program::Sealane) else {
        return Vec::new();
    };
    let peers: Vec<&Row> = whole().filter(|row| row.program != Program::Sealane).collect();
    let mut ratios = Vec::new();
    for peer in &peers {
        for (case, figures) in &peer.figures {
            let to = sealane.figures.get(case).map_or(&[][..], Vec::as_slice);
            if let Some(spread) = Spread::of_ratios(figures, to) {
                ratios.push(Ratio { of: peer.name, to: sealane.name, case: *case, spread });
            }
        }
    }
    for (case, figures) in &sealane.figures {
        let theirs: Vec<&[f64]> =
            peers.iter().filter_map(|peer| peer.figures.get(case)).map(Vec::as_slice).collect();
        if let Some(spread) = Spread::of_ratios(figures, &least_per_round(&theirs)) {
            ratios.push(Ratio { of: sealane.name, to: "best peer", case: *case, spread });
        }
    }
    ratios
}

impl Machine {
    fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let processor = model.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, m)| m);
        Self {
            processor: processor.into(),
            processors: thread::available_parallelism().map_or(0, usize::from),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }
}

/// Of one, five and fifteen minutes: how busy others kept the machine.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

const RATIO_DECIMALS: usize = 2;
