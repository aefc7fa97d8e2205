//! Every interleaving, and every order of memory that C11 allows, of small rings: loom's models.
#![forbid(unsafe_code)]
#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;

use bytering::{Consumer, Limits, Producer, ring};
use loom::{
    model::Builder,
    sync::{
        Arc, Notify,
        atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence},
    },
    thread,
};

/// Bytes go round in the only page: none is overwritten before it is read.
#[test]
fn a_page_goes_round() {
    stream(limits(2, 1), &[], &[2, 1], &[1, 2]);
}

/// The stream leaves a page that is full, up to the cap, and comes back to it.
#[test]
fn a_ring_grows_to_its_cap() {
    stream(limits(1, 2), &[], &[2, 1], &[1, 2]);
}

/// A page is left once more, over the same link.
#[test]
fn a_page_is_linked_again() {
    stream(limits(1, 2), &[(2, 1), (1, 1)], &[1, 1], &[1, 2]);
}

/// One write goes over the end of a page, from its middle, into the next.
#[test]
fn a_write_crosses_pages() {
    stream(limits(2, 2), &[(1, 1)], &[3], &[2, 1]);
}

/// A consumer that finds the ring empty frees pages while the producer looks for one.
#[test]
fn an_idle_ring_shrinks_while_it_grows() {
    model(|| {
        let (mut producer, mut consumer) = ring(limits(1, 3));
        assert_eq!(producer.write(&[1, 2, 3]), 3);
        assert_eq!(consumer.read(&mut [0; 4]), 3);
        let reader = thread::spawn(move || {
            let found = consumer.read(&mut [0; 2]);
            consumer.shrink();
            (consumer, found)
        });
        let taken = producer.write(&[4, 5]);
        let (mut consumer, found) = reader.join().unwrap();
        let rest = consumer.read(&mut [0; 3]);
        assert_eq!(found + rest, taken);
        consumer.shrink();
        let pages = producer.pages();
        assert_eq!((pages.live, pages.allocated - pages.freed), (1, 1));
        // The page that the consumer held for a moment to free it is there again.
        assert_eq!(producer.write(&[6, 7, 8, 9]), 3);
    });
}

/// The last bytes arrive although their producer is gone.
#[test]
fn a_producer_that_ends_is_read_to_its_end() {
    model(|| {
        let (mut producer, mut consumer) = ring(limits(1, 2));
        let writer = thread::spawn(move || producer.write(&[1, 2]));
        let (mut bytes, mut read) = ([0; 2], 0);
        while !consumer.is_abandoned() {
            read += consumer.read(&mut bytes[read..]);
            thread::yield_now();
        }
        assert_eq!((bytes, read, writer.join().unwrap()), ([1, 2], 2, 2));
    });
}

/// A consumer that goes away with bytes unread is noticed, and pages in use by the other end are
/// not freed.
#[test]
fn a_consumer_that_ends_is_noticed() {
    model(|| {
        let (mut producer, mut consumer) = ring(limits(1, 2));
        let reader = thread::spawn(move || consumer.read(&mut [0; 1]));
        let mut taken = 0;
        while !producer.is_abandoned() {
            taken += producer.write(&[1]);
            thread::yield_now();
        }
        assert!(reader.join().unwrap() <= taken);
    });
}

/// Both ends sleep as in the crate's documentation, and both are woken.
#[test]
fn no_wake_up_is_lost() {
    sleepers(limits(1, 1), 0);
}

/// The same while the consumer frees the page that the producer looks for.
#[test]
fn no_wake_up_is_lost_when_a_ring_shrinks() {
    sleepers(limits(1, 2), 2);
}

/// Two bytes, one by one, through a ring that `before` bytes went through before.
fn sleepers(limits: Limits, before: usize) {
    model(move || {
        let (mut producer, mut consumer) = ring(limits);
        assert_eq!(producer.write(&vec![0; before]), before);
        assert_eq!(consumer.read(&mut vec![0; before]), before);
        let (full, empty) = (Arc::new(Sleep::new()), Arc::new(Sleep::new()));
        let (full_there, empty_there) = (Arc::clone(&full), Arc::clone(&empty));
        let writer = thread::spawn(move || {
            for byte in 1..=2 {
                full_there.until(|| producer.write(&[byte]) == 1);
                empty_there.end();
            }
        });
        let mut byte = [0];
        for expected in 1..=2 {
            empty.until(|| {
                consumer.shrink();
                consumer.read(&mut byte) == 1
            });
            full.end();
            assert_eq!(byte, [expected]);
        }
        writer.join().unwrap();
    });
}

/// One end's.
struct Sleep {
    flag: AtomicBool,
    bell: Notify,
}

impl Sleep {
    fn new() -> Self {
        Self { flag: AtomicBool::new(false), bell: Notify::new() }
    }

    fn until(&self, mut done: impl FnMut() -> bool) {
        while !done() {
            self.flag.swap(true, Relaxed);
            fence_unless_mutated();
            // Bytes, or room, that came before the flag was seen.
            if done() {
                break;
            }
            self.bell.wait();
        }
    }

    fn end(&self) {
        fence_unless_mutated();
        if self.flag.swap(false, Relaxed) {
            self.bell.notify();
        }
    }
}

fn fence_unless_mutated() {
    if env::var("BYTERING_MUTATE").as_deref() != Ok("fence") {
        fence(SeqCst);
    }
}

/// Writes and reads `before` bytes, one after the other. Then one thread tries `writes` while
/// another tries `reads`, and the rest is read at the end. Byte n is n.
fn stream(
    limits: Limits,
    before: &'static [(u8, u8)],
    writes: &'static [u8],
    reads: &'static [usize],
) {
    model(move || {
        let (mut producer, mut consumer) = ring(limits);
        let (mut sent, mut received) = (0, 0);
        for (write, read) in before {
            sent = try_write(&mut producer, sent, *write);
            received = try_read(&mut consumer, received, (*read).into());
        }
        let writer = thread::spawn(move || {
            writes.iter().fold(sent, |sent, len| try_write(&mut producer, sent, *len))
        });
        for len in reads {
            received = try_read(&mut consumer, received, *len);
        }
        let sent = writer.join().unwrap();
        assert_eq!(try_read(&mut consumer, received, 10), sent);
    });
}

fn try_write(producer: &mut Producer, sent: u8, len: u8) -> u8 {
    let bytes: Vec<u8> = (sent..sent + len).collect();
    sent + producer.write(&bytes) as u8
}

fn try_read(consumer: &mut Consumer, received: u8, len: usize) -> u8 {
    let mut bytes = vec![0; len];
    let read = consumer.read(&mut bytes);
    let after = received + read as u8;
    assert_eq!(bytes[..read], (received..after).collect::<Vec<_>>());
    after
}

fn limits(page_bytes: usize, pages_max: usize) -> Limits {
    Limits::new(page_bytes, pages_max).unwrap()
}

/// Explores `scene`, with at most as many preemptions as in the variable `LOOM_MAX_PREEMPTIONS`.
fn model(scene: impl Fn() + Sync + Send + 'static) {
    Builder::new().check(scene);
}
