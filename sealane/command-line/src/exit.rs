//! How a process of Sealane ends, as numbers that scripts can rely on.

use std::process::{ExitCode, Termination};

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Connections were cut: the drain timeout passed, or a second signal came.
    Cut,
    /// Something failed while it ran, or the system refused what it needs to start.
    Failed,
    /// A mistake in the configuration, or an address cannot be had; nothing was started.
    Invalid,
    /// A configuration was converted, with comments of which clients and backends see nothing.
    Noted,
    /// All went well.
    Ok,
    /// A configuration was converted, and clients or backends see a difference; or it was reloaded,
    /// and a material has a fault.
    Partly,
    /// The command line is not understood.
    Usage,
    /// A configuration that is checked strictly has warnings.
    Warned,
}

impl Exit {
    /// All that `sealane serve` ends with, in the order of their codes.
    pub const OF_SERVE: [Self; 5] = [Self::Ok, Self::Failed, Self::Usage, Self::Invalid, Self::Cut];

    /// The number that the shell sees. 2 is also what the parser of the command line ends with.
    pub fn code(self) -> u8 {
        match self {
            Self::Cut => 4,
            Self::Failed => 1,
            Self::Invalid => 3,
            // Of different commands: `convert` and `check --strict`.
            Self::Noted | Self::Warned => 6,
            Self::Ok => 0,
            Self::Partly => 5,
            Self::Usage => 2,
        }
    }

    /// What it means, for the help.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Cut => {
                "stopped, but connections were cut at the drain timeout or by a further signal"
            }
            Self::Failed => "failed while running, or the system refused a resource at the start",
            Self::Invalid => "invalid configuration, or an address cannot be used; nothing started",
            Self::Ok => "stopped by a signal, all connections finished",
            Self::Noted => "converted; comments name lines that only concern the process",
            Self::Partly => {
                "converted, with differences for clients or backends that comments name; or \
                 reloaded, but a certificate, list, key or store is faulty"
            }
            Self::Usage => "wrong command line",
            Self::Warned => "valid configuration with warnings (check --strict)",
        }
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        self.code().into()
    }
}
