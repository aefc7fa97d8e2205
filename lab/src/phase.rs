//! Which side of a handshake runs: markers that instruments read from a memory trace or a profile.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Whose work a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Phase {
    /// The harness's own, or warm-up: not counted.
    Outside = 0,
    /// The server's end.
    Server = 1,
    /// The client's end.
    Client = 2,
}

/// One page to itself; a store to byte `64 * phase` says which phase begins on that thread.
#[repr(C, align(4096))]
struct Marks([AtomicU8; 4096]);

static MARKS: Marks = Marks([const { AtomicU8::new(0) }; 4096]);

/// Says that the calling thread now does `phase`'s work. One plain store; costs about 1 ns.
#[inline]
pub fn enter(phase: Phase) {
    MARKS.0[MARK_STRIDE_BYTES * phase as usize].store(1, Relaxed);
}

/// Where the marks lie in this process.
#[must_use]
pub fn address() -> usize {
    std::ptr::from_ref(&MARKS).addr()
}

/// Bytes from one phase's mark to the next.
pub const MARK_STRIDE_BYTES: usize = 64;
