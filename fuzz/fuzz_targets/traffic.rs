//! Records that a client sends behind its handshake under TLS 1.3, to two sessions: one reads its
//! records itself, the other leaves them to rustls. They are sealed as by a client, of any type,
//! content and padding, in any order, spoilt or sound.
//!
//! Both must hand out the same, answer the same, and end over the same. Ours may end sooner: at a
//! header, or at the first byte of a message that no server takes.
#![no_main]

#[path = "../site.rs"]
mod site;

use std::cell::LazyCell;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::cipher::{AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter};
use rustls::crypto::cipher::{MessageEncrypter, OutboundPlainMessage, Tls13AeadAlgorithm};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, UnbufferedStatus};
use rustls::version::TLS13;
use rustls::{ClientConfig, ConnectionTrafficSecrets, ContentType, ProtocolVersion, ServerConfig};
use sealane_engine::buffer::Buffer;
use sealane_engine::hello::Hello;
use sealane_engine::session::{
    ESTABLISHED_PARTIAL_BYTES_MAX, RECORD_WIRE_MAX, ServerSession, Session,
};

use site::Site;

const BUFFER_BYTES: usize = 1 << 19;
/// Steps of one run.
const STEPS_MAX: usize = 200;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const KEY_UPDATE: [u8; 4] = [24, 0, 0, 1];
/// Fatal alerts.
const UNEXPECTED: [u8; 2] = [2, 10];
const OVERFLOW: [u8; 2] = [2, 22];
const MALFORMED: [u8; 2] = [2, 50];

struct World {
    client: Arc<ClientConfig>,
    /// With its own records, and with rustls'.
    servers: [Arc<ServerConfig>; 2],
}

thread_local! {
    static WORLD: LazyCell<World> = const { LazyCell::new(world) };
}

fn world() -> World {
    let Site { context, roots, provider } = Site::new(0);
    let config = context.admit(&Hello::default()).expect("admitted");
    assert!(config.enable_secret_extraction);
    let servers = [true, false].map(|own_records| {
        let mut config = ServerConfig::clone(&config);
        config.enable_secret_extraction = own_records;
        Arc::new(config)
    });
    let mut client = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.enable_secret_extraction = true;
    World { client: Arc::new(client), servers }
}

/// A session, and the keys of its client.
struct Pair {
    session: ServerSession,
    plain: Buffer,
    wire: Buffer,
    aead: &'static dyn Tls13AeadAlgorithm,
    secrets: KernelConnection<ClientConnectionData>,
    writing: (u64, Box<dyn MessageEncrypter>),
    reading: (u64, Box<dyn MessageDecrypter>),
    /// The results: records of the server, whether it has seen the client's end, and whether it has
    /// ended itself.
    answers: Vec<(u8, Vec<u8>)>,
    has_seen_end: bool,
    has_ended: bool,
}

impl Pair {
    fn shake_hands(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Self {
        let name = ServerName::try_from("one.test").expect("a name");
        let mut tls = UnbufferedClientConnection::new(Arc::clone(client), name).expect("a client");
        let mut session = ServerSession::new(Arc::clone(server)).expect("a session");
        let [mut plain, mut wire] = [(); 2].map(|()| Buffer::with_capacity(BUFFER_BYTES));
        while !session.is_established() {
            let mut flight = turn(&mut tls, &mut wire);
            session.feed(&mut flight, &mut plain, &mut wire).expect("a good flight");
        }
        let (extracted, secrets) = tls.dangerous_into_kernel_connection().expect("its secrets");
        let suite = secrets.negotiated_cipher_suite().tls13().expect("TLS 1.3");
        let aead = suite.aead_alg;
        let (tx, rx) = (extracted.tx, extracted.rx);
        let writing = (tx.0, encrypter(aead, tx.1));
        let reading = (rx.0, decrypter(aead, rx.1));
        Self {
            session,
            plain,
            wire,
            aead,
            secrets,
            writing,
            reading,
            answers: Vec::new(),
            has_seen_end: false,
            has_ended: false,
        }
    }

    /// A record with an `inner` that ends with its type, and padding.
    fn record(&mut self, mut inner: Vec<u8>) -> Vec<u8> {
        let last = inner.pop().unwrap_or_default();
        let message = OutboundPlainMessage {
            typ: ContentType::from(last),
            version: ProtocolVersion::TLSv1_2,
            payload: inner.as_slice().into(),
        };
        let (sequence, sealer) = &mut self.writing;
        let record = sealer.encrypt(message, *sequence).expect("sealed").encode();
        *sequence += 1;
        record
    }

    fn update_keys(&mut self) {
        let (sequence, next) = self.secrets.update_tx_secret().expect("the next");
        self.writing = (sequence, encrypter(self.aead, next));
    }

    fn feed(&mut self, bytes: &[u8]) {
        if self.has_ended || self.session.append_partial(bytes) {
            return;
        }
        let mut received = Buffer::with_capacity(self.session.partial_len() + bytes.len());
        self.session.take_partial(&mut received);
        received.append(bytes);
        let fed = self.session.feed(received.filled_mut(), &mut self.plain, &mut self.wire);
        assert!(self.session.partial_len() <= ESTABLISHED_PARTIAL_BYTES_MAX);
        self.has_ended = fed.is_err();
        self.has_seen_end |= fed.is_ok_and(|fed| fed.peer_closed);
        self.read_answers();
    }

    fn seal(&mut self, plain: &[u8]) {
        if !self.has_ended {
            let taken = self.session.seal(plain, &mut self.wire).expect("sealed");
            assert_eq!(taken, plain.len());
            self.read_answers();
        }
    }

    fn read_answers(&mut self) {
        let wire = self.wire.filled().to_vec();
        self.wire.clear();
        let mut rest = &wire[..];
        while let Some((&[_, _, _, high, low], behind)) = rest.split_first_chunk() {
            let (payload, behind) = behind.split_at(usize::from(high) << 8 | usize::from(low));
            rest = behind;
            let mut payload = payload.to_vec();
            let (shown, version) = (ContentType::ApplicationData, ProtocolVersion::TLSv1_2);
            let message = InboundOpaqueMessage::new(shown, version, &mut payload);
            let (sequence, opener) = &mut self.reading;
            let opened = opener.decrypt(message, *sequence).expect("the client reads it");
            *sequence += 1;
            let (kind, content) = (u8::from(opened.typ), opened.payload.to_vec());
            if kind == HANDSHAKE {
                assert_eq!(content, [24, 0, 0, 1, 0]);
                let (sequence, next) = self.secrets.update_rx_secret().expect("the next");
                self.reading = (sequence, decrypter(self.aead, next));
            }
            self.answers.push((kind, content));
        }
        assert!(rest.is_empty());
    }
}

/// Lets the client read `wire` and returns its answer.
fn turn(tls: &mut UnbufferedClientConnection, wire: &mut Buffer) -> Vec<u8> {
    let mut flight = Vec::new();
    loop {
        let UnbufferedStatus { discard, state } = tls.process_tls_records(wire.filled_mut());
        let is_idle = match state.expect("a good answer") {
            ConnectionState::EncodeTlsData(mut data) => {
                let start = flight.len();
                flight.resize(start + RECORD_WIRE_MAX, 0);
                let len = data.encode(&mut flight[start..]).expect("room");
                flight.truncate(start + len);
                false
            }
            ConnectionState::TransmitTlsData(data) => {
                data.done();
                false
            }
            _ => true,
        };
        wire.consume(discard);
        if is_idle {
            return flight;
        }
    }
}

/// The key and its IV, for any suite.
fn key_of(secrets: ConnectionTrafficSecrets) -> (AeadKey, Iv) {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (key, iv),
        _ => unreachable!("no suite has it"),
    }
}

fn encrypter(
    aead: &dyn Tls13AeadAlgorithm,
    secrets: ConnectionTrafficSecrets,
) -> Box<dyn MessageEncrypter> {
    let (key, iv) = key_of(secrets);
    aead.encrypter(key, iv)
}

fn decrypter(
    aead: &dyn Tls13AeadAlgorithm,
    secrets: ConnectionTrafficSecrets,
) -> Box<dyn MessageDecrypter> {
    let (key, iv) = key_of(secrets);
    aead.decrypter(key, iv)
}

/// The client's next step.
struct Step<'i> {
    kind: u8,
    content: &'i [u8],
    padding: usize,
    /// The size of the pieces of its bytes.
    piece: usize,
    spoils: bool,
    answers: bool,
}

impl<'i> Step<'i> {
    /// From the front of `input`; returns the rest.
    fn read(input: &'i [u8]) -> Option<(Self, &'i [u8])> {
        let (&[what, how, len, piece], rest) = input.split_first_chunk()?;
        let kind = match what & 7 {
            0 => what >> 3,
            1 => ALERT,
            2..=4 => HANDSHAKE,
            _ => DATA,
        };
        // Once in a while as many as there may be, and one more.
        let len = usize::from(len) * if how & 0x40 == 0 { 1 } else { 66 };
        let (content, rest) = rest.split_at(len.min(rest.len()));
        let content: &[u8] = match what & 7 {
            // Its last byte would be the type.
            0 if kind == 0 => &[],
            2 => &KEY_UPDATES[len % 2],
            _ => content,
        };
        let step = Self {
            kind,
            content,
            padding: usize::from(how & 0x0f) * if how & 0x80 == 0 { 1 } else { 1_200 },
            piece: usize::from(piece) * 70 + 1,
            spoils: how & 0x3f == 0x30,
            answers: what & 8 != 0,
        };
        Some((step, rest))
    }

    fn take(&self, pair: &mut Pair) {
        let mut inner = [self.content, &[self.kind]].concat();
        inner.resize(inner.len() + self.padding, 0);
        let mut record = pair.record(inner);
        if self.spoils
            && let Some(last) = record.last_mut()
        {
            *last ^= 1;
        }
        for piece in record.chunks(self.piece) {
            pair.feed(piece);
        }
        if self.answers {
            pair.seal(b"answer");
        }
    }
}

const KEY_UPDATES: [[u8; 5]; 2] = [[24, 0, 0, 1, 0], [24, 0, 0, 1, 1]];

fuzz_target!(|input: &[u8]| {
    WORLD.with(|world| {
        let [mut ours, mut stock] =
            world.servers.each_ref().map(|server| Pair::shake_hands(&world.client, server));
        let mut input = input;
        let mut message = Vec::new();
        for _ in 0..STEPS_MAX {
            let Some((step, rest)) = Step::read(input) else { break };
            input = rest;
            [&mut ours, &mut stock].into_iter().for_each(|pair| step.take(pair));
            if step.kind == HANDSHAKE {
                message.extend_from_slice(step.content);
            }
            assert_eq!(ours.plain.filled(), stock.plain.filled());
            if ours.has_ended || stock.has_ended {
                judge(&step, &message, &mut ours, &mut stock);
                return;
            }
            assert_eq!((&ours.answers, ours.has_seen_end), (&stock.answers, stock.has_seen_end));
            if message.len() == KEY_UPDATE.len() + 1 {
                message.clear();
                [&mut ours, &mut stock].into_iter().for_each(Pair::update_keys);
            }
            // Bytes of a client behind its end are not read.
            if ours.has_seen_end || ours.plain.spare_len() < BUFFER_BYTES / 2 {
                return;
            }
        }
    });
});

/// Holds that both have ended, or that rustls would have.
fn judge(step: &Step<'_>, message: &[u8], ours: &mut Pair, stock: &mut Pair) {
    if step.kind == HANDSHAKE && message.len() < KEY_UPDATE.len() && step.padding > 0 {
        // The bound in front of rustls takes padding for the message's length.
        return;
    }
    assert!(ours.has_ended, "rustls ends over what we take");
    if !stock.has_ended {
        // RFC 8446 section 5.4 wants empty ones refused; rustls counts them.
        let is_empty = step.kind == HANDSHAKE && step.content.is_empty();
        // Of a message rustls wants all, or as much as it may keep.
        let is_begun = step.kind == HANDSHAKE && !KEY_UPDATE.starts_with(message);
        assert!(is_empty || is_begun, "we end over what rustls takes");
        for _ in 0..ESTABLISHED_PARTIAL_BYTES_MAX / 4_000 + 2 {
            let more = stock.record([&[0; 4_000][..], &[HANDSHAKE]].concat());
            stock.feed(&more);
        }
        assert!(is_empty || stock.has_ended, "it is whole, and no KeyUpdate");
        return;
    }
    // rustls is silent over some faults.
    let alert = |pair: &Pair| pair.answers.last().filter(|(kind, _)| *kind == ALERT).cloned();
    let Some((_, told)) = alert(stock) else { return };
    let Some((_, ours)) = alert(ours) else { panic!("{told:?} was not told") };
    let is_usual = match step.kind {
        ALERT => !step.content.is_empty(),
        DATA => true,
        HANDSHAKE => message.first() == Some(&KEY_UPDATE[0]),
        _ => false,
    };
    let is_short = step.content.len() + step.padding < RECORD_WIRE_MAX - 64;
    if told == MALFORMED && !(is_usual && is_short) {
        // rustls reads all of a message that no server takes, and has its own bound.
        assert!(ours == UNEXPECTED || ours == OVERFLOW, "{ours:?}");
    } else {
        assert_eq!(ours, told);
    }
}
