//! Materials that cannot be used as they are, for people: [`Faults`].

use sealane_listeners::Fault;

/// The faults of a generation, and of the materials of the process.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// At most [`FAULTS_SHOWN_MAX`].
    pub shown: Vec<Fault>,
    /// All of them.
    pub total: usize,
}

impl Faults {
    /// Adds one.
    pub fn add(&mut self, fault: Fault) {
        self.total += 1;
        if self.shown.len() < FAULTS_SHOWN_MAX {
            self.shown.push(fault);
        }
    }

    /// A line each, and how many more there are.
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.shown.iter().map(ToString::to_string).collect();
        let more = self.total - self.shown.len();
        if more > 0 {
            lines.push(format!("… and {more} more; `sealane check` lists all"));
        }
        lines
    }

    /// All of them in one line, by their paths.
    pub fn summary(&self) -> Option<String> {
        let mut paths: Vec<String> =
            self.shown.iter().map(|fault| fault.path.display().to_string()).collect();
        paths.dedup();
        paths.truncate(PATHS_NAMED_MAX);
        let paths = paths.join(", ");
        match self.total {
            0 => None,
            1 => Some(format!("a fault in {paths}; /state shows what is wrong")),
            total => Some(format!("{total} faults, in {paths}; /state shows what is wrong")),
        }
    }
}

impl FromIterator<Fault> for Faults {
    fn from_iter<I: IntoIterator<Item = Fault>>(all: I) -> Self {
        let mut faults = Self::default();
        all.into_iter().for_each(|fault| faults.add(fault));
        faults
    }
}

/// Faults that are shown one by one, in `/state`, `/metrics`, the log and the answer to a reload.
pub const FAULTS_SHOWN_MAX: usize = 100;
/// Paths that `/healthz` names.
const PATHS_NAMED_MAX: usize = 3;
