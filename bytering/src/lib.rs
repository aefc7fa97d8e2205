//! A lock-free ring of bytes for one producer and one consumer, in pages that come and go.
//!
//! ```text
//!  Producer                                                                      Consumer
//!  write, writable + commit                                    read, readable + consume
//!      |                                                                             ^
//!      v          page 0             link           page 1                           |
//!      |   [ 21 22 23 24 17 18 19 20 ] --> at 25 [ .. 25 26 27 .. .. .. .. ]         |
//!      |            read ^                                  ^ written                |
//!      +------------------------->---------------------------------------------------+
//! ```
//! In steady state the two ends share one position per side: the producer publishes how far it has
//! written, the consumer how far it has read. While the consumer keeps up, the stream goes round in
//! one page. When that page is full of unread bytes the stream goes on in another, a spare one or a
//! new one, up to [`Limits`]. At that cap the producer takes fewer bytes than it was given. A page
//! that was read to its end is a spare one, and a consumer frees the spare ones before it sleeps
//! ([`Consumer::shrink`]): an idle ring is one page.
//!
//! ```
//! let limits = bytering::Limits::new(4096, 16)?;
//! let (mut producer, mut consumer) = bytering::ring(limits);
//! let reader = std::thread::spawn(move || {
//!     let mut all = Vec::new();
//!     while !consumer.is_abandoned() {
//!         let bytes = consumer.readable();
//!         let len = bytes.len();
//!         all.extend_from_slice(bytes);
//!         consumer.consume(len);
//!         std::thread::yield_now();
//!     }
//!     all
//! });
//! let text = "lane to lane ".repeat(10_000);
//! let mut rest = text.as_bytes();
//! while !rest.is_empty() {
//!     let taken = producer.write(rest);
//!     rest = &rest[taken..];
//!     if taken == 0 {
//!         std::thread::yield_now();
//!     }
//! }
//! drop(producer);
//! assert_eq!(reader.join().unwrap(), text.as_bytes());
//! # Ok::<(), bytering::LimitsError>(())
//! ```
//!
//! Neither end ever waits for the other, and none wakes the other: how to sleep is its owner's
//! business. An end that sleeps does three steps. It raises a flag,
//! [`fence`](std::sync::atomic::fence)s with `SeqCst`, and looks at the ring once more. A consumer
//! does so after it has shrunk the ring. The other end writes or reads, fences the same way, and
//! then looks at the flag. One of the two sees the other (a model proves it). The ends of a
//! [`region`] have a place for these flags, and do all of that except the sleep.
#![deny(unsafe_op_in_unsafe_fn)]

mod cursors;
mod ends;
mod header;
mod limits;
mod ordering;
mod pages;
mod primitive;
#[cfg(not(loom))]
pub mod region;
#[cfg(any(test, not(loom)))]
mod sleep;

pub use ends::{Consumer, PageCounts, Producer, ring};
pub use limits::{Limits, LimitsError};
