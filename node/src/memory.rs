//! The memory that JavaScript shares with a lane: [`SharedRegion`]. All `unsafe` of the addon is
//! here.
#![expect(unsafe_code, reason = "a ring's ends attach to memory that another language allocated")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use bytering::region::{Consumer, Producer, RegionError, bytes};
use napi::bindgen_prelude::Uint8Array;
use rustix::io::Errno;

use crate::RING;

/// One ring's region, which JavaScript does not free for as long as this is there.
pub struct SharedRegion {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the array, and it its memory.
    _array: Uint8Array,
}

// SAFETY: the pointer is only passed on to ends of a ring, which may move to another thread.
unsafe impl Send for SharedRegion {}

impl SharedRegion {
    /// The region that `array` is a view of. It must be called on JavaScript's thread.
    ///
    /// # Errors
    /// The array is empty.
    pub fn new(mut array: Uint8Array) -> Result<Self, RegionError> {
        // SAFETY: JavaScript waits for this call, and no lane has the region yet. The slice is gone
        // before either goes on, and none is made of this array again.
        let slice = unsafe { array.as_mut() };
        let (start, len) = (NonNull::new(slice.as_mut_ptr()), slice.len());
        let none = RegionError::TooSmall { bytes: 0, needed: bytes(RING) };
        let start = start.filter(|_| len > 0).ok_or(none)?;
        Ok(Self { start, len, _array: array })
    }

    /// The end that writes to JavaScript. Its owner drops it before this region.
    ///
    /// # Errors
    /// The region is too small, or begins at an odd place.
    pub fn producer(&self) -> Result<Producer, RegionError> {
        // SAFETY: a shared buffer neither moves nor shrinks, and this keeps it: `Control` drops it
        // when the lane that had the end was joined. JavaScript makes it for each server, so all
        // zeros, and takes one end. The ring's ends bear any other bytes that it writes there.
        unsafe { Producer::attach(self.start, self.len, RING) }
    }

    /// The end that reads from JavaScript, likewise.
    ///
    /// # Errors
    /// As of [`Self::producer`].
    pub fn consumer(&self) -> Result<Consumer, RegionError> {
        // SAFETY: as of `producer`.
        unsafe { Consumer::attach(self.start, self.len, RING) }
    }
}

/// The offset of the first byte in `array` at which a region can begin.
pub fn first_aligned(array: &mut Uint8Array) -> usize {
    // SAFETY: as in `SharedRegion::new`.
    let address = unsafe { array.as_mut() }.as_ptr().addr();
    address.next_multiple_of(REGION_ALIGNMENT) - address
}

/// The socket that JavaScript has under this number; it stays JavaScript's.
///
/// # Errors
/// There is nothing of this number.
pub fn borrowed(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: a number that is no descriptor makes the call fail; JavaScript, which has named it,
    // does not close it before the call returns.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// Cache lines of the ring's header, in pairs.
const REGION_ALIGNMENT: usize = 128;
