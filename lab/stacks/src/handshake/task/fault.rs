//! Faults that a trial commits when told to, so that tests see the harness find them.

use std::sync::{Arc, LazyLock};

use sealane_lab_model::scenario::{Group, Scenario};
use serde::{Deserialize, Serialize};

/// A test interface: what goes wrong, once the warm-up is over unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The server clones, and drops, an `Arc` that all threads have in common.
    ArcClone,
    /// The process aborts.
    Crash,
    /// The last thread stops working.
    EarlyEnd,
    /// One bit of the server's flight changes on its way.
    FlippedBit,
    /// Full handshakes instead of resumed ones: the client forgets its session.
    Full,
    /// Something else than a result is printed.
    Garbage,
    /// The last thread never begins.
    MissingThread,
    /// The connection breaks off in the middle of the server's flight.
    Reset,
    /// Time passes that no span accounts for.
    UnaccountedTime,
    /// Another group than the one asked for, at both ends and from the start.
    WrongGroup,
}

impl Fault {
    /// What the stack is told in place of `scenario`.
    pub(super) fn misled(fault: Option<Self>, scenario: &Scenario) -> Scenario {
        let group = match (fault, scenario.group) {
            (Some(Self::WrongGroup), Group::P256) => Group::X25519,
            (Some(Self::WrongGroup), _) => Group::P256,
            (_, group) => group,
        };
        Scenario { group, ..scenario.clone() }
    }

    /// Drops the server's end; [`Self::ArcClone`] writes twice to a line that all threads write.
    pub(super) fn end<T>(server: T, fault: Option<Self>) {
        drop(server);
        if fault == Some(Self::ArcClone) {
            drop(std::hint::black_box(Arc::clone(&GLOBAL)));
        }
    }

    /// Harms a flight of the server's.
    pub(super) fn touch(self, flight: &mut Vec<u8>) {
        match self {
            Self::FlippedBit => {
                let middle = flight.len() / 2;
                if let Some(byte) = flight.get_mut(middle) {
                    *byte ^= 1;
                }
            }
            Self::Reset => flight.truncate(flight.len() / 2),
            _ => {}
        }
    }
}

static GLOBAL: LazyLock<Arc<Alone>> = LazyLock::new(|| Arc::new(Alone));

/// A value whose counts have a cache line to themselves.
#[repr(align(64))]
struct Alone;
