//! Who does TLS, and in how many processes: [`Mode`].

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use sealane_lab_model::error::Error;
use serde::{Deserialize, Serialize};

use crate::{
    node::{Case, said},
    servers::programs::Program,
};

/// A way to serve; in the order of the table, what is in question last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Node without TLS
    Http,
    /// nginx, which serves the same bodies itself
    Nginx,
    /// Node's https, one process
    Https,
    /// Node's https, a process for each processor
    Cluster,
    /// A few processes of sealane with several lanes each
    Hybrid,
    /// Sealane, handed over in shared memory; for HTTP/1 it is what sealane does by itself
    SealaneRing,
    /// Sealane, handed over by socketpairs; for HTTP/2 it is what sealane does by itself
    SealaneSocket,
    /// Sealane, one process
    Sealane,
}

impl Mode {
    pub(super) const ALL: [Self; 8] = [
        Self::Http,
        Self::Nginx,
        Self::Https,
        Self::Cluster,
        Self::Hybrid,
        Self::SealaneRing,
        Self::SealaneSocket,
        Self::Sealane,
    ];

    /// The mode's name on the command line.
    pub(super) fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    pub(super) fn is_sealane(self) -> bool {
        matches!(self, Self::Hybrid | Self::SealaneRing | Self::SealaneSocket | Self::Sealane)
    }

    /// How plaintext comes to JavaScript, in the package's words.
    pub(super) fn handover(self) -> &'static str {
        match self {
            Self::SealaneRing => "ring",
            Self::SealaneSocket => "socket",
            _ => "auto",
        }
    }

    /// Whether there is such a row.
    pub(super) fn can_take(self, case: Case) -> bool {
        let several = matches!(self, Self::Cluster | Self::Hybrid);
        match case {
            Case::FullRsa | Case::Resumed | Case::ResumedRsa => self != Self::Http,
            Case::Full | Case::KeepAlive | Case::Sweep | Case::KeepAliveSweep => true,
            Case::Idle => !several,
            // Neither of them runs JavaScript that could block it.
            Case::Blocked => !several && !matches!(self, Self::Http | Self::Nginx),
            Case::H2 => !several && self != Self::Http,
        }
    }

    /// Whether the row tells something that no other does.
    pub(super) fn usually_takes(self, case: Case) -> bool {
        let told = match self {
            Self::SealaneRing => case == Case::H2,
            Self::SealaneSocket => {
                matches!(case, Case::Full | Case::KeepAlive | Case::Idle | Case::Blocked)
            }
            _ => true,
        };
        told && self.can_take(case)
    }

    /// What this machine lacks for it.
    pub(super) fn lacks(self, package: &Path, node: &Path) -> Option<Error> {
        match self {
            Self::Nginx => find_nginx().err(),
            _ if self.is_sealane() => {
                let script = "require(process.argv[1])";
                let loaded = said(Command::new(node).args(["-e", script]).arg(package));
                let remedy = "node/build --release".to_owned();
                loaded.err().map(|error| Error::Missing {
                    program: format!("the package sealane, built ({error})"),
                    remedy,
                })
            }
            _ => None,
        }
    }
}

/// Where nginx is installed, or how to get it.
pub(super) fn find_nginx() -> Result<PathBuf, Error> {
    Program::NginxHttp.find(Path::new(""))
}
