//! What travels: a stream of messages whose every byte is known beforehand, made by a [`Source`]
//! and checked by a [`Sink`].

use std::{sync::Arc, thread};

use sealane_lab_harness::processor::thread_cpu_ns;
use sealane_lab_model::error::Error;
use sha2::{Digest, Sha256};

use crate::bulk::task::{Fault, FaultKind, Verify};

/// One pattern for all messages. A message's first bytes say whose it is and which, so that one
/// that is lost, doubled or crossed shows.
pub(crate) struct Content {
    pattern: Vec<u8>,
    messages: u64,
}

impl Content {
    pub(crate) fn new(message_bytes: usize, messages: u64) -> Arc<Self> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let step = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        };
        let pattern = std::iter::repeat_with(step).take(message_bytes).collect();
        Arc::new(Self { pattern, messages })
    }

    /// Bytes that each connection carries.
    pub(crate) fn bytes(&self) -> u64 {
        self.messages * self.pattern.len() as u64
    }

    /// SHA-256 of what each connection carries, computed by as many threads.
    pub(crate) fn digests(&self, connections: usize, threads: usize) -> Vec<[u8; 32]> {
        let mut digests = vec![[0; 32]; connections];
        let share = connections.div_ceil(threads.max(1)).max(1);
        thread::scope(|scope| {
            for (part, digests) in digests.chunks_mut(share).enumerate() {
                scope.spawn(move || {
                    for (at, digest) in digests.iter_mut().enumerate() {
                        *digest = self.digest(part * share + at);
                    }
                });
            }
        });
        digests
    }

    fn digest(&self, connection: usize) -> [u8; 32] {
        let mut hash = Sha256::new();
        for message in 0..self.messages {
            let mark = mark(connection, message);
            let marked = mark.len().min(self.pattern.len());
            hash.update(&mark[..marked]);
            hash.update(&self.pattern[marked..]);
        }
        hash.finalize().into()
    }

    /// Where `bytes`, which stand at `position` of the stream, first differ from what they should
    /// be.
    fn difference(&self, connection: usize, position: u64, bytes: &[u8]) -> Option<u64> {
        let size = self.pattern.len();
        let mut rest = bytes;
        let mut at = position;
        while !rest.is_empty() {
            let offset = usize::try_from(at % size as u64).unwrap_or(0);
            let mark = mark(connection, at / size as u64);
            let wanted = match mark.get(offset..mark.len().min(size)) {
                Some(wanted) if !wanted.is_empty() => wanted,
                _ => &self.pattern[offset..],
            };
            let len = wanted.len().min(rest.len());
            if wanted[..len] != rest[..len] {
                let equal = wanted.iter().zip(rest).take_while(|(a, b)| a == b).count();
                return Some(at + equal as u64);
            }
            rest = &rest[len..];
            at += len as u64;
        }
        None
    }
}

const MARK_BYTES: usize = 16;

fn mark(connection: usize, message: u64) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(&(connection as u64).to_le_bytes());
    mark[8..].copy_from_slice(&message.to_le_bytes());
    mark
}

/// The sender's messages, one after the other in a buffer of its own.
pub(crate) struct Source {
    connection: usize,
    content: Arc<Content>,
    message: Vec<u8>,
    position: u64,
    fault: Option<Fault>,
}

impl Source {
    /// `fault` is injected if it is this connection's.
    pub(crate) fn new(content: &Arc<Content>, connection: usize, fault: Option<Fault>) -> Self {
        Self {
            connection,
            content: Arc::clone(content),
            message: content.pattern.clone(),
            position: 0,
            fault: fault.filter(|fault| fault.connection == connection),
        }
    }

    /// Bytes handed out so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.position
    }

    /// The next piece of a message, at most `most` bytes, and what is to be done to it; `None` at
    /// the end.
    pub(crate) fn next(&mut self, most: usize) -> Option<(&[u8], Harm)> {
        if self.position == self.content.bytes() {
            return None;
        }
        let size = self.message.len();
        let offset = usize::try_from(self.position % size as u64).unwrap_or(0);
        if offset == 0 {
            let mark = mark(self.connection, self.position / size as u64);
            let marked = mark.len().min(size);
            self.message[..marked].copy_from_slice(&mark[..marked]);
        }
        let len = most.min(size - offset);
        let start = self.position;
        self.position += len as u64;
        let is_here = |fault: &&mut Fault| (start..start + len as u64).contains(&fault.after_bytes);
        let harm = match self.fault.as_mut().filter(is_here).map(|fault| fault.kind) {
            None => Harm::None,
            Some(FaultKind::Corrupt) => Harm::Ciphertext,
            Some(FaultKind::CorruptPlaintext) => {
                self.message[offset + len / 2] ^= 1;
                Harm::None
            }
            Some(FaultKind::Reset) => Harm::Reset,
        };
        Some((&self.message[offset..offset + len], harm))
    }
}

/// What a test wants to happen to a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    /// One bit of its ciphertext is flipped.
    Ciphertext,
    /// Nothing.
    None,
    /// The connection is reset in its place.
    Reset,
}

/// Flips one bit of the last record's authentication tag. A bit of a record's header would not do:
/// rustls takes a TLS 1.3 record whatever type is written outside.
pub(crate) fn flip_bit(ciphertext: &mut [u8]) {
    if let Some(byte) = ciphertext.last_mut() {
        *byte ^= 1;
    }
}

/// The receiver's check of everything that arrives.
pub(crate) struct Sink {
    connection: usize,
    content: Arc<Content>,
    position: u64,
    hash: Option<Sha256>,
    check_ns: u64,
}

impl Sink {
    pub(crate) fn new(content: &Arc<Content>, connection: usize, verify: Verify) -> Self {
        Self {
            connection,
            content: Arc::clone(content),
            position: 0,
            hash: (verify == Verify::Sha256).then(Sha256::new),
            check_ns: 0,
        }
    }

    /// Takes the next bytes; whether they were the last.
    ///
    /// # Errors
    /// They are not what was sent, as far as that shows at once, or they are too many.
    pub(crate) fn take(&mut self, plaintext: &[u8]) -> Result<bool, Error> {
        let before_ns = thread_cpu_ns();
        let wrong =
            |what: String| Err(Error::Check(format!("connection {}: {what}", self.connection)));
        if self.position + plaintext.len() as u64 > self.content.bytes() {
            return wrong(format!("more than {} bytes arrived", self.content.bytes()));
        }
        match &mut self.hash {
            Some(hash) => hash.update(plaintext),
            None => {
                let content = &self.content;
                if let Some(at) = content.difference(self.connection, self.position, plaintext) {
                    return wrong(format!("byte {at} that arrived is not the one that was sent"));
                }
            }
        }
        self.position += plaintext.len() as u64;
        self.check_ns += thread_cpu_ns().saturating_sub(before_ns);
        Ok(self.position == self.content.bytes())
    }

    /// Bytes taken so far.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.position
    }

    /// CPU time that the checks took.
    pub(crate) fn check_ns(&self) -> u64 {
        self.check_ns
    }

    /// SHA-256 of all that was taken, if that is what was asked for.
    pub(crate) fn digest(&self) -> Option<[u8; 32]> {
        self.hash.clone().map(|hash| hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carry(verify: Verify, fault: Option<Fault>, piece: usize) -> Result<Sink, Error> {
        let content = Content::new(100, 7);
        let mut source = Source::new(&content, 3, fault);
        let mut sink = Sink::new(&content, 3, verify);
        while let Some((bytes, _)) = source.next(piece) {
            sink.take(bytes)?;
        }
        assert_eq!(source.sent_bytes(), 700);
        Ok(sink)
    }

    #[test]
    fn what_was_sent_is_what_is_wanted_however_it_is_cut() {
        for piece in [1, 7, 16, 64, 1_000] {
            assert_eq!(carry(Verify::Compare, None, piece).unwrap().received_bytes(), 700);
            let digest = carry(Verify::Sha256, None, piece).unwrap().digest();
            assert_eq!(digest, Content::new(100, 7).digests(5, 2).get(3).copied());
        }
    }

    #[test]
    fn messages_shorter_than_their_mark_are_checked_too() {
        let content = Content::new(5, 3);
        let mut sink = Sink::new(&content, 1, Verify::Compare);
        let mut source = Source::new(&content, 1, None);
        while let Some((bytes, _)) = source.next(2) {
            sink.take(bytes).unwrap();
        }
        assert_eq!(sink.received_bytes(), 15);
    }

    #[test]
    fn a_wrong_bit_a_lost_and_a_doubled_message_show() {
        let fault = Fault { kind: FaultKind::CorruptPlaintext, connection: 3, after_bytes: 250 };
        assert!(carry(Verify::Compare, Some(fault), 64).is_err());
        let digest = carry(Verify::Sha256, Some(fault), 64).unwrap().digest();
        assert_ne!(digest, Content::new(100, 7).digests(5, 2).get(3).copied());

        let content = Content::new(100, 7);
        let mut source = Source::new(&content, 0, None);
        let first = source.next(100).unwrap().0.to_vec();
        let mut sink = Sink::new(&content, 0, Verify::Compare);
        sink.take(&first).unwrap();
        assert!(sink.take(&first).is_err(), "a doubled message");
        let mut sink = Sink::new(&content, 1, Verify::Compare);
        assert!(sink.take(&first).is_err(), "another connection's message");
    }

    #[test]
    fn bytes_beyond_the_end_are_refused() {
        let content = Content::new(4, 1);
        let mut sink = Sink::new(&content, 0, Verify::Sha256);
        assert!(sink.take(&[0; 5]).is_err());
    }
}
