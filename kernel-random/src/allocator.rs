//! An allocator that wipes memory before it frees it: [`WipingAllocator`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{Ordering, compiler_fence};

/// A global allocator for a program that handles private keys of others. It wipes freed memory, so
/// no copy by a library stays there. Growing a block copies it, and wipes the old one.
#[derive(Clone, Copy, Debug, Default)]
pub struct WipingAllocator<A = System>(pub A);

impl WipingAllocator {
    /// One above the system's allocator.
    pub const SYSTEM: Self = Self(System);
}

// SAFETY: each block comes from the allocator below, and goes back to it with the same layout. The
// provided `realloc` is made of `alloc` and `dealloc`.
#[allow(unsafe_code, reason = "an allocator cannot be written otherwise")]
unsafe impl<A: GlobalAlloc> GlobalAlloc for WipingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller frees a block with this layout, and nothing else uses it any more.
        unsafe { wipe(block, layout) };
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.dealloc(block, layout) }
    }
}

/// Overwrites a block with zeros, also where the compiler sees that they are never read.
///
/// # Safety
/// The block has this layout, and nothing else uses it.
#[allow(unsafe_code, reason = "an allocator cannot be written otherwise")]
unsafe fn wipe(block: *mut u8, layout: Layout) {
    // Large blocks are aligned to words, and small ones are few bytes.
    let words =
        if layout.align() >= align_of::<u64>() { layout.size() / size_of::<u64>() } else { 0 };
    for word in 0..words {
        // SAFETY: the word is within the block, and aligned as the block is.
        unsafe { block.cast::<u64>().add(word).write_volatile(0) };
    }
    for byte in words * size_of::<u64>()..layout.size() {
        // SAFETY: the byte is within the block.
        unsafe { block.add(byte).write_volatile(0) };
    }
    compiler_fence(Ordering::SeqCst);
}

#[cfg(test)]
#[allow(unsafe_code, reason = "an allocator cannot be tried otherwise")]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Notes the bytes of each block that it frees.
    #[derive(Default)]
    struct Noting(RefCell<Vec<Vec<u8>>>);

    // SAFETY: it passes everything on to the system's allocator.
    unsafe impl GlobalAlloc for Noting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promise is passed on.
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the block has this layout, and was written whole.
            let bytes = unsafe { std::slice::from_raw_parts(block, layout.size()) };
            self.0.borrow_mut().push(bytes.to_vec());
            // SAFETY: the caller's promise is passed on.
            unsafe { System.dealloc(block, layout) }
        }
    }

    #[test]
    fn freed_and_moved_blocks_are_wiped() {
        let allocator = WipingAllocator(Noting::default());
        for (size, align) in [(1, 1), (7, 8), (64, 1), (1_003, 16)] {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the block is used within its layout, and freed once.
            unsafe {
                let block = allocator.alloc(layout);
                block.write_bytes(0xaa, size);
                let block = allocator.realloc(block, layout, 2 * size);
                assert_eq!(*block.add(size - 1), 0xaa, "moved whole");
                block.write_bytes(0xaa, 2 * size);
                let layout = Layout::from_size_align(2 * size, align).unwrap();
                allocator.dealloc(block, layout);
            }
            let freed = allocator.0.0.take();
            assert_eq!(freed.iter().map(Vec::len).collect::<Vec<_>>(), [size, 2 * size]);
            assert!(freed.concat().iter().all(|byte| *byte == 0), "{freed:?}");
        }
    }
}
