//! TLSnappy's ring as it was designed, `lring`: circular pages with their own offsets, and one
//! total that both ends write.
//!
//! The original is plain memory, which is undefined behaviour between threads and wrong on
//! processors that reorder stores. Here offsets, links and the total are atomics, and, since the
//! lab has no unsafe code, a page's bytes are atomic words, copied one by one: lengths are
//! multiples of eight. The original never frees a page and has no cap; here 64 MiB keep a mistake
//! off the machine.

use std::sync::{
    Arc, OnceLock,
    atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use bytering::PageCounts;

use crate::ring::ends::{Receiver, Sender};

/// Both ends of an empty ring.
pub(crate) fn pair() -> (Writer, Reader) {
    let pages: Box<[OnceLock<Page>]> = (0..PAGES_MAX).map(|_| OnceLock::new()).collect();
    let ring = Arc::new(Ring { pages, reading: AtomicUsize::new(0), total: AtomicUsize::new(0) });
    ring.page(0);
    (Writer { ring: Arc::clone(&ring), page: 0, allocated: 1 }, Reader { ring, page: 0 })
}

/// The end that writes.
pub(crate) struct Writer {
    ring: Arc<Ring>,
    page: usize,
    allocated: usize,
}

impl Sender for Writer {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && self.allocated < PAGES_MAX {
            let ring = Arc::clone(&self.ring);
            let page = ring.page(self.page);
            let at = page.written.load(Relaxed);
            let len = (bytes.len() - done).min(PAGE_BYTES - at);
            let (from, _) = bytes[done..done + len].as_chunks::<WORD_BYTES>();
            for (word, from) in page.words[at / WORD_BYTES..].iter().zip(from) {
                word.store(u64::from_ne_bytes(*from), Relaxed);
            }
            page.written.store(at + len, Release);
            if at + len == PAGE_BYTES {
                self.turn(page);
            }
            self.ring.total.fetch_add(len, Release);
            done += len;
        }
        done
    }

    fn pages(&self) -> PageCounts {
        let allocated = self.allocated as u64;
        PageCounts { live: allocated, allocated, ..PageCounts::default() }
    }
}

impl Writer {
    /// Goes to the next page of the circle if it was read to its end, or puts a new one before it.
    fn turn(&mut self, full: &Page) {
        let after = full.next.load(Relaxed);
        let next = self.ring.page(after);
        let is_left = self.ring.reading.load(Acquire) != after;
        if is_left && next.read.load(Acquire) == PAGE_BYTES {
            next.read.store(0, Relaxed);
            next.written.store(0, Relaxed);
            self.page = after;
        } else {
            let new = self.allocated;
            self.ring.page(new).next.store(after, Relaxed);
            full.next.store(new, Release);
            self.page = new;
            self.allocated += 1;
        }
    }
}

/// The end that reads.
pub(crate) struct Reader {
    ring: Arc<Ring>,
    page: usize,
}

impl Receiver for Reader {
    fn read(&mut self, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let left = self.ring.total.load(Acquire).min(into.len() - done);
            let page = self.ring.page(self.page);
            let at = page.read.load(Relaxed);
            let len = left.min(page.written.load(Acquire) - at);
            if len == 0 {
                break;
            }
            let (to, _) = into[done..done + len].as_chunks_mut::<WORD_BYTES>();
            for (to, word) in to.iter_mut().zip(&page.words[at / WORD_BYTES..]) {
                *to = word.load(Relaxed).to_ne_bytes();
            }
            page.read.store(at + len, Release);
            self.ring.total.fetch_sub(len, Release);
            if at + len == PAGE_BYTES {
                self.page = page.next.load(Acquire);
                self.ring.reading.store(self.page, Release);
            }
            done += len;
        }
        done
    }
}

/// What both ends share.
struct Ring {
    /// Made once, in the order of their numbers.
    pages: Box<[OnceLock<Page>]>,
    /// The page that the reader is in.
    reading: AtomicUsize,
    /// Bytes unread: both ends write it for every piece.
    total: AtomicUsize,
}

impl Ring {
    fn page(&self, number: usize) -> &Page {
        self.pages[number % PAGES_MAX].get_or_init(|| Page {
            next: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
            words: (0..PAGE_BYTES / WORD_BYTES).map(|_| AtomicU64::new(0)).collect(),
        })
    }
}

struct Page {
    next: AtomicUsize,
    read: AtomicUsize,
    written: AtomicUsize,
    words: Box<[AtomicU64]>,
}

/// The page's size, as in TLSnappy.
const PAGE_BYTES: usize = 10 << 10;
const WORD_BYTES: usize = size_of::<u64>();
/// 64 MiB of them.
const PAGES_MAX: usize = 6_554;
