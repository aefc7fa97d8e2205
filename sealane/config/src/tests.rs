//! Whole configurations: in order, contradicting themselves, and random text.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use sealane_engine::client_certificates::{ClientName, ClientRules};
use sealane_engine::policy::{AlpnMismatch, Group, Scheme, Suite, UnknownNames, Versions};
use sealane_lanes::liveness::{KeepAlive, Liveness};
use sealane_lanes::timeouts::Timeouts;

use super::network::network;
use super::*;

mod mistakes;
mod reference;
mod routes;

fn parse(text: &str) -> Result<Config, Mistakes> {
    Config::parse(Path::new("/etc/sealane/sealane.toml"), text)
}

const LISTENER: &str = "[[listener]]\naddress = \"127.0.0.1:443\"\ncertificates = [\"certs\"]\n\
                        backends = [\"localhost:80\"]\n";

#[test]
fn the_least_that_can_be_written() {
    let config = parse(LISTENER).unwrap();
    let expected = Config {
        access_log: None,
        log: Log::default(),
        admin: Admin::default(),
        crypto: ProviderChoice::Auto,
        included: Vec::new(),
        lanes: std::thread::available_parallelism().unwrap(),
        limits: Limits::default(),
        listeners: vec![Listener {
            name: "127.0.0.1:443".into(),
            acme_responder: None,
            accept_proxy: None,
            addresses: vec![Address::Tcp("127.0.0.1:443".parse().unwrap())],
            socket_mode: 0o660,
            certificates: vec![CertificateSource::Path("/etc/sealane/certs".into())],
            store: None,
            default_certificate: None,
            on_demand: false,
            policy: Policy::default(),
            clients: None,
            destination: Destination {
                backends: vec![(
                    BackendAddress::Host { name: "localhost".into(), port: 80 },
                    Share::default(),
                )],
                backend_tls: None,
                balance: Balance::RoundRobin,
                proxy_header: ProxyHeader::Off,
            },
            check: None,
            resolve: RESOLVE_DEFAULT,
            passthrough: false,
            routes: Vec::new(),
            spoken: Spoken::Tls,
            limits: ListenerLimits::default(),
        }],
        pin_lanes: false,
        process: Process::default(),
        store_key: None,
        tickets: Tickets::default(),
        watch: true,
    };
    assert_eq!(config, expected);
}

#[test]
fn stores_stand_beside_files() {
    let text = LISTENER.replace("certs\"", "certs\", \"store:kept\"");
    let config = parse(&format!("store_key = {{ command = [\"a\", \"b\"] }}\n{text}")).unwrap();
    assert_eq!(config.listeners[0].store, Some("/etc/sealane/kept".into()));
    let files = vec![CertificateSource::Path("/etc/sealane/certs".into())];
    assert_eq!(config.listeners[0].certificates, files);
    assert_eq!(config.store_key, Some(KeySource::Command(vec!["a".into(), "b".into()])));
}

#[test]
fn names_on_demand_go_to_the_store_of_the_listeners_that_have_them() {
    let listener = |port: &str, store: &str, on_demand: bool| {
        let text = LISTENER.replace("443", port).replace("certs", store);
        format!("{text}on_demand = {on_demand}\n")
    };
    let folder = |listeners: &[String]| {
        let text = "store_key = { file = \"key\" }\n".to_owned() + &listeners.concat();
        parse(&text).unwrap().on_demand_store().map(Path::to_owned)
    };
    let first = listener("443", "store:one", false);
    assert_eq!(folder(std::slice::from_ref(&first)), None);
    let both = [listener("444", "store:two", true), listener("445", "store:two", true)];
    assert_eq!(folder(&[&[first], &both[..]].concat()), Some("/etc/sealane/two".into()));
    // Its socket fits just so.
    let longest = format!("/{}", "x".repeat(95));
    let of_longest = listener("443", &format!("store:{longest}"), true);
    assert_eq!(folder(&[of_longest]), Some(longest.into()));
}

#[test]
fn clients_that_are_asked_for_nothing_get_no_rules_and_others_get_the_defaults() {
    let clients = |keys: &str| {
        let config = parse(&format!("{LISTENER}[listener.clients]\n{keys}"));
        config.map(|config| config.listeners[0].clients.clone())
    };
    assert_eq!(clients("").unwrap(), None);
    assert_eq!(clients("certificates = \"off\"\nroots = [\"a\"]\n").unwrap(), None);
    let asked = clients("certificates = \"asked\"\nroots = [\"a\"]\n").unwrap().unwrap();
    let day = Some(Duration::from_secs(86_400));
    let rules = ClientRules { proof_age_max: day, ..ClientRules::default() };
    let (crls, roots) = (Vec::new(), vec!["/etc/sealane/a".into()]);
    assert_eq!(
        asked,
        ClientTrust { allow_other_names: false, crls, demand: ClientDemand::Asked, roots, rules }
    );
    for (keys, said) in [
        (
            "certificates = \"required\"",
            "clients.roots: is missing from [listener[0].clients]; add",
        ),
        (
            "certificates = \"asked\"\nroots = [\"a\"]\nnames = [\"CN:a\"]",
            "clients.names: everybody is let in where certificates are only asked for; remove it",
        ),
        (
            "certificates = \"asked\"\nroots = [\"a\"]\ncut_revoked = true",
            "clients.cut_revoked: everybody is let in",
        ),
        ("roots = []", "clients.roots: the list is empty"),
        ("names = [\"URI:s://a/*/b\"]", "has a * elsewhere than behind its last /; write one such"),
        ("names = [\"DNS:*.*.a\"]", "is not a host name"),
        ("names = [\"CN:\"]", "is not a name of a client; write \"DNS:NAME\""),
        ("proof_age_max = \"8d\"", "is out of range; choose \"1m\" to \"7d\""),
    ] {
        let mistakes = clients(keys).unwrap_err().to_string();
        assert!(mistakes.contains(said), "{keys}: {mistakes}");
    }
}

/// Every key, with a value that is not its default.
const EVERY_KEY: &str = r#"
watch = false
lanes = 3
pin_lanes = true
crypto = "aws-lc"
[admin]
address = "0.0.0.0:9180"
allow_remote = true
hosts = ["Metrics.example.com"]
socket = "admin.sock"
socket_mode = "0660"
[access_log]
path = "access.log"
buffer = "8KiB"
health_checks = true
ja4 = true
only = "failures"
[tickets]
lifetime = "1h"
root = "/srv/root"
count = 0
[limits]
backend_timeout = "4s"
certificates = 10
client_timeout = "5s"
connect_timeout = "1s"
connection_age = "1d"
connections = 99
connections_per_lane = 50
decoded_keys_per_lane = 7
drain_delay = "2m"
drain_timeout = "0s"
half_closed_timeout = "6s"
handshake_timeout = "2s"
handshakes_in_flight = 12
health_delay = "7s"
hello_bytes = "8KiB"
idle_timeout = "3s"
listeners = 9
names = 11
proxy_timeout = "5s"
unfinished_bytes_per_lane = "2MiB"
[[listener]]
name = "web"
addresses = ["0.0.0.0:443", "[::]:443", "unix:/run/tls.sock"]
socket_mode = "0600"
certificates = ["/a.pem", { chain = "x.crt", key = "x.key" }]
default_certificate = "WWW.example.com"
groups = ["X25519", "secp256r1"]
versions = ["1.3"]
suites = ["TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"]
schemes = ["ed25519"]
alpn = ["h2", "http/1.1"]
backends = [
  { address = "10.0.0.1:80", weight = 10, connections = 500 },
  { address = "unix:/run/app.sock", backup = true },
]
balance = "least-connections"
resolve = "90s"
proxy_header = "pass"
proxy_tlvs = ["crc32c", "ssl", "cn"]
accept_proxy = "required"
proxy_from = ["10.0.0.0/8", "::/0", "unix"]
allow_anybody_to_claim_an_address = true
proxy_pass_tlvs = [0xEA]
allow = ["10.0.0.0/8", "file:allow.txt"]
backend_timeout = "off"
client_timeout = "7s"
connections = 33
connections_per_client = 8
deny = ["10.9.0.0/16"]
half_closed_timeout = "8s"
handshake_timeout = "9s"
handshakes_per_client = "20/s"
idle_timeout = "10s"
keepalive = { idle = "11s", every = "12s", count = 13 }
user_timeout = "14s"
alpn_mismatch = "none"
[listener.check]
kind = { send = "PING\r\n", expect = "+PONG" }
every = "1s"
timeout = "200ms"
rise = 4
fall = 5
slow_start = "1m"
[[listener.route]]
names = ["API.example.com", "*.api.example.com"]
versions = ["1.2", "1.3"]
suites = ["ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"]
[[listener.route]]
names = ["api.example.com"]
alpn = ["h2"]
backends = ["10.0.0.2:80"]
balance = "least-connections"
[[listener.route]]
names = ["mail.example.com"]
passthrough = true
backends = ["10.0.0.3:443"]
proxy_header = true
[listener.clients]
certificates = "required"
roots = ["clients.pem"]
crls = ["crls"]
names = ["CN:batch", "DNS:*.SVC.example", "URI:spiffe://prod/*"]
on_expired_crl = "accept"
cut_revoked = true
proof_age_max = "1m"
[[listener]]
address = "0.0.0.0:446"
passthrough = true
steer = "client"
backends = ["10.0.0.3:443"]
[[listener]]
address = "0.0.0.0:80"
plain = "redirect"
acme_responder = "challenges"
[[listener]]
address = "0.0.0.0:6379"
plain = "relay"
allow_remote = true
backends = ["tls://a.test:6380"]
[[listener]]
address = "0.0.0.0:5432"
starttls = "postgres"
certificates = ["a"]
backends = ["a.test:1"]
[[listener]]
address = "0.0.0.0:444"
certificates = ["a"]
unknown_names = "refuse"
versions = ["1.3", "1.2"]
backends = ["[::1]:80"]
"#;

#[test]
fn every_key_has_an_effect() {
    let config = parse(EVERY_KEY).unwrap();
    assert_eq!((config.lanes.get(), config.pin_lanes, config.watch), (3, true, false));
    assert_eq!(config.crypto, ProviderChoice::AwsLc);
    let socket = AdminSocket { path: "/etc/sealane/admin.sock".into(), mode: 0o660 };
    let expected = Admin {
        address: Some("0.0.0.0:9180".parse().unwrap()),
        hosts: vec!["metrics.example.com".into()],
        socket: Some(socket),
    };
    assert_eq!(config.admin, expected);
    let destination = AccessLogDestination::File("/etc/sealane/access.log".into());
    assert_eq!(
        config.access_log,
        Some(AccessLog {
            destination,
            buffer_bytes: 8192,
            health_checks: true,
            ja4: true,
            only: LoggedEnds::Failures,
        })
    );
    let root = Some(RootPlace::File("/srv/root".into()));
    let expected = Tickets { count: 0, lifetime: Duration::from_secs(3600), root };
    assert_eq!(config.tickets, expected);
    let s = Duration::from_secs;
    let expected = Limits {
        certificates_max: 10,
        connect_timeout: s(1),
        connection_age_max: Some(s(86_400)),
        connections_max: 99,
        connections_per_lane_max: Some(50),
        decoded_keys_per_lane_max: 7,
        drain_delay: s(120),
        drain_timeout: s(0),
        handshakes_max: 12,
        health_delay: s(7),
        hello_bytes_max: 8192,
        listeners_max: 9,
        names_max: 11,
        proxy_timeout: s(5),
        timeouts: Timeouts {
            backend: Some(s(4)),
            client: Some(s(5)),
            half_closed: s(6),
            handshake: s(2),
            idle: s(3),
        },
        unfinished_bytes_per_lane_max: 2 << 20,
    };
    assert_eq!(config.limits, expected);
}

#[test]
fn every_key_of_a_listener_has_an_effect() {
    let config = parse(EVERY_KEY).unwrap();
    let [web, .., other] = config.listeners.as_slice() else { panic!("{config:?}") };
    assert_eq!(web.name, "web");
    assert_eq!(web.addresses.len(), 3);
    assert_eq!(web.addresses[2], Address::Unix("/run/tls.sock".into()));
    assert_eq!((web.socket_mode, other.socket_mode), (0o600, 0o660));
    assert_eq!(web.certificates.len(), 2);
    let chain = "/etc/sealane/x.crt".into();
    let key = "/etc/sealane/x.key".into();
    assert_eq!(web.certificates[1], CertificateSource::Pair { chain, key });
    assert_eq!(web.default_certificate.as_deref(), Some("www.example.com"));
    assert_eq!(web.policy.groups, [Group::X25519, Group::Secp256r1]);
    assert_eq!(web.policy.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    assert_eq!(web.policy.versions, Versions::Tls13);
    let suites = [Suite::Tls13Chacha20Poly1305Sha256, Suite::Tls13Aes128GcmSha256];
    assert_eq!((&*web.policy.suites, &*web.policy.schemes), (&suites[..], &[Scheme::Ed25519][..]));
    assert_eq!(web.destination.balance, Balance::LeastConnections);
    let shares: Vec<_> = web.destination.backends.iter().map(|(_, share)| *share).collect();
    let first = Share { connections_max: NonZeroUsize::new(500), is_backup: false, weight: 10 };
    assert_eq!(shares, [first, Share { is_backup: true, ..Share::default() }]);
    let check = Check {
        every: Duration::from_secs(1),
        fall: 5,
        kind: CheckKind::Ask { send: b"PING\r\n".into(), expect: b"+PONG".into() },
        rise: 4,
        slow_start: Duration::from_secs(60),
        timeout: Duration::from_millis(200),
    };
    assert_eq!((&web.check, &other.check), (&Some(check), &None));
    let every = [web, other].map(|listener| listener.resolve);
    assert_eq!(every, [Some(Duration::from_secs(90)), RESOLVE_DEFAULT]);
    let tlvs = Tlvs::these(&[Tlv::Cn, Tlv::Crc32c, Tlv::Ssl]);
    assert_eq!(web.destination.proxy_header, ProxyHeader::Pass(tlvs));
    let accepts = web.accept_proxy.as_ref().unwrap();
    assert!(accepts.believes("10.1.2.3".parse().ok()) && accepts.believes(None));
    assert!(accepts.believes("::1".parse().ok()) && !accepts.believes("11.0.0.1".parse().ok()));
    assert_eq!((&*accepts.passed_values, &other.accept_proxy), (&[0xea][..], &None));
    assert_eq!(web.limits, limits_of_web());
    let expected = ListenerLimits { timeouts: config.limits.timeouts, ..ListenerLimits::default() };
    assert_eq!(other.limits, expected, "what a listener does not say, [limits] does");
    assert_eq!(other.policy.unknown_names, UnknownNames::Refuse);
    assert_eq!(other.policy.versions, Versions::Tls12AndTls13);
}

#[test]
fn every_key_of_a_route_and_of_clients_has_an_effect() {
    let config = parse(EVERY_KEY).unwrap();
    let [web, passing, http, redis, postgres, other] = config.listeners.as_slice() else {
        panic!("{config:?}")
    };
    let [policy, h2, mail] = web.routes.as_slice() else { panic!("{web:?}") };
    assert_eq!(policy.names, ["api.example.com", "*.api.example.com"]);
    let of_route = policy.policy.as_ref().unwrap();
    assert_eq!((of_route.versions, of_route.suites.len()), (Versions::Tls12AndTls13, 2));
    assert_eq!(of_route.groups, web.policy.groups, "what it does not say is the listener's");
    assert_eq!((web.policy.alpn_mismatch, &policy.destination), (AlpnMismatch::Without, &None));
    assert_eq!(h2.alpn, [b"h2"]);
    assert_eq!(h2.destination.as_ref().unwrap().balance, Balance::LeastConnections);
    let told = mail.destination.as_ref().unwrap().proxy_header;
    let tlvs = Tlvs::these(&[Tlv::Cn, Tlv::Crc32c, Tlv::Ssl]);
    assert!(mail.policy.is_none() && told == ProxyHeader::V2(tlvs), "TLVs of the listener");
    assert_eq!(passing.limits.steering, Steering::Client);
    let spoken = [http, redis, postgres, other].map(|listener| listener.spoken);
    assert_eq!(spoken, [Spoken::Redirect, Spoken::Relay, Spoken::Postgres, Spoken::Tls]);
    let folder = Some(ChallengeSource::Folder("/etc/sealane/challenges".into()));
    assert_eq!((&http.acme_responder, &web.acme_responder), (&folder, &None));
    let text = "store_key = { file = \"k\" }\n[[listener]]\naddress = \"[::1]:80\"\n\
                plain = \"redirect\"\nacme_responder = \"store:kept\"\n";
    let answering = &parse(text).unwrap().listeners[0];
    assert_eq!(answering.acme_responder, Some(ChallengeSource::Store));
    assert_eq!(answering.store, Some("/etc/sealane/kept".into()));
    assert_eq!(answering.responder_label().unwrap(), "acme:store:/etc/sealane/kept");
    assert!(web.ends_tls() && !web.passthrough && passing.passthrough && !passing.ends_tls());
    let rules = ClientRules {
        accept_ended_lists: true,
        cut_revoked: true,
        names: vec![
            ClientName::CommonName("batch".into()),
            ClientName::Dns("*.svc.example".into()),
            ClientName::Uri("spiffe://prod/*".into()),
        ],
        proof_age_max: Some(Duration::from_secs(60)),
    };
    let expected = ClientTrust {
        allow_other_names: false,
        crls: vec!["/etc/sealane/crls".into()],
        demand: ClientDemand::Required,
        roots: vec!["/etc/sealane/clients.pem".into()],
        rules,
    };
    assert_eq!((web.clients.as_ref(), other.clients.as_ref()), (Some(&expected), None));
}

/// What [`EVERY_KEY`] says of its first listener.
fn limits_of_web() -> ListenerLimits {
    let s = Duration::from_secs;
    let (allowed, denied) = (network("10.0.0.0/8").unwrap(), network("10.9.0.0/16").unwrap());
    ListenerLimits {
        allow: vec![
            NetworkSource::Network(allowed),
            NetworkSource::File("/etc/sealane/allow.txt".into()),
        ],
        connections_max: NonZeroUsize::new(33),
        deny: vec![NetworkSource::Network(denied)],
        liveness: Liveness {
            keep_alive: Some(KeepAlive { idle: s(11), every: s(12), count: 13 }),
            user_timeout: Some(s(14)),
        },
        per_client: PerClient {
            connections_max: NonZeroUsize::new(8),
            handshakes_per_s: NonZeroUsize::new(20),
        },
        steering: Steering::Connection,
        timeouts: Timeouts {
            backend: None,
            client: Some(s(7)),
            half_closed: s(8),
            handshake: s(9),
            idle: s(10),
        },
    }
}

/// The commented example is complete, and its values are the defaults where there are any.
#[test]
fn the_example_shows_every_key_with_its_default() {
    let text = include_str!("../../../packaging/sealane.toml");
    let config = Config::parse(Path::new("sealane.toml"), text).unwrap();
    assert_eq!(config.limits, Limits::default());
    assert_eq!(config.process, Process::default());
    assert_eq!(config.tickets, Tickets::default());
    assert_eq!(config.listeners[0].policy.groups, Policy::default().groups);
    assert_eq!(config.listeners[0].policy.versions, Policy::default().versions);
    assert_eq!(config.listeners[0].policy.suites, Suite::ALL);
    assert_eq!(config.listeners[0].policy.schemes, Scheme::ALL);
    assert_eq!(config.listeners[0].limits, ListenerLimits::default());
    assert_eq!(
        config.listeners.last().unwrap().destination.backend_tls,
        Some(BackendTls::default())
    );
    let with_all: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.split(' ').nth(1) == Some("=") => key,
            _ => line,
        })
        .fold(String::new(), |text, line| text + line + "\n");
    let config = Config::parse(Path::new("sealane.toml"), &with_all).unwrap();
    assert!(
        config.listeners.last().unwrap().destination.backend_tls != Some(BackendTls::default()),
        "every key is there"
    );
    assert_eq!(config.admin.hosts.len(), 1);
    assert!(config.process.user.is_some() && config.process.group.is_some());
    assert!(config.admin.socket.is_some(), "every key is there");
    assert!(!config.listeners[0].limits.allow.is_empty(), "every key is there");
    assert!(config.tickets.root.is_some() && config.limits.connections_per_lane_max.is_some());
}

/// A mistake in one key of the example never makes another key unknown.
#[test]
fn one_wrong_value_leaves_other_keys_known() {
    let text = include_str!("../../../packaging/sealane.toml");
    let mut written = 0;
    for (number, line) in text.lines().enumerate() {
        let uncommented = line.strip_prefix("# ").unwrap_or(line);
        let Some((key, _)) = uncommented.split_once(" = ") else { continue };
        if key.contains([' ', '#']) || uncommented.ends_with(['[', ',']) {
            continue;
        }
        let changed = |(at, other): (usize, &str)| match at == number {
            true => format!("{key} = 1979-05-27\n"),
            false => format!("{other}\n"),
        };
        let wrong: String = text.lines().enumerate().map(changed).collect();
        let Err(mistakes) = parse(&wrong) else { continue };
        let mistakes = mistakes.to_string();
        assert!(!mistakes.contains("is not a known key"), "{key}: {mistakes}");
        written += 1;
    }
    assert!(written > 60, "{written} keys");
}

#[test]
fn refusals_name_what_to_write() {
    let listener = |more: &str| {
        format!(
            "[[listener]]\naddress = \":443\"\ncertificates = [\"c\"]\n\
             backends = [\"127.0.0.1:1\"]\n{more}\n"
        )
    };
    let route = "[[listener.route]]\nnames = [\"*\"]\nbackends = [\"127.0.0.1:2\"]";
    for (text, expected) in [
        (listener("alpn = [\"h2,http/1.1\"]"), "write each in quotes of its own"),
        (listener("alpn = [\"http2\"]"), "write \"h2\""),
        (listener("accept_proxy = true"), "choose \"off\" or \"required\""),
        (listener("accept_proxy = true"), "name the networks of your balancers in proxy_from"),
        (listener(route), "such as \"*.example.com\""),
        (listener("lanes = 2"), "listener[0].lanes: is a key of the file, not of this table"),
        (listener("check = { kind = \"conect\", every = \"1s\" }"), "choose \"connect\""),
        (format!("limits.listeners = 1\n{}", listener("").repeat(2)), "limits.listeners allows 1"),
    ] {
        let mistakes = parse(&text).unwrap_err().to_string();
        assert!(mistakes.contains(expected), "{expected}: {mistakes}");
    }
}

/// Asks the parser for the keys it knows, table by table, and looks for each in the example.
#[test]
fn the_example_leaves_no_key_out() {
    let example = include_str!("../../../packaging/sealane.toml");
    let wrong = "zzzzzzzz = 1\n";
    let tables = [
        "admin",
        "process",
        "log",
        "access_log",
        "tickets",
        "limits",
        "store_key",
        "[listener]",
        "listener.backend_tls",
        "[listener.route]",
        "listener.check",
        "listener.clients",
    ];
    let text: String = tables.iter().map(|table| format!("[{table}]\n{wrong}")).collect();
    let mistakes = parse(&format!("{wrong}{text}")).unwrap_err();
    let unknown: Vec<_> = mistakes.0.iter().filter(|m| m.field.ends_with("zzzzzzzz")).collect();
    assert_eq!(unknown.len(), 1 + tables.len(), "{mistakes}");
    for mistake in unknown {
        assert!(!mistake.problem.known.is_empty());
        for key in mistake.problem.known.iter().filter(|key| **key != "address") {
            let in_brackets = [
                format!("[{key}]"),
                format!("[[{key}]]"),
                format!("[listener.{key}]"),
                format!("[[listener.{key}]]"),
            ];
            let found = example.contains(&format!("{key} = "))
                || in_brackets.iter().any(|table| example.contains(table));
            assert!(found, "{key} is not in the example");
        }
    }
}

#[test]
fn flags_alone() {
    let simple = Simple {
        admin: Some(Address::Tcp("127.0.0.1:9180".parse().unwrap())),
        backends: vec![value::backend("127.0.0.1:8080").unwrap()],
        certificates: vec!["certs".into()],
        lanes: NonZeroUsize::new(2),
        listen: value::listen_addresses(":443").unwrap().0,
        ..Simple::default()
    };
    let config = Config::simple(simple.clone()).unwrap();
    assert_eq!(config.lanes.get(), 2);
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(config.listeners[0].addresses, simple.listen);
    let wrong = Simple {
        admin: Some(Address::Tcp("0.0.0.0:443".parse().unwrap())),
        backends: [simple.backends.clone(), simple.backends].concat(),
        certificates: Vec::new(),
        listen: value::listen_addresses("0.0.0.0:443").unwrap().0,
        ..Simple::default()
    };
    let mistakes = Config::simple(wrong).unwrap_err().to_string();
    let lines: Vec<_> = mistakes.lines().collect();
    assert_eq!(lines.len(), 4, "{mistakes}");
    assert!(lines[0].starts_with("--certificates: is missing"), "{mistakes}");
    assert!(lines[1].starts_with("--backend: 127.0.0.1:8080 is given twice"), "{mistakes}");
    assert!(lines[2].starts_with("--admin: 0.0.0.0:443 is reachable"), "{mistakes}");
    assert!(lines[3].starts_with("--admin: 0.0.0.0:443 is a --listen address"), "{mistakes}");
}

/// Limits that are counted in all are divided among lanes: together they never have more, at most
/// one for each lane is nobody's, and no lane is left without.
#[test]
fn limits_are_divided_among_lanes() {
    let lanes = |n| NonZeroUsize::new(n).unwrap();
    for (connections_max, handshakes_max) in [(100_000, 16_384), (1_024, 1_024), (10_007, 1_031)] {
        let limits = Limits { connections_max, handshakes_max, ..Limits::default() };
        for count in 1..=LANES_MAX {
            let lane = limits.per_lane(lanes(count));
            for (share, whole) in
                [(lane.connections_max, connections_max), (lane.handshakes_max, handshakes_max)]
            {
                assert!(
                    (whole - count + 1..=whole).contains(&(share * count)),
                    "{whole} by {count}"
                );
                assert!(share > 0);
            }
        }
    }
    let limits = Limits { connections_max: 10, handshakes_max: 2, ..Limits::default() };
    let lane = limits.per_lane(lanes(2));
    assert_eq!((lane.connections_max, lane.handshakes_max), (5, 1));
    let limits = Limits { connections_per_lane_max: Some(8), ..limits };
    assert_eq!(limits.per_lane(lanes(2)).connections_max, 8);
    let limits = Limits { connections_per_lane_max: Some(1), ..limits };
    assert_eq!(limits.per_lane(lanes(1)).handshakes_max, 1);
}

/// Words of the language, so that random files get past the first line.
fn fragment() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec![
            "[[listener]]", "[limits]", "[admin]", "\n", "\n", "=", " ", "\"", "'''", "[", "]", "{",
            "}", ",", ".", "#", "address", "addresses", "certificates", "backends", "name",
            "versions", "connections", "lanes", "\"127.0.0.1:1\"", "\"unix:/a\"", "\"10s\"", "-1",
            "99999999999999999999999999999999999999999999", "0xff", "1e9", "true", "1979-05-27",
            "\"\\u0000\"", "é", "\r\n", "\u{feff}",
        ]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

proptest! {
    /// No text makes the parser panic, and what is refused is refused with a reason.
    #[test]
    fn no_text_panics(fragments in prop::collection::vec(fragment(), 0..60)) {
        if let Err(mistakes) = parse(&fragments.concat()) {
            prop_assert!(!mistakes.0.is_empty());
        }
    }
}
