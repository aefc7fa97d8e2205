//! A server of one lane, and clients of it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use bytering::region;
use rustix::event::{EventfdFlags, eventfd};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_lanes::limits::Limits;
use sealane_lanes::timeouts::Timeouts;
use sealane_node::RING;
use sealane_node::commands::Commands;
use sealane_node::control::{Control, Plan};
use sealane_node::events::Events;
use sealane_node::listen::Where;
use sealane_node::options::Written;
use sealane_node::service::Parts;
use sealane_node::settings::{Counts, Handover, Settings};
use zeroize::Zeroizing;

use crate::script::Script;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const NAME: &str = "one.test";

/// A client after a complete handshake.
pub(crate) type Client = StreamOwned<ClientConnection, TcpStream>;

pub(crate) struct Rig {
    pub(crate) address: SocketAddr,
    pub(crate) counts: Arc<Counts>,
    pub(crate) control: Control,
}

impl Rig {
    /// A running lane, and JavaScript's end of it.
    pub(crate) fn start(handover: Handover) -> (Self, Script) {
        let (to_script, events) = region::ring(RING);
        let (commands, from_script) = region::ring(RING);
        let bell: OwnedFd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
        let (bell, counts) = (Arc::new(bell), Arc::<Counts>::default());
        let (wake, woken) = channel();
        let (descriptors, claimed) = channel();
        let parts = Parts {
            events: Events::new(to_script),
            commands: Commands::new(from_script),
            bell: Arc::clone(&bell),
            descriptors,
            wake: Box::new(move || {
                // A test that has failed listens no more.
                let _ = wake.send(());
            }),
            mailbox: Arc::new(OnceLock::new()),
            counts: Arc::clone(&counts),
            pending_max: 64,
        };
        let settings = Settings {
            blocked: Arc::default(),
            handover,
            shutdown_timeout: PATIENCE,
            no_delay: true,
            keep_alive: None,
            asks: false,
        };
        let plan = Plan {
            lanes: 1,
            pin: false,
            settings,
            limits: Limits::default(),
            timeouts: Timeouts::of_handshake(PATIENCE),
            ticket_keys: Zeroizing::new(vec![[7; 48]]),
            ticket_lifetime_s: 300,
        };
        let context = IDENTITY.written().build().map_err(|e| format!("{e:?}")).unwrap().context;
        let control = Control::new(plan, context, vec![parts], Box::new(())).unwrap();
        let listen = Where { host: Some("127.0.0.1".into()), ..Where::default() };
        let (sockets, address) = listen.open(1).unwrap();
        control.listen(sockets);
        control.start().unwrap();
        (
            Self { address: address.unwrap(), counts, control },
            Script::new(events, commands, bell, woken, claimed),
        )
    }

    pub(crate) fn connect(&self) -> Client {
        let mut client = self.begin();
        while client.conn.is_handshaking() || client.conn.wants_write() {
            client.conn.complete_io(&mut client.sock).unwrap();
        }
        client
    }

    /// A client that knows the end of the handshake, and has not sent it.
    pub(crate) fn connect_almost(&self) -> Client {
        let mut client = self.begin();
        while client.conn.is_handshaking() {
            if client.conn.wants_write() {
                client.conn.write_tls(&mut client.sock).unwrap();
            } else {
                client.conn.read_tls(&mut client.sock).unwrap();
                client.conn.process_new_packets().unwrap();
            }
        }
        client
    }

    fn begin(&self) -> Client {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        let tls = ClientConnection::new(Arc::clone(&CLIENT), NAME.try_into().unwrap()).unwrap();
        StreamOwned::new(tls, socket)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.control.counters()[0].connections.value()
    }

    /// Waits for `condition`.
    pub(crate) fn eventually(&self, what: &str, mut condition: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(Instant::now() < until, "waited in vain until {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub(crate) fn send_and_finish(client: &mut Client, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    client.conn.send_close_notify();
    client.flush().unwrap();
}

/// The bytes up to the clean end.
pub(crate) fn read_to_end(client: &mut Client) -> Vec<u8> {
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    bytes
}

struct Identity {
    chain: String,
    key: String,
    root: Vec<u8>,
}

impl Identity {
    fn written(&self) -> Written {
        let pem = |text: &String| Zeroizing::new(text.clone().into_bytes());
        Written {
            cert: vec![pem(&self.chain)],
            key: vec![pem(&self.key)],
            honor_cipher_order: true,
            tickets: true,
            groups: vec!["X25519".into()],
            ..Written::default()
        }
    }
}

static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
    Identity {
        chain: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
        root: made.cert.der().to_vec(),
    }
});

static CLIENT: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add(IDENTITY.root.clone().into()).unwrap();
    let provider = lane_provider(ProviderChoice::AwsLc, &[Group::X25519]).unwrap().crypto;
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
});
