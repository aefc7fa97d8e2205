//! The relay on a lane whose kernel fails where something is to be sent to backends.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use sealane_config::{Balance, ProxyHeader, Share, Spoken, Tlvs};
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_engine::client::{ClientContext, ClientContexts, ClientOptions, Roots};
use sealane_engine::context::{Context, ContextId};
use sealane_engine::policy::Policy;
use sealane_engine::provider::ProviderChoice;
use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use sealane_file_table::{Descriptor, FileTable};
use sealane_lanes::generation::{Listener, Speech};
use sealane_lanes::kernel::{Address, Linux};
use sealane_lanes::limits::Limits;
use sealane_lanes::listener;
use sealane_lanes::liveness::Liveness;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::start::{LaneHandle, LaneSetup, Own, start};
use sealane_lanes::steer::Steer;
use sealane_lanes::thread::LaneThread;
use sealane_lanes::timeouts::Timeouts;
use sealane_traffic::backends::{Backend, BackendTls, Destination, LaneShare};
use sealane_traffic::lane_orders::order_queue;
use sealane_traffic::notices::Notices;

use super::*;

const NAME: &str = "one.test";
const PATIENCE: Duration = Duration::from_secs(20);

/// Linux, with a fault at sockets that it connected itself.
struct Faulty {
    /// The number of sends to each socket.
    connected: HashMap<RawFd, usize>,
    fault: Fault,
    linux: Linux,
}

enum Fault {
    /// There is no descriptor for a socket; each attempt is reported.
    NoDescriptor(Sender<()>),
    /// Nothing is taken, as when memory is short.
    NoRoom,
    /// After `sent` sends the peer resets the connection: one more send is reported as `tried`, and
    /// fails once the peer has `told` why.
    Reset { sent: usize, tried: Sender<()>, told: Receiver<()> },
}

impl Kernel for Faulty {
    fn accept(&mut self, listener: BorrowedFd<'_>) -> io::Result<(Descriptor, Option<SocketAddr>)> {
        let accepted = self.linux.accept(listener)?;
        self.connected.remove(&accepted.0.as_fd().as_raw_fd());
        Ok(accepted)
    }

    fn connect(&mut self, address: &Address) -> io::Result<Descriptor> {
        if let Fault::NoDescriptor(tried) = &self.fault {
            tried.send(()).unwrap();
            return Err(rustix::io::Errno::MFILE.into());
        }
        let socket = self.linux.connect(address)?;
        self.connected.insert(socket.as_fd().as_raw_fd(), 0);
        Ok(socket)
    }

    fn recv(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        self.linux.recv(socket, into)
    }

    fn peek(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        self.linux.peek(socket, into)
    }

    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        end_follows: bool,
    ) -> io::Result<usize> {
        if let Some(count) = self.connected.get_mut(&socket.as_raw_fd()) {
            match &self.fault {
                Fault::NoRoom => return Err(ErrorKind::WouldBlock.into()),
                Fault::Reset { sent, tried, told } if *count == *sent => {
                    tried.send(()).unwrap();
                    told.recv_timeout(PATIENCE).unwrap();
                    return Err(ErrorKind::ConnectionReset.into());
                }
                Fault::NoDescriptor(_) => {}
                Fault::Reset { .. } => *count += 1,
            }
        }
        self.linux.send(socket, bytes, end_follows)
    }

    fn watch(
        &mut self,
        poll: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        token: u64,
        writable: bool,
    ) -> io::Result<()> {
        self.linux.watch(poll, socket, token, writable)
    }

    fn watch_writable(
        &mut self,
        poll: BorrowedFd<'_>,
        socket: BorrowedFd<'_>,
        token: u64,
    ) -> io::Result<()> {
        self.linux.watch_writable(poll, socket, token)
    }
}

fn relay() -> Relay {
    let giver = NumberGiver { process: 0, lane: 0 };
    let (_, orders) = order_queue();
    let (notices, refused) = (Notices::new(drop), Arc::default());
    Relay::new(LaneParts { giver, orders, log: None, events: None, notices, refused })
}

/// A backend that is spoken to in TLS.
fn in_tls(backend: SocketAddr, context: Arc<ClientContext>) -> Backend {
    Backend {
        address: Address::Tcp(backend),
        label: backend.to_string(),
        share: LaneShare::of(Share::default(), NonZeroUsize::MIN),
        target: None,
        tls: Some(BackendTls { context, name: NAME.try_into().unwrap() }),
        lanes: vec![Arc::default()],
    }
}

/// A lane with one listener before one backend that must prove to be [`NAME`], behind a PROXY
/// header; and the certificate that both ends show, with its key.
fn lane(
    backend: SocketAddr,
    fault: Fault,
) -> (LaneHandle<RelaySettings>, SocketAddr, CertificateDer<'static>, PrivateKeyDer<'static>) {
    lane_with(backend, fault, |_| ())
}

/// The same with other settings.
fn lane_with(
    backend: SocketAddr,
    fault: Fault,
    change: impl FnOnce(&mut RelaySettings),
) -> (LaneHandle<RelaySettings>, SocketAddr, CertificateDer<'static>, PrivateKeyDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let provider = aws_lc_rs::default_provider();
    let mut builder = IndexBuilder::new(&provider, 0);
    builder.add(NAME, pem.as_bytes());
    let certificates = Arc::new(builder.finish(DefaultCertificate::First).index);
    let options = ClientOptions::trusting(Roots::from_pem(NAME, pem.as_bytes()).unwrap());
    let context = ClientContexts::new().context(&options).unwrap();
    let backend = in_tls(backend, context);
    let mut settings = RelaySettings {
        listener: NAME.into(),
        accept_proxy: None,
        admission: Arc::default(),
        connect_timeout: PATIENCE,
        destinations: vec![Destination {
            backends: vec![backend],
            balance: Balance::default(),
            proxy_header: ProxyHeader::V2(Tlvs::default()),
            memories: Vec::new(),
            planned: Arc::default(),
            slow_start_ms: 0,
        }],
        https_port: 443,
        liveness: Liveness::default(),
        names: Arc::default(),
        responder: None,
        spoken: Spoken::Tls,
    };
    change(&mut settings);
    let (mut sockets, address) = listener::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
    let listener = Listener {
        number: 0,
        keys: vec![Address::Tcp(address)],
        preamble: (settings.spoken == Spoken::Postgres).then_some(PATIENCE),
        speech: Speech::Tls(Arc::new(Context {
            id: ContextId::fresh(),
            policy: Policy::default(),
            certificates,
            key_log: false,
            store: None,
            provider: ProviderChoice::AwsLc,
            tickets: 0,
        })),
        named: Vec::new(),
        liveness: Liveness::default(),
        steer: Steer::Connection,
        timeouts: Timeouts::default(),
        settings: Arc::new(settings),
    };
    let generation = Generation { number: 1, limits: Limits::default(), listeners: vec![listener] };
    let setup = LaneSetup {
        thread: LaneThread::start(0, 0).unwrap(),
        pin_to_cpu: None,
        tickets: root(),
        decoded_keys_max: NonZeroUsize::MIN,
        first: Arc::new(generation),
        sockets: vec![(Address::Tcp(address), sockets.remove(0))],
        own: Own { file_table: FileTable::Own, ..Own::default() },
        kernel: Faulty { connected: HashMap::new(), fault, linux: Linux },
    };
    let lane = start(setup, |_| relay()).unwrap();
    let key = made.signing_key.serialize_der().try_into().unwrap();
    (lane, address, made.cert.der().clone(), key)
}

fn root() -> TicketRoot {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    TicketRoot::generate(Duration::from_secs(43_200), UnixSeconds(now), |bytes| bytes.fill(7))
        .unwrap()
}

fn connect(address: SocketAddr, root: CertificateDer<'static>) -> impl io::Read + io::Write {
    let mut roots = RootCertStore::empty();
    roots.add(root).unwrap();
    let config = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = ClientConnection::new(Arc::new(config), NAME.try_into().unwrap()).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    StreamOwned::new(tls, socket)
}

/// Where the PROXY header waits, TLS has not begun, and whoever speaks has proved nothing.
#[test]
fn what_a_backend_says_before_it_proves_its_name_reaches_nobody() {
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let (lane, address, root, _) = lane(backend.local_addr().unwrap(), Fault::NoRoom);
    let stranger = std::thread::spawn(move || {
        let (mut socket, _) = backend.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(b"stolen").unwrap();
        let mut got = Vec::new();
        // It ends with a reset, or with FIN.
        let _ = socket.read_to_end(&mut got);
        got
    });
    let mut client = connect(address, root);
    // The lane may have ended it by then; what is read tells.
    let _ = client.write_all(b"secret").and_then(|()| client.flush());
    let mut got = [0; 6];
    let read = client.read(&mut got);
    assert!(read.is_err(), "{read:?}, {:?}", String::from_utf8_lossy(&got));
    assert!(stranger.join().unwrap().is_empty());
    ended_as_refused(lane);
}

/// Without a descriptor for one backend there is none for the next one either.
#[test]
fn cancel_without_descriptors_is_tried_once() {
    let (tried, tries) = channel();
    let fault = Fault::NoDescriptor(tried);
    let (lane, address, ..) = lane_with(([127, 0, 0, 1], 1).into(), fault, |settings| {
        settings.spoken = Spoken::Postgres;
        settings.destinations.push(settings.destinations[0].clone());
    });
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.write_all(b"\0\0\0\x10\x04\xd2\x16\x2eprockey!").unwrap();
    let _ = client.read_to_end(&mut Vec::new());
    let counters = Arc::clone(&lane.counters);
    lane.post(Mail::Stop);
    lane.join().unwrap();
    assert_eq!(tries.iter().count(), 1);
    assert_eq!(counters.ended(Cause::LimitDescriptors).value(), 1);
}

/// Waits until a connection has ended because its backend's handshake failed, and stops the lane.
fn ended_as_refused(lane: LaneHandle<RelaySettings>) {
    let ended = || lane.counters.ended(Cause::BackendHandshakeFailed).value();
    let until = Instant::now() + PATIENCE;
    while ended() == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ended(), 1);
    lane.post(Mail::Stop);
    lane.join().unwrap();
}

/// Under TLS 1.3 it may refuse what we have shown when all seems well to us. It closes with our
/// bytes unread, and the reset can be there before its alert was read.
#[test]
fn a_backend_that_refuses_us_and_resets_is_heard_out() {
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    // The PROXY header, the hello, the end of the handshake.
    let (tell, told) = channel();
    let (tried, again) = channel();
    let (lane, address, root, key) =
        lane(backend.local_addr().unwrap(), Fault::Reset { sent: 3, tried, told });
    let mut clients = RootCertStore::empty();
    clients.add(root.clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(clients.into(), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(vec![root.clone()], key)
        .unwrap();
    let strict = std::thread::spawn(move || {
        let (mut socket, _) = backend.accept().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut header = [0; 16];
        socket.read_exact(&mut header).unwrap();
        let len = u64::from(u16::from_be_bytes([header[14], header[15]]));
        io::copy(&mut (&socket).take(len), &mut io::sink()).unwrap();
        let mut tls = ServerConnection::new(config.into()).unwrap();
        while !tls.wants_write() {
            tls.read_tls(&mut socket).unwrap();
            tls.process_new_packets().unwrap();
        }
        while tls.wants_write() {
            tls.write_tls(&mut socket).unwrap();
        }
        again.recv_timeout(PATIENCE).unwrap();
        while tls.complete_io(&mut socket).is_ok() {}
        tell.send(()).unwrap();
        socket
    });
    let mut client = connect(address, root);
    client.write_all(b"secret").and_then(|()| client.flush()).unwrap();
    assert!(client.read(&mut [0; 6]).is_err());
    drop(strict.join().unwrap());
    ended_as_refused(lane);
}
