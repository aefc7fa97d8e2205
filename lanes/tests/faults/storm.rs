//! More handshakes than a lane can make: the clients served, their order, and the work skipped.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sealane_engine::buffer::Buffer;
use sealane_engine::hello::Hello;
use sealane_file_table::FileTable;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::{Arrivals, Link};
use sealane_lanes::orders::{Choice, Chosen, ConnectionId, Order};
use sealane_lanes::service::{EndedConnection, Service};

use crate::backend::reset;
use crate::client::{Client, VERSIONS};
use crate::ordered::Driver;
use crate::rig::{Rig, Wanted, among_others, eventually};
use crate::service::{Settings, WAIT_WORD};

/// A text on which the service works for [`SLOW`].
const SLOW_WORD: &[u8] = b"slow";
const SLOW: Duration = Duration::from_millis(400);

/// An echo that makes each hello take a certain time, and counts.
#[derive(Clone)]
struct Storm(Arc<Facts>);

struct Facts {
    hello_takes: Duration,
    hellos: AtomicUsize,
    /// Hellos before each text of an established client.
    before_texts: Mutex<Vec<usize>>,
    /// The number of sessions that were begun, and then ended by a client that left.
    wasted: AtomicUsize,
    /// Called at each hello with its number.
    on_hello: Mutex<Box<dyn FnMut(usize) + Send>>,
}

impl Facts {
    fn hellos(&self) -> usize {
        self.hellos.load(SeqCst)
    }

    fn on_hello(&self, call: impl FnMut(usize) + Send + 'static) {
        *self.on_hello.lock().unwrap() = Box::new(call);
    }
}

impl Storm {
    fn start(hello_takes: Duration) -> (Rig<Self>, Arc<Facts>) {
        let facts = Arc::new(Facts {
            hello_takes,
            hellos: AtomicUsize::new(0),
            before_texts: Mutex::default(),
            wasted: AtomicUsize::new(0),
            on_hello: Mutex::new(Box::new(|_| {})),
        });
        let service = Self(Arc::clone(&facts));
        (Rig::serve(Wanted::echo(), FileTable::Shared, move || service), facts)
    }
}

impl Service for Storm {
    type Connection = ();
    type Command = std::convert::Infallible;
    type Settings = Settings;

    fn hello(&mut self, _id: ConnectionId, _hello: &Hello, _settings: &Settings) -> Choice {
        let number = self.0.hellos.fetch_add(1, SeqCst);
        self.0.on_hello.lock().unwrap()(number);
        let until = Instant::now() + self.0.hello_takes;
        while Instant::now() < until {}
        Choice::Listener
    }

    fn established<K: Kernel>(
        &mut self,
        _link: &mut Link<'_, K>,
        connection: &mut Option<()>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        *connection = Some(());
        Ok(())
    }

    fn plaintext<K: Kernel>(
        &mut self,
        _connection: &mut (),
        link: &mut Link<'_, K>,
        plain: &mut Buffer,
        settings: &Settings,
    ) -> Result<(), Cause> {
        if plain.filled() == WAIT_WORD {
            settings.gate.wait();
            settings.gate.wait();
        } else {
            self.0.before_texts.lock().unwrap().push(self.0.hellos());
            if plain.filled() == SLOW_WORD {
                std::thread::sleep(SLOW);
            }
            link.send(plain.filled())?;
        }
        plain.clear();
        Ok(())
    }

    fn client_ended<K: Kernel>(
        &mut self,
        _connection: &mut (),
        link: &mut Link<'_, K>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        link.finish(&[])
    }

    fn attached_writable<K: Kernel>(
        &mut self,
        _connection: &mut (),
        _link: &mut Link<'_, K>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        Ok(())
    }

    fn attached_readable<K: Kernel>(
        &mut self,
        _connection: &mut (),
        _link: &mut Link<'_, K>,
        _arrivals: &mut Arrivals<'_>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        Ok(())
    }

    fn deadline<K: Kernel>(
        &mut self,
        _connection: &mut (),
        _link: &mut Link<'_, K>,
        _settings: &Settings,
    ) -> Result<(), Cause> {
        Ok(())
    }

    fn ended(&mut self, _: Option<()>, _settings: &Settings, end: &EndedConnection<'_>) {
        if end.cause == Cause::ClientGone && end.session.is_some() {
            self.0.wasted.fetch_add(1, SeqCst);
        }
    }
}

/// A client that holds the lane up, and accepted clients that have sent their hello since.
fn held(rig: &Rig<Storm>, count: usize) -> (Client, Vec<Client>) {
    let mut holding = Client::connect(rig, VERSIONS[1]).unwrap();
    let before = rig.counters().accepted.value();
    let mut clients: Vec<_> = (0..count).map(|_| Client::begin(rig, VERSIONS[1])).collect();
    eventually("all are accepted", || rig.counters().accepted.value() == before + count as u64);
    holding.send(WAIT_WORD).unwrap();
    rig.gate.wait();
    clients.iter_mut().for_each(greet);
    (holding, clients)
}

fn greet(client: &mut Client) {
    client.tls.write_tls(&mut client.socket).unwrap();
}

#[test]
fn lane_signs_nothing_for_clients_that_left() {
    let _others = among_others();
    let (rig, facts) = Storm::start(Duration::ZERO);
    let (_holding, mut clients) = held(&rig, 60);
    let mut staying = clients.split_off(40);
    for (number, client) in clients.into_iter().enumerate() {
        if number % 2 == 0 {
            reset(client.socket);
        }
    }
    rig.gate.wait();
    for client in &mut staying {
        client.handshake().unwrap();
        client.send(b"served").unwrap();
        assert_eq!(client.receive(6).unwrap(), b"served");
    }
    rig.await_end(Cause::ClientGone, 40);
    assert_eq!(facts.wasted.load(SeqCst), 0);
    rig.stop();
}

#[test]
fn established_traffic_precedes_handshakes() {
    let _others = among_others();
    let (rig, facts) = Storm::start(Duration::ZERO);
    let mut established = Client::connect(&rig, VERSIONS[1]).unwrap();
    let (_holding, _clients) = held(&rig, 8);
    let begun = facts.hellos();
    established.send(b"first").unwrap();
    rig.gate.wait();
    assert_eq!(established.receive(5).unwrap(), b"first");
    assert_eq!(*facts.before_texts.lock().unwrap(), [begun]);
    rig.stop();
}

#[test]
fn turn_ends_when_handshakes_take_its_time() {
    let _others = among_others();
    let (rig, facts) = Storm::start(Duration::from_millis(1));
    let established = Client::connect(&rig, VERSIONS[1]).unwrap();
    let (_holding, _clients) = held(&rig, 40);
    let begun = facts.hellos();
    let is_sent = send_at_hello(&facts, begun, established);
    rig.gate.wait();
    is_sent.recv().unwrap();
    eventually("it is heard", || !facts.before_texts.lock().unwrap().is_empty());
    let before = facts.before_texts.lock().unwrap()[0] - begun;
    assert!(before <= 2, "{before} hellos of 1 ms in a turn of 1");
    rig.stop();
}

#[test]
fn long_turn_of_traffic_leaves_time_to_hellos() {
    let _others = among_others();
    // Each hello alone takes longer than a short turn has for all of them.
    let (rig, facts) = Storm::start(Duration::from_millis(6));
    let mut established = Client::connect(&rig, VERSIONS[1]).unwrap();
    let (_holding, _clients) = held(&rig, 20);
    let begun = facts.hellos();
    established.send(SLOW_WORD).unwrap();
    let is_sent = send_at_hello(&facts, begun, established);
    rig.gate.wait();
    is_sent.recv().unwrap();
    eventually("it is heard", || facts.before_texts.lock().unwrap().len() == 2);
    let before = facts.before_texts.lock().unwrap()[1] - begun;
    assert!(before >= 2, "{before} hello of 6 ms behind {SLOW:?} of traffic");
    rig.stop();
}

/// Has an established client send in the middle of the turn that this hello is in.
fn send_at_hello(facts: &Facts, hello: usize, mut client: Client) -> Receiver<()> {
    let (sent, is_sent) = channel();
    facts.on_hello(move |number| {
        if number == hello {
            client.send(b"again").unwrap();
            sent.send(()).unwrap();
        }
    });
    is_sent
}

#[test]
fn burst_of_clients_is_served_whole() {
    let _others = among_others();
    let (rig, _facts) = Storm::start(Duration::from_millis(2));
    let (_holding, clients) = held(&rig, 200);
    rig.gate.wait();
    let served = count_served(clients);
    let ended = |cause| usize::try_from(rig.counters().ended(cause).value()).unwrap();
    assert_eq!(ended(Cause::LimitHandshakeQueue), 0);
    // On a busy machine some wait for too long.
    assert_eq!(served + ended(Cause::LimitHandshakeWait), 200);
    rig.stop();
}

#[test]
fn clients_that_never_complete_give_way() {
    let _others = among_others();
    let (rig, facts) = Storm::start(Duration::from_millis(6));
    let mut silent: Vec<_> = (0..4).map(|_| from_network(&rig, 7)).collect();
    let (_holding, _) = held(&rig, 0);
    silent.iter_mut().for_each(greet);
    rig.gate.wait();
    let answered = facts.hellos() + 4;
    eventually("they are answered", || facts.hellos() >= answered - 1);
    // Until their patience is over: a client may take half a second to complete.
    std::thread::sleep(Duration::from_secs(1));
    let mut holding = Client::connect(&rig, VERSIONS[1]).unwrap();
    holding.send(WAIT_WORD).unwrap();
    rig.gate.wait();
    silent.extend((0..200).map(|_| from_network(&rig, 7)));
    silent.iter_mut().skip(4).for_each(greet);
    rig.gate.wait();
    let ended = || rig.counters().ended(Cause::LimitHandshakeQueue).value();
    // A lane does 100 in 200 ms to begin with, then 33.
    eventually("some give way", || ended() >= 50);
    assert_eq!(count_served(vec![from_network(&rig, 8)]), 1);
    rig.stop();
}

#[test]
fn flooding_prefix_leaves_others_their_turn() {
    let _others = among_others();
    let (rig, facts) = Storm::start(Duration::from_millis(6));
    let before = facts.hellos();
    let (_holding, _) = held(&rig, 0);
    let mut flood: Vec<_> = (0..200).map(|_| from_network(&rig, 7)).collect();
    flood.iter_mut().for_each(greet);
    let mut others: Vec<_> = (10..15).map(|network| from_network(&rig, network)).collect();
    others.iter_mut().for_each(greet);
    rig.gate.wait();
    assert_eq!(count_served(others), 5);
    let first = facts.hellos() - before;
    assert!(first < 100, "{first} hellos are answered before five of other prefixes");
    rig.stop();
}

#[test]
fn clients_that_complete_precede_clients_that_do_not() {
    let _others = among_others();
    let (rig, facts) = Storm::start(Duration::from_millis(6));
    let good = [250; 4].map(|network| from_network(&rig, network));
    assert_eq!(count_served(good.into()), 4);
    let before = facts.hellos();
    let (mut holding, _) = held(&rig, 0);
    // Neither among the newest nor among the oldest.
    let networks = (1..=40).chain([250]).chain(41..=80);
    let mut clients: Vec<_> = networks.map(|network| from_network(&rig, network)).collect();
    clients.iter_mut().for_each(greet);
    rig.gate.wait();
    let mut good = clients.remove(40);
    good.handshake().unwrap();
    let first = facts.hellos() - before;
    assert!(first < 50, "{first} hellos are answered before that of a client in good standing");
    holding.send(b"the end").unwrap();
    drop(clients);
    rig.stop();
}

/// A client from `127.1.network.1`.
fn from_network(rig: &Rig<Storm>, network: u8) -> Client {
    let mut client = Client::begin(rig, VERSIONS[1]);
    client.socket = rig.connect_from([127, 1, network, 1].into());
    client
}

/// How many of the clients complete their handshakes and are echoed a byte.
fn count_served(clients: Vec<Client>) -> usize {
    let served = clients.into_iter().filter_map(|mut client| {
        client.handshake().ok()?;
        client.send(b"x").ok()?;
        client.receive(1).ok()
    });
    served.count()
}

#[test]
fn answers_to_hellos_that_wait_are_bounded() {
    let _others = among_others();
    let driver = Driver::start(Wanted::echo(), true);
    let mut ids = Vec::new();
    let clients: Vec<_> = (0..200)
        .map(|_| {
            let mut client = Client::begin(&driver.rig, VERSIONS[1]);
            greet(&mut client);
            ids.push(driver.hello().0);
            client
        })
        .collect();
    let turns = driver.rig.counters().turns.value();
    driver.desk.order_all(ids.into_iter().map(|id| Order::Choose(id, Chosen::Listener)));
    for mut client in clients {
        client.tls.read_tls(&mut client.socket).unwrap();
    }
    let turns = driver.rig.counters().turns.value() - turns;
    assert!(turns > 1, "200 sessions are begun in one turn");
    driver.stop();
}
