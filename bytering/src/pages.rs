//! The memory of a ring on the heap: [`Pages`], each allocated when it is first needed and freed
//! when the ring is idle.

use std::sync::atomic::Ordering::Relaxed;

use crate::{
    header::Header,
    limits::{Limits, PAGES_MAX},
    primitive::{self, AtomicPtr, AtomicU32, Byte},
};

/// The memory of a ring's pages. A page belongs to the end that claimed it in the header. Until
/// then it is neither freed nor filled.
pub(crate) struct Pages {
    limits: Limits,
    /// Pages that have memory, a bit each. A bit changes only while its page is claimed.
    held: AtomicU32,
    memory: [AtomicPtr<Byte>; PAGES_MAX],
}

impl Pages {
    /// The first page alone.
    pub(crate) fn new(limits: Limits) -> Self {
        let memory = std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()));
        let pages = Self { limits, held: AtomicU32::new(0), memory };
        pages.allocate(0);
        pages
    }

    /// The start of a page's memory.
    ///
    /// The pointer itself needs no order: the consumer follows a link to it, or made the page's
    /// number itself.
    pub(crate) fn memory(&self, page: usize) -> *mut Byte {
        self.memory[page % PAGES_MAX].load(Relaxed)
    }

    /// Pages that have memory, a bit each.
    pub(crate) fn held(&self) -> u32 {
        self.held.load(Relaxed)
    }

    /// Gives a page memory.
    pub(crate) fn allocate(&self, page: usize) {
        let memory = primitive::allocate(self.limits.page_bytes());
        self.memory[page % PAGES_MAX].store(memory, Relaxed);
        self.held.fetch_or(1 << page, Relaxed);
    }

    /// Frees every unused page, for the consumer.
    pub(crate) fn shrink(&self, header: &Header) {
        let spare = self.held() & header.unused();
        if spare == 0 {
            return;
        }
        // Claimed first, so that the producer cannot take a page that is being freed.
        let claimed = header.claim_all(spare);
        self.free(claimed);
        header.leave(claimed);
    }

    /// Frees the memory of `pages`, a bit each, which the caller has claimed or alone refers to.
    fn free(&self, pages: u32) {
        for page in (0..PAGES_MAX).filter(|page| pages >> page & 1 == 1) {
            // SAFETY: the page is held, so `allocate` made it, of as many bytes. The caller alone
            // uses it: the consumer has left it, and the producer cannot claim it.
            unsafe { primitive::free(self.memory(page), self.limits.page_bytes()) };
        }
        self.held.fetch_and(!pages, Relaxed);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.free(self.held());
    }
}
