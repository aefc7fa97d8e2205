//! The figures of bulk transfer, of a round. 1 MB is 1,000,000 bytes, 1 GB 1,000,000,000.

use super::Figure;
use crate::document::{BulkEnds, BulkRound, BulkThread};

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
/// In memory: what a thread would send if it did nothing else.
pub const SEND: Figure<BulkRound> =
    alone("a sender alone, by wall time", "send", |round| of_end(round, |ends| ends.send_ns));
/// In memory: what a thread would receive if it did nothing else.
pub const RECEIVE: Figure<BulkRound> =
    alone("a receiver alone, by wall time", "receive", |round| {
        of_end(round, |ends| ends.receive_ns)
    });
/// The same of the sender by CPU time.
pub const SEND_CPU: Figure<BulkRound> = alone("a sender alone, by CPU time", "send/cpu", |round| {
    of_end(round, |ends| ends.send_cpu_ns)
});
/// The same of the receiver by CPU time.
pub const RECEIVE_CPU: Figure<BulkRound> =
    alone("a receiver alone, by CPU time", "receive/cpu", |round| {
        of_end(round, |ends| ends.receive_cpu_ns)
    });
/// In memory: the part of the threads' time that neither end had.
pub const REST: Figure<BulkRound> = Figure {
    name: "wall time of neither end",
    head: "rest",
    unit: "%",
    of_round: |round| {
        let BulkEnds { send_ns, receive_ns, other_ns, .. } = round.ends.as_ref()?;
        let all = send_ns + receive_ns + other_ns;
        (all > 0).then(|| *other_ns as f64 / all as f64 * 1e2)
    },
};
/// In memory: how evenly threads carried; 1 is even, and one alone does not tell.
pub const UNEVENNESS: Figure<BulkRound> = Figure {
    name: "busiest thread / mean",
    head: "uneven",
    unit: "",
    of_round: |round| {
        let threads = &round.ends.as_ref()?.per_thread;
        let sum: u64 = threads.iter().map(|thread| thread.bytes).sum();
        let most = threads.iter().map(|thread| thread.bytes).max()?;
        let mean = sum as f64 / threads.len() as f64;
        (threads.len() > 1 && mean > 0.0).then(|| most as f64 / mean)
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
/// What a table has in a row for both ends in memory.
pub const ENDS: [Figure<BulkRound>; 4] = [SEND, RECEIVE, SEND_CPU, RECEIVE_CPU];

/// MiB per second of each thread that has some of the time that `time` picks out: the rates of
/// other tools.
#[must_use]
pub fn mib_per_s_of_threads(ends: &BulkEnds, time: fn(&BulkThread) -> u64) -> Vec<f64> {
    let rate = |thread: &BulkThread| thread.bytes as f64 / MIB / (time(thread) as f64 / 1e9);
    ends.per_thread.iter().filter(|thread| time(thread) > 0).map(rate).collect()
}

/// MiB, seconds and MiB per second of a round: of a tool whose clock tells whole milliseconds.
#[must_use]
pub fn mib_in_whole_ms(round: &BulkRound) -> [f64; 3] {
    let mib = round.bytes as f64 / MIB;
    let seconds = round.wall_ns.div_ceil(1_000_000) as f64 / 1e3;
    [mib, seconds, mib / seconds]
}

const fn alone(
    name: &'static str,
    head: &'static str,
    of_round: fn(&BulkRound) -> Option<f64>,
) -> Figure<BulkRound> {
    Figure { name, head, unit: "MB/s", of_round }
}

fn of_end(round: &BulkRound, ns: fn(&BulkEnds) -> u64) -> Option<f64> {
    mb_per_s(round.bytes, ns(round.ends.as_ref()?))
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
        let thread = |bytes| BulkThread { bytes, send_ns: 1, receive_ns: 1 };
        let ends = BulkEnds {
            send_ns: 500,
            receive_ns: 400,
            other_ns: 100,
            send_cpu_ns: 2_000,
            receive_cpu_ns: 4_000,
            per_thread: vec![thread(1_500), thread(500)],
        };
        let round = BulkRound {
            bytes: 2_000,
            wall_ns: 500,
            cpu_ns: 6_200,
            check_ns: 200,
            migrated: 3,
            lock_calls: 8,
            ends: Some(ends),
            ..BulkRound::default()
        };
        let figures =
            [RATE, CPU, CHECK, SEND, RECEIVE, SEND_CPU, RECEIVE_CPU, REST, UNEVENNESS, MIGRATED];
        let values = figures.map(|figure| (figure.of_round)(&round));
        let expected = [4_000.0, 3_100.0, 100.0, 4_000.0, 5_000.0, 1_000.0, 500.0, 10.0, 1.5, 3.0];
        assert_eq!(values, expected.map(Some));
        let still = BulkThread { send_ns: 0, ..thread(7) };
        let ends = BulkEnds { per_thread: vec![still, thread(1 << 20)], ..BulkEnds::default() };
        let rates = mib_per_s_of_threads(&ends, |thread| thread.send_ns);
        assert_eq!(rates.iter().map(|rate| rate.round()).collect::<Vec<_>>(), [1e9]);
        let empty = BulkRound::default();
        for figure in [RATE, CPU, CHECK, SEND, REST, UNEVENNESS] {
            assert_eq!((figure.of_round)(&empty), None, "{}", figure.name);
        }
    }
}
