//! Rouses a thread that sleeps in its epoll, and makes a system call only if it does: [`Bell`].
//!
//! ```text
//! sender: put the notice there, then look whether the owner sleeps
//! owner:  say that it sleeps, then look whether a notice is there
//! ```
//! Each writes first and reads then, with a full fence between, so that one of the two sees what
//! the other wrote: no notice is slept over. It is the order that `bytering` proves by a model.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence},
};

use rustix::event::{
    EventfdFlags,
    epoll::{self, EventData, EventFlags},
    eventfd,
};

/// One thread's; anybody may ring it.
pub(super) struct Bell {
    fd: OwnedFd,
    asleep: AtomicBool,
}

impl Bell {
    /// A bell whose owner is awake.
    ///
    /// # Errors
    /// The system has no descriptor for it.
    pub(super) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { fd, asleep: AtomicBool::new(false) })
    }

    /// Lets `poll` report the bell under `token`. Edge-triggered, so that nobody has to silence it:
    /// each stroke is reported once.
    ///
    /// # Errors
    /// What epoll_ctl(2) says.
    pub(super) fn watch(&self, poll: impl AsFd, token: u64) -> io::Result<()> {
        let interest = EventFlags::IN | EventFlags::ET;
        Ok(epoll::add(poll, &self.fd, EventData::new_u64(token), interest)?)
    }

    /// Rouses the owner, be it awake or not: a system call.
    pub(super) fn strike(&self) {
        // It fails only when 2^64 strokes have not been read: the owner is then being roused.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Rouses the owner if it sleeps; returns whether that took a system call. What it is to find
    /// must be there before.
    pub(super) fn ring(&self) -> bool {
        fence(SeqCst);
        // Of several who find it asleep, one rouses it; and an owner awake costs no write.
        let rouses = self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed);
        if rouses {
            self.strike();
        }
        rouses
    }

    /// The owner is about to sleep. It must look once more now, and stay awake if it finds
    /// something.
    pub(super) fn lie_down(&self) {
        self.asleep.store(true, Relaxed);
        fence(SeqCst);
    }

    /// The owner is awake.
    pub(super) fn rise(&self) {
        self.asleep.store(false, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread, time::Duration};

    use rustix::{event::epoll::CreateFlags, time::Timespec};

    use super::*;

    #[test]
    fn no_notice_is_slept_over_and_nobody_awake_is_roused() {
        const NOTICES: u64 = 200_000;
        let bell = Arc::new(Bell::new().unwrap());
        assert!(!bell.ring(), "its owner is awake");
        let (mut sender, mut receiver) = rtrb::RingBuffer::new(4);
        let rings = Arc::clone(&bell);
        let sending = thread::spawn(move || {
            let mut calls = 0;
            for notice in 0..NOTICES {
                while sender.push(notice).is_err() {
                    thread::yield_now();
                }
                calls += u64::from(rings.ring());
            }
            calls
        });
        let poll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        bell.watch(&poll, 0).unwrap();
        let (mut next, mut lies) = (0, 0);
        while next < NOTICES {
            while let Ok(notice) = receiver.pop() {
                assert_eq!(notice, next);
                next += 1;
            }
            bell.lie_down();
            lies += 1;
            if receiver.is_empty() && next < NOTICES {
                let mut events = Vec::with_capacity(1);
                let spare = rustix::buffer::spare_capacity(&mut events);
                epoll::wait(&poll, spare, Some(&PATIENCE)).unwrap();
                assert_eq!(events.len(), 1, "a notice was slept over, or the sender is stuck");
            }
            bell.rise();
        }
        let calls = sending.join().unwrap();
        assert!(calls <= lies, "{calls} calls, though it lay down {lies} times");
    }

    const PATIENCE: Timespec =
        Timespec { tv_sec: Duration::from_secs(20).as_secs().cast_signed(), tv_nsec: 0 };
}
