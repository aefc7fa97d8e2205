//! A gate between an agent and its authority that stops at one request, for a test to kill the
//! agent there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls::{Stream, StreamOwned};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};

use super::PATIENCE;
use super::authority::Authority;

/// A gate that passes requests on, and stops at one of them.
pub struct Gate {
    pub address: SocketAddr,
    plan: Arc<Mutex<Plan>>,
    stopped: Receiver<String>,
}

/// Which request is stopped: the one after so many others, before or after the authority had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    After(usize),
    Before(usize),
    Never,
}

struct Plan {
    posts: usize,
    stop: Stop,
    stopped: Sender<String>,
}

impl Gate {
    pub fn before(authority: &Authority) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, stopped) = channel();
        let plan = Arc::new(Mutex::new(Plan { posts: 0, stop: Stop::Never, stopped: sender }));
        let provider = Arc::new(lane_provider(ProviderChoice::Auto, &Group::ALL).unwrap().crypto);
        let text = std::fs::read(authority.path("server.pem")).unwrap();
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(&text).unwrap()],
                PrivateKeyDer::from_pem_slice(&text).unwrap(),
            );
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(authority.path("ca.pem")).unwrap()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (server, client) = (Arc::new(server.unwrap()), Arc::new(client));
        let (to, plans) = (authority.address, Arc::clone(&plan));
        // Ends with the test's process.
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (server, client) = (Arc::clone(&server), Arc::clone(&client));
                let plan = Arc::clone(&plans);
                std::thread::spawn(move || {
                    let session = ServerConnection::new(server).unwrap();
                    let mut from = StreamOwned::new(session, connection);
                    while pass(&mut from, to, &client, &plan).is_some() {}
                });
            }
        });
        Self { address, plan, stopped }
    }

    /// Stops at a request from now on.
    pub fn stop(&self, stop: Stop) {
        let mut plan = self.plan.lock().unwrap();
        plan.posts = 0;
        plan.stop = stop;
        while self.stopped.try_recv().is_ok() {}
    }

    /// What was stopped: its path. None if the whole order passed: `is_done` says.
    pub fn wait_until_stopped(&self, is_done: impl Fn() -> bool) -> Option<String> {
        let until = std::time::Instant::now() + PATIENCE;
        loop {
            if let Ok(path) = self.stopped.recv_timeout(std::time::Duration::from_millis(20)) {
                return Some(path);
            }
            if is_done() {
                return None;
            }
            assert!(std::time::Instant::now() < until, "nothing is stopped, and nothing is done");
        }
    }
}

/// Passes one request and its answer on; none at the end of the connection, or if it is stopped.
fn pass(
    from: &mut (impl Read + Write),
    to: SocketAddr,
    client: &Arc<ClientConfig>,
    plan: &Mutex<Plan>,
) -> Option<()> {
    let request = read_message(from)?;
    let head = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
    let number = head.starts_with("POST").then(|| {
        let mut plan = plan.lock().unwrap();
        plan.posts += 1;
        plan.posts
    });
    let stop = plan.lock().unwrap().stop;
    let is_stopped = |at: fn(usize) -> Stop| number.is_some_and(|number| stop == at(number));
    if is_stopped(Stop::Before) {
        plan.lock().unwrap().stopped.send(head).unwrap();
        return None;
    }
    let answer = ask(to, client, &request)?;
    if is_stopped(Stop::After) {
        plan.lock().unwrap().stopped.send(head).unwrap();
        return None;
    }
    from.write_all(&answer).ok()?;
    from.flush().ok()
}

/// The authority's answer, on a connection of its own.
fn ask(to: SocketAddr, client: &Arc<ClientConfig>, request: &[u8]) -> Option<Vec<u8>> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut session = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut socket = TcpStream::connect(to).ok()?;
    let mut stream = Stream::new(&mut session, &mut socket);
    stream.write_all(request).ok()?;
    read_message(&mut stream)
}

/// A request or an answer of HTTP/1.1 with its body, by its length.
fn read_message(from: &mut impl Read) -> Option<Vec<u8>> {
    let mut message = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(end) = message.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&message[..end]).to_lowercase();
            let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
            let is_chunked = field("transfer-encoding:").is_some();
            let length = field("content-length:").map_or(0, |text| text.trim().parse().unwrap());
            let is_whole = match is_chunked {
                true => message.ends_with(b"0\r\n\r\n"),
                false => message.len() >= end + 4 + length,
            };
            // An answer to HEAD has a length and no body; this authority sends none with it.
            if is_whole {
                return Some(message);
            }
        }
        match from.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(read) => message.extend_from_slice(&chunk[..read]),
        }
    }
}
