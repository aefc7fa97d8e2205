//! HAProxy: settings that must not be lost in conversion.

use super::*;

/// A frontend at port 443 with `rules`, converted.
fn proxied(rules: &str) -> String {
    let text = format!(
        "defaults\nmode tcp\ntimeout client 1m\ntimeout server 1m\nfrontend f\n{rules}\n\
         backend b\nserver s b:1\n"
    );
    toml(Dialect::Haproxy, &text)
}

/// `tcp-request connection` sees the sender of the PROXY header, and no client that it announces.
#[test]
fn senders_that_are_rejected_are_none_that_are_announced() {
    let reject = "tcp-request connection reject if { src 10.0.0.5 }";
    let toml = proxied(&format!("bind :443 ssl crt a accept-proxy\n{reject}\ndefault_backend b"));
    assert_eq!(lost(&toml), [7], "{toml}");
    assert!(toml.contains("deny = [\"10.0.0.5\"]"), "{toml}");
    let toml = proxied(&format!("bind :443 ssl crt a\n{reject}\ndefault_backend b"));
    assert!(lost(&toml).is_empty(), "{toml}");
    let expect = "tcp-request connection expect-proxy layer4";
    let toml = proxied(&format!("bind :443 ssl crt a\n{expect}\n{reject}\ndefault_backend b"));
    assert_eq!(lost(&toml), [8], "{toml}");
}

/// Options of servers are those of all `default-server` lines above them, one after the other.
#[test]
fn options_of_servers_add_up() {
    let sealed = "ssl verify required ca-file ca.pem verifyhost b";
    for text in [
        format!(
            "defaults\nmode tcp\ndefault-server send-proxy\ndefault-server {sealed}\nlisten l\n\
             bind :443 ssl crt a\ndefault-server weight 1\nserver s b:1\n"
        ),
        format!(
            "defaults one\nmode tcp\ndefault-server send-proxy\ndefaults two from one\n\
             default-server {sealed}\ndefaults three\nmode http\nlisten l from two\n\
             bind :443 ssl crt a\nserver s b:1\n"
        ),
    ] {
        let toml = toml(Dialect::Haproxy, &text);
        for key in ["\"tls://b:1\"", "proxy_header = \"v1\"", "roots = [\"ca.pem\"]"] {
            assert!(toml.contains(key), "{key} in\n{toml}");
        }
    }
}

#[test]
fn defaults_hold_for_who_names_them() {
    let text = "defaults one\ntimeout tunnel 7s\ndefaults two\nmode tcp\n\
                listen l\nbind :443 ssl crt a\nserver s b:1\n";
    assert!(!toml(Dialect::Haproxy, text).contains("7s"), "those without \"from\" begin anew");
    let text = "defaults two from one\nmode tcp\n";
    let mistake = convert_text(Dialect::Haproxy, Path::new("f"), text).unwrap_err().to_string();
    assert!(mistake.contains("f:1: there are no defaults of that name before it"), "{mistake}");
}

/// Remarks about a line that joins another's listener stand there.
#[test]
fn what_joins_a_listener_is_told_of_as_well() {
    let toml =
        proxied("bind 127.0.0.1:443 ssl crt a\nbind nowhere:444 ssl crt a\ndefault_backend b");
    assert_eq!(lost(&toml), [7], "{toml}");
    let addresses = ["127.0.0.1"; 300].join(":443,");
    let toml = proxied(&format!("bind {addresses}:443 ssl crt a\ndefault_backend b"));
    assert_eq!(lost(&toml), [6], "{toml}");
}

#[test]
fn a_list_of_certificates_that_cannot_be_read_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list");
    std::fs::write(&list, "a.pem\n\"b.pem\n").unwrap();
    let file = folder.path().join("f");
    let text = format!("listen l\nmode tcp\nbind :443 ssl crt-list {}\n", list.display());
    std::fs::write(&file, text).unwrap();
    let toml = convert(Dialect::Haproxy, &file).unwrap().toml;
    for line in [1, 2] {
        let told = format!("# NOT CARRIED OVER: {}:{line}\n", list.display());
        assert!(toml.contains(&told), "{toml}");
    }
}

/// HAProxy's sockets for each of these are those that `ss -ltn` lists.
#[test]
fn every_address_of_ipv6_takes_ipv4_as_well() {
    const BOTH: &str = "addresses = [\"[::]:443\", \"0.0.0.0:443\"]";
    const SIX: &str = "address = \"[::]:443\"";
    for (bind, expected) in [
        ("[::]:443", BOTH),
        (":::443", BOTH),
        ("[::0]:443", BOTH),
        ("ipv6@:443", BOTH),
        ("tcp6@*:443", BOTH),
        ("[::]:443 v4v6", BOTH),
        ("[::]:443 v6only", SIX),
        ("ipv6@*:443 v6only", SIX),
        ("[::]:443 v6only v4v6", SIX),
        (":443", "address = \"0.0.0.0:443\""),
    ] {
        let toml = proxied(&format!("bind {bind} ssl crt a\ndefault_backend b"));
        assert!(toml.contains(expected), "{bind}:\n{toml}");
    }
}

/// Without `sni` and `verifyhost` HAProxy asks for no name.
#[test]
fn a_name_that_backends_must_prove_anew_is_told_of() {
    for (options, lines) in [
        ("ssl verify required ca-file a", &[4][..]),
        ("ssl verify required ca-file a verifyhost b", &[]),
        ("ssl verify required ca-file a sni str(b)", &[]),
        ("ssl verify required ca-file a sni str(c) verifyhost b", &[4]),
        ("ssl verify none", &[]),
        ("ssl verify none ssl-max-ver TLSv1.1", &[4]),
        ("ssl verify none ssl-max-ver TLSv1.2", &[]),
    ] {
        let text = format!("listen l\nmode tcp\nbind :443 ssl crt a\nserver s b:1 {options}\n");
        let toml = toml(Dialect::Haproxy, &text);
        assert_eq!(lost(&toml), lines, "{options}:\n{toml}");
    }
}

#[test]
fn paths_begin_where_the_bases_say() {
    let text = "global\nca-base /ca\ncrt-base /crt\nlisten l\nmode tcp\n\
                bind :443 ssl crt own.pem ca-file @system-ca verify required\n\
                server s b:1 ssl verify required verifyhost b ca-file ca.pem crt c.pem\n";
    let toml = toml(Dialect::Haproxy, text);
    for key in [
        "certificates = [\"/crt/own.pem\"]",
        "roots = [\"system\"]",
        "roots = [\"/ca/ca.pem\"]",
        "client_certificate = \"/crt/c.pem\"",
    ] {
        assert!(toml.contains(key), "{key} in\n{toml}");
    }
}

/// One listener has one time for all of its routes.
#[test]
fn timeouts_of_other_backends_are_told_of() {
    let text = |first: &str, other: &str| {
        format!(
            "defaults\nmode tcp\ntimeout client 1m\nfrontend f\nbind :443 ssl crt a\n\
             use_backend c if {{ ssl_fc_sni c.example }}\n{first}\n\
             backend b\ntimeout server 2m\nserver s b:1\nbackend c\n{other}\nserver s c:1\n"
        )
    };
    let named = "default_backend b";
    for (first, other, lines) in [
        (named, "timeout server 2m", &[][..]),
        (named, "timeout server 3m", &[12]),
        (named, "timeout server 2m\ntimeout tunnel 1h", &[13]),
        (named, "", &[6]),
    ] {
        let toml = toml(Dialect::Haproxy, &text(first, other));
        assert_eq!(lost(&toml), lines, "{other}:\n{toml}");
    }
    let toml = toml(Dialect::Haproxy, &text("use_backend b if { ssl_fc_sni b.example }", ""));
    assert_eq!(lost(&toml), [4, 9], "what the first of them has not holds:\n{toml}");
}

/// HAProxy takes the first rule that holds, and Sealane the most specific name.
#[test]
fn the_first_rule_for_a_name_decides() {
    let routes = |rules: &str| {
        let toml = proxied(&format!("bind :443 ssl crt a alpn h2\n{rules}\ndefault_backend b"));
        let lines: Vec<_> = toml
            .lines()
            .filter(|line| line.starts_with("names = ") || *line == "alpn = [\"h2\"]")
            .skip(1)
            .map(ToOwned::to_owned)
            .collect();
        (lines.join("; "), lost(&toml))
    };
    let name = "use_backend b if { ssl_fc_sni a.example }";
    let of_h2 = "use_backend b if { ssl_fc_sni a.example } { ssl_fc_alpn h2 }";
    let wildcard = "use_backend b if { ssl_fc_sni_end .example }";
    let wildcard_of_h2 = "use_backend b if { ssl_fc_sni_end .example } { ssl_fc_alpn h2 }";
    const NAME: &str = "names = [\"a.example\"]";
    const WILDCARD: &str = "names = [\"*.example\"]";
    for (rules, expected, lines) in [
        ([name, of_h2], NAME.to_owned(), &[][..]),
        ([of_h2, name], format!("{NAME}; alpn = [\"h2\"]; {NAME}"), &[]),
        ([name, wildcard], format!("{NAME}; {WILDCARD}"), &[8]),
        ([wildcard, name], WILDCARD.to_owned(), &[7, 8]),
        ([wildcard, of_h2], WILDCARD.to_owned(), &[7, 8]),
        ([wildcard_of_h2, name], format!("{WILDCARD}; alpn = [\"h2\"]; {NAME}"), &[7, 8]),
    ] {
        assert_eq!(routes(&rules.join("\n")), (expected, lines.to_vec()), "{rules:?}");
    }
}

#[test]
fn what_is_disabled_stays_so() {
    for text in [
        "listen l\ndisabled\nmode tcp\nbind :443 ssl crt a\nserver s b:1\n",
        "defaults\nmode tcp\ndisabled\nlisten l\nbind :443 ssl crt a\nserver s b:1\n",
    ] {
        let toml = toml(Dialect::Haproxy, text);
        let has_listener = toml.lines().any(|line| line == "[[listener]]");
        assert!(!has_listener && !lost(&toml).is_empty(), "{toml}");
    }
    let text = "defaults\nmode tcp\ndisabled\nlisten l\nenabled\nbind :443 ssl crt a\n\
                server s b:1\n";
    assert!(toml(Dialect::Haproxy, text).contains("backends = [\"b:1\"]"));
    let text = "listen l\nmode tcp\nbind :443 ssl crt a\ndefault_backend b\n\
                backend b\ndisabled\nserver s b:1\n";
    let toml = toml(Dialect::Haproxy, text);
    assert!(!toml.contains("\nbackends = ") && lost(&toml) == [1, 6], "{toml}");
}

#[test]
fn what_nobody_sees_is_no_loss() {
    let text = "global\nlog /dev/log local0\nchroot /var/lib/haproxy\nuser haproxy\n\
                group haproxy\ndaemon\nstats socket /run/s\ndefaults\nlog global\nmode tcp\n\
                option tcplog\noption dontlognull\ntimeout client 1m\ntimeout server 1m\n\
                frontend f\nbind :443 ssl crt a\ndefault_backend b\nbackend b\nserver s b:1\n";
    let converted = convert_text(Dialect::Haproxy, Path::new("f"), text).unwrap();
    assert_eq!(converted.left_out, 0, "{}", converted.toml);
    assert!(converted.toml.contains("# f:4: user haproxy"), "{}", converted.toml);
}

/// Nothing is made up where HAProxy closes the connection.
#[test]
fn no_default_backend_is_left_to_operator() {
    let toml = proxied("bind :443 ssl crt a\nuse_backend b if { ssl_fc_sni b.example }");
    assert!(lost(&toml).contains(&5) && !toml.contains("127.0.0.1:1\""), "{toml}");
    assert!(toml.contains("NOT CARRIED OVER: listener[0].backends: is missing"), "{toml}");
}

#[test]
fn protocol_rules_lead_to_their_backend() {
    let rules = |rules: &str| {
        proxied(&format!("bind :443 ssl crt a alpn {ALPN}\n{rules}\ndefault_backend b"))
    };
    const ALPN: &str = "h2,smtp,http/1.1";
    let of_h2 = "use_backend b if { ssl_fc_alpn h2 }";
    let toml = rules(of_h2);
    assert!(toml.contains("[[listener.route]]\nalpn = [\"h2\"]\n"), "{toml}");
    // The first rule that holds counts, so a later name leads elsewhere with other protocols only.
    let toml = rules(&format!("{of_h2}\nuse_backend b if {{ ssl_fc_sni a.example }}"));
    let copied = "names = [\"a.example\"]\nalpn = [\"h2\"]";
    assert!(toml.contains(copied), "{toml}");
    assert!(lost(&toml).is_empty(), "{toml}");
    let more = "use_backend b if { ssl_fc_sni a.example } { ssl_fc_alpn h2 smtp }\n\
                use_backend b if { ssl_fc_sni a.example }";
    let toml = rules(&format!("{of_h2}\n{more}"));
    assert_eq!(toml.matches(copied).count(), 1, "{toml}");
    assert!(toml.contains("names = [\"a.example\"]\nalpn = [\"smtp\"]"), "{toml}");
    let toml = rules("acl h2 ssl_fc_alpn -i h2\nuse_backend b if h2 or { ssl_fc_alpn smtp }");
    assert!(toml.contains("\nalpn = [\"h2\", \"smtp\"]\n"), "{toml}");
    for rule in [
        "use_backend b unless { ssl_fc_alpn http/1.1 }",
        "use_backend b if { ssl_fc_alpn h2 } { src 10.0.0.0/8 }",
        "acl two ssl_fc_alpn -m beg h2\nuse_backend b if two",
    ] {
        let toml = rules(rule);
        assert!(!toml.contains("\nalpn = ") && toml.contains("no protocol is offered"), "{toml}");
    }
}

/// Bytes that are forwarded may be anything, so something must show that they are TLS.
#[test]
fn only_tls_is_passed_through() {
    let forwarded = |bind: &str, rules: &str, server: &str| {
        let text = format!(
            "defaults\nmode tcp\nfrontend f\nbind {bind}\n{rules}\ndefault_backend b\n\
             backend b\n{server}\n"
        );
        toml(Dialect::Haproxy, &text).contains("passthrough = true")
    };
    let delay = "tcp-request inspect-delay 5s";
    let hello = "tcp-request content accept if { req.ssl_hello_type 1 }";
    let named = "acl hello req_ssl_hello_type 1\ntcp-request content accept if hello";
    let mqtt = "tcp-request content reject unless { req.payload(0,0),mqtt_is_valid }";
    let server = "server s b:80";
    for (bind, rules, server, is_forwarded) in [
        (":1883", delay.to_owned(), server, false),
        (":1883", format!("{delay}\n{mqtt}"), server, false),
        (":1883", format!("{delay}\n{hello}"), server, true),
        (":1883", format!("{delay}\n{named}"), server, true),
        (":1883", String::new(), "server s b:1883", false),
        (":6443", String::new(), server, true),
        (":80", String::new(), "server s b:443", true),
        (":80", String::new(), "option ssl-hello-chk\nserver s b:80", true),
        (":80", String::new(), "server s b:80 check check-ssl verify none", true),
        (":443 ssl crt a", format!("{delay}\n{mqtt}"), server, false),
    ] {
        assert_eq!(forwarded(bind, &rules, server), is_forwarded, "{bind} {rules} {server}");
    }
}

#[test]
fn proxy_in_mode_http_stays_behind() {
    let text = "frontend w\nmode http\nbind :80\nbind 10.0.0.1:443 ssl crt a alpn h2\n\
                bind [::1]:443 ssl crt a alpn h2\nbind :8443 ssl crt b\n\
                redirect scheme https unless { ssl_fc }\nuse_backend c if { dst_port 10443 }\n\
                listen other\nmode http\nbind :10443\nlisten s\nmode http\nbind :90\n\
                stats enable\n";
    let toml = toml(Dialect::Haproxy, text);
    assert_eq!(lost(&toml), [3, 4, 5, 6, 7, 9], "{toml}");
    for part in [
        "plain = \"redirect\"",
        "addresses = [\"10.0.0.1:443\", \"[::1]:443\"]",
        "backends = [\"127.0.0.1:10444\"]",
        "\"bind 127.0.0.1:10444 accept-proxy\"",
        "backends = [\"127.0.0.1:18443\"]",
        "this address stays with HAProxy",
        "proxy_header = \"v2\"",
    ] {
        assert!(toml.contains(part), "{part} in\n{toml}");
    }
}

/// HAProxy loads the key from the file next to a certificate that has none.
#[test]
fn key_beside_certificate_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let (chain, key) = ("-----BEGIN CERTIFICATE-----\n", "-----BEGIN EC PRIVATE KEY-----\n");
    write("a.pem", chain);
    write("a.pem.key", key);
    write("b.pem", &format!("{chain}{key}"));
    write("b.pem.key", key);
    write("c.rsa", &format!("{chain}{key}"));
    write("c.ecdsa", chain);
    write("c.ecdsa.key", key);
    write("b.pem.ocsp", "");
    let at = folder.path().display();
    let certificates = |global: &str, rest: &str| {
        let file = folder.path().join("haproxy.cfg");
        let text = format!("{global}listen l\nmode tcp\nserver s b:1\nbind :443 ssl {rest}\n");
        std::fs::write(&file, text).unwrap();
        convert(Dialect::Haproxy, &file).unwrap().toml.replace(&format!("{at}/"), "")
    };
    let pair = "certificates = [{ chain = \"a.pem\", key = \"a.pem.key\" }]";
    assert!(certificates("", &format!("crt {at}/a.pem")).contains(pair));
    let none = "global\nssl-load-extra-files none\n";
    assert!(certificates(none, &format!("crt {at}/a.pem")).contains("certificates = [\"a.pem\"]"));
    let toml = certificates("", &format!("crt {at}/b.pem"));
    assert!(toml.contains("certificates = [\"b.pem\"]") && toml.contains("b.pem.ocsp"), "{toml}");
    let toml = certificates("", &format!("crt {at}/c"));
    let second = "{ chain = \"c.ecdsa\", key = \"c.ecdsa.key\" }";
    assert!(toml.contains("\"c.rsa\",") && toml.contains(second), "{toml}");
    write("list", "a.pem\n");
    let list = format!("crt-list {at}/list");
    assert!(certificates(&format!("global\ncrt-base {at}\n"), &list).contains(pair));
}

#[test]
fn shares_and_checks_of_servers_are_kept() {
    let with = |backend: &str| {
        let text = format!("listen l\nmode tcp\nbind :443 ssl crt a\n{backend}");
        toml(Dialect::Haproxy, &text)
    };
    let toml =
        with("default-server inter 9s\nserver a a:1 check weight 3\nserver b b:1 check backup\n");
    for part in [
        "\"a:1\", weight = 3 }",
        "\"b:1\", backup = true }",
        "[listener.check]\nevery = \"9s\"\ntimeout = \"9s\"\nrise = 2\nfall = 3\n",
    ] {
        assert!(toml.contains(part), "{part} in\n{toml}");
    }
    assert!(lost(&toml).is_empty(), "{toml}");
    let toml = with("server a a:1 check\nserver b b:1\n");
    assert!(lost(&toml) == [5] && toml.contains("[listener.check]"), "{toml}");
    assert!(!with("server a a:1\n").contains("[listener.check]"));
    let toml = with("option tcpka\nclitcpka-idle 9s\nserver a a:1\n");
    assert!(toml.contains("keepalive = { idle = \"9s\", every = \"75s\", count = 9 }"), "{toml}");
    // Another option takes nothing of the defaults away.
    let text = "defaults\nmode tcp\noption tcpka\nlisten l\noption tcplog\n\
                bind :443 ssl crt a\nserver a a:1\n";
    let toml = super::toml(Dialect::Haproxy, text);
    assert!(toml.contains("keepalive = "), "{toml}");
}

/// HAProxy chooses by the address's order of protocols, not by the order of rules.
#[test]
fn order_of_protocols_is_that_of_the_address() {
    let routes = |alpn: &str, rules: &str| {
        let toml = proxied(&format!("bind :443 ssl crt a alpn {alpn}\n{rules}\ndefault_backend b"));
        assert!(lost(&toml).is_empty(), "{toml}");
        let (_, routes) = toml.split_once("[[listener.route]]").unwrap_or_default();
        keys(routes, &["backends"])
    };
    let h2 = "use_backend b if { ssl_fc_alpn h2 }";
    const BOTH: &str = "alpn = [\"http/1.1\"]; alpn = [\"h2\"]";
    assert_eq!(routes("h2,http/1.1", h2), "alpn = [\"h2\"]");
    assert_eq!(routes("http/1.1,h2", h2), BOTH);
    let both = "use_backend b if { ssl_fc_alpn h2 }\nuse_backend b if { ssl_fc_alpn http/1.1 }";
    assert_eq!(routes("http/1.1,h2", both), BOTH);
    let named = "use_backend b if { ssl_fc_alpn h2 } { ssl_fc_sni a.b }";
    let expected = "names = [\"a.b\"]; alpn = [\"http/1.1\"]; names = [\"a.b\"]; alpn = [\"h2\"]";
    assert_eq!(routes("http/1.1,h2", named), expected);
    assert_eq!(routes("http/1.1", named), "", "HAProxy never offers it");
}

#[test]
fn checks_in_tls_are_kept_or_reported() {
    let with = |server: &str| {
        let text = format!("listen l\nmode tcp\nbind :443 ssl crt a\nserver s b:1 {server}\n");
        let toml = toml(Dialect::Haproxy, &text);
        (toml.lines().any(|line| line == "kind = \"tls\""), lost(&toml) == [4])
    };
    let tls = "ssl verify required ca-file c verifyhost b";
    assert_eq!(with(&format!("{tls} check")), (true, false));
    assert_eq!(with(&format!("{tls} check check-ssl")), (true, false));
    assert_eq!(with(&format!("{tls} check no-check-ssl")), (false, true));
    assert_eq!(with("check check-ssl verify none"), (false, true));
    assert_eq!(with("check"), (false, false));
    assert_eq!(with("check-ssl"), (false, false), "there is no check");
}
