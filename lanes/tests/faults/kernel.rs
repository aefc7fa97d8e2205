//! A kernel that does what the real one may do but hardly ever does: it wraps the real one, counts
//! its calls, and spoils those that the script names.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sealane_file_table::Descriptor;
use sealane_lanes::kernel::{Address, Kernel, Linux};

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A signal comes before anything is done.
    Interrupted,
    /// An error that ends the socket: reset, refused, no descriptor, no memory for a watch.
    Reset,
    /// One byte is read or written; an accept finds its connection aborted.
    Short,
    /// "Try again", although there is something.
    WouldBlock,
}

impl Fault {
    pub(crate) const ALL: [Self; 4] =
        [Self::Interrupted, Self::Reset, Self::Short, Self::WouldBlock];
}

/// Which calls are spoilt, and what they were; shared between the lane and the test.
#[derive(Debug, Default)]
pub(crate) struct Script(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    calls: u64,
    spoilt: u64,
    /// Bytes read from sockets that the lane itself connected.
    sent_bytes: u64,
    /// Room of the largest read since the last reset.
    largest_read: usize,
}

/// When a fault comes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Plan {
    /// At the call of this number, counted from 0.
    At(u64, Fault),
    #[default]
    Never,
    /// At every accept, for as long as it stands.
    NoDescriptors,
    /// At random calls, about one in `one_in`; anything but a reset.
    Seeded { seed: u64, one_in: u64 },
}

impl Script {
    /// Begins to count anew, with another plan.
    pub(crate) fn set(&self, plan: Plan) {
        *self.0.lock().unwrap() = State { plan, ..State::default() };
    }

    pub(crate) fn calls(&self) -> u64 {
        self.0.lock().unwrap().calls
    }

    /// How many calls were spoilt.
    pub(crate) fn spoilt(&self) -> u64 {
        self.0.lock().unwrap().spoilt
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.0.lock().unwrap().sent_bytes
    }

    pub(crate) fn largest_read(&self) -> usize {
        self.0.lock().unwrap().largest_read
    }

    fn next(&self, call: Call) -> Option<Fault> {
        let state = &mut *self.0.lock().unwrap();
        let number = state.calls;
        state.calls += 1;
        let fault = match &mut state.plan {
            Plan::At(at, fault) => (*at == number).then_some(*fault),
            Plan::Never => None,
            Plan::NoDescriptors => (call == Call::Accept).then_some(Fault::Reset),
            Plan::Seeded { seed, one_in } => {
                // Xorshift: any even spread will do, and it repeats.
                *seed ^= *seed << 13;
                *seed ^= *seed >> 7;
                *seed ^= *seed << 17;
                let faults = [Fault::Interrupted, Fault::Short, Fault::WouldBlock];
                let transfers = matches!(call, Call::Accept | Call::Recv | Call::Send);
                (transfers && *seed % *one_in == 0).then(|| faults[(*seed >> 32) as usize % 3])
            }
        };
        state.spoilt += u64::from(fault.is_some());
        fault
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Accept,
    Connect,
    Recv,
    Send,
    Watch,
}

/// The running kernel, with faults.
pub(crate) struct Faulty {
    linux: Linux,
    script: Arc<Script>,
    /// A copy of the lane's poll.
    poll: Option<OwnedFd>,
    /// The tokens that `watch` was given, and whether room is watched, by descriptor.
    watched: HashMap<RawFd, (u64, bool)>,
    /// The descriptors of sockets that `connect` made.
    connected: HashSet<RawFd>,
}

impl Faulty {
    pub(crate) fn new(script: Arc<Script>) -> Self {
        let (watched, connected) = (HashMap::new(), HashSet::new());
        Self { linux: Linux, script, poll: None, watched, connected }
    }

    /// Has the poll report the socket anew, as the kernel would when it really becomes ready.
    ///
    /// A socket that is not watched yet is reported when it is.
    fn report_again(&self, socket: BorrowedFd<'_>) {
        let Some((token, writable)) = self.watched.get(&socket.as_raw_fd()).copied() else {
            return;
        };
        let poll = self.poll.as_ref().unwrap();
        let events = if writable { ARRIVALS | EventFlags::OUT } else { ARRIVALS };
        epoll::modify(poll, socket, EventData::new_u64(token), events).unwrap();
    }
}

/// What the real kernel is asked to report.
const ARRIVALS: EventFlags =
    EventFlags::IN.union(EventFlags::PRI).union(EventFlags::RDHUP).union(EventFlags::ET);

/// Whether FIN has arrived. From then on the kernel never reads short: all there is to read lies
/// in the queue already.
fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec::default())).unwrap();
    fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

impl Kernel for Faulty {
    fn accept(&mut self, listener: BorrowedFd<'_>) -> io::Result<(Descriptor, Option<SocketAddr>)> {
        match self.script.next(Call::Accept) {
            Some(Fault::Interrupted) => Err(Errno::INTR.into()),
            Some(Fault::Reset) => Err(Errno::MFILE.into()),
            // Level-triggered, so it is reported again.
            Some(Fault::WouldBlock) => Err(Errno::AGAIN.into()),
            Some(Fault::Short) => Err(Errno::CONNABORTED.into()),
            None => {
                let accepted = self.linux.accept(listener)?;
                self.watched.remove(&accepted.0.as_fd().as_raw_fd());
                self.connected.remove(&accepted.0.as_fd().as_raw_fd());
                Ok(accepted)
            }
        }
    }

    fn connect(&mut self, address: &Address) -> io::Result<Descriptor> {
        let fault = self.script.next(Call::Connect);
        if fault == Some(Fault::Reset) {
            return Err(Errno::CONNREFUSED.into());
        }
        let socket = self.linux.connect(address)?;
        self.watched.remove(&socket.as_fd().as_raw_fd());
        self.connected.insert(socket.as_fd().as_raw_fd());
        Ok(socket)
    }

    fn recv(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        let room = into.len();
        let read = match self.script.next(Call::Recv) {
            Some(Fault::Interrupted) => Err(Errno::INTR.into()),
            Some(Fault::Reset) => Err(Errno::CONNRESET.into()),
            Some(Fault::Short) if !has_ended(socket) => {
                let read = self.linux.recv(socket, &mut into[..1]);
                self.report_again(socket);
                read
            }
            Some(Fault::WouldBlock) => {
                self.report_again(socket);
                Err(Errno::AGAIN.into())
            }
            Some(Fault::Short) | None => self.linux.recv(socket, into),
        };
        let state = &mut *self.script.0.lock().unwrap();
        state.largest_read = state.largest_read.max(room);
        if self.connected.contains(&socket.as_raw_fd()) {
            state.sent_bytes += *read.as_ref().unwrap_or(&0) as u64;
        }
        read
    }

    fn peek(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        self.linux.peek(socket, into)
    }

    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        end_follows: bool,
    ) -> io::Result<usize> {
        match self.script.next(Call::Send) {
            Some(Fault::Interrupted) => Err(Errno::INTR.into()),
            Some(Fault::Reset) => Err(Errno::CONNRESET.into()),
            Some(Fault::Short) => {
                let sent = self.linux.send(socket, &bytes[..1], end_follows);
                self.report_again(socket);
                sent
            }
            Some(Fault::WouldBlock) => {
                self.report_again(socket);
                Err(Errno::AGAIN.into())
            }
            None => self.linux.send(socket, bytes, end_follows),
        }
    }

    fn watch(
        &mut self,
        poll: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        token: u64,
        writable: bool,
    ) -> io::Result<()> {
        if self.script.next(Call::Watch) == Some(Fault::Reset) {
            return Err(Errno::NOSPC.into());
        }
        if self.poll.is_none() {
            self.poll = Some(poll.try_clone_to_owned()?);
        }
        self.watched.insert(socket.as_raw_fd(), (token, writable));
        self.linux.watch(poll, socket, token, writable)
    }

    fn watch_writable(
        &mut self,
        poll: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        token: u64,
    ) -> io::Result<()> {
        if self.script.next(Call::Watch) == Some(Fault::Reset) {
            return Err(Errno::NOSPC.into());
        }
        self.watched.insert(socket.as_raw_fd(), (token, true));
        self.linux.watch_writable(poll, socket, token)
    }
}
