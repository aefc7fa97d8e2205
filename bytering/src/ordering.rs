//! Every memory ordering that another thread's bytes depend on, in pairs.
//!
//! A thread that observes a publication sees everything that the other thread did before it. Of two
//! threads that each fence between a store and a load, at least one sees the other's store.
//!
//! A build with `--cfg bytering_mutable` leaves out one of these, which the variable
//! `BYTERING_MUTATE` names: a pair, a fence, or the sleeper's second look (`look`). `prove` shows
//! that each is needed.

use std::sync::atomic::Ordering;

#[cfg(any(test, not(loom)))]
use crate::primitive::fence;

/// Bytes are in their page before their position is published. The consumer reads them after it.
pub(crate) const WRITTEN: Pair = Pair("written");

/// The consumer is done with bytes before it publishes that. The producer overwrites them after it.
pub(crate) const READ: Pair = Pair("read");

/// A link's position is there before the link is. The consumer looks at it after the link.
pub(crate) const LINK: Pair = Pair("link");

/// An end is done with a page before it leaves it; the next one uses it after.
pub(crate) const USED: Pair = Pair("used");

/// An end's last position is there before the end is gone. The other looks at it after that.
pub(crate) const GONE: Pair = Pair("gone");

/// An end has raised its flag before it looks at the ring once more, and sleeps.
#[cfg(any(test, not(loom)))]
pub(crate) const RAISED: Fence = Fence("raised");

/// An end has published its position before it looks whether the other one sleeps.
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
    /// No store before the fence is seen after a load behind it. A weaker ordering would allow
    /// that.
    pub(crate) fn stand(&self) {
        fence(if is_left_out(self.0) { Ordering::AcqRel } else { Ordering::SeqCst });
    }
}

/// Whether `name` is in `BYTERING_MUTATE`. Each thread reads it by itself, so that the look-up
/// orders nothing.
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
