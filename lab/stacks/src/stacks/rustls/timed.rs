//! How long calls take that hold one of rustls's own locks: what nothing can interpose, because
//! the locks are atomics in Rust's standard library. Only a trial that asks for it wraps anything,
//! and it has one thread, so that nobody waits.
//!
//! The time of a call is the time that its lock is held, and a few nanoseconds: rustls locks at a
//! call's start and lets go at its end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

use rustls::{
    NamedGroup,
    client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue},
    pki_types::ServerName,
    server::{ProducesTickets, StoresServerSessions},
};
use sealane_lab_model::library::TimedCall;

/// From now on what is built is timed.
pub(crate) fn begin() {
    ASKED.store(true, Relaxed);
}

/// What was timed until now, without the clock's own time.
pub(crate) fn calls() -> Vec<TimedCall> {
    let clock_ns = clock_ns();
    let spans = SPANS.lock().unwrap_or_else(PoisonError::into_inner);
    let call = |(function, spans): (&&str, &Spans)| TimedCall {
        function: (*function).to_owned(),
        calls: spans.calls,
        ns: (spans.sum_ns as f64 / spans.timed.max(1) as f64 - clock_ns).max(0.0),
    };
    spans.iter().map(call).collect()
}

/// `inner`, timed if that was asked for.
pub(super) fn ticketer(inner: Arc<dyn ProducesTickets>) -> Arc<dyn ProducesTickets> {
    if ASKED.load(Relaxed) { Arc::new(Timed(inner)) } else { inner }
}

/// A server's sessions, as [`ticketer`] has tickets.
pub(super) fn server_sessions(
    inner: Arc<dyn StoresServerSessions>,
) -> Arc<dyn StoresServerSessions> {
    if ASKED.load(Relaxed) { Arc::new(Timed(inner)) } else { inner }
}

/// A client's sessions, as [`ticketer`] has tickets.
pub(super) fn client_sessions(inner: Arc<dyn ClientSessionStore>) -> Arc<dyn ClientSessionStore> {
    if ASKED.load(Relaxed) { Arc::new(Timed(inner)) } else { inner }
}

#[derive(Debug)]
struct Timed<T>(T);

impl ProducesTickets for Timed<Arc<dyn ProducesTickets>> {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        timed("encrypt", || self.0.encrypt(plain))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        timed("decrypt", || self.0.decrypt(cipher))
    }
}

impl StoresServerSessions for Timed<Arc<dyn StoresServerSessions>> {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        timed("put", || self.0.put(key, value))
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        timed("get", || self.0.get(key))
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        timed("take", || self.0.take(key))
    }

    fn can_cache(&self) -> bool {
        self.0.can_cache()
    }
}

impl ClientSessionStore for Timed<Arc<dyn ClientSessionStore>> {
    fn set_kx_hint(&self, name: ServerName<'static>, group: NamedGroup) {
        timed("set_kx_hint", || self.0.set_kx_hint(name, group));
    }

    fn kx_hint(&self, name: &ServerName<'_>) -> Option<NamedGroup> {
        timed("kx_hint", || self.0.kx_hint(name))
    }

    fn set_tls12_session(&self, name: ServerName<'static>, session: Tls12ClientSessionValue) {
        timed("set_tls12_session", || self.0.set_tls12_session(name, session));
    }

    fn tls12_session(&self, name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        timed("tls12_session", || self.0.tls12_session(name))
    }

    fn remove_tls12_session(&self, name: &ServerName<'static>) {
        timed("remove_tls12_session", || self.0.remove_tls12_session(name));
    }

    fn insert_tls13_ticket(&self, name: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        timed("insert_tls13_ticket", || self.0.insert_tls13_ticket(name, ticket));
    }

    fn take_tls13_ticket(&self, name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        timed("take_tls13_ticket", || self.0.take_tls13_ticket(name))
    }
}

fn timed<T>(function: &'static str, call: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = call();
    let span_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut spans = SPANS.lock().unwrap_or_else(PoisonError::into_inner);
    spans.entry(function).or_default().add(span_ns);
    result
}

#[derive(Default)]
struct Spans {
    calls: u64,
    /// Those that are in the sum.
    timed: u64,
    sum_ns: u64,
}

impl Spans {
    fn add(&mut self, span_ns: u64) {
        self.calls += 1;
        // In a longer one the thread had lost its processor.
        if span_ns <= SPAN_NS_MAX {
            self.timed += 1;
            self.sum_ns += span_ns;
        }
    }
}

/// What two readings of the clock around nothing tell, at the least.
fn clock_ns() -> f64 {
    let spans = (0..CLOCK_READINGS).map(|_| Instant::now().elapsed().as_nanos());
    spans.min().unwrap_or_default() as f64
}

static ASKED: AtomicBool = AtomicBool::new(false);
static SPANS: Mutex<BTreeMap<&'static str, Spans>> = Mutex::new(BTreeMap::new());
const CLOCK_READINGS: u32 = 1_000;
const SPAN_NS_MAX: u64 = 200_000;
