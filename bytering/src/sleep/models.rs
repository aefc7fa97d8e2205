//! Every interleaving of ends that sleep. An end that misses a wake-up is asleep for ever, which
//! loom reports. The bytes themselves are left out: `tests/models.rs` follows those.

use loom::{
    model::Builder,
    sync::{Arc, Notify},
    thread,
};

use crate::{
    cursors::{Reader, Writer},
    header::Header,
    limits::Limits,
    sleep::Flags,
};

/// The consumer finds nothing, and sleeps; the producer always has room.
#[test]
fn a_consumer_that_sleeps_is_woken() {
    by_turns(limits(2, 1), &[1, 1]);
}

/// The producer finds less room than a message needs, and waits for two reads; the consumer always
/// has something.
#[test]
fn a_producer_that_waits_is_woken() {
    model(|| {
        let (mut producer, mut consumer) = ring(limits(2, 1));
        producer.write(2);
        let writer = thread::spawn(move || producer.write(2));
        for _ in 0..2 {
            consumer.read();
        }
        writer.join().unwrap();
    });
}

/// Each sleeps until the other one has done its part.
#[test]
fn both_sleep_by_turns_and_both_are_woken() {
    by_turns(limits(1, 1), &[1, 1]);
}

/// The same with messages that need more room than one read makes.
#[test]
fn messages_of_two_sizes_pass_between_sleepers() {
    by_turns(limits(2, 1), &[1, 2]);
}

/// The same when the stream goes on in another page.
#[test]
fn sleepers_meet_in_a_ring_of_two_pages() {
    by_turns(limits(1, 2), &[2, 1]);
}

/// One thread writes `messages`, whole ones only, and waits for room; the other reads byte by byte.
fn by_turns(limits: Limits, messages: &'static [usize]) {
    model(move || {
        let (mut producer, mut consumer) = ring(limits);
        let writer = thread::spawn(move || {
            for len in messages {
                producer.write(*len);
            }
        });
        for _ in 0..messages.iter().sum() {
            consumer.read();
        }
        assert!(!consumer.has_unread());
        writer.join().unwrap();
    });
}

fn ring(limits: Limits) -> (Producer, Consumer) {
    let header = Header::new();
    let writer = Writer::new(limits, &header);
    let bells = [Notify::new(), Notify::new()];
    let shared = Arc::new(Shared { header, flags: Flags::new(), bells });
    (
        Producer { shared: Arc::clone(&shared), writer },
        Consumer { shared, reader: Reader::new(limits) },
    )
}

/// A region without its pages, and the wake-up of each end: a bell that keeps one ring.
struct Shared {
    header: Header,
    flags: Flags,
    /// The consumer's, the producer's.
    bells: [Notify; 2],
}

struct Producer {
    shared: Arc<Shared>,
    writer: Writer,
}

impl Producer {
    /// Waits for room for all `len` bytes, then publishes them at once, as a message.
    fn write(&mut self, len: usize) {
        let Shared { header, flags, bells } = &*self.shared;
        while self.writer.room_in_all(header) < len {
            if flags.producer_may_wait(&mut self.writer, header, len) {
                bells[1].wait();
            }
        }
        let mut done = 0;
        while done < len {
            if self.writer.room(header).is_empty() {
                let next = header.claim(0, self.writer.other_pages());
                self.writer.turn(header, next.expect("there was room for all"));
            }
            let room = self.writer.room(header).len();
            done += self.writer.advance(room.min(len - done));
        }
        self.writer.publish(header);
        if flags.wakes_consumer() {
            bells[0].notify();
        }
    }
}

struct Consumer {
    shared: Arc<Shared>,
    reader: Reader,
}

impl Consumer {
    /// Sleeps until there is a byte.
    fn read(&mut self) {
        let Shared { header, flags, bells } = &*self.shared;
        while self.reader.unread(header).unwrap().is_empty() {
            if flags.consumer_may_sleep(&self.reader, header) {
                bells[0].wait();
                flags.consumer_is_awake();
            }
        }
        self.reader.consume(header, 1);
        if flags.wakes_producer() {
            bells[1].notify();
        }
    }

    fn has_unread(&self) -> bool {
        self.reader.unread_in_all(&self.shared.header) != Ok(0)
    }
}

fn limits(page_bytes: usize, pages_max: usize) -> Limits {
    Limits::new(page_bytes, pages_max).unwrap()
}

/// Explores `scene`, with at most as many preemptions as in the variable `LOOM_MAX_PREEMPTIONS`.
fn model(scene: impl Fn() + Sync + Send + 'static) {
    Builder::new().check(scene);
}
