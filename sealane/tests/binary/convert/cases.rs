//! The files, what is looked at, and what differs on purpose.

use std::path::{Path, PathBuf};

use super::probe::Opening;
use super::probe::Opening::{Plain, Postgres, Proxy, Tls};

/// A file.
pub(super) struct Case {
    /// Aspects that differ, as the comments in what comes of the file say.
    pub(super) differs: &'static [&'static str],
    /// Ports, and how clients come there.
    pub(super) doors: &'static [(u16, Opening)],
    /// Aspects of which Sealane has all that the other has, and more.
    pub(super) has_more: &'static [&'static str],
    /// In `sealane/tests/convert`, below the name of its dialect.
    pub(super) file: &'static str,
}

const fn case(
    file: &'static str,
    doors: &'static [(u16, Opening)],
    has_more: &'static [&'static str],
    differs: &'static [&'static str],
) -> Case {
    Case { differs, doors, file, has_more }
}

/// Where the files are.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/convert")
}

const ONE: &[(u16, Opening)] = &[(4431, Tls)];

/// All of them. hitch has no ChaCha20 in TLS 1.2 unless it is told to; and OpenSSL wants the curve
/// of a certificate among the groups of a client of TLS 1.2, which rustls does not.
pub(super) const CASES: [Case; 65] = [
    case("haproxy/acls.cfg", ONE, &[], &[]),
    case("haproxy/behind-balancer.cfg", &[(4431, Proxy)], &[], &[]),
    case("haproxy/client-mode.cfg", &[(4431, Plain)], &[], &[]),
    // After https://docs.haproxy.org/2.6/configuration.html#req.ssl_sni
    case("haproxy/documented.cfg", ONE, &[], &[]),
    case("haproxy/everything.cfg", ONE, &[], &[]),
    // After https://docs.haproxy.org/2.6/configuration.html#crt-list
    // One of HTTP/2 that no name leads elsewhere, and one of HTTP/1.1.
    case("haproxy/h2-split.cfg", ONE, &[], &[]),
    // Another test checks HAProxy behind Sealane.
    case("haproxy/in-front.cfg", &[], &[], &[]),
    case("haproxy/kubernetes.cfg", ONE, &[], &[]),
    case("haproxy/list.cfg", ONE, &[], &[]),
    case("haproxy/listen.cfg", ONE, &[], &[]),
    case("haproxy/modern.cfg", ONE, &[], &[]),
    case("haproxy/mqtt.cfg", ONE, &[], &[]),
    case("haproxy/mutual.cfg", ONE, &[], &[]),
    case("haproxy/names.cfg", ONE, &[], &[]),
    case("haproxy/openshift.cfg", ONE, &[], &[]),
    case("haproxy/passed-on.cfg", ONE, &[], &[]),
    case("haproxy/plain.cfg", ONE, &[], &[]),
    case("haproxy/sealed.cfg", ONE, &[], &[]),
    case("haproxy/standby.cfg", ONE, &[], &[]),
    case("haproxy/strict.cfg", ONE, &[], &[]),
    case("haproxy/unix.cfg", &[(4431, Tls), (4432, Tls), (4433, Tls)], &[], &[]),
    // A header of version 1 goes on as version 2.
    case("hitch/behind-balancer.conf", &[(4431, Proxy)], &["suites"], &["header"]),
    // After https://github.com/varnish/hitch/blob/master/docs/configuration.md
    case("hitch/documented.conf", ONE, &["suites"], &[]),
    case("hitch/everything.conf", ONE, &[], &[]),
    case("hitch/folder.conf", ONE, &["suites"], &[]),
    case("hitch/intermediate.conf", ONE, &[], &[]),
    case("hitch/modern.conf", ONE, &[], &[]),
    case("hitch/mutual.conf", ONE, &["suites"], &[]),
    case("hitch/names.conf", ONE, &["suites"], &[]),
    case("hitch/plain.conf", ONE, &["suites"], &[]),
    // Who asks for no name is refused as well.
    case("hitch/strict.conf", ONE, &["suites"], &["names"]),
    case("hitch/two-doors.conf", &[(4431, Tls), (4432, Tls)], &["suites", "groups"], &[]),
    // After https://github.com/varnish/hitch/blob/master/docs/proxy-protocol.md
    case("hitch/varnish.conf", ONE, &["suites"], &[]),
    case("hitch/versions.conf", ONE, &[], &[]),
    // After https://nginx.org/en/docs/stream/ngx_stream_realip_module.html
    case("nginx-stream/behind-balancer.conf", &[(4431, Proxy)], &[], &[]),
    case("nginx-stream/by-name.conf", ONE, &[], &[]),
    case("nginx-stream/client-mode.conf", &[(4431, Plain)], &[], &[]),
    // After https://nginx.org/en/docs/stream/ngx_stream_ssl_preread_module.html
    case("nginx-stream/documented-names.conf", ONE, &[], &[]),
    // After https://nginx.org/en/docs/stream/ngx_stream_ssl_module.html
    case("nginx-stream/documented.conf", ONE, &[], &[]),
    case("nginx-stream/everything.conf", ONE, &[], &[]),
    case("nginx-stream/included.conf", ONE, &[], &[]),
    case("nginx-stream/kinds.conf", &[(4431, Tls), (4432, Tls)], &[], &[]),
    case("nginx-stream/modern.conf", ONE, &[], &[]),
    case("nginx-stream/mutual.conf", ONE, &[], &[]),
    // Sealane wants backends for other names: the operator names them.
    case("nginx-stream/no-default.conf", &[], &[], &[]),
    case("nginx-stream/passed-on.conf", ONE, &[], &[]),
    // nginx 1.22 speaks TLS 1.3 where it is told to.
    case("nginx-stream/plain.conf", ONE, &["suites", "groups"], &["TLS 1.3"]),
    case("nginx-stream/sealed.conf", ONE, &[], &[]),
    case("nginx-stream/standby.conf", ONE, &[], &[]),
    case("nginx-stream/suites.conf", ONE, &[], &[]),
    // After https://docs.nginx.com/nginx/admin-guide/security-controls/terminating-ssl-tcp/
    case("nginx-stream/groups.conf", ONE, &[], &[]),
    case("stunnel/client-mode.conf", &[(4431, Plain)], &[], &[]),
    // After https://www.stunnel.org/static/stunnel.html
    case("stunnel/documented.conf", &[(4431, Tls), (4432, Tls), (4433, Plain)], &[], &[]),
    case("stunnel/everything.conf", ONE, &[], &[]),
    // After https://www.stunnel.org/static/stunnel.html (failover)
    case("stunnel/failover.conf", ONE, &[], &[]),
    case("stunnel/included.conf", ONE, &[], &[]),
    case("stunnel/mutual.conf", ONE, &[], &[]),
    // A certificate is served for all names in it.
    case("stunnel/names.conf", ONE, &[], &["names"]),
    case("stunnel/pair.conf", &[(4431, Tls), (4432, Tls)], &[], &[]),
    // A certificate as `openssl req -x509` makes it.
    case("stunnel/pinned.conf", &[(4431, Plain)], &[], &[]),
    case("stunnel/plain.conf", ONE, &[], &[]),
    case("stunnel/postgres.conf", &[(4431, Postgres)], &[], &[]),
    case("stunnel/proxy.conf", ONE, &[], &[]),
    case("stunnel/revoked.conf", ONE, &[], &[]),
    case("stunnel/versions.conf", &[(4431, Tls), (4432, Tls), (4433, Tls)], &["groups"], &[]),
];
