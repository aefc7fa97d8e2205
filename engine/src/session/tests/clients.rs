//! Our client against our server.

use rustls::AlertDescription;
use rustls::version::TLS12;

use super::lent::{carry, shake};
use super::*;
use crate::context::Refusal;

type Client = Lent<ClientSession>;

const VERSIONS: [(&SupportedProtocolVersion, &str); 2] = [(&TLS12, "TLSv1.2"), (&TLS13, "TLSv1.3")];

fn client_of(config: &Arc<subject::ClientSettings>, name: &'static str) -> Client {
    let name = ServerName::try_from(name).unwrap();
    Lent::to(ClientSession::new(Arc::clone(config), name).unwrap())
}

#[test]
fn every_byte_and_both_ends_arrive_in_pieces_of_any_size() {
    let world = World::new();
    for (version, name) in VERSIONS {
        for piece in [1, 2, 7, 100_000] {
            let config = Arc::new(subject::client_config(version, &world.roots, NOW));
            let (mut client, mut server) = (client_of(&config, "one.test"), world.server());
            shake(&mut client, &mut server, piece).unwrap();
            let request = vec![7; 2 * RECORD_PLAIN_MAX];
            assert_eq!(client.session.seal(&request, &mut client.wire).unwrap(), request.len());
            client.session.close(&mut client.wire).unwrap();
            assert!(carry(&mut client, &mut server, piece).unwrap().peer_closed);
            assert!(server.plain.filled() == request);
            // The first answer brings the tickets along.
            server.session.seal(b"answer", &mut server.wire).unwrap();
            server.session.close(&mut server.wire).unwrap();
            assert!(carry(&mut server, &mut client, piece).unwrap().peer_closed);
            assert_eq!(client.plain.filled(), b"answer");
            let (client, server) = (client.session, server.session);
            assert_eq!((client.version(), server.version()), (Some(name), Some(name)));
            assert_eq!((client.suite(), client.group()), (server.suite(), server.group()));
            assert_eq!(client.group(), Some("X25519"));
            assert_eq!((client.held_len(), client.partial_len(), client.alpn()), (0, 0, None));
            assert_eq!(client.peer_certificates().len(), 1);
            assert_eq!(server.peer_certificates().len(), 0);
        }
    }
}

#[test]
fn a_ticket_that_comes_bytewise_between_requests_resumes_the_next_session() {
    let world = World::new();
    for (version, _) in VERSIONS {
        let config = Arc::new(subject::client_config(version, &world.roots, NOW));
        for resumed in [false, true, true] {
            let (mut client, mut server) = (client_of(&config, "one.test"), world.server());
            shake(&mut client, &mut server, 1).unwrap();
            assert_eq!((client.session.resumed(), server.session.resumed()), (resumed, resumed));
            assert_eq!(client.session.peer_certificates().len(), 1, "also of a resumed session");
            server.session.seal(b"answer", &mut server.wire).unwrap();
            for byte in server.wire.filled() {
                client.feed(&[*byte]).unwrap();
                client.session.seal(b"x", &mut client.wire).unwrap();
            }
            assert_eq!(client.plain.filled(), b"answer");
            carry(&mut client, &mut server, 1_000).unwrap();
            assert_eq!(server.plain.len(), server.wire.len(), "one byte for each of the answer's");
        }
    }
}

#[test]
fn the_end_of_the_handshake_leaves_at_once() {
    let world = World::new();
    let config = Arc::new(subject::client_config(&TLS13, &world.roots, NOW));
    let (mut client, mut server) = (client_of(&config, "one.test"), world.server());
    client.feed(&[]).unwrap();
    carry(&mut client, &mut server, 100_000).unwrap();
    assert!(carry(&mut server, &mut client, 100_000).unwrap().established);
    assert!(!client.wire.is_empty() && client.session.held_len() == 0);
    assert!(carry(&mut client, &mut server, 100_000).unwrap().established);
}

/// Lets a client of `world` fail; returns its error and the alert that reached the server.
fn refusal(
    world: &World,
    config: subject::ClientSettings,
    name: &'static str,
) -> (String, AlertDescription) {
    let (mut client, mut server) = (client_of(&Arc::new(config), name), world.server());
    let error = shake(&mut client, &mut server, 1_000).unwrap_err();
    assert!(!client.session.is_established());
    match carry(&mut client, &mut server, 1).unwrap_err() {
        SessionError::Tls(faults::Error::AlertReceived(alert)) => {
            (error.to_string(), AlertDescription::from(u8::from(alert)))
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_refused_certificate_is_explained_and_the_server_gets_the_alert() {
    let world = World::new();
    for (version, _) in VERSIONS {
        let at = |seconds| subject::client_config(version, &world.roots, UnixSeconds(seconds));
        let trusting = |root: rcgen::CertificateParams| {
            let root = root.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
            let mut roots = RootCertStore::empty();
            roots.add(root.der().clone()).unwrap();
            subject::client_config(version, &roots, NOW)
        };
        let mut stranger = rcgen::CertificateParams::default();
        stranger.distinguished_name.push(rcgen::DnType::CommonName, "stranger");
        let namesake = rcgen::CertificateParams::default();
        let cases = [
            (
                at(NOW.0),
                "two.test",
                "it is not for two.test but for one.test; ask",
                AlertDescription::BadCertificate,
            ),
            (
                at(67_200_000_000),
                "one.test",
                "it, or the trusted root above it, expired 1271 days ago; renew that one",
                AlertDescription::CertificateExpired,
            ),
            (
                at(86_400),
                "one.test",
                "it is valid only in 1825 days; is this machine's clock",
                AlertDescription::CertificateExpired,
            ),
            (
                trusting(stranger),
                "one.test",
                "none of the trusted roots issued it;",
                AlertDescription::UnknownCA,
            ),
            (
                trusting(namesake),
                "one.test",
                "a signature is wrong: the trusted root",
                AlertDescription::DecryptError,
            ),
        ];
        for (config, name, expected, alert) in cases {
            let (error, received) = refusal(&world, config, name);
            let expected = format!("the peer's certificate is refused: {expected}");
            assert!(error.starts_with(&expected), "{error}");
            assert_eq!(received, alert, "{error}");
        }
    }
}

#[test]
fn the_servers_alert_is_named() {
    let world = World::new();
    let mut client =
        client_of(&Arc::new(subject::client_config(&TLS13, &world.roots, NOW)), "one.test");
    client.feed(&[]).unwrap();
    let error = client.feed(&Refusal::MissingExtension.alert()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the peer ended the session with the alert \"missing extension\"; its log may say why"
    );
}

#[test]
fn a_request_before_the_handshake_is_refused_even_amid_a_message() {
    let world = World::new();
    let mut client =
        client_of(&Arc::new(subject::client_config(&TLS13, &world.roots, NOW)), "one.test");
    // Nothing, and then the start of a ServerHello with the rest to follow in other records.
    for received in [&[][..], &[22, 3, 3, 0, 6, 2, 0, 0, 90, 3, 3]] {
        client.feed(received).unwrap();
        for _ in 0..2 {
            let sealed = client.session.seal(b"early", &mut client.wire);
            assert!(matches!(sealed, Err(SessionError::NotEstablished)));
        }
    }
    client.feed(&[22, 3, 3, 0, 1, 7]).unwrap();
    assert!(client.session.partial_len() > 0);
}

#[test]
fn an_endless_message_of_a_server_is_cut_off() {
    let world = World::new();
    let mut client =
        client_of(&Arc::new(subject::client_config(&TLS13, &world.roots, NOW)), "one.test");
    client.feed(&[]).unwrap();
    // The start of a ServerHello as long as rustls takes, and then one byte per record.
    client.feed(&[22, 3, 3, 0, 4, 2, 0, 0xff, 0xff]).unwrap();
    let outcome = (0..80_000).find_map(|_| client.feed(&[22, 3, 3, 0, 1, 0]).err());
    assert!(outcome.is_some(), "it goes on for ever");
    assert!(client.session.partial_len() <= PARTIAL_BYTES_MAX);
}
