//! Ends that sleep, in two threads and with a peer that scribbles over the header.

use std::{
    thread::{self, Thread},
    time::{Duration, Instant},
};

use super::*;

#[test]
fn each_flag_is_where_the_layout_says_and_goes_down_once() {
    let shared = Shared::new(Limits::new(64, 1).unwrap());
    let (mut producer, mut consumer) = shared.ends();
    let flags = || [1024, 1152].map(|at| shared.word(at).load(Relaxed));
    assert!(consumer.may_sleep());
    assert_eq!(flags(), [1, 0]);
    assert_eq!(producer.write(&[1; 64]), 64);
    assert!(producer.wakes() && !producer.wakes());
    assert!(producer.may_wait(1));
    assert_eq!(flags(), [0, 1]);
    assert_eq!(consumer.read(&mut [0; 3]), Ok(3));
    assert!(consumer.wakes() && !consumer.wakes());
    assert_eq!(flags(), [0, 0]);
    // With bytes and room, neither end may sleep, and its flag is down.
    assert!(!consumer.may_sleep() && !producer.may_wait(3) && producer.may_wait(4));
    assert!(!producer.may_wait(3));
    assert_eq!(flags(), [0, 0]);
    assert_eq!(consumer.read(&mut [0; 64]), Ok(61));
    assert!(consumer.may_sleep());
    consumer.mark_awake();
    assert_eq!(flags(), [0, 0]);
    // Any other value is a raised flag, too.
    shared.word(1024).store(7, Relaxed);
    assert!(producer.wakes() && !producer.wakes());
    // An empty ring has no more room than this to wait for.
    assert!(!producer.may_wait(usize::MAX));
}

#[test]
fn room_and_unread_are_what_write_and_read_take() {
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let limits = Limits::new(1 << random.usize(0..9), random.usize(1..=32)).unwrap();
        let (mut producer, mut consumer) = ring(limits);
        let mut bytes = vec![0; limits.bytes_max() + 1];
        for _ in 0..200 {
            let room = producer.room();
            let len = random.usize(0..bytes.len());
            let before = consumer.unread().unwrap();
            if random.bool() {
                assert_eq!(producer.write(&bytes[..len]), len.min(room));
                assert_eq!(consumer.unread(), Ok(before + len.min(room)));
            } else {
                let (front, back) = bytes[..len].split_at(random.usize(0..=len));
                let fits = len <= room;
                assert_eq!(producer.write_whole(&[front, back]), fits);
                assert_eq!(consumer.unread(), Ok(before + if fits { len } else { 0 }));
            }
            let (unread, len) = (consumer.unread().unwrap(), random.usize(0..bytes.len()));
            assert_eq!(consumer.read(&mut bytes[..len]), Ok(len.min(unread)));
        }
        assert!(consumer.read(&mut bytes).is_ok());
        assert_eq!((producer.room(), consumer.unread()), (limits.bytes_max(), Ok(0)));
    }
}

/// Whole messages, some of which fill the ring, so that each end sleeps until the other one has
/// done its part. An end that is not woken hangs, and the test reports it.
#[test]
fn sleepers_pass_messages_on() {
    let cases = [(16, 1, 16), (16, 1, 8), (32, 1, 1), (1024, 1, 1), (16, 4, 1)];
    for (page_bytes, pages_max, message_bytes_min) in cases {
        let limits = Limits::new(page_bytes, pages_max).unwrap();
        let (mut producer, mut consumer) = ring(limits);
        let reader_here = thread::current();
        let writer = thread::spawn(move || {
            let mut random = fastrand::Rng::with_seed(1);
            let mut sent = 0_usize;
            for _ in 0..MESSAGES {
                let bytes: Vec<u8> =
                    (sent..sent + random.usize(message_bytes_min..=16)).map(byte_at).collect();
                while !producer.write_whole(&[&bytes]) {
                    if producer.may_wait(bytes.len()) {
                        sleep();
                    }
                }
                sent += bytes.len();
                wake(&reader_here, producer.wakes());
            }
            drop(producer);
            // An end that goes wakes the other one in any case.
            reader_here.unpark();
            sent
        });
        let (mut received, mut part) = (0, [0; 24]);
        loop {
            let read = consumer.read(&mut part).unwrap();
            assert!(part[..read].iter().copied().eq((received..received + read).map(byte_at)));
            received += read;
            wake(writer.thread(), consumer.wakes());
            if consumer.is_abandoned() {
                break;
            }
            if read == 0 && consumer.may_sleep() {
                sleep();
                consumer.mark_awake();
            }
        }
        assert_eq!(received, writer.join().unwrap());
    }
}

/// The header changes to any value at any time. Every call returns, with numbers within limits, and
/// nothing outside the region is touched.
#[test]
fn a_header_that_changes_at_any_time_stops_nobody() {
    for seed in 0..SEEDS / 4 + 1 {
        let mut random = fastrand::Rng::with_seed(seed);
        let pages_max = if random.bool() { 1 } else { random.usize(1..=32) };
        let limits = Limits::new(1 << random.usize(0..9), pages_max).unwrap();
        let shared = Shared::new(limits);
        let (mut producer, mut consumer) = shared.ends();
        let randoms = [(); 2].map(|()| random.fork());
        thread::scope(|scope| {
            let [writes, reads] = randoms;
            let writer = scope.spawn(|| write_anything(&mut producer, limits, writes));
            let reader = scope.spawn(|| read_anything(&mut consumer, limits, reads));
            while !(writer.is_finished() && reader.is_finished()) {
                shared.scribble_over_the_header(&mut random);
            }
        });
        assert!(shared.is_untouched_behind());
    }
}

fn write_anything(producer: &mut Producer, limits: Limits, mut random: fastrand::Rng) {
    let bytes = [3; 700];
    for _ in 0..CALLS {
        let len = random.usize(0..=bytes.len());
        assert!(producer.write(&bytes[..len]) <= len);
        assert!(producer.room() <= limits.bytes_max());
        let (front, back) = bytes[..len].split_at(len / 2);
        let _ = (producer.write_whole(&[front, back]), producer.may_wait(len));
        let _ = (producer.wakes(), producer.is_abandoned(), producer.pages());
    }
}

fn read_anything(consumer: &mut Consumer, limits: Limits, mut random: fastrand::Rng) {
    let mut bytes = [0; 700];
    for _ in 0..CALLS {
        let len = random.usize(0..=bytes.len());
        assert!(consumer.read(&mut bytes[..len]).unwrap_or(0) <= len);
        assert!(consumer.unread().unwrap_or(0) <= limits.bytes_max());
        let _ = (consumer.may_sleep(), consumer.wakes(), consumer.is_abandoned());
        consumer.mark_awake();
    }
}

impl Shared {
    /// Every word of it, most of them with numbers that could be right.
    fn scribble_over_the_header(&self, random: &mut fastrand::Rng) {
        for at in (0..HEADER_BYTES).step_by(4) {
            let near = self.word(128 * random.usize(0..2)).load(Relaxed);
            let near = near.wrapping_add(random.u32(0..1200)).wrapping_sub(600);
            let values = [0, random.u32(0..40), near, random.u32(..)];
            self.word(at).store(values[random.usize(0..values.len())], Relaxed);
        }
    }
}

fn sleep() {
    let start = Instant::now();
    thread::park_timeout(PATIENCE);
    assert!(start.elapsed() < PATIENCE, "a wake-up was lost");
}

fn wake(sleeper: &Thread, wakes: bool) {
    if wakes {
        sleeper.unpark();
    }
}

fn byte_at(at: usize) -> u8 {
    (at / 7).to_le_bytes()[0]
}

const PATIENCE: Duration = Duration::from_secs(60);
const CALLS: u32 = if cfg!(miri) { 20 } else { 2_000 };
const MESSAGES: u32 = if cfg!(miri) { 200 } else { 20_000 };
