//! Ctrl-C, seen between two steps instead of dying of it: [`Interrupt`].

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sealane_lab_model::error::Error;

/// Whether the operator has asked this process to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on, SIGINT and SIGTERM only leave a note here.
    ///
    /// # Errors
    /// The system refuses.
    pub fn catch() -> Result<Self, Error> {
        let pressed = Self::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&pressed.0))
                .map_err(Error::io("catch Ctrl-C"))?;
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
