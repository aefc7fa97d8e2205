//! Every memory ordering that another thread's bytes depend on, in pairs.
//!
//! What one thread does before it publishes, the other sees after it observes. A build with
//! `--cfg bytering_mutable` orders nothing by the pair that the variable `BYTERING_MUTATE` names:
//! `prove` shows that each is needed.

use std::sync::atomic::Ordering;

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

/// A store that publishes and the load that observes it, by name.
pub(crate) struct Pair(#[cfg_attr(not(bytering_mutable), expect(dead_code))] &'static str);

impl Pair {
    /// The ordering of the store.
    pub(crate) fn publish(&self) -> Ordering {
        #[cfg(bytering_mutable)]
        if self.is_mutated() {
            return Ordering::Relaxed;
        }
        Ordering::Release
    }

    /// The ordering of the load.
    pub(crate) fn observe(&self) -> Ordering {
        #[cfg(bytering_mutable)]
        if self.is_mutated() {
            return Ordering::Relaxed;
        }
        Ordering::Acquire
    }

    /// Known to each thread by itself, so that looking it up orders nothing.
    #[cfg(bytering_mutable)]
    fn is_mutated(&self) -> bool {
        thread_local! {
            static MUTATED: String = std::env::var("BYTERING_MUTATE").unwrap_or_default();
        }
        MUTATED.with(|mutated| mutated == self.0)
    }
}
