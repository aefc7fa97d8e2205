//! Every system call of a connection fails once, in every way; then random ones, often.

use std::path::PathBuf;

use rustls::SupportedProtocolVersion;

use crate::backend::{Backend, Got};
use crate::client::{Client, Seen, VERSIONS, pattern};
use crate::kernel::{Fault, Plan};
use crate::rig::{Rig, Served, Wanted, alone, eventually};
use crate::sealed::Identity;
use crate::service::Tested;

pub(crate) const BYTES: usize = 100_000;

/// A client sends 100 KB and its end, and takes 100 KB and the backend's end.
pub(crate) fn converse<S: Served>(
    rig: &Rig<S>,
    version: &'static SupportedProtocolVersion,
    request: &[u8],
) -> Got {
    let mut client = Client::begin(rig, version);
    // Where writing fails, reading tells what the client sees.
    let _ = client.handshake().and_then(|()| client.send(request)).and_then(|()| client.finish());
    client.read_to_end()
}

/// What is said over a lane whose calls fail.
pub(crate) trait Exchange {
    type Served: Served;

    fn rig(&self) -> &Rig<Self::Served>;

    /// Goes through as if nothing failed.
    fn must_succeed(&self, version: &'static SupportedProtocolVersion, what: &str);

    /// Nothing that was cut may look whole, on either side.
    fn must_not_deceive(&self, version: &'static SupportedProtocolVersion, what: &str);
}

struct Conversation {
    rig: Rig,
    backend: Backend,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Conversation {
    fn in_the_clear() -> Self {
        let (request, answer) = (pattern(1, BYTES), pattern(2, BYTES));
        let backend = Backend::answering(answer.clone());
        let rig = Rig::start(Wanted::relay(backend.address));
        Self { rig, backend, request, answer }
    }

    /// With a backend that speaks TLS of this version.
    fn sealed(version: &'static SupportedProtocolVersion) -> Self {
        let (request, answer) = (pattern(1, BYTES), pattern(2, BYTES));
        let identity = Identity::good(version);
        let backend = identity.answering(answer.clone());
        let rig = Rig::start(identity.relay(&[&backend]));
        Self { rig, backend, request, answer }
    }
}

impl Exchange for Conversation {
    type Served = Tested;

    fn rig(&self) -> &Rig {
        &self.rig
    }

    fn must_succeed(&self, version: &'static SupportedProtocolVersion, what: &str) {
        let (bytes, seen) = converse(&self.rig, version, &self.request);
        assert_eq!(seen, Seen::Clean, "{what}: the client's end after {} bytes", bytes.len());
        assert!(bytes == self.answer, "{what}: the answer differs, {} bytes", bytes.len());
        let (bytes, seen) = self.backend.got();
        assert_eq!(seen, Seen::Clean, "{what}: the backend's end after {} bytes", bytes.len());
        assert!(bytes == self.request, "{what}: the request differs, {} bytes", bytes.len());
    }

    fn must_not_deceive(&self, version: &'static SupportedProtocolVersion, what: &str) {
        let (bytes, seen) = converse(&self.rig, version, &self.request);
        let whole = bytes == self.answer;
        let last = self.rig.ends.lock().unwrap().last().copied();
        let len = bytes.len();
        assert!(seen != Seen::Clean || whole, "{what}: {len} bytes look whole, {last:?}");
        assert!(self.answer.starts_with(&bytes), "{what}: the answer differs");
        self.rig.settle();
        for (bytes, seen) in self.backend.drain() {
            let whole = bytes == self.request;
            let len = bytes.len();
            assert!(seen != Seen::Clean || whole, "{what}: {len} look whole to the backend");
            assert!(self.request.starts_with(&bytes), "{what}: the request differs");
        }
    }
}

/// Those of this thread's table, and of each lane's.
fn descriptors() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_lane = |task: &PathBuf| {
        // One that has just ended is none.
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.starts_with("lane-"))
    };
    let tables = tasks.filter(is_lane).chain([PathBuf::from("/proc/self")]);
    tables.filter_map(|table| Some(std::fs::read_dir(table.join("fd")).ok()?.count())).sum()
}

#[test]
fn every_call_may_fail_in_every_way() {
    let _alone = alone();
    let conversation = Conversation::in_the_clear();
    for version in VERSIONS {
        fail_every_call(&conversation, version);
    }
    conversation.rig.stop();
}

#[test]
fn every_call_may_fail_in_every_way_with_a_backend_under_tls() {
    let _alone = alone();
    for version in VERSIONS {
        let conversation = Conversation::sealed(version);
        fail_every_call(&conversation, version);
        conversation.rig.stop();
    }
}

/// Spoils each call of an exchange once, in every way; another exchange follows each.
pub(crate) fn fail_every_call(
    conversation: &impl Exchange,
    version: &'static SupportedProtocolVersion,
) {
    let rig = conversation.rig();
    conversation.must_succeed(version, "the first");
    rig.settle();
    let before = descriptors();
    rig.script.set(Plan::Never);
    conversation.must_succeed(version, "the counted one");
    rig.settle();
    let calls = rig.script.calls();
    assert!((10..500).contains(&calls), "{calls} calls");
    for fault in Fault::ALL {
        // Splitting one call makes others, so a little more than the clean run had.
        for call in 0..calls + 4 {
            let what = format!("{:?}, {fault:?} at call {call}", version.version);
            rig.script.set(Plan::At(call, fault));
            match fault {
                Fault::Reset => conversation.must_not_deceive(version, &what),
                _ => conversation.must_succeed(version, &what),
            }
            rig.settle();
            rig.script.set(Plan::Never);
            conversation.must_succeed(version, &format!("after {what}"));
            assert_eq!(rig.script.largest_read(), 256 * 1024, "after {what}: a lost buffer");
        }
    }
    rig.settle();
    eventually("no descriptor is left behind", || descriptors() <= before);
    assert_eq!(rig.counters().panics.value(), 0);
}

#[test]
fn random_calls_may_fail_often() {
    let _alone = alone();
    let mut spoilt = 0;
    for version in VERSIONS {
        for conversation in [Conversation::in_the_clear(), Conversation::sealed(version)] {
            for seed in 1..40 {
                let plan = Plan::Seeded { seed: seed * 7919, one_in: 2 + seed % 4 };
                conversation.rig.script.set(plan);
                conversation.must_succeed(version, &format!("{:?}, seed {seed}", version.version));
                conversation.rig.settle();
                spoilt += conversation.rig.script.spoilt();
            }
            assert_eq!(conversation.rig.counters().panics.value(), 0);
            conversation.rig.stop();
        }
    }
    // How many calls there are depends on how the kernel cuts the bytes.
    assert!(spoilt > 200, "only {spoilt} calls were spoilt");
}
