//! Configurations in order and not, on a machine that is given.

use std::os::unix::fs::PermissionsExt as _;

use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;

/// 2027-01-15, at midnight.
const NOW_S: u64 = 1_799_971_200;

fn machine() -> Machine<'static> {
    Machine {
        descriptors_max: Some(1_000),
        file_tables: FileTables::OfLanes,
        now: UnixSeconds(NOW_S),
        resolve: &|names| {
            let answer = |name: &str| match name {
                "known.test" => Ok(vec![([127, 0, 0, 1], 0).into()]),
                _ => Err("no such host".into()),
            };
            names.into_iter().map(|name| (name.clone(), answer(&name))).collect()
        },
    }
}

/// A directory with a configuration and certificates that end after so many days.
fn directory(config: &str, certificates: &[(&str, i64)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    // Nobody else comes to the keys in it.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(directory.path().join("sealane.toml"), config).unwrap();
    fs::create_dir(directory.path().join("certs")).unwrap();
    for (name, days) in certificates {
        let mut params = rcgen::CertificateParams::new([(*name).to_owned()]).unwrap();
        let now = rcgen::date_time_ymd(2027, 1, 15);
        params.not_before = now - std::time::Duration::from_secs(3600 * 24 * 100);
        params.not_after = match u64::try_from(*days) {
            Ok(days) => now + std::time::Duration::from_secs(3600 * 24 * days),
            Err(_) => now - std::time::Duration::from_secs(3600 * 24 * days.unsigned_abs()),
        };
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
        fs::write(directory.path().join(format!("certs/{name}.pem")), pem).unwrap();
    }
    directory
}

fn check(directory: &tempfile::TempDir, machine: &Machine<'_>) -> (Report, String) {
    let report = Report::of(&directory.path().join("sealane.toml"), machine);
    let text = report.to_string().replace(&format!("{}/", directory.path().display()), "");
    (report, text)
}

const LISTENER: &str = "[[listener]]\nname = \"web\"\naddress = \"127.0.0.1:443\"\n\
                        certificates = [\"certs\"]\nbackends = [\"known.test:80\"]\n";

#[test]
fn a_configuration_in_order_is_told_with_its_cost() {
    let config = format!("lanes = 2\nlimits.connections = 100\ncrypto = \"aws-lc\"\n{LISTENER}");
    let directory = directory(&config, &[("a.test", 90), ("b.test", 30)]);
    let (report, text) = check(&directory, &machine());
    assert!(report.is_in_order(), "{text}");
    let index_bytes = report.cost.as_ref().unwrap().index_bytes;
    assert!((1_000..100_000).contains(&index_bytes), "{index_bytes}");
    assert!(report.listeners[0].key_types[0].signatures_per_second > Some(100));
    let lines: Vec<_> =
        text.lines().filter(|line| !line.contains("KiB") && !line.contains("handshakes ")).collect();
    assert_eq!(
        lines,
        [
            "sealane.toml: in order",
            "",
            "Listeners",
            "  web",
            "    listens on          127.0.0.1:443",
            "    relays to           known.test:80",
            "    certificates        2: 2 ECDSA P-256",
            "    names               2",
            "    soonest expiry      in 30 days, certs/b.test.pem",
            "",
            "Cost at the limits, estimated",
            "  lanes                 2",
            "  connections           100",
            "  file descriptors      110 per lane, 70 beside, one table each",
            "  memory                4.0 MiB",
            "    buffers             3.7 MiB",
        ],
        "{text}"
    );
}

/// What a listener does that others do not is told, and nothing of one that is as they are.
#[test]
fn what_a_listener_speaks_and_takes_is_told() {
    let both = "addresses = [\"127.0.0.1:443\", \"unix:/run/absent/tls.sock\"]";
    let listener = LISTENER.replace("address = \"127.0.0.1:443\"", both);
    assert!(listener.contains(both));
    let config = format!(
        "limits.idle_timeout = \"2m\"\n{listener}accept_proxy = \"required\"\n\
         proxy_from = [\"10.0.0.0/8\", \"unix\"]\nconnections = 50\n\
         handshakes_per_client = \"20/s\"\nkeepalive = {{ every = \"5s\" }}\n\
         deny = [\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\", \"192.0.2.4\", \"192.0.2.5\", \
         \"192.0.2.6\"]\n\
         [[listener]]\nname = \"http\"\naddress = \"127.0.0.1:80\"\nplain = \"redirect\"\n\
         acme_responder = \"certs\"\nidle_timeout = \"5m\"\n"
    );
    let (report, text) = check(&directory(&config, &[("a.test", 90)]), &machine());
    assert!(report.is_in_order(), "{text}");
    let listeners = text.lines().skip_while(|line| *line != "Listeners").skip(1);
    let listeners: Vec<_> = listeners.filter(|line| !line.contains("full handshakes")).collect();
    assert_eq!(
        listeners[..19],
        [
            "  web",
            "    listens on          127.0.0.1:443, unix:/run/absent/tls.sock",
            "    PROXY header        required, from 10.0.0.0/8, unix",
            "    relays to           known.test:80",
            "    limit               connections 50",
            "    limit               deny 192.0.2.1, 192.0.2.2, 192.0.2.3, 192.0.2.4, 192.0.2.5 \
             and 1 more",
            "    limit               handshakes_per_client 20/s",
            "    limit               idle_timeout 2m",
            "    limit               keepalive idle 1m, every 5s, count 6",
            "    certificates        1: 1 ECDSA P-256",
            "    names               1",
            "    soonest expiry      in 90 days, certs/a.test.pem",
            "  http",
            "    listens on          127.0.0.1:80",
            "    clients speak       HTTP, and are sent to HTTPS",
            "    relays to           acme:certs",
            "    certificates        none",
            "    names               0",
            "",
        ],
        "{text}"
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["listeners"][0]["limits"]["handshakes_per_client"], "20/s");
    assert_eq!(json["listeners"][0]["proxy_from"][1], "unix");
    assert_eq!(json["listeners"][1]["speaks"], "redirect");
}

/// Mistakes of the file, of certificates and of backends come together.
#[test]
fn everything_wrong_is_told_at_once() {
    let config = format!(
        "lanes = 0\n[tickets]\nroot = \"root\"\n[access_log]\npath = \"none/access.log\"\n\
         {LISTENER}default_certificate = \"c.test\"\n[[listener]]\naddress = \"127.0.0.1:444\"\n\
         certificates = [\"absent.pem\"]\nbackends = [\"unknown.test:80\", \"unix:/absent.sock\"]\n"
    );
    let directory = directory(&config, &[("a.test", -2), ("b.test", 3)]);
    let root = "sealane-ticket-root 1 43200 1 nothex";
    fs::write(directory.path().join("root"), root).unwrap();
    fs::write(directory.path().join("certs/c.crt"), "").unwrap();
    let (report, text) = check(&directory, &machine());
    assert!(!report.is_in_order());
    for expected in [
        "error: sealane.toml:1:9: lanes: 0 is out of range; choose 1 to 1024",
        "error: access_log.path: none/access.log has no folder",
        "error: tickets.root: root: ",
        "error: listener web: certs/c.crt: its key certs/c.key is missing",
        "error: listener web: default certificate \"c.test\"",
        "error: listener 127.0.0.1:444: absent.pem: cannot be read",
        "warning: listener 127.0.0.1:444: backend unknown.test:80 does not resolve yet: no such",
        "warning: listener web: certs/a.test.pem: expired 2 days ago",
        "warning: listener web: certs/b.test.pem: expires in 3 days; renew it",
        "warning: listener 127.0.0.1:444: backend unix:/absent.sock is not there yet",
        "note: in this shell, limits.connections: the ",
        "soonest expiry      2 days ago, certs/a.test.pem",
    ] {
        assert!(text.contains(expected), "{expected} in\n{text}");
    }
    assert_eq!(report.errors.len(), 6, "{text}");
    assert_eq!((report.warnings.len(), report.notes.len()), (4, 1), "{text}");
    assert!(!text.contains("nothex"), "a secret is not quoted: {text}");
}

#[test]
fn chains_that_clients_refuse_are_warned_of() {
    let day = std::time::Duration::from_secs(3600 * 24);
    let now = rcgen::date_time_ymd(2027, 1, 15);
    let authority = |days: u32| {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, "Issuing CA");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = now + day * days - day * 10;
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertifiedIssuer::self_signed(params, key).unwrap()
    };
    let (valid, expired) = (authority(100), authority(9));
    let key = rcgen::KeyPair::generate().unwrap();
    let leaf = |names: &[&str], issuer: &rcgen::CertifiedIssuer<'_, rcgen::KeyPair>| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "a.test");
        params.signed_by(&key, issuer).unwrap().pem()
    };
    let good = leaf(&["a.test"], &valid);
    let of_public = {
        let mut params = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
        params.custom_extensions =
            vec![rcgen::CustomExtension::from_oid_content(&ISSUERS_PLACE, ISSUER_URL.to_vec())];
        params.signed_by(&key, &valid).unwrap().pem()
    };
    for (chain, expected) in [
        (good.clone() + &valid.pem(), ""),
        (of_public.clone() + &valid.pem(), ""),
        (of_public, "the certificate of its issuer (CN=Issuing CA) is not in the chain"),
        (good.clone() + &good + &valid.pem(), "certificate 2 of the chain is there twice"),
        (leaf(&["a.test"], &expired) + &expired.pem(), "certificate 2 of the chain expired 1 day "),
        (leaf(&[], &valid) + &valid.pem(), "it has no subjectAltName"),
    ] {
        let directory = directory(&format!("limits.connections = 100\n{LISTENER}"), &[]);
        let text = chain + &key.serialize_pem();
        fs::write(directory.path().join("certs/a.pem"), text).unwrap();
        let (report, text) = check(&directory, &machine());
        assert!(report.is_in_order(), "{text}");
        let warnings: Vec<_> = report.warnings.iter().map(|each| each.message.as_str()).collect();
        let is_said = warnings.iter().any(|warning| warning.contains(expected));
        assert!(is_said != expected.is_empty(), "{expected}: {warnings:?}");
        let soonest = "soonest expiry      1 day ago, certs/a.pem";
        assert_eq!(text.contains(soonest), expected.contains("1 day"), "{text}");
    }
}

/// Clients of a private authority often trust the issuer as a root.
#[test]
fn missing_private_issuer_is_a_note() {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "Private CA");
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority = rcgen::CertifiedIssuer::self_signed(params, authority_key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap();
    let pem = params.signed_by(&key, &authority).unwrap().pem() + &key.serialize_pem();
    let directory = directory(&format!("limits.connections = 100\n{LISTENER}"), &[]);
    fs::write(directory.path().join("certs/a.pem"), pem).unwrap();
    let (report, text) = check(&directory, &machine());
    assert!(report.warnings.is_empty() && report.is_in_order(), "{text}");
    assert!(
        text.contains("note: listener web: certs/a.pem: the certificate of its issuer"),
        "{text}"
    );
}

#[test]
fn check_prints_tls_settings_of_routes() {
    let config = format!(
        "limits.connections = 100\n{LISTENER}alpn = [\"h2\"]\nunknown_names = \"refuse\"\n\
         versions = [\"1.3\"]\n[[listener.route]]\nnames = [\"a.test\"]\n\
         require_extended_master_secret = true\ngroups = [\"X25519\"]\n\
         versions = [\"1.2\", \"1.3\"]\n[[listener.route]]\nnames = [\"a.test\"]\n\
         alpn = [\"smtp\"]\nbackends = [\"known.test:25\"]\n"
    );
    let (report, text) = check(&directory(&config, &[("a.test", 90)]), &machine());
    assert!(report.is_in_order(), "{text}");
    let is_shown = |line: &&str| line.starts_with("    TLS ") || line.starts_with("    route ");
    assert_eq!(
        text.lines().filter(is_shown).collect::<Vec<_>>(),
        [
            "    TLS                 alpn h2",
            "    TLS                 unknown_names refuse",
            "    TLS                 versions 1.3",
            "    route               a.test, no PROXY header, groups X25519, \
             require_extended_master_secret true",
            "    route               a.test with smtp to known.test:25, no PROXY header",
        ],
        "{text}"
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["listeners"][0]["routes"][0]["tls"]["groups"], "X25519");
}

/// The key's public half is the certificate's, so only decoding finds the damage.
#[test]
fn a_key_with_a_damaged_private_half_is_found() {
    let config = format!("crypto = \"aws-lc\"\n{LISTENER}");
    let directory = directory(&config, &[("a.test", 90)]);
    let file = directory.path().join("certs/a.test.pem");
    let mut pem = fs::read(&file).unwrap();
    let header = b"-----BEGIN PRIVATE KEY-----";
    let key = pem.windows(header.len()).position(|window| window == header).unwrap();
    let body = pem[key..].iter().position(|byte| *byte == b'\n').unwrap() + key + 1;
    // Bytes 36 to 67 of such a key are the private half; four characters hold three bytes.
    let damaged = &mut pem[body + 56];
    *damaged = if *damaged == b'A' { b'B' } else { b'A' };
    fs::write(&file, pem).unwrap();
    let (report, text) = check(&directory, &machine());
    assert_eq!(report.errors.len(), 1, "{text}");
    assert!(text.contains("error: listener web: certs/a.test.pem: "), "{text}");
    assert_eq!(report.listeners[0].certificates, 0, "no lane is left to find it: {text}");
}

#[test]
fn a_file_that_is_no_configuration() {
    let directory = directory("[[listener", &[]);
    let (report, text) = check(&directory, &machine());
    assert!(!report.is_in_order() && report.cost.is_none() && report.listeners.is_empty());
    assert!(
        text.starts_with("sealane.toml: 1 error\n\nErrors\n  error: sealane.toml:1:"),
        "{text}"
    );
}

/// What the warning says to lower the limit to is enough.
#[test]
fn descriptors_are_compared_with_what_is_allowed() {
    let with = |connections: usize| {
        let config = format!("lanes = 1\nlimits.connections = {connections}\n{LISTENER}");
        let (report, text) = check(&directory(&config, &[("a.test", 90)]), &machine());
        assert!(report.is_in_order(), "{text}");
        report.notes.into_iter().map(|finding| finding.message).collect::<Vec<_>>()
    };
    let notes = with(10_000);
    assert_eq!(notes.len(), 1, "{notes:?}");
    let (_, enough) = notes[0].split_once("; the limits").unwrap().0.rsplit_once(' ').unwrap();
    let enough: usize = enough.parse().unwrap();
    assert!(with(enough).is_empty());
    assert_eq!(with(enough + 1).len(), 1);
}

/// What a configuration with this backend and these further lines costs, on two lanes.
fn cost(backend: &str, more: &str) -> Cost {
    let listener = LISTENER.replace("known.test:80", backend);
    let config = format!("limits.connections = 100\nlanes = 2\n{listener}{more}");
    let (report, text) = check(&directory(&config, &[("a.test", 90)]), &machine());
    assert!(report.is_in_order(), "{text}");
    report.cost.unwrap()
}

#[test]
fn connections_cost_more_where_backends_are_spoken_to_in_tls() {
    let bytes = |backend, more: &str| cost(backend, more).connection_bytes;
    let table = "backend_tls = { insecure_accept_any_certificate = true }\n";
    assert_eq!(bytes("known.test:80", ""), 100 * 3_072);
    // Measured: 5,904 bytes.
    assert_eq!(bytes("tls://known.test:443", table), 100 * 6_144);
    let route = "[[listener.route]]\nnames = [\"a.test\"]\n\
                 backends = [\"tls://known.test:443\"]\n";
    assert_eq!(bytes("known.test:80", &format!("{route}{table}")), 100 * 6_144);
}

#[test]
fn each_lane_has_a_table_where_what_a_client_may_take_is_limited() {
    let [without, with] =
        ["", "handshakes_per_client = \"20/s\"\n"].map(|more| cost("known.test:80", more));
    assert_eq!([without.client_table_bytes, with.client_table_bytes], [0, 2 * 16_384 * 32]);
    let certificates = |cost: &Cost| cost.index_bytes + cost.decoded_keys_bytes;
    assert_eq!(
        with.total_bytes - certificates(&with),
        without.total_bytes - certificates(&without) + with.client_table_bytes
    );
}

#[test]
fn a_backend_that_lanes_cannot_share_is_an_error() {
    let config =
        LISTENER.replace("\"known.test:80\"", "{ address = \"known.test:80\", connections = 3 }");
    let directory = directory(&format!("lanes = 4\n{config}"), &[("a.test", 90)]);
    let (_, text) = check(&directory, &machine());
    let expected = ".toml:6:56: listener[0].backends[0].connections: 3 in all is less than the 4 \
                    lanes that share it; each needs one: raise it, or lower lanes";
    assert!(text.contains(expected), "{text}");
    assert_eq!(text.matches("lanes that share it").count(), 1, "{text}");
}

#[test]
fn routes_are_printed_with_settings_that_hold() {
    let config = format!(
        "{LISTENER}balance = \"least-connections\"\nproxy_header = \"v1\"\n\
         [[listener.route]]\nnames = [\"a.test\"]\nbackends = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n\
         [listener.route.clients]\ncertificates = \"asked\"\nroots = [\"certs/a.test.pem\"]\n\
         [[listener.route]]\nalpn = [\"h2\"]\nproxy_header = false\nbackends = [\"127.0.0.1:3\"]\n"
    );
    let (report, text) = check(&directory(&config, &[("a.test", 90)]), &machine());
    assert!(report.is_in_order(), "{text}");
    for line in [
        "    backends get        PROXY header v1\n",
        "    route               a.test to 127.0.0.1:1, 127.0.0.1:2 (least-connections), PROXY \
         header v1, client certificates asked\n",
        "    route               all other names with h2 to 127.0.0.1:3, no PROXY header\n",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

/// The configuration writes two backends, and both names have one address.
#[test]
fn names_of_one_guarded_backend_are_refused() {
    let guard = "clients = { certificates = \"required\", roots = [\"certs/a.test.pem\"] }";
    let config = format!(
        "{LISTENER}[[listener.route]]\nnames = [\"a.test\"]\nbackends = [\"127.0.0.1:80\"]\n\
         {guard}\n"
    );
    let (report, text) = check(&directory(&config, &[("a.test", 90)]), &machine());
    let expected = "can reach the same backend 127.0.0.1:80 as known.test:80";
    assert!(!report.is_in_order() && text.contains(expected), "{text}");
}

/// `check` finds each obstacle that a start finds at the path of a socket or of the log.
#[test]
fn finds_obstacles_for_sockets_and_log() {
    let directory = directory("", &[("a.test", 90)]);
    let around = directory.path().display();
    let config = format!(
        "access_log.path = \"log\"\nadmin.address = \"unix:{around}/file\"\n{LISTENER}\
         [[listener]]\nname = \"local\"\naddress = \"unix:{around}/absent/tls.sock\"\n\
         certificates = [\"certs\"]\nbackends = [\"known.test:80\"]\n"
    );
    fs::write(directory.path().join("sealane.toml"), config).unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("file"), "").unwrap();
    std::os::unix::fs::symlink("log", path("log")).unwrap();
    let (_, text) = check(&directory, &machine());
    for expected in [
        "error: the admin address unix:file cannot be served: a file that is no socket is there;",
        "error: listener local: cannot listen on unix:absent/tls.sock: No such file or directory",
        "error: access_log.path: log cannot be opened: Too many levels of symbolic links",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    fs::remove_file(path("log")).unwrap();
    fs::remove_file(path("file")).unwrap();
    fs::create_dir(path("absent")).unwrap();
    let (report, text) = check(&directory, &machine());
    assert!(report.is_in_order(), "{text}");
    // A process may listen there: this configuration, as a rule.
    let _socket = std::os::unix::net::UnixListener::bind(path("file")).unwrap();
    mkfifoat(CWD, path("log"), Mode::RWXU).unwrap();
    let (report, text) = check(&directory, &machine());
    assert!(report.is_in_order(), "{text}");
    assert!(text.contains("warning: access_log.path: log is a pipe; lines are lost"), "{text}");
}

/// The extension authorityInfoAccess (RFC 5280 section 4.2.2.1).
const ISSUERS_PLACE: [u64; 9] = [1, 3, 6, 1, 5, 5, 7, 1, 1];
/// With a place where the issuer's certificate is published.
const ISSUER_URL: [u8; 22] =
    *b"\x30\x14\x30\x12\x06\x08\x2b\x06\x01\x05\x05\x07\x30\x02\x86\x06http:/";
