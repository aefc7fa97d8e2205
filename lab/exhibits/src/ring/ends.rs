//! The rings side by side, each as a [`Sender`] and a [`Receiver`]: the locked queue that TLSnappy
//! began with, rtrb, and bytering. TLSnappy's own ring is in [`paged`](super::paged).

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use bytering::{Limits, PageCounts};

/// The end that writes.
pub(crate) trait Sender: Send {
    /// Takes the front of `bytes`; how many.
    fn write(&mut self, bytes: &[u8]) -> usize;

    /// What it has done with memory, if that is in pages.
    fn pages(&self) -> PageCounts {
        PageCounts::default()
    }
}

/// The end that reads.
pub(crate) trait Receiver: Send {
    /// Fills the front of `into`; how much.
    fn read(&mut self, into: &mut [u8]) -> usize;
}

impl Sender for bytering::Producer {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.write(bytes)
    }

    fn pages(&self) -> PageCounts {
        self.pages()
    }
}

impl Receiver for bytering::Consumer {
    fn read(&mut self, into: &mut [u8]) -> usize {
        self.read(into)
    }
}

impl Sender for rtrb::Producer<u8> {
    fn write(&mut self, bytes: &[u8]) -> usize {
        self.push_partial_slice(bytes).0.len()
    }
}

impl Receiver for rtrb::Consumer<u8> {
    fn read(&mut self, into: &mut [u8]) -> usize {
        self.pop_partial_slice(into).0.len()
    }
}

/// A queue of bytes behind a lock, as large as the rings may become.
#[derive(Clone)]
pub(crate) struct Locked(Arc<Mutex<VecDeque<u8>>>);

impl Locked {
    /// Both ends of an empty one.
    pub(crate) fn pair() -> (Self, Self) {
        let queue = Self(Arc::new(Mutex::new(VecDeque::with_capacity(CAP_BYTES))));
        (queue.clone(), queue)
    }
}

impl Sender for Locked {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = bytes.len().min(CAP_BYTES - queue.len());
        queue.extend(&bytes[..taken]);
        taken
    }
}

impl Receiver for Locked {
    fn read(&mut self, into: &mut [u8]) -> usize {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = into.len().min(queue.len());
        let (front, back) = queue.as_slices();
        let from_front = taken.min(front.len());
        into[..from_front].copy_from_slice(&front[..from_front]);
        into[from_front..taken].copy_from_slice(&back[..taken - from_front]);
        queue.drain(..taken);
        taken
    }
}

/// The ring's limits here: 16 pages of 64 KiB.
///
/// # Errors
/// Never with these.
pub(crate) fn limits() -> Result<Limits, bytering::LimitsError> {
    Limits::new(PAGE_BYTES, CAP_BYTES / PAGE_BYTES)
}

/// What each holds at most; TLSnappy's knows no bound.
pub(crate) const CAP_BYTES: usize = 1 << 20;
/// The size of bytering's pages.
pub(crate) const PAGE_BYTES: usize = 64 << 10;
