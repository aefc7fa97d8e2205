//! Clients that a file keeps out: no dialect lets them in without a word.

use super::*;

const MORE: &str = "#   admits more clients than the original: ";

/// The result for a frontend of HAProxy with `rules`, on an address with `options`.
fn ruled(options: &str, rules: &str) -> String {
    let text = format!(
        "defaults\nmode tcp\ntimeout client 1m\ntimeout server 1m\nfrontend f\n\
         bind :443 {options}\n{rules}\ndefault_backend b\nbackend b\nserver s b:1\n"
    );
    toml(Dialect::Haproxy, &text)
}

/// The keys about access, without those that hold for all.
fn access(toml: &str) -> String {
    let is_about = |line: &&str| {
        ["allow = ", "deny = ", "proxy_from = "].iter().any(|key| line.starts_with(key))
    };
    toml.lines().filter(is_about).collect::<Vec<_>>().join("; ")
}

const A: &str = "allow = [\"10.0.0.0/8\"]";
const NONE: &str = "deny = [\"0.0.0.0/0\", \"::/0\"]";

#[test]
fn lists_of_accepted_networks_are_kept() {
    for (rules, expected) in [
        ("reject unless { src 10.0.0.0/8 }", A),
        ("reject if !{ src 10.0.0.0/8 }", A),
        ("reject if ! { src 10.0.0.0/8 }", A),
        ("silent-drop unless { src -m ip 10.1.2.3/255.0.0.0 }", A),
        ("accept if { src 10.0.0.0/8 }\ntcp-request connection reject", A),
        ("accept if { src 10.0.0.0/8 }\ntcp-request connection reject if TRUE", A),
        ("reject unless { src 10.0.0.0/8 }\ntcp-request content reject if !{ src 10.0.0.0/8 }", A),
        (
            "reject unless { src 0.0.0.0/0 }\ntcp-request session reject unless { src 10.0.0.0/8 }",
            A,
        ),
        ("reject unless { src -f a }", "allow = [\"file:a\"]"),
        ("reject unless { src -f a 10.0.0.1 }", "allow = [\"file:a\", \"10.0.0.1\"]"),
        ("reject if !LOCALHOST", "allow = [\"127.0.0.0/8\"]"),
        (
            "reject unless { src 10.0.0.0/8 } or { src 192.0.2.1 }",
            "allow = [\"10.0.0.0/8\", \"192.0.2.1\"]",
        ),
        ("reject if !{ src 10.0.0.0/8 } !{ src ::1 }", "allow = [\"10.0.0.0/8\", \"::1\"]"),
        ("reject unless !{ src 192.0.2.1 }", "deny = [\"192.0.2.1\"]"),
        (
            "accept unless { src 192.0.2.1 }\ntcp-request connection reject",
            "deny = [\"192.0.2.1\"]",
        ),
        (
            "accept unless { src 10.0.0.0/8 }\n\
             tcp-request connection reject if { src 10.1.0.0/16 192.0.2.1 }",
            "deny = [\"10.1.0.0/16\"]",
        ),
        (
            "accept unless { src 10.0.0.0/8 }\n\
             tcp-request connection reject if { src 192.0.2.1 }",
            "",
        ),
        ("reject", NONE),
        ("accept if { src 10.0.0.1 }\ntcp-request session reject", NONE),
    ] {
        let toml = ruled("ssl crt a", &format!("tcp-request connection {rules}"));
        assert_eq!(access(&toml), expected, "{rules}\n{toml}");
        assert!(lost(&toml).is_empty(), "{rules}\n{toml}");
    }
    let named = "acl own src 10.0.0.0/8\ntcp-request connection reject if !own";
    assert_eq!(access(&ruled("ssl crt a", named)), A);
    let text = "defaults d\nmode tcp\ntcp-request connection reject unless { src 10.0.0.0/8 }\n\
                listen l from d\nbind :443 ssl crt a\nserver s b:1\n\
                tcp-request content accept\n";
    assert_eq!(access(&toml(Dialect::Haproxy, text)), A);
}

#[test]
fn rules_that_are_not_kept_admit_more() {
    for rules in [
        "connection reject unless { src localhost }",
        "connection reject unless { src,ipmask(24) 10.0.0.0 }",
        "connection reject unless { src -m str 10.0.0.1 }",
        "connection reject unless { src -M -f a }",
        "connection reject if { src_conn_rate gt 9 }",
        "connection reject if !{ src 10.0.0.1 } or !{ src 10.0.0.2 }",
        "connection reject unless { src -f a }\ntcp-request session reject unless { src -f b }",
        "content reject unless { ssl_c_used }",
        "content reject unless { src 10.0.0.1 } { dst_port 443 }",
        "connection lua.guard",
        "connection set-src hdr(a)",
    ] {
        let toml = ruled("ssl crt a", &format!("tcp-request {rules}"));
        assert!(toml.contains(MORE), "{rules}\n{toml}");
        assert!(toml.contains("# It admits more clients than the original.\n"), "{toml}");
        assert!(!lost(&toml).is_empty(), "{rules}\n{toml}");
    }
    for (options, rules) in [
        ("ssl crt a interface eth0", ""),
        ("ssl crt a ca-file c verify optional", ""),
        ("ssl crt a", "use_backend other unless { src 10.0.0.0/8 }"),
    ] {
        let toml = ruled(options, rules);
        assert!(toml.contains(MORE), "{options} {rules}\n{toml}");
    }
    let text = "listen l\nmode tcp\nbind /run/a ssl crt a\nserver s b:1\n\
                tcp-request connection reject unless { src 10.0.0.0/8 }\n";
    assert!(
        toml(Dialect::Haproxy, text).contains(MORE),
        "clients of a unix socket have no network"
    );
    let text = "frontend f\nmode tcp\nbind :443 ssl crt a\ndefault_backend b\nbackend b\n\
                server s b:1\ntcp-request content reject unless { src 10.0.0.0/8 }\n";
    assert!(toml(Dialect::Haproxy, text).contains(MORE), "a rule of a backend");
    let text = "frontend f\nmode http\nbind :443 ssl crt a\n\
                tcp-request connection reject unless { src 10.0.0.0/8 }\n";
    assert!(toml(Dialect::Haproxy, text).contains(MORE), "HAProxy would see Sealane there");
}

/// Before a PROXY header rules see its sender.
#[test]
fn accepted_senders_are_those_of_the_header() {
    let own = "tcp-request connection reject unless { src 10.0.0.0/8 }";
    let session = own.replace("connection", "session");
    const SENDERS: &str = "proxy_from = [\"10.0.0.0/8\"]";
    let with = |rules: &str| access(&ruled("ssl crt a accept-proxy", rules));
    assert_eq!(with(own), SENDERS);
    assert!(lost(&ruled("ssl crt a accept-proxy", own)).is_empty());
    let toml = ruled("ssl crt a accept-proxy", &session);
    assert_eq!(access(&toml), format!("proxy_from = [\"0.0.0.0/0\", \"::/0\"]; {A}"));
    assert!(toml.contains(MORE), "a header may announce no client:\n{toml}");
    let both = format!("{own}\ntcp-request connection expect-proxy layer4 if {{ src 10.0.0.1 }}");
    assert_eq!(access(&ruled("ssl crt a", &both)), "proxy_from = [\"10.0.0.1\"]");
    assert!(with("tcp-request connection reject").contains(NONE));
}

/// TLS that is forwarded begins with a ClientHello, and nothing else is.
#[test]
fn rules_about_a_hello_need_no_key() {
    let delay = "tcp-request inspect-delay 5s\ntcp-request content";
    for rules in [
        "accept if { req.ssl_hello_type 1 }\ntcp-request content reject",
        "reject unless { req.ssl_hello_type 1 }",
        "reject if !{ req_ssl_hello_type 1 }",
    ] {
        let toml = ruled("", &format!("{delay} {rules}"));
        assert!(access(&toml).is_empty() && lost(&toml).is_empty(), "{rules}\n{toml}");
    }
    let rules = format!(
        "{delay} reject unless {{ src 10.0.0.0/8 }}\n\
         tcp-request content accept if {{ req.ssl_hello_type 1 }}"
    );
    assert_eq!(access(&ruled("", &rules)), A);
}

/// The result for a configuration with a crt-list in a folder.
fn listed(list: &str, options: &str, rules: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display();
    for (name, text) in [("list", list), ("a.pem", ""), ("b.pem", "")] {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let file = folder.path().join("f");
    let text = format!(
        "global\ncrt-base {at}\nlisten l\nmode tcp\nbind :443 ssl crt-list {at}/list {options}\n\
         {rules}\nserver s b:1\nbackend c\nserver s c:1\n"
    );
    std::fs::write(&file, text).unwrap();
    convert(Dialect::Haproxy, &file).unwrap().toml.replace(&format!("{at}/"), "")
}

const CLIENTS: &str = "certificates = \"required\"\nroots = [\"ca\"]\n";
const OF_ROUTE: &str = "allow_other_names = true\n";

#[test]
fn client_certificates_of_a_list_are_kept() {
    let guard = "[verify required ca-file ca]";
    let toml = listed(&format!("a.pem {guard} a.example\n"), "", "");
    assert!(toml.contains(&format!("[listener.clients]\n{CLIENTS}")), "{toml}");
    let toml = listed("a.pem[verify required]\nb.pem [verify required]\n", "ca-file ca", "");
    assert!(toml.contains(&format!("[listener.clients]\n{CLIENTS}")), "{toml}");
    let list = format!("b.pem\na.pem {guard} a.example !b.example\n");
    let toml = listed(&list, "", "");
    let route = "[[listener.route]]\nnames = [\"a.example\"]\n";
    let notes = |toml: &str| -> String {
        toml.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
    };
    let clients = format!("[listener.route.clients]\n{CLIENTS}{OF_ROUTE}");
    assert!(notes(&toml).contains(&format!("{route}{clients}")), "{toml}");
    assert!(!toml.contains("unknown_names"), "{toml}");
    let rule = "use_backend c if { ssl_fc_sni a.example c.example }";
    let toml = notes(&listed(&list, "", rule));
    assert!(toml.contains(&format!("{route}backends = [\"c:1\"]\n{clients}")), "{toml}");
    assert!(toml.contains("names = [\"c.example\"]\nbackends = [\"c:1\"]\n"), "{toml}");
    let wildcard = list.replace("a.example", "*.example");
    let toml = notes(&listed(&wildcard, "", "use_backend c if { ssl_fc_sni a.example }"));
    for names in ["a.example\"]\nbackends = [\"c:1", "*.example"] {
        assert!(toml.contains(&format!("names = [\"{names}\"]\n{clients}")), "{names} in {toml}");
    }
    let first = format!("a.pem {guard} a.example\nb.pem\n");
    assert!(listed(&first, "", "").contains("unknown_names = \"refuse\""));
    // A certificate that is not here counts, and has its demand for its names.
    let toml = notes(&listed(&format!("gone.pem {guard} a.example\nb.pem\n"), "", ""));
    assert!(toml.contains(&format!("{route}{clients}")), "{toml}");
    assert!(!toml.contains("[listener.clients]"), "{toml}");
    assert!(listed("a.pem [ssl-min-ver TLSv1.3] a.example\n", "", "").contains(MORE));
    // A list that is not here has certificates without the demand of another list.
    let options = "crt-list gone ca-file ca verify required";
    let toml = notes(&listed("b.pem [verify required ca-file other] b.example\n", options, ""));
    assert!(toml.contains(&format!("[listener.clients]\n{CLIENTS}")), "{toml}");
    for list in [format!("b.pem\na.pem {guard}\n"), "b.pem\na.pem [verify optional] a.b\n".into()] {
        assert!(listed(&list, "", "").contains(MORE), "{list}");
    }
}

#[test]
fn other_programs_report_clients_they_keep_out() {
    let nginx = |rules: &str| {
        toml(
            Dialect::NginxStream,
            &format!(
                "stream {{ server {{ listen 443 ssl; ssl_certificate a; proxy_pass b:1; \
                 {rules} }} }}"
            ),
        )
    };
    for rules in [
        "deny example.com;",
        "js_access a;",
        "ssl_client_certificate c; ssl_verify_client optional;",
        "ssl_client_certificate c; ssl_verify_client on; ssl_verify_depth 1;",
    ] {
        assert!(nginx(rules).contains(MORE), "{rules}");
    }
    let stunnel = |options: &str| {
        toml(Dialect::Stunnel, &format!("[a]\naccept = 443\nconnect = 80\ncert = a\n{options}\n"))
    };
    for options in [
        "libwrap = yes",
        "PSKsecrets = a",
        "CAfile = c\nverifyChain = yes\ncheckEmail = a@b.example",
        "CAfile = c\nverifyPeer = yes",
    ] {
        assert!(stunnel(options).contains(MORE), "{options}");
    }
}
