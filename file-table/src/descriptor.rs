//! An open file that stays with the thread of its table.

use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An open file of this thread's table, closed with this value.
///
/// It cannot go to another thread, where its number may stand for something else:
///
/// ```compile_fail,E0277
/// use sealane_file_table::Descriptor;
///
/// let here = Descriptor::from(std::os::fd::OwnedFd::from(std::io::pipe().unwrap().0));
/// std::thread::spawn(move || drop(here));
/// ```
///
/// nor be lent to one:
///
/// ```compile_fail,E0277
/// use sealane_file_table::Descriptor;
///
/// let here = Descriptor::from(std::os::fd::OwnedFd::from(std::io::pipe().unwrap().0));
/// std::thread::scope(|scope| scope.spawn(|| drop(&here)).join().unwrap());
/// ```
#[derive(Debug)]
#[repr(transparent)]
pub struct Descriptor {
    fd: OwnedFd,
    /// Neither Send nor Sync, as a pointer is not.
    stays: PhantomData<*const ()>,
}

impl Descriptor {
    /// The same without that restriction, for threads that share one table.
    pub fn into_shared(self) -> OwnedFd {
        self.fd
    }
}

impl From<OwnedFd> for Descriptor {
    /// Takes a descriptor that this thread has just opened.
    fn from(fd: OwnedFd) -> Self {
        Self { fd, stays: PhantomData }
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
