//! What the binary can be asked for: [`run`] does it, each command in a file of its own.

mod agent;
mod backends;
pub mod certificates;
pub mod check;
mod config;
mod connections;
pub mod convert;
pub mod demo;
pub mod man;
pub mod reload;
mod running;
pub mod serve;
pub mod status;

use std::io::{self, Write as _};

use sealane_control::StartControl;
use tracing::error;

use crate::args::Command;
use crate::exit::Exit;

/// Carries out `command`, whose results go to standard output; `start_control` starts a terminator.
///
/// # Errors
/// Standard output's.
pub fn run(command: Command, start_control: StartControl) -> io::Result<Exit> {
    let mut out = io::stdout().lock();
    match command {
        Command::Agent { arguments } => {
            drop(out);
            Ok(agent::run(&arguments))
        }
        Command::Fleet { mut arguments } => {
            drop(out);
            arguments.insert(0, "fleet".into());
            Ok(agent::run(&arguments))
        }
        Command::Backends(command) => backends::run(&command, &mut out),
        Command::Certificates(command) => certificates::run(&command, &mut out),
        Command::Check(arguments) => check::run(&arguments, &mut out),
        Command::Completions { shell } => {
            // The generator panics on a pipe that was closed; a buffer never closes.
            let mut script = Vec::new();
            man::write_completions(shell, &mut script);
            out.write_all(&script).map(|()| Exit::Ok)
        }
        Command::Config(command) => config::run(&command, &mut out),
        Command::Connections(command) => connections::run(&command, &mut out),
        Command::Convert(arguments) => convert::run(&arguments, &mut out),
        Command::Demo(arguments) => demo::run(&arguments, start_control, &mut out),
        Command::Man { command } => match man::write_page(command.as_deref(), &mut out) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                error!("{error}");
                Ok(Exit::Usage)
            }
            written => written.map(|()| Exit::Ok),
        },
        Command::Reload(arguments) => reload::run(&arguments, &mut out),
        Command::Serve(arguments) => {
            drop(out);
            Ok(serve::run(arguments, start_control))
        }
        Command::Status(arguments) => status::run(&arguments, &mut out),
    }
}

/// A number of things in words.
fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}
