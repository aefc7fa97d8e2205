//! Records against the library as it comes, which protects its own.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use rcgen::{KeyPair, RsaKeySize};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, RootCertStore, ServerConfig,
    ServerConnection, SupportedCipherSuite,
};

use super::*;
use crate::policy::Group;
use crate::provider::{ProviderChoice, lane_provider, with_last_word};

#[test]
fn every_suite_speaks_with_the_library_as_it_comes() {
    for choice in [ProviderChoice::AwsLc, ProviderChoice::Graviola] {
        let ours = lane_provider(choice, &Group::ALL).unwrap().crypto;
        assert_eq!(ours.cipher_suites.len(), aws_lc_rs::ALL_CIPHER_SUITES.len());
        for suite in &ours.cipher_suites {
            let ours = CryptoProvider { cipher_suites: vec![*suite], ..ours.clone() };
            let stock = stock(*suite);
            for (server, client) in [(&ours, &stock), (&stock, &ours)] {
                Pair::new(server, client).exchange();
            }
        }
    }
}

#[test]
fn a_record_that_was_changed_cut_or_moved_opens_for_nobody() {
    let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    for suite in &provider.cipher_suites {
        let sealed = Keys::of(*suite).seal(b"plain", 3);
        let opens = |bytes: &[u8], sequence| Keys::of(*suite).open(bytes, sequence);
        assert_eq!(opens(&sealed, 3).unwrap(), b"plain", "{suite:?}");
        assert_eq!(opens(&sealed, 4), Err(Error::DecryptError), "{suite:?}");
        for len in 0..sealed.len() {
            assert_eq!(opens(&sealed[..len], 3), Err(Error::DecryptError), "{suite:?} {len}");
            let mut changed = sealed.clone();
            changed[len] ^= 1;
            assert_eq!(opens(&changed, 3), Err(Error::DecryptError), "{suite:?} {len}");
        }
    }
}

#[test]
fn a_record_has_the_length_that_was_announced_and_a_bound() {
    let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    for suite in &provider.cipher_suites {
        for len in [0, 1, RECORD_PLAIN_MAX, RECORD_PLAIN_MAX + 1] {
            let keys = Keys::of(*suite);
            let announced = keys.encrypter.encrypted_payload_len(len);
            let sealed = Keys::of(*suite).seal(&vec![7; len], 0);
            assert_eq!(sealed.len(), announced, "{suite:?} {len}");
            let opened = Keys::of(*suite).open(&sealed, 0);
            match len > RECORD_PLAIN_MAX {
                false => assert_eq!(opened.unwrap(), vec![7; len], "{suite:?}"),
                true => assert_eq!(opened, Err(Error::PeerSentOversizedRecord), "{suite:?}"),
            }
        }
    }
}

#[test]
fn wrong_types_of_records_are_unexpected() {
    let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    for suite in &provider.cipher_suites {
        let refuses = |shown: ContentType, inner: ContentType, plain: &[u8]| {
            let sealed = Keys::of(*suite).seal_as(inner, plain, 0);
            matches!(
                Keys::of(*suite).open_as(shown, &sealed, 0),
                Err(Error::InappropriateMessage { .. })
            )
        };
        let is_tls13 = Keys::of(*suite).tls13;
        let (data, heartbeat) = (ContentType::ApplicationData, ContentType::Heartbeat);
        let shown = |inner| if is_tls13 { data } else { inner };
        assert!(refuses(shown(heartbeat), heartbeat, b"plain"), "{suite:?}");
        assert!(!refuses(data, data, b""), "{suite:?}");
        for kind in [ContentType::Alert, ContentType::Handshake] {
            assert!(!refuses(shown(kind), kind, &[11, 0, 0, 1, 0]), "{suite:?}");
            assert_eq!(refuses(shown(kind), kind, b""), is_tls13, "{suite:?}");
            assert_eq!(refuses(kind, kind, b"plain"), is_tls13, "{suite:?}");
        }
    }
}

#[test]
fn alerts_are_sealed_with_the_last_word() {
    let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
    for suite in &provider.cipher_suites {
        let why = AlertDescription::DecodeError;
        let sealed = |kind: ContentType| Keys::of(*suite).seal_as(kind, &[2, 22], 0);
        let shown = |kind| if Keys::of(*suite).tls13 { ContentType::ApplicationData } else { kind };
        for (kind, plain) in
            [(ContentType::Alert, [2, 50]), (ContentType::ApplicationData, [2, 22])]
        {
            let bytes = with_last_word(why, || sealed(kind));
            let opened = Keys::of(*suite).open_as(shown(kind), &bytes, 0).unwrap();
            assert_eq!(opened, plain, "{suite:?}");
        }
        let bytes = sealed(ContentType::Alert);
        let opened = Keys::of(*suite).open_as(shown(ContentType::Alert), &bytes, 0).unwrap();
        assert_eq!(opened, [2, 22], "{suite:?}");
    }
}

/// Both directions of one key, without a connection.
struct Keys {
    encrypter: Box<dyn MessageEncrypter>,
    decrypter: Box<dyn MessageDecrypter>,
    tls13: bool,
}

impl Keys {
    fn of(suite: SupportedCipherSuite) -> Self {
        let key = || AeadKey::from([5; 32]);
        match suite {
            SupportedCipherSuite::Tls13(suite) => Self {
                encrypter: suite.aead_alg.encrypter(key(), Iv::new([6; NONCE_LEN])),
                decrypter: suite.aead_alg.decrypter(key(), Iv::new([6; NONCE_LEN])),
                tls13: true,
            },
            SupportedCipherSuite::Tls12(suite) => {
                let shape = suite.aead_alg.key_block_shape();
                let iv = vec![6; shape.fixed_iv_len];
                let explicit = vec![7; shape.explicit_nonce_len];
                Self {
                    encrypter: suite.aead_alg.encrypter(key(), &iv, &explicit),
                    decrypter: suite.aead_alg.decrypter(key(), &iv),
                    tls13: false,
                }
            }
        }
    }

    /// A record's payload.
    fn seal(self, plain: &[u8], sequence: u64) -> Vec<u8> {
        self.seal_as(ContentType::ApplicationData, plain, sequence)
    }

    fn seal_as(mut self, typ: ContentType, plain: &[u8], sequence: u64) -> Vec<u8> {
        let message =
            OutboundPlainMessage { typ, version: ProtocolVersion::TLSv1_2, payload: plain.into() };
        let sealed = self.encrypter.encrypt(message, sequence).unwrap();
        assert_eq!(sealed.typ, if self.tls13 { ContentType::ApplicationData } else { typ });
        assert_eq!(sealed.version, ProtocolVersion::TLSv1_2);
        sealed.payload.as_ref().to_vec()
    }

    fn open(self, sealed: &[u8], sequence: u64) -> Result<Vec<u8>, Error> {
        self.open_as(ContentType::ApplicationData, sealed, sequence)
    }

    fn open_as(mut self, typ: ContentType, sealed: &[u8], sequence: u64) -> Result<Vec<u8>, Error> {
        let mut bytes = sealed.to_vec();
        let version = ProtocolVersion::TLSv1_2;
        let message = InboundOpaqueMessage::new(typ, version, &mut bytes);
        let opened = self.decrypter.decrypt(message, sequence)?;
        let tls13 = opened.version == ProtocolVersion::TLSv1_3;
        assert_eq!(tls13, self.tls13);
        Ok(opened.payload.to_vec())
    }
}

/// A connection in memory.
struct Pair {
    server: ServerConnection,
    client: ClientConnection,
}

impl Pair {
    fn new(server: &CryptoProvider, client: &CryptoProvider) -> Self {
        let suite = server.cipher_suites[0];
        let is_rsa = format!("{suite:?}").contains("_RSA_");
        let key = match is_rsa {
            true => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap(),
            false => KeyPair::generate().unwrap(),
        };
        let params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        let certificate = CertificateDer::clone(params.self_signed(&key).unwrap().der());
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let version = [suite.version()];
        let server = ServerConfig::builder_with_provider(Arc::new(server.clone()))
            .with_protocol_versions(&version)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(client.clone()))
            .with_protocol_versions(&version)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("a.test").unwrap();
        Self {
            server: ServerConnection::new(Arc::new(server)).unwrap(),
            client: ClientConnection::new(Arc::new(client), name).unwrap(),
        }
    }

    /// A handshake, several records each way, new keys if the version has such, and records again.
    fn exchange(mut self) {
        while self.server.is_handshaking() || self.client.is_handshaking() {
            self.carry();
        }
        let suite = self.server.negotiated_cipher_suite();
        for keys in 0..2 {
            for plain in [vec![1], vec![2; 3_000], vec![3; 40_000]] {
                self.client.writer().write_all(&plain).unwrap();
                self.server.writer().write_all(&plain).unwrap();
                let (at_server, at_client) = self.carry();
                assert!(at_server == plain && at_client == plain, "{suite:?} {keys}");
            }
            let renewed =
                self.client.refresh_traffic_keys().and(self.server.refresh_traffic_keys());
            assert_eq!(renewed.is_ok(), suite.unwrap().tls13().is_some());
        }
    }

    /// Carries all that both ends have to send. Returns the bytes that the server and the client
    /// got.
    fn carry(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        while self.client.wants_write() {
            self.client.write_tls(&mut to_server).unwrap();
        }
        while self.server.wants_write() {
            self.server.write_tls(&mut to_client).unwrap();
        }
        let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
        let mut unread = to_server.as_slice();
        while !unread.is_empty() {
            self.server.read_tls(&mut unread).unwrap();
            self.server.process_new_packets().unwrap();
            let _ = self.server.reader().read_to_end(&mut at_server);
        }
        let mut unread = to_client.as_slice();
        while !unread.is_empty() {
            self.client.read_tls(&mut unread).unwrap();
            self.client.process_new_packets().unwrap();
            let _ = self.client.reader().read_to_end(&mut at_client);
        }
        (at_server, at_client)
    }
}

/// The suite as AWS-LC protects it itself.
fn stock(suite: SupportedCipherSuite) -> CryptoProvider {
    let same = |other: &&SupportedCipherSuite| other.suite() == suite.suite();
    let stock = *aws_lc_rs::ALL_CIPHER_SUITES.iter().find(same).unwrap();
    CryptoProvider { cipher_suites: vec![stock], ..aws_lc_rs::default_provider() }
}
