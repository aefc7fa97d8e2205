//! A lane's spare buffers: a connection takes one only while bytes are pending for it.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use sealane_engine::buffer::Buffer;

/// Large buffers that wait for their next use.
///
/// What a slow peer leaves pending goes with the connection: a large rest in the buffer it already
/// lies in, without a copy; a small rest in a buffer of its own size. When many peers are slow the
/// pool runs dry, [`Pool::is_scarce`] turns true and the lane reads less at a time, so that a
/// stalled connection costs kilobytes instead of a whole buffer.
pub(crate) struct Pool {
    spare: Vec<Buffer>,
    /// Held once more by every large buffer that a connection holds right now.
    lease: Rc<()>,
    capacity: usize,
}

/// Bytes that a slow peer has not taken yet, in a buffer of their own or in a large one that is
/// lent for as long as this exists. A pointer, because most connections have nothing pending, and
/// every connection has room for it.
pub(crate) struct Pending(Box<Lent>);

struct Lent {
    buffer: Buffer,
    _lease: Option<Rc<()>>,
}

impl Pending {
    /// A copy of `bytes` in a buffer of their size.
    pub(crate) fn holding(bytes: &[u8]) -> Self {
        Self(Box::new(Lent { buffer: Buffer::holding(bytes), _lease: None }))
    }
}

impl Deref for Pending {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.0.buffer
    }
}

impl DerefMut for Pending {
    fn deref_mut(&mut self) -> &mut Buffer {
        &mut self.0.buffer
    }
}

/// Large buffers that connections may hold before reads get smaller.
pub(crate) const LENT_BUFFERS_MAX: usize = 64;
/// Most bytes taken from a socket in one read, and so most work that one connection gets in a turn.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;
/// The same when many peers are slow and large buffers are scarce.
pub(crate) const READ_BYTES_SCARCE: usize = 16 * 1024;
/// Unused buffers that are kept rather than freed.
const SPARE_BUFFERS_MAX: usize = 4;
/// A rest of at most this is copied to a buffer of its own size.
pub(crate) const SMALL_REST_BYTES: usize = 32 * 1024;

impl Pool {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { spare: Vec::new(), lease: Rc::new(()), capacity }
    }

    /// Whether so many buffers are lent that reads should be small.
    pub(crate) fn is_scarce(&self) -> bool {
        // One is the pool's own.
        Rc::strong_count(&self.lease) > LENT_BUFFERS_MAX
    }

    /// How much to read behind `carried_len` bytes that are there already.
    pub(crate) fn read_len(&self, carried_len: usize) -> usize {
        let whole = if self.is_scarce() { READ_BYTES_SCARCE } else { READ_BYTES_MAX };
        whole.saturating_sub(carried_len).max(READ_BYTES_SCARCE)
    }

    /// Takes what is left in the lane's own `buffer`, which is empty and large again afterwards.
    pub(crate) fn detach(&mut self, buffer: &mut Buffer) -> Pending {
        if buffer.len() <= SMALL_REST_BYTES {
            let rest = Pending::holding(buffer.filled());
            buffer.clear();
            return rest;
        }
        let fresh = self.spare.pop().unwrap_or_else(|| Buffer::with_capacity(self.capacity));
        let _lease = Some(Rc::clone(&self.lease));
        Pending(Box::new(Lent { buffer: std::mem::replace(buffer, fresh), _lease }))
    }

    /// Takes a connection's buffer back, which is cheaper than to drop it.
    pub(crate) fn give_back(&mut self, pending: Pending) {
        let mut buffer = pending.0.buffer;
        if buffer.capacity() == self.capacity && self.spare.len() < SPARE_BUFFERS_MAX {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_rest_moves_with_its_buffer_and_a_small_one_is_copied() {
        let mut pool = Pool::new(100_000);
        let mut own = Buffer::with_capacity(100_000);
        own.append(&[1; 50_000]);
        let address = own.filled().as_ptr();
        let large = pool.detach(&mut own);
        assert_eq!(large.filled().as_ptr(), address, "no copy");
        assert_eq!((own.len(), own.capacity()), (0, 100_000));

        own.append(b"rest");
        let small = pool.detach(&mut own);
        assert_eq!((small.filled(), small.capacity()), (&b"rest"[..], 4));
        assert!(own.is_empty());
    }

    #[test]
    fn it_is_scarce_while_too_many_are_lent() {
        let mut pool = Pool::new(SMALL_REST_BYTES + 1);
        let mut own = Buffer::with_capacity(SMALL_REST_BYTES + 1);
        let mut lent = Vec::new();
        for _ in 0..LENT_BUFFERS_MAX {
            assert!(!pool.is_scarce());
            own.append(&[0; SMALL_REST_BYTES + 1]);
            lent.push(pool.detach(&mut own));
        }
        assert!(pool.is_scarce());
        pool.give_back(lent.remove(0));
        assert!(!pool.is_scarce());
        own.append(&[0; SMALL_REST_BYTES + 1]);
        let dropped = pool.detach(&mut own);
        assert!(pool.is_scarce());
        drop(dropped);
        assert!(!pool.is_scarce(), "a buffer that an error took along is lent no more");
        lent.into_iter().for_each(|buffer| pool.give_back(buffer));
        assert_eq!(pool.spare.len(), SPARE_BUFFERS_MAX);
    }
}
