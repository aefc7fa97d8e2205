//! Commands come as they were written, joined, or are broken.

use bytering::region::{self, Producer};
use proptest::prelude::*;

use super::*;
use crate::RING;
use crate::message::{CREDIT, END, FLAG_END, WRITE};

fn rig() -> (Producer, Commands) {
    let (producer, consumer) = region::ring(RING);
    (producer, Commands::new(consumer))
}

fn put(producer: &mut Producer, kind: u8, flags: u32, id: u64, payload: &[u8]) {
    let header = Header { payload_len: payload.len(), kind, flags, id };
    let padding = vec![0; header.padded_len() - payload.len()];
    assert!(producer.write_whole(&[&header.encode(), payload, &padding]));
}

#[test]
fn writes_of_one_connection_are_joined_up_to_their_end() {
    let (mut producer, mut commands) = rig();
    put(&mut producer, WRITE, 0, 7, b"one ");
    put(&mut producer, WRITE, FLAG_END, 7, b"two");
    put(&mut producer, WRITE, 0, 7, b"late");
    assert_eq!(commands.take(), Ok(Some((7, Command::Write(Some(Then::Wait))))));
    assert_eq!(commands.plain(), b"one two");
    assert_eq!(commands.take(), Ok(Some((7, Command::Write(None)))));
    assert_eq!(commands.plain(), b"late");
    assert_eq!(commands.take(), Ok(None));
    assert!(commands.may_sleep());
}

#[test]
fn another_connection_or_command_comes_by_itself() {
    let (mut producer, mut commands) = rig();
    put(&mut producer, WRITE, 0, 7, b"a");
    put(&mut producer, WRITE, 0, 8, b"b");
    put(&mut producer, CREDIT, 0, 8, &9u32.to_le_bytes());
    assert_eq!(commands.take(), Ok(Some((7, Command::Write(None)))));
    assert!(!commands.may_sleep(), "a header was read ahead");
    assert_eq!(commands.take(), Ok(Some((8, Command::Write(None)))));
    assert_eq!(commands.plain(), b"b");
    assert_eq!(commands.take(), Ok(Some((8, Command::Credit(9)))));
}

#[test]
fn no_more_is_joined_than_a_window() {
    let (mut producer, mut commands) = rig();
    let piece = vec![1; PAYLOAD_BYTES_MAX];
    for _ in 0..3 {
        put(&mut producer, WRITE, 0, 7, &piece);
    }
    for expected in [JOINED_BYTES_MAX, PAYLOAD_BYTES_MAX] {
        assert_eq!(commands.take(), Ok(Some((7, Command::Write(None)))));
        assert_eq!(commands.plain().len(), expected);
    }
}

#[test]
fn empty_writes_without_end_do_not_hold_the_lane_up() {
    let (mut producer, mut commands) = rig();
    for _ in 0..JOINED_MAX + 1 {
        put(&mut producer, WRITE, 0, 7, b"");
    }
    assert_eq!(commands.take(), Ok(Some((7, Command::Write(None)))));
    assert_eq!(commands.take(), Ok(Some((7, Command::Write(None)))));
    assert_eq!(commands.take(), Ok(None));
}

#[test]
fn half_a_message_is_broken() {
    let (mut producer, mut commands) = rig();
    producer.write(&Header { payload_len: 100, kind: WRITE, flags: 0, id: 1 }.encode());
    assert_eq!(commands.take(), Err(Broken));
    let (mut producer, mut commands) = rig();
    producer.write(&[0; 3]);
    assert_eq!(commands.take(), Err(Broken));
    let (mut producer, mut commands) = rig();
    put(&mut producer, END, 0, 1, &[0; 100]);
    assert_eq!(commands.take(), Err(Broken), "no command but a write has so much payload");
}

proptest! {
    #[test]
    fn any_bytes_are_commands_or_broken(bytes: Vec<u8>) {
        let (mut producer, mut commands) = rig();
        producer.write(&bytes);
        for _ in 0..=bytes.len() {
            match commands.take() {
                Ok(Some(_)) => prop_assert!(commands.plain().len() <= bytes.len()),
                Ok(None) | Err(Broken) => return Ok(()),
            }
        }
        prop_assert!(false, "more commands than bytes");
    }
}
