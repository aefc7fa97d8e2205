//! What the process does: [`run`].

use std::collections::BTreeSet;
use std::env;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Access;
use sd_notify::NotifyState;
use sealane_operator::log::{self, LogSettings};
use sealane_operator::memory::hide_memory;
use sealane_operator::{sealing_keys, value};
use sealane_store::{DATA_FILE, KeyedStore, SealingKeys, Store, examine};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::LocalSet;
use tracing::{error, info, warn};

use crate::account::external_key;
use crate::agent::Agent;
use crate::args::{Arguments, Command, ConfigCommand, FleetCommand};
use crate::clock::now;
use crate::etcd::Etcd;
use crate::examination::examine_apart;
use crate::fleet;
use crate::ledger::Ledger;
use crate::on_demand::Service;
use crate::push::{Door, DoorError};
use crate::renew::renew;
use crate::sandbox;
use crate::settings::{self, Challenge, FleetSettings, Permission, Settings};
use crate::trust::client_config;

/// Does what was typed, and says on standard error what comes of it.
#[must_use]
pub fn run(arguments: Arguments) -> ExitCode {
    hide_memory();
    let done = match arguments.command {
        None => {
            let (level, format) = (arguments.log_level, arguments.log_format);
            log::set(LogSettings { level, format });
            serve(&arguments.config)
        }
        Some(Command::Check { config }) => check(&config),
        Some(Command::Config { command: ConfigCommand::Schema }) => print_schema(),
        Some(Command::Examine { store }) => look_into(&store),
        Some(Command::Renew { name, config }) => renew_now(&name, &config),
        Some(Command::Fleet { command: FleetCommand::RotateTickets { config } }) => {
            rotate_tickets(&config)
        }
        Some(Command::Fleet { command: FleetCommand::Status { config, json } }) => {
            fleet_status(&config, json)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(End { code, text }) => {
            error!("{text}");
            code.into()
        }
    }
}

/// An end that is not well.
struct End {
    code: u8,
    text: String,
}

impl End {
    fn failed(text: impl Display) -> Self {
        Self::with(1, &text)
    }

    fn invalid(text: impl Display) -> Self {
        Self::with(3, &text)
    }

    fn with(code: u8, text: &dyn Display) -> Self {
        Self { code, text: text.to_string() }
    }
}

fn check(file: &Path) -> Result<(), End> {
    let settings = Settings::load(file).map_err(End::invalid)?;
    open(&settings)?;
    let wrong = unusable_files(&settings);
    if !wrong.is_empty() {
        return Err(End::invalid(wrong.join("\n")));
    }
    settings.push.as_ref().map_or(Ok(()), Door::check).map_err(End::invalid)?;
    let counted = match settings.certificates.len() {
        1 => "1 certificate".to_owned(),
        count => format!("{count} certificates"),
    };
    info!("{}: in order, {counted}", file.display());
    Ok(())
}

fn print_schema() -> Result<(), End> {
    let schema = serde_json::to_string_pretty(&settings::schema()).map_err(End::failed)?;
    writeln!(io::stdout(), "{schema}").map_err(End::failed)
}

/// What is wrong with the files that the settings name, and that are opened when they are needed.
fn unusable_files(settings: &Settings) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, authority) in settings.authorities.iter().enumerate() {
        let mut note = |what: String| wrong.push(format!("authority[{number}].{what}"));
        if let Err(error) = client_config(&authority.roots, None) {
            note(error.to_string());
        }
        let external = authority.external_account.as_ref().map(external_key);
        if let Some(Err(failed)) = external {
            note(failed.text);
        }
    }
    let permission = settings.on_demand.as_ref().map(|table| &table.permission);
    if let Some(Err(error)) = permission.map(Service::check) {
        wrong.push(format!("on_demand: {error}"));
    }
    wrong.extend(unusable_commands(settings));
    let cluster = settings.fleet.as_ref().map(|fleet| Etcd::new(&fleet.etcd));
    if let Some(Err(error)) = cluster {
        wrong.push(format!("fleet.{error}"));
    }
    wrong
}

/// The faults of the programs that the settings name, each once.
fn unusable_commands(settings: &Settings) -> Vec<String> {
    let mut programs = BTreeSet::new();
    let lists = settings.lists.iter().map(|list| &list.challenge);
    let on_demand = settings.on_demand.as_ref();
    let challenges = settings.certificates.iter().map(|certificate| &certificate.challenge);
    for challenge in challenges.chain(lists).chain(on_demand.map(|table| &table.challenge)) {
        if let Challenge::Dns01(command) = challenge {
            programs.extend(command.first().map(|program| ("dns_command", program)));
        }
    }
    if let Some(Permission::Command(command)) = on_demand.map(|table| &table.permission) {
        programs.extend(command.first().map(|program| ("ask_command", program)));
    }
    let wrong = programs.into_iter().filter(|(_, program)| !can_be_run(program));
    let told = wrong.map(|(key, program)| {
        format!("{key}: {program} is no program that this user can run; correct its path or mode")
    });
    told.collect()
}

/// Whether a program is there, at its path or in a folder of `PATH`, and may be run.
fn can_be_run(program: &str) -> bool {
    let is_program =
        |path: &Path| path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok();
    if program.contains('/') {
        return is_program(Path::new(program));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| is_program(&folder.join(program)))
}

fn renew_now(name: &str, file: &Path) -> Result<(), End> {
    let settings = Settings::load(file).map_err(End::invalid)?;
    let (store, _) = open(&settings)?;
    renew(name, file, &settings, &Ledger::new(store)).map_err(End::failed)
}

fn fleet_of<'s>(file: &Path, settings: &'s Settings) -> Result<&'s FleetSettings, End> {
    settings.fleet.as_ref().ok_or_else(|| {
        let what = "has no table [fleet], so this machine shares with no other";
        End::invalid(format!("{}: {what}", file.display()))
    })
}

fn rotate_tickets(file: &Path) -> Result<(), End> {
    let settings = Settings::load(file).map_err(End::invalid)?;
    let fleet = fleet_of(file, &settings)?;
    let (store, keys) = open(&settings)?;
    let etcd = Etcd::new(&fleet.etcd).map_err(|error| End::invalid(format!("fleet: {error}")))?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(End::failed)?;
    let rotated = runtime.block_on(fleet::rotate_tickets(&etcd, &keys, fleet, &store));
    let (epoch, from_s) = rotated.map_err(End::failed)?;
    let left = Duration::from_secs(from_s.saturating_sub(now().0));
    let when = match left.is_zero() {
        true => "now".to_owned(),
        false => format!("epoch {epoch} on, in {}", value::duration_text(left)),
    };
    info!("a new ticket root holds from {when}; whoever read the last one reads until then");
    Ok(())
}

fn fleet_status(file: &Path, is_json: bool) -> Result<(), End> {
    let settings = Settings::load(file).map_err(End::invalid)?;
    let fleet = fleet_of(file, &settings)?;
    let etcd = Etcd::new(&fleet.etcd).map_err(|error| End::invalid(format!("fleet: {error}")))?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(End::failed)?;
    let all = runtime.block_on(fleet::Statuses::ask(&etcd, &fleet.prefix));
    let fleet::Statuses { told, strange } = all.map_err(End::failed)?;
    for strange in strange.iter().take(STRANGE_SHOWN_MAX) {
        warn!("{strange}");
    }
    let text = match is_json {
        true => serde_json::to_string_pretty(&told).map_err(End::failed)? + "\n",
        false => fleet::table(&told),
    };
    io::stdout().write_all(text.as_bytes()).map_err(End::failed)
}

fn serve(file: &Path) -> Result<(), End> {
    let settings = Settings::load(file).map_err(End::invalid)?;
    let (store, keys) = open(&settings)?;
    if settings.fleet.is_none() {
        // Of a fleet that this machine has left nobody is to hear any more.
        fleet::leave_word(&store, None);
    }
    let is_closed = sandbox::close(&settings);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(End::failed)?;
    LocalSet::new().block_on(&runtime, async {
        let mut signals = Signals::caught().map_err(End::failed)?;
        let door = settings.push.as_ref().map(|push| Door::open(push, Arc::clone(&store)));
        let door = door.transpose().map_err(End::invalid)?;
        let mut agent = Agent::new(settings, store, keys).map_err(End::invalid)?;
        agent.share();
        info!("looks after {} certificates", agent.certificate_count());
        tell(&[NotifyState::Ready]);
        loop {
            let heard = tokio::select! {
                () = agent.step() => continue,
                heard = signals.next() => heard,
            };
            match heard {
                Heard::End => return end(agent, door, signals).await,
                Heard::Reload => reload(&mut agent, door.as_ref(), file, is_closed),
            }
        }
    })
}

/// Reads the settings again. Programs of a process that is closed could write nothing.
fn reload(agent: &mut Agent, door: Option<&Door>, file: &Path, is_closed: bool) {
    tell(&[NotifyState::Reloading]);
    let reloaded =
        Settings::load(file).map_err(|mistakes| mistakes.to_string()).and_then(|settings| {
            if is_closed && settings.starts_programs() {
                return Err(COMMAND_AFTER_START.to_owned());
            }
            let pushed = match (door, &settings.push) {
                (Some(door), Some(push)) => Some(door.reload(push)),
                (None, None) => None,
                _ => Some(Err(DoorError::Restart)),
            };
            let pushed = pushed.transpose().map_err(|error| error.to_string())?;
            agent.reload(settings)?;
            // Nothing has changed where something is wrong.
            if let Some(apply) = pushed {
                apply();
            }
            Ok(())
        });
    match reloaded {
        Ok(()) => info!("reloaded: looks after {} certificates", agent.certificate_count()),
        Err(text) => error!("not reloaded; what runs goes on: {text}"),
    }
    tell(&[NotifyState::Ready]);
}

async fn end(mut agent: Agent, door: Option<Door>, mut signals: Signals) -> Result<(), End> {
    tell(&[NotifyState::Stopping]);
    let all = async {
        let door = async {
            if let Some(door) = door {
                door.close().await;
            }
        };
        tokio::join!(agent.finish(), door);
    };
    let finished = tokio::select! {
        finished = tokio::time::timeout(END_TIMEOUT, all) => finished.is_ok(),
        _ = signals.next() => false,
    };
    match finished {
        true => info!("ends; nothing is under way"),
        false => info!("ends; what is under way goes on at the next start"),
    }
    Ok(())
}

/// What the agent is told from outside.
enum Heard {
    End,
    Reload,
}

struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn caught() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Heard {
        tokio::select! {
            _ = self.hangup.recv() => Heard::Reload,
            _ = self.interrupt.recv() => Heard::End,
            _ = self.terminate.recv() => Heard::End,
        }
    }
}

/// Opens the store, or makes an empty one where none is.
fn open(settings: &Settings) -> Result<(Arc<KeyedStore>, SealingKeys), End> {
    let keys = sealing_keys(&settings.store_key);
    let keys = keys.map_err(|error| End::invalid(format!("store_key: {error}")))?;
    refuse_rights_of_root(&settings.store)?;
    if settings.store.join(DATA_FILE).exists() {
        examine_apart(&settings.store).map_err(End::invalid)?;
    }
    let store = Store::open_or_create(&settings.store).map_err(End::invalid)?;
    let keyed = KeyedStore::new(Arc::new(store), keys.clone()).map_err(End::invalid)?;
    Ok((Arc::new(keyed), keys))
}

/// Whoever writes to the store's folder can lead a process astray that opens it: one that may do
/// everything opens root's own alone.
fn refuse_rights_of_root(store: &Path) -> Result<(), End> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let owner = fs::metadata(store).map_or(0, |facts| facts.uid());
    if is_root && owner != 0 {
        return Err(End::invalid(format!(
            "{}: the store belongs to the user with the number {owner}, and this is root; run the \
             agent as that user, as packaging/sealane-agent.service does",
            store.display()
        )));
    }
    Ok(())
}

fn look_into(store: &Path) -> Result<(), End> {
    examine(store, || {}).map(drop).map_err(End::invalid)
}

fn tell(state: &[NotifyState<'_>]) {
    // If the manager does not listen, the work goes on.
    let _ = sd_notify::notify(state);
}

const COMMAND_AFTER_START: &str = "the first command takes a restart: since its start this process \
                                   may write to the store alone (Landlock); restart the agent";
/// For how long an end waits for what is under way.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// Lines of what is no status that are shown.
const STRANGE_SHOWN_MAX: usize = 10;
