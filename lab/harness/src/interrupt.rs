//! Ctrl-C, seen between two steps instead of dying of it: [`Interrupt`].

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
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
    /// From now on, SIGHUP, SIGINT and SIGTERM only leave a note here.
    ///
    /// # Errors
    /// The system refuses.
    pub fn catch() -> Result<Self, Error> {
        let pressed = Self::default();
        for signal in [SIGHUP, SIGINT, SIGTERM] {
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

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[test]
    fn a_closed_terminal_leaves_a_note_as_an_operator_does() {
        for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
            let interrupt = Interrupt::catch().unwrap();
            kill_process(getpid(), signal).unwrap();
            while !interrupt.is_pressed() {
                std::thread::yield_now();
            }
        }
    }
}
