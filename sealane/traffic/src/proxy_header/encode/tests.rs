//! What is told of real handshakes, with clients that show certificates.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, RsaKeySize,
    SignatureAlgorithm,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sealane_engine::buffer::Buffer;
use sealane_engine::certificates::{DefaultCertificate, IndexBuilder};
use sealane_engine::client_certificates::{ClientRoots, ClientStanding};
use sealane_engine::context::{Context, ContextId, LaneContext, LaneResources};
use sealane_engine::hello::{Peek, peek};
use sealane_engine::policy::{ClientCertificates, Group, Policy};
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::session::Session as _;
use sealane_engine::tickets::{TicketRoot, UnixSeconds};

use super::*;

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A listener that asks for certificates, which `trusted` vouches for.
fn listener(own: &Authority, trusted: &Authority, key: &KeyPair) -> LaneContext {
    let leaf = CertificateParams::new(["a.test".to_owned()]).unwrap().signed_by(key, own).unwrap();
    let crypto = lane_provider(ProviderChoice::Auto, &Group::ALL).unwrap().crypto;
    let mut builder = IndexBuilder::new(&crypto, 1_800_000_000);
    builder.add("a", (leaf.pem() + &key.serialize_pem()).as_bytes());
    let indexed = builder.finish(DefaultCertificate::First);
    let roots = ClientRoots::from_pem(&[trusted.pem().as_bytes()], &[]).unwrap();
    let clients = ClientCertificates::Asked(Arc::new(roots));
    let context = Context {
        id: ContextId::fresh(),
        policy: Policy { clients, ..Policy::default() },
        certificates: Arc::new(indexed.index),
        key_log: false,
        store: None,
        provider: ProviderChoice::Auto,
        tickets: 2,
    };
    let root = TicketRoot::generate(Duration::from_secs(43_200), NOW, |b| b.fill(7)).unwrap();
    let lane = LaneResources::new(root, NOW, NonZeroUsize::MIN);
    LaneContext::new(&Arc::new(context), &lane).unwrap()
}

/// A client, and the DER of the certificate that it has from `issuer`.
fn client(
    own: &Authority,
    issuer: Option<&Authority>,
    version: &'static rustls::SupportedProtocolVersion,
) -> (Arc<ClientConfig>, Vec<u8>) {
    let mut roots = RootCertStore::empty();
    roots.add(own.der().clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let Some(issuer) = issuer else {
        return (Arc::new(builder.with_no_client_auth()), Vec::new());
    };
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "jane");
    let leaf = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = builder.with_client_auth_cert(vec![leaf.der().clone()], key).unwrap();
    (Arc::new(config), leaf.der().to_vec())
}

/// A whole handshake in memory, after which the client has its tickets.
fn shake(context: &LaneContext, config: &Arc<ClientConfig>) -> ServerSession {
    let mut client =
        ClientConnection::new(Arc::clone(config), "a.test".try_into().unwrap()).unwrap();
    let (mut plain, mut wire) = (Buffer::with_capacity(1 << 16), Buffer::with_capacity(1 << 18));
    let mut session = None;
    for _ in 0..8 {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        let session = session.get_or_insert_with(|| {
            let Peek::Hello(hello) = peek(&sent, 1 << 14) else { panic!("a whole hello") };
            ServerSession::new(context.admit(&hello).unwrap()).unwrap()
        });
        if !sent.is_empty() {
            session.feed(&mut sent, &mut plain, &mut wire).unwrap();
        }
        session.release_held(&mut wire);
        if !wire.is_empty() {
            client.read_tls(&mut wire.filled()).unwrap();
            wire.clear();
            client.process_new_packets().unwrap();
        }
    }
    session.filter(ServerSession::is_established).unwrap()
}

#[test]
fn a_client_is_told_by_its_certificate_and_by_what_that_is_worth() {
    let (own, trusted, other) = (authority(), authority(), authority());
    let context = listener(&own, &trusted, &KeyPair::generate().unwrap());
    let everything = Tlvs::these(&[Tlv::Cert, Tlv::Cn, Tlv::Ssl]);
    for version in [&TLS12, &TLS13] {
        for (issuer, is_verified) in [(Some(&trusted), true), (Some(&other), false), (None, false)]
        {
            let (config, der) = client(&own, issuer, version);
            for is_of_session_only in [false, true] {
                let session = shake(&context, &config);
                assert_eq!(session.resumed(), is_of_session_only);
                let standing = context.standing(&session);
                assert_eq!(standing == ClientStanding::Verified, is_verified);
                let expected = issuer.map(|_| ClientCertificate {
                    common_name: Some("jane"),
                    der: Some(&der),
                    is_of_session_only,
                    is_verified,
                });
                assert_eq!(tls(&session, is_verified, everything, None).client, expected);
                // What is not asked for is not told, but that there was one.
                let expected =
                    expected.map(|told| ClientCertificate { common_name: None, der: None, ..told });
                assert_eq!(tls(&session, is_verified, Tlvs::default(), None).client, expected);
            }
        }
    }
}

#[test]
fn the_certificate_that_was_served_is_told_also_when_a_session_is_resumed() {
    let kinds: [(&'static SignatureAlgorithm, _, _); 4] = [
        (&rcgen::PKCS_ECDSA_P256_SHA256, "EC256", "ecdsa_secp256r1_sha256"),
        (&rcgen::PKCS_ECDSA_P384_SHA384, "EC384", "ecdsa_secp384r1_sha384"),
        (&rcgen::PKCS_ED25519, "ED25519", "ed25519"),
        (&rcgen::PKCS_RSA_SHA256, "RSA2048", "rsa_pss_rsae_sha512"),
    ];
    let tlvs = Tlvs::these(&[Tlv::Key, Tlv::Scheme, Tlv::Sig, Tlv::Ssl]);
    for (kind, name, scheme) in kinds {
        let key = if kind == &rcgen::PKCS_RSA_SHA256 {
            KeyPair::generate_rsa_for(kind, RsaKeySize::_2048).unwrap()
        } else {
            KeyPair::generate_for(kind).unwrap()
        };
        let own = authority();
        let context = listener(&own, &own, &key);
        let (config, _) = client(&own, None, &TLS13);
        for resumed in [false, true] {
            let session = shake(&context, &config);
            assert_eq!(session.resumed(), resumed);
            assert_eq!(key_name(&session).as_deref(), Some(name));
            // The authority's key signs it, whatever its own is.
            let tls = tls(&session, false, tlvs, None);
            assert_eq!(tls.signature, Some("ecdsa-with-SHA256"));
            assert_eq!(tls.scheme, (!resumed).then_some(scheme));
        }
    }
}
