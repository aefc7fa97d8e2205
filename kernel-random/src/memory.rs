//! Memory straight from the kernel.

use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use zeroize::Zeroize;

/// Bytes that begin as zeros, and are zeros again in every child of this process (Linux 4.14).
pub struct WipedOnFork<const BYTES: usize>(Pages);

impl<const BYTES: usize> WipedOnFork<BYTES> {
    /// Maps the memory: at least a page.
    ///
    /// # Errors
    /// The kernel has no memory, or is too old to wipe it.
    pub fn new() -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let pages = Pages::map(BYTES, protection, MapFlags::PRIVATE)?;
        // SAFETY: the range is the mapping just made, and a wipe changes zeros to zeros.
        unsafe { madvise(pages.start.as_ptr().cast(), pages.bytes, Advice::LinuxWipeOnFork) }?;
        Ok(Self(pages))
    }

    /// The bytes as they are now: all zeros, if this is a child that has not written them.
    pub fn bytes(&mut self) -> &mut [u8; BYTES] {
        // SAFETY: the mapping is that long, readable and writable for as long as `self` lives, and
        // this borrow is the only one.
        unsafe { self.0.start.cast().as_mut() }
    }
}

impl<const BYTES: usize> Drop for WipedOnFork<BYTES> {
    fn drop(&mut self) {
        self.bytes().zeroize();
    }
}

/// A mapping without a file, which ends with this.
pub(crate) struct Pages {
    pub(crate) start: NonNull<u8>,
    /// The length that was asked for; the kernel rounds it up to pages, here and at the end.
    bytes: usize,
}

impl Pages {
    pub(crate) fn map(bytes: usize, protection: ProtFlags, flags: MapFlags) -> io::Result<Self> {
        // SAFETY: the kernel chooses where, so nothing that is there changes.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this start and length, and nothing borrows it any more.
        // It fails for no mapping that exists.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vdso::tests::in_a_child;

    #[test]
    fn a_child_finds_zeros_and_the_parent_what_it_wrote() {
        let mut memory = WipedOnFork::<5000>::new().unwrap();
        assert_eq!(memory.bytes(), &[0; 5000]);
        memory.bytes().fill(7);
        let seen = in_a_child(|| [memory.bytes()[0], memory.bytes()[4999]]);
        assert_eq!(seen.unwrap(), [0, 0]);
        assert_eq!(memory.bytes(), &[7; 5000]);
    }
}
