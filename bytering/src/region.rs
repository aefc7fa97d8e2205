//! A ring in memory that somebody else may write to at any time: another language's buffer, or a
//! peer's.
//!
//! The layout is a header of 4,096 bytes, then the pages, one after the other:
//!
//! ```text
//! byte   0  written: position, gone        the producer writes, the consumer reads
//! byte 128  read: position, gone           the consumer writes, the producer reads
//! byte 256  used: a bit per page           both change it, when a page comes or goes
//! byte 384  links: (at, next) per page     the producer writes, when the stream leaves a page
//! ```
//! All are 32-bit words in the machine's byte order, to be read and written atomically. Zeros are
//! an empty ring, in page 0. A position counts the bytes of the stream and begins again at 2^32; a
//! byte's place in its page is its position modulo the size of a page. `gone` is not 0 when that
//! end is gone. `next` is the next page's number plus one; 0: the stream has not left this page.
//!
//! A ring grows by using more of the region's pages, the lowest first, so that what it never needed
//! is never touched; when the consumer keeps up it stays in one.
//!
//! What stands in such memory is checked before use, copied in and out by atomics, and never lent
//! as a slice. A peer that scribbles over it can change bytes and stop the ring, no more.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    error, fmt,
    ops::Range,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    cursors::{Broken, Reader, Writer},
    ends::PageCounts,
    header::{HEADER_BYTES, Header},
    limits::Limits,
};

/// An empty ring in a region of its own, as its two ends.
#[must_use]
pub fn ring(limits: Limits) -> (Producer, Consumer) {
    let owner = Arc::new(Owner::new(bytes(limits)));
    let memory = || Memory { start: owner.start, limits, _owner: Some(Arc::clone(&owner)) };
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
    /// equal limits. Rust code, if it uses the region beside the ends, does so by atomics.
    pub unsafe fn attach(
        start: NonNull<u8>,
        region_bytes: usize,
        limits: Limits,
    ) -> Result<Self, RegionError> {
        Memory::checked(start, region_bytes, limits).map(Self::new)
    }

    /// Copies the front of `bytes` into the ring and tells the consumer; how many. Fewer than all:
    /// the ring is at its cap, wait until the consumer has taken something.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            let room = self.room();
            let part = &bytes[done..bytes.len().min(done + room.len())];
            if part.is_empty() {
                break;
            }
            // SAFETY: a room lies within a page, whatever the region holds.
            unsafe { store(part, self.memory.page(self.writer.page()).add(room.start)) };
            self.writer.commit(self.memory.header(), part.len());
            done += part.len();
        }
        done
    }

    /// Whether the consumer is gone: what is written now, nobody reads.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.memory.header().consumer_is_gone()
    }

    /// What the ring has done with the region so far: `live` pages are in use, `allocated` ones
    /// were ever touched, and none is freed.
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

    /// Where the next bytes go in the writer's page.
    fn room(&mut self) -> Range<usize> {
        let header = self.memory.header();
        let room = self.writer.room(header);
        if !room.is_empty() {
            return room;
        }
        let Some(next) = header.claim(self.touched, self.memory.limits.page_bits()) else {
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

    /// Copies the next bytes into the front of `into`; how many. Fewer than fit: there are no more
    /// now.
    ///
    /// # Errors
    /// The producer, or whoever else writes to the region, broke the layout.
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
            // SAFETY: what is unread lies within a page, whatever the region holds.
            unsafe { load(self.memory.page(self.reader.page()).add(unread.start), part) };
            self.reader.consume(header, end - done);
            done = end;
        }
        Ok(done)
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

/// What is wrong with a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// What stands in it is no ring's: whoever shares it scribbled over it. Make a new ring.
    Broken,
    /// It does not begin at a multiple of 128 bytes.
    Misaligned,
    /// It has fewer bytes than the limits ask for.
    TooSmall {
        /// Its bytes.
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

/// A region that is large enough.
struct Memory {
    start: NonNull<u8>,
    limits: Limits,
    /// Of a region that is ours; else whoever attached to it keeps it.
    _owner: Option<Arc<Owner>>,
}

// SAFETY: the region is valid from any thread, and used by atomics alone.
unsafe impl Send for Memory {}

impl Memory {
    /// The caller of `attach` answers for the region itself.
    fn checked(start: NonNull<u8>, bytes: usize, limits: Limits) -> Result<Self, RegionError> {
        let needed = self::bytes(limits);
        if bytes < needed {
            return Err(RegionError::TooSmall { bytes, needed });
        }
        if !start.cast::<Header>().is_aligned() {
            return Err(RegionError::Misaligned);
        }
        Ok(Self { start, limits, _owner: None })
    }

    fn header(&self) -> &Header {
        // SAFETY: it fits and is aligned; it is made of atomics, to which any bits are a value and
        // which may change under a shared reference.
        unsafe { self.start.cast().as_ref() }
    }

    /// Where a page begins. Both cursors keep `page` below the limit.
    fn page(&self, page: usize) -> *mut u8 {
        let at = HEADER_BYTES + page * self.limits.page_bytes();
        // SAFETY: `checked` and `Owner` hold that all pages fit.
        unsafe { self.start.as_ptr().add(at) }
    }
}

/// A region of our own, all zeros at first.
struct Owner {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it does nothing but keep the region.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    fn new(bytes: usize) -> Self {
        // The header's size is the alignment, so that pages of the machine are not shared.
        let Ok(layout) = Layout::from_size_align(bytes, HEADER_BYTES) else {
            // No limits ask for so much; a smaller region must never stand in for it.
            handle_alloc_error(Layout::new::<Header>())
        };
        // SAFETY: the layout has bytes.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, layout }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: `new` allocated it with this layout, and the ends that used it are gone.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Copies `from` into a region, by words where they are aligned.
///
/// # Safety
/// `to` and as many bytes behind it lie in the region.
unsafe fn store(from: &[u8], to: *mut u8) {
    let (head, rest) = from.split_at(to.align_offset(WORD_BYTES).min(from.len()));
    let (words, tail) = rest.as_chunks::<WORD_BYTES>();
    // SAFETY: the caller answers for all of `to`; words begin where they are aligned.
    unsafe {
        store_bytes(head, to);
        let to = to.add(head.len());
        for (at, word) in words.iter().enumerate() {
            let to = AtomicU64::from_ptr(to.cast::<u64>().add(at));
            to.store(u64::from_ne_bytes(*word), Relaxed);
        }
        store_bytes(tail, to.add(words.len() * WORD_BYTES));
    }
}

/// # Safety
/// As of [`store`].
unsafe fn store_bytes(from: &[u8], to: *mut u8) {
    for (at, byte) in from.iter().enumerate() {
        // SAFETY: the caller answers for each of them.
        unsafe { AtomicU8::from_ptr(to.add(at)) }.store(*byte, Relaxed);
    }
}

/// Copies from a region to `to`, by words where they are aligned.
///
/// # Safety
/// `from` and as many bytes behind it lie in the region.
unsafe fn load(from: *mut u8, to: &mut [u8]) {
    let head = from.align_offset(WORD_BYTES).min(to.len());
    let (head, rest) = to.split_at_mut(head);
    let (words, tail) = rest.as_chunks_mut::<WORD_BYTES>();
    // SAFETY: the caller answers for all of `from`; words begin where they are aligned.
    unsafe {
        load_bytes(from, head);
        let from = from.add(head.len());
        for (at, word) in words.iter_mut().enumerate() {
            let from = AtomicU64::from_ptr(from.cast::<u64>().add(at));
            *word = from.load(Relaxed).to_ne_bytes();
        }
        load_bytes(from.add(words.len() * WORD_BYTES), tail);
    }
}

/// # Safety
/// As of [`load`].
unsafe fn load_bytes(from: *mut u8, to: &mut [u8]) {
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: the caller answers for each of them.
        *byte = unsafe { AtomicU8::from_ptr(from.add(at)) }.load(Relaxed);
    }
}

const WORD_BYTES: usize = size_of::<u64>();

#[cfg(test)]
mod tests;
