//! Certificates that a stranger sends: how many are read, and which signatures are verified.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, CustomExtension, DnType, IsCa, KeyPair,
};
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, ServerName,
    SignatureVerificationAlgorithm, UnixTime,
};
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ClientConnection, ServerConfig};

use crate::certificates::{Linked, PARSED};
use crate::client::{ClientContexts, ClientOptions, Roots};
use crate::client_certificates::{ClientRoots, LaneVerifier};
use crate::peer_chain::{PEER_CERTIFICATES_MAX, PeerChain};
use crate::session::ServerSession;
use crate::session::tests::flight;
use crate::session::tests::lent::Lent;

/// Each row of the table is the costliest chain that was tried, and all of it is small.
#[test]
fn no_chain_costs_more_than_the_table_says() {
    let most = chain_cost(&ladder(), &client_verdict);
    for (name, chain) in hostile() {
        let cost = chain_cost(&chain, &client_verdict);
        assert!(cost.parsed <= PEER_CERTIFICATES_MAX, "{name}: {cost:?}");
        assert!(cost.searched <= most.searched, "{name}: {cost:?}");
        assert!(cost.verified <= most.verified, "{name}: {cost:?}");
        let behind = chain_cost(&chain, &server_verdict);
        assert_eq!((behind.parsed, behind.verified), (cost.parsed, cost.verified), "{name}");
        let shared = chain_cost(&chain, &shared_verdict);
        assert_eq!((shared.parsed, shared.verified), (cost.parsed, cost.verified), "{name}");
    }
}

/// The work of path building without bounds and line: the reason for both.
#[test]
fn without_a_line_the_same_chains_cost_what_they_once_did() {
    for (name, chain) in hostile() {
        let links: Vec<_> = chain.iter().filter_map(|der| Linked::parse(der).ok()).collect();
        let [own, others @ ..] = &links[..] else { panic!("{name}: no leaf") };
        let fillers = chain.len() - links.len();
        let searched = search(own.issuer, &mut Vec::new(), others, fillers);
        assert!(searched > 10_000, "{name}: {searched}");
    }
}

/// The work that a message with certificates caused.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Certificates that were read by our own code.
    pub(super) parsed: usize,
    /// Certificates that webpki reads while it looks for a path.
    pub(super) searched: usize,
    /// Signatures verified.
    pub(super) verified: usize,
}

/// Judges a chain with an authority's own verifier. The verdict does not matter.
type Judge = dyn Fn(&[CertificateDer<'_>]);

pub(super) fn chain_cost(chain: &[CertificateDer<'_>], judge: &Judge) -> Cost {
    PARSED.set(0);
    VERIFIED.set(0);
    judge(chain);
    let (parsed, verified) = (PARSED.get(), VERIFIED.get());
    let [own, others @ ..] = chain else { panic!("no leaf") };
    let searched = match PeerChain::parse(own, others) {
        Err(_) => 0,
        Ok(parsed) => {
            let line = parsed.line(&[], |_| false, now());
            // The leaf once, and the line at each depth.
            1 + search(Linked::parse(own).unwrap().issuer, &mut Vec::new(), &line, 0)
        }
    };
    Cost { parsed, searched, verified }
}

/// webpki's search by names, as version 0.103 has it: how many certificates it reads if no
/// signature is right. `fillers` are read at each depth and never fit.
fn search<'a>(
    issuer: &[u8],
    path: &mut Vec<&'a [u8]>,
    certificates: &'a [Linked<'_>],
    fillers: usize,
) -> usize {
    let mut read = certificates.len() + fillers;
    for certificate in certificates {
        if read > SEARCHED_MAX {
            return read;
        }
        let is_new = !path.contains(&certificate.der);
        if certificate.subject == issuer && is_new && path.len() < WEBPKI_DEPTH_MAX {
            path.push(certificate.der);
            read += search(certificate.issuer, path, certificates, fillers);
            path.pop();
        }
    }
    read
}

pub(super) fn client_verdict(chain: &[CertificateDer<'_>]) {
    let verifier = LaneVerifier::new(&client_roots(), true, &counting(), &Rc::default());
    let _ = verifier.verify_client_cert(&chain[0], &chain[1..], now());
}

/// The same by the verifier of servers that are not lanes.
fn shared_verdict(chain: &[CertificateDer<'_>]) {
    let verifier = client_roots().verifier(&counting());
    let _ = verifier.verify_client_cert(&chain[0], &chain[1..], now());
}

pub(super) fn resumed_verdict(chain: &[CertificateDer<'_>]) {
    let verifier = LaneVerifier::new(&client_roots(), false, &counting(), &Rc::default());
    verifier.standing(chain, Some(now()));
}

pub(super) fn server_verdict(chain: &[CertificateDer<'_>]) {
    let pem = anchors_pem();
    let options = ClientOptions::trusting(Roots::from_pem("ca", pem.as_bytes()).unwrap());
    let context = ClientContexts::new().context(&options).unwrap();
    let verifier = context.verifier(&counting());
    PARSED.set(0);
    let name = ServerName::try_from("a.test").unwrap();
    let _ = verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], now());
}

pub(super) fn certificate_verify() -> Cost {
    VERIFIED.set(0);
    let verifier = LaneVerifier::new(&client_roots(), false, &counting(), &Rc::default());
    let server = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(Arc::new(verifier));
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let der = || key.serialize_der().try_into().unwrap();
    let server = server.with_single_cert(vec![own.der().clone()], der()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(own.der().clone()).unwrap();
    let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![own.der().clone()], der())
        .unwrap();
    let name = ServerName::try_from("a.test").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = Lent::to(ServerSession::new(Arc::new(server)).unwrap());
    PARSED.set(0);
    while !server.session.is_established() {
        server.feed(&flight(&mut client)).unwrap();
        client.read_tls(&mut server.wire.filled()).unwrap();
        server.wire.clear();
        client.process_new_packets().unwrap();
    }
    // The parse is that of its Certificate, which has a separate row.
    assert_eq!(PARSED.get(), 1);
    Cost { verified: VERIFIED.get(), ..Cost::default() }
}

/// Chains that once cost most, with their names.
fn hostile() -> Vec<(&'static str, Vec<CertificateDer<'static>>)> {
    let same = |count| (0..count).map(|_| authority("rung 0", None)).collect::<Vec<_>>();
    let of = |authorities: &[Authority]| {
        let mut chain = vec![leaf(&authorities[0])];
        chain.extend(authorities.iter().map(|each| each.der().clone()));
        chain
    };
    let mut with_fillers = of(&same(10));
    with_fillers.extend((0..1_400).map(|_| CertificateDer::from(vec![0x30, 3, 2, 1, 0])));
    vec![
        ("ten of one name and fillers", with_fillers),
        ("eleven of one name", of(&same(11))),
        ("as many as are read, of one name", of(&same(PEER_CERTIFICATES_MAX - 1))),
    ]
}

/// The longest line there can be, of which each name is also that of a trusted authority.
pub(super) fn ladder() -> Vec<CertificateDer<'static>> {
    let names: Vec<_> = (0..PEER_CERTIFICATES_MAX).map(|rung| format!("rung {rung}")).collect();
    let mut chain = vec![leaf(&authority(&names[0], None))];
    for pair in names.windows(2) {
        let issuer = authority(&pair[1], None);
        chain.push(authority(&pair[0], Some(&issuer)).der().clone());
    }
    chain
}

/// More certificates, and more bytes, than are read.
pub(super) fn beyond() -> Vec<CertificateDer<'static>> {
    vec![CertificateDer::from(vec![0x30; 1_000]); 64]
}

pub(super) fn bytes(chain: &[CertificateDer<'_>]) -> usize {
    chain.iter().map(|der| der.len()).sum()
}

fn anchors_pem() -> String {
    let anchors = (0..PEER_CERTIFICATES_MAX).map(|rung| authority(&format!("rung {rung}"), None));
    anchors.map(|anchor| anchor.pem()).collect()
}

fn client_roots() -> ClientRoots {
    let roots = ClientRoots::from_pem(&[anchors_pem().as_bytes()], &[]).unwrap();
    PARSED.set(0);
    roots
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str, issuer: Option<&Authority>) -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate().unwrap();
    match issuer {
        Some(issuer) => CertifiedIssuer::signed_by(params, key, issuer).unwrap(),
        None => CertifiedIssuer::self_signed(params, key).unwrap(),
    }
}

fn leaf(issuer: &Authority) -> CertificateDer<'static> {
    let mut params = CertificateParams::new(["a.test".to_owned()]).unwrap();
    params
        .custom_extensions
        .push(CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], vec![4; 1_000]));
    params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
}

/// A provider that counts its verifications.
fn counting() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    let algorithms = provider.signature_verification_algorithms;
    let counted = |known: &[&'static dyn SignatureVerificationAlgorithm]| {
        let all = known.iter().map(|algorithm| -> &'static dyn SignatureVerificationAlgorithm {
            Box::leak(Box::new(CountedAlgorithm(*algorithm)))
        });
        &*Vec::leak(all.collect())
    };
    let mapping = algorithms.mapping.iter().map(|(scheme, known)| (*scheme, counted(known)));
    provider.signature_verification_algorithms = WebPkiSupportedAlgorithms {
        all: counted(algorithms.all),
        mapping: Vec::leak(mapping.collect()),
    };
    provider
}

#[derive(Debug)]
struct CountedAlgorithm(&'static dyn SignatureVerificationAlgorithm);

impl SignatureVerificationAlgorithm for CountedAlgorithm {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        VERIFIED.set(VERIFIED.get() + 1);
        self.0.verify_signature(key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }
}

thread_local! {
    static VERIFIED: Cell<usize> = const { Cell::new(0) };
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000))
}

/// The count at which a search that would not end is stopped.
const SEARCHED_MAX: usize = 100_000;
const WEBPKI_DEPTH_MAX: usize = 6;
