//! The control plane: one thread that may lock, block and fail, and never touches a lane's memory.
//!
//! It starts the lanes, builds every generation whole, publishes it by mailbox, and ends the
//! process in order. A change that has anything wrong with it changes nothing.
#![forbid(unsafe_code)]

pub mod admin;
mod build;
mod changes;
pub mod cost;
mod end;
pub mod file_tables;
mod health;
mod kept;
mod lane_group;
mod listeners;
pub mod metrics;
mod names;
mod on_demand;
mod overload;
pub mod process;
mod reload;
mod responders;
mod running;
mod sockets;
pub mod state;
pub mod systemd;
mod ticket_root;
mod watch;
mod watchdog;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

use sealane_config::Config;
use sealane_lanes::generation::Generation;
use sealane_lanes::kernel::{Address, Linux};
use sealane_lanes::mailbox::Mail;
use sealane_lanes::service::Service;
use sealane_lanes::start::{LaneSetup, Own, processors, start};
use sealane_lanes::thread::LaneThread;
use sealane_listeners::{Answers, Summary, host_names};
use sealane_traffic::access_log::{self, LaneLog, LogWriter};
use sealane_traffic::admission::RefusedClients;
use sealane_traffic::backends::RelaySettings;
use sealane_traffic::checks::Found;
use sealane_traffic::connection_events::{self, EventLog};
use sealane_traffic::connection_number::NumberGiver;
use sealane_traffic::lane_orders::{LaneDesk, LaneParts, order_queue};
use sealane_traffic::notices::Notices;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::{error, info, warn};

use crate::admin::{Admin, Orders, Uploads};
use crate::cost::connection_bytes_of_lane;
use crate::file_tables::{Descriptors, FileTables};
use crate::process::filter::{Filter, unfiltered};
use crate::state::{AccessLogCounters, Phase, SharedState, Verdict};

use build::{Built, Registries, build};
use changes::DiskChanges;
use end::Leaving;
use health::shown_backends;
use kept::KeptSockets;
use lane_group::LaneGroup;
use listeners::counted;
use names::NameLookup;
use on_demand::NamesDoor;
use overload::OverloadWatch;
use reload::report_faults;
pub use running::ConfigSource;
use running::Running;
pub use sockets::refused as cannot_listen;
use sockets::{BoundAddresses, NewSockets};
use ticket_root::KeptRoot;
pub use ticket_root::read as read_ticket_root;
pub use ticket_root::stored::{none_yet as no_stored_roots, read as read_stored_roots};
use watch::{FileWatch, unfollowed};

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

/// How often the control plane looks at its lanes and at the clock without being asked.
const TICK: Duration = Duration::from_millis(500);

/// The running terminator. It dispatches events; the state is in its parts.
pub struct Control {
    running: Running,
    lanes: LaneGroup,
    bound: BoundAddresses,
    registries: Registries,
    root: KeptRoot,
    changes: DiskChanges,
    lookup: NameLookup,
    names_door: NamesDoor,
    overload: OverloadWatch,
    state: SharedState,
    admin: Option<Admin>,
    log: Option<LogWriter>,
    event_log: Option<EventLog>,
    events: Receiver<Event>,
    notices: Sender<Event>,
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
        let running = Running::new(source, config);
        let mut control = Self {
            changes: DiskChanges::new(watch, running.file(), running.config()),
            running,
            lanes: LaneGroup::new(),
            bound: BoundAddresses::default(),
            registries: Registries::new(notices.clone(), drained),
            root,
            lookup: NameLookup::default(),
            names_door: NamesDoor::default(),
            overload: OverloadWatch::default(),
            state,
            admin: None,
            log: None,
            event_log: None,
            events,
            notices,
        };
        let mut logs = control.open_log()?;
        control.open_admin()?;
        control.start_lanes(threads, &mut logs, &tables, kept, service)?;
        control.names_door.follow(control.running.config().on_demand_store(), &control.state);
        control.tell_tables(tables);
        control.state.lock().phase = Phase::Serving;
        Ok(control)
    }

    /// The addresses that are bound, with the ports that were chosen for port 0.
    pub fn bound(&self) -> impl Iterator<Item = &Address> {
        self.bound.local()
    }

    /// How many lanes run.
    pub fn lane_count(&self) -> usize {
        self.lanes.count()
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
        // Files may have changed between the first look at them and the start of the watch.
        self.changes.hint();
        let mut leaving: Option<Leaving> = None;
        loop {
            let mut wait = self.changes.wait().unwrap_or(TICK).min(TICK);
            if let Some(leaving) = &leaving {
                let left = self.leave(leaving);
                if left.is_zero() {
                    return self.drain();
                }
                wait = wait.min(left);
            }
            wait = wait.min(self.lanes.watchdog_wait().unwrap_or(TICK));
            match self.events.recv_timeout(wait) {
                Ok(Event::Signal(SIGHUP)) => {
                    self.reload();
                    self.changes.hint();
                }
                Ok(Event::Reload(verdict)) => {
                    // The client that waited may have left.
                    let _ = verdict.send(self.reload());
                    self.changes.hint();
                }
                Ok(Event::Checked(found)) => self.end_check(found),
                Ok(Event::FilesHint) => self.changes.hint(),
                Ok(Event::Looked(answers)) => self.end_look(&answers),
                Ok(Event::Notice(line)) => warn!("{line}"),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Event::Signal(_)) if leaving.is_none() => {
                    leaving = Some(self.begin_to_leave());
                }
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Disconnected) => return self.drain(),
            }
            self.follow_changes();
            self.look_after();
            if let Some(lost) = self.lanes.lost() {
                // The others finish what they have; the process's supervisor starts it again.
                error!("{}", ServeError::LaneLost(lost));
                return self.drain();
            }
        }
    }

    /// Reloads if files have changed, or a revocation list has come into force.
    fn follow_changes(&mut self) {
        let state = &self.state;
        if self.changes.is_to_look(|| state.lock().faults_now().total > 0) {
            self.changes.hint();
        }
        if self.changes.take_due()
            && self.running.config().watch
            && self.changes.has_changed(self.running.file(), self.running.config())
        {
            self.reload();
            // Folders that are new in it were not watched while it was built.
            self.changes.hint();
        }
        let has_begun = self.changes.has_list_begun(&self.state.lock().listeners);
        if has_begun {
            self.reload();
        }
    }

    fn open_log(&mut self) -> Result<Vec<LaneLog>, ServeError> {
        let config = self.running.config();
        let Some(settings) = &config.access_log else { return Ok(Vec::new()) };
        let report = |error: &access_log::AccessLogError| error!("{error}");
        let (logs, writer) = access_log::open(settings, config.lanes.get(), report)
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
        let admin = Admin::start(&self.running.config().admin, &orders)
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
            descriptors: Descriptors::of(self.running.config(), tables).per_lane,
        };
        let before = unfollowed(self.running.config());
        let mut built = build(self.running.config(), 1, &mut self.registries, None)
            .map_err(ServeError::Configuration)?;
        self.root.follow(built.tickets.take());
        self.root.take_stored();
        let opened = self.bound.open_new(&built.generation, self.running.config(), &mut kept);
        let mut sockets = opened.map_err(ServeError::Configuration)?;
        kept.let_go();
        sockets.keep();
        report(&built.warnings);
        let generation = self.adopt(built, &mut sockets);
        report_faults(&self.note_faulty(&before).lines());
        let config = self.running.config();
        let processors = if config.pin_lanes {
            processors().map_err(|error| ServeError::System("cannot pin lanes", error))?
        } else {
            Vec::new()
        };
        let filter = Filter::wanted(&config.process);
        let (events, event_log) = connection_events::start(threads.len())
            .map_err(|error| ServeError::System("cannot start a thread", error))?;
        let mut events = events.into_iter();
        self.event_log = event_log;
        // Room for all lanes: this thread would keep what a lane allocates for its answer.
        let (told, filtered) = sync_channel(threads.len());
        for (number, thread) in threads.into_iter().enumerate() {
            systemd::tell_progress();
            let setup = LaneSetup {
                thread,
                pin_to_cpu: processors.get(number % processors.len().max(1)).copied(),
                tickets: self.root.current().clone(),
                decoded_keys_max: decoded_keys_max(config),
                first: Arc::clone(&generation),
                sockets: sockets.of_lane(number),
                own,
                kernel: Linux,
            };
            let log = if logs.is_empty() { None } else { Some(logs.remove(0)) };
            let notices = notices_to(&self.notices);
            let giver = NumberGiver::new(self.state.lock().started.at, number);
            let (sender, orders) = order_queue();
            let refused = Arc::<RefusedClients>::default();
            let (events, refused_too) = (events.next(), Arc::clone(&refused));
            let parts = LaneParts { giver, orders, log, events, notices, refused: refused_too };
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
            self.lanes.add(lane);
        }
        drop(told);
        self.tell_filter(&filtered);
        self.changes.follow(self.running.file(), self.running.config());
        Ok(())
    }

    /// Says if a lane may make every system call, and lets the admin address show it.
    fn tell_filter(&self, filtered: &Receiver<Result<(), String>>) {
        let refusal = filtered.iter().find_map(Result::err);
        if let Some(why) = refusal.as_ref().filter(|_| self.running.config().process.sandbox) {
            warn!("{}", unfiltered(why));
        }
        self.state.lock().filter_refusal = refusal;
    }

    /// Says if lanes share a table of open files, and lets the admin address show whose they have.
    fn tell_tables(&self, wanted: FileTables) {
        let (own, refusal) = self.lanes.own_tables();
        let tables = refusal.map_or(wanted, |refusal| FileTables::Shared { refusal });
        if let Some(warning) = tables.warning() {
            warn!("{warning}");
        }
        let mut state = self.state.lock();
        state.file_tables = tables;
        state.lanes_with_own_table = own;
    }

    /// Makes a built generation the current one; what is left is to publish it.
    fn adopt(&mut self, built: Built, sockets: &mut NewSockets) -> Arc<Generation<RelaySettings>> {
        let generation = Arc::new(built.generation);
        self.registries.last_good = built.last_good;
        self.state.lock().faults = built.faults;
        self.registries.names.serve(host_names(self.running.config()));
        self.bound.follow(&generation, self.running.config(), sockets);
        self.show(&generation, built.summaries);
        self.check_backends(&generation);
        self.lanes.adopt(&generation);
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
        state.limits = self.running.config().limits.clone();
        state.tickets = self.running.config().tickets.clone();
    }

    /// What has to happen now and then: forget what no generation names any more, notice stores
    /// that somebody else changed, and keep the ticket root in step with the clock.
    fn look_after(&mut self) {
        self.lanes.release_unused();
        self.registries.backends.prune(self.lanes.generations());
        self.registries.health.prune();
        self.registries.listeners.prune();
        self.registries.responders.prune();
        self.registries.stores.prune();
        for news in self.registries.stores.look_after() {
            info!("{news}");
            if self.state.lock().faults.total > 0 {
                self.changes.note_store_news();
            }
        }
        self.look_after_root();
        self.lookup.start_due(&self.registries.names, &self.notices);
        self.names_door.look_after(self.running.config().on_demand_store(), &self.state);
        self.lanes.report_to_watchdog();
        self.overload.look(&self.state.lock().lanes, Instant::now());
    }
}

impl Control {
    /// Sends the ticket root to all lanes.
    fn post_tickets(&self) {
        self.lanes.post_each(|_| Mail::Tickets(self.root.current().clone()));
    }

    /// Keeps the ticket root in step with the clock, and with its store if it has one.
    fn look_after_root(&mut self) {
        if self.root.take_stored() {
            self.post_tickets();
        }
        if let Some(problem) = self.root.advance() {
            error!("{problem}");
        }
        let mut state = self.state.lock();
        state.ticket_roots = self.root.shown();
        state.ticket_root_fault = self.root.fault().cloned();
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
        warn!("{warning}");
    }
}
