//! The lanes of one server: [`Control`] binds, starts and stops them, and gives them contexts and
//! keys.
//!
//! Node's thread and its pool call it. Lanes never do, so it may lock and wait.

mod state;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sealane_engine::context::{Context, ContextId};
use sealane_engine::tickets::{TicketRoot, TicketRootError};
use sealane_lanes::counters::Counters;
use sealane_lanes::generation::{Generation, Listener, Named, Publication, Speech};
use sealane_lanes::handover::Parcel;
use sealane_lanes::kernel::{Address, Linux};
use sealane_lanes::limits::Limits;
use sealane_lanes::liveness::Liveness;
use sealane_lanes::mailbox::{Mail, Mailbox};
use sealane_lanes::start::{LaneHandle, LaneSetup, Own, processors, start};
use sealane_lanes::steer::Steer;
use sealane_lanes::thread::LaneThread;
use sealane_lanes::timeouts::Timeouts;
use zeroize::Zeroizing;

use crate::blocked::Blocked;
use crate::service::{Bridge, Parts};
use crate::settings::Settings;

use state::{Stage, State};

/// Secrets that tickets are sealed with, the first, and opened.
pub type TicketKeys = Zeroizing<Vec<[u8; 48]>>;

/// The settings that the lanes of a server share.
pub struct Plan {
    /// The count of lanes.
    pub lanes: usize,
    /// Whether each is tied to a processor.
    pub pin: bool,
    /// The settings of the hand-over.
    pub settings: Settings,
    /// Limits of each lane.
    pub limits: Limits,
    /// Timeouts of each connection.
    pub timeouts: Timeouts,
    /// The keys that tickets are sealed with at first.
    pub ticket_keys: TicketKeys,
    /// The lifetime of a ticket.
    pub ticket_lifetime_s: u32,
}

/// The control plane of one server.
pub struct Control {
    plan: Plan,
    state: Mutex<State>,
    changed: Condvar,
    /// The memory of the lanes' rings: the last to be dropped.
    memory: Mutex<Option<Box<dyn Send>>>,
}

/// The contexts and rules that hold from some moment on.
pub struct Served {
    /// The default, for names that are not in `named`.
    pub context: Arc<Context>,
    /// By the server name.
    pub named: Vec<(String, Arc<Context>)>,
    /// Clients that are rejected before the handshake.
    pub blocked: Blocked,
}

/// An order for the lanes while they run.
pub enum Order {
    /// End with the last connection.
    Drain,
    /// Be ready for this context.
    Provide(usize, Arc<Context>),
    /// Serve this.
    Publish(Served),
    /// Seal and open tickets with these.
    Tickets(TicketKeys),
    /// Forget a context.
    Withdraw(ContextId),
}

impl Control {
    /// Lanes that serve `context`, with one of `parts` each. `memory` is dropped behind the lanes.
    ///
    /// # Errors
    /// The ticket keys or their lifetime are out of bounds.
    pub fn new(
        plan: Plan,
        context: Arc<Context>,
        parts: Vec<Parts>,
        memory: Box<dyn Send>,
    ) -> Result<Self, TicketRootError> {
        TicketRoot::shared(&plan.ticket_keys, plan.ticket_lifetime_s)?;
        let keys = plan.ticket_keys.clone();
        let memory = Mutex::new(Some(memory));
        let state = Mutex::new(State::new(context, keys, parts));
        Ok(Self { plan, state, changed: Condvar::new(), memory })
    }

    /// The sockets to accept from, one for each lane.
    pub fn listen(&self, sockets: Vec<OwnedFd>) {
        self.lock().sockets = sockets;
    }

    /// The count of lanes that there are, or will be.
    pub fn lane_count(&self) -> usize {
        self.plan.lanes
    }

    /// Starts the lanes and waits until they accept.
    ///
    /// # Errors
    /// The system does not allow it, or the contexts cannot be served. No lane is left.
    pub fn start(&self) -> Result<(), String> {
        let (parts, sockets, generation, keys) = {
            let mut state = self.lock();
            if state.stage != Stage::New {
                return Err("the server was started or stopped already".into());
            }
            state.stage = Stage::Starting;
            let generation = self.generation(&mut state);
            let parts = std::mem::take(&mut state.parts);
            (parts, std::mem::take(&mut state.sockets), generation, state.ticket_keys.clone())
        };
        let started = self.start_lanes(parts, sockets, &generation, &keys);
        let mut state = self.lock();
        let outcome = match started {
            Ok((lanes, mailboxes)) => {
                for (lane, mailbox) in lanes.iter().zip(mailboxes) {
                    // It is set once: here.
                    let _ = mailbox.set(lane.mailbox.clone());
                }
                state.counters = lanes.iter().map(|lane| Arc::clone(&lane.counters)).collect();
                state.lanes = lanes;
                state.stage = Stage::Running;
                for order in std::mem::take(&mut state.deferred) {
                    self.post(&mut state, order);
                }
                Ok(())
            }
            Err(error) => {
                state.stage = Stage::Stopped;
                Err(error)
            }
        };
        drop(state);
        self.changed.notify_all();
        outcome
    }

    /// Passes an order to the lanes, now or as soon as they run.
    pub fn order(&self, order: Order) {
        let mut state = self.lock();
        match state.stage {
            Stage::New => match order {
                Order::Publish(served) => state.serve(served),
                Order::Tickets(keys) => state.ticket_keys = keys,
                other => state.deferred.push(other),
            },
            Stage::Starting => state.deferred.push(order),
            Stage::Running => self.post(&mut state, order),
            Stage::Stopping | Stage::Stopped => {}
        }
    }

    /// The counters of each lane, once it runs.
    pub fn counters(&self) -> Vec<Arc<Counters>> {
        self.lock().counters.clone()
    }

    /// Stops the lanes at once and waits for their threads.
    pub fn stop(&self) {
        let mut state = self.lock();
        while matches!(state.stage, Stage::Starting | Stage::Stopping) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.stage = Stage::Stopping;
        let lanes = std::mem::take(&mut state.lanes);
        let parts = std::mem::take(&mut state.parts);
        state.sockets.clear();
        state.deferred.clear();
        drop(state);
        drop(parts);
        stop_all(lanes);
        // No end of a ring is left.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.lock().stage = Stage::Stopped;
        self.changed.notify_all();
    }

    fn start_lanes(
        &self,
        parts: Vec<Parts>,
        sockets: Vec<OwnedFd>,
        generation: &Arc<Generation<Settings>>,
        keys: &[[u8; 48]],
    ) -> Result<Started, String> {
        let cpus =
            if self.plan.pin { processors().map_err(|e| e.to_string())? } else { Vec::new() };
        // Before the first lane runs, so that an error leaves none: a thread that waits for its
        // lane ends. The allocator is Node's: it stays as it is.
        let prepared = |number| {
            let thread = LaneThread::start(number, 0)
                .map_err(|error| format!("lane {number} cannot start: {error}"))?;
            let root = TicketRoot::shared(keys, self.plan.ticket_lifetime_s)
                .map_err(|error| error.to_string())?;
            Ok((thread, root))
        };
        let prepared = (0..parts.len()).map(prepared).collect::<Result<Vec<_>, String>>()?;
        let mut lanes = Vec::with_capacity(parts.len());
        let mut mailboxes = Vec::with_capacity(parts.len());
        let lanes_parts = prepared.into_iter().zip(parts.into_iter().zip(sockets));
        for (number, ((thread, tickets), (parts, socket))) in lanes_parts.enumerate() {
            let setup = LaneSetup {
                thread,
                pin_to_cpu: cpus.get(number % cpus.len().max(1)).copied(),
                tickets,
                decoded_keys_max: DECODED_KEYS_MAX,
                first: Arc::clone(generation),
                sockets: vec![(KEY, socket.into())],
                // Sockets of Node's go to lanes and lanes' to Node, by their numbers.
                own: Own::default(),
                kernel: Linux,
            };
            mailboxes.push(Arc::clone(&parts.mailbox));
            match start(setup, move |_| Bridge::new(parts)) {
                Ok(lane) => lanes.push(lane),
                Err(error) => {
                    stop_all(lanes);
                    return Err(format!("lane {number} cannot start: {error}"));
                }
            }
        }
        Ok((lanes, mailboxes))
    }

    fn post(&self, state: &mut State, order: Order) {
        match order {
            Order::Drain => state.tell_all(|| Some(Mail::Drain(Duration::MAX))),
            Order::Provide(lane, context) => {
                if let Some(lane) = state.lanes.get(lane) {
                    lane.post(Mail::Provide(context));
                }
            }
            Order::Publish(served) => {
                state.serve(served);
                let generation = self.generation(state);
                state.tell_all(|| {
                    let generation = Arc::clone(&generation);
                    let publication = Publication { generation, parcel: Parcel::default() };
                    Some(Mail::Publish(Box::new(publication)))
                });
            }
            Order::Tickets(keys) => {
                let lifetime_s = self.plan.ticket_lifetime_s;
                state.tell_all(|| TicketRoot::shared(&keys, lifetime_s).ok().map(Mail::Tickets));
            }
            Order::Withdraw(id) => state.tell_all(|| Some(Mail::Withdraw(id))),
        }
    }

    /// The next generation, of the present contexts and rules.
    fn generation(&self, state: &mut State) -> Arc<Generation<Settings>> {
        state.number += 1;
        let named = state.named.iter().map(|(pattern, context)| Named {
            pattern: pattern.as_str().into(),
            number: 0,
            context: Some(Arc::clone(context)),
        });
        let listener = Listener {
            number: 0,
            keys: vec![KEY],
            preamble: None,
            speech: Speech::Tls(Arc::clone(&state.context)),
            named: named.collect(),
            liveness: Liveness::default(),
            steer: Steer::Connection,
            timeouts: self.plan.timeouts,
            settings: Arc::new(Settings {
                blocked: Arc::clone(&state.blocked),
                ..self.plan.settings.clone()
            }),
        };
        let limits = self.plan.limits.clone();
        Arc::new(Generation { number: state.number, limits, listeners: vec![listener] })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The started lanes, and the place in which each of them finds its own mailbox.
type Started = (Vec<LaneHandle<Settings>>, Vec<Arc<OnceLock<Mailbox<Settings>>>>);

/// There is one listener, independent of its address.
const KEY: Address = Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));
/// Private keys that a lane keeps decoded.
const DECODED_KEYS_MAX: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

fn stop_all(lanes: Vec<LaneHandle<Settings>>) {
    for lane in &lanes {
        lane.post(Mail::Stop);
    }
    for lane in lanes {
        // One that panicked has reported it to JavaScript.
        let _ = lane.join();
    }
}
