//! What a thread does at a moment: [`state`]. It is ready, or stopped, or sleeps in a system call;
//! what it waits for in `futex` is told by the form of the call, as far as that goes.

use std::path::Path;

use super::{
    names::{
        ASLEEP, DISK, FILE_TABLE, FUTEX, MEMORY_MAP, MUTEX, MUTEX_OR_CONDITION, READY, STOPPED,
        call_name,
    },
    target::{Stat, text_of},
};

/// What thread `tid` does at this moment, in a word; `None` if it has ended.
pub(super) fn state(pid: u32, tid: u32, hidden: &mut bool) -> Option<String> {
    state_in(&format!("/proc/{pid}/task/{tid}"), hidden)
}

fn state_in(folder: &str, hidden: &mut bool) -> Option<String> {
    let stat = Stat::parse(&text_of(&format!("{folder}/stat"))?)?;
    match stat.state {
        'R' => return Some(READY.into()),
        'T' => return Some(STOPPED.into()),
        'Z' | 'X' => return None,
        _ => {}
    }
    let call = text_of(&format!("{folder}/syscall")).map(|line| slept_in(&line));
    if stat.state == 'D' {
        // Whoever changes the memory map waits so for those who do the same, and whoever needs a
        // descriptor until a table that others share has grown.
        let place = match call.as_deref() {
            Some(call) if MAP_CALLS.contains(&call) => MEMORY_MAP,
            Some(call) if TABLE_CALLS.contains(&call) => FILE_TABLE,
            _ => DISK,
        };
        return Some(place.into());
    }
    // Who has just ended has nothing to hide.
    if call.is_some() || !Path::new(folder).exists() {
        return call;
    }
    *hidden = true;
    let place = text_of(&format!("{folder}/wchan")).unwrap_or_default();
    Some(kernel_place(&place).into())
}

/// What a line of `/proc/PID/task/TID/syscall` tells: number, six arguments, the end of the stack
/// and the place in the program, or `running`.
fn slept_in(line: &str) -> String {
    let mut fields = line.split_whitespace();
    let number = match fields.next() {
        // It went on while we looked.
        Some("running") => return READY.into(),
        Some(number) => number.parse::<u64>(),
        None => return ASLEEP.into(),
    };
    let Ok(number) = number else { return ASLEEP.into() };
    let name = call_name(number);
    let fields: Vec<u64> = fields
        .map_while(|field| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok())
        .collect();
    match (name.as_str(), &fields[..]) {
        (FUTEX, [word, operation, value, timeout, _, _, stack, _]) => {
            waits_for(*word, *operation, *value & LOW, *timeout, *stack).into()
        }
        _ => name,
    }
}

/// What the arguments of a `futex` tell. A mutex of glibc waits while its word is 2, one of musl
/// while it holds its owner's number under [`WAITERS`]; glibc's read-write locks wait for 2 or 3
/// and Rust's mutex for 2, by the call with a mask, in which conditions of both wait too, for a
/// word that counts up. A parked thread waits for 0 or -1.
fn waits_for(word: u64, operation: u64, value: u64, timeout: u64, stack: u64) -> &'static str {
    // musl's condition waits for a 2 in the frame of the function that waits; and who waits for a
    // lock does so until it gets it.
    if timeout != 0 || word.wrapping_sub(stack) < FRAME_BYTES {
        return FUTEX;
    }
    match (operation & OPERATION, value) {
        (WAIT, 2 | 3) => MUTEX,
        (WAIT | WAIT_BITSET, value) if value > WAITERS && value < LOW => MUTEX,
        (WAIT_BITSET, 2 | 3) => MUTEX_OR_CONDITION,
        _ => FUTEX,
    }
}

/// The kernel function that a thread sleeps in, as the call that leads there.
fn kernel_place(place: &str) -> &'static str {
    match place {
        _ if place.contains("futex") => FUTEX,
        _ if place.contains("ep_poll") => "epoll_wait",
        _ if place.contains("csk_accept") => "accept",
        _ if place.contains("poll_schedule") || place.contains("do_select") => "poll",
        _ if place.contains("sigsuspend") => "rt_sigsuspend",
        _ if place.contains("nanosleep") => "nanosleep",
        _ => ASLEEP,
    }
}

/// What a function keeps between its stack's end and its own variables, at most.
const FRAME_BYTES: u64 = 512;
/// The word of a futex has so many bits.
const LOW: u64 = 0xffff_ffff;
const MAP_CALLS: [&str; 6] = ["brk", "madvise", "mmap", "mprotect", "mremap", "munmap"];
/// Those that make a descriptor and wait for no storage.
const TABLE_CALLS: [&str; 12] = [
    "accept",
    "accept4",
    "dup",
    "dup2",
    "dup3",
    "epoll_create1",
    "eventfd2",
    "fcntl",
    "pipe2",
    "socket",
    "socketpair",
    "timerfd_create",
];
const OPERATION: u64 = 127;
const WAIT: u64 = 0;
const WAIT_BITSET: u64 = 9;
/// The bit that says that somebody waits.
const WAITERS: u64 = 0x8000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    /// A line as the kernel writes it: word, operation, value, timeout.
    fn slept([word, operation, value, timeout]: [&str; 4]) -> String {
        let futex = (0..500).find(|number| call_name(*number) == FUTEX).unwrap();
        let stack = "0x7f1805d6fdc0";
        slept_in(&format!("{futex} {word} {operation} {value} {timeout} 0x0 0x0 {stack} 0x2"))
    }

    #[test]
    fn a_line_tells_the_call_and_a_mutex_by_its_form() {
        let glibc = slept(["0x7f00", "0x80", "0x2", "0x0"]);
        assert_eq!(glibc, MUTEX);
        let musl = slept(["0x40d0e4", "0x80", "0xffffffff80000010", "0x0"]);
        assert_eq!(musl, MUTEX);
        for (operation, value) in [("0x89", "0x2"), ("0x189", "0x2"), ("0x189", "0x3")] {
            let said = slept(["0x7f00", operation, value, "0x0"]);
            assert_eq!(said, MUTEX_OR_CONDITION, "{operation} {value}");
        }
        for (line, what) in [
            (["0x7f00", "0x89", "0xffffffff", "0x0"], "a parked thread of Rust"),
            (["0x7f00", "0x189", "0x0", "0x0"], "a condition of glibc"),
            (["0x7f1805d6fe6c", "0x80", "0x2", "0x0"], "a condition of musl, in its own frame"),
            (["0x7f00", "0x89", "0x2", "0x7ffe0000"], "a condition with a limit"),
            (["0x7f00", "0x80", "0x80000000", "0x0"], "a semaphore of musl"),
            (["0x7f00", "0x81", "0x2", "0x0"], "it wakes, and waits for nothing"),
        ] {
            assert_eq!(slept(line), FUTEX, "{what}");
        }
        assert_eq!(slept_in("running\n"), READY);
        assert_eq!(slept_in("-1 0x7ffe 0x7f00\n"), ASLEEP);
        assert_eq!(slept_in(""), ASLEEP);
    }

    #[test]
    fn a_thread_that_sleeps_for_a_mutex_of_rust_is_seen_so() {
        use std::sync::{Arc, Mutex};
        let mutex = Arc::new(Mutex::new(()));
        let held = mutex.lock().unwrap();
        let other = Arc::clone(&mutex);
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            send.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            drop(other.lock().unwrap());
        });
        let tid = u32::try_from(receive.recv().unwrap()).unwrap();
        let mut hidden = false;
        while state(std::process::id(), tid, &mut hidden).unwrap() != MUTEX_OR_CONDITION {
            assert!(!hidden);
            std::thread::yield_now();
        }
        drop(held);
        thread.join().unwrap();
    }

    #[test]
    fn what_is_hidden_is_told_as_far_as_the_kernels_function_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let stat = "12 (a) S 1 12 12 0 -1 4194560 9 9 9 9 31 32 0 0 20 0 4 0 777 1 1";
        std::fs::write(folder.path().join("stat"), stat).unwrap();
        let mut hidden = false;
        assert_eq!(state_in(path, &mut hidden).as_deref(), Some(ASLEEP));
        assert!(hidden);
        std::fs::write(folder.path().join("wchan"), "ep_poll").unwrap();
        assert_eq!(state_in(path, &mut hidden).as_deref(), Some("epoll_wait"));
        let mut hidden = false;
        std::fs::write(folder.path().join("syscall"), "running").unwrap();
        assert_eq!(state_in(path, &mut hidden).as_deref(), Some(READY));
        assert!(!hidden);
    }

    #[test]
    fn who_waits_in_the_kernel_is_told_by_the_call() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let stat = "12 (a) D 1 12 12 0 -1 4194560 9 9 9 9 31 32 0 0 20 0 4 0 777 1 1";
        std::fs::write(folder.path().join("stat"), stat).unwrap();
        for (call, expected) in [
            ("accept4", FILE_TABLE),
            ("socket", FILE_TABLE),
            ("munmap", MEMORY_MAP),
            ("read", DISK),
        ] {
            let number = (0..500).find(|number| call_name(*number) == call).unwrap();
            let line = format!("{number} 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffc 0x7f00");
            std::fs::write(folder.path().join("syscall"), line).unwrap();
            assert_eq!(state_in(path, &mut false).as_deref(), Some(expected), "{call}");
        }
    }

    #[test]
    fn a_stopped_process_waits_for_nobody() {
        use rustix::process::{Pid, Signal, kill_process};
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        let mut hidden = false;
        while state(child.id(), child.id(), &mut hidden).unwrap() != STOPPED {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
