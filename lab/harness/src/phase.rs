//! Which side of a handshake runs: markers that instruments read from a memory trace, a profile or,
//! loaded into the process, from the thread's own byte.

use std::{
    env, ptr,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

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
    /// Making and dropping the server's end.
    ServerSetup = 3,
    /// Making and dropping the client's end.
    ClientSetup = 4,
}

/// One page to itself; a store to byte `64 * phase` says which phase begins on that thread.
#[repr(C, align(4096))]
struct Marks([AtomicU8; MARKS_BYTES]);

static MARKS: Marks = Marks([const { AtomicU8::new(0) }; MARKS_BYTES]);

thread_local! {
    static CURRENT: AtomicU8 = const { AtomicU8::new(Phase::Outside as u8) };
}

/// Says that the calling thread now does `phase`'s work. Two plain stores; costs about 1 ns.
#[inline]
pub fn enter(phase: Phase) {
    MARKS.0[MARK_STRIDE_BYTES * phase as usize].store(1, Relaxed);
    CURRENT.with(|current| current.store(phase as u8, Relaxed));
}

/// Tells an instrument that is loaded into this process where the calling thread's phase stands.
///
/// It listens to the C library's `getenv` (`native/locks.c`); without it, this looks for a variable
/// that does not exist. A thread that enters phases calls it once, at its start.
pub fn announce() {
    CURRENT.with(|current| {
        let address = ptr::from_ref(current).addr();
        let _ = env::var_os(format!("{ANNOUNCEMENT}={address:x}"));
    });
}

/// Does the server's `work` in a function of its own, by whose name a profiler knows the side.
#[inline(never)]
pub fn on_server<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Does the client's work, as [`on_server`] does the server's.
#[inline(never)]
pub fn on_client<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Everything that is the server's.
pub const SERVER_SIDE: [Phase; 2] = [Phase::Server, Phase::ServerSetup];

/// Everything that is the client's.
pub const CLIENT_SIDE: [Phase; 2] = [Phase::Client, Phase::ClientSetup];

/// Where the marks lie in this process.
#[must_use]
pub fn address() -> usize {
    ptr::from_ref(&MARKS).addr()
}

/// The marks' name in the symbol table, by which a memory trace's reader finds them.
pub const SYMBOL: &str = "sealane_lab_harness::phase::MARKS";

/// Bytes from one phase's mark to the next.
pub const MARK_STRIDE_BYTES: usize = 64;

/// What [`on_server`] and [`on_client`] are called in a profile, `*` for anything.
pub const FUNCTIONS: [&str; 2] = ["*phase*on_server*", "*phase*on_client*"];

/// All marks together, in bytes: a page that holds nothing else.
pub const MARKS_BYTES: usize = 4096;

/// See [`announce`].
const ANNOUNCEMENT: &str = "SEALANE_LAB_PHASE";
