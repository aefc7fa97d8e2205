//! Starting lanes as threads, and the handles by which the control plane holds them.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::thread::{CpuSet, sched_setaffinity};
use sealane_engine::context::LaneResources;
use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use sealane_file_table::{
    Descriptor, Entrance, FileTable, GiveError, Left, Settled, Taker, door, grow,
};

use crate::kernel::{Address, Kernel};
use crate::lane::Lane;
use crate::lane::thread::LaneThread;
use crate::reactor::Reactor;
use crate::service::{LaneEnd, Service};
use crate::shared::counters::Counters;
use crate::shared::generation::{Generation, Publication};
use crate::shared::handover::{Inlet, Outlet, Parcel};
use crate::shared::mailbox::{Inbox, Mail, Mailbox, mailbox};

pub use crate::kernel::processors::processors;

/// How one lane is set up.
pub struct LaneSetup<S: Service, K> {
    /// The thread that it runs on.
    pub thread: LaneThread,
    /// The processor that its thread is tied to, if any.
    pub pin_to_cpu: Option<usize>,
    /// The lane's replica of the ticket root.
    pub tickets: TicketRoot,
    /// Private keys that it keeps decoded.
    pub decoded_keys_max: NonZeroUsize,
    /// What it serves first.
    pub first: Arc<Generation<S::Settings>>,
    /// Freshly bound sockets, of which it gets copies.
    pub sockets: Vec<(Address, Descriptor)>,
    /// What of the kernel's things it has for itself.
    pub own: Own,
    /// The lane's system calls.
    pub kernel: K,
}

/// What a lane has for itself of what threads of a process otherwise share in the kernel; by
/// default nothing.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    /// Whose table of open files it has. With one of its own, nothing that the service is made of
    /// may own or lend a descriptor. Where the kernel refuses that, lanes share one.
    pub file_table: FileTable,
    /// Descriptors that a table of its own is grown for before it accepts.
    pub descriptors: u64,
}

impl Default for Own {
    fn default() -> Self {
        Self { file_table: FileTable::Shared, descriptors: 0 }
    }
}

/// The control plane's handle of a running lane, to which generations bring `T`.
pub struct LaneHandle<T> {
    /// The lane's number, from 0.
    pub number: usize,
    /// Where to send it mail.
    pub mailbox: Mailbox<T>,
    /// What it counts.
    pub counters: Arc<Counters>,
    /// Whose table of open files it has.
    pub file_table: FileTable,
    /// Why it has none of its own, if it should.
    pub refusal: Option<io::Error>,
    outlet: Outlet,
    thread: JoinHandle<io::Result<LaneEnd>>,
}

impl<T> LaneHandle<T> {
    /// Whether its thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Hands copies of `sockets` over and waits until the lane has them; they take connections from
    /// when they are published, and are closed by [`Mail::Discard`] if they are not.
    ///
    /// # Errors
    /// The lane does not take them, or not all; then they are to be discarded.
    pub fn hand_over(&mut self, sockets: &[(Address, Descriptor)]) -> Result<Parcel, GiveError> {
        self.outlet.hand_over(sockets)
    }

    /// Waits for its thread.
    ///
    /// # Errors
    /// The lane could not start, or it panicked outside any connection.
    pub fn join(self) -> io::Result<LaneEnd> {
        // A lane that still waits for what it starts with waits no longer.
        drop(self.outlet);
        self.thread.join().map_err(|_| io::Error::other("a lane panicked"))?
    }

    /// Sends mail to the lane; whether it is still there to read it.
    pub fn post(&self, mail: Mail<T>) -> bool {
        self.mailbox.post(mail)
    }
}

/// Starts a lane on its thread and waits until it accepts.
///
/// `service` is called on that thread, so what it makes needs not cross threads.
///
/// # Errors
/// The lane's poll, its sockets or its processor affinity could not be had.
pub fn start<S, K>(
    setup: LaneSetup<S, K>,
    service: impl FnOnce(&Arc<Counters>) -> S + Send + 'static,
) -> io::Result<LaneHandle<S::Settings>>
where
    S: Service + 'static,
    K: Kernel + Send + 'static,
    S::Settings: 'static,
{
    let LaneSetup { thread, pin_to_cpu, tickets, decoded_keys_max, first, .. } = setup;
    let LaneSetup { sockets, own, kernel, .. } = setup;
    let number = thread.number;
    let (mailbox, receiver) = mailbox()?;
    let (giver, entrance) = door()?;
    let counters = Arc::new(Counters::default());
    let addresses = sockets.iter().map(|(address, _)| address.clone()).collect();
    // Bounded channels hold no memory of the lane, which this thread would keep and use again.
    let (settled, has_settled) = sync_channel(1);
    let (ready, is_ready) = sync_channel(1);
    let lane_counters = Arc::clone(&counters);
    let thread = thread.run(move || {
        let taker = settle(entrance, own, &settled);
        if let Some(cpu) = pin_to_cpu {
            let mut cpus = CpuSet::new();
            cpus.set(cpu);
            sched_setaffinity(None, &cpus)?;
        }
        let (inlet, bell, parcel) = Inlet::furnished(taker, addresses)?;
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let resources = LaneResources::new(tickets, UnixSeconds(unix.as_secs()), decoded_keys_max);
        let service = service(&lane_counters);
        let reactor = Reactor::new(number, kernel, lane_counters)?;
        let mut lane = Lane::new(reactor, service, resources, Inbox { receiver, bell }, inlet)?;
        lane.publish(Publication { generation: first, parcel });
        if !lane.serves() {
            return Err(io::Error::other("the first generation cannot be served on this machine"));
        }
        // Whoever waits may have given up; then there is nobody to tell.
        let _ = ready.send(());
        Ok(lane.run())
    });
    let outlet = Outlet::new(giver);
    let (file_table, refusal) = settled_as(&has_settled);
    let mut lane = LaneHandle { number, mailbox, counters, file_table, refusal, outlet, thread };
    match lane.outlet.furnish(lane.mailbox.bell(), &sockets) {
        Ok(()) if is_ready.recv().is_ok() => Ok(lane),
        // Why the thread has ended says more than that it is gone.
        Ok(()) | Err(GiveError::Gone) => {
            Err(lane.join().err().unwrap_or_else(|| io::Error::other("a lane ended")))
        }
        Err(error) => {
            // It may have all the same, late, and serve.
            lane.post(Mail::Stop);
            let _ = lane.join();
            Err(io::Error::other(error))
        }
    }
}

/// In the lane's thread: gets it the table that it is to have.
fn settle(entrance: Entrance, wanted: Own, settled: &SyncSender<Arrival>) -> Taker {
    let Settled { taker, left, table, refusal } = entrance.settle(wanted.file_table);
    if table == FileTable::Own {
        // It can only fail for want of memory or descriptors; then the table grows as it goes.
        let _ = grow(wanted.descriptors);
    }
    // Whoever waits may have given up; then there is nobody to tell.
    let _ = settled.send(Arrival { left, table, refusal });
    taker
}

/// In the thread that starts it: closes what the lane has left behind.
fn settled_as(has_settled: &Receiver<Arrival>) -> (FileTable, Option<io::Error>) {
    match has_settled.recv() {
        Ok(Arrival { left, table, refusal }) => {
            left.close();
            (table, refusal)
        }
        // It panicked, as its end will show.
        Err(_) => (FileTable::Shared, None),
    }
}

/// What a lane's thread tells when it has its table.
struct Arrival {
    left: Left,
    table: FileTable,
    refusal: Option<io::Error>,
}
