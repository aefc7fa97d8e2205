//! An agent with a listener, its store, and clients with certificates.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use sealane_operator::{KeySource, create_key_file, sealing_keys};
use sealane_reserved_port::ReservedPort;
use sealane_store::{KeyedStore, Listed, Store};
use tempfile::TempDir;

use super::harness::process::Process;
use super::harness::wait_for;

/// A folder with everything that an agent and its clients need.
pub struct Site {
    pub folder: TempDir,
    pub port: ReservedPort,
    authority: Issuer<'static, KeyPair>,
    pub agent: Option<Process>,
}

impl Site {
    /// With a running agent that has these roles.
    pub fn start(roles: &str) -> Self {
        Self::start_with("", roles)
    }

    /// The same with more keys of `[push]`.
    pub fn start_with(keys: &str, roles: &str) -> Self {
        let mut site = Self::new();
        site.configure(keys, roles);
        site.run();
        site
    }

    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        create_key_file(&folder.path().join("store.key")).unwrap();
        let (authority, root) = authority("who vouches for clients");
        fs::write(folder.path().join("ca.pem"), root).unwrap();
        let site =
            Self { folder, port: ReservedPort::on_loopback().unwrap(), authority, agent: None };
        site.issue("listener", |params| {
            params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        });
        site
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn configure(&self, keys: &str, roles: &str) {
        let text = format!(
            "store = \"store\"\nstore_key = {{ file = \"store.key\" }}\n[push]\n\
             address = \"{}\"\ncertificate = \"listener.pem\"\nkey = \"listener.key\"\n\
             client_roots = [\"ca.pem\"]\n{keys}\n{roles}\n",
            self.port.address()
        );
        fs::write(self.path("agent.toml"), text).unwrap();
    }

    pub fn run(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = Command::new(BINARY);
        command.arg("--config").arg(self.path("agent.toml"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.agent = Some(Process::new(child.unwrap()));
        wait_for("the agent", || TcpStream::connect(self.address()).ok());
    }

    pub fn signal(&self, signal: Signal) {
        self.agent.as_ref().unwrap().signal(signal);
    }

    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Sockets that the agent has open.
    pub fn open_sockets(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.agent.as_ref().unwrap().id());
        let entries = fs::read_dir(folder).unwrap();
        let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|to| to.to_string_lossy().starts_with("socket:")).count()
    }

    pub fn said(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    pub fn wait_until_said(&self, words: &str) {
        wait_for(&format!("{words:?} in {}", self.said()), || {
            self.said().contains(words).then_some(())
        });
    }

    /// A certificate of this site's authority, in `NAME.pem`, with its key beside.
    pub fn issue(&self, file: &str, change: impl FnOnce(&mut CertificateParams)) {
        self.issue_by(&self.authority, file, change);
    }

    pub fn issue_by(
        &self,
        issuer: &Issuer<'static, KeyPair>,
        file: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        change(&mut params);
        let leaf = params.signed_by(&key, issuer).unwrap();
        fs::write(self.path(&format!("{file}.pem")), leaf.pem()).unwrap();
        let path = self.path(&format!("{file}.key"));
        fs::write(&path, key.serialize_pem()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(path, mode).unwrap();
    }

    /// A client's certificate with a DNS name, in files of that name.
    pub fn client(&self, name: &str) {
        self.issue(name, |params| {
            params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
        });
    }

    /// A list in `revoked.pem` that has one serial number.
    pub fn revoke(&self, serial: u64) {
        self.revoke_until(serial, 2099);
    }

    /// The same that ends with the beginning of a year.
    pub fn revoke_until(&self, serial: u64, year: i32) {
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: SerialNumber::from(serial),
                revocation_time: date_time_ymd(2024, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.authority).unwrap();
        fs::write(self.path("revoked.pem"), list.pem().unwrap()).unwrap();
    }

    /// What curl says with a client's certificate, or with none: its output, of which the last line
    /// is the status, and what it says on standard error.
    pub fn curl(&self, client: Option<&str>, arguments: &[&str], path: &str) -> Said {
        let mut child = self.spawn_curl(client, arguments, path);
        drop(child.stdin.take());
        Said::of(&child.wait_with_output().unwrap())
    }

    pub fn put(&self, client: &str, body: &[u8]) -> Said {
        let mut child = self.spawn_curl(Some(client), &["-T", "-"], "/certificates");
        let mut stdin = child.stdin.take().unwrap();
        let body = body.to_vec();
        // It ends early where curl does.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&body)));
        let said = Said::of(&child.wait_with_output().unwrap());
        writer.join().unwrap();
        said
    }

    pub fn spawn_curl(
        &self,
        client: Option<&str>,
        arguments: &[&str],
        path: &str,
    ) -> std::process::Child {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "120", "--cacert"]).arg(self.path("ca.pem"));
        if let Some(client) = client {
            command.arg("--cert").arg(self.path(&format!("{client}.pem")));
            command.arg("--key").arg(self.path(&format!("{client}.key")));
        }
        command.args(["-w", "\n%{http_code}\n"]).args(arguments);
        command.arg(format!("https://{}{path}", self.address()));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        piped.spawn().unwrap()
    }

    pub fn store(&self) -> KeyedStore {
        let keys = sealing_keys(&KeySource::File(self.path("store.key"))).unwrap();
        let store = Store::open(&self.path("store")).unwrap();
        KeyedStore::new(Arc::new(store), keys).unwrap()
    }

    /// Damages all of the store, and returns what was there.
    pub fn damage_store(&self) -> Vec<u8> {
        let before = fs::read(self.path("store/data.mdb")).unwrap();
        self.overwrite_store(&vec![0xff; before.len()]);
        before
    }

    /// Writes over the store between two changes, and not through it, as a disk that fails does.
    pub fn overwrite_store(&self, bytes: &[u8]) {
        let folder = File::open(self.path("store")).unwrap();
        flock(&folder, FlockOperation::LockExclusive).unwrap();
        let data = File::options().write(true).open(self.path("store/data.mdb")).unwrap();
        data.write_all_at(bytes, 0).unwrap();
    }

    /// What is in the store for a name.
    pub fn held(&self, name: &str) -> Option<Listed> {
        self.store().store().find(name).unwrap().pop()
    }
}

/// What a client was told.
#[derive(Debug)]
pub struct Said {
    pub body: String,
    pub error: String,
    pub status: u16,
}

impl Said {
    pub fn of(output: &Output) -> Self {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        let (body, status) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim()));
        Self {
            body: body.to_owned(),
            error: String::from_utf8(output.stderr.clone()).unwrap(),
            status: status.parse().unwrap(),
        }
    }

    /// A field of the answer.
    pub fn field(&self, name: &str) -> serde_json::Value {
        let json: serde_json::Value =
            serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"));
        json[name].clone()
    }
}

/// An authority, and its certificate.
pub fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    let root = params.self_signed(&key).unwrap();
    (Issuer::new(params, key), root.pem())
}

/// A server's certificate for these names with its key, as they are pushed.
pub fn server(names: &[&str]) -> String {
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let leaf = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    [leaf.pem(), key.serialize_pem()].concat()
}

pub const BINARY: &str = env!("CARGO_BIN_EXE_sealane-agent");
