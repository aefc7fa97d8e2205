//! Every memory ordering that another thread's bytes depend on, in pairs.
//!
//! What one thread does before it publishes, the other sees after it observes; and of two threads
//! that each fence between a store and a load, one at least sees the other's store. A build with
//! `--cfg bytering_mutable` orders nothing by the pair, or the fence, that the variable
//! `BYTERING_MUTATE` names, or leaves out the second look of who sleeps (`look`): `prove` shows
//! that each is needed.

use std::sync::atomic::Ordering;

#[cfg(any(test, not(loom)))]
use crate::primitive::fence;

/// Bytes stand in their page before their position is told; the consumer reads them after.
pub(crate) const WRITTEN: Pair = Pair("written");

/// The consumer is done with bytes before it tells so; the producer overwrites them after.
pub(crate) const READ: Pair = Pair("read");

/// A link's position stands before the link does; the consumer looks at it after.
pub(crate) const LINK: Pair = Pair("link");

/// An end is done with a page before it leaves it; the next one uses it after.
pub(crate) const USED: Pair = Pair("used");

/// An end's last position stands before it is gone; the other looks at it after.
pub(crate) const GONE: Pair = Pair("gone");

/// An end has raised its flag before it looks at the ring once more, and sleeps.
#[cfg(any(test, not(loom)))]
pub(crate) const RAISED: Fence = Fence("raised");

/// An end has told its position before it looks whether the other one sleeps.
#[cfg(any(test, not(loom)))]
pub(crate) const TOLD: Fence = Fence("told");

/// A store that publishes and the load that observes it, by name.
pub(crate) struct Pair(&'static str);

impl Pair {
    /// The ordering of the store.
    pub(crate) fn publish(&self) -> Ordering {
        if is_left_out(self.0) { Ordering::Relaxed } else { Ordering::Release }
    }

    /// The ordering of the load.
    pub(crate) fn observe(&self) -> Ordering {
        if is_left_out(self.0) { Ordering::Relaxed } else { Ordering::Acquire }
    }
}

/// Between a store and a load, by name.
#[cfg(any(test, not(loom)))]
pub(crate) struct Fence(&'static str);

#[cfg(any(test, not(loom)))]
impl Fence {
    /// Nothing before it is seen later than what is after it; a weaker one would let it.
    pub(crate) fn stand(&self) {
        fence(if is_left_out(self.0) { Ordering::AcqRel } else { Ordering::SeqCst });
    }
}

/// Whether `name` stands in `BYTERING_MUTATE`: known to each thread by itself, so that looking it
/// up orders nothing.
#[cfg(bytering_mutable)]
pub(crate) fn is_left_out(name: &str) -> bool {
    thread_local! {
        static MUTATED: String = std::env::var("BYTERING_MUTATE").unwrap_or_default();
    }
    MUTATED.with(|mutated| mutated == name)
}

/// Nothing is, but in a build for mutations.
#[cfg(not(bytering_mutable))]
pub(crate) const fn is_left_out(_name: &str) -> bool {
    false
}
