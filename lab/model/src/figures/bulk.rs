//! The figures of bulk transfer, of a round. 1 MB is 1,000,000 bytes, 1 GB 1,000,000,000.

use super::Figure;
use crate::document::BulkRound;

/// Plaintext that arrived in a second, all threads together.
pub const RATE: Figure<BulkRound> = Figure {
    name: "plaintext of all threads",
    head: "MB/s",
    unit: "MB/s",
    of_round: |round| mb_per_s(round.bytes, round.wall_ns),
};
/// CPU time of the process for what arrived.
pub const CPU: Figure<BulkRound> = Figure {
    name: "CPU per GB",
    head: "cpu ms/GB",
    unit: "ms",
    of_round: |round| per_byte(round, round.cpu_ns).map(|each| each * 1e3),
};
/// The part of it that checks of what arrived took; nothing if that is not known.
pub const CHECK: Figure<BulkRound> = Figure {
    name: "checks' CPU per GB",
    head: "check ms/GB",
    unit: "ms",
    of_round: |round| {
        let each = per_byte(round, round.check_ns)?;
        (each > 0.0).then_some(each * 1e3)
    },
};
/// Connections whose records more than one thread handled.
pub const MIGRATED: Figure<BulkRound> = Figure {
    name: "connections that changed threads",
    head: "migrated",
    unit: "",
    of_round: |round| Some(round.migrated as f64),
};
/// Times that the emulated lock was taken.
pub const LOCK_CALLS: Figure<BulkRound> = Figure {
    name: "lock calls",
    head: "lock calls",
    unit: "",
    of_round: |round| Some(round.lock_calls as f64),
};
/// MiB, seconds and MiB per second of a round: of a tool whose clock tells whole milliseconds.
#[must_use]
pub fn mib_in_whole_ms(round: &BulkRound) -> [f64; 3] {
    let mib = round.bytes as f64 / MIB;
    let seconds = round.wall_ns.div_ceil(1_000_000) as f64 / 1e3;
    [mib, seconds, mib / seconds]
}

fn mb_per_s(bytes: u64, ns: u64) -> Option<f64> {
    (ns > 0).then(|| bytes as f64 / ns as f64 * 1e3)
}

/// Nanoseconds for each byte, which is seconds for each GB.
fn per_byte(round: &BulkRound, ns: u64) -> Option<f64> {
    (round.bytes > 0).then(|| ns as f64 / round.bytes as f64)
}

const MIB: f64 = 1_048_576.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_is_what_its_name_says() {
        let round = BulkRound {
            bytes: 2_000,
            wall_ns: 500,
            cpu_ns: 6_200,
            check_ns: 200,
            migrated: 3,
            lock_calls: 8,
            ..BulkRound::default()
        };
        let values = [RATE, CPU, CHECK, MIGRATED].map(|figure| (figure.of_round)(&round));
        assert_eq!(values, [4_000.0, 3_100.0, 100.0, 3.0].map(Some));
        let empty = BulkRound::default();
        for figure in [RATE, CPU, CHECK] {
            assert_eq!((figure.of_round)(&empty), None, "{}", figure.name);
        }
    }
}
