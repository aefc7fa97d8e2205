//! The terminal's tables and the page show the same points and the same numbers, whatever disturbed
//! which rounds: [`COMBINATIONS`] of causes, three rounds each.

use sealane_lab_model::{
    document::{
        BulkRound, BulkSeries, HandshakePoint, HandshakeRound, HandshakeSeries, Invalid, Machine,
        Run, SCHEMA,
    },
    scenario::Scenario,
};
use sealane_lab_stacks::{bulk, handshake};

use crate::report::page_of;

#[test]
fn terminal_and_page_show_the_same_handshakes_whatever_disturbed_them() {
    let run = handshakes();
    let (text, page) = (handshake::text(&run), page_of(std::slice::from_ref(&run)));
    let terminal: Vec<Shown> = text.lines().filter_map(row).collect();
    let wanted: Vec<Wanted> = wanted().collect();
    for (shown, wanted) in terminal.iter().zip(wanted.iter().filter(|it| it.rate.is_some())) {
        assert!(shown.is(wanted), "{shown:?} {wanted:?}");
    }
    let heads_before_costs = 5;
    let on_page: Vec<Shown> = rows(&page, "Handshakes by threads")
        .into_iter()
        .map(|mut cells| {
            cells.drain(3..heads_before_costs);
            cells.remove(0);
            Shown::of(&cells)
        })
        .collect();
    // Of the terminal alone, all threads' speed-up, which the page draws.
    let speed_ups: Vec<f64> = terminal.iter().map(|shown| shown.figures[0]).collect();
    let terminal: Vec<Shown> = terminal.into_iter().map(Shown::without_first).collect();
    same(&terminal, &on_page);
    let points: Vec<f64> = terminal.iter().map(|shown| shown.rate).collect();
    near(&drawn(&page, ",handshakes per second and thread,"), &points);
    near(&drawn(&page, ",times the rate of "), &speed_ups);
    marks_and_silence(&page, "Rate per thread", &wanted);
}

#[test]
fn terminal_and_page_show_the_same_transfers_whatever_disturbed_them() {
    let run = transfers();
    let (text, page) = (bulk::text(&run), page_of(std::slice::from_ref(&run)));
    let wanted: Vec<Wanted> = wanted().collect();
    let shown = |line: &str| line.starts_with("x ").then(|| cells_of(line));
    let terminal: Vec<Vec<String>> = text.lines().filter_map(shown).collect();
    assert_eq!(terminal.len(), COMBINATIONS, "{text:.2000}");
    let has_figures = |cells: &&Vec<String>| cells[FIGURES_AT] != "-";
    let with_figures = terminal.iter().filter(has_figures);
    let terminal: Vec<Shown> = with_figures.map(|cells| told(cells)).collect();
    for (shown, wanted) in terminal.iter().zip(wanted.iter().filter(|it| it.rate.is_some())) {
        assert!(shown.is(wanted), "{shown:?} {wanted:?}");
    }
    let costs = rows(&page, "What transfers cost");
    let on_page = costs.into_iter().map(|cells| {
        let [threads, rate, tally] = [2, 5, 10].map(|at| cells[at].clone());
        let figures = [&cells[6..8], &cells[9..10]].concat();
        Shown::of(&[vec![threads, rate], figures, vec![tally]].concat())
    });
    same(&terminal, &on_page.collect::<Vec<_>>());
    let rates: Vec<f64> = terminal.iter().map(|shown| shown.rate).collect();
    near(&drawn(&page, "\"MB/s of plaintext, all threads\""), &rates);
    marks_and_silence(&page, "per message, ", &wanted);
    let csv = bulk::csv(&run.bulk);
    let medians = csv.lines().skip(1).map(|line| line.split(',').nth(10).unwrap().to_owned());
    let medians: Vec<f64> = medians.filter(|it| !it.is_empty()).map(|it| value(&it)).collect();
    near(&medians, &rates);
}

/// The cell of a transfer's row at which its figures begin.
const FIGURES_AT: usize = 5;

/// What a table has of a point.
#[derive(Debug, PartialEq)]
struct Shown {
    threads: f64,
    is_hint: bool,
    rate: f64,
    figures: Vec<f64>,
    tally: String,
}

impl Shown {
    /// Threads, rate, other figures, and how many rounds count.
    fn of(cells: &[String]) -> Self {
        let [threads, rate, figures @ .., tally] = cells else { panic!("{cells:?}") };
        Self {
            threads: value(threads),
            is_hint: rate.starts_with('~'),
            rate: value(rate.trim_start_matches('~')),
            figures: figures.iter().map(|cell| value(cell.trim_start_matches('~'))).collect(),
            tally: tally.clone(),
        }
    }

    fn without_first(mut self) -> Self {
        self.figures.remove(0);
        self
    }

    fn is(&self, wanted: &Wanted) -> bool {
        let Wanted { threads, is_hint, rate } = wanted;
        self.threads == *threads && self.is_hint == *is_hint && Some(self.rate) == *rate
    }
}

/// What must be shown of a point.
#[derive(Debug)]
struct Wanted {
    threads: f64,
    is_hint: bool,
    /// `None` where nothing can be shown.
    rate: Option<f64>,
}

fn wanted() -> impl Iterator<Item = Wanted> {
    (1_u32..).zip(combinations()).map(|(threads, causes)| {
        let of = |is: fn(&Option<Invalid>) -> bool| {
            let mut rates: Vec<f64> = RATES
                .iter()
                .zip(&causes)
                .filter(|(_, it)| is(it))
                .map(|(r, _)| *r as f64)
                .collect();
            rates.sort_by(f64::total_cmp);
            let middle = |_| f64::midpoint(rates[(rates.len() - 1) / 2], rates[rates.len() / 2]);
            rates.first().map(middle)
        };
        let counting = of(Option::is_none);
        let hint = of(|it| it.as_ref().is_some_and(|it| *it != Invalid::Accounting));
        let is_hint = counting.is_none() && hint.is_some();
        Wanted { threads: threads.into(), is_hint, rate: counting.or(hint) }
    })
}

/// Every three causes in every order.
fn combinations() -> impl Iterator<Item = [Option<Invalid>; 3]> {
    let causes = || {
        let known = [Invalid::Accounting, Invalid::Preempted, Invalid::Start, Invalid::Starved];
        let others = [Invalid::Steal, Invalid::Unknown("thermal".into())];
        [None].into_iter().chain(known.into_iter().chain(others).map(Some))
    };
    let pairs = move || causes().flat_map(move |a| causes().map(move |b| (a.clone(), b)));
    pairs().flat_map(move |(a, b)| causes().map(move |c| [a.clone(), b.clone(), c]))
}

/// A point per combination; its threads are the combination's number.
fn handshakes() -> Run {
    let round = |threads: usize, rate: u64, invalid| HandshakeRound {
        window_ns: 1_000_000_000,
        per_thread: vec![rate; threads],
        cpu_ns: 6_000 * rate * rate * threads as u64,
        median_ns: [1_000 * rate, 2_000 * rate, 0],
        invalid,
        ..HandshakeRound::default()
    };
    let points = (1..).zip(combinations()).map(|(threads, causes)| {
        let rounds = RATES.into_iter().zip(causes).map(|(rate, it)| round(threads, rate, it));
        HandshakePoint { threads, pinned: Vec::new(), rounds: rounds.collect() }
    });
    let series = HandshakeSeries {
        stack: "x".into(),
        scenario: Scenario::default(),
        negotiated: None,
        points: points.collect(),
        times: None,
        failure: None,
    };
    Run { handshakes: vec![series], ..run() }
}

/// A series per combination; its threads are the combination's number.
fn transfers() -> Run {
    let round = |rate: u64, invalid| BulkRound {
        bytes: rate * 1_000_000,
        wall_ns: 1_000_000_000,
        cpu_ns: rate * rate * 100_000,
        check_ns: rate * rate * 50_000,
        migrated: rate,
        invalid,
        ..BulkRound::default()
    };
    let bulk = (1..).zip(combinations()).map(|(threads, causes)| BulkSeries {
        stack: "x".into(),
        runtime: "lanes".into(),
        driver: None,
        loops: None,
        emulate: None,
        scenario: Scenario::default(),
        threads,
        connections: 1,
        messages: 1,
        message_bytes: 1_024,
        verify: None,
        negotiated: None,
        rounds: RATES.into_iter().zip(causes).map(|(rate, it)| round(rate, it)).collect(),
        failure: None,
    });
    Run { bulk: bulk.collect(), ..run() }
}

fn run() -> Run {
    let machine = Machine { processors: COMBINATIONS, ..Machine::default() };
    Run { schema: SCHEMA.into(), machine, complete: true, ..Run::default() }
}

/// A row of the terminal's handshakes.
fn row(line: &str) -> Option<Shown> {
    let rest = line.strip_prefix("x ")?;
    let mut words = rest.split_whitespace().map(str::to_owned);
    let mut cells: Vec<String> = words.by_ref().take(8).collect();
    cells.push(words.collect::<Vec<_>>().join(" "));
    Some(Shown::of(&cells))
}

/// Threads, rate, other figures and how many rounds count, of a row of the terminal's transfers.
fn told(cells: &[String]) -> Shown {
    let [figures @ .., rate, tally] = &cells[FIGURES_AT..] else { panic!("{cells:?}") };
    let first = vec![cells[2].clone(), rate.clone()];
    Shown::of(&[first, figures.to_vec(), vec![tally.clone()]].concat())
}

/// The cells of a row whose columns stand two blanks apart; empty ones are left out.
fn cells_of(line: &str) -> Vec<String> {
    let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    cells.map(str::to_owned).collect()
}

/// The cells of the page's table whose caption begins so.
fn rows(page: &str, caption: &str) -> Vec<Vec<String>> {
    let Some((_, table)) = page.split_once(&format!("<p class=\"caption\">{caption}")) else {
        return Vec::new();
    };
    let (table, _) = table.split_once("</table>").unwrap();
    let cell = |cell: &str| {
        let (_, text) = cell.split_once('>').unwrap();
        text.split('<').next().unwrap().to_owned()
    };
    let rows = table.split("<tr>").skip(2);
    rows.map(|row| {
        row.split("</t")
            .filter(|it| it.contains("<td") || it.contains("<th"))
            .map(|it| cell(it.rsplit("<t").next().unwrap()))
            .collect()
    })
    .collect()
}

/// The heights of a plot's points, of the plot whose data have such a head.
fn drawn(page: &str, head: &str) -> Vec<f64> {
    let mut data =
        page.split("as CSV\">\n").skip(1).filter_map(|it| it.split("</textarea>").next());
    let csv = data.find(|csv| csv.lines().next().is_some_and(|line| line.contains(head))).unwrap();
    csv.lines().skip(1).map(|line| value(line.rsplit(',').nth(2).unwrap())).collect()
}

/// Hints are drawn hollow, and every point without figures is named.
fn marks_and_silence(page: &str, title: &str, wanted: &[Wanted]) {
    let figures = page.split("<figure").skip(1).map(|it| it.split("</figure>").next().unwrap());
    let figure = figures.into_iter().find(|it| it.contains(title)).unwrap();
    let views = figure.matches("class=\"face\"").count();
    let hints = wanted.iter().filter(|it| it.is_hint).count();
    assert_eq!(figure.matches("class=\"sign hollow\"").count(), views * hints);
    let silent = wanted.iter().filter(|it| it.rate.is_none()).count();
    assert_eq!(page.matches("no figures: no round can be used: ").count(), silent);
    assert!(hints > 0 && silent > 0);
}

fn same(terminal: &[Shown], page: &[Shown]) {
    assert_eq!(terminal.len(), page.len());
    for (one, other) in terminal.iter().zip(page) {
        let key = |it: &Shown| (it.threads.to_bits(), it.is_hint, it.tally.clone());
        assert_eq!(key(one), key(other), "{one:?} {other:?}");
        near(
            &[&[one.rate], &one.figures[..]].concat(),
            &[&[other.rate], &other.figures[..]].concat(),
        );
    }
}

/// Numbers that are as near as what both round to.
#[track_caller]
fn near(some: &[f64], others: &[f64]) {
    let is_near = |(one, other): (&f64, &f64)| (one - other).abs() <= 0.006 * other.abs().max(1.0);
    assert!(
        some.len() == others.len() && some.iter().zip(others).all(is_near),
        "{some:?} {others:?}"
    );
}

/// The first number of a cell.
fn value(cell: &str) -> f64 {
    let number = cell.split(' ').next().unwrap().replace(',', "");
    number.parse().unwrap_or_else(|_| panic!("no number: {cell:?}"))
}

/// Seven causes, the missing one among them, in three rounds.
const COMBINATIONS: usize = 7 * 7 * 7;
/// The figures of the rounds, each median of some of which is another.
const RATES: [u64; 3] = [10, 20, 40];
