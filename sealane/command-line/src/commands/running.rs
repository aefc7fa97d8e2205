//! Speaking to a running Sealane over its admin socket: [`Running`].

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealane_engine::text;
use serde::de::DeserializeOwned;
use tracing::error;
use zeroize::Zeroizing;

use crate::exit::Exit;

/// A Sealane that runs, by its socket.
pub(super) struct Running<'s> {
    pub(super) socket: &'s Path,
}

/// What it answered.
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Running<'_> {
    /// Asks to be shown what `target` names.
    pub(super) fn show(&self, target: &str) -> Result<Answered, AskError> {
        self.ask("GET", target, SHOW_PATIENCE)
    }

    /// Orders what `target` names, and waits for as long as that takes.
    pub(super) fn order(&self, target: &str) -> Result<Answered, AskError> {
        self.ask("POST", target, sealane_traffic::http::WORK_TIMEOUT + SHOW_PATIENCE)
    }

    /// The same by another method of HTTP.
    pub(super) fn order_by(&self, method: &str, target: &str) -> Result<Answered, AskError> {
        self.ask(method, target, sealane_traffic::http::WORK_TIMEOUT + SHOW_PATIENCE)
    }

    /// Sends what `from` gives, until it gives nothing, to be kept.
    pub(super) fn send(
        &self,
        target: &str,
        from: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Answered, AskError> {
        self.explained(self.exchange_body(target, from))
    }

    fn ask(&self, method: &str, target: &str, patience: Duration) -> Result<Answered, AskError> {
        self.explained(self.exchange(method, target, patience))
    }

    fn explained(&self, answered: io::Result<Answered>) -> Result<Answered, AskError> {
        answered.map_err(|source| {
            let remedy = match source.kind() {
                ErrorKind::NotFound => {
                    "see that Sealane runs, that its configuration has an [admin] \
                                        socket, and that --socket names it"
                }
                ErrorKind::ConnectionRefused => "Sealane has ended; start it",
                ErrorKind::PermissionDenied => "become root, or the user that Sealane runs as",
                _ => "see what Sealane says in its own log",
            };
            AskError { socket: self.socket.to_owned(), source, remedy }
        })
    }

    fn exchange(&self, method: &str, target: &str, patience: Duration) -> io::Result<Answered> {
        let mut stream = UnixStream::connect(self.socket)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        write!(stream, "{method} {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        response(stream)
    }

    fn exchange_body(
        &self,
        target: &str,
        from: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Answered> {
        let mut stream = UnixStream::connect(self.socket)?;
        let patience = sealane_traffic::http::WORK_TIMEOUT + SHOW_PATIENCE;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        write!(
            stream,
            "PUT {target} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )?;
        // It has held keys.
        let mut part = Zeroizing::new(vec![0; SENT_AT_ONCE_BYTES]);
        loop {
            let count = from(&mut part)?;
            let chunk = write!(stream, "{count:x}\r\n")
                .and_then(|()| stream.write_all(&part[..count]))
                .and_then(|()| stream.write_all(b"\r\n"));
            // Who takes no more has said why, or has ended.
            if count == 0 || chunk.is_err() {
                return response(stream).map_err(|error| chunk.err().unwrap_or(error));
            }
        }
    }
}

impl Answered {
    /// What the command comes to if this is no success, which is said.
    pub(super) fn refused(&self) -> Option<Exit> {
        if self.status == 200 {
            return None;
        }
        error!("{}", self.words());
        Some(if matches!(self.status, 400 | 404 | 422) { Exit::Invalid } else { Exit::Failed })
    }

    /// The JSON in it.
    pub(super) fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.body)
    }

    /// What it says in plain words, for a terminal.
    pub(super) fn words(&self) -> String {
        printable(String::from_utf8_lossy(&self.body).trim_end())
    }
}

/// A running Sealane cannot be asked: the operator's to mend.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}; {remedy}", socket.display())]
pub(super) struct AskError {
    socket: PathBuf,
    source: io::Error,
    remedy: &'static str,
}

/// Text of strangers as a terminal can be trusted with it; it may have several lines.
pub(super) fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' => c,
        c if text::steers(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    };
    text.chars().map(shown).collect()
}

/// The same in one line, which none of it can end.
pub(super) fn printable_line(text: &str) -> String {
    printable(text).replace('\n', "\u{fffd}")
}

fn response(stream: UnixStream) -> io::Result<Answered> {
    let mut response = Vec::new();
    stream.take(RESPONSE_BYTES_MAX).read_to_end(&mut response)?;
    parse(&response).ok_or_else(|| io::Error::other("that was no whole answer"))
}

/// A response, if all of it is there.
fn parse(bytes: &[u8]) -> Option<Answered> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head_len) = response.parse(bytes).ok()? else { return None };
    let length = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"))?;
    let length: usize = std::str::from_utf8(length.value).ok()?.parse().ok()?;
    let body = &bytes[head_len..];
    (body.len() == length)
        .then(|| Answered { status: response.code.unwrap_or(0), body: body.into() })
}

/// Bytes of a chunk.
const SENT_AT_ONCE_BYTES: usize = 64 << 10;
/// How long it may take to be shown something.
const SHOW_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a response.
const RESPONSE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_an_answer_is_none() {
        let whole = b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\n{}";
        let answered = parse(whole).unwrap();
        assert_eq!((answered.status, &*answered.body), (409, &b"{}"[..]));
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_none(), "{len}");
        }
    }

    #[test]
    fn nothing_steers_a_terminal() {
        assert_eq!(printable("a\x1b[2J\u{9b}b\nc"), "a\u{fffd}[2J\u{fffd}b\nc");
        assert_eq!(printable_line("a\nb"), "a\u{fffd}b");
    }
}
