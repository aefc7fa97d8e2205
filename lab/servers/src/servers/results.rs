//! The document's part on servers, made of all rounds: which of them count, the floor, and how
//! servers compare.

use std::collections::{BTreeMap, BTreeSet};

use sealane_lab_model::{
    document::{
        Bottleneck, Comparison, Floor, Histogram, Invalid, NoVerdict, Server, ServerResult, Servers,
    },
    error::Error,
    figures::{
        self, Shown,
        conduct::Conduct,
        servers::{best_other, measurable, rate_counts, total},
    },
    histogram::Times,
    statistics::{self, Spread},
};

use crate::servers::{
    case::{Case, Column, Level},
    programs::Program,
    round::{Cell, Round, Row, Settings},
};

/// All columns of the cases asked for, in the order of the tables.
pub(crate) fn columns(settings: &Settings) -> Vec<Column> {
    let cases = Case::ALL.iter().filter(|case| settings.choice.cases.contains(case));
    cases.flat_map(|case| case.columns(&settings.levels)).collect()
}

/// Servers and comparisons of a document.
pub(crate) fn of(
    settings: &Settings,
    rows: &[Row],
    rounds: &[Round],
) -> Result<(Servers, Vec<Comparison>), Error> {
    let columns = columns(settings);
    let (terminators, plain) = rows.iter().partition::<Vec<&Row>, _>(|row| row.entry.has_tls());
    let mut servers = Servers {
        cases: columns.iter().map(Column::document).collect(),
        servers: terminators.into_iter().map(server).collect(),
        plain: plain.into_iter().map(server).collect(),
        placement: settings.placement.text(),
        ..Servers::default()
    };
    for column in &columns {
        let counted = Counted::of(column, rounds);
        servers.discarded.extend(counted.discarded);
        let all = servers.servers.iter_mut().chain(&mut servers.plain);
        for server in all.filter(|server| server.failure.is_none()) {
            let is = |cell: &&Cell| cell.server == server.name && cell.column == column.name;
            let cells = counted.rounds.iter().filter_map(|round| round.cells.iter().find(is));
            let cells: Vec<&Cell> = cells.collect();
            if !cells.is_empty() {
                let mut result = result(&cells)?;
                result.invalid = counted.invalid.clone().or(result.invalid);
                server.cases.insert(column.name.clone(), result);
            }
        }
        if column.has_floor() {
            let primitives = counted.rounds.iter().map(|round| &round.primitives);
            let primitives = primitives.filter_map(|of| of.get(&column.name).copied()).collect();
            servers.floor.extend(floor(&servers, column, primitives));
        }
    }
    let comparisons = comparisons(&servers, rows, &columns);
    Ok((servers, comparisons))
}

/// Under a column, with the cheapest of the proxies without TLS.
fn floor(servers: &Servers, column: &Column, primitives: Vec<f64>) -> Option<(String, Floor)> {
    let figures = servers.plain.iter().filter_map(|proxy| {
        let figure = &proxy.cases.get(&column.name)?.figure;
        Some((Spread::of(figure)?.median, proxy, figure))
    });
    let (_, proxy, tcp) = figures.min_by(|a, b| a.0.total_cmp(&b.0))?;
    let floor = Floor { primitives, tcp: tcp.clone(), proxy: proxy.name.clone() };
    Some((column.name.clone(), floor))
}

/// The rounds of a column that are shown. What disturbs one server's figure discards it for all:
/// what is compared stays paired.
struct Counted<'a> {
    rounds: Vec<&'a Round>,
    discarded: Vec<String>,
    /// Why none counts; then all are shown, and marked.
    invalid: Option<NoVerdict>,
}

impl<'a> Counted<'a> {
    fn of(column: &Column, rounds: &'a [Round]) -> Self {
        let all: Vec<OfColumn<'_>> =
            rounds.iter().map(|round| OfColumn::new(column, round)).collect();
        let shown = Shown::of(&all);
        let rounds = shown.rounds().iter().map(|of| of.round).collect();
        let why = |(of, number): (&'_ OfColumn<'_>, _)| Some((number, of.why.clone()?.1));
        let mut whys = all.iter().zip(1..).filter_map(why);
        if shown.is_hint() {
            let invalid = whys.next().map(|(_, why)| NoVerdict::new(Bottleneck::Hypervisor, &why));
            return Self { rounds, discarded: Vec::new(), invalid };
        }
        let said = |(number, why)| format!("round {number}, {}: {why}", column.name);
        Self { rounds, discarded: whys.map(said).collect(), invalid: None }
    }
}

/// One column of a round.
struct OfColumn<'a> {
    round: &'a Round,
    why: Option<(Invalid, String)>,
}

impl<'a> OfColumn<'a> {
    /// Judged by the most that the hypervisor took from any server.
    fn new(column: &Column, round: &'a Round) -> Self {
        let cells = round.cells.iter().filter(|cell| cell.column == column.name);
        let stolen_percent = cells.map(|cell| cell.sample.stolen_percent).fold(0.0, f64::max);
        let why = || format!("the hypervisor took {stolen_percent:.1}% of the processors");
        let invalid = Conduct { stolen_percent, window: None }.invalid();
        Self { round, why: invalid.map(|invalid| (invalid, why())) }
    }
}

impl figures::Round for OfColumn<'_> {
    fn invalid(&self) -> Option<&Invalid> {
        self.why.as_ref().map(|(invalid, _)| invalid)
    }

    fn has_figures(&self) -> bool {
        true
    }
}

fn server(row: &Row) -> Server {
    Server {
        name: row.entry.name.clone(),
        version: row.version.clone(),
        tls_library: row.tls_library.clone(),
        command: row.command.clone(),
        settings: row.settings.clone(),
        cases: BTreeMap::new(),
        failure: row.failure.as_ref().map(|failed| failed.why.clone()),
    }
}

fn figures(cells: &[&Cell]) -> Vec<f64> {
    cells.iter().filter_map(|cell| cell.sample.figure).collect()
}

fn result(cells: &[&Cell]) -> Result<ServerResult, Error> {
    let samples = || cells.iter().map(|cell| &cell.sample);
    let bound: BTreeSet<&NoVerdict> =
        samples().filter_map(|sample| sample.bound.as_ref()).collect();
    let not_offered = samples().find_map(|sample| sample.not_offered.clone());
    let refused = samples().find_map(|sample| sample.refused.clone());
    // With a figure in some rounds only, it would be paired with other rounds of others.
    let has_figure = not_offered.is_none() && refused.is_none();
    if not_offered.is_some() {
        return Ok(ServerResult { not_offered, ..ServerResult::default() });
    }
    Ok(ServerResult {
        figure: if has_figure { figures(cells) } else { Vec::new() },
        rate: samples().filter_map(|sample| sample.rate).collect(),
        latency: merged(samples().filter_map(|sample| sample.latency.as_ref()))?,
        service: merged(samples().filter_map(|sample| sample.service.as_ref()))?,
        client_busy: samples().filter_map(|sample| sample.client_busy).collect(),
        server_busy: samples().filter_map(|sample| sample.server_busy).collect(),
        worker_cpu_ns: samples().next_back().map(|s| s.worker_cpu_ns.clone()).unwrap_or_default(),
        invalid: bound.first().map(|why| (*why).clone()),
        not_offered,
        refused,
        note: samples().filter_map(|sample| sample.note.clone()).next_back(),
    })
}

/// Percentiles are never averaged: the distributions are added.
fn merged<'a>(
    mut histograms: impl Iterator<Item = &'a Histogram>,
) -> Result<Option<Histogram>, Error> {
    let Some(first) = histograms.next() else { return Ok(None) };
    let mut sum = Times::read(first)?;
    for histogram in histograms {
        sum.add(&Times::read(histogram)?)?;
    }
    sum.document().map(Some)
}

/// Sealane to every peer, to the best of them in each round and to every proxy without TLS, and
/// every server to the floor.
fn comparisons(servers: &Servers, rows: &[Row], columns: &[Column]) -> Vec<Comparison> {
    let mut found = Vec::new();
    let sealane = rows.iter().find(|row| row.entry.program == Program::Sealane);
    let sealane = sealane.map_or("", |row| row.entry.name.as_str());
    let mut compare = |measure: &str, of: (&str, &[f64]), to: (&str, &[f64])| {
        let (left, right) = (measurable(of.1), measurable(to.1));
        let left = statistics::Row { name: of.0, figures: &left };
        let right = statistics::Row { name: to.0, figures: &right };
        found.extend(statistics::compare(measure, left, right));
    };
    for column in columns {
        let measure = measure(column);
        let result = |name: &str| {
            let mut all = servers.servers.iter().chain(&servers.plain);
            let result = all.find(|server| server.name == name)?.cases.get(&column.name)?;
            column.subject.is_compared(result).then_some(result)
        };
        let names = servers.servers.iter().map(|server| server.name.as_str());
        let peers: Vec<_> = names
            .clone()
            .filter(|name| *name != sealane)
            .filter_map(|name| Some((name, result(name)?)))
            .collect();
        if let Some(ours) = result(sealane) {
            for (name, theirs) in &peers {
                compare(&measure, (sealane, &ours.figure), (name, &theirs.figure));
                // A rate that the client set is nobody's: in an open loop it always does.
                let is_capacity = column.level == Some(Level::Full);
                if is_capacity && rate_counts(ours) && rate_counts(theirs) {
                    let measure = format!("{}, operations per second", column.title);
                    compare(&measure, (sealane, &ours.rate), (name, &theirs.rate));
                }
            }
            if let Some(best) = best_other(servers, &column.document(), sealane) {
                compare(&measure, (sealane, &ours.figure), (BEST_PEER, &best));
            }
            let plain = servers.plain.iter().map(|proxy| proxy.name.as_str());
            for (name, theirs) in plain.filter_map(|name| Some((name, result(name)?))) {
                compare(&measure, (sealane, &ours.figure), (name, &theirs.figure));
            }
        }
        let floor = servers.floor.get(&column.name).map(total).unwrap_or_default();
        for (name, result) in names.filter_map(|name| Some((name, result(name)?))) {
            compare(&measure, (name, &result.figure), (FLOOR, &floor));
        }
    }
    found
}

/// The figure in words.
pub(crate) fn measure(column: &Column) -> String {
    format!("{}, {}", column.title, column.unit)
}

/// What a comparison is with, besides servers.
pub(crate) const BEST_PEER: &str = "best peer";
pub(crate) const FLOOR: &str = "floor";
