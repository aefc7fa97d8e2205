//! A lane's own random bytes: one generator per thread, without lock, shared line or system call.
//!
//! ChaCha20 with fast key erasure: each refill of the buffer replaces the key, and bytes are erased
//! as they are handed out, so what is in memory tells nothing about bytes handed out before. The
//! kernel's generator gives the first key and is mixed in again after [`RESEED_INTERVAL_BYTES`],
//! and after [`renew`], which a lane calls in each second of its clock.
//!
//! What this does not protect against:
//! - Two copies of one process hand out the same bytes until each has asked the kernel again: a
//!   virtual machine restored from a snapshot or copied, or a fork. That is at most the rest of a
//!   second or of an interval, whichever ends first, if the kernels themselves differ by then. A
//!   kernel learns that it was copied where the host reports it (vmgenid); elsewhere it may take it
//!   a minute. Meanwhile the copies repeat server randoms and key shares, each to its own clients:
//!   a client of one copy that is given the same share as a client of the other gains nothing by
//!   it, but whoever learns the secret of one such share reads both sessions. Tickets repeat
//!   nothing (see [`crate::tickets`]), and ECDSA signatures are made with what is signed. So
//!   restart Sealane after a restore, and do not copy a running one.
//! - A fork is one of these copies. Sealane never forks after a lane has warmed up; a program that
//!   embeds lanes must not either, short of an immediate exec.
//! - Whoever reads the memory of a running process knows the bytes up to the next reseed; the
//!   private keys lie in the same memory.

use std::cell::RefCell;

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use zeroize::{Zeroize, Zeroizing};

use super::ProviderError;

/// Fills `bytes` from the generator of the calling thread, which seeds itself on first use.
///
/// Fails only if the kernel gives no seed; `bytes` must not be used then.
pub fn fill(bytes: &mut [u8]) -> Result<(), ProviderError> {
    GENERATOR
        .try_with(|generator| generator.borrow_mut().fill(bytes, getrandom::fill))
        .unwrap_or(Err(ProviderError::ThreadEnds))
}

/// Lets the generator of the calling thread ask the kernel before it hands out another byte.
pub fn renew() {
    // A thread that ends hands out nothing any more.
    let _ = GENERATOR.try_with(|generator| generator.borrow_mut().expire());
}

thread_local! {
    static GENERATOR: RefCell<Generator> = const { RefCell::new(Generator::unseeded()) };
}

/// The next key at the start of `buffer`, behind it bytes to hand out.
struct Generator {
    buffer: [u8; BUFFER_BYTES],
    /// Everything before this index is the key or has been handed out.
    next: usize,
    /// Bytes that may be produced before the kernel is asked again.
    budget_bytes: usize,
}

impl Generator {
    const fn unseeded() -> Self {
        Self { buffer: [0; BUFFER_BYTES], next: BUFFER_BYTES, budget_bytes: 0 }
    }

    fn fill<E>(
        &mut self,
        mut bytes: &mut [u8],
        seed: impl Fn(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), ProviderError>
    where
        ProviderError: From<E>,
    {
        while !bytes.is_empty() {
            if self.next == BUFFER_BYTES {
                self.refill(&seed)?;
            }
            let fresh = &mut self.buffer[self.next..];
            let length = fresh.len().min(bytes.len());
            let (now, later) = bytes.split_at_mut(length);
            now.copy_from_slice(&fresh[..length]);
            fresh[..length].zeroize();
            self.next += length;
            bytes = later;
        }
        Ok(())
    }

    /// Gives up the bytes that it has; the key stays, to be mixed in.
    fn expire(&mut self) {
        self.buffer[self.next..].zeroize();
        self.next = BUFFER_BYTES;
        self.budget_bytes = 0;
    }

    fn refill<E>(&mut self, seed: impl Fn(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        if self.budget_bytes < BUFFER_BYTES {
            seed(&mut *key)?;
            self.budget_bytes = RESEED_INTERVAL_BYTES;
        }
        // The old key is mixed in: a kernel that repeats itself makes nothing worse.
        for (new, old) in key.iter_mut().zip(&self.buffer) {
            *new ^= old;
        }
        self.buffer.zeroize();
        // A key makes one buffer and is erased, so its nonce never has to change.
        ChaCha20::new((&*key).into(), &Default::default()).apply_keystream(&mut self.buffer);
        self.next = KEY_BYTES;
        self.budget_bytes -= BUFFER_BYTES;
        Ok(())
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.buffer.zeroize();
    }
}

/// How many bytes a lane makes from one seed: about 80 handshakes, so that the call of the kernel,
/// half a microsecond, is nothing among them.
pub const RESEED_INTERVAL_BYTES: usize = 1 << 14;

const BUFFER_BYTES: usize = 1024;
const KEY_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::HashSet;
    use std::num::NonZeroUsize;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::context::LaneResources;
    use crate::tickets::{TicketRoot, UnixSeconds};

    #[test]
    fn bytes_do_not_repeat_on_a_thread_or_across_threads() {
        let draw = || -> Vec<[u8; 16]> {
            let mut drawn = vec![[0; 16]; 10_000];
            for bytes in &mut drawn {
                fill(bytes).unwrap();
            }
            drawn
        };
        let others: Vec<_> = (0..3).map(|_| thread::spawn(draw)).collect();
        let mut all: HashSet<[u8; 16]> = draw().into_iter().collect();
        for other in others {
            all.extend(other.join().unwrap());
        }
        assert_eq!(all.len(), 4 * 10_000);
    }

    #[test]
    fn every_length_is_filled_whole() {
        for length in [0, 1, 31, 32, 33, BUFFER_BYTES - KEY_BYTES, BUFFER_BYTES, 5 * BUFFER_BYTES] {
            // Every byte of a position is zero in all of 32 draws once in 2^256.
            let mut seen = vec![0; length];
            for _ in 0..32 {
                let mut bytes = vec![0; length];
                fill(&mut bytes).unwrap();
                seen.iter_mut().zip(&bytes).for_each(|(seen, byte)| *seen |= byte);
            }
            assert!(!seen.contains(&0), "length {length}");
        }
    }

    #[test]
    fn the_kernel_is_asked_once_per_interval() {
        let asked = Cell::new(0);
        let mut generator = Generator::unseeded();
        let produced = 4 * RESEED_INTERVAL_BYTES / BUFFER_BYTES;
        for _ in 0..produced {
            let mut bytes = [0; BUFFER_BYTES - KEY_BYTES];
            generator.fill(&mut bytes, count(&asked)).unwrap();
        }
        assert_eq!(asked.get(), 4);
    }

    #[test]
    fn two_copies_part_when_their_seconds_end() {
        let mut original = Generator::unseeded();
        original.fill(&mut [0; 100], count(&Cell::new(0))).unwrap();
        let Generator { buffer, next, budget_bytes } = original;
        let mut copy = Generator { buffer, next, budget_bytes };
        let draw = |generator: &mut Generator, seed: u8| {
            let mut bytes = [0; 32];
            let kernel = |key: &mut [u8]| {
                key.fill(seed);
                Ok::<_, getrandom::Error>(())
            };
            generator.fill(&mut bytes, kernel).unwrap();
            bytes
        };
        assert_eq!(draw(&mut original, 1), draw(&mut copy, 2), "as the documentation says");
        original.expire();
        copy.expire();
        assert_ne!(draw(&mut original, 1), draw(&mut copy, 2));
        // The kernels may repeat themselves; then the copies do, and nothing else is worse.
        assert_ne!(original.buffer[..KEY_BYTES], [1; KEY_BYTES]);
    }

    #[test]
    fn two_copies_part_within_a_hundred_handshakes() {
        let mut generator = Generator::unseeded();
        generator.fill(&mut [0; 1], count(&Cell::new(0))).unwrap();
        let asked = Cell::new(0);
        // Of 200 bytes each: a server random, a key share, the nonces of signature and tickets.
        generator.fill(&mut [0; 100 * 200], count(&asked)).unwrap();
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn a_lane_asks_anew_when_its_clock_goes_on() {
        let now = UnixSeconds(1_000_000);
        let root = TicketRoot::generate(Duration::from_secs(600), now, |bytes| bytes.fill(1));
        let lane = LaneResources::new(root.unwrap(), now, NonZeroUsize::MIN);
        let is_renewed = |at: u64| {
            fill(&mut [0; 1]).unwrap();
            lane.tell_time(UnixSeconds(at)).unwrap();
            GENERATOR.with_borrow(|generator| generator.budget_bytes == 0)
        };
        let expected = [(now.0, false), (now.0 + 1, true), (now.0 + 1, false), (now.0, true)];
        assert_eq!(expected.map(|(at, _)| (at, is_renewed(at))), expected);
    }

    #[test]
    fn renewing_leaves_nothing_to_hand_out() {
        fill(&mut [0; 100]).unwrap();
        renew();
        let left = GENERATOR.with_borrow(|generator| {
            assert_eq!(generator.budget_bytes, 0);
            generator.buffer[KEY_BYTES..].iter().filter(|byte| **byte != 0).count()
        });
        assert_eq!(left, 0);
        fill(&mut [0; 100]).unwrap();
        GENERATOR.with_borrow(|generator| assert_ne!(generator.budget_bytes, 0));
    }

    #[test]
    fn a_kernel_without_bytes_stops_the_generator() {
        let mut generator = Generator::unseeded();
        let refuse = |_: &mut [u8]| Err(getrandom::Error::UNSUPPORTED);
        assert!(matches!(generator.fill(&mut [0; 1], refuse), Err(ProviderError::Random(_))));

        // The same at the end of an interval: the old key is not stretched.
        generator.fill(&mut [0; 1], count(&Cell::new(0))).unwrap();
        generator.next = BUFFER_BYTES;
        generator.budget_bytes = 0;
        assert!(matches!(generator.fill(&mut [0; 1], refuse), Err(ProviderError::Random(_))));
    }

    #[test]
    fn bytes_handed_out_leave_no_trace() {
        let mut generator = Generator::unseeded();
        let mut bytes = [0; 100];
        generator.fill(&mut bytes, count(&Cell::new(0))).unwrap();
        assert_ne!(bytes, [0; 100]);
        assert_eq!(generator.buffer[KEY_BYTES..KEY_BYTES + 100], [0; 100]);

        let key = generator.buffer[..KEY_BYTES].to_vec();
        generator.fill(&mut [0; BUFFER_BYTES], count(&Cell::new(0))).unwrap();
        assert_ne!(generator.buffer[..KEY_BYTES], key);
    }

    #[test]
    fn the_stream_is_chacha20_under_the_seed() {
        let mut generator = Generator::unseeded();
        let mut bytes = [0; 8];
        generator.fill(&mut bytes, count(&Cell::new(0))).unwrap();
        // RFC 8439 appendix A.1: key, nonce and counter zero; the first 32 bytes are the next key.
        assert_eq!(bytes, [0xda, 0x41, 0x59, 0x7c, 0x51, 0x57, 0x48, 0x8d]);
    }

    /// A kernel that always answers zeros, and counts how often it was asked.
    fn count(asked: &Cell<u32>) -> impl Fn(&mut [u8]) -> Result<(), getrandom::Error> {
        |seed| {
            seed.fill(0);
            asked.set(asked.get() + 1);
            Ok(())
        }
    }
}
