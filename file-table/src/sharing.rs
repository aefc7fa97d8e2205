//! Whether two threads share something in the kernel, by kcmp(2). A caller must be allowed to trace
//! both threads, which may be of any process.

use std::io;

/// Whether the threads `a` and `b`, by their ids, have one table of open files.
///
/// # Errors
/// One of them has ended, this process may trace neither, or the kernel was built without the call.
pub fn same_table(a: u32, b: u32) -> io::Result<bool> {
    compare(KCMP_FILES, [a, b], [0, 0])
}

/// Whether they have one memory map.
///
/// # Errors
/// As [`same_table`].
pub fn same_map(a: u32, b: u32) -> io::Result<bool> {
    compare(KCMP_VM, [a, b], [0, 0])
}

/// Whether the first one's descriptor and the second one's are of one open file.
///
/// # Errors
/// As [`same_table`], and if one of the descriptors is not open.
pub fn same_file(a: (u32, u32), b: (u32, u32)) -> io::Result<bool> {
    compare(KCMP_FILE, [a.0, b.0], [a.1, b.1])
}

fn compare(what: libc::c_long, threads: [u32; 2], files: [u32; 2]) -> io::Result<bool> {
    let [a, b] = threads.map(libc::c_long::from);
    let [first, second] = files.map(libc::c_long::from);
    // SAFETY: of these kinds kcmp(2) takes numbers alone, and writes no memory.
    match unsafe { libc::syscall(libc::SYS_kcmp, a, b, what, first, second) } {
        -1 => Err(io::Error::last_os_error()),
        order => Ok(order == 0),
    }
}

// From linux/kcmp.h.
const KCMP_FILE: libc::c_long = 0;
const KCMP_VM: libc::c_long = 1;
const KCMP_FILES: libc::c_long = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::fd::AsRawFd, process::Command, sync::mpsc, thread};

    fn own_id() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
    }

    #[test]
    fn threads_of_a_process_share_table_and_map() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            tell.send(own_id()).unwrap();
            let _ = ended.recv();
        });
        let (own, other_id) = (own_id(), told.recv().unwrap());
        assert_ne!(own, other_id);
        assert!(same_table(own, other_id).unwrap());
        assert!(same_map(own, other_id).unwrap());
        drop(end);
        other.join().unwrap();
    }

    #[test]
    fn a_thread_with_a_table_of_its_own_shares_the_map_alone() {
        let first = own_id();
        let thread = thread::spawn(move || {
            crate::own_copy().unwrap();
            (same_table(first, own_id()).unwrap(), same_map(first, own_id()).unwrap())
        });
        assert_eq!(thread.join().unwrap(), (false, true));
    }

    #[test]
    fn processes_share_neither_but_a_file_that_one_inherited() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let (own, its) = (own_id(), child.id());
        assert!(!same_map(own, its).unwrap());
        assert!(!same_table(own, its).unwrap());
        assert!(same_file((own, 2), (its, 2)).unwrap());
        let file = File::open("/dev/null").unwrap();
        let number = file.as_raw_fd().unsigned_abs();
        assert!(!same_file((own, number), (its, 2)).unwrap());
        assert!(same_file((own, u32::MAX >> 1), (its, 2)).is_err(), "that is not open");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(same_table(own, its).is_err(), "it has ended");
    }
}
