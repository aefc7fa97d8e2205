//! A running `sealane serve` on a machine of the fleet.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use sealane_reserved_port::ReservedPort;

use super::harness::agent::Home;
use super::harness::process::Process;
use super::harness::{serve, wait_for};

/// One that serves from the store of a home.
pub struct Serve {
    admin: ReservedPort,
    tls: ReservedPort,
    _backend: TcpListener,
    _process: Process,
}

impl Serve {
    pub fn start(home: &Home) -> Option<Self> {
        let port = || ReservedPort::on_loopback().unwrap();
        Self::start_at(home, port(), &port())
    }

    /// One that serves at `tls`, and answers authorities there and at `http`.
    pub fn start_at(home: &Home, tls: ReservedPort, http: &ReservedPort) -> Option<Self> {
        // There has to be a store before it is served.
        wait_for("a store", || home.store());
        let admin = ReservedPort::on_loopback().unwrap();
        let store = home.path("store");
        let backend = TcpListener::bind("127.0.0.1:0").unwrap();
        let text = format!(
            "lanes = 1\nstore_key = {{ file = {:?} }}\n[admin]\naddress = \"{}\"\n\
             [[listener]]\naddress = \"{}\"\nbackends = [\"{}\"]\n\
             certificates = [\"store:{}\"]\n[[listener]]\naddress = \"{}\"\n\
             plain = \"redirect\"\nacme_responder = \"store:{}\"\n",
            home.path("key"),
            admin.address(),
            tls.address(),
            backend.local_addr().unwrap(),
            store.display(),
            http.address(),
            store.display(),
        );
        let process = serve::start(home.folder.path(), &text)?;
        let serve = Self { admin, tls, _backend: backend, _process: process };
        wait_for("sealane serve", || serve.health().ends_with("ok\n").then_some(()));
        Some(serve)
    }

    /// What `/healthz` answers; nothing while nobody does.
    pub fn health(&self) -> String {
        self.told("/healthz")
    }

    /// What it answers at a path; nothing while nobody does.
    fn told(&self, path: &str) -> String {
        let Ok(mut client) = TcpStream::connect(self.admin.address()) else { return String::new() };
        let asked = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        client.write_all(asked.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The certificate that is shown to whoever asks for `name`, as PEM without its line breaks.
    pub fn shown(&self, name: &str) -> String {
        let mut command = Command::new("openssl");
        command.args(["s_client", "-connect", &self.tls.address().to_string()]);
        let output = command.args(["-servername", name]).stdin(Stdio::null()).output().unwrap();
        body(&String::from_utf8_lossy(&output.stdout))
    }
}

/// The first certificate of a text, without its line breaks.
pub fn body(text: &str) -> String {
    let begun = text.split_once("-----BEGIN CERTIFICATE-----").map_or("", |(_, rest)| rest);
    let ended = begun.split_once("-----END CERTIFICATE-----").map_or("", |(body, _)| body);
    ended.split_whitespace().collect()
}
