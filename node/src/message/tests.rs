//! Messages are read as they were written.

use proptest::prelude::*;

use super::*;

fn header(kind: u8, flags: u32, payload: &[u8]) -> Header {
    Header { payload_len: payload.len(), kind, flags, id: 7 }
}

fn decoded(kind: u8, flags: u32, payload: &[u8]) -> Result<Command, Broken> {
    Command::decode(header(kind, flags, payload), payload)
}

#[test]
fn the_four_words_stand_where_javascript_looks() {
    let header = Header { payload_len: 5, kind: 1, flags: 3, id: 0x0102_0304_0506_0708 };
    let words: Vec<u32> = header
        .encode()
        .chunks(4)
        .map(|word| u32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words, [5, 0x301, 0x0506_0708, 0x0102_0304]);
    assert_eq!(header.padded_len(), 16);
}

#[test]
fn each_command_is_read() {
    let seven = 7u32.to_le_bytes();
    assert_eq!(decoded(WRITE, 0, b"x"), Ok(Command::Write(None)));
    assert_eq!(decoded(WRITE, FLAG_END, b""), Ok(Command::Write(Some(Then::Wait))));
    assert_eq!(decoded(WRITE, 3, b""), Ok(Command::Write(Some(Then::Destroy))));
    assert_eq!(decoded(END, 0, b""), Ok(Command::End(Then::Wait)));
    assert_eq!(decoded(END, FLAG_DESTROY, b""), Ok(Command::End(Then::Destroy)));
    assert_eq!(decoded(DESTROY, 0, b""), Ok(Command::Destroy));
    assert_eq!(decoded(CREDIT, 0, &seven), Ok(Command::Credit(7)));
    assert_eq!(decoded(CHOOSE, 0, &u64::MAX.to_le_bytes()), Ok(Command::Choose(CHOICE_REFUSE)));
    assert_eq!(decoded(RESET, 0, b""), Ok(Command::Reset));
    assert_eq!(decoded(TAKEN, 0, &seven), Ok(Command::Taken(7)));
}

#[test]
fn an_option_is_read_with_its_value() {
    let option = |what: u32, value: u32| {
        let payload = [what.to_le_bytes(), value.to_le_bytes()].concat();
        decoded(OPTION, 0, &payload)
    };
    assert_eq!(option(1, 1), Ok(Command::Option(SocketOption::NoDelay(true))));
    assert_eq!(option(1, 0), Ok(Command::Option(SocketOption::NoDelay(false))));
    assert_eq!(option(2, 0), Ok(Command::Option(SocketOption::KeepAlive(None))));
    assert_eq!(option(2, 61), Ok(Command::Option(SocketOption::KeepAlive(Some(60)))));
    assert_eq!(option(3, 0), Err(Broken));
}

#[test]
fn what_is_no_command_is_broken() {
    for (kind, payload) in [(0, &b""[..]), (9, b""), (CREDIT, b"xyz"), (CHOOSE, b"1234"), (8, b"")]
    {
        assert_eq!(decoded(kind, 0, payload), Err(Broken), "kind {kind}");
    }
    let too_long = u32::try_from(PAYLOAD_BYTES_MAX + 1).unwrap();
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(&too_long.to_le_bytes());
    assert_eq!(Header::decode(bytes), Err(Broken));
}

#[test]
#[cfg(not(feature = "faults"))]
fn nothing_that_is_shipped_panics_when_told_to() {
    assert_eq!(decoded(PANIC, 0, &[0]), Err(Broken));
}

proptest! {
    #[test]
    fn a_header_is_read_as_it_was_written(
        payload_len in 0..=PAYLOAD_BYTES_MAX,
        kind: u8,
        flags in 0u32..1 << 24,
        id: u64,
    ) {
        let header = Header { payload_len, kind, flags, id };
        prop_assert_eq!(Header::decode(header.encode()), Ok(header));
        prop_assert_eq!(header.padded_len() % HEADER_BYTES, 0);
    }

    #[test]
    fn any_bytes_are_a_command_or_broken(bytes: [u8; HEADER_BYTES], payload: Vec<u8>) {
        if let Ok(header) = Header::decode(bytes) {
            prop_assert!(header.payload_len <= PAYLOAD_BYTES_MAX);
            let _ = Command::decode(header, &payload);
        }
    }
}
