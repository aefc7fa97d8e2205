//! What a system call writes that others may share: [`writes`] names the [`Object`]s, and how the
//! call is told in a table.
//!
//! What counts as a write of a file table is what takes its lock. Linux takes the number first in
//! accept(2), open(2) and socketpair(2), and gives it back when the rest fails: such a failure
//! writes the table too (net/socket.c, fs/open.c; looked up up to 6.18). socket(2), pipe(2) and
//! what makes a descriptor of its own take the number last, so that their failure writes nothing.

use sealane_lab_model::document::FILE_TABLE;

use crate::kernel_ledger::{owners::Thread, trace::Call};

/// One thing in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    /// A file table, by the number of [`Owners`](super::owners::Owners).
    Table(usize),
    /// A memory map.
    Map(usize),
    /// An epoll instance: a descriptor of a table.
    Epoll(usize, u32),
    /// A listening socket, by its inode.
    Listener(u64),
    /// A futex, by its map and address.
    Futex(usize, u64),
    /// A timer: a descriptor of a table.
    Timer(usize, u32),
    /// The timers of a process, by its map.
    ProcessTimers(usize),
}

/// What kind of thing it is, in the order of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Table,
    Map,
    Epoll,
    Listener,
    Futex,
    Timer,
}

impl Kind {
    pub(super) const ALL: [Self; 6] =
        [Self::Table, Self::Map, Self::Epoll, Self::Listener, Self::Futex, Self::Timer];

    /// In a table and in the document.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Table => FILE_TABLE,
            Self::Map => "memory map",
            Self::Epoll => "epoll instance",
            Self::Listener => "listening socket",
            Self::Futex => "futex",
            Self::Timer => "timer",
        }
    }

    /// What would remove the sharing.
    pub(super) fn removal(self) -> &'static str {
        match self {
            Self::Table => {
                "a file table for each thread, by close_range(2) with CLOSE_RANGE_UNSHARE in the \
                 thread itself, or a process each"
            }
            Self::Map => {
                "memory of a thread's own that is neither trimmed nor grown while it works, or a \
                 process each"
            }
            Self::Epoll => "an epoll instance for each thread",
            Self::Listener => "a listening socket for each thread, by SO_REUSEPORT",
            Self::Futex => "no lock and no hand-over between threads in the way of a connection",
            Self::Timer => "timers of a thread's own, kept by the time limit of its wait",
        }
    }
}

impl Object {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Table(_) => Kind::Table,
            Self::Map(_) => Kind::Map,
            Self::Epoll(..) => Kind::Epoll,
            Self::Listener(_) => Kind::Listener,
            Self::Futex(..) => Kind::Futex,
            Self::Timer(..) | Self::ProcessTimers(_) => Kind::Timer,
        }
    }
}

/// What `call` of a thread that has this table and this map writes.
pub(super) fn writes(call: &Call, Thread { table, map }: Thread) -> Vec<(Object, String)> {
    let mut written = Vec::new();
    let name = call.name.as_str();
    if let Some(told) = of_table(call) {
        written.push((Object::Table(table), told));
    }
    let of_descriptor =
        |make: fn(usize, u32) -> Object| call.descriptor().map(|fd| make(table, fd));
    let other = match name {
        "mmap" | "munmap" | "mremap" | "mprotect" | "pkey_mprotect" | "brk" | "madvise" => {
            Some(Object::Map(map))
        }
        _ if name.starts_with("epoll_") && !name.starts_with("epoll_create") => {
            of_descriptor(Object::Epoll)
        }
        "accept" | "accept4" => call.socket().map(Object::Listener),
        "futex" => address(call).map(|address| Object::Futex(map, address)),
        "timerfd_settime" => of_descriptor(Object::Timer),
        "timer_create" | "timer_settime" | "timer_delete" | "setitimer" | "alarm" => {
            Some(Object::ProcessTimers(map))
        }
        _ => None,
    };
    written.extend(other.map(|object| (object, told(call, object.kind()))));
    written
}

/// How a write of the table is told, if it is one.
fn of_table(call: &Call) -> Option<String> {
    let name = call.name.as_str();
    let failed = call.has_failed();
    let is_write = match name {
        "accept" | "accept4" | "open" | "openat" | "openat2" | "socketpair" => {
            !failed || !EARLY_FAILURES.contains(&call.error.as_str())
        }
        "close" => true,
        "fcntl" => {
            let what = call.argument(1);
            !failed && (what.starts_with("F_DUPFD") || what == "F_SETFD")
        }
        "ioctl" => !failed && matches!(call.argument(1), "FIOCLEX" | "FIONCLEX"),
        "recvmsg" | "recvmmsg" => !failed && call.arguments.contains("SCM_RIGHTS"),
        // One that is given is changed, not made.
        "signalfd4" => !failed && call.arguments.starts_with("-1"),
        "clone" | "clone3" => !failed && call.arguments.contains("CLONE_PIDFD"),
        _ => !failed && MAKERS.contains(&name),
    };
    is_write.then(|| told(call, Kind::Table))
}

fn told(call: &Call, kind: Kind) -> String {
    let name = call.name.as_str();
    match (name, kind) {
        ("fcntl" | "ioctl", _) => format!("{name} {}", call.argument(1)),
        ("recvmsg" | "recvmmsg", _) => format!("{name} with descriptors"),
        ("futex", _) => {
            let what = call.argument(1);
            let what = what.split('|').next().unwrap_or(what);
            let what = what.trim_start_matches("FUTEX_").trim_end_matches("_PRIVATE");
            // The one that takes a mask is the same to whoever waits.
            format!("futex {}", what.trim_end_matches("_BITSET").to_lowercase())
        }
        ("epoll_pwait" | "epoll_pwait2", _) => "epoll_wait".into(),
        _ if call.error == "EAGAIN" => format!("{name} of nobody"),
        (
            "open" | "openat" | "openat2" | "socketpair" | "accept" | "accept4" | "close",
            Kind::Table,
        ) if call.has_failed() => {
            format!("{name} that fails")
        }
        _ => name.to_owned(),
    }
}

/// `0x55aa` of `0x55aa, FUTEX_WAKE_PRIVATE, 1`.
fn address(call: &Call) -> Option<u64> {
    u64::from_str_radix(call.argument(0).strip_prefix("0x")?, 16).ok()
}

/// What strace is to tell; a name that an architecture does not have is passed over.
pub(super) fn traced() -> String {
    let names = MAKERS.iter().chain(&OTHERS).map(|name| format!("?{name}"));
    names.collect::<Vec<_>>().join(",")
}

/// With these it fails before it takes a number.
const EARLY_FAILURES: [&str; 6] =
    ["EBADF", "EFAULT", "EINVAL", "EMFILE", "ENAMETOOLONG", "ENOTSOCK"];
/// They take a number when all else has succeeded.
const MAKERS: [&str; 23] = [
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "eventfd",
    "eventfd2",
    "fanotify_init",
    "inotify_init",
    "inotify_init1",
    "io_uring_setup",
    "memfd_create",
    "open_by_handle_at",
    "open_tree",
    "perf_event_open",
    "pidfd_getfd",
    "pidfd_open",
    "pipe",
    "pipe2",
    "signalfd",
    "socket",
    "timerfd_create",
];
const OTHERS: [&str; 39] = [
    "accept",
    "accept4",
    "alarm",
    "brk",
    "clone",
    "clone3",
    "close",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "fcntl",
    "fork",
    "futex",
    "ioctl",
    "madvise",
    "mmap",
    "mprotect",
    "mremap",
    "munmap",
    "open",
    "openat",
    "openat2",
    "pkey_mprotect",
    "recvmmsg",
    "recvmsg",
    "setitimer",
    "signalfd4",
    "socketpair",
    "timer_create",
    "timer_delete",
    "timer_settime",
    "timerfd_settime",
    "unshare",
    "vfork",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(name: &str, arguments: &str, result: i64, error: &str) -> Vec<(Object, String)> {
        let (name, arguments, error) = (name.into(), arguments.into(), error.into());
        writes(&Call { thread: 1, name, arguments, result, error }, Thread { table: 1, map: 2 })
    }

    fn table(told: &str) -> (Object, String) {
        (Object::Table(1), told.to_owned())
    }

    #[test]
    fn a_failure_writes_the_table_where_the_number_was_taken_first() {
        let listener = "7<socket:[90]>, NULL, NULL, SOCK_CLOEXEC";
        let accepted = |told: &str| vec![table(told), (Object::Listener(90), told.to_owned())];
        assert_eq!(told_of("accept4", listener, 9, ""), accepted("accept4"));
        assert_eq!(told_of("accept4", listener, -1, "EAGAIN"), accepted("accept4 of nobody"));
        assert_eq!(told_of("accept4", "7, NULL, NULL, 0", -1, "EBADF"), []);
        assert_eq!(told_of("socket", "AF_INET, SOCK_STREAM, 0", 8, ""), [table("socket")]);
        assert_eq!(told_of("socket", "AF_INET, SOCK_STREAM, 0", -1, "EMFILE"), []);
        let open = "AT_FDCWD</>, \"\"..., O_RDONLY";
        assert_eq!(told_of("openat", open, -1, "ENOENT"), [table("openat that fails")]);
        assert_eq!(told_of("close", "9", -1, "EBADF"), [table("close that fails")]);
    }

    #[test]
    fn descriptors_come_and_change_by_other_calls_too() {
        assert_eq!(told_of("fcntl", "3</x>, F_GETFL", 2, ""), []);
        assert_eq!(
            told_of("fcntl", "3</x>, F_DUPFD_CLOEXEC, 0", 4, ""),
            [table("fcntl F_DUPFD_CLOEXEC")]
        );
        assert_eq!(told_of("fcntl", "3</x>, F_SETFD, FD_CLOEXEC", 0, ""), [table("fcntl F_SETFD")]);
        let rights = "3<socket:[1]>, {msg_control=[{cmsg_type=SCM_RIGHTS, cmsg_data=[5]}]}, 0";
        assert_eq!(told_of("recvmsg", rights, 1, ""), [table("recvmsg with descriptors")]);
        assert_eq!(told_of("recvmsg", "3<socket:[1]>, {msg_controllen=0}, 0", 1, ""), []);
        assert_eq!(told_of("signalfd4", "-1, [], 8, 0", 5, ""), [table("signalfd4")]);
        assert_eq!(told_of("signalfd4", "5<x>, [], 8, 0", 5, ""), []);
    }

    #[test]
    fn other_objects_are_known_by_what_they_are() {
        let one = |object, told: &str| vec![(object, told.to_owned())];
        assert_eq!(told_of("brk", "NULL", 5, ""), one(Object::Map(2), "brk"));
        let futex = "0x10, FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME, 0, NULL";
        assert_eq!(told_of("futex", futex, 0, ""), one(Object::Futex(2, 16), "futex wait"));
        assert_eq!(
            told_of("futex", "0x10, FUTEX_WAKE_PRIVATE, 1", 1, ""),
            one(Object::Futex(2, 16), "futex wake")
        );
        assert_eq!(
            told_of("epoll_pwait", "4<anon_inode:[eventpoll]>, [], 8, -1, NULL, 8", 0, ""),
            one(Object::Epoll(1, 4), "epoll_wait")
        );
        assert_eq!(
            told_of("timerfd_settime", "5<anon_inode:[timerfd]>, 0, {}, NULL", 0, ""),
            one(Object::Timer(1, 5), "timerfd_settime")
        );
        assert_eq!(
            told_of("setitimer", "ITIMER_REAL, {}, NULL", 0, ""),
            one(Object::ProcessTimers(2), "setitimer")
        );
    }
}
