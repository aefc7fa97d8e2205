//! The command `why`: what a server waits for. A number is a process that runs, watched from
//! outside by `live`; a name or a path is a stack.

mod stack;

use std::{
    env,
    io::{self, Write},
    path::PathBuf,
};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal::{self, Journal},
    options::Json,
};
use sealane_lab_model::error::Error;
use sealane_lab_report::page;
use sealane_lab_watch::live::{self, Wish, table};

/// The arguments of `why`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The id of a running server's first process, whose workers are found; or stacks, by name or
    /// path, separated by commas
    #[arg(value_name = "PID|STACK")]
    target: String,
    /// How long to watch it
    #[arg(long, help_heading = RUNNING, default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Allows strace where nothing better works: it slows the server by many times
    #[arg(long, help_heading = RUNNING)]
    allow_slow: bool,
    #[command(flatten)]
    json: Json,
    /// Draws everything there, as one page
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    #[command(flatten)]
    asked: stack::Question,
}

/// `true` if all went well.
///
/// # Errors
/// What is asked about is not there, or what stopped the command.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Error> {
    match arguments.target.parse() {
        Ok(pid) => process(pid, arguments),
        Err(_) if arguments.allow_slow => Err(Error::Check(
            "--allow-slow is for a running server, and this is no process id".into(),
        )),
        Err(_) => {
            let Arguments { json, html, .. } = arguments;
            let output = stack::Output { json: json.path(), html: html.as_deref() };
            stack::run(&arguments.target, &arguments.asked, &output)
        }
    }
}

/// A running server.
fn process(pid: u32, arguments: &Arguments) -> Result<bool, Error> {
    let stop = Interrupt::catch()?;
    let mut journal = Journal::begin(env::args().collect(), arguments.json.path());
    let Arguments { seconds, allow_slow, .. } = *arguments;
    let live = live::watch(pid, Wish { seconds, allow_slow }, &stop)?;
    let text = table::text(&live);
    let ended = live.ended;
    journal.run.live.push(live);
    let whole = !stop.is_pressed() && !ended;
    journal.save(whole)?;
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))?;
    if let Some(html) = &arguments.html {
        let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
        let document = folder.path().join("why.json");
        journal::write(&document, &journal.run)?;
        page::write(&[document], Vec::new(), html)?;
    }
    if stop.is_pressed() { Err(Error::Interrupted) } else { Ok(true) }
}

const RUNNING: &str = "Of a running server";
