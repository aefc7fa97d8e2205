//! How much memory the process has taken from its allocator.

/// Bytes that are in use on the C heap, in all arenas and in mappings of their own. Rust's
/// allocator is the same one, so this holds for every stack.
///
/// Exact to the allocator's own rounding, unlike the resident set, which moves by pages and keeps
/// what was freed.
#[must_use]
pub fn used_bytes() -> u64 {
    // SAFETY: mallinfo2 takes nothing, writes nothing of ours and may be called on any thread.
    let info = unsafe { mallinfo2() };
    (info.uordblks + info.hblkhd) as u64
}

/// glibc's, 2.33 and later, as its manual gives it.
#[repr(C)]
struct Mallinfo2 {
    arena: usize,
    ordblks: usize,
    smblks: usize,
    hblks: usize,
    hblkhd: usize,
    usmblks: usize,
    fsmblks: usize,
    uordblks: usize,
    fordblks: usize,
    keepcost: usize,
}

unsafe extern "C" {
    fn mallinfo2() -> Mallinfo2;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_counted() {
        let before = used_bytes();
        let held = vec![1_u8; 10 << 20];
        assert!(used_bytes() >= before + (10 << 20));
        drop(held);
    }
}
