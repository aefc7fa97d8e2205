//! The ring from JavaScript to a lane: any bytes in it are commands, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_node::RING;
use sealane_node::bytering::region;
use sealane_node::commands::{Commands, JOINED_BYTES_MAX};
use sealane_node::message::{Command, HEADER_BYTES};

fuzz_target!(|bytes: &[u8]| {
    // The first byte is the size of the lumps of the others, in units of a header.
    let Some((&lump, bytes)) = bytes.split_first() else { return };
    let (mut producer, consumer) = region::ring(RING);
    let mut commands = Commands::new(consumer);
    for lump in bytes.chunks(HEADER_BYTES * (usize::from(lump) + 1)) {
        assert_eq!(producer.write(lump), lump.len(), "the ring is larger than any input");
        // Each command takes a header at least, and one may have been read ahead.
        for _ in 0..=lump.len() / HEADER_BYTES + 1 {
            match commands.take() {
                Ok(Some((_, Command::Write(_)))) => {
                    assert!(commands.plain().len() <= bytes.len().min(JOINED_BYTES_MAX));
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                // A lane reads no further.
                Err(_) => return,
            }
        }
    }
});
