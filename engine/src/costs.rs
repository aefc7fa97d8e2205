//! What each message of a stranger costs at most, counted: COSTS.md holds the same numbers.

use std::cell::Cell;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
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
use rustls::server::ProducesTickets;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, ClientConnection, ServerConfig};

use crate::certificates::{DefaultCertificate, IndexBuilder, Linked, PARSED};
use crate::client::{ClientContexts, ClientOptions, Roots};
use crate::client_certificates::{ClientRoots, LaneVerifier};
use crate::context::{Context, LaneContext, LaneResources};
use crate::hello::{self, Fault, Hello, Peek};
use crate::peer_chain::{PEER_CERTIFICATES_MAX, PEER_CHAIN_BYTES_MAX, PeerChain};
use crate::policy::{Group, Policy};
use crate::provider::ProviderChoice;
use crate::session::tests::lent::Lent;
use crate::session::{PARTIAL_BYTES_MAX, ServerSession, Session};
use crate::tickets::{LaneClock, TICKET_BYTES_MAX, TicketRoot, UnixSeconds};

/// The document is what the counts say, row by row.
#[test]
fn the_document_has_the_counts() {
    let mut wrong = String::new();
    for row in rows() {
        let cells = [
            row.sent.to_string(),
            row.cost.parsed.to_string(),
            row.cost.searched.to_string(),
            row.cost.verified.to_string(),
            row.cost.opened.to_string(),
            row.cost.held.to_string(),
        ];
        let line = format!("| {} | {} |", row.message, cells.join(" | "));
        if !DOCUMENT.lines().any(|known| known == line) {
            let _ = writeln!(wrong, "{line}");
        }
    }
    assert_eq!(wrong, "", "COSTS.md has other numbers; these were counted");
    let counted = rows().len();
    let told = DOCUMENT.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    assert_eq!(told.take_while(|line| line.starts_with('|')).count(), counted);
}

/// What stands in the table is the costliest of what was tried, and all of it is small.
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
    }
}

/// What path building would have gone through without bounds and line: the reason for both.
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

/// One message, at its largest.
struct Row {
    message: &'static str,
    sent: usize,
    cost: Cost,
}

/// What a message brought about.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    /// Certificates that were read by our own code.
    parsed: usize,
    /// Certificates that webpki reads while it looks for a path.
    searched: usize,
    /// Signatures verified.
    verified: usize,
    /// Tickets that were given to a key to open.
    opened: usize,
    /// Bytes that stay until the message is complete.
    held: usize,
}

fn rows() -> Vec<Row> {
    let ladder = ladder();
    let bytes = |chain: &[CertificateDer<'_>]| chain.iter().map(|der| der.len()).sum::<usize>();
    let largest = PEER_CHAIN_BYTES_MAX;
    assert!(bytes(&ladder) <= TICKET_BYTES_MAX);
    let beyond = vec![CertificateDer::from(vec![0x30; 1_000]); 64];
    let (hello, tickets) = tickets_offered();
    let (unfinished, held) = unfinished();
    let (updates, updating) = key_updates();
    vec![
        Row { message: "junk instead of a hello", sent: 1, cost: junk() },
        Row {
            message: "ClientHello with as many tickets as fit",
            sent: hello,
            cost: Cost { opened: tickets, ..Cost::default() },
        },
        Row {
            message: "client's Certificate",
            sent: largest,
            cost: chain_cost(&ladder, &client_verdict),
        },
        Row {
            message: "client's Certificate, beyond the limits",
            sent: bytes(&beyond),
            cost: chain_cost(&beyond, &client_verdict),
        },
        Row {
            message: "client's certificates in a ticket that resumes",
            sent: TICKET_BYTES_MAX,
            cost: chain_cost(&ladder, &resumed_verdict),
        },
        Row { message: "client's CertificateVerify", sent: 512, cost: certificate_verify() },
        Row {
            message: "backend's Certificate",
            sent: largest,
            cost: chain_cost(&ladder, &server_verdict),
        },
        Row {
            message: "handshake message that never ends",
            sent: unfinished,
            cost: Cost { held, ..Cost::default() },
        },
        Row {
            message: "16 KeyUpdates that each ask for one back",
            sent: updates,
            cost: Cost { held: updating, ..Cost::default() },
        },
    ]
}

/// Judges a chain with what an authority's verifier is made of; the verdict does not matter.
type Judge = dyn Fn(&[CertificateDer<'_>]);

fn chain_cost(chain: &[CertificateDer<'_>], judge: &Judge) -> Cost {
    PARSED.set(0);
    VERIFIED.set(0);
    judge(chain);
    let (parsed, verified) = (PARSED.get(), VERIFIED.get());
    let [own, others @ ..] = chain else { panic!("no leaf") };
    let searched = match PeerChain::parse(own, others) {
        Err(_) => 0,
        Ok(parsed) => {
            let line = parsed.line(&[], |_| false, now());
            let line: Vec<_> = line.iter().map(|der| Linked::parse(der).unwrap()).collect();
            // The leaf once, and the line at each depth.
            1 + search(Linked::parse(own).unwrap().issuer, &mut Vec::new(), &line, 0)
        }
    };
    Cost { parsed, searched, verified, ..Cost::default() }
}

/// webpki's search by names, as version 0.103 has it: how many certificates it reads if no
/// signature is right. `fillers` are read at each depth and fit nowhere.
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

fn client_verdict(chain: &[CertificateDer<'_>]) {
    let verifier = LaneVerifier::new(&client_roots(), true, &counting());
    let _ = verifier.verify_client_cert(&chain[0], &chain[1..], now());
}

fn resumed_verdict(chain: &[CertificateDer<'_>]) {
    let verifier = LaneVerifier::new(&client_roots(), false, &counting());
    verifier.standing(chain, Some(now()));
}

fn server_verdict(chain: &[CertificateDer<'_>]) {
    let pem = anchors_pem();
    let options = ClientOptions::trusting(Roots::from_pem("ca", pem.as_bytes()).unwrap());
    let context = ClientContexts::new().context(&options).unwrap();
    let verifier = context.verifier(&counting());
    PARSED.set(0);
    let name = ServerName::try_from("a.test").unwrap();
    let _ = verifier.verify_server_cert(&chain[0], &chain[1..], &name, &[], now());
}

fn certificate_verify() -> Cost {
    VERIFIED.set(0);
    let verifier = LaneVerifier::new(&client_roots(), false, &counting());
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
    // The parse is that of its Certificate, which stands in a row of its own.
    assert_eq!(PARSED.get(), 1);
    Cost { verified: VERIFIED.get(), ..Cost::default() }
}

/// What is no TLS is known by its first byte.
fn junk() -> Cost {
    assert_eq!(hello::peek(&[0x5a], HELLO_BYTES), Peek::Refused(Fault::NotTls));
    Cost::default()
}

/// Bytes of a hello that is full of tickets, and how many of them a key tried to open.
fn tickets_offered() -> (usize, usize) {
    let (context, config) = world();
    let name = ServerName::try_from("a.test").unwrap();
    let mut client = ClientConnection::new(config, name).unwrap();
    let hello = full_of_tickets(&flight(&mut client));
    assert!(matches!(hello::peek(&hello, HELLO_BYTES), Peek::Hello(_)));
    let mut config = ServerConfig::clone(&context.admit(&Hello::default()).unwrap());
    let inner = Arc::clone(&config.ticketer);
    config.ticketer = Arc::new(Counted { inner });
    let mut server = Lent::to(ServerSession::new(Arc::new(config)).unwrap());
    OPENED.set(0);
    let _ = server.feed(&hello);
    (hello.len(), OPENED.get())
}

/// A hello of [`HELLO_BYTES`] with tickets that have a ticket's form, made of a sound hello.
fn full_of_tickets(sound: &[u8]) -> Vec<u8> {
    let mut body = sound[9..].to_vec();
    // version, random, session id, suites, compressions; then the extensions' length.
    let mut at = 2 + 32;
    at += 1 + usize::from(body[at]);
    at += 2 + usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
    at += 1 + usize::from(body[at]);
    // Record and message headers, the extension's header and its two lengths.
    let each = (2 + TICKET_BYTES + 4) + (1 + BINDER_BYTES);
    let count = (HELLO_BYTES - 5 - 4 - body.len() - 4 - 4) / each;
    let len = |len: usize| u16::try_from(len).unwrap().to_be_bytes();
    let mut identities = Vec::new();
    let mut binders = Vec::new();
    for _ in 0..count {
        identities.extend(len(TICKET_BYTES));
        identities.extend([0; TICKET_BYTES + 4]);
        binders.push(u8::try_from(BINDER_BYTES).unwrap());
        binders.extend([0; BINDER_BYTES]);
    }
    let offer = [&len(identities.len())[..], &identities, &len(binders.len()), &binders].concat();
    let extension = [&[0, 41][..], &len(offer.len()), &offer].concat();
    let extensions = usize::from(u16::from_be_bytes([body[at], body[at + 1]])) + extension.len();
    body[at..at + 2].copy_from_slice(&len(extensions));
    body.extend(extension);
    let message = [&[1, 0][..], &len(body.len()), &body].concat();
    [&[22, 3, 1][..], &len(message.len()), &message].concat()
}

/// Bytes of a message that announces more than ever comes, and how many of them a session keeps.
fn unfinished() -> (usize, usize) {
    let (context, _) = world();
    let config = context.admit(&Hello::default()).unwrap();
    let mut server = Lent::to(ServerSession::new(config).unwrap());
    let (mut sent, mut held) = (0, 0);
    let mut message = vec![1, 0, 0xff, 0xff];
    message.resize(1 << 14, 0);
    for _ in 0..8 {
        let mut record = vec![22, 3, 1, 0x40, 0];
        record.append(&mut message);
        if server.feed(&record).is_err() {
            assert!(held <= PARTIAL_BYTES_MAX);
            return (sent, held);
        }
        sent += record.len();
        held = held.max(server.session.partial_len());
        message.resize(1 << 14, 0);
    }
    panic!("it took all of it");
}

/// Bytes of 16 KeyUpdates, and what is held behind them; they are answered once.
fn key_updates() -> (usize, usize) {
    let (context, config) = world();
    let name = ServerName::try_from("a.test").unwrap();
    let mut client = ClientConnection::new(config, name).unwrap();
    let mut server =
        Lent::to(ServerSession::new(context.admit(&Hello::default()).unwrap()).unwrap());
    while !server.session.is_established() {
        server.feed(&flight(&mut client)).unwrap();
        client.read_tls(&mut server.wire.filled()).unwrap();
        server.wire.clear();
        client.process_new_packets().unwrap();
    }
    server.session.release_held(&mut server.wire);
    server.wire.clear();
    for _ in 0..16 {
        client.refresh_traffic_keys().unwrap();
    }
    let updates = flight(&mut client);
    server.feed(&updates).unwrap();
    server.session.seal(b"", &mut server.wire).unwrap();
    assert!(server.wire.len() <= KEY_UPDATE_BYTES, "{} bytes of answer", server.wire.len());
    (updates.len(), server.session.partial_len())
}

/// Chains that once cost most, by what they are.
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
fn ladder() -> Vec<CertificateDer<'static>> {
    let names: Vec<_> = (0..PEER_CERTIFICATES_MAX).map(|rung| format!("rung {rung}")).collect();
    let mut chain = vec![leaf(&authority(&names[0], None))];
    for pair in names.windows(2) {
        let issuer = authority(&pair[1], None);
        chain.push(authority(&pair[0], Some(&issuer)).der().clone());
    }
    chain
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

fn flight(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

/// A listener's context, and a client of TLS 1.3 that has no ticket for it.
fn world() -> (LaneContext, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["a.test".to_owned()]).unwrap();
    let mut trusted = rustls::RootCertStore::empty();
    trusted.add(made.cert.der().clone()).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let provider = aws_lc_rs::default_provider();
    let mut builder = IndexBuilder::new(&provider, 0);
    builder.add("a", pem.as_bytes());
    let certificates = Arc::new(builder.finish(DefaultCertificate::First).index);
    let root = TicketRoot::generate(Duration::from_secs(3_600), NOW, |bytes| bytes.fill(3));
    let lane = LaneResources::new(root.unwrap(), NOW, NonZeroUsize::MIN);
    let policy = Policy { groups: vec![Group::X25519], ..Policy::default() };
    let context = Context {
        policy,
        certificates,
        key_log: false,
        store: None,
        provider: ProviderChoice::AwsLc,
        tickets: 2,
    };
    let context = LaneContext::new(&Arc::new(context), &lane).unwrap();
    let config = ClientConfig::builder_with_details(provider.into(), Arc::new(LaneClock::new(NOW)))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(trusted)
        .with_no_client_auth();
    (context, Arc::new(config))
}

/// A provider whose verifications are counted.
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

/// Opens as ever, and counts.
#[derive(Debug)]
struct Counted {
    inner: Arc<dyn ProducesTickets>,
}

impl ProducesTickets for Counted {
    fn enabled(&self) -> bool {
        self.inner.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.inner.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.inner.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        OPENED.set(OPENED.get() + 1);
        self.inner.decrypt(cipher)
    }
}

thread_local! {
    static OPENED: Cell<usize> = const { Cell::new(0) };
    static VERIFIED: Cell<usize> = const { Cell::new(0) };
}

fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(NOW.0))
}

const BINDER_BYTES: usize = 32;
const DOCUMENT: &str = include_str!("../COSTS.md");
/// What a listener takes of a hello unless it is told otherwise.
const HELLO_BYTES: usize = 1 << 14;
/// One as a record: header, message, content type and tag.
const KEY_UPDATE_BYTES: usize = 5 + 5 + 1 + 16;
const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
/// Where the count of a search that would not end ends.
const SEARCHED_MAX: usize = 100_000;
/// The shortest that has the form of a ticket: epoch, nonce and tag.
const TICKET_BYTES: usize = 8 + 24 + 16;
const WEBPKI_DEPTH_MAX: usize = 6;
