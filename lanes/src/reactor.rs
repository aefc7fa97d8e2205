//! The parts of a lane that connections borrow beside its buffers: kernel, poll, timers, counters,
//! time.

pub(crate) mod timer_wheel;

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::time::Timespec;
use sealane_file_table::Descriptor;

use crate::connection::Connection;
use crate::connection::attached::Attached;
use crate::connection::socket::Socket;
use crate::connection::token::Token;
use crate::kernel::Kernel;
use crate::reactor::timer_wheel::TimerWheel;
use crate::shared::counters::Counters;

/// What one lane owns beside its buffers, its connections and its service.
pub(crate) struct Reactor<K: Kernel> {
    pub(crate) number: usize,
    pub(crate) kernel: K,
    pub(crate) poll: Descriptor,
    pub(crate) wheel: TimerWheel,
    /// Connections that hold tickets back, in the order in which patience ends. A wait of fixed
    /// length needs no wheel, and most entries are stale before their time.
    pub(crate) tickets: VecDeque<(u64, u64)>,
    pub(crate) counters: Arc<Counters>,
    started_at: Instant,
    /// The time of this turn, since the lane started.
    pub(crate) now_ms: u64,
}

impl<K: Kernel> Reactor<K> {
    pub(crate) fn new(number: usize, kernel: K, counters: Arc<Counters>) -> io::Result<Self> {
        Ok(Self {
            number,
            kernel,
            poll: epoll::create(epoll::CreateFlags::CLOEXEC)?.into(),
            wheel: TimerWheel::new(),
            tickets: VecDeque::new(),
            counters,
            started_at: Instant::now(),
            now_ms: 0,
        })
    }

    /// Reads the clock, once per turn.
    pub(crate) fn read_clock(&mut self) {
        self.now_ms = to_ms(self.started_at.elapsed());
    }

    /// The time to the microsecond, on the same scale.
    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Moves the tokens whose timers have come into `due`.
    pub(crate) fn advance_timers(&mut self, due: &mut Vec<u64>) {
        self.wheel.advance(self.now_ms, due);
    }

    /// From now on reports when `socket` takes bytes again.
    pub(crate) fn watch_room(&mut self, socket: &mut Socket, token: Token) -> io::Result<()> {
        if socket.is_watched && !socket.wants_room {
            self.kernel.watch_writable(self.poll.as_fd(), socket.fd.as_fd(), token.bits())?;
        }
        socket.wants_room = true;
        Ok(())
    }

    /// Begins to report a socket that was attached in this turn. One that has taken bytes is
    /// connected, so room is of interest only if it ran out of it.
    pub(crate) fn watch_attached(&mut self, connection: &mut Connection) -> io::Result<()> {
        let token = connection.attached_token().bits();
        let Some(Attached { socket, .. }) = &mut connection.attached else { return Ok(()) };
        if !socket.is_watched {
            socket.wants_room |= socket.writes == 0;
            let poll = self.poll.as_fd();
            self.kernel.watch(poll, socket.fd.as_fd(), token, socket.wants_room)?;
            socket.is_watched = true;
        }
        Ok(())
    }

    /// Reports `source` for as long as it has something to read.
    pub(crate) fn watch_level(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.poll, source, EventData::new_u64(token), EventFlags::IN)?)
    }

    /// Stops reporting `source`.
    pub(crate) fn unwatch(&self, source: impl AsFd) {
        // Only fails for a source that is not watched, which is what was asked for.
        let _ = epoll::delete(&self.poll, source);
    }

    /// Waits for events, at most `timeout_ms`.
    pub(crate) fn wait(&self, events: &mut Vec<Event>, timeout_ms: Option<u64>) {
        let timeout = timeout_ms.map(|ms| {
            // At most a day, so the conversion cannot fail.
            let duration = Duration::from_millis(ms.min(86_400_000));
            Timespec::try_from(duration).unwrap_or_default()
        });
        events.clear();
        // The only error a sound lane can see is an interruption by a signal: an empty turn.
        let _ = epoll::wait(&self.poll, rustix::buffer::spare_capacity(events), timeout.as_ref());
    }
}

pub(crate) fn to_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
