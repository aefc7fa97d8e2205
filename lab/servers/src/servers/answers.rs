//! What the lab's own servers answer: [`Answers`], one connection's side of HTTP/1.1, without a
//! socket.
//!
//! `GET /bytes/N` gives N bytes of the pattern, `GET /echo/X` gives X, `POST /mirror` gives the
//! body back as it comes, `POST /upload` takes the pattern and gives its length.

use std::io;

use crate::load::{PATTERN_CHUNK_BYTES, Pattern};

/// Requests in, answers out, one at a time.
#[derive(Default)]
pub struct Answers {
    state: State,
    /// The head of a request that is not whole yet.
    request: Vec<u8>,
}

#[derive(Default)]
enum State {
    /// Sends what is left of the head, then the pattern.
    Answer {
        head: Vec<u8>,
        sent: usize,
        at: u64,
        end: u64,
    },
    /// Sends what it keeps, then takes more of what is left to come.
    Mirror {
        kept: Vec<u8>,
        sent: usize,
        left: u64,
    },
    #[default]
    Request,
    Upload {
        at: u64,
        end: u64,
    },
}

impl Answers {
    /// How many bytes it takes at most, now: none while there is something to send.
    pub fn room(&self) -> usize {
        match &self.state {
            State::Answer { .. } => 0,
            State::Mirror { kept, sent, .. } if *sent < kept.len() => 0,
            State::Mirror { left, .. } => within(*left, MIRROR_BYTES_MAX),
            State::Request => HEAD_BYTES_MAX,
            State::Upload { at, end } => within(*end - *at, usize::MAX),
        }
    }

    /// Takes what came, up to its room; how much that was.
    ///
    /// # Errors
    /// The client asks for what is not there, or its bytes are not those of the pattern.
    pub fn take(&mut self, bytes: &[u8], pattern: &Pattern) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(self.room())];
        if bytes.is_empty() {
            return Ok(0);
        }
        match &mut self.state {
            State::Answer { .. } => return Ok(0),
            State::Mirror { kept, sent, left } => {
                *left -= bytes.len() as u64;
                *sent = 0;
                kept.clear();
                kept.extend_from_slice(bytes);
            }
            State::Request => {
                self.request.extend_from_slice(bytes);
                self.begin(pattern)?;
            }
            State::Upload { at, end } => {
                if !matches(pattern, *at, bytes) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                *at += bytes.len() as u64;
                if at == end {
                    self.state = text(&end.to_string());
                }
            }
        }
        Ok(bytes.len())
    }

    /// What is to be sent next, in this order; nothing while it waits for the client.
    pub fn pending<'a>(&'a self, pattern: &'a Pattern) -> [&'a [u8]; 2] {
        match &self.state {
            State::Answer { head, sent, at, end } => [&head[*sent..], pattern.at(*at, *end)],
            State::Mirror { kept, sent, .. } => [&kept[*sent..], &[]],
            State::Request | State::Upload { .. } => [&[], &[]],
        }
    }

    /// So many bytes of what is pending are on their way.
    pub fn sent(&mut self, bytes: usize) {
        let over = match &mut self.state {
            State::Answer { head, sent, at, end } => {
                let of_head = bytes.min(head.len() - *sent);
                *sent += of_head;
                *at += (bytes - of_head) as u64;
                *sent == head.len() && at == end
            }
            State::Mirror { kept, sent, left } => {
                *sent += bytes;
                *sent >= kept.len() && *left == 0
            }
            State::Request | State::Upload { .. } => false,
        };
        if over {
            self.state = State::Request;
        }
    }

    /// Looks at what came of a request.
    fn begin(&mut self, pattern: &Pattern) -> io::Result<()> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&self.request).map_err(|_| io::ErrorKind::InvalidData)?;
        let httparse::Status::Complete(length) = parsed else {
            let fits = self.request.len() < HEAD_BYTES_MAX;
            return if fits { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) };
        };
        let path = request.path.unwrap_or_default();
        let number = |text: &str| text.parse().map_err(|_| io::ErrorKind::InvalidData);
        let body = &self.request[length..];
        let body_bytes = || {
            let header = request
                .headers
                .iter()
                .find(|header| header.name.eq_ignore_ascii_case("content-length"))
                .and_then(|header| std::str::from_utf8(header.value).ok());
            let bytes: u64 = number(header.unwrap_or_default())?;
            let rest = bytes.checked_sub(body.len() as u64).ok_or(io::ErrorKind::InvalidData)?;
            Ok::<_, io::Error>((bytes, rest))
        };
        if let Some(bytes) = path.strip_prefix("/bytes/") {
            let end: u64 = number(bytes)?;
            self.state = State::Answer { head: head(end), sent: 0, at: 0, end };
        } else if let Some(echo) = path.strip_prefix("/echo/") {
            self.state = text(echo);
        } else if path == "/mirror" {
            let (bytes, left) = body_bytes()?;
            let kept = [&head(bytes), body].concat();
            self.state = State::Mirror { kept, sent: 0, left };
        } else if path == "/upload" {
            let (end, rest) = body_bytes()?;
            if !matches(pattern, 0, body) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let at = end - rest;
            self.state = if at == end { text(&end.to_string()) } else { State::Upload { at, end } };
        } else {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.request.clear();
        Ok(())
    }
}

fn head(body_bytes: u64) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\n\r\n").into_bytes()
}

fn text(body: &str) -> State {
    let head = [&head(body.len() as u64), body.as_bytes()].concat();
    State::Answer { head, sent: 0, at: 0, end: 0 }
}

/// Whether `bytes`, however many, are those of the pattern at `offset`.
fn matches(pattern: &Pattern, offset: u64, bytes: &[u8]) -> bool {
    let offsets = (offset..).step_by(PATTERN_CHUNK_BYTES);
    bytes.chunks(PATTERN_CHUNK_BYTES).zip(offsets).all(|(part, at)| pattern.matches(at, part))
}

fn within(left: u64, most: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(most)
}

const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 32;
/// Bytes kept of a body that is to go back, until they are sent.
const MIRROR_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// All that is answered to `said`, which comes in pieces of so many bytes and goes in others.
    fn answered(said: &[u8], piece_bytes: usize) -> io::Result<Vec<u8>> {
        let (mut answers, pattern, mut sent) = (Answers::default(), Pattern::default(), Vec::new());
        let mut rest = said;
        loop {
            let taken = answers.take(&rest[..rest.len().min(piece_bytes)], &pattern)?;
            rest = &rest[taken..];
            let [head, body] = answers.pending(&pattern);
            let next = if head.is_empty() { body } else { head };
            let part = &next[..next.len().min(2 * piece_bytes)];
            if taken + part.len() == 0 {
                return Ok(sent);
            }
            sent.extend_from_slice(part);
            let given = part.len();
            answers.sent(given);
        }
    }

    #[test]
    fn a_mirror_gives_back_what_comes_however_it_is_cut() {
        let body: Vec<u8> = (0..=255).cycle().take(1_000).collect();
        let said = [b"POST /mirror HTTP/1.1\r\nContent-Length: 1000\r\n\r\n", &body[..]].concat();
        let wanted = [&head(1_000), &body[..]].concat();
        for piece_bytes in 1..100 {
            assert_eq!(answered(&said, piece_bytes).unwrap(), wanted, "{piece_bytes}");
        }
        assert_eq!(answered(&said, 2_000).unwrap(), wanted);
    }

    #[test]
    fn requests_follow_each_other_and_a_wrong_upload_is_an_error() {
        let pattern = Pattern::default();
        let upload = b"POST /upload HTTP/1.1\r\nContent-Length: 500\r\n\r\n";
        let mut said = [&upload[..], pattern.at(0, 500)].concat();
        let more = answered(&said, 77).unwrap();
        assert_eq!(more, [&head(3), &b"500"[..]].concat());
        *said.last_mut().unwrap() ^= 1;
        assert!(answered(&said, 77).is_err());
        let mut answers = Answers::default();
        for (request, wanted) in [("/bytes/9", pattern.at(0, 9)), ("/echo/abc", b"abc")] {
            let said = format!("GET {request} HTTP/1.1\r\n\r\n");
            assert_eq!(answers.take(said.as_bytes(), &pattern).unwrap(), said.len());
            assert_eq!(answers.room(), 0, "an answer is on its way");
            let sent = answers.pending(&pattern).concat();
            assert!(sent.ends_with(wanted));
            answers.sent(sent.len());
            assert!(answers.room() > 0);
        }
        assert!(answers.take(b"GET /nothing HTTP/1.1\r\n\r\n", &pattern).is_err());
    }
}
