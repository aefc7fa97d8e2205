//! What is refused in a recording that comes from anybody. Whether it can be replayed, the
//! replay says.

use super::{ByPart, Part, Recording};

/// That no text can change what a terminal shows of the others.
pub(super) fn texts(recording: &Recording) -> Result<(), String> {
    let Recording { schema, started, command, processor, stack, lines, locks, paths, .. } =
        recording;
    let of_all = [("schema", schema), ("started", started), ("processor", processor)];
    let of_stack = [&stack.name, &stack.version, &stack.path, &stack.build];
    let all = of_all
        .into_iter()
        .chain(command.iter().map(|word| ("command", word)))
        .chain(of_stack.map(|text| ("stack", text)))
        .chain(lines.iter().flat_map(|line| {
            let writers = line.writers.iter().map(|writer| ("writers", writer));
            [("class", &line.class), ("symbol", &line.symbol), ("owner", &line.owner)]
                .into_iter()
                .chain(writers)
        }))
        .chain(locks.iter().map(|lock| ("symbol", &lock.symbol)))
        .chain(paths.iter().flat_map(|node| [("function", &node.function), ("owner", &node.owner)]))
        .chain(recording.left_out.iter().map(|left_out| ("reason", &left_out.reason)));
    for (field, text) in all {
        if text.chars().any(char::is_control) {
            return Err(format!("{field} {text:?} has characters that are no text"));
        }
    }
    Ok(())
}

/// That every figure is one that can have been counted or measured.
pub(super) fn figures(recording: &Recording) -> Result<(), String> {
    let Recording { operations, instructions, native_ns, lines, locks, left_out, .. } = recording;
    if !(1..=OPERATIONS_MAX).contains(operations) {
        return Err(format!("operations is {operations}: from 1 to {OPERATIONS_MAX} can be"));
    }
    let by_part =
        |field: &'static str, of: &ByPart<f64>| Part::ALL.map(|part| (field, *of.of(part)));
    let of_lines = lines.iter().flat_map(|line| {
        [("updates", &line.updates), ("stores", &line.stores), ("loads", &line.loads)]
            .into_iter()
            .flat_map(|(field, of)| by_part(field, of))
    });
    let holds = locks.iter().flat_map(|lock| &lock.holds);
    let all = by_part("instructions", instructions)
        .into_iter()
        .chain(native_ns.iter().flat_map(|of| by_part("native_ns", of)))
        .chain(of_lines)
        .chain(holds.flat_map(|hold| [("holds", hold.calls), ("holds", hold.ns)]))
        .chain(left_out.iter().flat_map(|left_out| by_part("left_out", &left_out.writes)));
    for (field, figure) in all {
        if !(0.0..=FIGURE_MAX).contains(&figure) {
            return Err(format!("{field} has {figure}: from 0 to {FIGURE_MAX} can be"));
        }
    }
    Ok(())
}

/// That every call path exists, and ends.
pub(super) fn paths(recording: &Recording) -> Result<(), String> {
    let count = recording.paths.len();
    for (number, node) in recording.paths.iter().enumerate() {
        if node.caller.is_some_and(|caller| caller as usize >= number) {
            return Err(format!(
                "paths: node {number} is called by {:?}, not before it",
                node.caller
            ));
        }
    }
    match recording.steps.iter().find(|step| step.path as usize >= count.max(1)) {
        Some(step) => Err(format!("paths: a step names node {} of {count}", step.path)),
        None => Ok(()),
    }
}

/// The largest time in ns, and number of counts per operation.
const FIGURE_MAX: f64 = 1e12;
/// Handshakes of one thread.
const OPERATIONS_MAX: u64 = 1_000_000;
