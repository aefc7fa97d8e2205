//! Records that a peer makes by hand, for a session that reads its own records and for one that
//! leaves them to rustls.

use std::sync::Arc;

use rustls::client::ClientConnectionData;
use rustls::crypto::{CipherSuiteCommon, CryptoProvider};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ProtocolVersion, RootCertStore, ServerConfig, SupportedCipherSuite,
    Tls13CipherSuite,
};

use super::*;
use crate::hello::Hello;
use crate::policy::Group;
use crate::provider::{ProviderChoice, lane_provider};
use crate::record::{CHANGE_CIPHER_SPEC, record_end};
use crate::session::driver::Layer;
use crate::session::tests::lent::{Lent, shake};
use crate::session::tests::{Server, World, client, flight, shake_hands};
use crate::session::{ClientSession, ServerSession, Session as _, subject};

const UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const UPDATE_AND_ANSWER: [u8; 5] = [24, 0, 0, 1, 1];
const HEARTBEAT: u8 = 24;

/// An established session and its client, of which nothing is left but its secrets.
struct Pair {
    server: Server,
    secrets: KernelConnection<ClientConnectionData>,
    tx: Tls13Direction,
    rx: Tls13Direction,
}

impl Pair {
    fn ours(world: &World) -> Self {
        let pair = Self::of(config(world, true), world.client_config(&TLS13));
        assert!(matches!(pair.server.session.layer, Layer::Ours(_)));
        pair
    }

    fn of(server: Arc<ServerConfig>, client: ClientConfig) -> Self {
        let mut server = Lent::to(ServerSession::new(server).unwrap());
        let name = ServerName::try_from("one.test").unwrap();
        let mut client = Lent::to(ClientSession::new(Arc::new(client), name).unwrap());
        shake(&mut client, &mut server, 1 << 20).unwrap();
        server.session.release_held(&mut server.wire);
        client.feed(server.wire.filled()).unwrap();
        server.wire.clear();
        let Layer::Rustls(crank) = client.session.layer else { panic!("a client's") };
        let (extracted, secrets) = crank.end.tls.dangerous_into_kernel_connection().unwrap();
        let [mut tx, mut rx] = [(); 2].map(|()| Tls13Direction::blank());
        tx.take_on(&extracted.tx).unwrap();
        rx.take_on(&extracted.rx).unwrap();
        Self { server, secrets, tx, rx }
    }

    /// A record, with zeros behind its type.
    fn padded(&mut self, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut inner = [content, &[kind]].concat();
        inner.resize(inner.len() + padding, 0);
        let header = tls13_header(inner.len() + TAG_LEN);
        let tag = self.tx.seal_next(&header, &mut inner).unwrap();
        [&header[..], &inner, &tag].concat()
    }

    fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        self.padded(kind, content, 0)
    }

    fn feed(&mut self, kind: u8, content: &[u8]) -> Result<Fed, SessionError> {
        let record = self.record(kind, content);
        self.server.feed(&record)
    }

    /// Sends a KeyUpdate, and goes on under the next key.
    fn update(&mut self, message: [u8; 5]) -> Result<Fed, SessionError> {
        let fed = self.feed(HANDSHAKE, &message);
        self.tx.take_on(&self.secrets.update_tx_secret().unwrap()).unwrap();
        fed
    }

    /// The records that the server has written since, under its keys as they change.
    fn answers(&mut self) -> Vec<(u8, Vec<u8>)> {
        let wire = self.server.wire.filled().to_vec();
        self.server.wire.clear();
        let mut rest = &wire[..];
        let mut answers = Vec::new();
        while let Some(len) = record_end(rest) {
            let (record, behind) = rest.split_at(len);
            rest = behind;
            let (header, sealed) = record.split_at(RECORD_HEADER_LEN);
            let mut sealed = sealed.to_vec();
            let inner_len = self.rx.open_next(header, &mut sealed).unwrap();
            let (kind, content) = sealed[..inner_len].split_last().unwrap();
            if *kind == HANDSHAKE {
                assert!(content == UPDATE || content == UPDATE_AND_ANSWER);
                self.rx.take_on(&self.secrets.update_rx_secret().unwrap()).unwrap();
            }
            answers.push((*kind, content.to_vec()));
        }
        assert!(rest.is_empty());
        answers
    }

    fn seal(&mut self, plain: &[u8]) {
        assert_eq!(self.server.session.seal(plain, &mut self.server.wire).unwrap(), plain.len());
    }
}

/// A server's settings: with its own records, or with rustls'.
fn config(world: &World, own_records: bool) -> Arc<ServerConfig> {
    let config = world.context.admit(&Hello::default()).unwrap();
    subject::by_reader(config).swap_remove(usize::from(!own_records))
}

/// A client's settings.
fn client_config(roots: &RootCertStore, cipher_suites: Vec<SupportedCipherSuite>) -> ClientConfig {
    let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    let provider = CryptoProvider { cipher_suites, ..provider };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    config
}

type Sent = fn(&mut Pair) -> Vec<u8>;

/// Records that end a session. Each has the alert that the peer gets (none if the peer's own alert
/// ended it), and whether rustls ends over it too, and as soon.
const REFUSED: [(&str, Option<AlertDescription>, bool, Sent); 27] = {
    use AlertDescription as A;
    [
        ("a changed byte", Some(A::BadRecordMac), true, |pair| {
            let mut record = pair.record(APPLICATION_DATA, b"data");
            record[7] ^= 1;
            record
        }),
        ("a changed tag", Some(A::BadRecordMac), true, |pair| {
            let mut record = pair.record(APPLICATION_DATA, b"data");
            record.last_mut().map(|byte| *byte ^= 1).unwrap();
            record
        }),
        ("a record twice", Some(A::BadRecordMac), true, |pair| {
            pair.record(APPLICATION_DATA, b"data").repeat(2)
        }),
        ("less than a tag", Some(A::BadRecordMac), true, |_| vec![23, 3, 3, 0, 1, 0]),
        ("nothing at all", Some(A::BadRecordMac), true, |_| vec![23, 3, 3, 0, 0]),
        ("zeros alone", Some(A::UnexpectedMessage), true, |pair| pair.padded(0, b"", 40)),
        ("no type", Some(A::UnexpectedMessage), true, |pair| {
            let header = tls13_header(TAG_LEN);
            let tag = pair.tx.seal_next(&header, &mut []).unwrap();
            [&header[..], &tag].concat()
        }),
        ("too much content", Some(A::RecordOverflow), true, |pair| {
            pair.record(APPLICATION_DATA, &[1; RECORD_PLAIN_MAX + 1])
        }),
        ("too much padding", Some(A::RecordOverflow), true, |pair| {
            pair.padded(APPLICATION_DATA, &[1; 100], RECORD_PLAIN_MAX - 99)
        }),
        ("a long record, at its header", Some(A::RecordOverflow), false, |_| {
            vec![23, 3, 3, 0x41, 1]
        }),
        ("an alert in the clear, at its header", Some(A::UnexpectedMessage), false, |_| {
            vec![ALERT, 3, 3, 0, 2]
        }),
        ("a message in the clear, at its header", Some(A::UnexpectedMessage), false, |_| {
            vec![HANDSHAKE, 3, 3, 0, 5]
        }),
        ("change_cipher_spec", Some(A::UnexpectedMessage), true, |_| {
            vec![CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1]
        }),
        ("change_cipher_spec within", Some(A::UnexpectedMessage), true, |pair| {
            pair.record(CHANGE_CIPHER_SPEC, &[1])
        }),
        ("another type within", Some(A::UnexpectedMessage), true, |pair| {
            pair.record(HEARTBEAT, &[1, 0, 1, 0])
        }),
        ("an empty message", Some(A::UnexpectedMessage), true, |pair| pair.record(HANDSHAKE, b"")),
        ("an empty alert", Some(A::UnexpectedMessage), true, |pair| pair.record(ALERT, b"")),
        ("half an alert", Some(A::DecodeError), true, |pair| pair.record(ALERT, &[1])),
        ("two alerts", Some(A::DecodeError), true, |pair| pair.record(ALERT, &[1, 90, 1, 90])),
        ("a warning", Some(A::DecodeError), true, |pair| pair.record(ALERT, &[1, 100])),
        ("an alert of no level", Some(A::IllegalParameter), true, |pair| {
            pair.record(ALERT, &[3, 40])
        }),
        ("a fatal alert", None, true, |pair| pair.record(ALERT, &[2, 40])),
        ("a hello", Some(A::UnexpectedMessage), false, |pair| pair.record(HANDSHAKE, &[1])),
        ("a long KeyUpdate", Some(A::DecodeError), true, |pair| {
            pair.record(HANDSHAKE, &[24, 0, 0, 2, 0, 0])
        }),
        ("a KeyUpdate of a third kind", Some(A::IllegalParameter), true, |pair| {
            pair.record(HANDSHAKE, &[24, 0, 0, 1, 2])
        }),
        ("a message behind a KeyUpdate", Some(A::UnexpectedMessage), true, |pair| {
            pair.record(HANDSHAKE, &[UPDATE, UPDATE].concat())
        }),
        ("data amid a KeyUpdate", Some(A::UnexpectedMessage), true, |pair| {
            let start = pair.record(HANDSHAKE, &UPDATE[..3]);
            [start, pair.record(APPLICATION_DATA, b"data")].concat()
        }),
    ]
};

#[test]
fn what_breaks_the_protocol_ends_the_session_with_its_alert() {
    let world = World::new();
    for (what, alert, _, sent) in REFUSED {
        let mut pair = Pair::ours(&world);
        let bytes = sent(&mut pair);
        let error = pair.server.feed(&bytes).expect_err(what);
        assert!(matches!(error, SessionError::Tls(_)), "{what}: {error}");
        let told = alert.map(|alert| (ALERT, vec![2, u8::from(alert)]));
        assert_eq!(pair.answers(), Vec::from_iter(told), "{what}");
        // Nothing is sent or read behind it, not even under the keys that replace ours.
        let server = &mut pair.server;
        server.session.close(&mut server.wire).unwrap();
        server.session.seal(b"data", &mut server.wire).unwrap_err();
        let read = server.plain.len();
        pair.tx = Tls13Direction::blank();
        pair.feed(APPLICATION_DATA, b"data").unwrap_err();
        assert_eq!((pair.server.wire.len(), pair.server.plain.len()), (0, read), "{what}");
    }
}

#[test]
fn what_ends_the_session_with_rustls_records_is_the_same() {
    let world = World::new();
    for (what, _, ends, sent) in REFUSED {
        let mut pair = Pair::of(config(&world, false), world.client_config(&TLS13));
        assert!(matches!(pair.server.session.layer, Layer::Rustls(_)));
        let bytes = sent(&mut pair);
        assert_eq!(pair.server.feed(&bytes).is_err(), ends, "{what}");
    }
}

#[test]
fn what_is_within_bounds_arrives_however_it_is_cut() {
    let world = World::new();
    for piece in [1, 7, 16_000, 1 << 20] {
        let mut pair = Pair::ours(&world);
        let most = vec![7; RECORD_PLAIN_MAX];
        let sent = [
            pair.record(APPLICATION_DATA, b"data"),
            pair.padded(APPLICATION_DATA, b"padded", 100),
            pair.padded(APPLICATION_DATA, b"", RECORD_PLAIN_MAX),
            pair.record(APPLICATION_DATA, &most),
            pair.record(ALERT, &[1, 90]),
            pair.record(APPLICATION_DATA, b"end"),
            pair.record(ALERT, &[2, 0]),
            b"nothing that counts".to_vec(),
        ];
        let mut ends = 0;
        for piece in sent.concat().chunks(piece) {
            let fed = pair.server.feed(piece).unwrap();
            ends += usize::from(fed.peer_closed);
        }
        assert_eq!((ends, pair.server.session.partial_len()), (1, 0));
        let behind = pair.feed(APPLICATION_DATA, b"nor does this").unwrap();
        assert_eq!(behind, Fed::default());
        let all = [b"datapadded", &most[..], b"end"].concat();
        assert!(pair.server.plain.filled() == all);
        assert!(pair.answers().is_empty());
        // It has ended its direction, not ours.
        pair.seal(b"answer");
        pair.server.session.close(&mut pair.server.wire).unwrap();
        let answers = [(APPLICATION_DATA, b"answer".to_vec()), (ALERT, vec![1, 0])];
        assert_eq!(pair.answers(), answers);
    }
}

#[test]
fn what_brings_nothing_is_counted() {
    let world = World::new();
    let data = (APPLICATION_DATA, &b"data"[..]);
    for (kind, content, most, renews) in [
        (APPLICATION_DATA, &b""[..], EMPTY_RECORDS_MAX, true),
        (HANDSHAKE, &UPDATE, KEY_UPDATES_MAX, true),
        (ALERT, &[1, 90], WARNINGS_MAX, false),
    ] {
        for own_records in [true, false] {
            let mut pair = Pair::of(config(&world, own_records), world.client_config(&TLS13));
            let mut send = |(kind, content): (u8, &[u8])| match kind {
                HANDSHAKE => pair.update(content.try_into().unwrap()),
                _ => pair.feed(kind, content),
            };
            for _ in 0..most {
                send((kind, content)).unwrap();
            }
            send(data).unwrap();
            if renews {
                for _ in 0..most {
                    send((kind, content)).unwrap();
                }
            }
            send((kind, content)).unwrap_err();
            if own_records {
                let alert = (ALERT, vec![2, AlertDescription::UnexpectedMessage.into()]);
                assert_eq!(pair.answers(), [alert], "{kind}");
            }
        }
    }
}

#[test]
fn keys_are_renewed_once_for_whoever_asks_and_before_the_next_word() {
    let world = World::new();
    let update = (HANDSHAKE, UPDATE.to_vec());
    let answer = (APPLICATION_DATA, b"answer".to_vec());
    let mut pair = Pair::ours(&world);
    for _ in 0..3 {
        pair.update(UPDATE_AND_ANSWER).unwrap();
    }
    pair.update(UPDATE).unwrap();
    assert!(pair.answers().is_empty(), "nothing is said for its own sake");
    pair.seal(b"answer");
    pair.seal(b"answer");
    assert_eq!(pair.answers(), [update.clone(), answer.clone(), answer.clone()]);
    pair.update(UPDATE).unwrap();
    pair.seal(b"answer");
    assert_eq!(pair.answers(), [answer]);
    // In as many records as it has bytes.
    for (index, byte) in UPDATE_AND_ANSWER.iter().enumerate() {
        let fed = pair.feed(HANDSHAKE, &[*byte]).unwrap();
        assert_eq!(fed.records, index + 1 == KEY_UPDATE_LEN, "{index}");
    }
    pair.tx.take_on(&pair.secrets.update_tx_secret().unwrap()).unwrap();
    pair.feed(APPLICATION_DATA, b"under the next key").unwrap();
    pair.server.session.close(&mut pair.server.wire).unwrap();
    // It is owed before more data only (section 4.6.3).
    assert_eq!(pair.answers(), [(ALERT, vec![1, 0])]);
    pair.server.session.seal(b"more", &mut pair.server.wire).unwrap_err();
    assert_eq!(pair.server.plain.filled(), b"under the next key");
}

#[test]
fn a_key_protects_no_more_than_it_may() {
    let mut provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    let stock = provider.cipher_suites.iter().find_map(SupportedCipherSuite::tls13).unwrap();
    let common = CipherSuiteCommon { confidentiality_limit: 5, ..stock.common };
    let suite = Box::leak(Box::new(Tls13CipherSuite { common, ..*stock }));
    provider.cipher_suites = vec![SupportedCipherSuite::Tls13(suite)];
    let made = rcgen::generate_simple_self_signed(vec!["one.test".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = client_config(&roots, provider.cipher_suites.clone());
    let mut server = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    server.enable_secret_extraction = true;
    server.send_tls13_tickets = 0;
    let mut pair = Pair::of(Arc::new(server), client);
    for _ in 0..11 {
        pair.seal(b"answer");
    }
    let kinds: Vec<_> = pair.answers().iter().map(|(kind, _)| *kind).collect();
    let four = [APPLICATION_DATA; 4];
    let expected = [&four[..], &[HANDSHAKE], &four, &[HANDSHAKE], &four[..3]].concat();
    assert_eq!(kinds, expected, "a KeyUpdate is the last record under a key");
}

#[test]
fn what_comes_with_the_end_of_the_handshake_is_read_whoever_has_it() {
    let world = World::new();
    for (version, own_records, tickets) in
        [(&TLS12, false, 2), (&TLS13, false, 2), (&TLS13, true, 2), (&TLS13, true, 0)]
    {
        let mut config = ServerConfig::clone(&config(&world, own_records));
        // While it has tickets to hand out, rustls looks at nothing else.
        config.send_tls13_tickets = tickets;
        let (server, client) = (Arc::new(config), Arc::new(world.client_config(version)));
        let cut = (1..).find(|cut| !ends_and_goes_on(&server, &client, *cut, own_records));
        assert!(cut > Some(60), "it was cut at every byte: {cut:?}");
    }
}

/// A client's last flight with a KeyUpdate and a request behind it, cut in two; returns whether it
/// is as long as that.
fn ends_and_goes_on(
    server: &Arc<ServerConfig>,
    config: &Arc<ClientConfig>,
    cut: usize,
    own_records: bool,
) -> bool {
    let mut client = client(config);
    let mut server = Lent::to(ServerSession::new(Arc::clone(server)).unwrap());
    while client.is_handshaking() {
        server.feed(&flight(&mut client)).unwrap();
        let mut wire = server.wire.filled();
        while !wire.is_empty() {
            client.read_tls(&mut wire).unwrap();
            client.process_new_packets().unwrap();
        }
        server.wire.clear();
    }
    let mut last = flight(&mut client);
    if client.protocol_version() == Some(ProtocolVersion::TLSv1_3) {
        // rustls would queue its answer, where it is not found.
        client.refresh_traffic_keys().unwrap();
    }
    std::io::Write::write_all(&mut client.writer(), b"request").unwrap();
    last.extend(flight(&mut client));
    let (front, rest) = last.split_at(cut.min(last.len()));
    server.feed(front).unwrap();
    server.feed(rest).unwrap();
    assert_eq!(server.plain.filled(), b"request");
    assert_eq!(matches!(server.session.layer, Layer::Ours(_)), own_records);
    server.session.seal(b"answer", &mut server.wire).unwrap();
    let mut wire = server.wire.filled();
    while !wire.is_empty() {
        client.read_tls(&mut wire).unwrap();
        client.process_new_packets().unwrap();
    }
    let mut answer = [0; 6];
    std::io::Read::read_exact(&mut client.reader(), &mut answer).unwrap();
    assert_eq!(&answer, b"answer");
    cut < last.len()
}

#[test]
fn every_suite_is_read_and_written_under_keys_that_change() {
    let world = World::new();
    for choice in [ProviderChoice::AwsLc, ProviderChoice::Graviola] {
        let provider = lane_provider(choice, &Group::ALL).unwrap().crypto;
        for suite in provider.cipher_suites.iter().filter(|suite| suite.tls13().is_some()) {
            let client = client_config(&world.roots, vec![*suite]);
            let mut pair = Pair::of(config(&world, true), client);
            for _ in 0..3 {
                pair.feed(APPLICATION_DATA, b"request").unwrap();
                pair.seal(&[5; 40_000]);
                let answers = pair.answers();
                let lens: Vec<_> = answers.iter().map(|(_, content)| content.len()).collect();
                assert!(lens.ends_with(&[16_384, 16_384, 7_232]), "{lens:?}");
                pair.update(UPDATE_AND_ANSWER).unwrap();
            }
            assert_eq!(pair.server.plain.len(), 21);
            let name = suite.suite().as_str().unwrap().replace("TLS13_", "TLS_");
            assert_eq!(pair.server.session.suite(), Some(&name[..]));
        }
    }
}

#[test]
fn what_was_agreed_on_is_known_behind_the_handshake() {
    let world = World::new();
    let told = [true, false].map(|own_records| {
        let mut config = ServerConfig::clone(&config(&world, own_records));
        config.alpn_protocols = vec![b"h2".to_vec()];
        let mut client_config = world.client_config(&TLS13);
        client_config.alpn_protocols = vec![b"h2".to_vec()];
        let (server_config, client_config) = (Arc::new(config), Arc::new(client_config));
        [false, true].map(|resumed| {
            let session = ServerSession::new(Arc::clone(&server_config)).unwrap();
            let (mut client, mut server) = (client(&client_config), Lent::to(session));
            shake_hands(&mut client, &mut server);
            server.session.release_held(&mut server.wire);
            let mut wire = server.wire.filled();
            client.read_tls(&mut wire).unwrap();
            client.process_new_packets().unwrap();
            let session = &server.session;
            assert_eq!(session.resumed(), resumed);
            assert!(session.served().is_some() && session.peer_certificates().is_empty());
            let alpn = session.alpn().map(<[u8]>::to_vec);
            let signed = session.signature_scheme().is_some();
            (session.version(), session.suite(), session.group(), alpn, signed)
        })
    });
    assert_eq!(told[0], told[1]);
    assert_eq!(told[0][0].3.as_deref(), Some(&b"h2"[..]));
}
