//! Every system call of a connection that is driven by orders fails once, in every way; then random
//! ones, often.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use rustls::SupportedProtocolVersion;
use sealane_lanes::orders::Chosen;

use crate::client::{Client, Seen, VERSIONS, pattern};
use crate::kernel::Plan;
use crate::ordered::{Command, Desk, Driver, Ordered, Told};
use crate::rig::{Rig, Wanted, alone};
use crate::systematic::{BYTES, Exchange, converse, fail_every_call};

/// An echo by orders: what the client sends goes out, comes back, and the client is paused whenever
/// more than a window of it is on its way. Its hello waits.
struct OrderedEcho {
    rig: Rig<Ordered>,
    request: Vec<u8>,
    /// Whether the other side ends without waiting for the client's end.
    abandons: bool,
    driving: JoinHandle<()>,
}

/// Less than a record, so that parts of one are left again and again.
const WINDOW: usize = 10_000;

impl OrderedEcho {
    fn start(abandons: bool) -> Self {
        let Driver { rig, desk, told } = Driver::start(Wanted::echo(), true);
        let driving = std::thread::spawn(move || drive(&desk, &told, abandons));
        Self { rig, request: pattern(12, BYTES), abandons, driving }
    }

    fn stop(self) {
        self.rig.stop();
        self.driving.join().unwrap();
    }

    fn converse(&self, version: &'static SupportedProtocolVersion) -> (Vec<u8>, Seen) {
        if !self.abandons {
            return converse(&self.rig, version, &self.request);
        }
        // It ends only after the other side has.
        let mut client = Client::begin(&self.rig, version);
        let _ = client.handshake().and_then(|()| client.send(&self.request));
        client.read_to_end()
    }
}

fn drive(desk: &Desk, told: &Receiver<Told>, abandons: bool) {
    let mut left = BYTES;
    for told in told {
        match told {
            Told::Hello(id, _) => desk.choose(id, Chosen::Listener),
            Told::Opened(id) => {
                left = BYTES;
                desk.command(id, Command::Take(WINDOW));
            }
            Told::Data(id, bytes) => {
                let len = bytes.len();
                left -= len;
                desk.command(id, Command::Write(bytes));
                if abandons && left == 0 {
                    desk.command(id, Command::Finish);
                    desk.command(id, Command::Abandon);
                } else {
                    desk.command(id, Command::Take(len));
                }
            }
            Told::ClientEnded(id) => desk.command(id, Command::Finish),
            Told::Drained(_)
            | Told::Ended(_)
            | Told::Inspected(..)
            | Told::Pending(..)
            | Told::Stopped(_) => {}
        }
    }
    assert_eq!(desk.disorders.load(SeqCst), 0, "calls out of order");
}

impl Exchange for OrderedEcho {
    type Served = Ordered;

    fn rig(&self) -> &Rig<Ordered> {
        &self.rig
    }

    fn must_succeed(&self, version: &'static SupportedProtocolVersion, what: &str) {
        let (bytes, seen) = self.converse(version);
        assert_eq!(seen, Seen::Clean, "{what}: after {} bytes", bytes.len());
        assert!(bytes == self.request, "{what}: {} bytes differ", bytes.len());
    }

    fn must_not_deceive(&self, version: &'static SupportedProtocolVersion, what: &str) {
        let (bytes, seen) = self.converse(version);
        let whole = bytes == self.request;
        assert!(seen != Seen::Clean || whole, "{what}: {} bytes look whole", bytes.len());
        assert!(self.request.starts_with(&bytes), "{what}: the echo differs");
    }
}

#[test]
fn every_call_may_fail_in_every_way_while_orders_come() {
    let _alone = alone();
    for abandons in [false, true] {
        let echo = OrderedEcho::start(abandons);
        for version in VERSIONS {
            fail_every_call(&echo, version);
        }
        echo.stop();
    }
}

#[test]
fn random_calls_may_fail_often_while_orders_come() {
    let _alone = alone();
    let mut spoilt = 0;
    for version in VERSIONS {
        let echo = OrderedEcho::start(false);
        for seed in 1..40 {
            let plan = Plan::Seeded { seed: seed * 7919, one_in: 2 + seed % 4 };
            echo.rig.script.set(plan);
            echo.must_succeed(version, &format!("{:?}, seed {seed}", version.version));
            echo.rig.settle();
            spoilt += echo.rig.script.spoilt();
        }
        assert_eq!(echo.rig.counters().panics.value(), 0);
        echo.stop();
    }
    // How many calls there are depends on how the kernel cuts the bytes.
    assert!(spoilt > 200, "only {spoilt} calls were spoilt");
}
