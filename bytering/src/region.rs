//! A ring in shared memory that another program or language may write to at any time.
//!
//! The layout is a header of 4,096 bytes, then the pages, one after the other:
//!
//! ```text
//! byte    0  written: position, gone        the producer writes, the consumer reads
//! byte  128  read: position, gone           the consumer writes, the producer reads
//! byte  256  used: a bit per page           both change it, when a page comes or goes
//! byte  384  links: (at, next) per page     the producer writes, when the stream leaves a page
//! byte 1024  consumer_sleeps: a flag        both change it, when the consumer sleeps
//! byte 1152  producer_waits: a flag         both change it, when the producer waits for room
//! ```
//! All are 32-bit words in the machine's byte order, to be read and written atomically. Zeros are
//! an empty ring, in page 0. A position counts the bytes of the stream and begins again at 2^32. A
//! byte's place in its page is its position modulo the size of a page. `gone` is not 0 when that
//! end is gone. `next` is the next page's number plus one, or 0 if the stream has not left this
//! page.
//!
//! A ring grows by using more of the region's pages, the lowest first, so that unneeded pages are
//! never touched. While the consumer keeps up it stays in one.
//!
//! # Sleep
//!
//! A flag is 0, or anything else when its end sleeps and wants to be woken. The two owners choose
//! the means. It must keep a wake-up for a sleeper that is not quite asleep. An end here asks
//! [`Consumer::may_sleep`] or [`Producer::may_wait`] before it sleeps, and [`Producer::wakes`] or
//! [`Consumer::wakes`] after a batch.
//!
//! The end of another language does the same by operations that are sequentially consistent, as all
//! of JavaScript's `Atomics` are. The order is:
//!
//! - A consumer that goes to sleep: store 1 to `consumer_sleeps`, then load `written`. If that is
//!   not the position that it has read up to, store 0 to the flag and read on. Else sleep. When it
//!   runs again, for any reason: store 0 to the flag, then load `written`.
//! - A producer, after a batch: store `written`, then load `consumer_sleeps`. If that is not 0,
//!   exchange it with 0. If that gave anything but 0, wake the consumer.
//! - A producer that needs room: store 1 to `producer_waits`, then load `read`. If there is room
//!   now, store 0 to the flag and write. Else sleep. When it runs again: load `read`.
//! - A consumer, after a batch: store `read`, then load `producer_waits`. If that is not 0,
//!   exchange it with 0. If that gave anything but 0, wake the producer.
//!
//! The bytes themselves may be plain reads and writes. Those of a batch come before the store of
//! `written` or of `read`, and after the load of the other end's. No step may be left out or change
//! its place: the load behind the flag finds bytes that came before the flag was seen. A wake-up
//! may be one too many, so a woken end looks at the ring and may sleep again. `gone` has no flag:
//! an end that goes wakes the other one in any case.
//!
//! A ring of one page does not use `used` and `links`, and another language needs neither.
//!
//! # Trust
//!
//! Values in such memory are checked before use, copied in and out by atomics, and never lent as a
//! slice. A peer that scribbles over it can change bytes and stop the ring, no more. It can keep an
//! end awake or asleep, so an end that must stop at some time needs another signal for that.

mod memory;

use std::{error, fmt, ops::Range, ptr::NonNull, sync::Arc};

use crate::{
    cursors::{Broken, Reader, Writer},
    ends::PageCounts,
    header::{HEADER_BYTES, Header},
    limits::Limits,
};
use memory::{Memory, Owner, load, store};

/// An empty ring in a new region, as its two ends.
#[must_use]
pub fn ring(limits: Limits) -> (Producer, Consumer) {
    let owner = Arc::new(Owner::new(bytes(limits)));
    let memory = || Memory::of(&owner, limits);
    (Producer::new(memory()), Consumer::new(memory()))
}

/// Bytes of the region that a ring needs.
#[must_use]
pub const fn bytes(limits: Limits) -> usize {
    HEADER_BYTES + limits.bytes_max()
}

/// The end that writes. It may move to another thread, but two threads cannot share it.
pub struct Producer {
    memory: Memory,
    writer: Writer,
    /// Pages that were ever used, a bit each.
    touched: u32,
    reused: u64,
}

impl Producer {
    /// The producer of the ring that begins at `start`, in a region of `region_bytes`.
    ///
    /// # Errors
    /// The region cannot hold such a ring.
    ///
    /// # Safety
    /// The region stays where it is and is valid for reads and writes for as long as this end is.
    /// It was all zeros when the first end took it, has no other producer, and its consumer has
    /// equal limits. Rust code that uses the region in addition to the ends does so by atomics.
    pub unsafe fn attach(
        start: NonNull<u8>,
        region_bytes: usize,
        limits: Limits,
    ) -> Result<Self, RegionError> {
        Memory::checked(start, region_bytes, limits).map(Self::new)
    }

    /// Copies the front of `bytes` into the ring and publishes all of it at once. Returns how many
    /// bytes that is. Fewer than all: the ring is at its cap, wait until the consumer has taken
    /// something.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let done = self.place(bytes);
        if done > 0 {
            self.writer.publish(self.memory.header());
        }
        done
    }

    /// Copies `parts`, one behind the other, into the ring and publishes all at once: the consumer
    /// never finds a part of a message. False: there is no room for all, and nothing was done.
    pub fn write_whole(&mut self, parts: &[&[u8]]) -> bool {
        let needed = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        if self.writer.known_room_in_page() < needed && self.room() < needed {
            return false;
        }
        let mut placed = 0;
        for part in parts {
            placed += self.place(part);
        }
        if placed == needed {
            self.writer.publish(self.memory.header());
        }
        // Only a peer that marked pages as used meanwhile makes it less; its ring is of no use.
        placed == needed
    }

    /// Bytes that [`write`](Self::write) takes now in all, at least. It reads a cache line that the
    /// consumer writes: ask once per batch.
    pub fn room(&mut self) -> usize {
        self.writer.room_in_all(self.memory.header())
    }

    /// Whether the consumer sleeps, and the caller must wake it now. To be asked after writing,
    /// once per batch.
    #[must_use]
    pub fn wakes(&self) -> bool {
        self.memory.flags().wakes_consumer()
    }

    /// Whether the caller may wait: there is no room for `needed` bytes, and the consumer's
    /// [`wakes`](Consumer::wakes) will return true when there is more. False: there is room now. It
    /// never waits for more than the size of an empty ring.
    #[must_use]
    pub fn may_wait(&mut self, needed: usize) -> bool {
        let needed = needed.min(self.memory.limits.bytes_max());
        self.memory.flags().producer_may_wait(&mut self.writer, self.memory.header(), needed)
    }

    /// Whether the consumer is gone. Bytes that are written now are never read.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.memory.header().consumer_is_gone()
    }

    /// Counts of the region's pages so far: `live` pages are in use, `allocated` ones were ever
    /// touched, and none is freed.
    #[must_use]
    pub fn pages(&self) -> PageCounts {
        let used = !self.memory.header().unused() & self.touched;
        let [live, allocated] = [used, self.touched].map(|pages| u64::from(pages.count_ones()));
        PageCounts { live, allocated, reused: self.reused, freed: 0 }
    }

    fn new(memory: Memory) -> Self {
        let writer = Writer::new(memory.limits, memory.header());
        Self { memory, writer, touched: 1, reused: 0 }
    }

    /// Copies the front of `bytes` into the ring without publishing it. Returns how many bytes that
    /// is.
    fn place(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let room = self.room_in_page();
            let part = &bytes[done..bytes.len().min(done + room.len())];
            if part.is_empty() {
                break;
            }
            // SAFETY: a room lies within a page, for any content of the region.
            unsafe { store(part, self.memory.page(self.writer.page()).add(room.start)) };
            done += self.writer.advance(part.len());
        }
        done
    }

    /// The place for the next bytes in the writer's page.
    fn room_in_page(&mut self) -> Range<usize> {
        let header = self.memory.header();
        let room = self.writer.room(header);
        if !room.is_empty() {
            return room;
        }
        let Some(next) = header.claim(self.touched, self.writer.other_pages()) else {
            return room;
        };
        self.reused += u64::from(self.touched >> next & 1);
        self.touched |= 1 << next;
        self.writer.turn(header, next);
        self.writer.room(header)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.memory.header().leave_producer();
    }
}

/// The end that reads. It may move to another thread, but two threads cannot share it.
pub struct Consumer {
    memory: Memory,
    reader: Reader,
}

impl Consumer {
    /// The consumer of the ring that begins at `start`, in a region of `region_bytes`.
    ///
    /// # Errors
    /// The region cannot hold such a ring.
    ///
    /// # Safety
    /// As of [`Producer::attach`], the other way round.
    pub unsafe fn attach(
        start: NonNull<u8>,
        region_bytes: usize,
        limits: Limits,
    ) -> Result<Self, RegionError> {
        Memory::checked(start, region_bytes, limits).map(Self::new)
    }

    /// Copies the next bytes into the front of `into`. Returns how many. Fewer than fit: there are
    /// no more now.
    ///
    /// # Errors
    /// The producer, or another writer to the region, broke the layout.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, RegionError> {
        let header = self.memory.header();
        let mut done = 0;
        while done < into.len() {
            let unread = self.reader.unread(header).map_err(|Broken| RegionError::Broken)?;
            let end = into.len().min(done + unread.len());
            let part = &mut into[done..end];
            if part.is_empty() {
                break;
            }
            // SAFETY: unread bytes lie within a page, for any content of the region.
            unsafe { load(self.memory.page(self.reader.page()).add(unread.start), part) };
            self.reader.consume(header, end - done);
            done = end;
        }
        Ok(done)
    }

    /// Bytes that are there to be read now. [`read`](Self::read) gives fewer only if the region is
    /// broken.
    ///
    /// # Errors
    /// The producer, or another writer to the region, broke the layout.
    pub fn unread(&self) -> Result<usize, RegionError> {
        self.reader.unread_in_all(self.memory.header()).map_err(|Broken| RegionError::Broken)
    }

    /// Whether the caller may sleep: nothing is unread, and the producer's
    /// [`wakes`](Producer::wakes) will return true when there is something. False: there is
    /// something, or the region is broken, which [`unread`](Self::unread) reports.
    #[must_use]
    pub fn may_sleep(&self) -> bool {
        self.memory.flags().consumer_may_sleep(&self.reader, self.memory.header())
    }

    /// Notes that the sleep is over, for any reason, and needs no wake-up now. Call it before
    /// anything is read.
    pub fn mark_awake(&self) {
        self.memory.flags().consumer_is_awake();
    }

    /// Whether the producer waits for room, and the caller must wake it now. To be asked after
    /// reading, once per batch.
    #[must_use]
    pub fn wakes(&self) -> bool {
        self.memory.flags().wakes_producer()
    }

    /// Whether the producer is gone and everything was read.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.reader.is_at_end(self.memory.header())
    }

    fn new(memory: Memory) -> Self {
        Self { reader: Reader::new(memory.limits), memory }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.memory.header().leave_consumer();
    }
}

/// An error in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// The content is not a ring's: a peer scribbled over it. Make a new ring.
    Broken,
    /// The memory does not begin at a multiple of 128 bytes.
    Misaligned,
    /// The memory has fewer bytes than the limits ask for.
    TooSmall {
        /// Bytes of the memory.
        bytes: usize,
        /// Those of [`bytes`].
        needed: usize,
    },
}

impl fmt::Display for RegionError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken => out.write_str("the ring's memory was written over; make a new ring"),
            Self::Misaligned => {
                write!(out, "the region must begin at a multiple of {} bytes", align_of::<Header>())
            }
            Self::TooSmall { bytes, needed } => {
                write!(out, "the region has {bytes} bytes; these limits need {needed}")
            }
        }
    }
}

impl error::Error for RegionError {}

#[cfg(test)]
mod tests;
