//! Active checks of backends: one thread beside the lanes asks each backend whether it is well, and
//! tells the control plane when that has changed.

mod probe;
mod standing;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustls::ClientConfig;
use sealane_config::Check;
use sealane_engine::client::OptionsDigest;
use sealane_engine::tickets::LaneClock;
use sealane_operator::timestamp::unix_now;
use tracing::error;

use crate::backends::Target;

use probe::{NotBegun, Probe};
use standing::Standing;

/// What checks have found that is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The target that it is about.
    pub id: u64,
    /// That it is up, or down and why.
    pub state: Result<(), String>,
}

/// The control plane's side: the thread ends with it.
pub struct Checker {
    bell: Arc<OwnedFd>,
    targets: Sender<Vec<Arc<Target>>>,
}

impl Checker {
    /// Starts the thread, which calls `tell` from then on.
    ///
    /// # Errors
    /// There is no thread or no descriptor to be had.
    pub fn start(tell: impl Fn(Found) + Send + 'static) -> io::Result<Self> {
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (targets, orders) = channel();
        let rung = Arc::clone(&bell);
        let work = move || Round::new(tell).run(&orders, &rung);
        thread::Builder::new().name("checker".into()).spawn(work)?;
        Ok(Self { bell, targets })
    }

    /// Checks these from now on, and no others; one that was checked before is checked on.
    pub fn check(&self, targets: Vec<Arc<Target>>) {
        // Nobody listens when the thread has died; then nothing is checked, and nothing changes.
        let _ = self.targets.send(targets);
        self.ring();
    }

    fn ring(&self) {
        // Can only fail when the counter is full, and then the thread is being woken already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        (self.targets, _) = channel();
        self.ring();
    }
}

/// What the thread knows.
struct Round<T> {
    clock: Arc<LaneClock>,
    has_said_want: bool,
    known: Vec<Known>,
    /// Decides when within its period each is checked.
    phases: RandomState,
    /// Sessions of their own: what checks do shows in no connection of a client.
    replicas: HashMap<OptionsDigest, Arc<ClientConfig>>,
    tell: T,
}

struct Known {
    due: Instant,
    probe: Option<Probe>,
    standing: Standing,
    target: Arc<Target>,
}

impl<T: Fn(Found)> Round<T> {
    fn new(tell: T) -> Self {
        Self {
            clock: Arc::new(LaneClock::new(unix_now())),
            has_said_want: false,
            known: Vec::new(),
            phases: RandomState::new(),
            replicas: HashMap::new(),
            tell,
        }
    }

    fn run(mut self, orders: &Receiver<Vec<Arc<Target>>>, bell: &OwnedFd) {
        loop {
            loop {
                match orders.try_recv() {
                    Ok(targets) => self.replace(targets, Instant::now()),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
            self.clock.set(unix_now());
            self.begin_due(Instant::now());
            self.wait(bell);
            self.end_late(Instant::now());
        }
    }

    fn replace(&mut self, targets: Vec<Arc<Target>>, now: Instant) {
        let mut before: HashMap<u64, Known> =
            self.known.drain(..).map(|known| (known.target.id, known)).collect();
        self.known = targets
            .into_iter()
            .map(|target| {
                before.remove(&target.id).unwrap_or_else(|| Known {
                    due: now + phase(&target, &self.phases),
                    probe: None,
                    standing: Standing::of(target.is_up),
                    target,
                })
            })
            .collect();
        let is_needed = |digest: &OptionsDigest| {
            let tls = self.known.iter().filter_map(|known| known.target.tls.as_ref());
            tls.map(|tls| tls.context.digest()).any(|needed| needed == *digest)
        };
        self.replicas.retain(|digest, _| is_needed(digest));
    }

    fn begin_due(&mut self, now: Instant) {
        let mut in_flight = self.known.iter().filter(|known| known.probe.is_some()).count();
        for position in 0..self.known.len() {
            let known = &self.known[position];
            if known.probe.is_some() || known.due > now || in_flight >= IN_FLIGHT_MAX {
                continue;
            }
            let target = Arc::clone(&known.target);
            self.known[position].due = now + target.check.every;
            let probe = self
                .config_for(&target)
                .and_then(|config| Probe::begin(&target, config.as_ref(), now));
            match probe {
                Ok(probe) => {
                    self.has_said_want = false;
                    self.known[position].probe = Some(probe);
                    in_flight += 1;
                }
                Err(NotBegun::ByBackend(problem)) => self.note(position, Err(problem)),
                Err(NotBegun::ByUs(problem)) => self.say_want(&problem),
            }
        }
    }

    /// Says what this process lacks, once until a check begins again.
    fn say_want(&mut self, problem: &str) {
        if !std::mem::replace(&mut self.has_said_want, true) {
            let text =
                format!("backends cannot be checked: {problem}; they stay as they are known");
            error!("{text}");
        }
    }

    fn config_for(&mut self, target: &Target) -> Result<Option<Arc<ClientConfig>>, NotBegun> {
        let Some(tls) = target.tls.as_ref().filter(|_| target.speaks_tls()) else {
            return Ok(None);
        };
        let digest = tls.context.digest();
        if let Some(config) = self.replicas.get(&digest) {
            return Ok(Some(Arc::clone(config)));
        }
        let config = tls.context.replica(Arc::clone(&self.clock));
        let config = config.map_err(|error| NotBegun::ByUs(error.to_string()))?;
        self.replicas.insert(digest, Arc::clone(&config));
        Ok(Some(config))
    }

    /// Waits until something can go on, or is due or late.
    fn wait(&mut self, bell: &OwnedFd) {
        let now = Instant::now();
        let probing = |known: &Known| known.probe.as_ref().map(|probe| probe.deadline);
        let has_room = self.known.iter().filter_map(probing).count() < IN_FLIGHT_MAX;
        let next = |known: &Known| probing(known).or_else(|| has_room.then_some(known.due));
        let until = self.known.iter().filter_map(next).min();
        let patience = until.map(|until| until.saturating_duration_since(now));
        let patience = patience.and_then(|patience| Timespec::try_from(patience + TICK).ok());
        let ready: Vec<usize> = {
            let probes = self.known.iter().enumerate();
            let probes: Vec<_> =
                probes.filter_map(|(at, known)| Some((at, known.probe.as_ref()?))).collect();
            let mut watched = vec![PollFd::new(bell, PollFlags::IN)];
            let sockets = probes.iter().map(|(_, probe)| (probe.socket.as_fd(), probe.interest()));
            let sockets: Vec<_> = sockets.collect();
            watched.extend(sockets.iter().map(|(fd, wanted)| PollFd::new(fd, *wanted)));
            if poll(&mut watched, patience.as_ref()).is_err() {
                // No memory to watch with, maybe: not to be asked again at once.
                thread::sleep(TICK);
                return;
            }
            if !watched[0].revents().is_empty() {
                // Not blocking; it is there to be silenced.
                let _ = rustix::io::read(bell, &mut [0; 8][..]);
            }
            let sockets = probes.iter().zip(&watched[1..]);
            sockets.filter(|(_, fd)| !fd.revents().is_empty()).map(|((at, _), _)| *at).collect()
        };
        for position in ready {
            let probe = self.known[position].probe.as_mut();
            if let Some(outcome) = probe.and_then(Probe::advance) {
                self.note(position, outcome);
            }
        }
    }

    fn end_late(&mut self, now: Instant) {
        for position in 0..self.known.len() {
            let late = self.known[position].probe.as_ref().filter(|probe| probe.deadline <= now);
            if let Some(problem) = late.map(Probe::late) {
                self.note(position, Err(problem));
            }
        }
    }

    fn note(&mut self, position: usize, outcome: Result<(), String>) {
        let known = &mut self.known[position];
        known.probe = None;
        let Check { rise, fall, .. } = known.target.check;
        if known.standing.note(outcome.is_ok(), rise, fall).is_some() {
            (self.tell)(Found { id: known.target.id, state: outcome });
        }
    }
}

/// When within its first period a target is checked, so that many are not checked at once.
fn phase(target: &Target, phases: &RandomState) -> Duration {
    let part = phases.hash_one(target.id) % u64::from(PHASES);
    target.check.every * u32::try_from(part).unwrap_or_default() / PHASES
}

const PHASES: u32 = 1_024;
/// Checks in flight; what is due beyond that waits.
pub const IN_FLIGHT_MAX: usize = 1_000;
/// Time is rounded up, or what is nearly due would be looked at over and over.
const TICK: Duration = Duration::from_millis(1);
