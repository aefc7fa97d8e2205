//! Our client against a real server: Redis with TLS, through the example that users read.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

#[expect(dead_code, reason = "its main is not called")]
#[path = "../examples/redis_pool.rs"]
mod redis_pool;

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use redis_pool::ping_all;

/// Redis, and the files of its certificate.
struct Redis {
    child: Child,
    folder: TempDir,
    reserved: ReservedPort,
}

impl Redis {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        write("ca.pem", authority.pem());
        write("redis.crt", certificate.pem());
        write("redis.key", key.serialize_pem());
        let reserved = ReservedPort::on_loopback().unwrap();
        let mut child = spawn(&folder, reserved.address().port());
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(reserved.address()).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "redis-server ended at once");
            assert!(Instant::now() < deadline, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, folder, reserved }
    }

    fn address(&self, host: &str) -> String {
        format!("{host}:{}", self.reserved.address().port())
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn spawn(folder: &TempDir, port: u16) -> Child {
    let port = port.to_string();
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", "0", "--tls-port", &port])
        .args(["--tls-cert-file", "redis.crt", "--tls-key-file", "redis.key"])
        .args(["--tls-ca-cert-file", "ca.pem", "--tls-auth-clients", "no"])
        .args(["--save", "", "--daemonize", "no"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server starts; install the package redis-server")
}

#[test]
fn pooled_clients_with_equal_options_share_one_context() {
    let redis = Redis::start();
    let done = ping_all(&redis.address("localhost"), &redis.file("ca.pem"), CLIENTS).unwrap();
    assert_eq!((done.pings, done.connections), (2 * CLIENTS, CLIENTS));
    let contexts = done.contexts;
    assert_eq!((contexts.built, contexts.certificates_parsed, contexts.freed), (1, 1, 1));
}

#[test]
fn a_mistake_is_named_and_redis_serves_on() {
    let redis = Redis::start();
    fs::write(redis.file("empty.pem"), "").unwrap();
    fs::write(redis.file("cut.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n").unwrap();
    let stranger = CertifiedIssuer::self_signed(stranger(), KeyPair::generate().unwrap()).unwrap();
    fs::write(redis.file("stranger.pem"), stranger.pem()).unwrap();
    let cases = [
        ("localhost", "empty.pem", "no certificate in it"),
        ("localhost", "cut.pem", "cut.pem:1: the section that begins here has no END line"),
        ("localhost", "stranger.pem", "none of the trusted roots issued it"),
        ("127.0.0.1", "ca.pem", "it is not for 127.0.0.1 but for localhost"),
    ];
    for (host, roots, expected) in cases {
        let failed = ping_all(&redis.address(host), &redis.file(roots), 1).unwrap_err();
        assert!(failed.to_string().contains(expected), "{failed}");
        ping_all(&redis.address("localhost"), &redis.file("ca.pem"), 1).unwrap();
    }
}

fn stranger() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "stranger");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

const CLIENTS: usize = 50;
/// Longest wait for Redis to listen.
const PATIENCE: Duration = Duration::from_secs(20);
