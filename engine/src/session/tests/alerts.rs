//! Which alert a failing server sends, where rustls sends none.

use rustls::AlertDescription;
use rustls::version::TLS13;

use super::*;
use crate::alert;

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

#[test]
fn nothing_is_said_in_the_clear_once_keys_are_there() {
    let world = World::new();
    let mut client = client(&Arc::new(world.client_config(&TLS13)));
    let mut server = world.server();
    server.feed(&flight(&mut client)).unwrap();
    server.wire.clear();
    // More than rustls takes. It ends the session with one sealed alert, or without a word.
    server.feed(&[20, 3, 3, 0, 1, 1].repeat(3)).unwrap_err();
    let wire = server.wire.filled();
    assert!(wire.is_empty() || wire[0] == 23 && wire.len() == 24, "{wire:?}");
}

#[test]
fn a_client_that_can_check_no_signature_of_the_key_is_told_so() {
    let world = World::new();
    let hellos = [
        include_str!("../../../../testdata/hellos/openssl-tls12.hex"),
        include_str!("../../../../testdata/hellos/openssl-tls13.hex"),
    ];
    for (hex, is_tls13) in hellos.into_iter().zip([false, true]) {
        let mut hello = from_hex(hex);
        // signature_algorithms with 40 bytes of them; the certificate's key is on P-256.
        let at = hello.windows(6).position(|six| six == [0, 13, 0, 0x2a, 0, 0x28]).unwrap() + 6;
        for scheme in hello[at..at + 40].chunks_exact_mut(2) {
            scheme.copy_from_slice(&[5, 3]);
        }
        let mut server = world.server();
        let error = server.feed(&hello).unwrap_err();
        if is_tls13 && subject::SPEAKS_BEFORE_IT_SIGNS {
            // Under keys.
            let wire = server.wire.filled();
            assert_eq!(wire[wire.len() - 24], 23, "{error}");
        } else {
            let expected = alert::fatal(AlertDescription::HandshakeFailure);
            assert_eq!(server.wire.filled(), expected, "{error}");
        }
        assert!(error.to_string().contains("in common"), "{error}");
    }
}
