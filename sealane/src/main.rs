//! The command `sealane`.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};

use sealane::args::{Arguments, Command};
use sealane::control::say;
use sealane::exit::Exit;
use sealane::{certificates, check, demo, man, serve};

fn main() -> Exit {
    match run(Arguments::from_process().command) {
        Ok(exit) => exit,
        // Whoever reads our output has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        Err(error) => {
            say(&error.to_string());
            Exit::Failed
        }
    }
}

fn run(command: Command) -> io::Result<Exit> {
    let mut out = io::stdout().lock();
    match command {
        Command::Certificates(command) => certificates::run(&command, &mut out),
        Command::Check(arguments) => check::run(&arguments, &mut out),
        Command::Completions { shell } => {
            // The generator panics on a pipe that was closed; a buffer never closes.
            let mut script = Vec::new();
            man::write_completions(shell, &mut script);
            out.write_all(&script).map(|()| Exit::Ok)
        }
        Command::Demo(arguments) => demo::run(&arguments, &mut out),
        Command::Man { command } => match man::write_page(command.as_deref(), &mut out) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                say(&error.to_string());
                Ok(Exit::Usage)
            }
            written => written.map(|()| Exit::Ok),
        },
        Command::Serve(arguments) => {
            drop(out);
            Ok(serve::run(arguments))
        }
    }
}
