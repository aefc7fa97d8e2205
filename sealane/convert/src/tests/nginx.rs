//! nginx: access rules, and other settings that must not be lost in conversion.

use super::*;

/// The directives of a server, converted, and the lines that are reported as lost.
fn server(directives: &str, beside: &str) -> (String, Vec<usize>) {
    let text = format!(
        "stream {{ {beside}\nserver {{\nlisten 443 ssl;\nssl_certificate a;\n\
         ssl_protocols TLSv1.3;\nproxy_pass b:1;\n{directives}}} }}"
    );
    let toml = toml(Dialect::NginxStream, &text);
    (toml.clone(), lost(&toml))
}

/// nginx takes the first rule that matches, and looks at none behind "all".
#[test]
fn who_may_come_is_who_may_come_there() {
    const NOBODY: &str = "deny = [\"0.0.0.0/0\", \"::/0\"]";
    for (rules, keys, lines) in [
        (
            "deny 10.0.0.1;\nallow 10.0.0.0/8;\ndeny all;\n",
            "allow = [\"10.0.0.0/8\"]; deny = [\"10.0.0.1\"]",
            &[][..],
        ),
        ("allow 10.0.0.0/8;\ndeny all;\nallow 192.168.0.0/16;\n", "allow = [\"10.0.0.0/8\"]", &[]),
        ("deny all;\n", NOBODY, &[]),
        ("deny 10.0.0.0/8;\ndeny all;\n", NOBODY, &[]),
        ("allow unix:;\ndeny all;\n", NOBODY, &[7]),
        ("deny all;\nallow 10.0.0.0/8;\n", NOBODY, &[]),
        ("allow 10.0.0.0/8;\n", "", &[]),
        ("allow 10.0.0.0/8;\nallow all;\n", "", &[]),
        ("allow all;\ndeny 10.0.0.0/8;\n", "", &[]),
        ("deny 10.0.0.0/8;\n", "deny = [\"10.0.0.0/8\"]", &[]),
        ("deny 10.0.0.0/8;\nallow all;\ndeny all;\n", "deny = [\"10.0.0.0/8\"]", &[]),
        ("allow 10.0.0.1;\ndeny 10.0.0.0/8;\n", "deny = [\"10.0.0.0/8\"]", &[8]),
        ("allow 10.0.0.1;\ndeny 10.0.0.1;\ndeny all;\n", "allow = [\"10.0.0.1\"]", &[]),
        (
            "allow 10.0.0.1;\ndeny 10.0.0.0/8;\nallow 192.168.0.0/16;\ndeny all;\n",
            "allow = [\"10.0.0.1\", \"192.168.0.0/16\"]; deny = [\"10.0.0.0/8\"]",
            &[8],
        ),
    ] {
        let (toml, lost) = server(rules, "");
        assert_eq!(access(&toml), keys, "{toml}");
        assert_eq!(lost, lines, "{toml}");
    }
}

/// Once a server has a rule, nginx ignores all rules outside of it.
#[test]
fn rules_beside_a_server_hold_where_it_has_none() {
    let beside = "allow 10.0.0.0/8; deny all;";
    let (toml, _) = server("", beside);
    assert_eq!(access(&toml), "allow = [\"10.0.0.0/8\"]");
    let (toml, _) = server("deny 192.0.2.1;\n", beside);
    assert_eq!(access(&toml), "deny = [\"192.0.2.1\"]");
    let (toml, _) = server("allow 192.0.2.1;\n", beside);
    assert_eq!(access(&toml), "");
}

/// Without `set_real_ip_from` rules are about the sender of the PROXY header.
#[test]
fn rules_about_senders_are_none_about_clients() {
    let proxied = |rules: &str| {
        let text = format!(
            "stream {{ server {{\nlisten 443 ssl proxy_protocol;\nssl_certificate a;\n\
             ssl_protocols TLSv1.3;\nproxy_pass b:1;\n{rules}}} }}"
        );
        let toml = toml(Dialect::NginxStream, &text);
        (access(&toml), lost(&toml))
    };
    let anybody = "accept_proxy = \"required\"; proxy_from = [\"0.0.0.0/0\", \"::/0\"]; \
                   allow_anybody_to_claim_an_address = true";
    let one = "accept_proxy = \"required\"; proxy_from = [\"10.0.0.5\"]";
    for (rules, keys, lines) in [
        ("", anybody.to_owned(), &[2][..]),
        ("allow 10.0.0.5;\ndeny all;\n", one.to_owned(), &[2]),
        ("deny 10.0.0.5;\n", format!("{anybody}; deny = [\"10.0.0.5\"]"), &[2, 6]),
        ("deny all;\n", format!("{anybody}; deny = [\"0.0.0.0/0\", \"::/0\"]"), &[2, 6]),
        ("set_real_ip_from 10.0.0.5;\n", one.to_owned(), &[6]),
        (
            "set_real_ip_from 10.0.0.5;\nallow 192.0.2.0/24;\ndeny all;\n",
            format!("{one}; allow = [\"192.0.2.0/24\"]"),
            &[6, 7],
        ),
    ] {
        assert_eq!(proxied(rules), (keys, lines.to_vec()), "{rules}");
    }
}

/// Backends must prove the name in `proxy_pass`, unless another is set.
#[test]
fn backends_prove_the_name_that_nginx_wants() {
    let of = |group: &str, more: &str| {
        let text = format!(
            "stream {{ upstream {group} {{ server 127.0.0.1:1; }} server {{ listen 443 ssl;\n\
             ssl_certificate a;\nssl_protocols TLSv1.3;\nproxy_pass {group}; proxy_ssl on;\n\
             proxy_ssl_trusted_certificate ca; {more} }} }}"
        );
        toml(Dialect::NginxStream, &text)
    };
    let verified = "proxy_ssl_verify on;";
    assert!(of("app.example", verified).contains("server_name = \"app.example\""));
    let named = of("app.example", "proxy_ssl_verify on; proxy_ssl_name b.example;");
    assert!(named.contains("server_name = \"b.example\""), "{named}");
    let toml = of("my_group!", verified);
    assert!(!toml.contains("server_name =") && lost(&toml) == [1], "{toml}");
    assert!(!of("app.example", "").contains("server_name ="));
}

/// There, names have any depth; and there are none without `hostnames`.
#[test]
fn wildcards_of_maps_are_deeper() {
    let of = |entries: &str| {
        let text = format!(
            "stream {{ map $ssl_server_name $to {{\ndefault b:1;\n{entries}}}\n\
             server {{ listen 443 ssl; ssl_certificate a; ssl_protocols TLSv1.3;\n\
             proxy_pass $to; }} }}"
        );
        lost(&toml(Dialect::NginxStream, &text))
    };
    assert!(of("a.example c:1;\n").is_empty());
    assert_eq!(of("*.example c:1;\nhostnames;\n"), [3]);
    assert_eq!(of("hostnames;\n.example c:1;\n"), [4]);
    assert_eq!(of("*.example c:1;\n"), [3]);
}

#[test]
fn what_nobody_sees_is_no_loss() {
    let text = "user www-data;\npid /run/nginx.pid;\nerror_log /var/log/e;\n\
                events { worker_connections 768; }\nstream { server { listen 443 ssl;\n\
                ssl_certificate a; ssl_protocols TLSv1.3; proxy_pass b:1; } }";
    let converted = convert_text(Dialect::NginxStream, Path::new("f"), text).unwrap();
    assert_eq!(converted.left_out, 0, "{}", converted.toml);
    assert!(converted.toml.contains("# f:1: user www-data;"), "{}", converted.toml);
}

/// The keys about access and trusted senders.
fn access(toml: &str) -> String {
    keys(toml, &["address", "certificates", "versions", "backends", "idle_timeout"])
}
