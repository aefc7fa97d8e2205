//! Every memory ordering that another thread's bytes depend on, in pairs.
//!
//! What one thread did before the left one is seen by the other after the right one. Built with
//! `--cfg bytering_mutate="NAME"`, the pair of that name orders nothing: a model must then fail.

use std::sync::atomic::Ordering::{self, Acquire, Release};

/// `written`: bytes stand in the page before their position is told; the consumer reads them after.
pub(crate) const WRITTEN: Pair = pair(cfg!(bytering_mutate = "written"));

/// `read`: the consumer is done with bytes before it tells so; the producer overwrites them after.
pub(crate) const READ: Pair = pair(cfg!(bytering_mutate = "read"));

/// `link`: a link's position stands before the link does; the consumer looks at it after.
pub(crate) const LINK: Pair = pair(cfg!(bytering_mutate = "link"));

/// `used`: the consumer is done with a page before it leaves it; the producer writes to it after.
pub(crate) const USED: Pair = pair(cfg!(bytering_mutate = "used"));

/// `gone`: an end's last bytes and positions stand before it is gone; the other looks after.
pub(crate) const GONE: Pair = pair(cfg!(bytering_mutate = "gone"));

/// A store that publishes and the load that sees what was published.
pub(crate) struct Pair {
    pub(crate) publish: Ordering,
    pub(crate) observe: Ordering,
}

const fn pair(mutated: bool) -> Pair {
    if mutated {
        Pair { publish: Ordering::Relaxed, observe: Ordering::Relaxed }
    } else {
        Pair { publish: Release, observe: Acquire }
    }
}
