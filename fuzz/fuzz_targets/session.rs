//! A server's session, fed any bytes of a client, before and after a handshake.
//!
//! The first byte chooses which, and the second how the rest is cut.
#![no_main]

#[path = "../site.rs"]
mod site;

use std::cell::LazyCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection};
use sealane_engine::buffer::Buffer;
use sealane_engine::context::LaneContext;
use sealane_engine::hello::Hello;
use sealane_engine::session::{PARTIAL_BYTES_MAX, ServerSession, Session};

use site::Site;

const BUFFER_BYTES: usize = 1 << 20;

struct World {
    context: LaneContext,
    /// By version.
    clients: [Arc<ClientConfig>; 2],
}

thread_local! {
    static WORLD: LazyCell<World> = const { LazyCell::new(world) };
}

fn world() -> World {
    let Site { context, roots, provider } = Site::new(2);
    let clients = [&TLS12, &TLS13].map(|version| {
        let config = ClientConfig::builder_with_provider(Arc::new(provider.clone()))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        Arc::new(config)
    });
    World { context, clients }
}

/// A session with its buffers.
struct Server {
    session: ServerSession,
    received: Buffer,
    plain: Buffer,
    wire: Buffer,
}

impl Server {
    fn feed(&mut self, bytes: &[u8]) -> bool {
        self.received.clear();
        self.session.take_partial(&mut self.received);
        self.received.append(bytes);
        let fed = self.session.feed(self.received.filled_mut(), &mut self.plain, &mut self.wire);
        assert!(self.session.partial_len() <= PARTIAL_BYTES_MAX);
        fed.is_ok()
    }
}

fn shake_hands(server: &mut Server, config: &Arc<ClientConfig>) {
    let name = ServerName::try_from("one.test").expect("a name");
    let mut client = ClientConnection::new(Arc::clone(config), name).expect("a client");
    while client.is_handshaking() || !server.session.is_established() {
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).expect("a flight");
        }
        assert!(server.feed(&flight));
        let mut answer = server.wire.filled();
        while !answer.is_empty() {
            client.read_tls(&mut answer).expect("an answer");
            client.process_new_packets().expect("a good answer");
        }
        server.wire.clear();
    }
}

fuzz_target!(|input: &[u8]| {
    let [which, step, bytes @ ..] = input else { return };
    WORLD.with(|world| {
        let config = world.context.admit(&Hello::default()).expect("admitted");
        let mut server = Server {
            session: ServerSession::new(config).expect("a session"),
            received: Buffer::with_capacity(BUFFER_BYTES),
            plain: Buffer::with_capacity(BUFFER_BYTES),
            wire: Buffer::with_capacity(BUFFER_BYTES),
        };
        if let Some(config) = world.clients.get(usize::from(*which % 3)) {
            shake_hands(&mut server, config);
        }
        for chunk in bytes.chunks(usize::from(*step) + 1) {
            if !server.feed(chunk) {
                return;
            }
            if server.session.is_established() {
                server.session.seal(b"answer", &mut server.wire).expect("sealed");
                server.wire.clear();
            }
        }
    });
});
