//! Every interleaving, and every order of memory that C11 allows, of small rings: loom's models.
#![forbid(unsafe_code)]
#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;

use bytering::{Consumer, Limits, Producer, ring};
use loom::{
    model::Builder,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst, fence},
    },
    thread::{self, Thread},
};

/// Bytes go round in the only page: none is overwritten before it is read.
#[test]
fn a_page_goes_round() {
    stream(limits(2, 1), &[], &[2, 1]);
}

/// The stream leaves a page that is full, up to the cap, and comes back to it.
#[test]
fn a_ring_grows_to_its_cap() {
    stream(limits(1, 2), &[], &[2, 1]);
}

/// A page is left once more, over the same link.
#[test]
fn a_page_is_linked_again() {
    stream(limits(1, 2), &[(2, 1), (1, 1)], &[2]);
}

/// One write goes over the end of a page, from its middle, into the next.
#[test]
fn a_write_crosses_pages() {
    stream(limits(2, 2), &[(1, 1)], &[3]);
}

/// A consumer that finds the ring empty frees pages while the producer looks for one.
#[test]
fn an_idle_ring_shrinks_while_it_grows() {
    model(|| {
        let (mut producer, mut consumer) = ring(limits(1, 3));
        assert_eq!(producer.write(&[1, 2, 3]), 3);
        assert_eq!(consumer.read(&mut [0; 3]), 3);
        let reader = thread::spawn(move || {
            let found = consumer.read(&mut [0; 2]);
            (consumer, found)
        });
        let taken = producer.write(&[4, 5]);
        let (mut consumer, found) = reader.join().unwrap();
        let rest = consumer.read(&mut [0; 3]);
        assert_eq!(found + rest, taken);
        let pages = producer.pages();
        assert_eq!((pages.live, pages.allocated - pages.freed), (1, 1));
        // What the consumer held for a moment to free it is there again.
        assert_eq!(producer.write(&[6, 7, 8, 9]), 3);
    });
}

/// The last bytes arrive though nobody is there to tell of them.
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

/// A consumer that goes away with bytes unread is noticed, and nobody frees what the other uses.
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

/// Both ends sleep as the crate's documentation says, and both are woken.
#[test]
fn no_wake_up_is_lost() {
    model(|| {
        let (mut producer, mut consumer) = ring(limits(1, 1));
        let flags = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let (shared, reader) = (Arc::clone(&flags), thread::current());
        let writer = thread::spawn(move || {
            let [full, empty] = &*shared;
            for byte in 1..=2 {
                sleep_until(full, || producer.write(&[byte]) == 1);
                wake(empty, &reader);
            }
        });
        let [full, empty] = &*flags;
        let mut byte = [0];
        for expected in 1..=2 {
            sleep_until(empty, || consumer.read(&mut byte) == 1);
            wake(full, writer.thread());
            assert_eq!(byte, [expected]);
        }
        writer.join().unwrap();
    });
}

fn sleep_until(asleep: &AtomicBool, mut done: impl FnMut() -> bool) {
    while !done() {
        asleep.swap(true, Relaxed);
        fence_unless_mutated();
        // Bytes, or room, that came before the flag was seen.
        if done() {
            break;
        }
        thread::park();
    }
}

fn wake(asleep: &AtomicBool, sleeper: &Thread) {
    fence_unless_mutated();
    if asleep.swap(false, Relaxed) {
        sleeper.unpark();
    }
}

fn fence_unless_mutated() {
    if env::var("BYTERING_MUTATE").as_deref() != Ok("fence") {
        fence(SeqCst);
    }
}

/// Writes and reads as many bytes as `before` says, one after the other; then `writes` on one thread
/// while another reads. An end that must wait yields.
fn stream(limits: Limits, before: &'static [(u8, u8)], writes: &'static [u8]) {
    model(move || {
        let (mut producer, mut consumer) = ring(limits);
        let (mut sent, mut received) = (0, 0);
        for (write, read) in before {
            sent = write_all(&mut producer, sent, *write);
            received = read_all(&mut consumer, received, *read);
        }
        let all = writes.iter().sum::<u8>() + sent - received;
        let writer = thread::spawn(move || {
            writes.iter().fold(sent, |sent, len| write_all(&mut producer, sent, *len));
        });
        read_all(&mut consumer, received, all);
        writer.join().unwrap();
    });
}

/// Byte number n of the stream is n.
fn write_all(producer: &mut Producer, sent: u8, len: u8) -> u8 {
    let bytes: Vec<u8> = (sent..sent + len).collect();
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let taken = producer.write(rest);
        rest = &rest[taken..];
        if taken == 0 {
            thread::yield_now();
        }
    }
    sent + len
}

fn read_all(consumer: &mut Consumer, received: u8, len: u8) -> u8 {
    let mut bytes = vec![0; len.into()];
    let mut read = 0;
    while read < bytes.len() {
        let taken = consumer.read(&mut bytes[read..]);
        read += taken;
        if taken == 0 {
            thread::yield_now();
        }
    }
    assert_eq!(bytes, (received..received + len).collect::<Vec<_>>());
    received + len
}

fn limits(page_bytes: usize, pages_max: usize) -> Limits {
    Limits::new(page_bytes, pages_max).unwrap()
}

/// Explores `scene`, with as many preemptions at most as the variable `LOOM_MAX_PREEMPTIONS` says.
fn model(scene: impl Fn() + Sync + Send + 'static) {
    Builder::new().check(scene);
}
