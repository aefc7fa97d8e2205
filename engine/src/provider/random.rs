//! A lane's own random bytes: without lock, shared line or system call.
//!
//! Where the kernel's generator runs in the process (Linux 6.11, see [`KernelRandom`]), it makes
//! them. Each thread has its own key. The kernel takes it back when a virtual machine was restored
//! from a snapshot that the host reports (vmgenid), and it is empty after a fork.
//!
//! Elsewhere it is ChaCha20 with fast key erasure. Each refill of the buffer replaces the key, and
//! bytes are erased as they are handed out, so memory reveals nothing about earlier bytes. The
//! kernel's generator gives the first key. It is mixed in again after [`RESEED_INTERVAL_BYTES`],
//! and after [`renew`], which a lane calls in each second of its clock. A fork finds the key wiped,
//! and asks the kernel.
//!
//! Two limits of this second generator:
//! - Two copies of one machine, restored from a snapshot, hand out the same bytes until each has
//!   asked the kernel again. That is at most the rest of a second or of an interval, whichever ends
//!   first, if the kernels themselves differ by then. A kernel learns that it was copied where the
//!   host reports it. Elsewhere it may take a minute. During that time the copies repeat server
//!   randoms and key shares, each to its own clients. A client of one copy gains nothing by the
//!   same share as a client of the other. But an attacker with the secret of one such share reads
//!   both sessions. Tickets repeat nothing (see [`crate::tickets`]), and the nonce of an ECDSA
//!   signature depends on the signed message. So restart Sealane after a restore, and do not copy a
//!   running one.
//! - An attacker with the memory of a running process knows the bytes up to the next reseed. The
//!   private keys are in the same memory.

use std::cell::RefCell;

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use sealane_kernel_random::{KernelRandom, WipedOnFork};
use zeroize::{Zeroize, Zeroizing};

use super::ProviderError;

/// Fills `bytes` from the generator of the calling thread, which is made on first use.
///
/// Fails only if the kernel gives no seed or no memory; `bytes` must not be used then.
pub fn fill(bytes: &mut [u8]) -> Result<(), ProviderError> {
    SOURCE
        .try_with(|source| source.borrow_mut().fill(bytes))
        .unwrap_or(Err(ProviderError::ThreadEnds))
}

/// Lets a generator of ours ask the kernel before it hands out another byte on this thread.
pub fn renew() {
    // A thread that ends hands out nothing any more.
    let _ = SOURCE.try_with(|source| {
        if let Source::Ours(generator) = &mut *source.borrow_mut() {
            generator.expire();
        }
    });
}

thread_local! {
    static SOURCE: RefCell<Source> = const { RefCell::new(Source::Unopened) };
}

/// The source of a thread's random bytes.
enum Source {
    Unopened,
    Kernel(KernelRandom),
    Ours(Generator),
}

impl Source {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), ProviderError> {
        match self {
            Self::Unopened => {
                *self = match KernelRandom::open() {
                    Some(kernel) => Self::Kernel(kernel),
                    None => Self::Ours(Generator::unseeded()?),
                };
                self.fill(bytes)
            }
            Self::Kernel(kernel) => kernel.fill(bytes).map_err(ProviderError::Kernel),
            Self::Ours(generator) => generator.fill(bytes, getrandom::fill),
        }
    }
}

/// A generator of ours. The next key is at the start of its memory, and behind it are bytes to hand
/// out. At the end is a mark that is gone in a child.
struct Generator {
    memory: WipedOnFork<{ BUFFER_BYTES + 1 }>,
    /// Everything before this index is the key or has been handed out.
    next: usize,
    /// Bytes that may be produced before the kernel is asked again.
    budget_bytes: usize,
}

impl Generator {
    fn unseeded() -> Result<Self, ProviderError> {
        let memory = WipedOnFork::new().map_err(ProviderError::Memory)?;
        Ok(Self { memory, next: BUFFER_BYTES, budget_bytes: 0 })
    }

    fn fill<E>(
        &mut self,
        mut bytes: &mut [u8],
        seed: impl Fn(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), ProviderError>
    where
        ProviderError: From<E>,
    {
        if self.memory.bytes()[MARK] == 0 {
            self.expire();
        }
        while !bytes.is_empty() {
            if self.next == BUFFER_BYTES {
                self.refill(&seed)?;
            }
            let fresh = &mut self.memory.bytes()[self.next..BUFFER_BYTES];
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
        self.memory.bytes()[self.next..BUFFER_BYTES].zeroize();
        self.next = BUFFER_BYTES;
        self.budget_bytes = 0;
    }

    fn refill<E>(&mut self, seed: impl Fn(&mut [u8]) -> Result<(), E>) -> Result<(), E> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        if self.budget_bytes < BUFFER_BYTES {
            seed(&mut *key)?;
            self.budget_bytes = RESEED_INTERVAL_BYTES;
        }
        let memory = self.memory.bytes();
        // The old key is mixed in: a kernel that repeats itself makes nothing worse.
        for (new, old) in key.iter_mut().zip(&*memory) {
            *new ^= old;
        }
        memory.zeroize();
        // A key makes one buffer and is erased, so its nonce never has to change.
        ChaCha20::new((&*key).into(), &Default::default())
            .apply_keystream(&mut memory[..BUFFER_BYTES]);
        memory[MARK] = 1;
        self.next = KEY_BYTES;
        self.budget_bytes -= BUFFER_BYTES;
        Ok(())
    }
}

/// The bytes that a lane makes from one seed. That is about 80 handshakes, so that the call of the
/// kernel, half a microsecond, is nothing among them.
pub const RESEED_INTERVAL_BYTES: usize = 1 << 14;

const BUFFER_BYTES: usize = 1024;
const KEY_BYTES: usize = 32;
/// Behind the buffer: not 0 once there is a key.
const MARK: usize = BUFFER_BYTES;

#[cfg(test)]
mod measured;

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
            make_ours();
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
    fn the_kernel_makes_the_bytes_where_it_can() {
        fill(&mut [0; 1]).unwrap();
        let is_kernels = SOURCE.with_borrow(|source| matches!(source, Source::Kernel(_)));
        assert_eq!(is_kernels, KernelRandom::open().is_some());
        renew();
        let (mut first, mut second) = ([0; 32], [0; 32]);
        fill(&mut first).and_then(|()| fill(&mut second)).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn every_length_is_filled_whole() {
        make_ours();
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
        let mut generator = Generator::unseeded().unwrap();
        let produced = 4 * RESEED_INTERVAL_BYTES / BUFFER_BYTES;
        for _ in 0..produced {
            let mut bytes = [0; BUFFER_BYTES - KEY_BYTES];
            generator.fill(&mut bytes, count(&asked)).unwrap();
        }
        assert_eq!(asked.get(), 4);
    }

    #[test]
    fn two_copies_part_when_their_seconds_end() {
        let mut original = Generator::unseeded().unwrap();
        original.fill(&mut [0; 100], count(&Cell::new(0))).unwrap();
        let mut copy = copied(&mut original);
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
        assert_ne!(original.memory.bytes()[..KEY_BYTES], [1; KEY_BYTES]);
    }

    #[test]
    fn two_copies_part_within_a_hundred_handshakes() {
        let mut generator = Generator::unseeded().unwrap();
        generator.fill(&mut [0; 1], count(&Cell::new(0))).unwrap();
        let asked = Cell::new(0);
        // Of 200 bytes each: a server random, a key share, the nonces of signature and tickets.
        generator.fill(&mut [0; 100 * 200], count(&asked)).unwrap();
        assert_eq!(asked.get(), 1);
    }

    #[test]
    fn a_lane_asks_anew_when_its_clock_goes_on() {
        make_ours();
        let now = UnixSeconds(1_000_000);
        let root = TicketRoot::generate(Duration::from_secs(600), now, |bytes| bytes.fill(1));
        let lane = LaneResources::new(root.unwrap(), now, NonZeroUsize::MIN);
        let is_renewed = |at: u64| {
            fill(&mut [0; 1]).unwrap();
            lane.tell_time(UnixSeconds(at)).unwrap();
            ours(|generator| generator.budget_bytes == 0)
        };
        let expected = [(now.0, false), (now.0 + 1, true), (now.0 + 1, false), (now.0, true)];
        assert_eq!(expected.map(|(at, _)| (at, is_renewed(at))), expected);
    }

    #[test]
    fn renewing_leaves_nothing_to_hand_out() {
        make_ours();
        fill(&mut [0; 100]).unwrap();
        renew();
        let left = ours(|generator| {
            assert_eq!(generator.budget_bytes, 0);
            let kept = &generator.memory.bytes()[KEY_BYTES..BUFFER_BYTES];
            kept.iter().filter(|byte| **byte != 0).count()
        });
        assert_eq!(left, 0);
        fill(&mut [0; 100]).unwrap();
        ours(|generator| assert_ne!(generator.budget_bytes, 0));
    }

    /// The memory that a child finds wiped by the kernel.
    #[test]
    fn a_generator_that_was_wiped_hands_out_nothing_of_before() {
        let mut generator = Generator::unseeded().unwrap();
        let asked = Cell::new(0);
        generator.fill(&mut [0; 100], count(&asked)).unwrap();
        generator.memory.bytes().fill(0);
        let mut bytes = [0; 32];
        generator.fill(&mut bytes, count(&asked)).unwrap();
        assert_ne!(bytes, [0; 32]);
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn a_kernel_without_bytes_stops_the_generator() {
        let mut generator = Generator::unseeded().unwrap();
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
        let mut generator = Generator::unseeded().unwrap();
        let mut bytes = [0; 100];
        generator.fill(&mut bytes, count(&Cell::new(0))).unwrap();
        assert_ne!(bytes, [0; 100]);
        assert_eq!(generator.memory.bytes()[KEY_BYTES..KEY_BYTES + 100], [0; 100]);

        let key = generator.memory.bytes()[..KEY_BYTES].to_vec();
        generator.fill(&mut [0; BUFFER_BYTES], count(&Cell::new(0))).unwrap();
        assert_ne!(generator.memory.bytes()[..KEY_BYTES], key);
    }

    #[test]
    fn the_stream_is_chacha20_under_the_seed() {
        let mut generator = Generator::unseeded().unwrap();
        let mut bytes = [0; 8];
        generator.fill(&mut bytes, count(&Cell::new(0))).unwrap();
        // RFC 8439 appendix A.1: key, nonce and counter zero; the first 32 bytes are the next key.
        assert_eq!(bytes, [0xda, 0x41, 0x59, 0x7c, 0x51, 0x57, 0x48, 0x8d]);
    }

    /// Makes this thread's generator one of ours, independent of the kernel's.
    fn make_ours() {
        SOURCE.set(Source::Ours(Generator::unseeded().unwrap()));
    }

    /// Looks at this thread's generator, which is one of ours.
    fn ours<T>(look: impl FnOnce(&mut Generator) -> T) -> T {
        SOURCE.with_borrow_mut(|source| match source {
            Source::Ours(generator) => look(generator),
            _ => panic!("the generator is the kernel's"),
        })
    }

    /// A generator in the state of `original`, as a copied machine has it.
    fn copied(original: &mut Generator) -> Generator {
        let mut copy = Generator::unseeded().unwrap();
        copy.memory.bytes().copy_from_slice(original.memory.bytes());
        Generator { next: original.next, budget_bytes: original.budget_bytes, ..copy }
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
