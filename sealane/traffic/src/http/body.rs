//! What follows the head of a request that brings something: [`Body`], read as it comes by the
//! thread that works on the request.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};
use zeroize::Zeroizing;

use super::message::{Response, Status};

/// A body that is on its way. It may be a secret: nothing that is read is left in memory by it.
#[derive(Debug)]
pub struct Body {
    framing: Framing,
    /// Bytes of it that came with the head, or behind the line of a chunk; those before `from` were
    /// given away.
    held: Zeroizing<Vec<u8>>,
    from: usize,
    socket: OwnedFd,
    /// How long nothing may come.
    silence: Duration,
    until: Instant,
    /// Whether the client waits to hear that it may send it.
    is_awaited: bool,
}

/// How the end of a body is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// In chunks, each behind a line with its length.
    Chunked(Chunk),
    /// By so many bytes that are left.
    Length(u64),
}

/// What of a body in chunks comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// So many bytes of a chunk.
    Data(u64),
    /// The end of line behind a chunk.
    EndOfData,
    /// Nothing.
    Nothing,
    /// The line with the length of a chunk.
    Size,
    /// Lines behind the last chunk.
    Trailers,
}

impl Framing {
    /// That of a request with these headers.
    ///
    /// # Errors
    /// It has none, or several that may contradict each other.
    pub(super) fn of(headers: &[httparse::Header<'_>]) -> Result<Self, (Status, &'static str)> {
        let of = |name: &str| {
            let named = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            named.map(|header| header.value.trim_ascii()).collect::<Vec<_>>()
        };
        match (&of("content-length")[..], &of("transfer-encoding")[..]) {
            ([], []) => Err((Status::LengthRequired, "say how long it is, or send it in chunks")),
            ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") => {
                Ok(Self::Chunked(Chunk::Size))
            }
            ([length], []) if length.iter().all(u8::is_ascii_digit) => {
                let length = str::from_utf8(length).ok().and_then(|text| text.parse().ok());
                length.map(Self::Length).ok_or((Status::BadRequest, "Content-Length: no number"))
            }
            _ => Err((Status::BadRequest, "one Content-Length, or Transfer-Encoding: chunked")),
        }
    }
}

impl Body {
    /// What follows on `socket`, and began with `came`.
    pub(super) fn new(socket: OwnedFd, came: &[u8], framing: Framing, is_awaited: bool) -> Self {
        let mut held = Zeroizing::new(Vec::with_capacity(HELD_BYTES));
        held.extend_from_slice(&came[..came.len().min(HELD_BYTES)]);
        let (silence, until) = (SILENCE_TIMEOUT, Instant::now() + BODY_TIMEOUT);
        Self { framing, held, from: 0, socket, silence, until, is_awaited }
    }

    /// The next bytes, which are written into `to`: at least one, or none at the end of it.
    ///
    /// # Errors
    /// It is not whole, or does not come.
    pub fn read(&mut self, to: &mut [u8]) -> Result<usize, BodyError> {
        loop {
            let left = match &mut self.framing {
                Framing::Chunked(Chunk::Nothing) | Framing::Length(0) => return Ok(0),
                Framing::Chunked(Chunk::Data(left)) | Framing::Length(left) => *left,
                Framing::Chunked(_) => {
                    self.next_chunk()?;
                    continue;
                }
            };
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(to.len());
            let count = self.take(&mut to[..most])?;
            match &mut self.framing {
                Framing::Chunked(next) if left == count as u64 => *next = Chunk::EndOfData,
                Framing::Chunked(Chunk::Data(left)) | Framing::Length(left) => {
                    *left -= count as u64;
                }
                Framing::Chunked(_) => {}
            }
            return Ok(count);
        }
    }

    /// The process at the other end, if the kernel tells: 0 where it is in a namespace beside.
    pub fn sender(&self) -> Option<i32> {
        sockopt::socket_peercred(&self.socket).ok().map(|peer| peer.pid.as_raw_nonzero().get())
    }

    /// Goes over one line between chunks.
    fn next_chunk(&mut self) -> Result<(), BodyError> {
        let Framing::Chunked(chunk) = self.framing else { return Ok(()) };
        let line = self.line()?;
        let line = &self.held[self.from - line..self.from];
        let next = match chunk {
            Chunk::Size => match httparse::parse_chunk_size(line) {
                Ok(httparse::Status::Complete((_, 0))) => Chunk::Trailers,
                Ok(httparse::Status::Complete((_, left))) => Chunk::Data(left),
                _ => return Err(BodyError::Malformed),
            },
            Chunk::EndOfData if line == b"\r\n" => Chunk::Size,
            Chunk::Trailers if line == b"\r\n" => Chunk::Nothing,
            Chunk::Trailers => Chunk::Trailers,
            _ => return Err(BodyError::Malformed),
        };
        self.framing = Framing::Chunked(next);
        Ok(())
    }

    /// Goes over the next line; returns how long it is.
    fn line(&mut self) -> Result<usize, BodyError> {
        loop {
            let held = &self.held[self.from..];
            if let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                self.from += end + 1;
                return Ok(end + 1);
            }
            if held.len() >= LINE_BYTES_MAX {
                return Err(BodyError::Malformed);
            }
            let len = held.len();
            self.held.copy_within(self.from.., 0);
            self.from = 0;
            let mut beside = std::mem::take(&mut self.held);
            beside.resize(HELD_BYTES, 0);
            let received = self.receive(&mut beside[len..]);
            beside.truncate(len + received.as_ref().map_or(0, |count| *count));
            self.held = beside;
            received?;
        }
    }

    /// The next bytes, however they came.
    fn take(&mut self, to: &mut [u8]) -> Result<usize, BodyError> {
        let held = &self.held[self.from..];
        if held.is_empty() {
            return self.receive(to);
        }
        let count = held.len().min(to.len());
        to[..count].copy_from_slice(&held[..count]);
        self.from += count;
        Ok(count)
    }

    /// Waits for bytes from the socket.
    fn receive(&mut self, to: &mut [u8]) -> Result<usize, BodyError> {
        if std::mem::take(&mut self.is_awaited) {
            // A few bytes on a socket on which nothing was sent: they fit, or nobody is there.
            let _ = send(&self.socket, CONTINUE, SendFlags::NOSIGNAL);
        }
        loop {
            // Who sends without a pause is never waited for.
            if Instant::now() >= self.until {
                return Err(BodyError::Slow);
            }
            match recv(&self.socket, &mut *to, RecvFlags::empty()) {
                Ok((0, _)) => return Err(BodyError::Cut),
                Ok((count, _)) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait()?,
                Err(_) => return Err(BodyError::Cut),
            }
        }
    }

    fn wait(&self) -> Result<(), BodyError> {
        let left = self.until.saturating_duration_since(Instant::now());
        let patience = left.min(self.silence);
        let timeout = Timespec::try_from(patience).map_err(|_| BodyError::Slow)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if left <= self.silence => Err(BodyError::Slow),
            Ok(0) => Err(BodyError::Silent),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(_) => Err(BodyError::Cut),
        }
    }
}

/// Why a body is not whole: the client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The client has left.
    #[error("the sender left before the end of it; send it again")]
    Cut,
    /// What stands between two chunks is none of HTTP.
    #[error("its chunks are not as HTTP has them; mend the sender")]
    Malformed,
    /// Nothing came for long.
    #[error("nothing came for {} s; send it again, without a pause", SILENCE_TIMEOUT.as_secs())]
    Silent,
    /// All of it took too long.
    #[error("it took longer than {} minutes; send it in parts", BODY_TIMEOUT.as_secs() / 60)]
    Slow,
}

impl BodyError {
    /// The answer to a request that ended so, with such a body.
    pub fn status(self) -> Status {
        match self {
            Self::Cut | Self::Malformed => Status::BadRequest,
            Self::Silent | Self::Slow => Status::RequestTimeout,
        }
    }
}

impl From<BodyError> for Response {
    fn from(error: BodyError) -> Self {
        Self::text(error.status(), error)
    }
}

/// From the end of the head to that of the body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Between two parts of a body.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// What came with the head, and lines between chunks.
const HELD_BYTES: usize = 16 * 1024;
/// Bytes of such a line.
const LINE_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use proptest::prelude::*;

    use super::*;

    /// What is read of `sent`, of which so much came with the head, after which the sender leaves.
    fn read(sent: &[u8], with_head: usize, framing: Framing) -> Result<Vec<u8>, BodyError> {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (came, later) = sent.split_at(with_head.min(sent.len()));
        ours.write_all(later).unwrap();
        drop(ours);
        let mut body = Body::new(theirs.into(), came, framing, false);
        let (mut all, mut part) = (Vec::new(), [0; 7]);
        loop {
            match body.read(&mut part)? {
                0 => return Ok(all),
                count => all.extend_from_slice(&part[..count]),
            }
        }
    }

    const CHUNKED: Framing = Framing::Chunked(Chunk::Size);

    #[test]
    fn a_body_is_whole_or_cut() {
        assert_eq!(read(b"hello, behind it", 2, Framing::Length(5)), Ok(b"hello".to_vec()));
        assert_eq!(read(b"hell", 2, Framing::Length(5)), Err(BodyError::Cut));
        assert_eq!(read(b"", 0, Framing::Length(0)), Ok(Vec::new()));
        let sent = b"5;a=b\r\nhello\r\n00C\r\nhello, hello\r\n0\r\nTrailer: x\r\n\r\nbehind";
        for with_head in [0, 1, 8, sent.len()] {
            let whole = read(sent, with_head, CHUNKED);
            assert_eq!(whole, Ok(b"hellohello, hello".to_vec()), "{with_head}");
        }
        for len in 0..sent.len() - "\nbehind".len() {
            assert_eq!(read(&sent[..len], 0, CHUNKED), Err(BodyError::Cut), "{len}");
        }
        for wrong in ["x\r\n", "5\r\nhello!\r\n", "-1\r\n", "5 5\r\n", "fffffffffffffffff\r\n"] {
            assert_eq!(read(wrong.as_bytes(), 0, CHUNKED), Err(BodyError::Malformed), "{wrong}");
        }
        let endless = "1;".to_owned() + &"x".repeat(2 * LINE_BYTES_MAX);
        assert_eq!(read(endless.as_bytes(), 0, CHUNKED), Err(BodyError::Malformed));
    }

    #[test]
    fn nobody_is_waited_for_without_an_end() {
        let read = |silence_ms, left_ms| {
            let (_ours, theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let mut body = Body::new(theirs.into(), b"", Framing::Length(1), false);
            body.silence = Duration::from_millis(silence_ms);
            body.until = Instant::now() + Duration::from_millis(left_ms);
            body.read(&mut [0]).map_err(|error| (error, error.status()))
        };
        let timeout = Status::RequestTimeout;
        assert_eq!(read(1, 3_600_000), Err((BodyError::Silent, timeout)));
        assert_eq!(read(3_600_000, 1), Err((BodyError::Slow, timeout)));
        assert_eq!(read(3_600_000, 0), Err((BodyError::Slow, timeout)));
    }

    #[test]
    fn a_request_says_once_how_its_end_is_told() {
        let of = |headers: &[(&'static str, &'static str)]| {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| httparse::Header { name, value: value.as_bytes() })
                .collect();
            Framing::of(&headers).map_err(|(status, _)| status)
        };
        assert_eq!(of(&[("content-length", " 17 ")]), Ok(Framing::Length(17)));
        assert_eq!(of(&[("Transfer-Encoding", "Chunked")]), Ok(CHUNKED));
        assert_eq!(of(&[]), Err(Status::LengthRequired));
        for wrong in [
            &[("Content-Length", "1"), ("Content-Length", "1")][..],
            &[("Content-Length", "1"), ("Transfer-Encoding", "chunked")],
            &[("Content-Length", "+1")],
            &[("Content-Length", "")],
            &[("Content-Length", "99999999999999999999")],
            &[("Transfer-Encoding", "gzip, chunked")],
            &[("Transfer-Encoding", "chunked"), ("Transfer-Encoding", "chunked")],
        ] {
            assert_eq!(of(wrong), Err(Status::BadRequest), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_in_chunks_ends(
            sent in proptest::collection::vec(any::<u8>(), 0..200),
            with_head in 0_usize..200,
        ) {
            let _ = read(&sent, with_head, CHUNKED);
        }

        #[test]
        fn what_is_sent_in_chunks_is_read(
            chunks in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 1..60), 0..8),
            with_head in 0_usize..200,
        ) {
            let mut sent = Vec::new();
            for chunk in &chunks {
                write!(sent, "{:x}\r\n", chunk.len()).unwrap();
                sent.extend_from_slice(chunk);
                sent.extend_from_slice(b"\r\n");
            }
            sent.extend_from_slice(b"0\r\n\r\n");
            prop_assert_eq!(read(&sent, with_head, CHUNKED), Ok(chunks.concat()));
        }
    }
}
