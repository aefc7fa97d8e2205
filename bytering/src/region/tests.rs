//! The layout as another language sees it, and a peer that scribbles over it.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
};

use super::*;

mod sleep;

#[test]
fn a_region_is_a_queue() {
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let page_bytes = 1 << random.usize(0..9);
        let limits = Limits::new(page_bytes, random.usize(1..=32)).unwrap();
        let (mut producer, mut consumer) = ring(limits);
        let mut between = VecDeque::<u8>::new();
        for _ in 0..1_000 {
            let mut bytes = vec![0; random.usize(0..=2 * page_bytes)];
            if random.bool() {
                random.fill(&mut bytes);
                let taken = producer.write(&bytes);
                between.extend(&bytes[..taken]);
                assert!(taken == bytes.len() || between.len() > limits.bytes_max() - page_bytes);
            } else {
                let read = consumer.read(&mut bytes).unwrap();
                assert_eq!(read, bytes.len().min(between.len()));
                assert!(between.drain(..read).eq(bytes[..read].iter().copied()));
            }
        }
        drop(producer);
        assert_eq!(consumer.read(&mut vec![0; between.len()]), Ok(between.len()));
        assert!(consumer.is_abandoned());
    }
}

#[test]
fn two_threads_meet_in_a_region() {
    let (producer, mut consumer) = ring(Limits::new(64, 3).unwrap());
    let bytes: Vec<u8> = (0..THREADS_BYTES).map(|at| (at / 7).to_le_bytes()[0]).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut producer, mut rest) = (producer, &bytes[..]);
            while !rest.is_empty() {
                let taken = producer.write(&rest[..rest.len().min(100)]);
                rest = &rest[taken..];
                if taken == 0 {
                    thread::yield_now();
                }
            }
        });
        let (mut all, mut part) = (Vec::new(), [0; 90]);
        while !consumer.is_abandoned() {
            let read = consumer.read(&mut part).unwrap();
            all.extend_from_slice(&part[..read]);
        }
        assert!(all == bytes);
    });
}

#[test]
fn a_ring_uses_the_lowest_pages_and_no_more_than_it_needs() {
    let (mut producer, mut consumer) = ring(Limits::new(64, 32).unwrap());
    for _ in 0..100 {
        assert_eq!(producer.write(&[1; 150]), 150);
        assert_eq!(consumer.read(&mut [0; 200]), Ok(150));
    }
    let pages = producer.pages();
    assert_eq!((pages.live, pages.allocated, pages.freed), (1, 3, 0));
}

#[test]
fn zeros_are_an_empty_ring_and_every_word_is_where_the_layout_says() {
    let limits = Limits::new(64, 4).unwrap();
    let shared = Shared::new(limits);
    let (mut producer, mut consumer) = shared.ends();
    assert_eq!(producer.write(&[9; 100]), 100);
    // Written, read, pages 0 and 1 in use, and the link from 0 to 1 at the 64th byte.
    let word = |at| shared.word(at).load(Relaxed);
    assert_eq!([0, 128, 256, 384, 388].map(word), [100, 0, 0b11, 64, 2]);
    assert_eq!([4096, 4096 + 64 + 32, 4096 + 64 + 36].map(word), [0x0909_0909, 0x0909_0909, 0]);
    assert_eq!(consumer.read(&mut [0; 70]), Ok(70));
    assert_eq!([128, 256].map(word), [70, 0b10]);
    drop((producer, consumer));
    assert_eq!([4, 132].map(word), [1, 1]);
}

#[test]
fn a_region_that_cannot_hold_the_ring_is_refused() {
    let limits = Limits::new(64, 4).unwrap();
    let shared = Shared::new(limits);
    let start = shared.owner.start;
    // SAFETY: no end is made of any of these.
    let refused = |at, bytes| unsafe { Producer::attach(start.add(at), bytes, limits).err() };
    let (bytes, needed) = (4351, 4352);
    assert_eq!(refused(0, bytes), Some(RegionError::TooSmall { bytes, needed }));
    assert_eq!(refused(64, needed), Some(RegionError::Misaligned));
}

#[test]
fn a_link_to_no_page_and_a_position_of_no_byte_stop_the_consumer() {
    let limits = Limits::new(64, 4).unwrap();
    for (at, value) in [(388, 5), (388, u32::MAX), (0, 65), (0, u32::MAX)] {
        let shared = Shared::new(limits);
        let (_producer, mut consumer) = shared.ends();
        shared.word(at).store(value, Relaxed);
        assert_eq!(consumer.read(&mut [0; 10]), Err(RegionError::Broken), "{value} at {at}");
    }
}

#[test]
fn a_ring_of_one_page_heeds_no_link() {
    let shared = Shared::new(Limits::new(64, 1).unwrap());
    let (mut producer, mut consumer) = shared.ends();
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..SEEDS {
        for at in (256..640).step_by(4) {
            let near = shared.word(128).load(Relaxed) + random.u32(0..64);
            shared.word(at).store([0, 1, near][random.usize(0..3)], Relaxed);
        }
        let message = [number.to_le_bytes()[0]; 60];
        assert_eq!(producer.room(), 64);
        assert!(producer.write_whole(&[&message]) && !producer.write_whole(&[&message]));
        assert_eq!(consumer.unread(), Ok(60));
        let mut bytes = [0; 64];
        assert_eq!(consumer.read(&mut bytes), Ok(60));
        assert_eq!(bytes[..60], message);
    }
}

#[test]
fn a_peer_that_scribbles_reaches_nothing_outside() {
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = Limits::new(1 << random.usize(0..8), random.usize(1..=32)).unwrap();
        let shared = Shared::new(limits);
        let (mut producer, mut consumer) = shared.ends();
        let mut bytes = [0; 300];
        for _ in 0..500 {
            let len = random.usize(0..=bytes.len());
            assert!(producer.write(&bytes[..len]) <= len);
            let len = random.usize(0..=bytes.len());
            assert!(consumer.read(&mut bytes[..len]).unwrap_or(0) <= len);
            shared.scribble(&mut random);
        }
        assert!(shared.is_untouched_behind());
    }
}

/// Memory of another owner, with words behind the region that must not be touched.
struct Shared {
    owner: Owner,
    limits: Limits,
}

impl Shared {
    fn new(limits: Limits) -> Self {
        Self { owner: Owner::new(bytes(limits).next_multiple_of(4) + BEHIND_BYTES), limits }
    }

    fn ends(&self) -> (Producer, Consumer) {
        let (start, bytes) = (self.owner.start, bytes(self.limits));
        // SAFETY: every test drops both ends before this memory, and uses it by atomics.
        let ends = unsafe {
            (
                Producer::attach(start, bytes, self.limits),
                Consumer::attach(start, bytes, self.limits),
            )
        };
        (ends.0.unwrap(), ends.1.unwrap())
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.owner.layout.size());
        // SAFETY: the word lies in the memory and is aligned.
        unsafe { AtomicU32::from_ptr(self.owner.start.as_ptr().add(at).cast()) }
    }

    fn is_untouched_behind(&self) -> bool {
        let end = self.owner.layout.size();
        let mut behind = (end - BEHIND_BYTES..end).step_by(4).map(|at| self.word(at));
        behind.all(|word| word.load(Relaxed) == 0)
    }

    /// Anything anywhere, most of it where it hurts.
    fn scribble(&self, random: &mut fastrand::Rng) {
        let places = [0, 128, 256, 384 + 4 * random.usize(0..64), 4 * random.usize(0..1024)];
        let near = self.word(0).load(Relaxed).wrapping_add(random.u32(0..200)).wrapping_sub(100);
        let values = [random.u32(0..40), near, random.u32(..), 1 << random.u32(0..32)];
        for _ in 0..random.usize(0..3) {
            let [at, value] = [random.usize(0..places.len()), random.usize(0..values.len())];
            self.word(places[at]).store(values[value], Relaxed);
        }
    }
}

const BEHIND_BYTES: usize = 128;
/// An interpreter takes a minute for a second of a processor's work.
const SEEDS: u64 = if cfg!(miri) { 2 } else { 200 };
const THREADS_BYTES: u32 = if cfg!(miri) { 5_000 } else { 200_000 };
