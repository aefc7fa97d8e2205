//! Messages that a peer begins and does not end are kept only as far as the moment allows.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, IsCa, KeyPair};
use rustls::AlertDescription;
use rustls::pki_types::PrivateKeyDer;
use rustls::version::TLS12;

use super::fragments::established;
use super::*;
use crate::record::{APPLICATION_DATA, HANDSHAKE, RECORD_HEADER_LEN};

const ALERT_DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];
const CERTIFICATE: u8 = 11;
const CLIENT_KEY_EXCHANGE: u8 = 16;

/// A server that has answered the hello of `config`'s client, and that client.
pub(crate) fn answered(
    world: &World,
    config: ClientConfig,
    awaited: Awaited,
) -> (ClientConnection, Server) {
    let mut client = client(&Arc::new(config));
    let hello = flight(&mut client);
    let config = world.context.admit(&Hello::default()).unwrap();
    let mut server = Lent::to(ServerSession::new(config).unwrap().awaiting(awaited));
    server.feed(&hello).unwrap();
    (client, server)
}

/// The front of a record of `len` bytes.
pub(crate) fn record(kind: u8, len: u16, front: &[u8]) -> Vec<u8> {
    let [high, low] = len.to_be_bytes();
    [&[kind, 3, 3, high, low], front].concat()
}

/// Feeds bytes one by one until they are refused; returns how many were taken before.
fn taken(server: &mut Server, bytes: &[u8]) -> (usize, Option<SessionError>) {
    for (count, byte) in bytes.iter().enumerate() {
        if let Err(error) = server.feed(&[*byte]) {
            return (count, Some(error));
        }
    }
    (bytes.len(), None)
}

/// The alert that the client reads in all that the server has written.
fn alert(client: &mut ClientConnection, server: &Server) -> AlertDescription {
    let mut wire = server.wire.filled();
    while !wire.is_empty() {
        client.read_tls(&mut wire).unwrap();
        if let Err(error) = client.process_new_packets() {
            let rustls::Error::AlertReceived(alert) = error else { panic!("{error}") };
            return alert;
        }
    }
    panic!("no alert came");
}

#[test]
fn a_message_or_record_too_long_is_refused_at_its_header() {
    let world = World::new();
    let long_message = [CLIENT_KEY_EXCHANGE, 0, 0x10, 0];
    for (front, header_len) in [
        (record(HANDSHAKE, 16_384, &[0; 5_000]), 5),
        (record(HANDSHAKE, 200, &[&long_message[..], &[0; 100]].concat()), 9),
    ] {
        let (_, mut server) = answered(&world, world.client_config(&TLS12), Awaited::default());
        server.wire.clear();
        let (count, error) = taken(&mut server, &front);
        assert!(matches!(error, Some(SessionError::PartialTooLong(4096))), "{error:?}");
        assert_eq!(count + 1, header_len);
        assert_eq!(server.wire.filled(), ALERT_DECODE_ERROR);
    }
    // The alert is encrypted where the moment wants it so.
    let (mut client, mut server) =
        answered(&world, world.client_config(&TLS13), Awaited::default());
    let (count, error) = taken(&mut server, &record(APPLICATION_DATA, 16_384, &[0; 5_000]));
    assert!(matches!(error, Some(SessionError::PartialTooLong(4096))), "{error:?}");
    assert_eq!(count + 1, 5);
    assert_eq!(alert(&mut client, &server), AlertDescription::DecodeError);
}

#[test]
fn a_handshake_keeps_four_kibibytes_of_short_records() {
    let world = World::new();
    let (_, mut server) = answered(&world, world.client_config(&TLS12), Awaited::default());
    // The header of the message comes in parts, so that it cannot be read at the front.
    let stream: Vec<u8> = [&[CLIENT_KEY_EXCHANGE, 0][..], &[0xff, 0xff], &[7; 60][..]]
        .into_iter()
        .chain(std::iter::repeat_n(&[7; 60][..], 200))
        .flat_map(|part| record(HANDSHAKE, u16::try_from(part.len()).unwrap(), part))
        .collect();
    let mut most = 0;
    let refused = stream.chunks(50).any(|piece| {
        let outcome = server.feed(piece);
        most = most.max(server.session.partial_len());
        outcome.is_err()
    });
    assert!(refused);
    assert!((3_000..=HANDSHAKE_PARTIAL_BYTES_MAX).contains(&most), "{most}");
}

#[test]
fn only_a_certificate_that_is_due_may_be_long() {
    let world = World::new();
    let certificate = [CERTIFICATE, 0, 0xff, 0xff];
    for (kind, due, kept) in
        [(CERTIFICATE, true, true), (CLIENT_KEY_EXCHANGE, true, false), (CERTIFICATE, false, false)]
    {
        let awaited = Awaited::new(due, false);
        let (_, mut server) = answered(&world, world.client_config(&TLS12), awaited);
        let message = [&[kind], &certificate[1..], &[0; 16_000]].concat();
        let (count, error) = taken(&mut server, &record(HANDSHAKE, 16_384, &message));
        assert_eq!(error.is_none(), kept, "{kind} {due} {count} {error:?}");
        if !kept {
            continue;
        }
        // rustls would take 65,535 bytes; a peer that begins the next message is stopped as well.
        let mut most = 0;
        server.feed(&[0; 16_384 - 16_004]).unwrap();
        let refused = (0..10).any(|_| {
            let outcome = server.feed(&record(HANDSHAKE, 16_384, &[0; 16_384]));
            most = most.max(server.session.partial_len());
            outcome.is_err()
        });
        assert!(refused && most <= PARTIAL_BYTES_MAX, "{most}");
    }
}

#[test]
fn data_that_comes_too_early_is_kept_by_the_record() {
    let world = World::new();
    let early = record(APPLICATION_DATA, 10_000, &[1; 9_000]);
    for offered in [true, false] {
        let awaited = Awaited::new(false, offered);
        let (_, mut server) = answered(&world, world.client_config(&TLS13), awaited);
        assert_eq!(taken(&mut server, &early).1.is_none(), offered);
    }
    // Only there, and only such a record.
    let awaited = Awaited::new(false, true);
    let message = [&[CLIENT_KEY_EXCHANGE, 0, 0xff, 0][..], &[0; 9_000]].concat();
    for (version, wanted) in [(&TLS12, early), (&TLS13, record(HANDSHAKE, 10_000, &message))] {
        let (_, mut server) = answered(&world, world.client_config(version), awaited);
        let (count, error) = taken(&mut server, &wanted);
        assert_eq!((count + 1, error.is_some()), (RECORD_HEADER_LEN, true), "{version:?}");
    }
}

/// A client that is asked for a second hello.
pub(crate) fn asked_again(world: &World) -> ClientConfig {
    let groups = [Group::Secp256r1, Group::X25519];
    let provider = lane_provider(ProviderChoice::AwsLc, &groups).unwrap().crypto;
    ClientConfig::builder_with_details(provider.into(), Arc::new(Stopped))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(world.roots.clone())
        .with_no_client_auth()
}

#[test]
fn what_lies_behind_a_hello_does_not_lengthen_the_second() {
    let world = World::new();
    let second = record(HANDSHAKE, 16_384, &[&[1, 0, 0xff, 0xff][..], &[0; 16_380]].concat());
    let mut client = client(&Arc::new(asked_again(&world)));
    let mut server = world.server();
    let both = [flight(&mut client), second.repeat(3)].concat();
    let error = server.feed(&both).unwrap_err();
    let SessionError::PartialTooLong(most) = error else { panic!("{error}") };
    // The first, a key share more, and both in records of one byte.
    assert!(most < HANDSHAKE_PARTIAL_BYTES_MAX + 6 * (1 << 11), "{most}");
}

#[test]
fn behind_the_second_hello_nothing_is_long_any_more() {
    let world = World::new();
    let (mut client, mut server) = answered(&world, asked_again(&world), Awaited::default());
    deliver(&mut client, server.wire.filled());
    server.feed(&flight(&mut client)).unwrap();
    let (_, error) = taken(&mut server, &record(APPLICATION_DATA, 16_384, &[0; 5_000]));
    assert!(matches!(error, Some(SessionError::PartialTooLong(4096))), "{error:?}");
}

/// rustls lets go of a certificate when the last record that it shares with others is whole: by
/// then it may have read and judged it.
#[test]
fn a_long_certificate_waits_with_what_comes_in_its_last_record() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, key).unwrap();
    let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
    let oid = [1, 3, 6, 1, 4, 1, 99_999, 1];
    params.custom_extensions.push(CustomExtension::from_oid_content(&oid, vec![4; 6_000]));
    let key = KeyPair::generate().unwrap();
    let own = params.signed_by(&key, &authority).unwrap().der().clone();
    let mut roots = RootCertStore::empty();
    roots.add(authority.der().clone()).unwrap();
    let provider = Arc::new(lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto);
    let roots = Arc::new(roots);
    let der = || PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    for (version, fragment_len) in (40..100).flat_map(|len| [(&TLS12, len), (&TLS13, len)]) {
        let config = subject::asking_config(version, &own, der(), authority.der());
        let clock = Arc::new(Stopped);
        let mut theirs = ClientConfig::builder_with_details(Arc::clone(&provider), clock)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(Arc::clone(&roots))
            .with_client_auth_cert(vec![own.clone()], der())
            .unwrap();
        theirs.max_fragment_size = Some(fragment_len);
        let name = ServerName::try_from("a.test").unwrap();
        let mut client = ClientConnection::new(Arc::new(theirs), name).unwrap();
        let session = ServerSession::new(config).unwrap();
        let mut server = Lent::to(session.awaiting(Awaited::new(true, false)));
        while !server.session.is_established() {
            for byte in flight(&mut client) {
                server.feed(&[byte]).unwrap();
            }
            deliver(&mut client, server.wire.filled());
            server.wire.clear();
        }
    }
}

#[test]
fn a_second_hello_may_be_as_long_as_the_first() {
    let world = World::new();
    let mut config = asked_again(&world);
    config.alpn_protocols = (0..30_u8).map(|number| vec![number; 200]).collect();
    let (mut client, mut server) = answered(&world, config, Awaited::default());
    deliver(&mut client, server.wire.filled());
    server.wire.clear();
    let second = flight(&mut client);
    assert!(second.len() > HANDSHAKE_PARTIAL_BYTES_MAX, "{}", second.len());
    assert_eq!(taken(&mut server, &second).1.map(|error| error.to_string()), None);
    deliver(&mut client, server.wire.filled());
    server.feed(&flight(&mut client)).unwrap();
    assert!(server.session.is_established());
}

#[test]
fn an_established_session_keeps_one_record() {
    let world = World::new();
    let mut most_of_all = 0;
    for (mut server, mut tx, mut rx) in established(&world) {
        // A KeyUpdate that goes on and on.
        let mut next: &[u8] = &[24, 0, 0xff, 0xff];
        let mut most = 0;
        let refused = (0..11).any(|_| {
            let record = tx.record(HANDSHAKE, std::mem::replace(&mut next, &[0; 4_000]));
            let outcome = server.feed(&record);
            most = most.max(server.session.partial_len());
            outcome.is_err()
        });
        assert!(refused && most <= ESTABLISHED_PARTIAL_BYTES_MAX, "{most}");
        let (kind, content, _) = rx.open(server.wire.filled());
        assert_eq!((kind, content), (21, vec![2, 50]), "decode_error, encrypted");
        most_of_all = most_of_all.max(most);
    }
    // A session that reads its own records keeps nothing of it.
    assert!(most_of_all > ESTABLISHED_PARTIAL_BYTES_MAX - 4_100, "{most_of_all}");
}

#[test]
fn records_that_only_lengthen_a_message_are_no_progress_and_few() {
    let world = World::new();
    for (mut server, mut tx, _) in established(&world) {
        let fed = server.feed(&tx.record(HANDSHAKE, &[24])).unwrap();
        assert!(!fed.records);
        let fed = server.feed(&tx.record(HANDSHAKE, &[0, 0, 1, 0])).unwrap();
        assert!(fed.records);
    }
    for (mut server, mut tx, _) in established(&world) {
        let data = tx.record(APPLICATION_DATA, b"data");
        assert!(!server.feed(&data[..9]).unwrap().records);
        assert!(server.feed(&data[9..]).unwrap().records);
    }
    // The certificate that is due, a byte in each record.
    let awaited = Awaited::new(true, false);
    let (_, mut server) = answered(&world, world.client_config(&TLS12), awaited);
    server.feed(&record(HANDSHAKE, 4, &[CERTIFICATE, 0, 0xff, 0xff])).unwrap();
    let records = (1..).find(|_| server.feed(&record(HANDSHAKE, 1, &[0])).is_err());
    assert_eq!(records, Some(2_048), "each is shown to rustls with all before it");
}
