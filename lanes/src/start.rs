//! Starting lanes as threads, and the handles by which the control plane holds them.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sealane_engine::context::LaneResources;
use sealane_engine::tickets::{TicketRoot, UnixSeconds};

use crate::core::Core;
use crate::counters::Counters;
use crate::generation::Publication;
use crate::kernel::Kernel;
use crate::lane::{Lane, LaneEnd};
use crate::mailbox::{Mail, Mailbox, mailbox};
use crate::service::Service;

/// How one lane is set up.
pub struct LaneSetup<S: Service, K> {
    /// Its number, from 0.
    pub number: usize,
    /// The processor that its thread is tied to, if any.
    pub pin_to_cpu: Option<usize>,
    /// Its replica of the ticket root.
    pub tickets: TicketRoot,
    /// Private keys that it keeps decoded.
    pub decoded_keys_max: NonZeroUsize,
    /// What it serves first.
    pub first: Publication<S::Settings>,
    /// Its system calls.
    pub kernel: K,
}

/// The control plane's handle of a running lane.
pub struct LaneHandle<S: Service> {
    /// Its number, from 0.
    pub number: usize,
    /// Where to send it mail.
    pub mailbox: Mailbox<S::Settings>,
    /// What it counts.
    pub counters: Arc<Counters>,
    thread: JoinHandle<io::Result<LaneEnd>>,
}

impl<S: Service> LaneHandle<S> {
    /// Whether its thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its thread.
    ///
    /// # Errors
    /// The lane could not start, or it panicked outside any connection.
    pub fn join(self) -> io::Result<LaneEnd> {
        self.thread.join().map_err(|_| io::Error::other("a lane panicked"))?
    }
}

/// The processors that this process may run on, which in a container are not all of the machine's.
///
/// # Errors
/// The kernel does not tell.
pub fn processors() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Starts a lane on a thread of its own and waits until it accepts.
///
/// `service` is called on that thread, so what it makes needs not cross threads.
///
/// # Errors
/// The thread, its poll or its processor affinity could not be had.
pub fn start<S, K>(
    setup: LaneSetup<S, K>,
    service: impl FnOnce(&Arc<Counters>) -> S + Send + 'static,
) -> io::Result<LaneHandle<S>>
where
    S: Service + 'static,
    K: Kernel + Send + 'static,
    S::Settings: 'static,
{
    let number = setup.number;
    let (sender, letters) = mailbox()?;
    let counters = Arc::new(Counters::default());
    let (ready, is_ready) = channel();
    let lane_counters = Arc::clone(&counters);
    let thread = thread::Builder::new().name(format!("lane-{number}")).spawn(move || {
        let LaneSetup { number, pin_to_cpu, tickets, decoded_keys_max, first, kernel } = setup;
        if let Some(cpu) = pin_to_cpu {
            let mut cpus = CpuSet::new();
            cpus.set(cpu);
            sched_setaffinity(None, &cpus)?;
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let resources = LaneResources::new(tickets, UnixSeconds(unix.as_secs()), decoded_keys_max);
        let service = service(&lane_counters);
        let core = Core::new(number, kernel, lane_counters)?;
        let mut lane = Lane::new(core, service, resources, letters)?;
        lane.publish(first);
        if lane.current.is_none() {
            return Err(io::Error::other("the first generation cannot be served on this machine"));
        }
        // Whoever waits may have given up; then there is nobody to tell.
        let _ = ready.send(());
        Ok(lane.run())
    })?;
    let handle = LaneHandle { number, mailbox: sender, counters, thread };
    match is_ready.recv() {
        Ok(()) => Ok(handle),
        Err(_) => Err(handle.join().err().unwrap_or_else(|| io::Error::other("a lane ended"))),
    }
}

impl<S: Service> LaneHandle<S> {
    /// Sends mail to the lane; whether it is still there to read it.
    pub fn post(&self, mail: Mail<S::Settings>) -> bool {
        self.mailbox.post(mail)
    }
}
