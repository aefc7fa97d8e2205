//! What a lane's thread has of the allocator's memory, grown before the lane serves.
//!
//! All threads share the map of the process's memory, and its lock. glibc gives a thread an arena
//! of its own, but asks the kernel for each next page of it by mprotect(2), a call for two
//! connections, and gives the end back as soon as 128 KiB of it are free.

use std::hint::black_box;

/// Bytes that an arena is grown to at most. glibc learns from blocks of 32 MiB at most, with what
/// it puts around them.
pub const ARENA_BYTES_MAX: usize = (32 << 20) - 4 * HEADER_BYTES;

/// Grows this thread's arena to `bytes`, at most [`ARENA_BYTES_MAX`], of which none is in use or
/// touched. From then on an arena gives nothing back of which less than twice
/// [`ARENA_BYTES_MAX`] is free, that of any other thread neither; what it needs beyond `bytes` it
/// asks for by pages.
///
/// With 0, the thread gets its arena, and the settings of the allocator stay as they are. Where the
/// allocator is another, or has no room, nothing changes.
pub(crate) fn grow(bytes: usize) {
    if bytes == 0 {
        allocate_and_free(1);
        return;
    }
    // A block of this size has a map of its own. glibc takes its being freed for a sign that such
    // blocks come and go, and then keeps them, and twice as much at the end of each arena:
    // mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD.
    allocate_and_free(ARENA_BYTES_MAX + HEADER_BYTES);
    // So this one lies in the arena.
    allocate_and_free(bytes.min(ARENA_BYTES_MAX));
}

fn allocate_and_free(bytes: usize) {
    let mut block: Vec<u8> = Vec::new();
    // Want of memory shows where it is needed.
    let _ = block.try_reserve_exact(bytes);
    black_box(&mut block);
}

/// A page: more than the allocator puts around a block.
const HEADER_BYTES: usize = 4096;
