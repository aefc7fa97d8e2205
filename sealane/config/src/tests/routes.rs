//! Keys of a listener that hold for its routes, and names that undercut a demand for client
//! certificates.

use std::net::SocketAddr;

use super::*;

/// How a key of a listener holds for a route that does not write it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// The value holds, and a route can write its own.
    Inherited,
    /// The key is about the route itself.
    Own,
    /// The value holds for all connections of the listener, and a route cannot write the key.
    Whole,
}

use Fate::{Inherited, Own, Whole};

/// Each key of a listener, with a value that is not the default.
const FATES: &[(&str, &str, Fate)] = &[
    ("accept_proxy", "\"required\"", Whole),
    ("acme_responder", "\"x\"", Whole),
    ("address", "\"127.0.0.1:1\"", Whole),
    ("addresses", "[\"127.0.0.1:1\"]", Whole),
    ("allow", "[\"10.0.0.0/8\"]", Whole),
    ("allow_anybody_to_claim_an_address", "true", Whole),
    ("allow_remote", "true", Whole),
    ("alpn", "[\"h2\"]", Own),
    ("alpn_mismatch", "\"none\"", Inherited),
    ("backend_timeout", "\"7s\"", Whole),
    ("backend_tls", "{ roots = [\"a.pem\"] }", Inherited),
    ("backends", "[\"10.0.0.9:80\"]", Own),
    ("balance", "\"least-connections\"", Inherited),
    ("certificates", "[\"a.pem\"]", Whole),
    ("check", "{ every = \"9s\" }", Whole),
    ("client_timeout", "\"7s\"", Whole),
    ("clients", "{ certificates = \"required\", roots = [\"a.pem\"] }", Inherited),
    ("connections", "33", Whole),
    ("connections_per_client", "8", Whole),
    ("default_certificate", "\"a.example\"", Whole),
    ("deny", "[\"10.0.0.0/8\"]", Whole),
    ("groups", "[\"X25519\"]", Inherited),
    ("half_closed_timeout", "\"7s\"", Whole),
    ("handshake_timeout", "\"7s\"", Whole),
    ("handshakes_per_client", "\"20/s\"", Whole),
    ("idle_timeout", "\"7s\"", Whole),
    ("keepalive", "{ idle = \"7s\" }", Whole),
    ("name", "\"web\"", Whole),
    ("on_demand", "true", Whole),
    ("passthrough", "true", Own),
    ("plain", "\"relay\"", Whole),
    ("proxy_from", "[\"10.0.0.0/8\"]", Whole),
    ("proxy_header", "\"v1\"", Inherited),
    ("proxy_pass_tlvs", "[0xEA]", Whole),
    ("proxy_tlvs", "[\"ssl\"]", Inherited),
    ("require_extended_master_secret", "true", Inherited),
    ("resolve", "\"7s\"", Whole),
    ("route", "[]", Whole),
    ("schemes", "[\"ed25519\"]", Inherited),
    ("socket_mode", "\"0600\"", Whole),
    ("starttls", "\"postgres\"", Whole),
    ("steer", "\"client\"", Whole),
    ("suites", "[\"TLS_AES_128_GCM_SHA256\", \"ECDHE-RSA-AES128-GCM-SHA256\"]", Inherited),
    ("unknown_names", "\"refuse\"", Whole),
    ("user_timeout", "\"7s\"", Whole),
    ("versions", "[\"1.3\"]", Inherited),
];

/// The keys that the parser knows in the last table of `text`.
fn known_keys(text: &str) -> Vec<String> {
    let mistakes = parse(&format!("{text}zzzzzzzz = 1\n")).unwrap_err();
    let unknown = mistakes.0.iter().find(|mistake| mistake.field.ends_with("zzzzzzzz")).unwrap();
    unknown.problem.known.iter().map(|key| (*key).to_owned()).collect()
}

/// The route of a listener with TLS backends and a PROXY header, with these additional lines.
fn route_of(listener: &str, route: &str) -> Result<Route, String> {
    let header = if listener.contains("proxy_header") || route.contains("proxy_header") {
        ""
    } else {
        "proxy_header = true\n"
    };
    let text = format!(
        "[[listener]]\naddress = \"[::1]:443\"\ncertificates = [\"certs\"]\n\
         backends = [\"tls://10.0.0.1:443\"]\n{header}{listener}\n\
         [[listener.route]]\nnames = [\"a.example\"]\nbackends = [\"tls://10.0.0.2:443\"]\n{route}\n"
    );
    let config = parse(&text).map_err(|mistakes| mistakes.to_string())?;
    Ok(config.listeners[0].routes[0].clone())
}

#[test]
fn each_listener_key_has_a_fate_in_routes() {
    let mut keys = known_keys(LISTENER);
    keys.sort();
    keys.dedup();
    assert_eq!(keys, FATES.iter().map(|(key, ..)| *key).collect::<Vec<_>>());
    let route_keys = known_keys(&format!("{LISTENER}[[listener.route]]\n"));
    for (key, value, fate) in FATES {
        let line = format!("{key} = {value}");
        assert_eq!(route_keys.iter().any(|known| known == key), *fate != Whole, "{key}");
        match fate {
            Inherited => {
                let inherited = route_of(&line, "").unwrap();
                assert_eq!(inherited, route_of("", &line).unwrap(), "{key}");
                assert_ne!(inherited, route_of("", "").unwrap(), "{key} has an effect");
            }
            Own => {}
            Whole => {
                let refused = route_of("", &line).unwrap_err();
                let expected = format!("listener[0].route[0].{key}: is not a known key");
                assert!(refused.contains(&expected), "{refused}");
            }
        }
    }
}

#[test]
fn route_keys_override_listener_keys() {
    let told = |listener: &str, route: &str| {
        route_of(listener, route).unwrap().destination.unwrap().proxy_header
    };
    let these = |tlv| Tlvs::these(&[tlv]);
    let (ssl, alpn) = ("proxy_tlvs = [\"ssl\"]", "proxy_tlvs = [\"alpn\"]");
    let v2 = format!("proxy_header = \"v2\"\n{ssl}");
    assert_eq!(told(&v2, "proxy_header = false"), ProxyHeader::Off);
    assert_eq!(told(&v2, "proxy_header = \"v1\""), ProxyHeader::V1);
    assert_eq!(told(&v2, "proxy_header = \"pass\""), ProxyHeader::Pass(these(Tlv::Ssl)));
    assert_eq!(told(&v2, alpn), ProxyHeader::V2(these(Tlv::Alpn)));
    let refused = route_of("proxy_header = \"v1\"", alpn).unwrap_err();
    assert!(refused.contains("version 1 of the header has room for addresses only"), "{refused}");
    let own = "backend_tls = { server_name = \"b.example\" }";
    let tls = route_of("backend_tls = { roots = [\"a.pem\"] }", own).unwrap().destination.unwrap();
    assert_eq!(tls.backend_tls.unwrap().trust, Trust::default(), "the table is one key");
}

/// A listener's table may be there for its routes alone, and not for nothing.
#[test]
fn backend_tls_of_a_listener_may_serve_routes() {
    let text = |route: &str| {
        format!(
            "{LISTENER}backend_tls = {{ roots = [\"a.pem\"] }}\n[[listener.route]]\n\
             names = [\"a.example\"]\nbackends = [\"{route}\"]\n"
        )
    };
    assert!(parse(&text("tls://a:1")).is_ok());
    let refused = parse(&text("a:1")).unwrap_err().to_string();
    assert!(refused.contains("backend_tls: no backend of this listener is spoken to"), "{refused}");
}

/// Lines of a listener with its own backend `b:1`, which asks for client certificates by `clients`.
fn asking(clients: &str, routes: &str) -> String {
    format!(
        "[[listener]]\nname = \"web\"\naddress = \"[::1]:443\"\ncertificates = [\"certs\"]\n\
         backends = [\"b:1\"]\n{clients}\n{routes}"
    )
}

fn route(name: &str, lines: &str) -> String {
    format!("[[listener.route]]\nnames = [\"{name}\"]\n{lines}\n")
}

const REQUIRED: &str = "clients = { certificates = \"required\", roots = [\"a.pem\"] }";

/// Asserts that a text is refused with a message that contains `expected`, or is valid if none.
fn assert_undercut(text: &str, expected: Option<&str>) {
    let found = parse(text).err().map(|mistakes| mistakes.to_string());
    let is_right = match (expected, &found) {
        (None, None) => true,
        (Some(part), Some(found)) => found.contains(part),
        _ => false,
    };
    assert!(is_right, "{text}\n{found:?}");
}

#[test]
fn spellings_of_a_guarded_backend_are_one() {
    for (strict, loose, is_same) in [
        ("b:2", "B:2", true),
        ("b:2", "b:3", false),
        ("localhost:3", "127.0.0.1:3", true),
        ("[::1]:3", "localhost:3", true),
        ("127.0.0.1:3", "127.0.0.2:3", true),
        ("127.0.0.1:3", "127.0.0.2:4", false),
        ("127.255.0.9:3", "[::ffff:127.1.1.1]:3", true),
        ("127.0.0.1:3", "10.0.0.1:3", false),
        ("tls://10.0.0.1:3", "[::ffff:10.0.0.1]:3", true),
        ("unix:/a", "unix:/a", true),
        ("unix:/a", "unix:/b", false),
        ("127.0.0.1:3", "0.0.0.0:3", true),
        ("127.0.0.1:3", "[::]:3", true),
        ("app.localhost:3", "[::ffff:0.0.0.0]:3", true),
        ("unix:/run/a", "unix:/run/b/../a", true),
    ] {
        let strict = route("a.example", &format!("backends = [\"{strict}\"]\n{REQUIRED}"));
        let loose = route("b.example", &format!("backends = [\"10.0.0.9:9\", \"{loose}\"]"));
        let expected = is_same.then_some("can reach the same backend");
        assert_undercut(&asking("", &(strict + &loose)), expected);
    }
}

#[test]
fn looser_way_to_a_guarded_backend_is_refused() {
    let off = "clients = { certificates = \"off\" }";
    let asked = "clients = { certificates = \"asked\", roots = [\"a.pem\"] }";
    let other = "clients = { certificates = \"required\", roots = [\"b.pem\"] }";
    let named =
        "clients = { certificates = \"required\", roots = [\"a.pem\"], names = [\"CN:a\"] }";
    let listed = "clients = { certificates = \"required\", roots = [\"a.pem\"], crls = [\"c\"] }";
    let ended = REQUIRED.replace(" }", ", on_expired_crl = \"accept\" }");
    let allowed = |clients: &str| clients.replace(" }", ", allow_other_names = true }");
    let own = |port: u16| format!("backends = [\"b:{port}\"]\n");
    let guarded = |lines: &str| route("a.example", &format!("{}{lines}", own(2)));
    let beside = |lines: &str| guarded(REQUIRED) + &route("b.example", lines);
    for (clients, routes, expected) in [
        ("", route("a.example", REQUIRED), Some("route[0]: requires client certificates, but oth")),
        (
            REQUIRED,
            route("a.example", off),
            Some("[0]: requires client certificates, but route \"a"),
        ),
        (REQUIRED, route("a.example", asked), Some("where a client certificate is optional")),
        (REQUIRED, route("a.example", other), Some("with other client certificates")),
        ("", guarded(REQUIRED), None),
        (
            "",
            beside(&own(2)),
            Some("but route \"b.example\", without a client certificate, can reach"),
        ),
        ("", beside(&own(3)), None),
        ("", beside(&format!("{}{REQUIRED}", own(2))), None),
        (
            "",
            beside(&format!("{}{named}", own(2))),
            Some("but route \"a.example\", with other client"),
        ),
        (
            "",
            beside(&format!("{}{listed}", own(2))),
            Some("but route \"a.example\", with other client"),
        ),
        (
            "",
            beside(&format!("{}{ended}", own(2))),
            Some("but route \"b.example\", with other client"),
        ),
        ("", beside(&format!("{}{}", own(2), allowed(named))), None),
        // A passthrough route requests no client certificate, for any backend.
        (
            "",
            guarded(REQUIRED) + &route("b.example", "passthrough = true\nbackends = [\"b:2\"]"),
            Some("without a client certificate"),
        ),
        // A protocol settles nothing about certificates: the name does.
        (
            "",
            guarded(REQUIRED) + &route("a.example", &format!("alpn = [\"h2\"]\n{}", own(2))),
            None,
        ),
        (
            "",
            guarded(REQUIRED) + &route("b.example", &format!("alpn = [\"h2\"]\n{}", own(2))),
            Some("but route \"b.example\""),
        ),
        (
            "",
            guarded(REQUIRED) + "[[listener.route]]\nalpn = [\"h2\"]\nbackends = [\"b:2\"]\n",
            Some("but route of all names with h2"),
        ),
    ] {
        assert_undercut(&asking(clients, &routes), expected);
    }
    assert!(parse(&asking("", &route("a.example", &allowed(REQUIRED)))).is_ok());
    let refused = parse(&asking(&allowed(asked), "")).unwrap_err().to_string();
    assert!(refused.contains("means nothing unless client certificates are required"), "{refused}");
}

#[test]
fn guarded_backend_is_found_by_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().to_str().unwrap();
    std::os::unix::net::UnixListener::bind(folder.path().join("a")).unwrap();
    std::fs::hard_link(folder.path().join("a"), folder.path().join("same")).unwrap();
    for (to, link) in [("a", "b"), (at, "folder"), ("later", "early")] {
        std::os::unix::fs::symlink(to, folder.path().join(link)).unwrap();
    }
    let addresses: [SocketAddr; 2] = [([10, 0, 0, 1], 0).into(), ([127, 0, 0, 1], 0).into()];
    for (strict, loose, is_same) in [
        ("10.0.0.1:3".into(), "known:3".into(), true),
        ("known:3".into(), "localhost:3".into(), true),
        ("known:3".into(), "other:3".into(), true),
        ("10.0.0.2:3".into(), "known:3".into(), false),
        ("unknown:3".into(), "10.0.0.1:3".into(), false),
        (format!("unix:{at}/a"), format!("unix:{at}/b"), true),
        (format!("unix:{at}/a"), format!("unix:{at}/same"), true),
        (format!("unix:{at}/folder/a"), format!("unix:{at}/a"), true),
        (format!("unix:{at}/folder/later"), format!("unix:{at}/early"), true),
        (format!("unix:{at}/a"), format!("unix:{at}/later"), false),
    ] {
        let guarded = route("a.example", &format!("backends = [\"{strict}\"]\n{REQUIRED}"));
        let open = route("b.example", &format!("backends = [\"{loose}\"]"));
        let config = parse(&asking("", &(guarded + &open))).unwrap();
        let found = undercuts_here(&config, |name| match name {
            "unknown" => &[],
            _ => &addresses,
        });
        let texts: Vec<_> = found.within.iter().map(|(_, text)| text.as_str()).collect();
        let expected = format!("can reach the same backend {strict} as {loose}; give it backends");
        let is_found = texts.iter().any(|text| text.contains(&expected));
        assert!(is_found == is_same && texts.len() <= 1, "{strict} {loose}: {texts:?}");
        assert!(found.between.is_empty());
    }
}

#[test]
fn looser_listener_to_a_guarded_backend_is_found() {
    let other = "[[listener]]\naddress = \"[::1]:444\"\ncertificates = [\"certs\"]\n\
                 backends = [\"b:1\"]\n";
    let found = |clients: &str| {
        let config = parse(&(asking(clients, "") + other)).unwrap();
        let found = undercuts_here(&config, |_| &[]).between;
        found.into_iter().map(|(name, text)| format!("{name}: {text}")).collect::<Vec<_>>()
    };
    let expected = "web: requires client certificates, but listener [::1]:444, without a \
                    client certificate, can reach the same backend b:1";
    assert_eq!(found(REQUIRED), [expected]);
    assert!(found("").is_empty());
    assert!(found(&REQUIRED.replace(" }", ", allow_other_names = true }")).is_empty());
}
