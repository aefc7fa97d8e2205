//! Sleep of one end of a region, and its wake-up by the other: [`Flags`], one per end.
//!
//! ```text
//!   the end that sleeps                 the other end
//!   1  raise its flag                   1  write bytes, or read them
//!   2  fence                            2  fence
//!   3  look at the ring once more       3  look at the flag; if it is up, take it down and wake
//! ```
//! One of the two sees the other, on every processor. If both looks were older than the other's
//! step before its fence, each fence would come before the other. A wake-up may be one too many,
//! when the sleeper saw the ring itself. None is missing.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    cursors::{Reader, Writer},
    header::{CachePadded, Header},
    ordering::{RAISED, TOLD, is_left_out},
    primitive::AtomicU32,
};

/// The flags of sleeping ends, laid out as `region` describes them for other languages.
#[repr(C)]
pub(crate) struct Flags {
    consumer_sleeps: CachePadded<Flag>,
    producer_waits: CachePadded<Flag>,
}

impl Flags {
    /// Both flags down.
    #[cfg(all(test, loom))]
    pub(crate) fn new() -> Self {
        let flag = || CachePadded(Flag(AtomicU32::new(0)));
        Self { consumer_sleeps: flag(), producer_waits: flag() }
    }

    /// The consumer: nothing is unread, and the producer will wake it.
    pub(crate) fn consumer_may_sleep(&self, reader: &Reader, header: &Header) -> bool {
        self.consumer_sleeps.0.raise(|| reader.unread_in_all(header) == Ok(0))
    }

    /// The consumer needs no wake-up.
    pub(crate) fn consumer_is_awake(&self) {
        self.consumer_sleeps.0.lower();
    }

    /// Whether the consumer must be woken, for the producer behind a write.
    pub(crate) fn wakes_consumer(&self) -> bool {
        self.consumer_sleeps.0.take()
    }

    /// The producer: there is no room for `needed` bytes, and the consumer will wake it.
    pub(crate) fn producer_may_wait(
        &self,
        writer: &mut Writer,
        header: &Header,
        needed: usize,
    ) -> bool {
        self.producer_waits.0.raise(|| writer.room_in_all(header) < needed)
    }

    /// Whether the producer must be woken, for the consumer behind a read.
    pub(crate) fn wakes_producer(&self) -> bool {
        self.producer_waits.0.take()
    }
}

#[cfg(not(loom))]
const _: () = assert!(std::mem::offset_of!(Flags, producer_waits) == 128);

/// Not 0: the end that raised it sleeps, or is about to.
#[repr(transparent)]
struct Flag(AtomicU32);

impl Flag {
    /// Raised, unless the second look finds that there is no reason to sleep.
    ///
    /// A swap, as all changes of the flag are: a store would do, but then a model does not see that
    /// the other end's swap comes before it.
    fn raise(&self, mut may_sleep: impl FnMut() -> bool) -> bool {
        self.0.swap(1, Relaxed);
        RAISED.stand();
        if is_left_out("look") || may_sleep() {
            return true;
        }
        self.lower();
        false
    }

    fn lower(&self) {
        self.0.swap(0, Relaxed);
    }

    /// Whether it was up; it is down now.
    fn take(&self) -> bool {
        TOLD.stand();
        // Most often it is down: only a look then, so that the line stays with both processors.
        self.0.load(Relaxed) != 0 && self.0.swap(0, Relaxed) != 0
    }
}

#[cfg(all(test, loom))]
mod models;
