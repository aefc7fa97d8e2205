//! What a Redis has counted of its clients, [`Counted`], between two moments of a [`Watch`].

use sealane_lab_model::error::Error;

use crate::contexts::connection::Connection;

/// Counts of the server's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// Clients that shook hands to the end.
    pub(super) connections: u64,
    /// Pings that it answered.
    pub(super) pings: u64,
}

/// A connection that asks the server at the start and at the end.
pub(super) struct Watch {
    connection: Connection,
    before: Counted,
}

impl Watch {
    /// Counts from now on, over `connection`, which is not counted itself.
    ///
    /// # Errors
    /// The server does not tell.
    pub(super) fn begin(mut connection: Connection) -> Result<Self, Error> {
        let before = asked(&mut connection)?;
        Ok(Self { connection, before })
    }

    /// What was counted since.
    ///
    /// # Errors
    /// The server does not tell.
    pub(super) fn end(mut self) -> Result<Counted, Error> {
        let Counted { connections, pings } = asked(&mut self.connection)?;
        Ok(Counted {
            connections: connections.saturating_sub(self.before.connections),
            pings: pings.saturating_sub(self.before.pings),
        })
    }
}

fn asked(connection: &mut Connection) -> Result<Counted, Error> {
    let answer = connection.ask(REQUEST, |answer| text(answer).map(|text| text.is_some()))?;
    let text = text(&answer)?.unwrap_or_default();
    let number = |name: &str| {
        let (_, behind) = text.split_once(name)?;
        behind.split(|other: char| !other.is_ascii_digit()).next()?.parse().ok()
    };
    let connections = number("total_connections_received:").ok_or_else(|| untold(text))?;
    // A command that nobody has given yet has no line.
    Ok(Counted { connections, pings: number("cmdstat_ping:calls=").unwrap_or(0) })
}

/// The bulk string that `answer` is; `None` if more bytes must come.
fn text(answer: &[u8]) -> Result<Option<&str>, Error> {
    let Some(end) = answer.windows(2).position(|two| two == b"\r\n") else {
        return if answer.len() < HEAD_BYTES_MAX { Ok(None) } else { Err(untold("")) };
    };
    let head = String::from_utf8_lossy(&answer[..end]);
    let length: Option<usize> = head.strip_prefix('$').and_then(|length| length.parse().ok());
    let length =
        length.filter(|length| *length <= ANSWER_BYTES_MAX).ok_or_else(|| untold(&head))?;
    let whole = answer.get(end + 2..end + 2 + length);
    whole.map(|text| std::str::from_utf8(text).map_err(|_| untold(&head))).transpose()
}

fn untold(answer: &str) -> Error {
    let shown: String = answer.chars().take(HEAD_BYTES_MAX).collect();
    Error::Check(format!("Redis does not tell what it has counted: it answers {shown:?}"))
}

const REQUEST: &[u8] = b"*2\r\n$4\r\nINFO\r\n$3\r\nall\r\n";
/// The first line of an answer, or of an error.
const HEAD_BYTES_MAX: usize = 100;
/// No INFO is as long.
const ANSWER_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_text_waited_for_or_refused() {
        assert_eq!(text(b"$5\r\nhello\r\n").unwrap(), Some("hello"));
        for part in [&b""[..], b"$5", b"$5\r\nhell"] {
            assert_eq!(text(part).unwrap(), None);
        }
        for wrong in [&b"-NOPERM no\r\n"[..], b"$x\r\n", b"$99999999\r\n", b"$1\r\n\xff"] {
            assert!(text(wrong).is_err(), "{wrong:?}");
        }
    }
}
