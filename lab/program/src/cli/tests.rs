//! Every command line that the lab itself gives or takes is one of this program.

use std::path::Path;

use clap::CommandFactory;

use super::*;
use crate::{quick, steps::Step};

/// Whether `arguments`, without the program's name, make a command line.
fn parses(arguments: impl Iterator<Item = String>) -> Result<(), String> {
    let all = ["sealane-lab".to_owned()].into_iter().chain(arguments);
    Arguments::try_parse_from(all).map(|_| ()).map_err(|error| error.to_string())
}

fn words(line: &str) -> impl Iterator<Item = String> {
    line.split_whitespace().map(str::to_owned)
}

#[test]
fn every_step_is_a_command_of_this_program() {
    let binary = Path::new("/nonexistent/sealane-lab");
    let steps: [Vec<Step>; 2] = [quick::plan::steps(binary), writeups::plan::steps(binary, 2)];
    for step in steps.iter().flatten() {
        let arguments = step.arguments.iter().cloned().chain(["--json".into(), "x".into()]);
        let parsed = parses(arguments);
        assert!(parsed.is_ok(), "{step:?}: {parsed:?}");
    }
}

#[test]
fn why_takes_a_scenario_of_a_stack() {
    parses(words("why openssl,rustls --kind ticket --tls 1.2")).expect("a command line");
}

#[test]
fn every_task_has_a_name_of_its_own() {
    let mut names = TASKS.map(|(name, _)| name).to_vec();
    names.dedup();
    assert_eq!(names.len(), TASKS.len());
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn each_command_is_asked_for_by_somebody_in_the_readme() {
    let command = Arguments::command();
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    let mut named: Vec<_> = shown.map(clap::Command::get_name).collect();
    let readme = include_str!("../../../README.md");
    let (_, table) = readme.split_once("| command | for |\n|---|---|\n").expect("the table");
    let lines =
        table.lines().map_while(|line| Some(line.strip_prefix("| `")?.split_once("` | ")?.0));
    let mut lines: Vec<_> = lines.collect();
    named.sort_unstable();
    lines.sort_unstable();
    assert_eq!(lines, named);
    assert!(named.len() <= COMMANDS_MAX);
}

/// More is a sign that one of them has no user.
const COMMANDS_MAX: usize = 14;
