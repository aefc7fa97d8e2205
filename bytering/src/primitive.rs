//! The primitives that loom replaces: atomics, fences, reference counts, and the bytes that it
//! watches for races.

#[cfg(not(loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicU32, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicPtr, AtomicU32},
};

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::fence;

/// A byte of a page: plain memory, or under a model a cell that orders every access.
#[cfg(not(loom))]
pub(crate) type Byte = u8;
#[cfg(loom)]
pub(crate) type Byte = loom::cell::UnsafeCell<u8>;

/// A page of zeros on the heap.
pub(crate) fn allocate(page_bytes: usize) -> *mut Byte {
    #[cfg(not(loom))]
    let page: Box<[Byte]> = vec![0; page_bytes].into_boxed_slice();
    #[cfg(loom)]
    let page: Box<[Byte]> = (0..page_bytes).map(|_| Byte::new(0)).collect();
    Box::into_raw(page).cast()
}

/// Gives a page back.
///
/// # Safety
/// It comes from [`allocate`] with as many bytes, and is no longer in use.
pub(crate) unsafe fn free(page: *mut Byte, page_bytes: usize) {
    let page = std::ptr::slice_from_raw_parts_mut(page, page_bytes);
    // SAFETY: the caller hands over memory of `allocate`.
    drop(unsafe { Box::from_raw(page) });
}

/// Copies `from` to a page.
///
/// # Safety
/// `to` and as many bytes behind it lie in one page, and nothing else accesses them until the end.
pub(crate) unsafe fn copy_in(from: &[u8], to: *mut Byte) {
    // SAFETY: the caller answers for `to`; a page and a borrowed slice do not overlap.
    #[cfg(not(loom))]
    unsafe {
        to.copy_from_nonoverlapping(from.as_ptr(), from.len());
    }
    #[cfg(loom)]
    for (at, byte) in from.iter().enumerate() {
        // SAFETY: the caller answers for each of these bytes.
        unsafe { (*to.add(at)).with_mut(|to| *to = *byte) };
    }
}

/// Copies from a page to `to`.
///
/// # Safety
/// `from` and as many bytes behind it lie in one page, and are not written until the end.
pub(crate) unsafe fn copy_out(from: *const Byte, to: &mut [u8]) {
    // SAFETY: the caller answers for `from`; a page and a borrowed slice do not overlap.
    #[cfg(not(loom))]
    unsafe {
        from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
    }
    #[cfg(loom)]
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: the caller answers for each of these bytes.
        unsafe { (*from.add(at)).with(|from| *byte = *from) };
    }
}
