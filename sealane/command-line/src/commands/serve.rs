//! From a configuration to the end of the process: what every command that serves has in common.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use sealane_config::Config;
use sealane_control::file_tables::{Descriptors, FileTables};
use sealane_control::process;
use sealane_control::systemd;
use sealane_control::{ConfigSource, Control, Outcome, ServeError, StartControl};
use sealane_file_table::grow;
use tracing::{Level, error, info, warn};

use crate::args::ServeArguments;
use crate::exit::Exit;
use crate::own_log;

/// Serves as the command line says, until a signal ends it.
pub fn run(arguments: ServeArguments, start_control: StartControl) -> Exit {
    let exit = serve(arguments, start_control);
    if exit == Exit::Invalid {
        // Nobody comes soon who takes what waits in queues that were kept: who connects from now on
        // is refused, as a balancer has to see.
        systemd::forget_passed();
    }
    exit
}

fn serve(arguments: ServeArguments, start_control: StartControl) -> Exit {
    let file = arguments.config.clone();
    let config = match settled(arguments) {
        Ok(config) => config,
        Err(problem) => {
            error!("{problem}");
            return Exit::Invalid;
        }
    };
    if let Some(warning) = process::landlock::close(file.as_deref(), &config) {
        warn!("{warning}");
    }
    let source = match file {
        Some(file) => ConfigSource::File(file),
        None => ConfigSource::Flags(Box::new(config.clone())),
    };
    let control = match start(source, config, start_control) {
        Ok(control) => control,
        Err(exit) => return exit,
    };
    if let Some(warning) = process::warning() {
        warn!("{warning}");
    }
    match process::locked::warning() {
        Some((Level::WARN, text)) => warn!("{text}"),
        Some((_, text)) => info!("{text}"),
        None => {}
    }
    systemd::tell(&[NotifyState::Ready]);
    finish(control.run())
}

/// The configuration of a process that is what it says.
///
/// # Errors
/// What is not in order: also what a user that is not root any more cannot read, for a reload could
/// not either.
fn settled(arguments: ServeArguments) -> Result<Config, String> {
    let file = arguments.config.clone();
    let log = (arguments.log_level, arguments.log_format);
    let wrong = |mistakes| format!("the configuration is not in order:\n{mistakes}");
    let config = arguments.into_config().map_err(wrong)?;
    own_log::follow(log, &config);
    let account = process::settle(&config.process).map_err(|error| error.to_string())?;
    let Some((account, file)) = account.zip(file) else { return Ok(config) };
    Config::load(&file).map_err(|mistakes| {
        format!("the configuration is not in order for the user {account}:\n{mistakes}")
    })
}

/// Starts the terminator and says what is bound.
///
/// # Errors
/// How the process ends; why has been said.
pub(crate) fn start(
    source: ConfigSource,
    config: Config,
    start_control: StartControl,
) -> Result<Control, Exit> {
    raise_descriptor_limit();
    let tables = FileTables::of_this_machine();
    let descriptors = Descriptors::of(&config, &tables);
    if let Some(warning) = descriptors.warning(&config, getrlimit(Resource::Nofile).current) {
        warn!("{warning}");
    }
    // While this is the only thread.
    if let Err(error) = grow(descriptors.in_first_table(config.lanes.get() as u64)) {
        let text = format!("cannot grow the table of open files beforehand: {error}");
        warn!("{text}");
    }
    let control = start_control(source, config, tables).map_err(|error| {
        error!("{error}");
        match error {
            ServeError::Configuration(_) => Exit::Invalid,
            ServeError::LaneLost(_) | ServeError::System(..) => Exit::Failed,
        }
    })?;
    for address in control.bound() {
        info!("listening on {address}");
    }
    for address in control.admin_addresses() {
        info!("metrics and state on {address}");
    }
    info!("ready");
    Ok(control)
}

/// A connection costs two descriptors, and shells and service managers grant a program only 1,024
/// of those that it may have, for the sake of programs that know no more.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!("cannot raise the limit of open files: {error}");
    }
}

/// Says how the terminator ended, and what the process ends with.
pub(crate) fn finish(outcome: Result<Outcome, ServeError>) -> Exit {
    match outcome {
        Ok(Outcome::Cut(connections)) => {
            warn!("ended; {connections} connections were cut");
            Exit::Cut
        }
        Ok(Outcome::Drained) => {
            info!("ended");
            Exit::Ok
        }
        Err(error) => {
            error!("{error}");
            Exit::Failed
        }
    }
}
