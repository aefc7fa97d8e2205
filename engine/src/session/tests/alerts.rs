//! The alerts that a failing server sends, where rustls sends none.

use rustls::AlertDescription;
use rustls::version::TLS13;

use super::*;
use crate::alert;
use crate::hello::{Peek, peek};

fn fails_with(server: &mut Server, bytes: &[u8], description: AlertDescription) {
    server.wire.clear();
    let error = server.feed(bytes).unwrap_err();
    assert_eq!(server.wire.filled(), alert::fatal(description), "{error}");
}

#[test]
fn what_rustls_refuses_in_silence_is_answered_in_the_clear() {
    let world = World::new();
    let start_of_hello = [22, 3, 1, 0, 5, 1, 0, 2, 0, 3];
    let interleaved = [&start_of_hello[..], &[20, 3, 3, 0, 1, 1]].concat();
    for (bytes, description) in [
        (&[22, 3, 1, 0, 4, 1, 1, 0, 0][..], AlertDescription::DecodeError),
        (&interleaved, subject::INTERLEAVED),
    ] {
        fails_with(&mut world.server(), bytes, description);
    }
}

#[test]
fn change_cipher_specs_without_end_are_answered_in_the_clear_before_keys_are_there() {
    let world = World::new();
    // Asked for another share, a client has not got keys either.
    let provider = lane_provider(ProviderChoice::AwsLc, &[Group::Secp256r1, Group::X25519]);
    let mut config = ClientConfig::builder_with_provider(provider.unwrap().crypto.into())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(world.roots.clone())
        .with_no_client_auth();
    config.enable_sni = true;
    let mut client = client(&Arc::new(config));
    let mut server = world.server();
    server.feed(&flight(&mut client)).unwrap();
    let retry_request_and_ccs = server.wire.len();
    assert!(retry_request_and_ccs > 0);
    let many = [20, 3, 3, 0, 1, 1].repeat(3);
    fails_with(&mut server, &many, AlertDescription::UnexpectedMessage);
}

/// The alert that `client` finds in `wire`.
fn alert_in(client: &mut ClientConnection, mut wire: &[u8]) -> rustls::Error {
    loop {
        client.read_tls(&mut wire).unwrap();
        if let Err(error) = client.process_new_packets() {
            assert!(wire.is_empty(), "more than one alert");
            return error;
        }
        assert!(!wire.is_empty(), "no alert came");
    }
}

#[test]
fn faults_under_keys_bring_one_sealed_alert() {
    let world = World::new();
    let plain_finished = [&[22, 3, 3, 0, 36, 20, 0, 0, 32][..], &[7; 32]].concat();
    let plain_alert = [21, 3, 3, 0, 3, 1, 0, 0].to_vec();
    // More than rustls takes.
    let many = [20, 3, 3, 0, 1, 1].repeat(3);
    for bytes in [plain_finished, plain_alert, many] {
        let mut client = client(&Arc::new(world.client_config(&TLS13)));
        let mut server = world.server();
        server.feed(&flight(&mut client)).unwrap();
        deliver(&mut client, server.wire.filled());
        server.wire.clear();
        let error = server.feed(&bytes).unwrap_err();
        assert_eq!(server.wire.filled()[0], 23, "{error}");
        let expected = rustls::Error::AlertReceived(AlertDescription::UnexpectedMessage);
        assert_eq!(alert_in(&mut client, server.wire.filled()), expected, "{error}");
    }
}

#[test]
fn wrong_records_in_the_clear_are_unexpected() {
    let world = World::new();
    let long_ccs = [20, 3, 3, 0, 2, 1, 1];
    let heartbeat = [24, 3, 3, 0, 3, 1, 0, 0];
    for bytes in [&long_ccs[..], &heartbeat] {
        let mut client = client(&Arc::new(world.client_config(&rustls::version::TLS12)));
        let mut server = world.server();
        server.feed(&flight(&mut client)).unwrap();
        fails_with(&mut server, bytes, AlertDescription::UnexpectedMessage);
    }
}

#[test]
fn a_client_that_can_check_no_signature_of_the_key_is_told_so() {
    let world = World::new();
    let hellos = [
        include_str!("../../../../testdata/hellos/openssl-tls12.hex"),
        include_str!("../../../../testdata/hellos/openssl-tls13.hex"),
    ];
    for hex in hellos {
        let mut hello = from_hex(hex);
        // signature_algorithms with 40 bytes of them; the certificate's key is on P-256.
        let at = hello.windows(6).position(|six| six == [0, 13, 0, 0x2a, 0, 0x28]).unwrap() + 6;
        for scheme in hello[at..at + 40].chunks_exact_mut(2) {
            scheme.copy_from_slice(&[5, 3]);
        }
        let Peek::Hello(first) = peek(&hello, PARTIAL_BYTES_MAX) else { panic!("a whole hello") };
        let config = world.context.admit(&first).unwrap();
        let mut server = Lent::to(ServerSession::new(config).unwrap());
        let error = server.feed(&hello).unwrap_err();
        let expected = alert::fatal(AlertDescription::HandshakeFailure);
        assert_eq!(server.wire.filled(), expected, "{error}");
        assert!(error.to_string().contains("in common"), "{error}");
    }
}
