//! Who is let in: Sealane and HAProxy, with the same authorities and lists, about the same chains.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, ExtendedKeyUsagePurpose as Purpose,
    GeneralSubtree, IsCa, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P384_SHA384,
    PKCS_RSA_SHA256, RsaKeySize, SanType, date_time_ymd,
};
use sealane_reserved_port::ReservedPort;

use super::authority::{ClientAuthority, Shown};
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::peers;
use crate::harness::process::Process;
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::{output, required, run_with_input};

/// A chain, and what becomes of it.
struct Case {
    name: &'static str,
    shown: Shown,
    is_admitted: bool,
    /// Why HAProxy says the opposite, if it does.
    differs: Option<&'static str>,
}

fn case(name: &'static str, shown: Shown, is_admitted: bool) -> Case {
    Case { name, shown, is_admitted, differs: None }
}

fn differing(name: &'static str, shown: Shown, is_admitted: bool, why: &'static str) -> Case {
    Case { name, shown, is_admitted, differs: Some(why) }
}

#[test]
fn sealane_and_haproxy_let_the_same_clients_in() {
    let (Some(haproxy), Some(_)) = (required("haproxy"), required("openssl")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let servers = Authority::new();
    let site = at.join("site.pem");
    std::fs::write(&site, servers.leaf(KeyKind::P256, &NAMES)).unwrap();
    servers.write(at);
    let backend = Backend::start(|mut stream| {
        let mut bytes = [0; 64];
        let len = stream.read(&mut bytes).unwrap_or(0);
        let _ = stream.write_all(&bytes[..len]);
    });
    let root = ClientAuthority::root(at, "root");
    let pinned = self_signed();
    std::fs::write(at.join("roots.pem"), root.pem() + &pinned.chain[0]).unwrap();
    let (unlisted, listed, lists) =
        (without_lists(at, &root, &pinned), Listed::of(&root, &pinned), at.join("lists.pem"));
    std::fs::write(&lists, listed.lists).unwrap();
    let demand = format!(
        "[listener.clients]\ncertificates = \"required\"\nroots = [{:?}]\n",
        at.join("roots.pem")
    );
    let with_lists = format!("{demand}crls = [{lists:?}]\n");
    let listeners = [("unlisted", &demand), ("listed", &with_lists)]
        .map(|(name, more)| ListenerSettings::new(name, &site, &backend.address).with(more));
    let ours = listeners.each_ref().map(|listener| listener.address);
    let _sealane = Sealane::start(at, &Settings::new(listeners.into()));
    let theirs = Haproxy::start(&haproxy, at, &backend);
    let (mut told, mut differing, mut compared) = (String::new(), 0, 0);
    for (index, cases) in [unlisted, listed.cases].into_iter().enumerate() {
        for (number, case) in cases.into_iter().enumerate() {
            let version = ["-tls1_2", "-tls1_3"][number % 2];
            let files = case.shown.write(at, "client");
            let [our, their] = [ours[index], theirs.ports[index].address()]
                .map(|address| is_admitted(at, &files, address, version));
            let expected = [case.is_admitted, case.is_admitted ^ case.differs.is_some()];
            if [our, their] != expected {
                told += &format!("{}: {our} {their}, not {expected:?}\n", case.name);
            }
            differing += usize::from(case.differs.is_some());
            compared += 1;
        }
    }
    assert_eq!(told, "");
    assert_eq!((compared, differing), (COMPARED, DIFFERING));
}

const COMPARED: usize = 51;
const DIFFERING: usize = 5;

/// Whether a client of OpenSSL's gets an answer.
fn is_admitted(at: &Path, files: &[PathBuf; 3], address: SocketAddr, version: &str) -> bool {
    let [own, chain, key] = files;
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", version, "-servername", "sealane.test", "-connect"]);
    client.arg(address.to_string()).arg("-CAfile").arg(at.join("ca.pem"));
    client.arg("-cert").arg(own).arg("-key").arg(key);
    if std::fs::metadata(chain).unwrap().len() > 0 {
        client.arg("-cert_chain").arg(chain);
    }
    let answer = run_with_input(&mut client, b"hello\n");
    answer.stdout == b"hello\n"
}

fn self_signed() -> Shown {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "pinned");
    let own = params.self_signed(&key).unwrap();
    Shown { chain: vec![own.pem()], key: key.serialize_pem() }
}

fn without_lists(at: &Path, root: &ClientAuthority, pinned: &Shown) -> Vec<Case> {
    let first = root.below("first", |_| ());
    let second = first.below("second", |_| ());
    let strangers = ClientAuthority::root(at, "strangers");
    let plain = |authority: &ClientAuthority| authority.issue(1, |_| ());
    let mut cases = vec![
        case("of the root", plain(root), true),
        case("with its issuer", plain(&first).with(&[&first]), true),
        case("without its issuer", plain(&first), false),
        case("with two issuers", plain(&second).with(&[&second, &first]), true),
        case("with two issuers out of order", plain(&second).with(&[&first, &second]), true),
        case("with the nearer issuer alone", plain(&second).with(&[&second]), false),
        case("with the root", plain(&first).with(&[&first, root]), true),
        case("with its issuer twice", plain(&first).with(&[&first, &first]), true),
        case("with a stranger's", plain(&first).with(&[&first, &strangers]), true),
        case("of strangers", plain(&strangers), false),
        case("of strangers, with their root", plain(&strangers).with(&[&strangers]), false),
        case("of another of the root's name", plain(&ClientAuthority::root(at, "root")), false),
        case("self-signed", self_signed(), false),
        case("self-signed and trusted", pinned.clone(), true),
        differing(
            "of version 1",
            root.issue_version_1(),
            false,
            "it cannot say what it is for, and OpenSSL takes it for everything",
        ),
    ];
    cases.extend(leaves(root));
    cases.extend(issuers(root));
    cases
}

/// What a client's own certificate may say.
fn leaves(root: &ClientAuthority) -> Vec<Case> {
    let leaf = |change: fn(&mut CertificateParams)| root.issue(2, change);
    let purposes =
        |purposes: &[Purpose]| root.issue(3, |leaf| leaf.extended_key_usages = purposes.to_vec());
    let unknown = |is_critical| {
        root.issue(4, |leaf| {
            let oid = [1, 3, 6, 1, 4, 1, 99_999, 1];
            let mut extension = CustomExtension::from_oid_content(&oid, vec![5, 0]);
            extension.set_criticality(is_critical);
            leaf.custom_extensions = vec![extension];
        })
    };
    let of_key = |key: KeyPair| root.issue_for(5, &key, |_| ());
    vec![
        case("expired", leaf(|leaf| leaf.not_after = date_time_ymd(2020, 1, 1)), false),
        case("not valid yet", leaf(|leaf| leaf.not_before = date_time_ymd(2090, 1, 1)), false),
        case("for servers", purposes(&[Purpose::ServerAuth]), false),
        case("for both", purposes(&[Purpose::ServerAuth, Purpose::ClientAuth]), true),
        case("for mail", purposes(&[Purpose::EmailProtection]), false),
        case("for any purpose", purposes(&[Purpose::Any]), false),
        case("for no purpose in particular", purposes(&[]), true),
        differing(
            "whose key may not sign",
            leaf(|leaf| leaf.key_usages = vec![KeyUsagePurpose::KeyEncipherment]),
            true,
            "webpki does not look at keyUsage; the client has signed all the same",
        ),
        differing(
            "an authority's",
            leaf(|leaf| leaf.is_ca = IsCa::Ca(BasicConstraints::Unconstrained)),
            false,
            "webpki takes no authority's certificate for a client's, unless it is trusted itself",
        ),
        case("with an unknown extension", unknown(false), true),
        case("with an unknown critical extension", unknown(true), false),
        case(
            "without a subject",
            leaf(|leaf| {
                leaf.distinguished_name = rcgen::DistinguishedName::new();
                leaf.subject_alt_names = vec![SanType::DnsName("a.test".try_into().unwrap())];
            }),
            true,
        ),
        case("of Ed25519", of_key(ed25519()), true),
        case("of P-384", of_key(KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap()), true),
        case(
            "of RSA",
            of_key(KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap()),
            true,
        ),
    ]
}

/// A key as OpenSSL writes it: it does not read rcgen's, which have the public half in them.
fn ed25519() -> KeyPair {
    let made = output(Command::new("openssl").args(["genpkey", "-algorithm", "ed25519"]));
    KeyPair::from_pem(&made).unwrap()
}

/// What the certificate of its issuer may say.
fn issuers(root: &ClientAuthority) -> Vec<Case> {
    let below = |change: fn(&mut CertificateParams)| {
        let issuer = root.below("changed", change);
        issuer.issue(6, |_| ()).with(&[&issuer])
    };
    let constrained = |name: &str| {
        let issuer = root.below("constrained", |issuer| {
            issuer.name_constraints = Some(NameConstraints {
                permitted_subtrees: vec![GeneralSubtree::DnsName("a.test".into())],
                excluded_subtrees: Vec::new(),
            });
        });
        let names = vec![SanType::DnsName(name.try_into().unwrap())];
        issuer.issue(7, |leaf| leaf.subject_alt_names = names).with(&[&issuer])
    };
    let last = root.below("last", |each| each.is_ca = IsCa::Ca(BasicConstraints::Constrained(0)));
    let beyond = last.below("beyond", |_| ());
    let mut line = vec![root.below("line 0", |_| ())];
    for number in 1..7 {
        line.push(line[number - 1].below(&format!("line {number}"), |_| ()));
    }
    let line: Vec<&ClientAuthority> = line.iter().rev().collect();
    vec![
        case("expired issuer", below(|ca| ca.not_after = date_time_ymd(2020, 1, 1)), false),
        case("issuer not valid yet", below(|ca| ca.not_before = date_time_ymd(2090, 1, 1)), false),
        case("issuer that is none", below(|ca| ca.is_ca = IsCa::ExplicitNoCa), false),
        case("issuer that does not say", below(|ca| ca.is_ca = IsCa::NoCa), false),
        differing(
            "issuer whose key may not sign certificates",
            below(|ca| ca.key_usages = vec![KeyUsagePurpose::CrlSign]),
            true,
            "webpki does not look at keyUsage; basicConstraints say that it is an authority",
        ),
        case(
            "issuer for servers",
            below(|ca| ca.extended_key_usages = vec![Purpose::ServerAuth]),
            false,
        ),
        case(
            "issuer for clients",
            below(|ca| ca.extended_key_usages = vec![Purpose::ClientAuth]),
            true,
        ),
        case("within the path length", last.issue(8, |_| ()).with(&[&last]), true),
        case("beyond the path length", beyond.issue(8, |_| ()).with(&[&beyond, &last]), false),
        case("a permitted name", constrained("b.a.test"), true),
        case("a name that is not permitted", constrained("b.test"), false),
        differing(
            "seven issuers",
            line[0].issue(9, |_| ()).with(&line),
            false,
            "at most seven certificates are read, so that no chain holds a lane",
        ),
    ]
}

/// Chains to be held against lists.
struct Listed {
    cases: Vec<Case>,
    lists: String,
}

impl Listed {
    fn of(root: &ClientAuthority, pinned: &Shown) -> Self {
        let [good, revoked, silent, forged] = [10_u64, 11, 12, 13].map(|serial| {
            root.below(&format!("below {serial}"), |below| {
                below.serial_number = Some(rcgen::SerialNumber::from(serial));
            })
        });
        let forger = root.below("below 13", |_| ());
        let lists = [
            root.list(&[revoked_serial(), 11]),
            good.list(&[revoked_serial()]),
            revoked.list(&[]),
            forger.list(&[]),
        ];
        let of = |issuer: &ClientAuthority, serial| issuer.issue(serial, |_| ()).with(&[issuer]);
        let cases = vec![
            case("listed nowhere, of the root", root.issue(20, |_| ()), true),
            case("revoked, of the root", root.issue(revoked_serial(), |_| ()), false),
            case("listed nowhere", of(&good, 20), true),
            case("revoked", of(&good, revoked_serial()), false),
            case("whose number another issuer revoked", of(&good, 11), true),
            case("of a revoked issuer", of(&revoked, 20), false),
            case("of an issuer without a list", of(&silent, 20), false),
            case("of an issuer whose list somebody else signed", of(&forged, 20), false),
            case("self-signed and trusted, with lists", pinned.clone(), false),
        ];
        Self { cases, lists: lists.concat() }
    }
}

fn revoked_serial() -> u64 {
    4_711
}

/// HAProxy in front of the same backend: without lists, and with them.
struct Haproxy {
    ports: [ReservedPort; 2],
    _process: Process,
}

impl Haproxy {
    fn start(program: &Path, at: &Path, backend: &Backend) -> Self {
        let ports = [(); 2].map(|()| ReservedPort::on_loopback().unwrap());
        let config = at.join("haproxy.cfg");
        let site = at.join("site.pem");
        let (site, roots, lists) = (site.display(), at.join("roots.pem"), at.join("lists.pem"));
        let (roots, lists) = (roots.display(), lists.display());
        let text = format!(
            "defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
             frontend unlisted\n bind {} ssl crt {site} ca-file {roots} verify required\n \
             default_backend b\n\
             frontend listed\n bind {} ssl crt {site} ca-file {roots} crl-file {lists} verify \
             required\n default_backend b\n\
             backend b\n server s {}\n",
            ports[0].address(),
            ports[1].address(),
            backend.address
        );
        let listened: Vec<_> = ports.iter().collect();
        let process = peers::haproxy(program, &config, &text, &listened);
        Self { ports, _process: process }
    }
}
