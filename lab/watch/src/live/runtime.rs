//! Runtimes that let threads wait for locks of their own: [`hidden_locks`]. What waits there is no
//! thread, or sleeps as if for work.

use std::fs::File;

use object::{Object, ReadCache};
use sealane_lab_model::document::{LiveProcess, Unseen};

use super::target::text_of;

/// What cannot be seen of servers in Go or Java.
pub(super) fn hidden_locks(processes: &[LiveProcess]) -> Option<Unseen> {
    processes.iter().take(PROCESSES_MAX).find_map(|process| {
        let maps = text_of(&format!("/proc/{}/maps", process.pid)).unwrap_or_default();
        if maps.lines().any(|line| line.ends_with("/libjvm.so")) {
            return Some(unseen(JAVA));
        }
        is_go(process.pid).then(|| unseen(GO))
    })
}

/// Go's linker writes what it built, for `go version`.
fn is_go(pid: u32) -> bool {
    let Ok(file) = File::open(format!("/proc/{pid}/exe")) else { return false };
    let parts = ReadCache::new(file);
    let Ok(program) = object::File::parse(&parts) else { return false };
    program.section_by_name(".go.buildinfo").is_some()
}

fn unseen([why, remedy]: [&str; 2]) -> Unseen {
    Unseen { what: WHAT.into(), why: why.into(), remedy: remedy.into() }
}

/// [`Unseen::what`] of these.
pub(super) const WHAT: &str = "waits for locks inside of the server's runtime";

const GO: [&str; 2] = [
    "Go parks a goroutine that waits for a lock, and its thread goes on with another or sleeps as \
     if without work",
    "the server's own profile of them: runtime.SetMutexProfileFraction and net/http/pprof's \
     /debug/pprof/mutex",
];
const JAVA: [&str; 2] = [
    "Java's java.util.concurrent parks a thread that waits for a lock as it does one without work",
    "`jcmd PID JFR.start duration=60s filename=locks.jfr`, or `jstack PID` a few times",
];
const PROCESSES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_hides_no_locks() {
        let own = LiveProcess { pid: std::process::id(), ..LiveProcess::default() };
        assert_eq!(hidden_locks(&[own]), None);
        assert_eq!(hidden_locks(&[LiveProcess { pid: u32::MAX, ..LiveProcess::default() }]), None);
    }
}
