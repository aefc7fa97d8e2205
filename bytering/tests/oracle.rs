//! Random operations on a ring, each compared with the same on a `VecDeque`.
#![forbid(unsafe_code)]
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::panic, clippy::cast_possible_truncation)]

use std::collections::VecDeque;

use bytering::{Consumer, Limits, PageCounts, Producer, ring};

#[test]
fn a_ring_is_a_queue() {
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = Limits::new(1 << random.usize(0..9), random.usize(1..=32)).unwrap();
        let mut pair = Pair::new(limits);
        for _ in 0..2_000 {
            pair.step(&mut random);
        }
        pair.drain();
        drop(pair.producer);
        assert!(pair.consumer.is_abandoned());
    }
}

#[test]
fn a_ring_takes_its_cap_and_gives_it_back() {
    for (page_bytes, pages_max) in [(1, 1), (1, 32), (64, 1), (64, 16), (4096, 3)] {
        let limits = Limits::new(page_bytes, pages_max).unwrap();
        let (mut producer, mut consumer) = ring(limits);
        let cap = limits.bytes_max();
        let counts = |live: usize, allocated: usize| {
            let [live, allocated] = [live, allocated].map(|pages| pages as u64);
            PageCounts { live, allocated, reused: 0, freed: allocated - live }
        };
        assert_eq!(producer.pages(), counts(1, 1));
        assert_eq!(producer.write(&vec![7; cap + 1]), cap);
        assert_eq!(producer.write(&[7]), 0);
        assert!(producer.writable().is_empty());
        assert_eq!(producer.pages(), counts(pages_max, pages_max));
        let mut all = vec![0; cap + 1];
        assert_eq!(consumer.read(&mut all), cap);
        assert_eq!(all, [vec![7; cap], vec![0]].concat());
        assert!(consumer.readable().is_empty());
        consumer.shrink();
        assert_eq!(producer.pages(), counts(1, pages_max));
    }
}

#[test]
fn at_the_cap_a_page_that_is_read_is_room_for_one() {
    let (mut producer, mut consumer) = ring(Limits::new(64, 4).unwrap());
    assert_eq!(producer.write(&[1; 1000]), 256);
    for _ in 0..100 {
        assert_eq!(consumer.read(&mut [0; 63]), 63);
        assert_eq!(producer.write(&[2; 1000]), 0);
        assert_eq!(consumer.read(&mut [0; 1]), 1);
        assert_eq!(producer.write(&[2; 1000]), 64);
    }
    let pages = PageCounts { live: 4, allocated: 4, reused: 100, freed: 0 };
    assert_eq!(producer.pages(), pages);
}

#[test]
fn a_consumer_that_keeps_up_is_served_from_one_page() {
    let (mut producer, mut consumer) = ring(Limits::new(4096, 32).unwrap());
    let (message, mut copy) = ([5; 1023], [0; 4096]);
    for _ in 0..10_000 {
        for _ in 0..4 {
            assert_eq!(producer.write(&message), message.len());
        }
        assert_eq!(consumer.read(&mut copy), 4 * message.len());
    }
    let once = PageCounts { live: 1, allocated: 1, reused: 0, freed: 0 };
    assert_eq!(producer.pages(), once);
}

/// The first and the last byte of each piece are looked at: four gigabytes take a while to copy.
#[test]
#[cfg_attr(miri, ignore = "too many zeros")]
fn positions_begin_again_at_two_to_the_thirty_two() {
    let limits = Limits::new(1 << 24, 4).unwrap();
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut producer, mut consumer) = ring(limits);
        let (mut sent, mut received, mut marks) = (0, 0, VecDeque::<u64>::new());
        while received < (1 << 32) + (1 << 28) {
            for _ in 0..random.usize(0..8) {
                let room = producer.writable();
                let len = random.usize(0..=room.len());
                for at in [0, len.saturating_sub(1)].iter().filter(|at| **at < len) {
                    room[*at] = mark_at(sent + *at as u64);
                    marks.push_back(sent + *at as u64);
                }
                producer.commit(len);
                sent += len as u64;
            }
            assert!(sent - received <= limits.bytes_max() as u64);
            for _ in 0..random.usize(0..8) {
                let bytes = consumer.readable();
                assert_eq!(bytes.is_empty(), sent == received);
                let len = random.usize(0..=bytes.len());
                while let Some(mark) = marks.pop_front_if(|mark| *mark < received + len as u64) {
                    assert_eq!(bytes[(mark - received) as usize], mark_at(mark), "at {mark}");
                }
                consumer.consume(len);
                received += len as u64;
            }
        }
        assert!(producer.pages().reused > 0, "{:?}", producer.pages());
    }
}

#[test]
fn each_end_learns_that_the_other_is_gone() {
    let limits = Limits::new(16, 4).unwrap();
    let (mut producer, consumer) = ring(limits);
    assert!(!producer.is_abandoned());
    drop(consumer);
    assert!(producer.is_abandoned());
    assert_eq!(producer.write(&[1; 100]), 64);
    let (mut producer, mut consumer) = ring(limits);
    producer.write(&[1; 40]);
    drop(producer);
    assert!(!consumer.is_abandoned());
    assert_eq!(consumer.read(&mut [0; 40]), 40);
    assert!(consumer.is_abandoned());
}

/// Both ends and the bytes that must be between them.
struct Pair {
    producer: Producer,
    consumer: Consumer,
    limits: Limits,
    between: VecDeque<u8>,
    next: u8,
}

impl Pair {
    fn new(limits: Limits) -> Self {
        let (producer, consumer) = ring(limits);
        Self { producer, consumer, limits, between: VecDeque::new(), next: 0 }
    }

    fn step(&mut self, random: &mut fastrand::Rng) {
        let len = random.usize(0..=2 * self.limits.page_bytes());
        match random.u8(0..6) {
            0 | 1 => self.write(len),
            2 => self.write_in_place(len),
            3 | 4 => self.read(len),
            _ => self.read_in_place(len),
        }
        let pages = self.producer.pages();
        assert!(pages.live <= self.limits.pages_max() as u64, "{pages:?}");
        assert_eq!(pages.live, pages.allocated - pages.freed);
    }

    fn write(&mut self, len: usize) {
        let bytes: Vec<u8> = (0..len).map(|at| self.next.wrapping_add(at as u8)).collect();
        let taken = self.producer.write(&bytes);
        self.written(&bytes[..taken]);
        if taken < len {
            self.is_at_the_cap();
        }
    }

    fn write_in_place(&mut self, len: usize) {
        let next = self.next;
        let room = self.producer.writable();
        let offered = room.len();
        assert!(offered <= self.limits.page_bytes());
        room.iter_mut().zip(0_u8..=255).for_each(|(byte, at)| *byte = next.wrapping_add(at));
        let taken = len.min(offered).min(256);
        let bytes: Vec<u8> = room[..taken].to_vec();
        self.producer.commit(taken);
        self.written(&bytes);
        if offered == 0 {
            self.is_at_the_cap();
        }
    }

    fn written(&mut self, bytes: &[u8]) {
        self.between.extend(bytes);
        self.next = self.next.wrapping_add(bytes.len() as u8);
    }

    /// A page that the consumer has read in part is held back, and no other.
    fn is_at_the_cap(&self) {
        let (most, between) = (self.limits.bytes_max(), self.between.len());
        let least = most - (self.limits.page_bytes() - 1);
        assert!((least..=most).contains(&between), "full with {between} bytes");
    }

    fn read(&mut self, len: usize) {
        let mut bytes = vec![0; len];
        let read = self.consumer.read(&mut bytes);
        assert_eq!(read, len.min(self.between.len()));
        let expected: Vec<u8> = self.between.drain(..read).collect();
        assert_eq!(bytes[..read], expected);
    }

    fn read_in_place(&mut self, len: usize) {
        let bytes = self.consumer.readable();
        assert_eq!(bytes.is_empty(), self.between.is_empty());
        assert!(bytes.iter().eq(self.between.iter().take(bytes.len())));
        let taken = len.min(bytes.len());
        self.consumer.consume(taken);
        self.between.drain(..taken);
    }

    /// Reads all that is left, and goes to sleep.
    fn drain(&mut self) {
        self.read(self.between.len() + 1);
        self.consumer.shrink();
        assert_eq!(self.producer.pages().live, 1);
    }
}

fn mark_at(position: u64) -> u8 {
    (position ^ (position >> 12) ^ (position >> 24)) as u8
}

/// An interpreter takes a minute for a second of a processor's work.
const SEEDS: u64 = if cfg!(miri) { 2 } else { 400 };
