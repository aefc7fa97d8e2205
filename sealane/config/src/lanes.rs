//! The [`Lanes`] that share what is counted in all.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;

use sealane_operator::mistake::Problem;
use sealane_operator::reader::Value;

/// The lanes that share what is counted in all.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    /// The lanes of a process that runs already, if the file is for one: no reload changes them.
    pub(crate) running: Option<NonZeroUsize>,
    /// The lanes of the next start.
    pub(crate) written: NonZeroUsize,
}

impl Lanes {
    /// A number within `range`, which is `written`, of what is counted in all.
    pub(crate) fn count(
        self,
        written: &Value<'_>,
        range: RangeInclusive<usize>,
    ) -> Option<NonZeroUsize> {
        let whole = written.count(range)?;
        self.check(whole, written);
        NonZeroUsize::new(whole)
    }

    /// Notes it if `whole`, the number that is `written`, does not give each lane one.
    pub(crate) fn check(self, whole: usize, written: &Value<'_>) {
        let too_many = |lanes: &NonZeroUsize| lanes.get() > whole;
        let problem = if too_many(&self.written) {
            let lanes = self.written;
            let what = format!("{whole} in all is less than the {lanes} lanes that share it");
            Problem::new(what, "each needs one: raise it, or lower lanes")
        } else if let Some(lanes) = self.running.filter(too_many) {
            let what = format!("{whole} in all is less than the {lanes} lanes that run");
            Problem::new(what, "each needs one: raise it, or restart, which changes the lanes")
        } else {
            return;
        };
        written.wrong(problem);
    }
}
