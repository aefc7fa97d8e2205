//! One lane over the faulty kernel, with certificates, limits and what the tests look at.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::num::NonZeroUsize;
use std::sync::{Arc, Barrier, LazyLock, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, RootCertStore};
use sealane_engine::certificates::{CertificateIndex, DefaultCertificate, IndexBuilder};
use sealane_engine::context::{Context, ContextId};
use sealane_engine::policy::{Group, Policy, UnknownNames};
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use sealane_file_table::FileTable;
use sealane_lanes::LaneEnd;
use sealane_lanes::cause::Cause;
use sealane_lanes::counters::Counters;
use sealane_lanes::generation::{Generation, Listener, Named, Publication, Speech};
use sealane_lanes::handover::Parcel;
use sealane_lanes::kernel::Address;
use sealane_lanes::limits::Limits;
use sealane_lanes::listener;
use sealane_lanes::liveness::Liveness;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::service::Service;
use sealane_lanes::start::{LaneHandle, LaneSetup, Own, start};
use sealane_lanes::steer::Steer;
use sealane_lanes::thread::LaneThread;
use sealane_lanes::timeouts::Timeouts;
use socket2::{Domain, Socket, Type};

use crate::kernel::{Faulty, Script};
use crate::service::{Behaviour, Settings, Tested};

/// Longer than anything here takes on a busy machine; a test that reaches it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The name on the certificate.
pub(crate) const NAME: &str = "one.test";

/// Tests that count descriptors run alone, the others together.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// Waits until no other test runs, and keeps others from starting.
pub(crate) fn alone() -> RwLockWriteGuard<'static, ()> {
    DESCRIPTORS.write().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Keeps tests that must be alone from starting.
pub(crate) fn among_others() -> RwLockReadGuard<'static, ()> {
    DESCRIPTORS.read().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What the lane serves, for tests that want something special.
pub(crate) struct Wanted {
    /// How backends are spoken to, unless in the clear.
    pub(crate) backend_tls: Option<Arc<ClientConfig>>,
    pub(crate) behaviour: Behaviour,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    /// If connections begin with lines, how long these may take: see [`Tested`].
    pub(crate) preamble: Option<Duration>,
    /// What stands in place of the listener's own, by the server name.
    pub(crate) named: Vec<Named>,
    /// What is spoken, unless TLS that ends at the lane.
    pub(crate) speech: Option<Speech>,
    pub(crate) unknown_names: UnknownNames,
    pub(crate) connect_timeout: Duration,
    pub(crate) wait_to_connect: bool,
}

impl Wanted {
    pub(crate) fn echo() -> Self {
        Self::new(Behaviour::Echo)
    }

    pub(crate) fn limited(limits: Limits) -> Self {
        Self { limits, ..Self::echo() }
    }

    pub(crate) fn timed(timeouts: Timeouts) -> Self {
        Self { timeouts, ..Self::echo() }
    }

    pub(crate) fn relay(backend: SocketAddr) -> Self {
        Self::new(Behaviour::Relay(vec![Address::Tcp(backend)]))
    }

    pub(crate) fn new(behaviour: Behaviour) -> Self {
        Self {
            backend_tls: None,
            behaviour,
            limits: Limits::default(),
            // Who sends a hello byte by byte may wait for the processor between any two.
            timeouts: Timeouts { handshake: PATIENCE, ..Timeouts::default() },
            preamble: None,
            named: Vec::new(),
            speech: None,
            unknown_names: UnknownNames::ServeDefault,
            connect_timeout: PATIENCE,
            wait_to_connect: false,
        }
    }
}

/// A service of these tests.
pub(crate) trait Served: Service<Settings = Settings> + 'static {}

impl<S: Service<Settings = Settings> + 'static> Served for S {}

/// A running lane.
pub(crate) struct Rig<S: Service = Tested> {
    pub(crate) address: SocketAddr,
    pub(crate) script: Arc<Script>,
    pub(crate) ends: Arc<Mutex<Vec<Cause>>>,
    /// Where the lane waits for the test, twice, when a client says so.
    pub(crate) gate: Arc<Barrier>,
    pub(crate) handle: LaneHandle<S::Settings>,
}

impl Rig {
    pub(crate) fn start(wanted: Wanted) -> Self {
        Self::serve(wanted, FileTable::Own, || Tested)
    }
}

impl<S: Served> Rig<S> {
    pub(crate) fn serve(
        wanted: Wanted,
        file_table: FileTable,
        service: impl FnOnce() -> S + Send + 'static,
    ) -> Self {
        let script = Arc::<Script>::default();
        let (mut sockets, address) = listener::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let (ends, gate) = (Arc::default(), Arc::new(Barrier::new(2)));
        let generation = generation(1, address, wanted, &ends, &gate);
        let setup = LaneSetup {
            thread: LaneThread::start(0, 0).unwrap(),
            pin_to_cpu: None,
            tickets: ticket_root(7),
            decoded_keys_max: NonZeroUsize::new(8).unwrap(),
            first: generation,
            sockets: vec![(Address::Tcp(address), sockets.remove(0))],
            own: Own { file_table, ..Own::default() },
            kernel: Faulty::new(Arc::clone(&script)),
        };
        let handle = start(setup, |_| service()).unwrap();
        Self { address, script, ends, gate, handle }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.handle.counters
    }

    /// Publishes another generation for the same listener and waits until the lane serves it.
    pub(crate) fn publish(&self, number: u64, wanted: Wanted) -> Weak<Generation<Settings>> {
        let generation = generation(number, self.address, wanted, &self.ends, &self.gate);
        let weak = Arc::downgrade(&generation);
        let publication = Publication { generation, parcel: Parcel::default() };
        self.handle.post(Mail::Publish(Box::new(publication)));
        eventually("the lane takes the generation", || {
            self.counters().generation.value() == number
        });
        weak
    }

    /// A socket to the lane, with bounded patience.
    pub(crate) fn connect(&self) -> TcpStream {
        Self::open(|| TcpStream::connect(self.address))
    }

    /// The same from an address of the loopback network.
    pub(crate) fn connect_from(&self, source: Ipv4Addr) -> TcpStream {
        Self::open(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((source, 0)).into())?;
            socket.connect(&self.address.into())?;
            Ok(socket.into())
        })
    }

    fn open(open: impl Fn() -> io::Result<TcpStream>) -> TcpStream {
        // A fault of the lane may reset a connection before connect(2) has returned.
        let connect = |_| match open() {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
            connected => Some(connected.unwrap()),
        };
        let socket = (0..CONNECTS_MAX).find_map(connect).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket
    }

    /// Waits until no connection is left, and checks that none is counted.
    pub(crate) fn settle(&self) {
        eventually("every connection ends", || self.counters().connections.value() == 0);
        assert_eq!(self.counters().handshaking.value(), 0, "handshakes in flight");
    }

    /// Waits until this many connections ended by `cause`.
    pub(crate) fn await_end(&self, cause: Cause, count: u64) {
        eventually(&format!("{count} x {cause:?}, not {:?}", self.ends.lock().unwrap()), || {
            self.counters().ended(cause).value() >= count
        });
        assert_eq!(self.counters().ended(cause).value(), count, "{cause:?}");
    }

    /// Stops the lane, which must end without a panic.
    pub(crate) fn stop(self) -> LaneEnd {
        self.handle.post(Mail::Stop);
        self.handle.join().unwrap()
    }
}

/// Connections that may be reset in a row.
const CONNECTS_MAX: usize = 10;

/// Waits for `condition`.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto)
}

/// The roots that a client needs to trust the lane.
pub(crate) fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for certificates in CERTIFICATES.values() {
        let leaf = certificates.iter().next().unwrap().chain().next().unwrap().to_vec();
        roots.add(leaf.into()).unwrap();
    }
    roots
}

pub(crate) fn generation(
    number: u64,
    address: SocketAddr,
    wanted: Wanted,
    ends: &Arc<Mutex<Vec<Cause>>>,
    gate: &Arc<Barrier>,
) -> Arc<Generation<Settings>> {
    let settings = Settings {
        backend_tls: wanted.backend_tls,
        behaviour: wanted.behaviour,
        connect_timeout: wanted.connect_timeout,
        ends: Arc::clone(ends),
        gate: Arc::clone(gate),
        wait_to_connect: wanted.wait_to_connect,
    };
    let listener = Listener {
        number: 0,
        keys: vec![Address::Tcp(address)],
        preamble: wanted.preamble,
        speech: wanted
            .speech
            .unwrap_or_else(|| Speech::Tls(Arc::new(context(NAME, wanted.unknown_names)))),
        named: wanted.named,
        liveness: Liveness::default(),
        steer: Steer::Connection,
        timeouts: wanted.timeouts,
        settings: Arc::new(settings),
    };
    Arc::new(Generation { number, limits: wanted.limits, listeners: vec![listener] })
}

/// A context with the certificate for `name`, one of [`NAMES`].
pub(crate) fn context(name: &str, unknown_names: UnknownNames) -> Context {
    let policy = Policy {
        // Cheap, so that the many handshakes of these tests are not all arithmetic.
        groups: vec![Group::X25519],
        unknown_names,
        ..Policy::default()
    };
    Context {
        id: ContextId::fresh(),
        policy,
        certificates: Arc::clone(&CERTIFICATES[name]),
        key_log: false,
        store: None,
        provider: ProviderChoice::Auto,
        tickets: 2,
    }
}

/// Names that there are certificates for; the listener's own covers the first.
pub(crate) const NAMES: [&str; 3] = [NAME, "two.test", "*.wild.test"];

static CERTIFICATES: LazyLock<HashMap<&str, Arc<CertificateIndex>>> = LazyLock::new(|| {
    let provider = provider();
    let made = NAMES.map(|name| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let pem = made.cert.pem() + &made.signing_key.serialize_pem();
        let mut builder = IndexBuilder::new(&provider, 0);
        builder.add(name, pem.as_bytes());
        let indexed = builder.finish(DefaultCertificate::First);
        assert!(indexed.errors.is_empty(), "{:?}", indexed.errors);
        (name, Arc::new(indexed.index))
    });
    HashMap::from(made)
});

/// A root of tickets; those of another seed do not open its tickets.
pub(crate) fn ticket_root(seed: u8) -> TicketRoot {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let root = TicketRoot::generate(Duration::from_secs(43_200), UnixSeconds(now), |bytes| {
        bytes.fill(seed);
    });
    root.unwrap()
}
