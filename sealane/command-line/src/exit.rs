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
            Self::Cut => "ended, but cut connections: the drain timeout passed, or a second signal",
            Self::Failed => "failed while it ran, or the system refused what it needs to start",
            Self::Invalid => {
                "a mistake in the configuration, or an address cannot be had; nothing started"
            }
            Self::Ok => "ended as asked; or the configuration is in order",
            Self::Noted => "converted; comments name lines that matter to the process alone",
            Self::Partly => {
                "converted; clients or backends see a difference that comments name; or reloaded, \
                 but a certificate, list, key or store has a fault"
            }
            Self::Usage => "the command line is not understood",
            Self::Warned => "the configuration can be served, but has warnings (check --strict)",
        }
    }
}

impl Termination for Exit {
    fn report(self) -> ExitCode {
        self.code().into()
    }
}
