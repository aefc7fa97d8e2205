//! The service: plaintext goes to JavaScript through rings or a socket, and orders come back.

mod orders;
mod socket;
mod told;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};

use sealane_engine::buffer::Buffer;
use sealane_engine::hello::Hello;
use sealane_lanes::LaneEnd;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::{Arrivals, Link};
use sealane_lanes::mailbox::Mailbox;
use sealane_lanes::orders::{Choice, ConnectionId, Order};
use sealane_lanes::service::{EndedConnection, Service};

use crate::bridged::{Bridged, Way};
use crate::commands::Commands;
use crate::events::Events;
use crate::message::Event;
use crate::settings::{Counts, Settings};

pub use orders::Task;

/// The parts that a bridge is made from.
pub struct Parts {
    /// To JavaScript.
    pub events: Events,
    /// From JavaScript.
    pub commands: Commands,
    /// Rung by JavaScript when the lane sleeps.
    pub bell: Arc<OwnedFd>,
    /// Takes JavaScript's ends of sockets, in the order of their [`Event::Open`]. JavaScript claims
    /// them, and unclaimed ones are closed with the queue.
    pub descriptors: Sender<OwnedFd>,
    /// Wakes JavaScript.
    pub wake: Box<dyn Fn() + Send>,
    /// The mailbox by which the lane stops itself. The code that starts the lane puts it there.
    pub mailbox: Arc<OnceLock<Mailbox<Settings>>>,
    /// The counters.
    pub counts: Arc<Counts>,
    /// Connections that may be handed over and not taken.
    pub pending_max: usize,
}

/// One lane's hand-over.
pub struct Bridge {
    parts: Parts,
    /// Connections that found no room, the longest waiting first. Some of them have ended.
    stalled: VecDeque<ConnectionId>,
    /// The count of those that JavaScript does not know.
    unopened: usize,
    /// Connections that JavaScript knows and has not reported as taken.
    untaken: usize,
    /// Events that must not be lost and found no room. At most one for each connection that
    /// JavaScript knows, and [`told::HELLOS_MAX`].
    late: VecDeque<told::Late>,
    late_hellos: usize,
    /// Payloads are put together here.
    payload: Vec<u8>,
    state: State,
    slept: bool,
    /// Events since JavaScript was last looked after.
    unannounced: usize,
}

/// The steps of a lane towards its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// A ring is broken, and JavaScript knows. The lane must stop.
    Broken,
    /// The lane has the order to stop.
    Stopping,
    /// JavaScript knows of the end.
    Ended,
}

impl Bridge {
    /// The service of one lane.
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            stalled: VecDeque::new(),
            unopened: 0,
            untaken: 0,
            late: VecDeque::new(),
            late_hellos: 0,
            payload: Vec::new(),
            state: State::Running,
            slept: false,
            unannounced: 0,
        }
    }

    /// The connection waits until there is room in the ring.
    fn stall(&mut self, bridged: &mut Bridged) {
        if std::mem::replace(&mut bridged.is_stalled, true) {
            return;
        }
        self.parts.counts.stalls.add(1);
        self.unopened += usize::from(!bridged.is_open);
        self.stalled.push_back(ConnectionId::from_bits(bridged.id));
    }

    fn offer_data(&mut self, bridged: &mut Bridged, plain: &mut Buffer) {
        let offered = plain.len().min(bridged.window());
        let taken = self.parts.events.write_data(bridged.id, &plain.filled()[..offered]);
        bridged.note_data(taken);
        plain.consume(taken);
        self.note_events(1);
        if taken < offered {
            self.stall(bridged);
        }
    }

    /// In a long turn JavaScript begins with the first events while the lane reads the next.
    fn note_events(&mut self, count: usize) {
        self.unannounced += count;
        if self.unannounced >= EVENTS_AHEAD {
            self.announce();
        }
    }

    /// Wakes JavaScript if it sleeps and has something to do.
    fn announce(&mut self) {
        self.unannounced = 0;
        let Parts { events, commands, counts, wake, .. } = &mut self.parts;
        // Both are asked: each takes its flag down.
        if events.wakes() | commands.wakes() {
            counts.wakes.add(1);
            wake();
        }
    }

    fn tell_end(&mut self, bridged: &mut Bridged) {
        bridged.end_told = bridged.is_open && self.parts.events.write(Event::End, bridged.id, &[]);
        bridged.end_due = !bridged.end_told;
        if bridged.end_due {
            self.stall(bridged);
        }
    }

    /// Credits JavaScript for bytes that have left the lane.
    fn tell_credit<K: Kernel>(&mut self, bridged: &mut Bridged, link: &Link<'_, K>) {
        let credit = bridged.credit(link.pending_len());
        if credit == 0 {
            return;
        }
        if self.parts.events.write(Event::Credit, bridged.id, &credit.to_le_bytes()) {
            bridged.note_credit(credit);
        } else {
            self.stall(bridged);
        }
    }
}

impl Service for Bridge {
    type Connection = Bridged;
    type Command = Task;
    type Settings = Settings;

    /// The last bytes are awaited. As in Node, a cut is the end of the bytes that may be read.
    const AWAITS_LAST_BYTES: bool = true;

    /// Connections end plainly, as at the end of a process.
    const STOPS_PLAINLY: bool = true;

    /// Clients that are turned away see no error, as in Node.
    const TURNS_AWAY_PLAINLY: bool = true;

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(self.parts.bell.as_fd())
    }

    fn may_sleep(&mut self) -> bool {
        if self.state == State::Running && self.parts.events.is_abandoned() {
            self.state = State::Broken;
        }
        if self.state == State::Broken {
            return self.stop_lane();
        }
        let waits = !self.stalled.is_empty() || !self.late.is_empty();
        self.slept = self.parts.commands.may_sleep() && (!waits || self.parts.events.may_wait());
        self.slept
    }

    fn after_wait(&mut self) {
        self.parts.commands.mark_awake();
        if std::mem::take(&mut self.slept) {
            // It does not block; nothing is in it when something else ended the sleep.
            let _ = rustix::io::read(&self.parts.bell, &mut [0; 8][..]);
        }
    }

    fn next_order(&mut self) -> Option<Order<Task>> {
        self.order()
    }

    fn command<K: Kernel>(
        &mut self,
        bridged: &mut Bridged,
        link: &mut Link<'_, K>,
        task: Task,
        settings: &Settings,
    ) -> Result<(), Cause> {
        self.obey(bridged, link, task, settings)
    }

    fn turn_ended(&mut self) {
        self.announce();
        self.parts.counts.untaken.set(self.untaken as u64);
    }

    fn accepts(&self) -> bool {
        // Before all lanes have started, a context that JavaScript chooses does not reach this one.
        let is_started = self.parts.mailbox.get().is_some();
        is_started && self.untaken + self.unopened < self.parts.pending_max
    }

    fn admits(&mut self, client: Option<SocketAddr>, settings: &Settings) -> Result<(), Cause> {
        match client {
            Some(client) if settings.blocked.holds(client.ip()) => Err(Cause::Blocked),
            _ => Ok(()),
        }
    }

    fn hello(&mut self, id: ConnectionId, hello: &Hello, settings: &Settings) -> Choice {
        if !settings.asks {
            return Choice::Listener;
        }
        self.tell_hello(id.bits(), hello.server_name.as_deref().unwrap_or_default());
        Choice::Wait
    }

    fn stopped(&mut self, _end: LaneEnd) {
        self.tell_late();
        self.tell_down("");
    }

    fn established<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        connection: &mut Option<Bridged>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        if !settings.no_delay {
            // A unix socket has no such option, nor any need of it.
            let _ = link.set_no_delay(false);
        }
        if settings.keep_alive.is_some() {
            let _ = link.set_keep_alive(settings.keep_alive);
        }
        let way = Way::of(settings, link.session());
        let mut bridged = Bridged::new(link.id().bits(), way);
        if way == Way::Socket {
            bridged.theirs = Some(socket::attach(link).map_err(|_| Cause::Internal)?);
        }
        self.tell_open(&mut bridged, link);
        *connection = Some(bridged);
        Ok(())
    }

    fn plaintext<K: Kernel>(
        &mut self,
        bridged: &mut Bridged,
        link: &mut Link<'_, K>,
        plain: &mut Buffer,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        match bridged.way {
            Way::Ring if bridged.is_open => self.offer_data(bridged, plain),
            Way::Ring => {}
            Way::Socket => return socket::send(bridged, link, plain),
        }
        Ok(())
    }

    fn client_ended<K: Kernel>(
        &mut self,
        bridged: &mut Bridged,
        link: &mut Link<'_, K>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        match bridged.way {
            Way::Ring => self.tell_end(bridged),
            Way::Socket => socket::end(link),
        }
        Ok(())
    }

    fn client_drained<K: Kernel>(
        &mut self,
        bridged: &mut Bridged,
        link: &mut Link<'_, K>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        self.tell_credit(bridged, link);
        Ok(())
    }

    fn attached_writable<K: Kernel>(
        &mut self,
        _bridged: &mut Bridged,
        _link: &mut Link<'_, K>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        // The remaining bytes are offered again.
        Ok(())
    }

    fn attached_readable<K: Kernel>(
        &mut self,
        bridged: &mut Bridged,
        link: &mut Link<'_, K>,
        arrivals: &mut Arrivals<'_>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        socket::receive(bridged, link, arrivals, settings)
    }

    fn deadline<K: Kernel>(
        &mut self,
        bridged: &mut Bridged,
        link: &mut Link<'_, K>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        if !bridged.has_moved(link) {
            return Err(Cause::ServiceClosed);
        }
        link.set_deadline(settings.shutdown_timeout);
        Ok(())
    }

    fn refused(
        &mut self,
        connection: &mut Option<Bridged>,
        _settings: &Settings,
        end: &EndedConnection<'_>,
    ) {
        // JavaScript need not wait for a client that does not read the alert.
        self.tell_failed(end);
        *connection = Some(Bridged::new(end.id.bits(), Way::Ring));
    }

    fn ended(&mut self, bridged: Option<Bridged>, _settings: &Settings, end: &EndedConnection<'_>) {
        match bridged {
            Some(bridged) if bridged.is_open => {
                self.tell_close(bridged.id, bridged.owes_end(end.cause), end.cause);
            }
            // JavaScript never knew of it, or knows that its handshake failed.
            Some(_) => {}
            None => self.tell_failed(end),
        }
    }
}

/// Events that are worth waking JavaScript for in the middle of a turn.
const EVENTS_AHEAD: usize = 8;

impl Drop for Bridge {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell_down("a lane panicked: a fault of Sealane; its connections are lost");
        }
    }
}
