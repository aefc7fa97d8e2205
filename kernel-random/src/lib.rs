//! Random bytes from the kernel without a system call, and memory that it wipes when a process
//! forks.
//!
//! Since Linux 6.11 a part of getrandom(2) runs in the process (the vDSO). Each thread keeps a key
//! in a page that the kernel gave out for it. It takes another key when the kernel's own generator
//! has changed, which happens also after a virtual machine was restored from a snapshot. That page
//! is empty in a child, and nothing else reads or writes it.
//!
//! A program with its own generator keeps it in [`WipedOnFork`]. A program that handles private
//! keys of others has a [`WipingAllocator`].
#![deny(unsafe_op_in_unsafe_fn)]

mod allocator;
mod memory;
mod vdso;

pub use allocator::WipingAllocator;
pub use memory::WipedOnFork;
pub use vdso::KernelRandom;
