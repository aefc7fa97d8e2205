//! The relay on a lane whose kernel has no room for what is to be sent to backends.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_engine::client::{ClientContexts, ClientOptions, Roots};
use sealane_engine::context::Context;
use sealane_engine::policy::Policy;
use sealane_engine::provider::ProviderChoice;
use sealane_engine::tickets::{TicketRoot, UnixSeconds};
use sealane_lanes::generation::{Listener, Publication};
use sealane_lanes::kernel::{Address, Linux};
use sealane_lanes::limits::Limits;
use sealane_lanes::listener;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::start::{LaneHandle, LaneSetup, start};

use super::*;
use crate::backends::{Backend, BackendTls};
use crate::config::Balance;

const NAME: &str = "one.test";
const PATIENCE: Duration = Duration::from_secs(20);

/// Takes nothing for a socket that it connected itself, as the kernel does when memory is short.
struct NoRoom {
    connected: HashSet<RawFd>,
    linux: Linux,
}

impl Kernel for NoRoom {
    fn accept(&mut self, listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, Option<SocketAddr>)> {
        let accepted = self.linux.accept(listener)?;
        self.connected.remove(&accepted.0.as_raw_fd());
        Ok(accepted)
    }

    fn connect(&mut self, address: &Address) -> io::Result<OwnedFd> {
        let socket = self.linux.connect(address)?;
        self.connected.insert(socket.as_raw_fd());
        Ok(socket)
    }

    fn recv(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        self.linux.recv(socket, into)
    }

    fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        bytes: &[u8],
        end_follows: bool,
    ) -> io::Result<usize> {
        if self.connected.contains(&socket.as_raw_fd()) {
            return Err(ErrorKind::WouldBlock.into());
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

/// A lane with one listener before one backend that must prove to be [`NAME`], behind a PROXY
/// header; and the certificate that both ends show.
fn lane(backend: SocketAddr) -> (LaneHandle<Relay>, SocketAddr, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let provider = aws_lc_rs::default_provider();
    let mut builder = IndexBuilder::new(&provider, 0);
    builder.add(NAME, pem.as_bytes());
    let certificates = Arc::new(builder.finish(DefaultCertificate::First).index);
    let options = ClientOptions::trusting(Roots::from_pem(NAME, pem.as_bytes()).unwrap());
    let context = ClientContexts::new().context(&options).unwrap();
    let backend = Backend {
        address: Address::Tcp(backend),
        label: backend.to_string(),
        tls: Some(BackendTls { context, name: NAME.try_into().unwrap() }),
        lanes: vec![Arc::default()],
    };
    let settings = RelaySettings {
        listener: NAME.into(),
        backends: vec![backend],
        balance: Balance::default(),
        connect_timeout: PATIENCE,
        proxy_header: true,
        cursors: vec![Arc::default()],
    };
    let (mut sockets, address) = listener::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
    let listener = Listener {
        number: 0,
        keys: vec![address],
        context: Arc::new(Context {
            policy: Policy::default(),
            certificates,
            key_log: false,
            store: None,
            provider: ProviderChoice::AwsLc,
            tickets: 0,
        }),
        named: Vec::new(),
        settings: Arc::new(settings),
    };
    let generation = Generation { number: 1, limits: Limits::default(), listeners: vec![listener] };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let tickets = TicketRoot::generate(Duration::from_secs(43_200), UnixSeconds(now), |bytes| {
        bytes.fill(7);
    });
    let setup = LaneSetup {
        number: 0,
        pin_to_cpu: None,
        tickets: tickets.unwrap(),
        decoded_keys_max: NonZeroUsize::MIN,
        first: Publication {
            generation: Arc::new(generation),
            sockets: vec![(address, sockets.remove(0))],
        },
        kernel: NoRoom { connected: HashSet::new(), linux: Linux },
    };
    let lane = start(setup, |_| Relay::new(0, None)).unwrap();
    (lane, address, made.cert.der().clone())
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
    let (lane, address, root) = lane(backend.local_addr().unwrap());
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
    let ended = || lane.counters.ended(Cause::BackendHandshakeFailed).value();
    let until = Instant::now() + PATIENCE;
    while ended() == 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(ended(), 1);
    lane.post(Mail::Stop);
    lane.join().unwrap();
}
