//! Two threads, every byte compared. ThreadSanitizer and AddressSanitizer run it, too.
#![forbid(unsafe_code)]
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation)]

use std::{
    thread,
    time::{Duration, Instant},
};

use bytering::{Consumer, Limits, Producer, ring};

#[test]
fn nothing_is_lost_or_changed_between_two_threads() {
    for (page_bytes, pages_max) in [(1, 1), (1, 32), (64, 2), (64, 32), (4096, 16)] {
        let bytes = BYTES.min(page_bytes * 40_000);
        stream(Limits::new(page_bytes, pages_max).unwrap(), bytes, Sizes::Random(3 * page_bytes));
    }
}

#[test]
fn messages_of_one_size_cross_every_boundary() {
    stream(Limits::new(16_384, 32).unwrap(), BYTES, Sizes::Fixed(1023));
}

#[test]
fn sizes_may_be_anything() {
    stream(Limits::new(16_384, 32).unwrap(), BYTES, Sizes::Random(40_000));
}

/// The write-up's own length.
#[test]
#[ignore = "a gigabyte: half a minute without optimisation"]
fn a_gigabyte_of_messages_arrives() {
    stream(Limits::new(16_384, 32).unwrap(), 1_023_000_000, Sizes::Fixed(1023));
    stream(Limits::new(16_384, 32).unwrap(), 1_023_000_000, Sizes::Random(40_000));
}

#[test]
fn ten_thousand_rings_that_grew_leave_nothing_behind() {
    let limits = Limits::new(256, 8).unwrap();
    for number in 0..10_000_usize {
        let (mut producer, mut consumer) = ring(limits);
        assert_eq!(producer.write(&[1; 5 * 256]), 5 * 256);
        assert_eq!(producer.pages().live, 5);
        // Some are emptied, some are not, and either end may be the last.
        if number.is_multiple_of(2) {
            assert_eq!(consumer.read(&mut [0; 2000]), 5 * 256);
        }
        if number.is_multiple_of(3) {
            drop(producer);
            drop(consumer);
        } else {
            drop(consumer);
            drop(producer);
        }
    }
}

/// Lengths of writes and reads.
#[derive(Clone, Copy)]
enum Sizes {
    Fixed(usize),
    /// 1 to this many.
    Random(usize),
}

impl Sizes {
    fn next(self, random: &mut fastrand::Rng) -> usize {
        match self {
            Self::Fixed(len) => len,
            Self::Random(max) => random.usize(1..=max),
        }
    }
}

/// Sends `bytes` bytes from one thread to another. Each end changes its kind of call in turn.
fn stream(limits: Limits, bytes: usize, sizes: Sizes) {
    let (producer, consumer) = ring(limits);
    let writer = thread::spawn(move || write(producer, limits, bytes, sizes));
    read(consumer, bytes, sizes);
    writer.join().unwrap();
}

fn write(mut producer: Producer, limits: Limits, bytes: usize, sizes: Sizes) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut patience = Patience::new();
    let mut pattern = Vec::new();
    let mut sent = 0;
    while sent < bytes {
        let len = sizes.next(&mut random).min(bytes - sent);
        let taken = if random.bool() {
            pattern.clear();
            pattern.extend((sent..sent + len).map(pattern_at));
            producer.write(&pattern)
        } else {
            let room = producer.writable();
            let len = len.min(room.len());
            room[..len].iter_mut().zip(sent..).for_each(|(byte, at)| *byte = pattern_at(at));
            producer.commit(len);
            len
        };
        sent += taken;
        patience.after(taken);
        assert!(producer.pages().live <= limits.pages_max() as u64);
    }
}

fn read(mut consumer: Consumer, bytes: usize, sizes: Sizes) {
    let mut random = fastrand::Rng::with_seed(2);
    let mut patience = Patience::new();
    let mut copy = vec![0; 40_000];
    let (mut received, mut mismatches) = (0, 0);
    let mut compare = |at: usize, bytes: &[u8]| {
        mismatches += bytes.iter().zip(at..).filter(|(byte, at)| **byte != pattern_at(*at)).count();
    };
    while !consumer.is_abandoned() {
        let len = sizes.next(&mut random);
        let taken = if random.bool() {
            let taken = consumer.read(&mut copy[..len]);
            compare(received, &copy[..taken]);
            taken
        } else {
            let bytes = consumer.readable();
            let taken = len.min(bytes.len());
            compare(received, &bytes[..taken]);
            consumer.consume(taken);
            taken
        };
        received += taken;
        patience.after(taken);
    }
    assert_eq!((received, mismatches), (bytes, 0));
}

/// No two pages of any size hold the same bytes.
fn pattern_at(at: usize) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16)) as u8
}

/// The longest time that an end waits for the other.
struct Patience(Option<Instant>);

impl Patience {
    fn new() -> Self {
        Self(None)
    }

    /// Waits if nothing was `done`.
    fn after(&mut self, done: usize) {
        if done > 0 {
            self.0 = None;
            return;
        }
        let deadline = *self.0.get_or_insert_with(|| Instant::now() + Duration::from_secs(60));
        assert!(Instant::now() < deadline, "the other end does not go on");
        thread::yield_now();
    }
}

const BYTES: usize = 10_230_000;
