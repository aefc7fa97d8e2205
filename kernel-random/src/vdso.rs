//! The kernel's getrandom(2) as far as it runs in the process.

use std::ffi::{c_uint, c_void};
use std::io;
use std::ptr::null_mut;

use libloading::os::unix::{Library, RTLD_LAZY};
use rustix::mm::{MapFlags, ProtFlags};

use crate::memory::Pages;

/// A thread's own part of the kernel's random generator.
pub struct KernelRandom {
    call: Getrandom,
    /// The key, and bytes that were made with it and not handed out. The kernel may take the page
    /// away when memory is short, and finds that out: then it makes a system call.
    state: Pages,
    state_bytes: usize,
    /// The library that contains `call`.
    _vdso: Library,
}

impl KernelRandom {
    /// Looks for the generator; none before Linux 6.11, on processors for which it has none, under
    /// valgrind, and where there is no memory.
    pub fn open() -> Option<Self> {
        // SAFETY: nothing is loaded and no initialiser runs: it is here already, or it is not.
        let vdso = unsafe { Library::open(Some(VDSO), RTLD_LAZY | libc::RTLD_NOLOAD) }.ok()?;
        // SAFETY: a vDSO has this name for a function of this type alone
        // (include/uapi/linux/random.h, and vgetrandom in the kernel's documentation).
        let call = *unsafe { vdso.get::<Getrandom>(SYMBOL) }.ok()?;
        let mut parameters = Parameters::default();
        // SAFETY: with this length it writes the parameters and nothing else.
        let status =
            unsafe { call(null_mut(), 0, 0, (&raw mut parameters).cast(), PARAMETERS_ARE_ASKED) };
        if status != 0 {
            return None;
        }
        let state_bytes = usize::try_from(parameters.state_bytes).ok()?;
        let protection = ProtFlags::from_bits_retain(parameters.protection);
        let state =
            Pages::map(state_bytes, protection, MapFlags::from_bits_retain(parameters.flags));
        Some(Self { call, state: state.ok()?, state_bytes, _vdso: vdso })
    }

    /// Fills `bytes` whole, as getrandom(2) without flags does.
    ///
    /// # Errors
    /// The kernel's; `bytes` must not be used then.
    pub fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while let rest @ [_, ..] = &mut bytes[filled..] {
            // SAFETY: `rest` may be written; the state was mapped as the kernel asked, lives as
            // long as `self`, and no other call has it.
            let count = unsafe {
                (self.call)(
                    rest.as_mut_ptr().cast(),
                    rest.len(),
                    0,
                    self.state.start.as_ptr().cast(),
                    self.state_bytes,
                )
            };
            match usize::try_from(count) {
                // The number of bytes is never more than was asked for.
                Ok(count @ 1..) => filled += count,
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // A signal came before the kernel's generator was ready.
                Err(_) if count == -INTERRUPTED => {}
                Err(_) => {
                    let code = i32::try_from(-count).unwrap_or(libc::EIO);
                    return Err(io::Error::from_raw_os_error(code));
                }
            }
        }
        Ok(())
    }
}

/// The kernel's requirements for the state: `struct vgetrandom_opaque_params`.
#[derive(Default)]
#[repr(C)]
struct Parameters {
    state_bytes: u32,
    protection: u32,
    flags: u32,
    reserved: [u32; 13],
}

type Getrandom = unsafe extern "C" fn(
    *mut c_void,
    usize,
    c_uint,
    state: *mut c_void,
    state_bytes: usize,
) -> isize;

const VDSO: &str = "linux-vdso.so.1";
#[cfg(not(target_arch = "aarch64"))]
const SYMBOL: &[u8] = b"__vdso_getrandom\0";
#[cfg(target_arch = "aarch64")]
const SYMBOL: &[u8] = b"__kernel_getrandom\0";
/// The length of a state by which the kernel is asked for these requirements.
const PARAMETERS_ARE_ASKED: usize = usize::MAX;
const INTERRUPTED: isize = libc::EINTR as isize;

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::AsRawFd;
    use std::thread;

    use super::*;

    /// Runs `make` in a child of a fork and returns its bytes, or an error if the child ends
    /// before.
    pub(crate) fn in_a_child<const N: usize>(
        make: impl FnOnce() -> [u8; N],
    ) -> io::Result<[u8; N]> {
        let (mut reader, writer) = pipe()?;
        // SAFETY: the child allocates nothing and takes no lock: it computes, writes and ends.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let bytes = make();
            // SAFETY: a plain write of memory that is there, and the end.
            unsafe {
                libc::write(writer.as_raw_fd(), bytes.as_ptr().cast(), N);
                libc::_exit(0);
            }
        }
        drop(writer);
        let mut made = [0; N];
        let read = reader.read_exact(&mut made);
        // SAFETY: the child is ours, and nothing else waits for it.
        unsafe { libc::waitpid(child, null_mut(), 0) };
        read.map(|()| made)
    }

    #[test]
    fn every_length_is_filled_whole() {
        let Some(mut random) = opened() else { return };
        for length in [0, 1, 31, 32, 96, 97, 4096, 100_000] {
            // Every byte of a position is zero in all of 32 draws once in 2^256.
            let mut seen = vec![0; length];
            for _ in 0..32 {
                let mut bytes = vec![0; length];
                random.fill(&mut bytes).unwrap();
                seen.iter_mut().zip(&bytes).for_each(|(seen, byte)| *seen |= byte);
            }
            assert!(!seen.contains(&0), "length {length}");
        }
    }

    #[test]
    fn nobody_draws_what_another_drew() {
        let Some(_) = opened() else { return };
        let draw = || -> Vec<[u8; 16]> {
            let mut random = KernelRandom::open().unwrap();
            let mut drawn = vec![[0; 16]; 5_000];
            drawn.iter_mut().for_each(|bytes| random.fill(bytes).unwrap());
            drawn
        };
        let threads: Vec<_> = (0..3).map(|_| thread::spawn(draw)).collect();
        let mut all = draw();
        all.extend(threads.into_iter().flat_map(|thread| thread.join().unwrap()));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 4 * 5_000);
    }

    /// A child has a copy of all memory, so of a key that is not wiped too.
    #[test]
    fn a_child_draws_other_bytes_than_its_parent() {
        let Some(mut random) = opened() else { return };
        random.fill(&mut [0; 5]).unwrap();
        let mut draw = || {
            let mut bytes = [0; 32];
            random.fill(&mut bytes).unwrap();
            bytes
        };
        let childs = in_a_child(&mut draw).unwrap();
        assert_ne!(childs, [0; 32]);
        assert_ne!(childs, draw());
    }

    #[test]
    fn no_system_call_is_made_for_what_follows_the_first_bytes() {
        let Some(mut random) = opened() else { return };
        // With every system call but read and write forbidden, one of getrandom ends the child. The
        // kernel wants one when it has changed its own key, once a minute.
        let drawn = (0..TRIES).find_map(|_| in_a_child(|| drawn_in_confinement(&mut random)).ok());
        assert_ne!(drawn.unwrap(), [0; 8]);
    }

    /// Bytes behind the first ones, in a process that may make no system call except its end.
    fn drawn_in_confinement(random: &mut KernelRandom) -> [u8; 8] {
        let mut bytes = [0; 8];
        random.fill(&mut bytes).unwrap();
        // SAFETY: a system call about this process, with plain numbers.
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT, 0, 0, 0) };
        random.fill(&mut bytes).unwrap();
        bytes
    }

    /// The generator, where this machine has one.
    fn opened() -> Option<KernelRandom> {
        let found = KernelRandom::open();
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let is_expected = cfg!(target_arch = "x86_64") && version >= (6, 11);
        assert!(found.is_some() || !is_expected, "Linux {release} has it");
        found
    }

    const TRIES: usize = 3;
}
