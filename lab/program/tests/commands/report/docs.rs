//! docs/write-ups.md, held to the committed documents that it tells of.

use std::fs;

use sealane_lab_harness::journal;
use sealane_lab_model::{
    document::{Run, StrategyRow},
    number::number,
    statistics::Spread,
};

use super::{committed, home, words, written_page};

/// docs/write-ups.md has a row for each write-up, with the figure of its card on the page of the
/// committed documents, and says on which machine and when they were measured.
#[test]
fn the_docs_tell_of_every_writeup() {
    let page = words(&written_page(&committed("writeups"), &["--writeups"]));
    let told = fs::read_to_string(home().join("../docs/write-ups.md")).unwrap();
    let cards = page.split_once("Six write-ups from").unwrap().1;
    let lines: Vec<&str> = cards.lines().collect();
    let is_card = |lines: &&[&str]| lines[0].contains(" \u{2192} ") && lines[1].contains(": ");
    let figures = lines.windows(2).filter(is_card).map(|lines| lines.join(" "));
    let figures: Vec<String> = figures.map(|figure| figure.replace("&#39;", "'")).collect();
    assert_eq!(figures.len(), 6, "{cards:.2000}");
    // The first row is that of the heads.
    let (table, _) = told.split_once("## Heroku's own measurements").unwrap();
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert_eq!(rows.len(), figures.len(), "{told}");
    for figure in figures {
        let stands = rows.iter().any(|row| row.contains(&format!("| {figure} |")));
        assert!(stands, "docs/write-ups.md has not, as the page does: {figure}");
    }
    let machine = page.lines().find(|line| line.contains(" processors, ")).unwrap();
    let loads = committed("writeups");
    let loads = loads.iter().map(|file| journal::read(file).unwrap().noise.load_average[0]);
    let loads = Spread::of(&loads.collect::<Vec<_>>()).unwrap();
    let load = format!("load average {:.1} to {:.1} before", loads.min, loads.max);
    let machine = format!("{machine}, {load}");
    assert!(told.contains(&machine), "docs/write-ups.md does not say: {machine}");
}

/// And a row for each of Heroku's strategies, of names by a Zipf distribution.
#[test]
fn the_docs_tell_of_herokus_own_measurements() {
    let [document] = &committed("deployment")[..] else { panic!("one document") };
    let run = journal::read(document).unwrap();
    let told = fs::read_to_string(home().join("../docs/write-ups.md")).unwrap();
    let (_, told) = told.split_once("## Heroku's own measurements").unwrap();
    let strategies = ["central", "per-connection", "lane", "no certificates"];
    let rows: Vec<String> = strategies.iter().map(|strategy| row(&run, strategy)).collect();
    for row in &rows {
        assert!(told.contains(row), "docs/write-ups.md has not: {row}; all: {rows:#?}");
    }
    let settings = &run.strategies[0].settings;
    assert!(settings["names"].starts_with("by Zipf"), "{settings:?}");
    let load = format!("load average {:.1} before", run.noise.load_average[0]);
    assert!(told.contains(&load), "docs/write-ups.md does not say: {load}");
}

/// Median, and least to most, of all rounds: round trips with the owner's work alone and with the
/// injected cost, and the highest rate that was found.
fn row(run: &Run, strategy: &str) -> String {
    let rows = || run.strategies[0].rows.iter().filter(|it| it.strategy == strategy);
    let plain = rows().find(|it| it.figures.contains_key("kept_rate")).unwrap();
    let injected = rows().find(|it| {
        it.variant.contains_key("injected owner cost") && !it.variant.contains_key("deployed")
    });
    let trips = |row: Option<&StrategyRow>| {
        row.map_or("-".to_owned(), |row| {
            ["p50_ms", "p99_ms"].map(|name| spread(row, name)).join(" / ")
        })
    };
    let (plainly, injected) = (trips(Some(plain)), trips(injected));
    format!("| {strategy} | {plainly} | {injected} | {} |", spread(plain, "kept_rate"))
}

fn spread(row: &StrategyRow, name: &str) -> String {
    let Spread { median, min, max } = Spread::of(&row.figures[name]).unwrap();
    let [median, min, max] = [median, min, max].map(number);
    format!("{median} [{min}-{max}]")
}
