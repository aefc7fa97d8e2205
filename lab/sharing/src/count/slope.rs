//! What grows with the work of a program that marks no phases: [`grown`], over three [`Length`]s of
//! it, N, 2N and 3N. Whatever happens once, or by the clock, is the same in all of them; of the two
//! steps the smaller one counts, so that what chance adds to one of them does not.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sealane_lab_model::document::{
    ALLOCATOR, BySide, LockCounts, LockSite, SharedLine, SharedWrites,
};

use crate::count::{
    class,
    symbols::{Code, Symbols},
    trace::{Write, WrittenLine},
};

/// What was traced while a program did some of its work.
pub(super) struct Length {
    pub(super) shared: Vec<WrittenLine>,
    /// Those of all threads.
    pub(super) instructions: u64,
}

/// Per operation.
pub(super) struct Grown {
    pub(super) writes: SharedWrites,
    /// Acquisitions of Rust's own locks, which are atomics inside the binary: of those that two
    /// threads take, and that the line table tells.
    pub(super) own_locks: LockCounts,
}

/// How a writer is known in both lengths.
#[derive(Clone, Copy)]
pub(super) enum Writer {
    /// By its instruction: in one process that goes on, where any thread may do any work.
    Instruction,
    /// By thread and instruction: in two runs that begin alike. What one thread prepares for
    /// another is no sharing then.
    ThreadAndInstruction,
}

impl Writer {
    fn key(self, write: &Write) -> (usize, u64) {
        match self {
            Self::Instruction => (0, write.pc),
            Self::ThreadAndInstruction => (write.thread, write.pc),
        }
    }
}

/// What operations wrote to shared lines, by each of the `step` ones by which lengths differ. A
/// line is shared if at least two threads write it more often the more work there is. How much is
/// written is told by instruction alone: how the work is dealt to threads may differ.
pub(super) fn grown(
    lengths: [&[WrittenLine]; LENGTHS],
    step: f64,
    writer: Writer,
    symbols: &Symbols,
) -> Grown {
    let by_writer = lengths.map(|lines| sums(lines, writer));
    let by_instruction = lengths.map(|lines| sums(lines, Writer::Instruction));
    let growing = |write: &Write| {
        let of = |sums: &[Sums; LENGTHS], writer: Writer| {
            sums.each_ref().map(|sums| of_key(sums, writer.key(write)))
        };
        let step_of_all = smaller_step(of(&by_instruction, Writer::Instruction));
        let [short, _, long] = of(&by_writer, writer);
        let least = GROWTH_MIN * step;
        step_of_all as f64 >= least && long.saturating_sub(short) as f64 >= least
    };
    let lines = lengths.map(|lines| of_growing(lines, &growing));
    let sums = lines.each_ref().map(|lines| sums(lines, Writer::Instruction));
    let weight = |write: &Write| {
        let key = Writer::Instruction.key(write);
        let counts = sums.each_ref().map(|sums| of_key(sums, key));
        let share = write.count as f64 / counts[LENGTHS - 1] as f64;
        smaller_step(counts) as f64 / step * share
    };
    let [.., lines] = &lines;
    let mut grouped: BTreeMap<(String, String, String), SharedLine> = BTreeMap::new();
    let mut own_locks: BTreeMap<(String, &'static str, String), f64> = BTreeMap::new();
    for line in lines {
        let mut named = class::named(line, symbols, 1.0);
        named.writes = BySide { server: line.writes.iter().map(weight).sum(), client: 0.0 };
        for write in &line.writes {
            let code = symbols.code(write.pc);
            if let Some(kind) = own_lock(&code) {
                let lock = format!("{} ({})", named.symbol, named.owner);
                let site = (lock, kind, class::told(&code.functions));
                *own_locks.entry(site).or_default() += weight(write);
            }
        }
        let key = (named.class.clone(), named.symbol.clone(), named.owner.clone());
        match grouped.get_mut(&key) {
            Some(same) => same.writes.server += named.writes.server,
            None => _ = grouped.insert(key, named),
        }
    }
    Grown { writes: summed(grouped.into_values().collect()), own_locks: sites(own_locks) }
}

/// The smaller of the two steps between what three lengths counted.
pub(super) fn smaller_step([short, middle, long]: [u64; LENGTHS]) -> u64 {
    middle.saturating_sub(short).min(long.saturating_sub(middle))
}

/// Writes by writer.
type Sums = HashMap<(usize, u64), u64>;

fn of_key(sums: &Sums, key: (usize, u64)) -> u64 {
    sums.get(&key).copied().unwrap_or_default()
}

fn sums(lines: &[WrittenLine], writer: Writer) -> Sums {
    let mut sums = Sums::new();
    for write in lines.iter().flat_map(|line| &line.writes) {
        *sums.entry(writer.key(write)).or_default() += write.count;
    }
    sums
}

/// The lines to which two threads write what is `growing`, with these writes only.
fn of_growing(lines: &[WrittenLine], growing: &impl Fn(&Write) -> bool) -> Vec<WrittenLine> {
    let of_growing = |line: &WrittenLine| {
        let writes = line.writes.iter().filter(|write| growing(write));
        WrittenLine { address: line.address, writes: writes.copied().collect(), met: line.met }
    };
    lines.iter().map(of_growing).filter(WrittenLine::has_writers).collect()
}

/// The most written one first, without those that chance wrote.
fn summed(mut lines: Vec<SharedLine>) -> SharedWrites {
    lines.iter_mut().for_each(|line| line.writes.server = to_hundredths(line.writes.server));
    lines.retain(|line| line.writes.server > 0.0);
    lines.sort_by(|a, b| b.writes.server.total_cmp(&a.writes.server));
    let mut writes = SharedWrites::default();
    for line in &lines {
        let sum = if line.class == ALLOCATOR { &mut writes.allocator } else { &mut writes.total };
        sum.server += line.writes.server;
    }
    for sum in [&mut writes.allocator, &mut writes.total] {
        sum.server = to_hundredths(sum.server);
    }
    writes.lines = lines;
    writes
}

fn sites(calls: BTreeMap<(String, &'static str, String), f64>) -> LockCounts {
    let mut counts = LockCounts::default();
    for ((lock, kind, taker), calls) in calls {
        let server = to_hundredths(calls);
        let sum = match kind {
            READ => &mut counts.read,
            WRITE => &mut counts.write,
            _ => &mut counts.mutex,
        };
        sum.server += server;
        let calls = BySide { server, client: 0.0 };
        counts.sites.push(LockSite { lock, kind: kind.to_owned(), calls, path: vec![taker] });
    }
    let locks: BTreeSet<&str> = counts.sites.iter().map(|site| site.lock.as_str()).collect();
    counts.shared = locks.len() as u64;
    counts
}

/// Threads take turns under valgrind, and now and then one is stopped while it holds a lock: what
/// the others write while they wait is chance, and less than this.
pub(super) fn to_hundredths(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}

/// How an instruction takes a lock of Rust's standard library, if it does. Waiting and giving back
/// are other functions.
fn own_lock(code: &Code) -> Option<&'static str> {
    let taking = code.functions.iter().filter(|_| code.atomic).find_map(|function| {
        let (_, lock) = LOCK_FILES.iter().find(|(file, _)| function.file.contains(file))?;
        let name = last_name(&function.name);
        lock.iter().find(|(taking, _)| **taking == name)
    });
    taking.map(|(_, kind)| *kind)
}

/// `lock`, of `<std::sys::sync::mutex::futex::Mutex>::lock` as of `lock<u64>`.
fn last_name(path: &str) -> String {
    let mut depth = 0_usize;
    let mut outside = String::new();
    for letter in path.chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            _ if depth == 0 => outside.push(letter),
            _ => {}
        }
    }
    outside.trim_end_matches(':').rsplit("::").next().unwrap_or_default().to_owned()
}

/// Writes per operation of one instruction.
const GROWTH_MIN: f64 = 0.001;
type Taking = (&'static str, &'static str);

const LOCK_FILES: [(&str, &[Taking]); 2] = [
    ("/std/src/sys/sync/mutex/", &[("lock", MUTEX), ("try_lock", MUTEX)]),
    (
        "/std/src/sys/sync/rwlock/",
        &[("read", READ), ("try_read", READ), ("write", WRITE), ("try_write", WRITE)],
    ),
];
/// N, 2N and 3N.
pub(super) const LENGTHS: usize = 3;
const MUTEX: &str = "mutex";
const READ: &str = "read";
const WRITE: &str = "write";

#[cfg(test)]
mod tests {
    use sealane_lab_harness::phase::Phase;

    use super::*;
    use crate::count::symbols::Function;

    const A: u64 = 0x10_0000;
    const B: u64 = 0x20_0000;
    const INIT: u64 = 0x50;
    const LOOP: u64 = 0x60;

    fn line(address: u64, writes: &[(usize, u64, u64)]) -> WrittenLine {
        let write = |(thread, pc, count): &(usize, u64, u64)| {
            let write = Write::of_phase(Phase::Server, *count);
            Write { thread: *thread, pc: *pc, address, ..write }
        };
        WrittenLine { address, writes: writes.iter().map(write).collect(), met: true }
    }

    fn total(lengths: &[impl AsRef<[WrittenLine]>; LENGTHS], step: f64, writer: Writer) -> f64 {
        let lengths = lengths.each_ref().map(AsRef::as_ref);
        grown(lengths, step, writer, &Symbols::new("")).writes.total.server
    }

    #[test]
    fn what_two_threads_write_more_often_is_shared() {
        let of = |each: u64| [line(A, &[(1, INIT, 1), (2, LOOP, each), (3, LOOP, each)])];
        for writer in [Writer::Instruction, Writer::ThreadAndInstruction] {
            let counted = |each: [u64; 3]| total(&each.map(of), 20.0, writer);
            assert!((counted([10, 20, 30]) - 1.0).abs() < 1e-9);
            assert!(counted([10, 10, 10]).abs() < 1e-9, "once only");
            assert!(counted([10, 30, 30]).abs() < 1e-9, "by chance");
        }
    }

    #[test]
    fn work_that_is_dealt_unevenly_is_counted_whole() {
        let of = |(a, b): (u64, u64)| [line(A, &[(2, LOOP, a), (3, LOOP, b)])];
        let lengths = [(10, 10), (18, 22), (30, 30)].map(of);
        for writer in [Writer::Instruction, Writer::ThreadAndInstruction] {
            assert!((total(&lengths, 20.0, writer) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn what_one_thread_prepared_for_another_is_not_shared() {
        let of = |each: u64| {
            [line(A, &[(1, INIT, 1), (2, LOOP, each)]), line(B, &[(1, INIT, 1), (3, LOOP, each)])]
        };
        let lengths = [10, 20, 30].map(of);
        assert!(total(&lengths, 20.0, Writer::ThreadAndInstruction).abs() < 1e-9);
    }

    #[test]
    fn a_thread_that_got_no_more_work_the_second_time_still_shares() {
        let lengths = [
            [line(A, &[(2, LOOP, 6), (3, LOOP, 2)])],
            [line(B, &[(2, LOOP, 6), (3, LOOP, 10)])],
            [line(B, &[(2, LOOP, 20), (3, LOOP, 4)])],
        ];
        assert!((total(&lengths, 8.0, Writer::Instruction) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn locks_inside_a_rust_binary_are_known_by_their_file_and_function() {
        let code = |name: &str, file: &str, atomic| Code {
            owner: "program".into(),
            functions: vec![
                Function { name: "compare_exchange<u32>".into(), ..Function::default() },
                Function { name: name.into(), file: file.into(), line: 1 },
            ],
            atomic,
        };
        let mutex = "/rustc/1/library/std/src/sys/sync/mutex/futex.rs";
        let rwlock = "/rustc/1/library/std/src/sys/sync/rwlock/futex.rs";
        assert_eq!(own_lock(&code("lock", mutex, true)), Some(MUTEX));
        for name in ["std::sys::x::Mutex::lock", "<std::sys::x::Mutex>::lock", "lock::<u32>"] {
            assert_eq!(own_lock(&code(name, mutex, true)), Some(MUTEX), "{name}");
        }
        assert_eq!(own_lock(&code("read", rwlock, true)), Some(READ));
        assert_eq!(own_lock(&code("write", rwlock, true)), Some(WRITE));
        assert_eq!(own_lock(&code("unlock", mutex, true)), None);
        assert_eq!(own_lock(&code("lock_contended", mutex, true)), None);
        assert_eq!(own_lock(&code("lock", mutex, false)), None, "x86-64 tells by the instruction");
        assert_eq!(own_lock(&code("lock", "/home/x/src/lock.rs", true)), None);
    }
}
