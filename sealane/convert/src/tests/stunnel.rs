//! stunnel: verification, and services that share an address, must not be lost in conversion.

use super::*;

/// A service with these options behind three lines, converted, and the lines that are lost.
fn service(options: &str) -> (String, Vec<usize>) {
    let toml =
        toml(Dialect::Stunnel, &format!("[a]\naccept = 1.1.1.1:443\nconnect = b:1\n{options}"));
    let lost = lost(&toml);
    (toml, lost)
}

/// A server always shows a certificate, so one that is verified "if present" is always verified.
#[test]
fn servers_are_verified_where_stunnel_verifies_them() {
    let anybody = "insecure_accept_any_certificate = true";
    for (options, accepts_anybody) in [
        ("", true),
        ("verify = 0\n", true),
        ("verify = 1\n", false),
        ("verify = 2\n", false),
        ("verify = 3\n", false),
        ("verifyChain = yes\n", false),
        ("verifyPeer = yes\n", false),
        ("requireCert = yes\n", true),
    ] {
        let (toml, _) = service(&format!("client = yes\ncheckHost = b\n{options}"));
        assert_eq!(toml.contains(anybody), accepts_anybody, "{toml}");
    }
}

/// The last of the options about a client's certificate holds, as in stunnel 5.68.
#[test]
fn clients_show_certificates_where_stunnel_wants_them() {
    let none = "";
    let asked = "certificates = \"asked\"";
    let required = "certificates = \"required\"";
    for (options, expected, lines) in [
        ("", none, &[][..]),
        ("verify = 0\n", none, &[]),
        ("verify = 1\n", asked, &[6]),
        ("verify = 2\n", required, &[]),
        ("verify = 3\n", required, &[6]),
        ("verifyChain = yes\n", required, &[]),
        ("verifyChain = yes\nrequireCert = no\n", asked, &[6]),
        ("requireCert = no\nverifyChain = yes\n", required, &[]),
        ("verify = 1\nrequireCert = yes\n", required, &[]),
        ("requireCert = yes\n", required, &[6]),
    ] {
        let (toml, lost) = service(&format!("cert = a\nCAfile = c\n{options}"));
        let written = [asked, required].into_iter().find(|key| toml.contains(key));
        assert_eq!((written.unwrap_or(none), lost.as_slice()), (expected, lines), "{toml}");
    }
}

#[test]
fn every_address_of_ipv6_takes_ipv4_as_well() {
    let text = "[a]\naccept = :::443\nconnect = b:1\ncert = a\n";
    let both = "addresses = [\"[::]:443\", \"0.0.0.0:443\"]";
    assert!(toml(Dialect::Stunnel, text).contains(both));
}

/// Options for all names at an address are those of the service that has the address.
#[test]
fn what_has_no_place_in_a_route_is_told_of() {
    let services = |common: &str, primary: &str, secondary: &str| {
        let text = format!(
            "{common}\n[a]\naccept = 443\nconnect = b:1\ncert = a\n{primary}\n\
             [s]\nsni = a:s.example\nconnect = c:1\ncert = s\n{secondary}\n"
        );
        lost(&toml(Dialect::Stunnel, &text))
    };
    for (common, primary, secondary, lines) in [
        ("", "", "", &[][..]),
        ("", "", "ciphers = ECDHE+AESGCM", &[11]),
        ("", "", "ciphersuites = TLS_AES_128_GCM_SHA256", &[11]),
        ("", "", "curves = X25519", &[11]),
        ("", "", "TIMEOUTidle = 60", &[11]),
        ("", "", "TIMEOUTbusy = 60", &[11]),
        ("", "", "sslVersion = TLSv1.3", &[11]),
        ("", "", "protocol = pgsql", &[11]),
        ("", "", "protocol = proxy", &[]),
        ("", "", "accept = 444", &[11]),
        ("", "", "connect = d:1", &[11]),
        ("", "", "exec = /bin/true", &[11]),
        ("", "TIMEOUTidle = 60", "TIMEOUTidle = 60", &[]),
        ("TIMEOUTidle = 60", "", "", &[]),
        ("", "TIMEOUTidle = 60", "", &[8]),
        ("TIMEOUTidle = 60", "", "TIMEOUTidle = 61", &[11]),
    ] {
        let found = services(common, primary, secondary);
        assert_eq!(found, lines, "{common:?} {primary:?} {secondary:?}");
    }
}

#[test]
fn what_nobody_sees_is_no_loss() {
    let text = "setuid = stunnel4\npid = /run/s.pid\noutput = /var/log/s\ndebug = 5\n[a]\n\
                accept = 443\nconnect = b:1\ncert = a\n";
    let converted = convert_text(Dialect::Stunnel, Path::new("f"), text).unwrap();
    assert_eq!(converted.left_out, 0, "{}", converted.toml);
    assert!(converted.toml.contains("# f:1: setuid = stunnel4"), "{}", converted.toml);
}
