//! What lanes may ask of the kernel: [`CALLS`], to which a [`Filter`] holds the thread that
//! installs it (seccomp).
//!
//! The kernel answers any other call as if it had none of that number: a library which tries a
//! newer call goes on with the older one, and nobody is cut off by one that was forgotten here.

use std::io;
use std::thread;

use rustix::io::Errno;
use sealane_config::Process;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

/// A filter that threads can install.
#[derive(Clone, Debug)]
pub struct Filter(BpfProgram);

impl Filter {
    /// The filter of lanes, if `process` has them held to one.
    ///
    /// # Errors
    /// It does not, or there is none for this processor.
    pub fn wanted(process: &Process) -> Result<Self, String> {
        if process.sandbox { Self::of_lanes() } else { Err(OFF.to_owned()) }
    }

    fn of_lanes() -> Result<Self, String> {
        let of_this = TargetArch::try_from(std::env::consts::ARCH);
        let arch = of_this.map_err(|_| UNKNOWN_PROCESSOR.to_owned())?;
        let calls = CALLS.iter().map(|call| (call.number, Vec::new())).collect();
        let others = SeccompAction::Errno(NOT_IMPLEMENTED);
        let filter = SeccompFilter::new(calls, others, SeccompAction::Allow, arch);
        let program = filter.and_then(BpfProgram::try_from);
        program.map(Self).map_err(|error| error.to_string())
    }

    /// Holds this thread to it, for good. A process that may gain rights cannot.
    ///
    /// # Errors
    /// The kernel has no filters, or whoever started this process refuses them.
    pub fn install(&self) -> Result<(), String> {
        apply_filter(&self.0).map_err(|error| match error {
            seccompiler::Error::Seccomp(error) => refusal(&error),
            error => error.to_string(),
        })
    }
}

/// What is to be said of lanes if `process` has them held to a filter and here they cannot be.
pub fn warning(process: &Process) -> Option<String> {
    if !process.sandbox {
        return None;
    }
    // A thread that ends takes it away.
    let tried = Filter::of_lanes().and_then(|filter| {
        let thread = thread::Builder::new().spawn(move || filter.install());
        let thread = thread.map_err(|error| format!("cannot try it: {error}"))?;
        thread.join().unwrap_or_else(|_| Err("the thread that tried it panicked".to_owned()))
    });
    tried.err().map(|why| unfiltered(&why))
}

/// What is said where no filter holds lanes.
pub fn unfiltered(why: &str) -> String {
    format!("lanes may make every system call: {why}")
}

/// Why the kernel installs none.
fn refusal(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::INVAL | Errno::NOSYS) => NOT_THERE.to_owned(),
        _ => format!(
            "the system refuses a filter: {error}; let whoever starts this process allow \
             seccomp(2), as SystemCallFilter= of the unit in packaging does"
        ),
    }
}

/// A system call that lanes may make.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The call's name.
    pub name: &'static str,
    /// The call's number on this processor.
    pub number: i64,
    /// Why it is there though no lane makes it as a rule; none for those that lanes do make.
    pub reserved_for: Option<&'static str>,
}

const fn used(name: &'static str, number: i64) -> Call {
    Call { name, number, reserved_for: None }
}

const fn reserved(name: &'static str, number: i64, reason: &'static str) -> Call {
    Call { name, number, reserved_for: Some(reason) }
}

/// All that lanes may make; a traced run holds it against what they make.
pub const CALLS: &[Call] = &[
    used("accept4", libc::SYS_accept4),
    reserved("brk", libc::SYS_brk, MEMORY),
    reserved("clock_gettime", libc::SYS_clock_gettime, CLOCK),
    used("close", libc::SYS_close),
    used("connect", libc::SYS_connect),
    used("epoll_create1", libc::SYS_epoll_create1),
    used("epoll_ctl", libc::SYS_epoll_ctl),
    used("epoll_pwait", libc::SYS_epoll_pwait),
    used("exit", libc::SYS_exit),
    reserved("exit_group", libc::SYS_exit_group, FAULT),
    // Rust's library asks whether what it closes is open, in builds that look for our mistakes.
    #[cfg(debug_assertions)]
    used("fcntl", libc::SYS_fcntl),
    used("futex", libc::SYS_futex),
    used("getpid", libc::SYS_getpid),
    used("getrandom", libc::SYS_getrandom),
    used("getsockname", libc::SYS_getsockname),
    used("getsockopt", libc::SYS_getsockopt),
    reserved("gettid", libc::SYS_gettid, FAULT),
    used("madvise", libc::SYS_madvise),
    used("mmap", libc::SYS_mmap),
    reserved("mprotect", libc::SYS_mprotect, MEMORY),
    reserved("mremap", libc::SYS_mremap, MEMORY),
    used("munmap", libc::SYS_munmap),
    reserved("newfstatat", libc::SYS_newfstatat, SNAPSHOTS),
    reserved("ppoll", libc::SYS_ppoll, DOOR),
    used("read", libc::SYS_read),
    used("recvfrom", libc::SYS_recvfrom),
    used("recvmsg", libc::SYS_recvmsg),
    reserved("restart_syscall", libc::SYS_restart_syscall, STOPPED),
    reserved("rt_sigaction", libc::SYS_rt_sigaction, FAULT),
    used("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    reserved("rt_sigreturn", libc::SYS_rt_sigreturn, SIGNAL),
    reserved("sched_yield", libc::SYS_sched_yield, CHANNEL),
    used("sendto", libc::SYS_sendto),
    used("setsockopt", libc::SYS_setsockopt),
    used("shutdown", libc::SYS_shutdown),
    used("sigaltstack", libc::SYS_sigaltstack),
    used("socket", libc::SYS_socket),
    reserved("tgkill", libc::SYS_tgkill, FAULT),
    reserved("write", libc::SYS_write, FAULT),
    reserved("writev", libc::SYS_writev, FAULT),
];

const CHANNEL: &str = "a message that another thread is about to have written";
const CLOCK: &str = "where the vDSO has no clock, as with a clock source that it cannot read";
const DOOR: &str = "sockets that a reload hands over and that have not all come";
const FAULT: &str = "a panic, or an end of the process by a fault, which tells what it was";
const MEMORY: &str = "what the allocator asks for beyond what a lane was given beforehand";
const SIGNAL: &str = "a signal that finds a lane, where lanes share a table of open files";
const SNAPSHOTS: &str = "AWS-LC, which asks once in a process whether /dev/sysgenid is there";
const STOPPED: &str = "a wait that goes on after the process was stopped";

const NOT_IMPLEMENTED: u32 = libc::ENOSYS.cast_unsigned();
const NOT_THERE: &str = "the kernel has no filters of system calls; it has them if it is built \
                         with CONFIG_SECCOMP_FILTER";
const OFF: &str = "process.sandbox is false";
const UNKNOWN_PROCESSOR: &str = "filters are known for amd64, arm64 and riscv64 alone";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::io::ErrorKind::Unsupported;
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn calls_stand_there_once_and_in_their_order() {
        let names: Vec<_> = CALLS.iter().map(|call| call.name).collect();
        assert!(names.is_sorted(), "{names:?}");
        let numbers: BTreeSet<_> = CALLS.iter().map(|call| call.number).collect();
        assert_eq!(numbers.len(), CALLS.len());
        let written = include_str!("filter.rs");
        let is_its_number =
            |name: &&&str| written.contains(&format!("(\"{name}\", libc::SYS_{name}"));
        let others: Vec<_> = names.iter().filter(|name| !is_its_number(name)).collect();
        assert!(others.is_empty(), "{others:?}");
    }

    #[test]
    fn other_calls_of_the_thread_are_answered_as_if_there_were_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let made = thread::spawn({
            let path = path.clone();
            move || {
                Filter::of_lanes().unwrap().install().unwrap();
                [
                    std::fs::create_dir(&path).unwrap_err(),
                    File::open("/proc/self/status").unwrap_err(),
                    Command::new("/bin/true").spawn().unwrap_err(),
                    TcpListener::bind("127.0.0.1:0").unwrap_err(),
                    thread::Builder::new().spawn(|| ()).unwrap_err(),
                ]
            }
        });
        let errors = made.join().unwrap();
        assert!(errors.iter().all(|error| error.kind() == Unsupported), "{errors:?}");
        // Of that thread alone.
        std::fs::create_dir(&path).unwrap();
    }

    #[test]
    fn a_try_finds_that_lanes_can_be_held_to_it() {
        assert_eq!(warning(&Process::default()), None);
        // This thread is none that was held to it.
        File::open("/proc/self/status").unwrap();
    }

    #[test]
    fn why_there_is_none_is_said() {
        let off = Process { sandbox: false, ..Process::default() };
        assert_eq!(Filter::wanted(&off).unwrap_err(), "process.sandbox is false");
        assert_eq!(warning(&off), None);
        let said = |errno: Errno| refusal(&errno.into());
        assert!(said(Errno::INVAL).contains("CONFIG_SECCOMP_FILTER"));
        let forbidden = said(Errno::PERM);
        assert!(forbidden.contains("Operation not permitted"), "{forbidden}");
        assert!(forbidden.contains("SystemCallFilter="), "{forbidden}");
    }
}
