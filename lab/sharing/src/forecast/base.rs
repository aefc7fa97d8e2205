//! What a forecast starts from: [`measured`], the time of one operation of a thread that waits for
//! nobody, by part.

use sealane_lab_model::{
    document::Base,
    recording::{ByPart, Part, Recording},
};

/// Times as measured when it was recorded, else as its instructions let expect.
pub(crate) fn measured(recording: &Recording) -> (ByPart<f64>, Base) {
    let (ns, source) = match recording.native_ns {
        Some(native) => (
            native,
            format!("measured with one thread, without instruments, on {}", processor(recording)),
        ),
        None => (
            of_instructions(recording),
            format!("not measured: {NS_PER_INSTRUCTION} ns for each instruction counted"),
        ),
    };
    (ns, described(&ns, source))
}

/// In the document's form.
pub(crate) fn described(ns: &ByPart<f64>, source: String) -> Base {
    Base {
        server_ns: ns.server,
        client_ns: ns.client,
        untimed_ns: ns.server_setup + ns.client_setup + ns.outside,
        source,
    }
}

/// `total` of `parts` dealt out: making and dropping a connection takes what its instructions take,
/// the handshake, which computes with wide numbers, takes the rest.
pub(crate) fn dealt(recording: &Recording, total: f64, parts: &[Part], into: &mut ByPart<f64>) {
    let expected = of_instructions(recording);
    let of = |part: Part| matches!(part, Part::ServerSetup | Part::ClientSetup);
    let setup: f64 = parts.iter().filter(|part| of(**part)).map(|part| expected.of(*part)).sum();
    // A recording of something that is nearly all setup leaves the handshake half.
    let shrunk = if setup > total / 2.0 { total / 2.0 / setup } else { 1.0 };
    for part in parts {
        *into.of_mut(*part) =
            if of(*part) { expected.of(*part) * shrunk } else { total - setup * shrunk };
    }
}

/// What instructions that wait for nothing take.
pub(crate) fn of_instructions(recording: &Recording) -> ByPart<f64> {
    let mut ns = ByPart::default();
    for part in Part::ALL {
        *ns.of_mut(part) = recording.instructions.of(part) * NS_PER_INSTRUCTION;
    }
    ns
}

fn processor(recording: &Recording) -> &str {
    if recording.processor.is_empty() { "a processor not named" } else { &recording.processor }
}

/// One and a third instructions per cycle at 3 GHz: ordinary code, neither wide arithmetic nor
/// missing caches.
const NS_PER_INSTRUCTION: f64 = 0.25;
