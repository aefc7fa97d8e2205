//! JavaScript's `Server`: lanes that listen, and hand connections over.

#![expect(clippy::needless_pass_by_value, reason = "the binding hands values over")]

mod options;
mod stats;

use std::cell::RefCell;
use std::os::fd::{IntoRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock, Weak};

use napi::bindgen_prelude::{
    AsyncTask, ClassInstance, Either3, Function, Null, Object, Uint8Array,
};
use napi::{Env, Error, Result, Task};
use napi_derive::napi;
use rustix::event::{EventfdFlags, eventfd};
use sealane_engine::context::ContextId;

use crate::blocked::Blocked;
use crate::commands::Commands;
use crate::context::Context;
use crate::control::{Control, Order, Served, TicketKeys};
use crate::events::Events;
use crate::failing::{self, Place};
use crate::listen::Where;
use crate::memory::SharedRegion;
use crate::service::Parts;
use crate::settings::Counts;
use crate::wake::{Anchor, Waker};

pub use options::{Address, ServerOptions, WhereOptions};

/// The lanes of one `listen`.
#[napi]
pub struct Server {
    control: Arc<Control>,
    /// None once the lanes are stopped: no collector is in a hurry to give descriptors back.
    bells: RefCell<Vec<Arc<OwnedFd>>>,
    counts: Vec<Arc<Counts>>,
    /// By lane, the sockets that JavaScript has not claimed.
    descriptors: RefCell<Vec<Receiver<OwnedFd>>>,
    /// None once the lanes are stopped. Methods borrow the server while its tasks run, so none may
    /// do so mutably.
    anchor: RefCell<Option<Anchor>>,
}

#[napi]
impl Server {
    /// Lanes that have not started; `wake` is called with the number of one that has events.
    #[napi(constructor)]
    pub fn new(env: Env, options: ServerOptions<'_>, wake: Function<'_, u32, ()>) -> Result<Self> {
        let waker = Waker::new(&wake, options.rings.len())?;
        let pending_max = options.max_pending as usize;
        let (context, plan, rings) = options.read()?;
        let mut made = Made::default();
        for (lane, ring) in (0..).zip(rings) {
            made.add(lane, ring, &waker, pending_max)?;
        }
        let control = Control::new(plan, context, made.parts, Box::new(made.memory))
            .map_err(|error| Error::from_reason(error.to_string()))?;
        let control = Arc::new(control);
        // It was added later than those of both functions, so Node runs it before them.
        let anchor = RefCell::new(Some(Anchor::new(&wake)?));
        env.add_env_cleanup_hook(Arc::downgrade(&control), |control: Weak<Control>| {
            if let Some(control) = control.upgrade() {
                control.stop();
            }
        })?;
        Ok(Self {
            control,
            bells: RefCell::new(made.bells),
            counts: made.counts,
            descriptors: RefCell::new(made.descriptors),
            anchor,
        })
    }

    /// Opens the sockets that the lanes will accept from. Returns the address, the path, or
    /// nothing.
    #[napi(ts_return_type = "Address | string | null")]
    pub fn bind(&self, env: Env, r#where: WhereOptions) -> Result<Either3<Address, String, Null>> {
        let r#where = Where::from(r#where);
        let opened = r#where.open(self.control.lane_count());
        let (sockets, address) = opened.or_else(|error| {
            let host = r#where.host.as_deref().or(r#where.path.as_deref());
            let is_unspecified = host.is_none() && r#where.fd.is_none();
            let place = Place {
                address: if is_unspecified { Some("::") } else { host },
                port: (r#where.path.is_none() && r#where.fd.is_none())
                    .then_some(r#where.port.into()),
            };
            Err(failing::of_listen(&env, &error, &place)?)
        })?;
        self.control.listen(sockets);
        Ok(match (address, r#where.path) {
            (Some(address), _) => Either3::A(address.into()),
            (None, Some(path)) => Either3::B(path),
            (None, None) => Either3::C(Null),
        })
    }

    /// Starts the lanes, off the thread; resolved when they accept.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn start(&self) -> AsyncTask<Starting> {
        AsyncTask::new(Starting { control: Arc::clone(&self.control) })
    }

    /// Serves these contexts from now on, the first for names without another. Clients that match
    /// the rules of a `net.BlockList` are rejected.
    #[napi]
    pub fn publish(
        &self,
        context: ClassInstance<'_, Context>,
        named: Vec<(String, ClassInstance<'_, Context>)>,
        blocked: Vec<String>,
    ) {
        let named = named.iter().map(|(name, context)| (name.clone(), context.shared()));
        self.control.order(Order::Publish(Served {
            context: context.shared(),
            named: named.collect(),
            blocked: Blocked::read(blocked.iter().map(String::as_str)),
        }));
    }

    /// Prepares a lane for a context that JavaScript may choose later.
    #[napi]
    pub fn provide(&self, lane: u32, context: ClassInstance<'_, Context>) {
        self.control.order(Order::Provide(lane as usize, context.shared()));
    }

    /// Lets all lanes forget a context that they were provided with.
    #[napi]
    pub fn withdraw(&self, id: f64) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an id has fewer than 53 bits; anything else names no context"
        )]
        self.control.order(Order::Withdraw(ContextId(id as u64)));
    }

    /// Seals tickets with the first of these, and opens them with any.
    #[napi]
    pub fn set_ticket_keys(&self, keys: Vec<Uint8Array>) -> Result<()> {
        let keys: TicketKeys = options::ticket_keys(&keys)?;
        self.control.order(Order::Tickets(keys));
        Ok(())
    }

    /// Wakes a lane, which sleeps or waits for room.
    #[napi]
    pub fn ring(&self, lane: u32) {
        if let Some(bell) = self.bells.borrow().get(lane as usize) {
            // It only fails when the lane is being woken already.
            let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// The descriptor of a lane's next connection that comes by one, in their order: JavaScript's
    /// from now on. Those that it never claims are closed. -1: there is none, the lanes were
    /// stopped.
    #[napi]
    pub fn claim(&self, lane: u32) -> RawFd {
        let descriptors = self.descriptors.borrow();
        let next = descriptors.get(lane as usize).and_then(|waiting| waiting.try_recv().ok());
        next.map_or(-1, IntoRawFd::into_raw_fd)
    }

    /// The counts of the lanes.
    #[napi]
    pub fn stats<'env>(&self, env: &'env Env) -> Result<Object<'env>> {
        stats::object(env, &self.control.counters(), &self.counts)
    }

    /// Accepts no more; each lane ends with its last connection.
    #[napi]
    pub fn drain(&self) {
        self.control.order(Order::Drain);
    }

    /// Stops the lanes at once; resolved when their threads are gone.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn stop(&self) -> AsyncTask<Stopping> {
        self.anchor.replace(None);
        self.bells.take();
        self.descriptors.take();
        AsyncTask::new(Stopping { control: Arc::clone(&self.control) })
    }

    /// The same for the end of the process, when no promise is awaited. The lanes carry out all
    /// earlier orders, and are gone when this returns.
    #[napi]
    pub fn stop_now(&self) {
        self.control.stop();
    }

    /// Keeps the process alive from now on.
    #[napi(js_name = "ref")]
    pub fn hold(&self, env: Env) -> Result<()> {
        self.anchor.borrow_mut().as_mut().map_or(Ok(()), |anchor| anchor.hold(&env))
    }

    /// Keeps the process alive no longer.
    #[napi]
    pub fn unref(&self, env: Env) -> Result<()> {
        self.anchor.borrow_mut().as_mut().map_or(Ok(()), |anchor| anchor.release(&env))
    }
}

/// The parts that are made for each lane.
#[derive(Default)]
struct Made {
    parts: Vec<Parts>,
    memory: Vec<SharedRegion>,
    bells: Vec<Arc<OwnedFd>>,
    counts: Vec<Arc<Counts>>,
    descriptors: Vec<Receiver<OwnedFd>>,
}

impl Made {
    fn add(
        &mut self,
        lane: u32,
        ring: options::Ring,
        waker: &Arc<Waker>,
        pending_max: usize,
    ) -> Result<()> {
        let wrong = |name: &str| {
            let name = format!("rings[{lane}].{name}");
            move |error| Error::from_reason(format!("{name}: {error}"))
        };
        let events = SharedRegion::new(ring.events).map_err(wrong("events"))?;
        let commands = SharedRegion::new(ring.commands).map_err(wrong("commands"))?;
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|error| Error::from_reason(format!("no descriptor is left: {error}")))?;
        let (bell, counts) = (Arc::new(bell), Arc::<Counts>::default());
        let waker = Arc::clone(waker);
        let (claimable, waiting) = channel();
        self.parts.push(Parts {
            events: Events::new(events.producer().map_err(wrong("events"))?),
            commands: Commands::new(commands.consumer().map_err(wrong("commands"))?),
            bell: Arc::clone(&bell),
            descriptors: claimable,
            wake: Box::new(move || waker.wake(lane)),
            mailbox: Arc::new(OnceLock::new()),
            counts: Arc::clone(&counts),
            pending_max,
        });
        self.memory.extend([events, commands]);
        self.bells.push(bell);
        self.counts.push(counts);
        self.descriptors.push(waiting);
        Ok(())
    }
}

/// Lanes that are started on a thread of Node's pool.
pub struct Starting {
    control: Arc<Control>,
}

impl Task for Starting {
    type Output = ();
    type JsValue = ();

    fn compute(&mut self) -> Result<()> {
        self.control.start().map_err(Error::from_reason)
    }

    fn resolve(&mut self, _env: Env, _output: ()) -> Result<()> {
        Ok(())
    }
}

/// Lanes that are stopped on a thread of Node's pool.
pub struct Stopping {
    control: Arc<Control>,
}

impl Task for Stopping {
    type Output = ();
    type JsValue = ();

    fn compute(&mut self) -> Result<()> {
        self.control.stop();
        Ok(())
    }

    fn resolve(&mut self, _env: Env, _output: ()) -> Result<()> {
        Ok(())
    }
}
