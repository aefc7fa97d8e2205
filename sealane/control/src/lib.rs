//! The control plane: one thread that may lock, block and fail, and never touches a lane's memory.
//!
//! It starts the lanes, builds every generation whole, publishes it by mailbox, and ends the
//! process in order. A change that has anything wrong with it changes nothing.
#![forbid(unsafe_code)]

pub mod admin;
mod build;
pub mod cost;
mod end;
mod faults;
pub mod file_tables;
mod health;
mod kept;
mod listeners;
pub mod metrics;
mod names;
mod on_demand;
pub mod process;
mod reload;
mod responders;
mod sockets;
pub mod state;
pub mod systemd;
mod ticket_root;
mod watch;
mod watchdog;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use sealane_config::Config;
use sealane_file_table::FileTable;
use sealane_lanes::generation::Generation;
use sealane_lanes::kernel::{Address, Linux};
use sealane_lanes::mailbox::Mail;
use sealane_lanes::service::Service;
use sealane_lanes::start::{LaneHandle, LaneSetup, Own, processors, start};
use sealane_lanes::thread::LaneThread;
use sealane_listeners::{Answers, Summary, host_names};
use sealane_operator::{Priority, say, say_at};
use sealane_traffic::access_log::{self, LaneLog, LogWriter};
use sealane_traffic::admission::RefusedClients;
use sealane_traffic::backends::RelaySettings;
use sealane_traffic::checks::{Checker, Found};
use sealane_traffic::connection_number::NumberGiver;
use sealane_traffic::lane_orders::{LaneDesk, LaneParts, queue};
use sealane_traffic::notices::Notices;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::admin::{Admin, Orders, Uploads};
use crate::cost::connection_bytes_of_lane;
use crate::file_tables::{Descriptors, FileTables};
use crate::process::filter::{Filter, unfiltered};
use crate::state::{AccessLogCounters, Phase, SharedState, Verdict};

use build::{Built, Registries, build};
use end::Leaving;
use faults::report_faults;
use health::shown_backends;
use kept::KeptSockets;
use listeners::counted;
use on_demand::NamesDoor;
use reload::Pending;
pub use sockets::refused as cannot_listen;
use sockets::{Bound, NewSockets, open_new};
use ticket_root::KeptRoot;
pub use ticket_root::read as read_ticket_root;
pub use ticket_root::stored::{none_yet as no_stored_roots, read as read_stored_roots};
use watch::{FileWatch, fingerprint, fingerprint_of_materials, unfollowed};
use watchdog::Watchdog;

/// Where the configuration comes from, and so whether it can be read again.
pub enum ConfigSource {
    /// A file, read again at each reload.
    File(PathBuf),
    /// Flags; a reload reads only the certificates again.
    Flags(Box<Config>),
}

/// Starts a terminator from its configuration, with such tables of open files.
pub type StartControl = fn(ConfigSource, Config, FileTables) -> Result<Control, ServeError>;

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
    Checked(Found),
    FilesHint,
    Looked(Answers),
    Notice(String),
    /// A reload, of which somebody waits to hear.
    Reload(Sender<Verdict>),
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
    lanes: Vec<LaneHandle<RelaySettings>>,
    registries: Registries,
    root: KeptRoot,
    number: u64,
    /// Every generation that a lane may still hold, so that the last to let go, and to free what
    /// may be many certificates, is this thread and not a lane.
    generations: Vec<Arc<Generation<RelaySettings>>>,
    state: SharedState,
    admin: Option<Admin>,
    log: Option<LogWriter>,
    checker: Option<Checker>,
    /// Whether names of backends are being looked up.
    is_looking: bool,
    names_door: NamesDoor,
    bound: Vec<Bound>,
    events: Receiver<Event>,
    notices: Sender<Event>,
    watch: FileWatch,
    watchdog: Option<Watchdog>,
    fingerprint: u64,
    /// The same of the materials that are served.
    materials: u64,
    /// When the revocation lists were read last.
    lists_read_at: SystemTime,
    /// Faulty materials that the fingerprint does not cover, as they looked when they were read.
    faulty: BTreeMap<PathBuf, u64>,
    /// Whether a store has changed since its fault was found.
    has_store_news: bool,
    /// When it was last looked whether faulty materials have changed.
    looked_at_faulty: Instant,
}

impl Control {
    /// Builds the first generation and starts the lanes, with such tables of open files and the
    /// `service` that each gets; when this returns they accept.
    ///
    /// # Errors
    /// Anything wrong with configuration, certificates, addresses or the system.
    pub fn start<S: Service<Settings = RelaySettings> + 'static>(
        source: ConfigSource,
        config: Config,
        tables: FileTables,
        service: fn(LaneParts) -> S,
    ) -> Result<Self, ServeError> {
        // Before anything else is opened or started: no program of ours may inherit them.
        let kept = KeptSockets::of_this_process();
        // Before any thread that hands memory over (see `LaneThread`). The thread that tested for a
        // table of open files has ended by now, and its result holds no memory of its arena.
        let threads = lane_threads(&config)?;
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
        let state = SharedState::default();
        let drained = state.lock().drained.clone();
        let mut control = Self {
            fingerprint: fingerprint(source.file(), &config),
            materials: fingerprint_of_materials(&config),
            lists_read_at: SystemTime::now(),
            source,
            config,
            lanes: Vec::new(),
            registries: Registries::new(notices.clone(), drained),
            root,
            number: 0,
            generations: Vec::new(),
            state,
            admin: None,
            log: None,
            checker: None,
            is_looking: false,
            names_door: NamesDoor::default(),
            bound: Vec::new(),
            events,
            notices,
            watch,
            watchdog: Watchdog::of_this_process(),
            faulty: BTreeMap::new(),
            has_store_news: false,
            looked_at_faulty: Instant::now(),
        };
        let mut logs = control.open_log()?;
        control.open_admin()?;
        control.start_lanes(threads, &mut logs, &tables, kept, service)?;
        control.follow_names_door();
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
    pub fn admin_addresses(&self) -> impl Iterator<Item = &Address> {
        self.admin.iter().flat_map(Admin::addresses)
    }

    /// Serves until a signal ends it.
    ///
    /// # Errors
    /// A lane was lost.
    pub fn run(mut self) -> Result<Outcome, ServeError> {
        // What changed between the first look at the files and their being watched.
        let mut pending: Option<Pending> = None;
        Pending::note(&mut pending);
        let mut leaving: Option<Leaving> = None;
        loop {
            let mut wait = pending.as_ref().map_or(TICK, Pending::wait).min(TICK);
            if let Some(leaving) = &leaving {
                let left = self.leave(leaving);
                if left.is_zero() {
                    return self.drain();
                }
                wait = wait.min(left);
            }
            wait = wait.min(self.watchdog.as_ref().map_or(TICK, Watchdog::wait));
            match self.events.recv_timeout(wait) {
                Ok(Event::Signal(SIGHUP)) => {
                    self.reload();
                    Pending::note(&mut pending);
                }
                Ok(Event::Reload(verdict)) => {
                    // The client that waited may have left.
                    let _ = verdict.send(self.reload());
                    Pending::note(&mut pending);
                }
                Ok(Event::Checked(found)) => self.end_check(found),
                Ok(Event::FilesHint) => Pending::note(&mut pending),
                Ok(Event::Looked(answers)) => self.end_look(&answers),
                Ok(Event::Notice(line)) => say_at(Priority::Warning, &line),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Signal(_)) if leaving.is_none() => {
                    leaving = Some(self.begin_to_leave());
                }
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) => return self.drain(),
            }
            if self.is_to_look_at_faulty() {
                Pending::note(&mut pending);
            }
            if pending.as_ref().is_some_and(Pending::is_due) {
                pending = None;
                if self.config.watch && self.has_changed() {
                    self.reload();
                    // Folders that are new in it were not watched while it was built.
                    Pending::note(&mut pending);
                }
            }
            if self.has_list_begun() {
                self.reload();
            }
            self.look_after();
            if let Some(lost) = self.lanes.iter().find(|lane| lane.has_ended()) {
                // The others finish what they have; whoever supervises the process starts it anew.
                say_at(Priority::Error, &ServeError::LaneLost(lost.number).to_string());
                return self.drain();
            }
        }
    }

    fn open_log(&mut self) -> Result<Vec<LaneLog>, ServeError> {
        let Some(settings) = &self.config.access_log else { return Ok(Vec::new()) };
        let report =
            |error: &access_log::AccessLogError| say_at(Priority::Error, &error.to_string());
        let (logs, writer) = access_log::open(settings, self.config.lanes.get(), report)
            .map_err(|error| ServeError::Configuration(vec![error.to_string()]))?;
        self.state.lock().access_log = Some(AccessLogCounters::of(&writer));
        self.log = Some(writer);
        Ok(logs)
    }

    fn open_admin(&mut self) -> Result<(), ServeError> {
        let events = self.notices.clone();
        let reload = move |verdict| {
            // Nobody listens any more when the process is about to end; then it is dropped.
            let _ = events.send(Event::Reload(verdict));
        };
        let (state, uploads) = (self.state.clone(), Uploads::default());
        let orders = Orders { state, reload: Arc::new(reload), uploads };
        let admin = Admin::start(&self.config.admin, &orders)
            .map_err(|error| ServeError::Configuration(vec![error.to_string()]))?;
        self.admin = Some(admin);
        Ok(())
    }

    fn start_lanes<S: Service<Settings = RelaySettings> + 'static>(
        &mut self,
        threads: Vec<LaneThread>,
        logs: &mut Vec<LaneLog>,
        tables: &FileTables,
        mut kept: KeptSockets,
        service: fn(LaneParts) -> S,
    ) -> Result<(), ServeError> {
        let own = Own {
            file_table: tables.wanted(),
            descriptors: Descriptors::of(&self.config, tables).per_lane,
        };
        let before = unfollowed(&self.config);
        let mut built = build(&self.config, 1, &mut self.registries, None)
            .map_err(ServeError::Configuration)?;
        self.root.follow(built.tickets.take());
        self.root.take_stored();
        let mut sockets = open_new(&built.generation, &self.config, &self.bound, &mut kept)
            .map_err(ServeError::Configuration)?;
        kept.let_go();
        sockets.keep();
        report(&built.warnings);
        let generation = self.adopt(built, &mut sockets);
        report_faults(&self.note_faulty(&before).lines());
        let processors = if self.config.pin_lanes {
            processors().map_err(|error| ServeError::System("cannot pin lanes", error))?
        } else {
            Vec::new()
        };
        let filter = Filter::wanted(&self.config.process);
        // Room for all lanes: this thread would keep what a lane allocates for its answer.
        let (told, filtered) = sync_channel(threads.len());
        for (number, thread) in threads.into_iter().enumerate() {
            systemd::tell_progress();
            let setup = LaneSetup {
                thread,
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
            let giver = NumberGiver::new(self.state.lock().started.at, number);
            let (sender, orders) = queue();
            let refused = Arc::<RefusedClients>::default();
            let parts = LaneParts { giver, orders, log, notices, refused: Arc::clone(&refused) };
            let (filter, told) = (filter.clone(), told.clone());
            let lane = start(setup, move |_| {
                // In the lane's thread; nobody hears it if that could not be started.
                let _ = told.send(filter.and_then(|filter| filter.install()));
                service(parts)
            });
            let lane = lane.map_err(|error| ServeError::System("cannot start a lane", error))?;
            let mut state = self.state.lock();
            state.lanes.push(Arc::clone(&lane.counters));
            state.refused.push(refused);
            state.desks.push(LaneDesk::new(sender, lane.mailbox.clone()));
            drop(state);
            self.lanes.push(lane);
        }
        drop(told);
        self.tell_filter(&filtered);
        self.follow_files();
        Ok(())
    }

    /// Says if a lane may make every system call, and lets the admin address show it.
    fn tell_filter(&self, filtered: &Receiver<Result<(), String>>) {
        let refusal = filtered.iter().find_map(Result::err);
        if let Some(why) = refusal.as_ref().filter(|_| self.config.process.sandbox) {
            say_at(Priority::Warning, &unfiltered(why));
        }
        self.state.lock().filter_refusal = refusal;
    }

    /// Says if lanes share a table of open files, and lets the admin address show whose they have.
    fn tell_tables(&self, wanted: FileTables) {
        let refused = self.lanes.iter().find_map(|lane| lane.refusal.as_ref());
        let tables =
            refused.map_or(wanted, |refusal| FileTables::Shared { refusal: refusal.to_string() });
        if let Some(warning) = tables.warning() {
            say_at(Priority::Warning, &warning);
        }
        let is_own = |lane: &&LaneHandle<RelaySettings>| lane.file_table == FileTable::Own;
        let mut state = self.state.lock();
        state.file_tables = tables;
        state.lanes_with_own_table = self.lanes.iter().filter(is_own).count();
    }

    /// Makes a built generation the current one; what is left is to publish it.
    fn adopt(&mut self, built: Built, sockets: &mut NewSockets) -> Arc<Generation<RelaySettings>> {
        let generation = Arc::new(built.generation);
        self.number = generation.number;
        self.registries.last_good = built.last_good;
        self.state.lock().faults = built.faults;
        self.registries.names.serve(host_names(&self.config));
        let is_kept = |bound: &Bound| {
            generation.listeners.iter().any(|listener| listener.keys.contains(&bound.key))
                && !sockets.bound.iter().any(|new| new.key == bound.key)
        };
        let gone: Vec<Bound> = self.bound.extract_if(.., |bound| !is_kept(bound)).collect();
        kept::forget(gone.iter().map(|bound| &bound.key), self.config.lanes.get());
        drop(gone);
        for kept in &self.bound {
            kept.permit(&self.config).unwrap_or_else(|problem| {
                say_at(Priority::Warning, &problem);
            });
        }
        self.bound.append(&mut sockets.bound);
        self.show(&generation, built.summaries);
        self.check_backends(&generation);
        self.generations.push(Arc::clone(&generation));
        generation
    }

    /// Lets the admin address show the new generation.
    fn show(&self, generation: &Arc<Generation<RelaySettings>>, listeners: Vec<Summary>) {
        let mut state = self.state.lock();
        state.generations.publish(generation.number, generation);
        state.listeners = listeners;
        state.listeners_counted = counted(generation);
        state.backends = shown_backends(generation, &self.registries.health);
        state.names = self.registries.names.summaries();
        state.limits = self.config.limits.clone();
        state.tickets = self.config.tickets.clone();
    }

    fn follow_files(&mut self) {
        if !self.config.watch {
            return;
        }
        let faulty = self.faulty.keys().cloned().collect();
        let problems = self.watch.follow(self.source.file(), &self.config, faulty);
        for problem in problems.iter().take(UNWATCHED_SHOWN_MAX) {
            let text = format!("{problem}; a change there is noticed only at SIGHUP");
            say_at(Priority::Warning, &text);
        }
        if let Some(more) = problems.len().checked_sub(UNWATCHED_SHOWN_MAX + 1) {
            let text = format!(
                "… and {} more folders; the limit is fs.inotify.max_user_watches",
                more + 1
            );
            say_at(Priority::Warning, &text);
        }
    }

    /// What has to happen now and then: forget what no generation names any more, notice stores
    /// that somebody else changed, and keep the ticket root in step with the clock.
    fn look_after(&mut self) {
        self.generations.retain(|generation| Arc::strong_count(generation) > 1);
        self.registries.backends.prune(&self.generations);
        self.registries.health.prune();
        self.registries.listeners.prune();
        self.registries.responders.prune();
        self.registries.stores.prune();
        for news in self.registries.stores.look_after() {
            say(&news);
            self.has_store_news |= self.state.lock().faults.total > 0;
        }
        self.look_after_root();
        self.look_for_names();
        self.look_after_names_door();
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.look(&self.lanes);
        }
    }
}

impl Control {
    /// Keeps the ticket root in step with the clock, and with its store if it has one.
    fn look_after_root(&mut self) {
        if self.root.take_stored() {
            for lane in &self.lanes {
                lane.post(Mail::Tickets(self.root.current().clone()));
            }
        }
        if let Some(problem) = self.root.advance() {
            say_at(Priority::Error, &problem);
        }
        let mut state = self.state.lock();
        state.ticket_roots = self.root.shown();
        state.ticket_root_fault = self.root.fault().cloned();
    }
}

impl ConfigSource {
    fn file(&self) -> Option<&Path> {
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

/// The threads of the lanes of `config`, with memory for all connections that a lane may have.
fn lane_threads(config: &Config) -> Result<Vec<LaneThread>, ServeError> {
    let memory_bytes = connection_bytes_of_lane(config);
    (0..config.lanes.get())
        .map(|number| LaneThread::start(number, memory_bytes))
        .collect::<Result<_, _>>()
        .map_err(|error| ServeError::System("cannot start a thread", error))
}

fn decoded_keys_max(config: &Config) -> std::num::NonZeroUsize {
    std::num::NonZeroUsize::new(config.limits.decoded_keys_per_lane_max)
        .unwrap_or(std::num::NonZeroUsize::MIN)
}

fn report(warnings: &[String]) {
    for warning in warnings {
        say_at(Priority::Warning, warning);
    }
}
