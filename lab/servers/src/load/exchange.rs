//! One HTTP/1.1 exchange: a [`Request`] to send, and the [`Answer`] that takes what comes back and
//! checks all of it.

use crate::load::{Pattern, slot::Failure};

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A download of this many bytes of the pattern from the lab's backend.
    Download(u64),
    /// A number, different for every request, that the lab's backend gives back.
    Echo,
    /// Whatever any server has at that path.
    Get(String),
    /// This many bytes of the pattern that the lab's own servers take and give back.
    Mirror(u64),
    /// An upload of this many bytes of the pattern, which the lab's backend is to find right.
    Upload(u64),
}

impl Request {
    /// Appends the head of the request as it travels.
    pub(crate) fn write_head(&self, host: &str, nonce: u64, head: &mut Vec<u8>) {
        let line = match self {
            Self::Download(bytes) => format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Self::Echo => format!("GET /echo/{nonce:016x} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Self::Get(path) => format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Self::Mirror(bytes) | Self::Upload(bytes) => {
                let path = if matches!(self, Self::Mirror(_)) { "mirror" } else { "upload" };
                format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {bytes}\r\n\r\n")
            }
        };
        head.extend_from_slice(line.as_bytes());
    }

    /// Bytes of the pattern that follow the head.
    pub fn body_bytes(&self) -> u64 {
        if let Self::Mirror(bytes) | Self::Upload(bytes) = self { *bytes } else { 0 }
    }

    /// What must come back.
    pub fn answer(&self, nonce: u64) -> Answer {
        let wanted = match self {
            Self::Download(bytes) | Self::Mirror(bytes) => Wanted::Pattern(*bytes),
            Self::Echo => Wanted::Text(format!("{nonce:016x}")),
            Self::Get(_) => Wanted::Anything,
            Self::Upload(bytes) => Wanted::Text(bytes.to_string()),
        };
        Answer { wanted, part: Part::Head(Vec::new()), body_bytes: 0, text: Vec::new() }
    }
}

/// An answer on its way in.
pub struct Answer {
    wanted: Wanted,
    part: Part,
    body_bytes: u64,
    text: Vec<u8>,
}

enum Wanted {
    Anything,
    Pattern(u64),
    Text(String),
}

/// What the next byte belongs to.
enum Part {
    Head(Vec<u8>),
    /// This many bytes to the end.
    Body(u64),
    /// The line with a chunk's length, or the empty one before it.
    ChunkHead(Vec<u8>),
    Chunk(u64),
    /// Lines behind the last chunk, up to an empty one.
    Trailer(Vec<u8>),
    /// The body lasts as long as the connection.
    Rest,
    Done,
}

impl Answer {
    /// Whether the last byte has come.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.part, Part::Done)
    }

    /// Bytes of the body so far.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// The server closed: which may be how it says that its answer is whole.
    pub(crate) fn ends_here(&mut self) {
        if matches!(self.part, Part::Rest) {
            self.part = Part::Done;
        }
    }

    /// Takes what came.
    pub fn take(&mut self, mut bytes: &[u8], pattern: &Pattern) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match &mut self.part {
                Part::Head(_) => bytes = self.take_head(bytes)?,
                Part::Body(left) | Part::Chunk(left) => {
                    let (now, rest) = split(bytes, *left);
                    *left -= now.len() as u64;
                    let (ended, chunked) = (*left == 0, matches!(self.part, Part::Chunk(_)));
                    self.check(now, pattern)?;
                    if ended && chunked {
                        self.part = Part::ChunkHead(Vec::new());
                    } else if ended {
                        self.end()?;
                    }
                    bytes = rest;
                }
                Part::ChunkHead(line) => {
                    let (byte, rest) = (bytes[0], &bytes[1..]);
                    push(line, byte)?;
                    if byte == b'\n' && line.len() > 2 {
                        self.part = match chunk_bytes(line)? {
                            0 => Part::Trailer(Vec::new()),
                            length => Part::Chunk(length),
                        };
                    } else if byte == b'\n' {
                        line.clear(); // the end of the chunk before
                    }
                    bytes = rest;
                }
                Part::Trailer(line) => {
                    let (byte, rest) = (bytes[0], &bytes[1..]);
                    push(line, byte)?;
                    if byte == b'\n' && line.len() <= 2 {
                        self.end()?;
                    } else if byte == b'\n' {
                        line.clear();
                    }
                    bytes = rest;
                }
                Part::Rest => {
                    self.check(bytes, pattern)?;
                    bytes = &[];
                }
                Part::Done => return Err(Failure::answer("more bytes than were asked for")),
            }
        }
        Ok(())
    }

    /// Takes up to the end of the head, and gives back what follows it.
    fn take_head<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Failure> {
        let Part::Head(head) = &mut self.part else { return Ok(bytes) };
        let before = head.len();
        let room = (HEAD_BYTES_MAX - before).min(bytes.len());
        head.extend_from_slice(&bytes[..room]);
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response
            .parse(head)
            .map_err(|error| Failure::answer(format!("this is no HTTP answer: {error}")))?;
        let httparse::Status::Complete(length) = parsed else {
            return match head.len() < HEAD_BYTES_MAX {
                true => Ok(&bytes[room..]),
                false => Err(Failure::answer("the head of the answer is too long")),
            };
        };
        let status = response.code.unwrap_or(0);
        if !(200..400).contains(&status) {
            return Err(Failure::answer(format!("the answer has status {status}")));
        }
        let part = body(&response, status);
        if matches!((&part, &self.wanted), (Part::Rest, Wanted::Pattern(_) | Wanted::Text(_))) {
            return Err(Failure::answer("the answer does not tell its length"));
        }
        self.part = part;
        if matches!(self.part, Part::Body(0)) {
            self.end()?;
        }
        Ok(&bytes[length - before..])
    }

    fn check(&mut self, bytes: &[u8], pattern: &Pattern) -> Result<(), Failure> {
        match &self.wanted {
            Wanted::Anything => {}
            Wanted::Pattern(length) => {
                let after = self.body_bytes + bytes.len() as u64;
                let mut at = self.body_bytes;
                for part in bytes.chunks(super::PATTERN_CHUNK_BYTES) {
                    if after > *length || !pattern.matches(at, part) {
                        return Err(Failure::answer(format!("the answer differs after byte {at}")));
                    }
                    at += part.len() as u64;
                }
            }
            Wanted::Text(text) => {
                self.text.extend_from_slice(bytes);
                if !text.as_bytes().starts_with(&self.text) {
                    return Err(Failure::answer("an answer differs from what the backend sent"));
                }
            }
        }
        self.body_bytes += bytes.len() as u64;
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        let whole = match &self.wanted {
            Wanted::Anything => true,
            Wanted::Pattern(length) => self.body_bytes == *length,
            Wanted::Text(text) => self.text == text.as_bytes(),
        };
        self.part = Part::Done;
        if whole { Ok(()) } else { Err(Failure::answer("an answer is shorter than it must be")) }
    }
}

/// How the body is delimited.
fn body(response: &httparse::Response<'_, '_>, status: u16) -> Part {
    if matches!(status, 204 | 304) {
        return Part::Body(0);
    }
    let header = |name: &str| {
        let found = response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.and_then(|header| std::str::from_utf8(header.value).ok())
    };
    if header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        return Part::ChunkHead(Vec::new());
    }
    let length = header("content-length").and_then(|value| value.trim().parse().ok());
    length.map_or(Part::Rest, Part::Body)
}

fn split(bytes: &[u8], left: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()))
}

fn push(line: &mut Vec<u8>, byte: u8) -> Result<(), Failure> {
    line.push(byte);
    match line.len() <= LINE_BYTES_MAX {
        true => Ok(()),
        false => Err(Failure::answer("a line between chunks is too long")),
    }
}

fn chunk_bytes(line: &[u8]) -> Result<u64, Failure> {
    let text = std::str::from_utf8(line).unwrap_or_default();
    let digits = text.split(';').next().unwrap_or_default().trim();
    u64::from_str_radix(digits, 16).map_err(|_| Failure::answer("a chunk without a length"))
}

const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;
const LINE_BYTES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the answer in pieces of this many bytes.
    fn taken(request: &Request, answer: &str, piece_bytes: usize) -> Result<bool, String> {
        let (mut taking, pattern) = (request.answer(7), Pattern::default());
        for piece in answer.as_bytes().chunks(piece_bytes) {
            taking.take(piece, &pattern).map_err(|failure| failure.text)?;
        }
        Ok(taking.is_done())
    }

    #[test]
    fn an_answer_ends_where_it_says_however_it_is_cut() {
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n0000000000000007";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                       4\r\n0000\r\nc;x=y\r\n000000000007\r\n0\r\nA: b\r\n\r\n";
        for piece_bytes in 1..80 {
            assert_eq!(taken(&Request::Echo, whole, piece_bytes), Ok(true));
            assert_eq!(taken(&Request::Echo, chunked, piece_bytes), Ok(true));
            assert_eq!(taken(&Request::Echo, &whole[..50], piece_bytes), Ok(false));
        }
    }

    #[test]
    fn a_changed_short_or_long_answer_is_none() {
        let differs = "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n0000000000000008";
        assert!(taken(&Request::Echo, differs, 9).unwrap_err().contains("differs"));
        let short = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n000";
        assert!(taken(&Request::Echo, short, 9).unwrap_err().contains("shorter"));
        let long = "HTTP/1.1 204 No Content\r\n\r\nx";
        assert!(taken(&Request::Get("/".into()), long, 9).unwrap_err().contains("more bytes"));
        let wrong = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n";
        assert!(taken(&Request::Echo, wrong, 9).unwrap_err().contains("502"));
    }

    #[test]
    fn an_answer_without_a_length_ends_with_its_connection() {
        let mut answer = Request::Get("/".into()).answer(0);
        answer.take(b"HTTP/1.0 200 ok\r\n\r\nhello", &Pattern::default()).unwrap();
        assert!(!answer.is_done());
        answer.ends_here();
        assert!(answer.is_done() && answer.body_bytes() == 5);
        let mut cut = Request::Get("/".into()).answer(0);
        cut.take(b"HTTP/1.0 200 ok\r\nContent-Length: 6\r\n\r\nhello", &Pattern::default())
            .unwrap();
        cut.ends_here();
        assert!(!cut.is_done());
    }

    #[test]
    fn every_byte_of_a_download_is_looked_at() {
        let pattern = Pattern::default();
        let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec();
        bytes.extend_from_slice(pattern.at(0, 1_000));
        let mut answer = Request::Download(1_000).answer(0);
        assert!(answer.take(&bytes, &pattern).is_ok() && answer.is_done());
        *bytes.last_mut().unwrap() ^= 1;
        let mut answer = Request::Download(1_000).answer(0);
        assert!(answer.take(&bytes, &pattern).unwrap_err().text.contains("differs"));
    }
}
