//! A service that is driven from another thread, as Node's is: it tells what happens over a
//! channel, and does what the orders in its queue say.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sealane_engine::buffer::Buffer;
use sealane_engine::client_certificates::ClientStanding;
use sealane_engine::hello::Hello;
use sealane_file_table::FileTable;
use sealane_lanes::LaneEnd;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::{Arrivals, Link, Received};
use sealane_lanes::orders::{Choice, Chosen, ConnectionId, Order};
use sealane_lanes::service::{EndedConnection, Service};

use crate::rig::{PATIENCE, Rig, Wanted};
use crate::service::{Settings, panic_if_told};

/// What the service tells.
#[derive(Debug)]
pub(crate) enum Told {
    ClientEnded(ConnectionId),
    Data(ConnectionId, Vec<u8>),
    Drained(ConnectionId),
    Ended(Cause),
    Hello(ConnectionId, Option<String>),
    Inspected(ClientStanding, Vec<u8>),
    Opened(ConnectionId),
    /// What waited when [`Command::Look`] came, and whether the options could be set.
    Pending(usize, bool),
    Stopped(LaneEnd),
}

/// What it can be told about a connection.
#[derive(Debug)]
pub(crate) enum Command {
    Abandon,
    Attach(OwnedFd),
    End(Cause),
    Finish,
    Inspect,
    Look,
    Nothing,
    Panic,
    /// Take so many more bytes from the client.
    Take(usize),
    /// Holds the lane up between two waits of the test at the gate.
    Wait,
    Write(Vec<u8>),
}

/// The queue of orders with its bell, and how the service is to behave.
pub(crate) struct Desk {
    queue: Mutex<Queue>,
    bell: OwnedFd,
    pub(crate) refuses: AtomicBool,
    /// Whether every hello waits for an order.
    hellos_wait: bool,
    /// Calls that must come in a certain order, and how often they did not.
    pub(crate) disorders: AtomicU64,
    pub(crate) rings: AtomicU64,
}

#[derive(Default)]
struct Queue {
    orders: VecDeque<Order<Command>>,
    is_asleep: bool,
    /// An order that comes when the lane has asked for the last time before it sleeps.
    late: Option<Order<Command>>,
}

impl Desk {
    pub(crate) fn order(&self, order: Order<Command>) {
        self.order_all([order]);
    }

    /// Puts all into the queue before the lane sees one.
    pub(crate) fn order_all(&self, orders: impl IntoIterator<Item = Order<Command>>) {
        let mut queue = self.queue.lock().unwrap();
        queue.orders.extend(orders);
        if std::mem::take(&mut queue.is_asleep) {
            self.rings.fetch_add(1, SeqCst);
            rustix::io::write(&self.bell, &1u64.to_ne_bytes()).unwrap();
        }
    }

    /// Puts an order into the queue at the end of the next turn that begins, without a bell.
    pub(crate) fn order_late(&self, order: Order<Command>) {
        self.queue.lock().unwrap().late = Some(order);
    }

    pub(crate) fn command(&self, id: ConnectionId, command: Command) {
        self.order(Order::Command(id, command));
    }

    pub(crate) fn choose(&self, id: ConnectionId, chosen: Chosen) {
        self.order(Order::Choose(id, chosen));
    }
}

/// What the test holds of it.
pub(crate) struct Driver {
    pub(crate) rig: Rig<Ordered>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) told: Receiver<Told>,
}

impl Driver {
    pub(crate) fn start(wanted: Wanted, hellos_wait: bool) -> Self {
        let desk = Arc::new(Desk {
            queue: Mutex::default(),
            bell: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap(),
            refuses: AtomicBool::new(false),
            hellos_wait,
            disorders: AtomicU64::new(0),
            rings: AtomicU64::new(0),
        });
        let (sender, told) = channel();
        let lane_desk = Arc::clone(&desk);
        let rig = Rig::serve(wanted, FileTable::Shared, move || Ordered {
            desk: lane_desk,
            told: sender,
            stage: Stage::TurnEnded,
            has_more: false,
        });
        Self { rig, desk, told }
    }

    /// What is told next.
    pub(crate) fn next(&self) -> Told {
        self.told.recv_timeout(PATIENCE).expect("the service tells something")
    }

    /// Nothing is told for a moment.
    pub(crate) fn silence(&self) {
        match self.told.recv_timeout(Duration::from_millis(50)) {
            Err(RecvTimeoutError::Timeout) => {}
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn hello(&self) -> (ConnectionId, Option<String>) {
        match self.next() {
            Told::Hello(id, name) => (id, name),
            other => panic!("{other:?} instead of a hello"),
        }
    }

    pub(crate) fn opened(&self) -> ConnectionId {
        match self.next() {
            Told::Opened(id) => id,
            other => panic!("{other:?} instead of an opened connection"),
        }
    }

    pub(crate) fn ended(&self, cause: Cause) {
        match self.next() {
            Told::Ended(told) => assert_eq!(told, cause),
            other => panic!("{other:?} instead of the end by {cause:?}"),
        }
    }

    /// A client has left without an end, perhaps with tickets unread.
    pub(crate) fn left(&self) {
        match self.next() {
            Told::Ended(Cause::ClientReset | Cause::ClientTruncated) => {}
            other => panic!("{other:?} instead of the end of a client that left"),
        }
    }

    /// Gathers the client's bytes until there are `len`.
    pub(crate) fn data(&self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            match self.next() {
                Told::Data(_, more) => bytes.extend(more),
                other => panic!("{other:?} after {} bytes", bytes.len()),
            }
        }
        bytes
    }

    /// Stops the lane and checks that its calls came in order.
    pub(crate) fn stop(self) -> LaneEnd {
        let end = self.rig.stop();
        let last = self.told.iter().last();
        assert!(matches!(last, Some(Told::Stopped(told)) if told == end), "{last:?}");
        assert_eq!(self.desk.disorders.load(SeqCst), 0, "calls out of order");
        end
    }
}

/// Where a turn stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    MaySleep,
    Awake,
    Orders,
    TurnEnded,
}

/// The service.
pub(crate) struct Ordered {
    desk: Arc<Desk>,
    told: Sender<Told>,
    stage: Stage,
    /// Whether the lane stopped asking though there was an order.
    has_more: bool,
}

pub(crate) struct Held {
    id: ConnectionId,
    /// How many more of the client's bytes may be taken.
    credit: usize,
    attached: bool,
}

impl Ordered {
    fn tell(&self, told: Told) {
        // The test may be over.
        let _ = self.told.send(told);
    }

    fn step(&mut self, from: &[Stage], to: Stage) {
        if !from.contains(&self.stage) {
            self.desk.disorders.fetch_add(1, SeqCst);
        }
        self.stage = to;
    }
}

impl Service for Ordered {
    type Connection = Held;
    type Command = Command;
    type Settings = Settings;

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        // It lives as long as the desk, which the service holds.
        Some(self.desk.bell.as_fd())
    }

    fn may_sleep(&mut self) -> bool {
        self.step(if self.has_more { &[] } else { &[Stage::TurnEnded] }, Stage::MaySleep);
        let mut queue = self.desk.queue.lock().unwrap();
        queue.is_asleep = queue.orders.is_empty();
        queue.is_asleep
    }

    fn after_wait(&mut self) {
        self.step(&[Stage::MaySleep, Stage::TurnEnded], Stage::Awake);
        self.desk.queue.lock().unwrap().is_asleep = false;
        let _ = rustix::io::read(&self.desk.bell, &mut [0; 8][..]);
    }

    fn next_order(&mut self) -> Option<Order<Command>> {
        self.step(&[Stage::Awake, Stage::Orders], Stage::Orders);
        let order = self.desk.queue.lock().unwrap().orders.pop_front();
        self.has_more = order.is_some();
        order
    }

    fn turn_ended(&mut self) {
        self.step(&[Stage::Orders], Stage::TurnEnded);
        let mut queue = self.desk.queue.lock().unwrap();
        let late = queue.late.take();
        queue.orders.extend(late);
    }

    fn accepts(&self) -> bool {
        !self.desk.refuses.load(SeqCst)
    }

    fn stopped(&mut self, end: LaneEnd) {
        self.step(&[Stage::TurnEnded], Stage::TurnEnded);
        self.tell(Told::Stopped(end));
    }

    fn hello(&mut self, id: ConnectionId, hello: &Hello, settings: &Settings) -> Choice {
        self.step(&[Stage::Awake], Stage::Awake);
        panic_if_told(settings, "hello");
        if !self.desk.hellos_wait {
            return Choice::Listener;
        }
        self.tell(Told::Hello(id, hello.server_name.as_deref().map(str::to_owned)));
        Choice::Wait
    }

    fn established<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        held: &mut Option<Held>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        self.tell(Told::Opened(link.id()));
        *held = Some(Held { id: link.id(), credit: 0, attached: false });
        Ok(())
    }

    fn command<K: Kernel>(
        &mut self,
        held: &mut Held,
        link: &mut Link<'_, K>,
        command: Command,
        settings: &Settings,
    ) -> Result<(), Cause> {
        self.step(&[Stage::Orders], Stage::Orders);
        assert_eq!(held.id, link.id());
        match command {
            Command::Abandon => {
                link.abandon_client();
                // It would take all, and tell, if it were asked.
                held.credit = usize::MAX >> 1;
            }
            Command::Attach(fd) => {
                link.attach_socket(fd.into()).unwrap();
                held.attached = true;
            }
            Command::End(cause) => return Err(cause),
            Command::Finish => return link.finish(&[]),
            Command::Inspect => {
                let key_log = link.take_key_log();
                self.tell(Told::Inspected(link.standing(), key_log));
            }
            Command::Look => {
                let set = [
                    link.set_no_delay(false),
                    link.set_no_delay(true),
                    link.set_keep_alive(Some(Duration::from_secs(60))),
                    link.set_keep_alive(Some(Duration::ZERO)),
                    link.set_keep_alive(None),
                ];
                let all = set.iter().all(Result::is_ok);
                self.tell(Told::Pending(link.pending_len(), all));
            }
            Command::Nothing => {}
            Command::Panic => panic!("as told"),
            Command::Take(len) => held.credit += len,
            Command::Wait => {
                settings.gate.wait();
                settings.gate.wait();
            }
            Command::Write(bytes) => return link.send(&bytes),
        }
        Ok(())
    }

    fn plaintext<K: Kernel>(
        &mut self,
        held: &mut Held,
        link: &mut Link<'_, K>,
        plain: &mut Buffer,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        if held.attached {
            return match link.send_attached(plain.filled()) {
                Ok(taken) => {
                    plain.consume(taken);
                    Ok(())
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
                Err(_) => Err(Cause::BackendReset),
            };
        }
        let len = plain.len().min(held.credit);
        if len > 0 {
            self.tell(Told::Data(held.id, plain.filled()[..len].to_vec()));
            plain.consume(len);
            held.credit -= len;
        }
        Ok(())
    }

    fn client_ended<K: Kernel>(
        &mut self,
        held: &mut Held,
        link: &mut Link<'_, K>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        if held.attached {
            return link.end_attached().map_err(|_| Cause::BackendReset);
        }
        self.tell(Told::ClientEnded(held.id));
        Ok(())
    }

    fn client_drained<K: Kernel>(
        &mut self,
        held: &mut Held,
        link: &mut Link<'_, K>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        assert_eq!(link.pending_len(), 0);
        panic_if_told(settings, "client_drained");
        self.tell(Told::Drained(held.id));
        Ok(())
    }

    fn attached_writable<K: Kernel>(
        &mut self,
        _held: &mut Held,
        _link: &mut Link<'_, K>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        Ok(())
    }

    fn attached_readable<K: Kernel>(
        &mut self,
        _held: &mut Held,
        link: &mut Link<'_, K>,
        arrivals: &mut Arrivals<'_>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        assert_eq!(arrivals.filled(), b"", "what another connection left is nobody's");
        match link.receive_attached(arrivals) {
            Ok(Received::Bytes { last: false }) => link.send(arrivals.filled()),
            Ok(Received::Bytes { last: true }) => link.finish(arrivals.filled()),
            Ok(Received::End) => link.finish(&[]),
            Ok(Received::Nothing) => Ok(()),
            Err(_) => Err(Cause::BackendReset),
        }
    }

    fn deadline<K: Kernel>(
        &mut self,
        _held: &mut Held,
        _link: &mut Link<'_, K>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        Ok(())
    }

    fn ended(&mut self, _held: Option<Held>, settings: &Settings, end: &EndedConnection<'_>) {
        settings.ends.lock().unwrap().push(end.cause);
        self.tell(Told::Ended(end.cause));
    }
}
