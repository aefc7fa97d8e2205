//! The control plane: one thread that may lock, block and fail, and never touches a lane's memory.
//!
//! It starts the lanes, builds every generation whole, publishes it by mailbox, and ends the
//! process in order. A change that has anything wrong with it changes nothing.

mod build;
mod listeners;
mod reload;
mod responders;
mod sockets;
mod ticket_root;
mod watch;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use sd_notify::NotifyState;
use sealane_file_table::FileTable;
use sealane_lanes::generation::Generation;
use sealane_lanes::kernel::{Address, Linux};
use sealane_lanes::mailbox::Mail;
use sealane_lanes::start::{LaneHandle, LaneSetup, Own, processors, start};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::access_log::{self, LaneLog, LogWriter};
use crate::admin::{AccessLogCounters, Admin, Phase, SharedState};
use crate::backends::RelaySettings;
use crate::config::Config;
use crate::cost::connection_bytes_of_lane;
use crate::file_tables::{Descriptors, FileTables};
use crate::listener::Summary;
use crate::notices::Notices;
use crate::relay::Relay;

pub(crate) use build::unix_now;
use build::{BackendRegistry, Built, Registries, build};
use listeners::counted;
use reload::Pending;
use sockets::{Bound, NewSockets, open_new};
use ticket_root::KeptRoot;
pub(crate) use ticket_root::read as read_ticket_root;
use watch::{FileWatch, fingerprint};

/// Where the configuration comes from, and so whether it can be read again.
pub enum ConfigSource {
    /// A file, read again at each reload.
    File(PathBuf),
    /// Flags; a reload reads only the certificates again.
    Flags(Box<Config>),
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every connection ended before the deadline.
    Drained,
    /// The drain's deadline, or a second signal, cut connections that were still open.
    Cut(usize),
}

/// Why the terminator cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration, certificates or addresses; a line for each mistake.
    #[error("{}", .0.join("\n"))]
    Configuration(Vec<String>),
    /// The operating system refused something that the control plane needs.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
    /// A lane's thread ended by itself: a fault of Sealane.
    #[error("lane {0} ended by itself; this is a fault of Sealane")]
    LaneLost(usize),
}

/// Something that the control plane reacts to.
enum Event {
    FilesHint,
    Notice(String),
    Signal(i32),
}

/// Folders that cannot be watched, and are named.
const UNWATCHED_SHOWN_MAX: usize = 5;
/// How often the control plane looks at its lanes and at the clock without being asked.
const TICK: Duration = Duration::from_millis(500);

/// The running terminator.
pub struct Control {
    source: ConfigSource,
    config: Config,
    lanes: Vec<LaneHandle<Relay>>,
    registries: Registries,
    root: KeptRoot,
    number: u64,
    /// Every generation that a lane may still hold, so that the last to let go, and to free what
    /// may be many certificates, is this thread and not a lane.
    generations: Vec<Arc<Generation<RelaySettings>>>,
    state: SharedState,
    admin: Option<Admin>,
    log: Option<LogWriter>,
    bound: Vec<Bound>,
    events: Receiver<Event>,
    notices: Sender<Event>,
    watch: FileWatch,
    fingerprint: u64,
}

impl Control {
    /// Builds the first generation and starts the lanes, with such tables of open files; when this
    /// returns they accept.
    ///
    /// # Errors
    /// Anything wrong with configuration, certificates, addresses or the system.
    pub fn start(
        source: ConfigSource,
        config: Config,
        tables: FileTables,
    ) -> Result<Self, ServeError> {
        let (sender, events) = channel();
        forward_signals(sender.clone())?;
        let notices = sender.clone();
        let watch = FileWatch::new(move || {
            // Nobody listens any more when the process is about to end.
            let _ = sender.send(Event::FilesHint);
        })
        .map_err(|error| ServeError::System("cannot watch files", std::io::Error::other(error)))?;
        let root = KeptRoot::open(&config.tickets)
            .map_err(|problem| ServeError::Configuration(vec![problem]))?;
        let mut control = Self {
            fingerprint: fingerprint(source.file(), &config),
            source,
            config,
            lanes: Vec::new(),
            registries: Registries::new(notices.clone()),
            root,
            number: 0,
            generations: Vec::new(),
            state: SharedState::default(),
            admin: None,
            log: None,
            bound: Vec::new(),
            events,
            notices,
            watch,
        };
        let mut logs = control.open_log()?;
        control.open_admin()?;
        control.start_lanes(&mut logs, &tables)?;
        control.tell_tables(tables);
        control.state.lock().phase = Phase::Serving;
        Ok(control)
    }

    /// The addresses that are bound, with the ports that were chosen for port 0.
    pub fn bound(&self) -> impl Iterator<Item = &Address> {
        self.bound.iter().map(|bound| &bound.local)
    }

    /// How many lanes run.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// Where metrics and state are served, if anywhere.
    pub fn admin_address(&self) -> Option<&Address> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Serves until a signal ends it.
    ///
    /// # Errors
    /// A lane was lost.
    pub fn run(mut self) -> Result<Outcome, ServeError> {
        // What changed between the first look at the files and their being watched.
        let mut pending: Option<Pending> = None;
        Pending::note(&mut pending);
        loop {
            let wait = pending.as_ref().map_or(TICK, Pending::wait).min(TICK);
            match self.events.recv_timeout(wait) {
                Ok(Event::Signal(SIGHUP)) => {
                    self.reload();
                    Pending::note(&mut pending);
                }
                Ok(Event::FilesHint) => Pending::note(&mut pending),
                Ok(Event::Notice(line)) => say(&line),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) => return self.drain(),
            }
            if pending.as_ref().is_some_and(Pending::is_due) {
                pending = None;
                let is_followed = self.config.watch;
                if is_followed && fingerprint(self.source.file(), &self.config) != self.fingerprint
                {
                    self.reload();
                    // Folders that are new in it were not watched while it was built.
                    Pending::note(&mut pending);
                }
            }
            self.look_after();
            if let Some(lost) = self.lanes.iter().find(|lane| lane.has_ended()) {
                // The others finish what they have; whoever supervises the process starts it anew.
                say(&ServeError::LaneLost(lost.number).to_string());
                return self.drain();
            }
        }
    }

    fn open_log(&mut self) -> Result<Vec<LaneLog>, ServeError> {
        let Some(settings) = &self.config.access_log else { return Ok(Vec::new()) };
        let report = |error: &access_log::AccessLogError| say(&error.to_string());
        let (logs, writer) = access_log::open(settings, self.config.lanes.get(), report)
            .map_err(|error| ServeError::Configuration(vec![error.to_string()]))?;
        self.state.lock().access_log = Some(AccessLogCounters::of(&writer));
        self.log = Some(writer);
        Ok(logs)
    }

    fn open_admin(&mut self) -> Result<(), ServeError> {
        let Some(address) = &self.config.admin else { return Ok(()) };
        let admin = Admin::start(address, &self.config.admin_hosts, self.state.clone())
            .map_err(|error| ServeError::Configuration(vec![error.to_string()]))?;
        self.admin = Some(admin);
        Ok(())
    }

    fn start_lanes(
        &mut self,
        logs: &mut Vec<LaneLog>,
        tables: &FileTables,
    ) -> Result<(), ServeError> {
        let own = Own {
            file_table: tables.wanted(),
            descriptors: Descriptors::of(&self.config, tables).per_lane,
            memory_bytes: connection_bytes_of_lane(&self.config),
        };
        let built =
            build(&self.config, 1, &mut self.registries).map_err(ServeError::Configuration)?;
        let mut sockets = open_new(&built.generation, &self.config, &self.bound)
            .map_err(ServeError::Configuration)?;
        report(&built.warnings);
        let generation = self.adopt(built, &mut sockets);
        let processors = if self.config.pin_lanes {
            processors().map_err(|error| ServeError::System("cannot pin lanes", error))?
        } else {
            Vec::new()
        };
        for number in 0..self.config.lanes.get() {
            let setup = LaneSetup {
                number,
                pin_to_cpu: processors.get(number % processors.len().max(1)).copied(),
                tickets: self.root.current().clone(),
                decoded_keys_max: decoded_keys_max(&self.config),
                first: Arc::clone(&generation),
                sockets: sockets.of_lane(number),
                own,
                kernel: Linux,
            };
            let log = if logs.is_empty() { None } else { Some(logs.remove(0)) };
            let notices = notices_to(&self.notices);
            let lane = start(setup, move |_| Relay::new(number, log, notices))
                .map_err(|error| ServeError::System("cannot start a lane", error))?;
            self.state.lock().lanes.push(Arc::clone(&lane.counters));
            self.lanes.push(lane);
        }
        self.follow_files();
        Ok(())
    }

    /// Says if lanes share a table of open files, and lets the admin address show whose they have.
    fn tell_tables(&self, wanted: FileTables) {
        let refused = self.lanes.iter().find_map(|lane| lane.refusal.as_ref());
        let tables =
            refused.map_or(wanted, |refusal| FileTables::Shared { refusal: refusal.to_string() });
        if let Some(warning) = tables.warning() {
            say(&warning);
        }
        let is_own = |lane: &&LaneHandle<Relay>| lane.file_table == FileTable::Own;
        let mut state = self.state.lock();
        state.file_tables = tables;
        state.lanes_with_own_table = self.lanes.iter().filter(is_own).count();
    }

    /// Makes a built generation the current one; what is left is to publish it.
    fn adopt(&mut self, built: Built, sockets: &mut NewSockets) -> Arc<Generation<RelaySettings>> {
        let generation = Arc::new(built.generation);
        self.number = generation.number;
        let is_kept = |bound: &Bound| {
            generation.listeners.iter().any(|listener| listener.keys.contains(&bound.key))
                && !sockets.bound.iter().any(|new| new.key == bound.key)
        };
        self.bound.retain(is_kept);
        for kept in &self.bound {
            kept.permit(&self.config).unwrap_or_else(|problem| say(&problem));
        }
        self.bound.append(&mut sockets.bound);
        self.show(&generation, built.summaries);
        self.generations.push(Arc::clone(&generation));
        generation
    }

    /// Lets the admin address show the new generation.
    fn show(&self, generation: &Arc<Generation<RelaySettings>>, listeners: Vec<Summary>) {
        let mut state = self.state.lock();
        state.generations.publish(generation.number, generation);
        state.listeners = listeners;
        state.listeners_counted = counted(generation);
        state.backends = BackendRegistry::of(generation);
        state.limits = self.config.limits.clone();
    }

    fn follow_files(&mut self) {
        if !self.config.watch {
            return;
        }
        let problems = self.watch.follow(self.source.file(), &self.config);
        for problem in problems.iter().take(UNWATCHED_SHOWN_MAX) {
            say(&format!("{problem}; a change there is noticed only at SIGHUP"));
        }
        if let Some(more) = problems.len().checked_sub(UNWATCHED_SHOWN_MAX + 1) {
            say(&format!(
                "… and {} more folders; the limit is fs.inotify.max_user_watches",
                more + 1
            ));
        }
    }

    /// What has to happen now and then: forget what no generation names any more, notice stores
    /// that somebody else changed, and keep the ticket root in step with the clock.
    fn look_after(&mut self) {
        self.generations.retain(|generation| Arc::strong_count(generation) > 1);
        self.registries.backends.prune();
        self.registries.listeners.prune();
        self.registries.responders.prune();
        self.registries.stores.prune();
        for news in self.registries.stores.look_after() {
            say(&news);
        }
        if let Some(problem) = self.root.advance() {
            say(&problem);
        }
    }

    /// Ends in order, as the first signal would make it.
    ///
    /// # Errors
    /// A lane was lost.
    pub fn stop(self) -> Result<Outcome, ServeError> {
        self.drain()
    }

    fn drain(mut self) -> Result<Outcome, ServeError> {
        tell_service_manager(&[NotifyState::Stopping]);
        say("draining: no new connections; a second signal ends at once");
        // The files of unix sockets go before nobody answers there.
        self.bound.clear();
        self.state.lock().phase = Phase::Draining;
        for lane in &self.lanes {
            lane.post(Mail::Drain(self.config.limits.drain_timeout));
        }
        while !self.lanes.iter().all(LaneHandle::has_ended) {
            match self.events.recv_timeout(DRAIN_TICK) {
                Ok(Event::Notice(line)) => say(&line),
                Ok(Event::Signal(signal)) if signal != SIGHUP => {
                    for lane in &self.lanes {
                        lane.post(Mail::Stop);
                    }
                }
                Ok(Event::FilesHint | Event::Signal(_)) | Err(_) => {}
            }
        }
        let (mut cut, mut lost) = (0, None);
        for lane in self.lanes {
            let number = lane.number;
            match lane.join() {
                Ok(end) => cut += end.cut,
                Err(_) => lost = Some(number),
            }
        }
        if let Some(log) = self.log
            && !log.stop()
        {
            say("the access log's destination did not take the last lines");
        }
        if let Some(admin) = self.admin {
            admin.stop();
        }
        match lost {
            Some(number) => Err(ServeError::LaneLost(number)),
            None if cut == 0 => Ok(Outcome::Drained),
            None => Ok(Outcome::Cut(cut)),
        }
    }
}

/// How often a drain looks whether the lanes have ended.
const DRAIN_TICK: Duration = Duration::from_millis(20);

impl ConfigSource {
    fn file(&self) -> Option<&std::path::Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Flags(_) => None,
        }
    }
}

/// What is said to an operator by the control plane's thread, for which nobody waits.
fn notices_to(events: &Sender<Event>) -> Notices {
    let events = events.clone();
    Notices::new(move |line| {
        // Nobody listens any more when the process is about to end.
        let _ = events.send(Event::Notice(line));
    })
}

fn forward_signals(events: Sender<Event>) -> Result<(), ServeError> {
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGTERM])
        .map_err(|error| ServeError::System("cannot listen for signals", error))?;
    let forward = move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(forward)
        .map_err(|error| ServeError::System("cannot start a thread", error))?;
    Ok(())
}

fn decoded_keys_max(config: &Config) -> std::num::NonZeroUsize {
    std::num::NonZeroUsize::new(config.limits.decoded_keys_per_lane_max)
        .unwrap_or(std::num::NonZeroUsize::MIN)
}

fn report(warnings: &[String]) {
    for warning in warnings {
        say(&format!("warning: {warning}"));
    }
}

/// Tells a service manager that asked to be told; without one this does nothing.
pub(crate) fn tell_service_manager(state: &[NotifyState<'_>]) {
    // If the manager does not listen, the work goes on.
    let _ = sd_notify::notify(state);
}

/// Tells the operator, on standard error, where service managers collect it.
pub fn say(line: &str) {
    // With standard error gone there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "sealane: {line}");
}
