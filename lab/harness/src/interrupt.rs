//! Ctrl-C, seen between two steps instead of dying of it: [`Interrupt`].

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use sealane_lab_model::error::Error;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

/// Whether the operator has asked this process to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on, SIGHUP, SIGINT and SIGTERM only leave a note here; not a SIGHUP that whoever
    /// started this process has it ignore, as `nohup` does.
    ///
    /// # Errors
    /// The system refuses.
    pub fn catch() -> Result<Self, Error> {
        let pressed = Self::default();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let goes_on = is_ignored(&status, SIGHUP);
        for signal in [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|it| *it != SIGHUP || !goes_on) {
            flag::register(signal, Arc::clone(&pressed.0)).map_err(Error::io("catch Ctrl-C"))?;
        }
        Ok(pressed)
    }

    /// Whether there is such a note.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Leaves the note as if a signal had come, which shows what is to stop that it does.
    pub fn press(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Whether the process of that `/proc/PID/status` ignores `signal`.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| (mask >> (signal - 1)) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn a_closed_terminal_leaves_a_note_as_an_operator_does() {
        // Whoever runs the tests may have a closed terminal ignored.
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let signals = [Signal::HUP, Signal::INT, Signal::TERM].into_iter();
        for signal in signals.filter(|signal| !is_ignored(&status, signal.as_raw())) {
            let interrupt = Interrupt::catch().unwrap();
            kill_process(getpid(), signal).unwrap();
            while !interrupt.is_pressed() {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn what_is_ignored_is_told_by_the_kernel() {
        let status = "Name:\tsh\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(status, SIGHUP), "SIGPIPE too");
        assert!(!is_ignored(status, SIGINT) && !is_ignored("", SIGHUP));
    }
}
