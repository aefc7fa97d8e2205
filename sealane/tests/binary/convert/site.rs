//! What stands at `/etc/site` in the files that are converted: certificates, and what they include;
//! and the backends behind their ports.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::cases::Case;
use crate::client_certificates::authority::{ClientAuthority, Shown};
use crate::harness::PATIENCE;
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind};
use crate::harness::secured::{SecuredBackend, finish};

/// All of it, until it is dropped.
pub(super) struct Site {
    backends: [Backend; 3],
    clients: ClientAuthority,
    folder: TempDir,
    secured: [SecuredBackend; 3],
    servers: Authority,
    strangers: ClientAuthority,
}

impl Site {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        // hitch becomes another user.
        std::fs::set_permissions(at, Permissions::from_mode(0o755)).unwrap();
        let servers = Authority::new();
        servers.write(at);
        std::fs::write(at.join("servers.pem"), servers.pem()).unwrap();
        std::fs::create_dir(at.join("folder")).unwrap();
        let leaf = |name: &str, kind, names: &[&str]| {
            let pem = servers.leaf(kind, names);
            std::fs::write(at.join(format!("{name}.pem")), &pem).unwrap();
            let key = pem.find("-----BEGIN PRIVATE").unwrap();
            std::fs::write(at.join(format!("{name}.crt")), &pem[..key]).unwrap();
            std::fs::write(at.join(format!("{name}.key")), &pem[key..]).unwrap();
            pem
        };
        let one = leaf("one", KeyKind::P256, &["one.example", "www.one.example"]);
        let two = leaf("two", KeyKind::P256, &["two.example", "www.two.example"]);
        leaf("rsa", KeyKind::Rsa2048, &["one.example", "www.one.example"]);
        let wild = leaf("wild", KeyKind::P256, &["*.example"]);
        std::fs::write(at.join("folder/a-one.pem"), &one).unwrap();
        std::fs::write(at.join("folder/b-wild.pem"), wild).unwrap();
        std::fs::write(at.join("list.txt"), "one.pem\n# The others.\ntwo.pem\n").unwrap();
        std::fs::write(at.join("allowed.txt"), "never.example\n").unwrap();
        let clients = ClientAuthority::root(at, "Clients CA");
        std::fs::write(at.join("clients.pem"), clients.pem()).unwrap();
        std::fs::write(at.join("clients.crl"), clients.list(&[REVOKED])).unwrap();
        let strangers = ClientAuthority::root(at, "Strangers CA");
        let backends = ["one", "two", "three"]
            .map(|name| Backend::start(move |mut stream| answer(&mut stream, name)));
        let pinned = self_signed("pinned.example");
        let key = pinned.find("-----BEGIN PRIVATE").unwrap();
        std::fs::write(at.join("pinned.crt"), &pinned[..key]).unwrap();
        let secured = [(one, "sealed one"), (two, "sealed two"), (pinned, "sealed pinned")]
            .map(|(leaf, name)| clear(|| sealed(&leaf, name), |backend| backend.address));
        listen_on_a_socket(&at.join("app.sock"));
        Self { backends, clients, folder, secured, servers, strangers }
    }

    /// A text for this machine.
    pub(super) fn placed(&self, text: &str) -> String {
        self.places()
            .iter()
            .fold(text.to_owned(), |text, (theirs, ours)| text.replace(theirs, ours))
    }

    /// The same text with what it includes in `folder`, where the files are put after `change`.
    pub(super) fn with_included(
        &self,
        text: &str,
        folder: &Path,
        change: impl Fn(&str) -> String,
    ) -> String {
        let mut text = text.to_owned();
        for (path, included) in INCLUDED {
            let at = Path::new(path).parent().unwrap();
            std::fs::create_dir_all(folder.join(at)).unwrap();
            std::fs::write(folder.join(path), change(&self.placed(included))).unwrap();
            let theirs = format!("/etc/site/{}", at.display());
            text = text.replace(&theirs, folder.join(at).to_str().unwrap());
        }
        text
    }

    /// The text as it would be where the files are at home.
    pub(super) fn unplaced(&self, text: &str) -> String {
        self.places()
            .iter()
            .fold(text.to_owned(), |text, (theirs, ours)| text.replace(ours, theirs))
    }

    fn places(&self) -> Vec<(String, String)> {
        let mut places = vec![("/etc/site".into(), self.folder.path().display().to_string())];
        for (port, backend) in (8081..).zip(&self.backends) {
            places.push((format!("127.0.0.1:{port}"), backend.address.to_string()));
            let bracketed = format!("[127.0.0.1]:{}", backend.address.port());
            places.push((format!("[127.0.0.1]:{port}"), bracketed));
        }
        for (port, backend) in (9441..).zip(&self.secured) {
            places.push((format!("127.0.0.1:{port}"), backend.address.to_string()));
        }
        places
    }

    /// A folder for one program of a case.
    pub(super) fn folder_of(&self, case: &Case, whose: &str) -> PathBuf {
        let folder = self.folder.path().join("cases").join(case.file).join(whose);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub(super) fn authority(&self) -> CertificateDer<'static> {
        self.servers.der()
    }

    /// Certificates that a client may show, and what they are called.
    pub(crate) fn shown(&self) -> [(&'static str, Shown); 3] {
        [
            ("known", self.clients.issue(1, |_| {})),
            ("revoked", self.clients.issue(REVOKED, |_| {})),
            ("stranger", self.strangers.issue(1, |_| {})),
        ]
    }

    /// The names of certificates by their contents.
    pub(super) fn name_of(&self, certificate: &CertificateDer<'_>) -> String {
        use rustls::pki_types::pem::PemObject as _;
        for name in ["one", "two", "rsa", "wild"] {
            let path: &Path = &self.folder.path().join(format!("{name}.pem"));
            if CertificateDer::from_pem_file(path).unwrap() == *certificate {
                return name.to_owned();
            }
        }
        "unknown".into()
    }
}

/// A certificate that is its own authority, and its key.
fn self_signed(name: &str) -> String {
    let mut params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().pem() + &key.serialize_pem()
}

/// A backend whose port has no digits of a port in a file.
fn clear<T>(start: impl Fn() -> T, address: impl Fn(&T) -> SocketAddr) -> T {
    (0..100).map(|_| start()).find(|backend| is_clear(address(backend))).unwrap()
}

/// Whether no port of a file stands in the digits of this one.
pub(super) fn is_clear(address: SocketAddr) -> bool {
    let port = address.port().to_string();
    !["443", "808", "944"].iter().any(|digits| port.contains(digits))
}

fn sealed(leaf: &str, name: &'static str) -> SecuredBackend {
    SecuredBackend::start(leaf, None, move |shaken| {
        let Ok(mut secured) = shaken else { return };
        let mut bytes = [0; ASKED.len()];
        if secured.read_exact(&mut bytes).is_ok() {
            let _ = secured.write_all(format!("{name}\n").as_bytes());
            let _ = finish(&mut secured);
        }
    })
}

fn listen_on_a_socket(path: &Path) {
    let socket = UnixListener::bind(path).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    std::thread::spawn(move || {
        for stream in socket.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; ASKED.len()];
                if stream.read_exact(&mut bytes).is_ok() {
                    let _ = stream.write_all(b"unix\n");
                }
            });
        }
    });
}

/// Reads up to the end of what a client asks, and answers with what stood before it.
fn answer(stream: &mut TcpStream, name: &str) {
    use std::fmt::Write as _;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while !bytes.ends_with(ASKED) {
        match stream.read(&mut buffer) {
            Ok(len @ 1..) => bytes.extend_from_slice(&buffer[..len]),
            _ => return,
        }
    }
    let mut text = name.to_owned();
    for byte in &bytes[..bytes.len() - ASKED.len()] {
        write!(text, " {byte:02x}").unwrap();
    }
    text.push('\n');
    let _ = stream.write_all(text.as_bytes());
}

/// What a client says.
pub(super) const ASKED: &[u8] = b"who is there?\n";
/// The serial number of a client that is on the list.
const REVOKED: u64 = 2;

/// Files that others include.
const INCLUDED: [(&str, &str); 3] = [
    (
        "stream.d/10-one.conf",
        "server {\n    listen 4431 ssl;\n    ssl_certificate /etc/site/one.pem;\n    \
         ssl_certificate_key /etc/site/one.pem;\n    proxy_pass 127.0.0.1:8081;\n}\n",
    ),
    ("stream.d/20-more.conf", "proxy_timeout 1h;\nproxy_protocol on;\n"),
    ("stunnel.d/one.conf", "[one]\naccept = 4431\nconnect = 127.0.0.1:8081\n"),
];
