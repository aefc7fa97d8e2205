//! The rules of a line, to the nanosecond.

use super::*;
use crate::replay::cache::Caches;

/// One line of four threads, by ns.
struct OneLine(Caches);

impl OneLine {
    fn new() -> Self {
        Self(Caches::new(1, 4, TRANSFER_NS))
    }

    fn read(&mut self, thread: u32, now_ns: u64) -> u64 {
        self.0.read(0, thread, now_ns * 1_000) / 1_000
    }

    fn write(&mut self, thread: u32, now_ns: u64) -> u64 {
        self.0.write(0, thread, now_ns * 1_000) / 1_000
    }
}

#[test]
fn who_has_a_line_alone_writes_it_at_once() {
    let mut line = OneLine::new();
    assert_eq!((line.write(0, 7), line.write(0, 8), line.read(0, 9)), (7, 8, 9));
    let mut line = OneLine::new();
    assert_eq!((line.read(3, 7), line.write(3, 8)), (7, 8));
}

#[test]
fn writers_queue_and_each_keeps_the_line_until_half_of_the_next_transfer() {
    let mut line = OneLine::new();
    line.write(0, 0);
    assert_eq!(line.write(1, 1_000), 1_100);
    assert_eq!(line.write(2, 1_001), 1_205);
    assert_eq!((line.write(0, 1_049), line.read(0, 1_049)), (1_049, 1_049));
    assert_eq!(line.write(0, 1_050), 1_310);
    assert_eq!(line.write(1, 1_154), 1_154);
    assert_eq!(line.write(1, 1_155), 1_415);
    assert_eq!(line.write(2, 1_259), 1_259);
}

#[test]
fn readers_of_a_changed_line_queue_and_of_a_clean_one_hardly() {
    let mut line = OneLine::new();
    line.write(0, 0);
    assert_eq!(line.read(1, 1_000), 1_100);
    assert_eq!(line.read(2, 1_000), 1_200);
    assert_eq!(line.read(3, 1_000), 1_210);
    // They have it, and so does who wrote it; that one may not write any more for long.
    assert_eq!((line.read(0, 2_000), line.read(1, 2_000)), (2_000, 2_000));
    assert_eq!(line.write(0, 1_049), 1_049);
    assert_eq!(line.write(0, 1_060), 1_220);
    assert_eq!(line.read(1, 1_169), 1_169);
    assert_eq!(line.read(1, 1_170), 1_325);
    assert_eq!(line.read(0, 3_000), 3_000);
}
