//! Compares the cryptographic libraries behind rustls: CPU time per handshake, signature and byte.
//!
//! `cargo run --release -p sealane-engine --example providers` prints a table in microseconds of
//! CPU time of the measuring thread, median [least-most] over interleaved rounds. With
//! `-- PROVIDER CASE HANDSHAKES` it only does that many handshakes, for strace, perf and the like.
//! Every handshake is checked at both ends; a wrong suite, group or resumption ends it with an
//! error.

use std::env;
use std::error::Error;
use std::io::{self, Read, Write};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, RsaKeySize,
    SignatureAlgorithm,
};
use rustix::time::{ClockId, clock_gettime};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs, ring};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore,
    ServerConfig, ServerConnection, SignatureScheme,
};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.as_slice() {
        [] => compare(),
        [subject, case, handshakes] => repeat(subject, case, handshakes.parse()?),
        _ => Err("usage: providers [PROVIDER CASE HANDSHAKES]".into()),
    }
}

/// Prints the whole table.
fn compare() -> Result<()> {
    let subjects = subjects()?;
    let keys = Keys::generate()?;
    let mut out = io::stdout().lock();
    for case in &CASES {
        let pairs: Vec<_> = subjects
            .iter()
            .filter(|subject| subject.has(case.group))
            .map(|subject| Ok((subject.name, Pair::new(&subject.crypto, case, &keys)?)))
            .collect::<Result<_>>()?;
        let mut samples = vec![(Vec::new(), Vec::new()); pairs.len()];
        for _ in 0..ROUNDS {
            for ((_, pair), (server, client)) in pairs.iter().zip(&mut samples) {
                let spent = pair.handshakes(HANDSHAKES_PER_ROUND)?;
                server.push(spent.server_ns / 1e3 / f64::from(HANDSHAKES_PER_ROUND));
                client.push(spent.client_ns / 1e3 / f64::from(HANDSHAKES_PER_ROUND));
            }
        }
        for ((name, _), (server, client)) in pairs.iter().zip(samples) {
            let (server, client) = (spread(server), spread(client));
            writeln!(out, "{:<10} {name:<18} server {server}  client {client}", case.name)?;
        }
    }
    for (name, measure) in OPERATIONS {
        let mut samples = vec![Vec::new(); subjects.len()];
        for _ in 0..ROUNDS {
            for (subject, samples) in subjects.iter().zip(&mut samples) {
                samples.push(measure(&subject.crypto, &keys)?);
            }
        }
        for (subject, samples) in subjects.iter().zip(samples) {
            writeln!(out, "{name:<10} {:<18} each {}", subject.name, spread(samples))?;
        }
    }
    Ok(())
}

/// Does nothing but handshakes, so that an observer counts only them.
fn repeat(subject: &str, case: &str, handshakes: u32) -> Result<()> {
    let subject = subjects()?.into_iter().find(|s| s.name == subject).ok_or("no such provider")?;
    let case = CASES.iter().find(|c| c.name == case).ok_or("no such case")?;
    Pair::new(&subject.crypto, case, &Keys::generate()?)?.handshakes(handshakes)?;
    Ok(())
}

/// A provider under test.
struct Subject {
    name: &'static str,
    crypto: CryptoProvider,
}

impl Subject {
    fn has(&self, group: NamedGroup) -> bool {
        self.crypto.kx_groups.iter().any(|offered| offered.name() == group)
    }
}

/// The libraries unchanged, then with Sealane's additions.
fn subjects() -> Result<Vec<Subject>> {
    let lane_graviola = lane_provider(ProviderChoice::Graviola, &Group::ALL)?.crypto;
    let random_only = CryptoProvider {
        kx_groups: rustls_graviola::default_provider().kx_groups,
        ..lane_graviola.clone()
    };
    let lane_aws_lc = lane_provider(ProviderChoice::AwsLc, &Group::ALL)?.crypto;
    Ok(vec![
        Subject { name: "aws-lc-rs", crypto: aws_lc_rs::default_provider() },
        Subject { name: "lane-aws-lc", crypto: lane_aws_lc },
        Subject { name: "graviola", crypto: rustls_graviola::default_provider() },
        Subject { name: "graviola+random", crypto: random_only },
        Subject { name: "lane-graviola", crypto: lane_graviola },
        Subject { name: "ring", crypto: ring::default_provider() },
    ])
}

/// A kind of handshake.
struct Case {
    name: &'static str,
    rsa: bool,
    group: NamedGroup,
    resumed: bool,
}

const CASES: [Case; 4] = [
    Case { name: "ecdsa", rsa: false, group: NamedGroup::X25519, resumed: false },
    Case { name: "rsa", rsa: true, group: NamedGroup::X25519, resumed: false },
    Case { name: "hybrid", rsa: false, group: NamedGroup::X25519MLKEM768, resumed: false },
    Case { name: "resumed", rsa: false, group: NamedGroup::X25519, resumed: true },
];

/// Certificates for one name, shared by all subjects.
struct Keys {
    roots: Arc<RootCertStore>,
    ecdsa: (CertificateDer<'static>, PrivateKeyDer<'static>),
    rsa: (CertificateDer<'static>, PrivateKeyDer<'static>),
}

impl Keys {
    fn generate() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(params, key_pair(&rcgen::PKCS_ECDSA_P256_SHA256)?)?;
        let leaf = |key: KeyPair| -> Result<_> {
            let params = CertificateParams::new(vec![NAME.to_owned()])?;
            let certificate = params.signed_by(&key, &authority)?.der().clone();
            Ok((certificate, PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone())?;
        Ok(Self {
            roots: Arc::new(roots),
            ecdsa: leaf(key_pair(&rcgen::PKCS_ECDSA_P256_SHA256)?)?,
            rsa: leaf(KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048)?)?,
        })
    }

    fn of(&self, rsa: bool) -> &(CertificateDer<'static>, PrivateKeyDer<'static>) {
        if rsa { &self.rsa } else { &self.ecdsa }
    }
}

fn key_pair(algorithm: &'static SignatureAlgorithm) -> Result<KeyPair> {
    Ok(KeyPair::generate_for(algorithm)?)
}

/// A server and a client of one provider that agree on exactly one suite and group.
struct Pair<'a> {
    server: Arc<ServerConfig>,
    client: ClientConfig,
    case: &'a Case,
}

impl<'a> Pair<'a> {
    fn new(crypto: &CryptoProvider, case: &'a Case, keys: &Keys) -> Result<Self> {
        let mut crypto = crypto.clone();
        crypto.cipher_suites.retain(|suite| suite.suite() == SUITE);
        crypto.kx_groups.retain(|group| group.name() == case.group);
        let crypto = Arc::new(crypto);
        let (certificate, key) = keys.of(case.rsa);
        let server = ServerConfig::builder_with_provider(Arc::clone(&crypto))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.clone_key())?;
        let client = ClientConfig::builder_with_provider(crypto)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(Arc::clone(&keys.roots))
            .with_no_client_auth();
        let pair = Self { server: Arc::new(server), client, case };
        pair.handshakes(WARM_UP_HANDSHAKES)?;
        Ok(pair)
    }

    fn handshakes(&self, count: u32) -> Result<Spent> {
        let mut spent = Spent::default();
        let mut client = self.client_without_tickets();
        if self.case.resumed {
            connect(&self.server, &client, &mut Spent::default())?;
        }
        for _ in 0..count {
            let (server, client_end) = connect(&self.server, &client, &mut spent)?;
            self.check(&server, &client_end)?;
            if !self.case.resumed {
                client = self.client_without_tickets();
            }
        }
        Ok(spent)
    }

    /// A client that takes tickets, as real ones do, and has none yet.
    fn client_without_tickets(&self) -> Arc<ClientConfig> {
        let mut client = self.client.clone();
        client.resumption = Resumption::in_memory_sessions(1);
        Arc::new(client)
    }

    fn check(&self, server: &ServerConnection, client: &ClientConnection) -> Result<()> {
        let kind = if self.case.resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
        let seen = [
            (
                server.handshake_kind(),
                server.negotiated_cipher_suite(),
                server.negotiated_key_exchange_group(),
            ),
            (
                client.handshake_kind(),
                client.negotiated_cipher_suite(),
                client.negotiated_key_exchange_group(),
            ),
        ];
        for (seen_kind, suite, group) in seen {
            if seen_kind != Some(kind)
                || suite.map(|suite| suite.suite()) != Some(SUITE)
                || group.map(SupportedKxGroup::name) != Some(self.case.group)
            {
                return Err(format!("{seen_kind:?} {suite:?} {group:?}: not as asked").into());
            }
        }
        Ok(())
    }
}

/// CPU time of the thread, by side.
#[derive(Default)]
struct Spent {
    server_ns: f64,
    client_ns: f64,
}

fn connect(
    server: &Arc<ServerConfig>,
    client: &Arc<ClientConfig>,
    spent: &mut Spent,
) -> Result<(ServerConnection, ClientConnection)> {
    let mut wire = Vec::with_capacity(8192);
    let (mut client, ns) = timed(|| {
        let mut client = ClientConnection::new(Arc::clone(client), ServerName::try_from(NAME)?)?;
        client.write_tls(&mut wire)?;
        Ok(client)
    })?;
    spent.client_ns += ns;
    let (mut server, ns) = timed(|| {
        let mut server = ServerConnection::new(Arc::clone(server))?;
        take(&mut server, &mut wire)?;
        Ok(server)
    })?;
    spent.server_ns += ns;
    while client.is_handshaking() || server.is_handshaking() || !wire.is_empty() {
        spent.client_ns += timed(|| take(&mut client, &mut wire))?.1;
        spent.server_ns += timed(|| take(&mut server, &mut wire))?.1;
    }
    Ok((server, client))
}

/// Reads the peer's bytes and writes the answer in their place.
fn take<S>(
    end: &mut impl std::ops::DerefMut<Target = rustls::ConnectionCommon<S>>,
    wire: &mut Vec<u8>,
) -> Result<()> {
    let mut unread = wire.as_slice();
    while !unread.is_empty() {
        end.read_tls(&mut unread)?;
        end.process_new_packets()?;
    }
    wire.clear();
    while end.wants_write() {
        end.write_tls(wire)?;
    }
    Ok(())
}

type Operation = fn(&CryptoProvider, &Keys) -> Result<f64>;

const OPERATIONS: [(&str, Operation); 4] = [
    ("sign ecdsa", |crypto, keys| {
        sign(crypto, keys.of(false), SignatureScheme::ECDSA_NISTP256_SHA256)
    }),
    ("sign rsa", |crypto, keys| sign(crypto, keys.of(true), SignatureScheme::RSA_PSS_SHA256)),
    ("seal 16K", |crypto, keys| Ok(records(crypto, keys)?.server_ns)),
    ("open 16K", |crypto, keys| Ok(records(crypto, keys)?.client_ns)),
];

/// Microseconds per signature.
fn sign(
    crypto: &CryptoProvider,
    (_, key): &(CertificateDer<'static>, PrivateKeyDer<'static>),
    scheme: SignatureScheme,
) -> Result<f64> {
    let key = crypto.key_provider.load_private_key(key.clone_key())?;
    let signer = key.choose_scheme(&[scheme]).ok_or("the key does not sign so")?;
    let (_, ns) = timed(|| {
        for _ in 0..SIGNATURES_PER_ROUND {
            signer.sign(&[7; 130])?;
        }
        Ok(())
    })?;
    Ok(ns / 1e3 / f64::from(SIGNATURES_PER_ROUND))
}

/// Microseconds per full record that a server seals and a client opens, rustls's copies included.
fn records(crypto: &CryptoProvider, keys: &Keys) -> Result<Spent> {
    let pair = Pair::new(crypto, &CASES[0], keys)?;
    let client = pair.client_without_tickets();
    let (mut server, mut client) = connect(&pair.server, &client, &mut Spent::default())?;
    let (sent, mut received, mut wire) = ([0x5a; RECORD_BYTES], [0; RECORD_BYTES], Vec::new());
    let mut spent = Spent::default();
    for _ in 0..RECORDS_PER_ROUND {
        wire.clear();
        let (_, ns) = timed(|| {
            server.writer().write_all(&sent)?;
            while server.wants_write() {
                server.write_tls(&mut wire)?;
            }
            Ok(())
        })?;
        spent.server_ns += ns / 1e3 / f64::from(RECORDS_PER_ROUND);
        let (_, ns) = timed(|| {
            let mut unread = wire.as_slice();
            while !unread.is_empty() {
                client.read_tls(&mut unread)?;
                client.process_new_packets()?;
            }
            Ok(client.reader().read_exact(&mut received)?)
        })?;
        spent.client_ns += ns / 1e3 / f64::from(RECORDS_PER_ROUND);
        if received != sent {
            return Err("a record came out different".into());
        }
    }
    Ok(spent)
}

/// Runs `work` and returns its result and the CPU nanoseconds that it took.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let before = clock_gettime(ClockId::ThreadCPUTime);
    let done = work()?;
    let after = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = (after.tv_sec - before.tv_sec) as f64;
    Ok((done, seconds * 1e9 + (after.tv_nsec - before.tv_nsec) as f64))
}

fn spread(mut samples: Vec<f64>) -> String {
    samples.sort_by(f64::total_cmp);
    let (least, most) = (samples[0], samples[samples.len() - 1]);
    format!("{:7.2} [{least:.2}-{most:.2}]", samples[samples.len() / 2])
}

const NAME: &str = "sealane.example";
const SUITE: CipherSuite = CipherSuite::TLS13_AES_128_GCM_SHA256;
const ROUNDS: usize = 15;
const HANDSHAKES_PER_ROUND: u32 = 200;
const WARM_UP_HANDSHAKES: u32 = 20;
const SIGNATURES_PER_ROUND: u32 = 50;
const RECORDS_PER_ROUND: u32 = 500;
const RECORD_BYTES: usize = 16384;
