//! The memory under a region's ends: [`Memory`], owned here or elsewhere, and copies in and out by
//! atomics.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

use super::RegionError;
use crate::{
    header::{HEADER_BYTES, Header},
    limits::Limits,
    sleep::Flags,
};

/// A region that is large enough.
pub(super) struct Memory {
    start: NonNull<u8>,
    pub(super) limits: Limits,
    /// The owner of a region that is ours. Any other region is kept by the caller that attached to
    /// it.
    _owner: Option<Arc<Owner>>,
}

// SAFETY: the region is valid from any thread, and used by atomics alone.
unsafe impl Send for Memory {}

impl Memory {
    /// One that `owner` made of as many [`bytes`](super::bytes) as the limits ask for.
    pub(super) fn of(owner: &Arc<Owner>, limits: Limits) -> Self {
        Self { start: owner.start, limits, _owner: Some(Arc::clone(owner)) }
    }

    /// The caller of `attach` answers for the region itself.
    pub(super) fn checked(
        start: NonNull<u8>,
        bytes: usize,
        limits: Limits,
    ) -> Result<Self, RegionError> {
        let needed = super::bytes(limits);
        if bytes < needed {
            return Err(RegionError::TooSmall { bytes, needed });
        }
        if !start.cast::<Header>().is_aligned() {
            return Err(RegionError::Misaligned);
        }
        Ok(Self { start, limits, _owner: None })
    }

    pub(super) fn header(&self) -> &Header {
        // SAFETY: it fits and is aligned; it is made of atomics, to which any bits are a value and
        // which may change under a shared reference.
        unsafe { self.start.cast().as_ref() }
    }

    pub(super) fn flags(&self) -> &Flags {
        // SAFETY: as of the header, behind which they lie, in front of the pages.
        unsafe { self.start.byte_add(FLAGS_AT).cast().as_ref() }
    }

    /// The start of a page. Both cursors keep `page` below the limit.
    pub(super) fn page(&self, page: usize) -> *mut u8 {
        let at = HEADER_BYTES + page * self.limits.page_bytes();
        // SAFETY: `checked` and `Owner` hold that all pages fit.
        unsafe { self.start.as_ptr().add(at) }
    }
}

/// A region of our own, all zeros at first.
pub(super) struct Owner {
    pub(super) start: NonNull<u8>,
    pub(super) layout: Layout,
}

// SAFETY: it does nothing but keep the region.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

impl Owner {
    pub(super) fn new(bytes: usize) -> Self {
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
pub(super) unsafe fn store(from: &[u8], to: *mut u8) {
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
pub(super) unsafe fn load(from: *mut u8, to: &mut [u8]) {
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
const FLAGS_AT: usize = 1024;

const _: () = {
    // Another language finds them there. The bytes between the header and them are not used.
    assert!(size_of::<Header>() <= FLAGS_AT && FLAGS_AT.is_multiple_of(align_of::<Flags>()));
    assert!(FLAGS_AT + size_of::<Flags>() <= HEADER_BYTES);
};
