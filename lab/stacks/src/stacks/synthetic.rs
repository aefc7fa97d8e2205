//! Work with a known answer, in the place of a TLS library: `synthetic:counter` and the like. An
//! instrument that counts it, or a model that replays it, can be checked by anybody.
//!
//! A handshake sends one byte each way and does nothing but this, at the server and at the client:
//! `WORK_TURNS` turns of a loop of the thread's own, the shape's touches of what all threads
//! share, and as many turns again.
//!
//! | shape | one touch | updates, stores | touches: server, client |
//! |---|---|---|---|
//! | `counter` | adds to one counter | 1, 0 | 8, 4 |
//! | `false-sharing` | adds to the thread's own counter, beside the others' | 0, 1 | 8, 4 |
//! | `mutex` | holds one mutex for `HOLD_TURNS` turns, adds to what it guards | 2, 1 | 2, 1 |
//! | `none` | nothing | 0, 0 | 0, 0 |
//! | `reference-count` | clones an `Arc` and drops the clone | 2, 0 | 4, 2 |
//! | `rwlock` | reads under one read-write lock | 2, 0 | 4, 2 |
//!
//! Updates are atomic; stores are not. So the line of `counter` has 8 updates per handshake in the
//! server and 4 in the client, exactly. A lock's figures are those of one that nobody waits for.
//! Making and dropping a connection touches nothing that is shared. Nothing here is listed among
//! the stacks: nobody measures it by mistake.

use std::{
    hint,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use sealane_lab_harness::credentials::{Credentials, Side};
use sealane_lab_model::{
    error::Error,
    library::Identity,
    scenario::{Kind, Negotiated, Scenario, Share},
};

use crate::{
    stack::{Endpoint, Prepared, Progress, Session, Stack, Worker},
    stacks::{Loaded, linked},
};

/// None: they are no TLS stacks.
pub(super) fn names() -> Vec<String> {
    Vec::new()
}

/// The shape that `name` asks for.
pub(super) fn load(name: &str) -> Option<Loaded> {
    let asked = name.strip_prefix(PREFIX)?;
    let found = SHAPES.iter().find(|(word, _)| *word == asked);
    Some(match found {
        Some((_, shape)) => Ok(Box::new(Synthetic { name: name.to_owned(), shape: *shape })),
        None => {
            let words: Vec<_> = SHAPES.iter().map(|(word, _)| format!("{PREFIX}{word}")).collect();
            let words = words.join(", ");
            Err(Error::Unsupported(format!("no shape {name}; there are: {words}")))
        }
    })
}

/// What a handshake touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Counter,
    FalseSharing,
    Mutex,
    None,
    ReferenceCount,
    RwLock,
}

const SHAPES: [(&str, Shape); 6] = [
    ("counter", Shape::Counter),
    ("false-sharing", Shape::FalseSharing),
    ("mutex", Shape::Mutex),
    ("none", Shape::None),
    ("reference-count", Shape::ReferenceCount),
    ("rwlock", Shape::RwLock),
];

impl Shape {
    /// Touches per handshake, at the server and at the client.
    fn touches(self) -> [u32; 2] {
        match self {
            Self::Counter | Self::FalseSharing => [8, 4],
            Self::Mutex => [2, 1],
            Self::None => [0, 0],
            Self::ReferenceCount | Self::RwLock => [4, 2],
        }
    }
}

struct Synthetic {
    name: String,
    shape: Shape,
}

impl Stack for Synthetic {
    fn identity(&self) -> Identity {
        linked::identity(&self.name, &["sealane-lab"])
    }

    fn prepare(&self, scenario: &Scenario, _: &Credentials) -> Result<Box<dyn Prepared>, Error> {
        scenario.exists()?;
        let references = Arc::new(Aligned(0));
        let threads = AtomicUsize::new(0);
        let (shape, scenario) = (self.shape, scenario.clone());
        Ok(Box::new(Common { shape, scenario, references, threads }))
    }
}

struct Common {
    shape: Shape,
    scenario: Scenario,
    references: Arc<Aligned<u8>>,
    /// Workers so far.
    threads: AtomicUsize,
}

impl Prepared for Common {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        let touched = Touched {
            shape: self.shape,
            references: Arc::clone(&self.references),
            own: self.threads.fetch_add(1, Relaxed) % COUNTERS,
        };
        // One for each end and handshake, without writing to what all threads count in.
        let touched = Arc::new(touched);
        Ok(Box::new(Thread { touched, scenario: self.scenario.clone() }))
    }
}

struct Thread {
    touched: Arc<Touched>,
    scenario: Scenario,
}

impl Worker for Thread {
    fn server(&mut self) -> Result<Box<dyn Endpoint>, Error> {
        Ok(self.end(Side::Server, false))
    }

    fn client(&mut self, session: Option<Session>) -> Result<Box<dyn Endpoint>, Error> {
        let Scenario { kind, share, .. } = self.scenario;
        let shared = share == Share::Session && kind != Kind::Full;
        Ok(self.end(Side::Client, shared || session.is_some()))
    }
}

impl Thread {
    fn end(&self, end: Side, resumed: bool) -> Box<dyn Endpoint> {
        let (touched, scenario) = (Arc::clone(&self.touched), self.scenario.clone());
        Box::new(Connection { end, touched, scenario, resumed })
    }
}

struct Connection {
    end: Side,
    touched: Arc<Touched>,
    scenario: Scenario,
    resumed: bool,
}

impl Endpoint for Connection {
    fn handshake(&mut self, incoming: &[u8], outgoing: &mut Vec<u8>) -> Result<Progress, Error> {
        match (self.end, incoming) {
            (Side::Client, []) => {
                self.touched.operation(self.end);
                outgoing.push(u8::from(self.resumed));
                Ok(Progress::Wants)
            }
            (Side::Server, [resumed]) => {
                self.touched.operation(self.end);
                self.resumed = *resumed != 0;
                outgoing.push(*resumed);
                Ok(Progress::Done)
            }
            (Side::Client, [resumed]) if self.resumed == (*resumed != 0) => Ok(Progress::Done),
            _ => Err(Error::Check("the byte that came is not the one that was sent".into())),
        }
    }

    fn send(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<(), Error> {
        Err(no_data())
    }

    fn receive(&mut self, _: &[u8], _: &mut Vec<u8>, _: &mut Vec<u8>) -> Result<bool, Error> {
        Err(no_data())
    }

    fn negotiated(&self) -> Result<Negotiated, Error> {
        let Scenario { version, group, client_certificate, .. } = self.scenario;
        Ok(Negotiated {
            version,
            suite: self.scenario.suite(),
            group: Some(group),
            resumed: self.resumed,
            peer_certificate: self.end == Side::Client || client_certificate,
        })
    }

    fn session(&mut self) -> Option<Session> {
        Some(Session(Box::new(())))
    }
}

fn no_data() -> Error {
    Error::Unsupported("synthetic work does handshakes only".into())
}

/// What one thread touches.
struct Touched {
    shape: Shape,
    references: Arc<Aligned<u8>>,
    /// The thread's place in [`BESIDE`].
    own: usize,
}

impl Touched {
    /// One side's work in one handshake.
    fn operation(&self, end: Side) {
        work(WORK_TURNS);
        let [server, client] = self.shape.touches();
        for _ in 0..if end == Side::Server { server } else { client } {
            self.touch();
        }
        work(WORK_TURNS);
    }

    fn touch(&self) {
        match self.shape {
            Shape::Counter => {
                COUNTER.0.fetch_add(1, Relaxed);
            }
            Shape::FalseSharing => {
                let own = &BESIDE.0[self.own];
                own.store(own.load(Relaxed) + 1, Relaxed);
            }
            Shape::Mutex => {
                let mut held = MUTEX.0.lock().unwrap_or_else(PoisonError::into_inner);
                work(HOLD_TURNS);
                *held += 1;
            }
            Shape::None => {}
            Shape::ReferenceCount => drop(hint::black_box(Arc::clone(&self.references))),
            Shape::RwLock => {
                hint::black_box(*RWLOCK.0.read().unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

/// A chain of multiplications that no compiler shortens.
#[inline(never)]
pub(crate) fn work(turns: u32) {
    let (mut value, mut left) = (1_u64, turns);
    // A range would be most of the work in a build without optimisation.
    while left > 0 {
        left -= 1;
        value = hint::black_box(value.wrapping_mul(MULTIPLIER).wrapping_add(1));
    }
}

/// Alone in its cache line.
#[repr(align(64))]
struct Aligned<T>(T);

static BESIDE: Aligned<[AtomicU64; COUNTERS]> = Aligned([const { AtomicU64::new(0) }; COUNTERS]);
static COUNTER: Aligned<AtomicU64> = Aligned(AtomicU64::new(0));
static MUTEX: Aligned<Mutex<u64>> = Aligned(Mutex::new(0));
static RWLOCK: Aligned<RwLock<u64>> = Aligned(RwLock::new(0));

/// How a name begins.
const PREFIX: &str = "synthetic:";
/// In one line.
const COUNTERS: usize = 8;
/// Odd, and with bits in all places.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Natively about 1 us.
pub(crate) const HOLD_TURNS: u32 = 400;
/// Before the touches of one side, and behind them; natively 2 to 5 us.
const WORK_TURNS: u32 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// What was done to the shared variables by 3 operations of two threads at each end.
    fn done(shape: Shape) -> [u64; 4] {
        let so_far = || {
            let guarded = *MUTEX.0.lock().expect("not poisoned");
            let beside = BESIDE.0.iter().map(|counter| counter.load(Relaxed)).sum();
            [COUNTER.0.load(Relaxed), beside, guarded, *RWLOCK.0.read().expect("not poisoned")]
        };
        let before = so_far();
        let references = Arc::new(Aligned(0));
        std::thread::scope(|scope| {
            for own in 0..2 {
                let touched = Touched { shape, references: Arc::clone(&references), own };
                scope.spawn(move || {
                    for _ in 0..3 {
                        touched.operation(Side::Server);
                        touched.operation(Side::Client);
                    }
                });
            }
        });
        assert_eq!(Arc::strong_count(&references), 1);
        let after = so_far();
        std::array::from_fn(|at| after[at] - before[at])
    }

    /// One test: the variables are this process's.
    #[test]
    fn each_shape_does_what_its_row_says() {
        for (_, shape) in SHAPES {
            let both = u64::from(shape.touches().iter().sum::<u32>());
            let all = 2 * 3 * both;
            let wanted = match shape {
                Shape::Counter => [all, 0, 0, 0],
                Shape::FalseSharing => [0, all, 0, 0],
                Shape::Mutex => [0, 0, all, 0],
                Shape::None | Shape::ReferenceCount | Shape::RwLock => [0; 4],
            };
            assert_eq!(done(shape), wanted, "{shape:?}");
        }
    }

    #[test]
    fn an_unknown_shape_is_told_what_there_is() {
        let error = load("synthetic:nothing").and_then(Result::err).expect("no such shape");
        assert!(error.to_string().contains("synthetic:counter"), "{error}");
        assert!(load("counter").is_none() && names().is_empty());
    }

    #[test]
    fn threads_have_counters_of_one_line() {
        assert_eq!(size_of::<Aligned<[AtomicU64; COUNTERS]>>(), 64);
    }
}
