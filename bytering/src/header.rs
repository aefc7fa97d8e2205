//! The state that the two ends share: the [`Header`] in front of the pages, laid out as `region`
//! describes it for other languages.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    limits::PAGES_MAX,
    ordering::{GONE, LINK, READ, USED, WRITTEN},
    primitive::AtomicU32,
};

/// The shared words. Each field has its own cache lines.
#[repr(C)]
pub(crate) struct Header {
    written: CachePadded<Cursor>,
    read: CachePadded<Cursor>,
    used: CachePadded<AtomicU32>,
    links: CachePadded<[Link; PAGES_MAX]>,
}

impl Header {
    /// The header of an empty ring.
    pub(crate) fn new() -> Self {
        let end = || CachePadded(Cursor { position: AtomicU32::new(0), gone: AtomicU32::new(0) });
        let link = |_| Link { at: AtomicU32::new(0), next: AtomicU32::new(0) };
        let used = CachePadded(AtomicU32::new(0));
        Self { written: end(), read: end(), used, links: CachePadded(std::array::from_fn(link)) }
    }

    /// The producer: everything before `position` is in its page.
    pub(crate) fn publish_written(&self, position: u32) {
        self.written.0.position.store(position, WRITTEN.publish());
    }

    /// The consumer: bytes before the returned position may be read.
    pub(crate) fn written(&self) -> u32 {
        self.written.0.position.load(WRITTEN.observe())
    }

    /// The consumer: everything before `position` may be overwritten.
    pub(crate) fn publish_read(&self, position: u32) {
        self.read.0.position.store(position, READ.publish());
    }

    /// The producer: bytes before the returned position may be overwritten.
    pub(crate) fn read(&self) -> u32 {
        self.read.0.position.load(READ.observe())
    }

    /// The producer: from position `at` on, the stream is in page `next`, which has no link yet.
    pub(crate) fn link(&self, page: u32, at: u32, next: u32) {
        let [from, to] = [page, next].map(|page| &self.links.0[page as usize % PAGES_MAX]);
        // A link of the page's earlier use must not lead the consumer on.
        to.next.store(0, Relaxed);
        from.at.store(at, Relaxed);
        from.next.store(next + 1, LINK.publish());
    }

    /// The consumer: where the stream leaves `page`, and for which one.
    pub(crate) fn linked(&self, page: u32) -> Option<(u32, u32)> {
        let link = &self.links.0[page as usize % PAGES_MAX];
        let next = link.next.load(LINK.observe()).checked_sub(1)?;
        Some((link.at.load(Relaxed), next))
    }

    /// Claims an unused page for the caller: the lowest of `preferred`, or else of `allowed`, a bit
    /// each.
    pub(crate) fn claim(&self, preferred: u32, allowed: u32) -> Option<u32> {
        // The other end may be quicker, but not for ever: it has no more pages than there are.
        for _ in 0..PAGES_MAX {
            let unused = allowed & self.unused();
            let choice = if unused & preferred == 0 { unused } else { unused & preferred };
            if choice == 0 {
                break;
            }
            let lowest = choice & choice.wrapping_neg();
            if self.claim_all(lowest) == lowest {
                return Some(lowest.trailing_zeros());
            }
        }
        None
    }

    /// Claims the unused ones of `pages`, a bit each, for the caller, and returns them.
    pub(crate) fn claim_all(&self, pages: u32) -> u32 {
        pages & !self.used.0.fetch_or(pages, USED.observe())
    }

    /// The caller is done with `pages`, a bit each.
    pub(crate) fn leave(&self, pages: u32) {
        self.used.0.fetch_and(!pages, USED.publish());
    }

    /// Unused pages, a bit each: a hint, until they are claimed.
    pub(crate) fn unused(&self) -> u32 {
        !self.used.0.load(Relaxed)
    }

    /// The producer, last of all.
    pub(crate) fn leave_producer(&self) {
        self.written.0.gone.store(1, GONE.publish());
    }

    /// The consumer: nothing more will be written.
    pub(crate) fn producer_is_gone(&self) -> bool {
        self.written.0.gone.load(GONE.observe()) != 0
    }

    /// The consumer, last of all.
    pub(crate) fn leave_consumer(&self) {
        self.read.0.gone.store(1, GONE.publish());
    }

    /// The producer: nothing more will be read.
    pub(crate) fn consumer_is_gone(&self) -> bool {
        self.read.0.gone.load(GONE.observe()) != 0
    }
}

/// Two cache lines, because processors fetch them in pairs.
#[repr(C, align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

#[repr(C)]
struct Cursor {
    position: AtomicU32,
    /// Not 0: it will not change any more.
    gone: AtomicU32,
}

/// The place where the stream leaves a page.
#[repr(C)]
struct Link {
    at: AtomicU32,
    /// Plus one; 0: it has not left.
    next: AtomicU32,
}

/// Bytes of a region's header: pages begin behind it, at a page of the machine.
#[cfg(not(loom))]
pub(crate) const HEADER_BYTES: usize = 4096;

#[cfg(not(loom))]
const _: () = {
    use std::mem::{align_of, offset_of, size_of};
    // Another language finds these at the places in `region`'s documentation.
    assert!(size_of::<Header>() <= HEADER_BYTES && align_of::<Header>() == 128);
    assert!(offset_of!(Header, written) == 0 && offset_of!(Header, read) == 128);
    assert!(offset_of!(Header, used) == 256 && offset_of!(Header, links) == 384);
    assert!(offset_of!(Cursor, gone) == 4 && offset_of!(Link, next) == 4 && size_of::<Link>() == 8);
};
