//! One way of a connection between the loop and its worker: [`pipe`]. What one thread puts into
//! the [`Inlet`] the other takes from the [`Outlet`].
//!
//! Both are bounded. An inlet without room is *starved*; whoever empties the outlet then owes the
//! other side a notice.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
    },
};

use sealane_lab_model::error::Error;

/// How bytes go from thread to thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Carriage {
    /// In buffers behind locks.
    Locked,
    /// In lock-free rings, of what clients and of what the server says.
    Rings { requests: bytering::Limits, answers: bytering::Limits },
}

/// Whose bytes a pipe carries, encrypted or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Answers,
    Requests,
}

impl Carriage {
    /// Rings that hold as much as what is locked does.
    ///
    /// # Errors
    /// Never with these limits.
    pub(super) fn rings() -> Result<Self, Error> {
        let limits = |page_bytes| {
            bytering::Limits::new(page_bytes, PIPE_BYTES_MAX / page_bytes)
                .map_err(|error| Error::Check(format!("a ring's limits: {error}")))
        };
        let (requests, answers) = (limits(REQUEST_PAGE_BYTES)?, limits(ANSWER_PAGE_BYTES)?);
        Ok(Self::Rings { requests, answers })
    }
}

/// A pipe with nothing in it, that holds [`PIPE_BYTES_MAX`].
pub(super) fn pipe(carriage: Carriage, content: Content) -> (Inlet, Outlet) {
    let starved = Arc::new(AtomicBool::new(false));
    let (into, out) = match carriage {
        Carriage::Locked => {
            let bytes = Arc::new(Mutex::new(VecDeque::new()));
            (In::Locked(Arc::clone(&bytes)), Out::Locked(bytes))
        }
        Carriage::Rings { requests, answers } => {
            let limits = if content == Content::Answers { answers } else { requests };
            let (producer, consumer) = bytering::ring(limits);
            (In::Ring(producer), Out::Ring(consumer))
        }
    };
    (Inlet { into, starved: Arc::clone(&starved) }, Outlet { out, starved })
}

/// Where bytes go in.
pub(super) struct Inlet {
    into: In,
    starved: Arc<AtomicBool>,
}

enum In {
    Locked(Arc<Mutex<VecDeque<u8>>>),
    Ring(bytering::Producer),
}

impl Inlet {
    /// Lends room to `filler`, which says how much of it it has filled: in the ring itself, or in
    /// `scratch` where a lock guards the bytes, so that no system call is made under it. `None`:
    /// there is no room, and `filler` was not called.
    ///
    /// # Errors
    /// Those of `filler`.
    pub(super) fn fill<E>(
        &mut self,
        scratch: &mut [u8],
        filler: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Option<usize>, E> {
        match &mut self.into {
            In::Locked(bytes) => {
                // Nobody else puts anything in, so that the room can only grow meanwhile.
                let room = PIPE_BYTES_MAX.saturating_sub(lock(bytes).len()).min(scratch.len());
                if room == 0 {
                    return Ok(None);
                }
                let filled = filler(&mut scratch[..room])?;
                lock(bytes).extend(&scratch[..filled]);
                Ok(Some(filled))
            }
            In::Ring(ring) => {
                let room = ring.writable();
                if room.is_empty() {
                    return Ok(None);
                }
                let filled = filler(room)?;
                ring.commit(filled);
                Ok(Some(filled))
            }
        }
    }

    /// Copies as much of `bytes` as there is room for; how much that was.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        match &mut self.into {
            In::Locked(kept) => {
                let mut kept = lock(kept);
                let room = PIPE_BYTES_MAX.saturating_sub(kept.len()).min(bytes.len());
                kept.extend(&bytes[..room]);
                room
            }
            In::Ring(ring) => ring.write(bytes),
        }
    }

    /// Says that this side had too little room: before the notice that makes the other side look.
    pub(super) fn starve(&self) {
        self.starved.store(true, Release);
    }
}

/// Where they come out.
pub(super) struct Outlet {
    out: Out,
    starved: Arc<AtomicBool>,
}

enum Out {
    Locked(Arc<Mutex<VecDeque<u8>>>),
    Ring(bytering::Consumer),
}

impl Outlet {
    /// Shows the bytes at the front to `taker`, which says how many of them it took: in the ring
    /// itself, or in `scratch` where a lock guards them. It is not called if there are none.
    ///
    /// # Errors
    /// Those of `taker`.
    pub(super) fn drain<E>(
        &mut self,
        scratch: &mut [u8],
        taker: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        match &mut self.out {
            Out::Locked(bytes) => {
                let shown = copy_front(&lock(bytes), scratch);
                if shown == 0 {
                    return Ok(0);
                }
                let taken = taker(&scratch[..shown])?;
                lock(bytes).drain(..taken);
                Ok(taken)
            }
            Out::Ring(ring) => {
                let shown = ring.readable();
                if shown.is_empty() {
                    return Ok(0);
                }
                let taken = taker(shown)?;
                ring.consume(taken);
                Ok(taken)
            }
        }
    }

    /// Whether nothing is in it, now.
    pub(super) fn is_empty(&mut self) -> bool {
        match &mut self.out {
            Out::Locked(bytes) => lock(bytes).is_empty(),
            Out::Ring(ring) => ring.readable().is_empty(),
        }
    }

    /// Whether the inlet was starved and has room again, so that its side is owed a notice. To be
    /// asked after the outlet was emptied as far as it could be, with what that took.
    pub(super) fn relieves(&mut self, taken: usize) -> bool {
        self.starved.load(Acquire)
            && (taken > 0 || self.is_empty())
            && self.starved.swap(false, AcqRel)
    }
}

/// Copies what fits; how much that was.
fn copy_front(bytes: &VecDeque<u8>, into: &mut [u8]) -> usize {
    let (front, back) = bytes.as_slices();
    let first = front.len().min(into.len());
    into[..first].copy_from_slice(&front[..first]);
    let second = back.len().min(into.len() - first);
    into[first..first + second].copy_from_slice(&back[..second]);
    first + second
}

/// A thread that panicked has left whole bytes: they are checked by the client.
fn lock(bytes: &Mutex<VecDeque<u8>>) -> MutexGuard<'_, VecDeque<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a pipe holds at most. When the way in is full, the loop reads no more from that socket.
pub(super) const PIPE_BYTES_MAX: usize = 256 * 1024;
/// Four full records: what is read, sealed and sent at a time where bytes are behind a lock.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;
/// Any request but a large body fits in one page of a ring.
const REQUEST_PAGE_BYTES: usize = 16 * 1024;
/// An answer of 100,000 bytes does, so that no page comes and goes with each of them.
const ANSWER_PAGE_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_takes_no_more_and_owes_a_notice_once_it_has_room() {
        for carriage in [Carriage::Locked, Carriage::rings().unwrap()] {
            for content in [Content::Answers, Content::Requests] {
                let (mut inlet, mut outlet) = pipe(carriage, content);
                let bytes: Vec<u8> = (0..=255).cycle().take(PIPE_BYTES_MAX + 1).collect();
                assert_eq!(inlet.write(&bytes), PIPE_BYTES_MAX);
                let mut scratch = vec![0; CHUNK_BYTES];
                let filled = inlet.fill(&mut scratch, |_| Err("there is no room"));
                assert_eq!(filled, Ok(None));
                assert!(!outlet.relieves(1), "nobody is starved");
                inlet.starve();
                assert!(!outlet.relieves(0), "it is as full as before");
                let mut came = Vec::new();
                let mut take = |shown: &[u8]| {
                    came.extend_from_slice(shown);
                    Ok::<_, ()>(shown.len())
                };
                let taken = outlet.drain(&mut scratch, &mut take).unwrap();
                assert!(outlet.relieves(taken) && !outlet.relieves(taken), "once");
                let filler = |room: &mut [u8]| {
                    room[0] = bytes[PIPE_BYTES_MAX];
                    Ok::<_, ()>(1)
                };
                assert_eq!(inlet.fill(&mut scratch, filler), Ok(Some(1)));
                while outlet.drain(&mut scratch, &mut take).unwrap() > 0 {}
                assert!(came == bytes && outlet.is_empty());
            }
        }
    }

    #[test]
    fn what_was_not_taken_stays() {
        for carriage in [Carriage::Locked, Carriage::rings().unwrap()] {
            let (mut inlet, mut outlet) = pipe(carriage, Content::Requests);
            assert_eq!(inlet.write(b"abcdef"), 6);
            let mut scratch = [0; 4];
            let first = |shown: &[u8]| if shown.starts_with(b"abc") { Ok(3) } else { Err(()) };
            assert_eq!(outlet.drain(&mut scratch, first), Ok(3));
            let second = |shown: &[u8]| if shown == b"def" { Ok(3) } else { Err(()) };
            assert_eq!(outlet.drain(&mut scratch, second), Ok(3));
            assert_eq!(outlet.drain(&mut scratch, |_| Err(())), Ok(0));
        }
    }
}
