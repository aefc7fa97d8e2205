//! The command `sealane`.
#![forbid(unsafe_code)]

use std::io::{self, Write as _};

use sealane::args::{Arguments, Command, ServeArguments};
use sealane::check;
use sealane::control::{ConfigSource, Control, Outcome, ServeError, say};
use sealane::exit::Exit;
use sealane::man;

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
        Command::Check(arguments) => check::run(&arguments, &mut out),
        Command::Completions { shell } => {
            // The generator panics on a pipe that was closed; a buffer never closes.
            let mut script = Vec::new();
            man::write_completions(shell, &mut script);
            out.write_all(&script).map(|()| Exit::Ok)
        }
        Command::Man { command } => match man::write_page(command.as_deref(), &mut out) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                say(&error.to_string());
                Ok(Exit::Usage)
            }
            written => written.map(|()| Exit::Ok),
        },
        Command::Serve(arguments) => {
            drop(out);
            Ok(serve(arguments))
        }
    }
}

fn serve(arguments: ServeArguments) -> Exit {
    let file = arguments.config.clone();
    let config = match arguments.into_config() {
        Ok(config) => config,
        Err(mistakes) => {
            say(&format!("the configuration is not in order:\n{mistakes}"));
            return Exit::Invalid;
        }
    };
    let source = match file {
        Some(file) => ConfigSource::File(file),
        None => ConfigSource::Flags(Box::new(config.clone())),
    };
    let control = match Control::start(source, config) {
        Ok(control) => control,
        Err(error) => {
            say(&error.to_string());
            return match error {
                ServeError::Configuration(_) => Exit::Invalid,
                ServeError::LaneLost(_) | ServeError::System(..) => Exit::Failed,
            };
        }
    };
    for address in control.bound() {
        say(&format!("listening on {address}"));
    }
    if let Some(address) = control.admin_address() {
        say(&format!("metrics and state on {address}"));
    }
    say("ready");
    // Without a service manager that asked to be told, this does nothing.
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    match control.run() {
        Ok(Outcome::Cut(connections)) => {
            say(&format!("ended; {connections} connections were cut"));
            Exit::Cut
        }
        Ok(Outcome::Drained) => Exit::Ok,
        Err(error) => {
            say(&error.to_string());
            Exit::Failed
        }
    }
}
