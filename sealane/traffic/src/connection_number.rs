//! What tells a connection from all others, in logs, to backends, and in orders:
//! [`ConnectionNumber`].

use std::fmt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use sealane_lanes::orders::ConnectionId;
use serde::{Serialize, Serializer};

/// The number of a connection: when its process began, its lane, and what the lane calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionNumber {
    /// Who gives it.
    pub giver: NumberGiver,
    /// The connection's name on the lane.
    pub id: ConnectionId,
}

/// A lane of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberGiver {
    /// When the process began, in Unix milliseconds: no two of a machine begin at once.
    pub process: u64,
    /// The lane's number.
    pub lane: usize,
}

impl NumberGiver {
    /// A giver of numbers for a lane of the process that began at `started`.
    pub fn new(started: SystemTime, lane: usize) -> Self {
        let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { process: u64::try_from(since.as_millis()).unwrap_or(u64::MAX), lane }
    }

    /// The number of a connection of this lane.
    pub fn number(self, id: ConnectionId) -> ConnectionNumber {
        ConnectionNumber { giver: self, id }
    }
}

impl fmt::Display for ConnectionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { giver: NumberGiver { process, lane }, id } = self;
        write!(f, "{process:x}-{lane}-{:x}", id.bits())
    }
}

impl FromStr for ConnectionNumber {
    type Err = NoConnectionNumber;

    fn from_str(text: &str) -> Result<Self, NoConnectionNumber> {
        let mut parts = text.split('-');
        let mut part = || parts.next().ok_or(NoConnectionNumber);
        let hexadecimal =
            |part: &str| u64::from_str_radix(part, 16).map_err(|_| NoConnectionNumber);
        let process = hexadecimal(part()?)?;
        let lane = part()?.parse().map_err(|_| NoConnectionNumber)?;
        let id = ConnectionId::from_bits(hexadecimal(part()?)?);
        let number = Self { giver: NumberGiver { process, lane }, id };
        // One connection has one number, however it might be written.
        if number.to_string() == text { Ok(number) } else { Err(NoConnectionNumber) }
    }
}

impl Serialize for ConnectionNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text is no number of a connection: whoever wrote it is to mend that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "that is no number of a connection; the access log and `sealane connections list` have them"
)]
pub struct NoConnectionNumber;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_as_it_is_written_and_nothing_else_is_one() {
        let giver = NumberGiver { process: 0x19a_b4c0_1234, lane: 12 };
        let number = giver.number(ConnectionId::from_bits(0x1f_0000_0003));
        assert_eq!(number.to_string(), "19ab4c01234-12-1f00000003");
        assert_eq!(number.to_string().parse(), Ok(number));
        for text in ["", "1-2", "1-2-3-4", "1-x-3", "01-2-3", "1-2-+3", "A-2-3", "1-2-3 "] {
            assert_eq!(text.parse::<ConnectionNumber>(), Err(NoConnectionNumber), "{text:?}");
        }
    }
}
