//! Recordings of what a thread does, as JSON: any bytes are refused, or are a recording that comes
//! back as it was, and that the replay refuses or plays.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_lab_model::recording::{ByPart, Recording};
use sealane_lab_sharing::replay::{Machine, Question, replay};

fuzz_target!(|bytes: &[u8]| {
    let Ok(recording) = Recording::unpacked(bytes) else { return };
    let written = serde_json::to_vec(&recording).expect("JSON");
    assert_eq!(Recording::unpacked(&written[..]), Ok(recording.clone()));
    let native_ns = ByPart { server: 1e3, client: 1e3, ..ByPart::default() };
    let question = Question {
        recording: &recording,
        base_ns: recording.native_ns.unwrap_or(native_ns),
        machine: Machine { transfer_ns: 100.0 },
        threads: 3,
        without: &[],
        seed: 1,
    };
    let Ok(answer) = replay(&question) else { return };
    assert!(answer.ns.server.is_finite() && answer.ns.server >= question.base_ns.server);
});
