//! Every file on the page about moving: the old program with its own, and Sealane with ours, in
//! front of the same backend.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use rustls::version::TLS12;
use sealane_reserved_port::ReservedPort;

use crate::client_certificates::authority::ClientAuthority;
use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::peers::{hitch_arguments, quiet, stream_module};
use crate::harness::sealane::BINARY;
use crate::harness::tools::required;
use crate::harness::wait_for;

const PAGE: &str = include_str!("../../../docs/moving.md");

/// A file on the page: what it is for, and its text.
struct Snippet {
    kind: &'static str,
    text: &'static str,
}

/// All of them, in their order.
fn snippets() -> Vec<Snippet> {
    let blocks = PAGE.split("```").skip(1).step_by(2);
    blocks
        .map(|block| {
            let (kind, text) = block.split_once('\n').unwrap();
            Snippet { kind, text }
        })
        .collect()
}

/// What the page's addresses and paths stand for in a test.
struct Site {
    backend: SocketAddr,
    clients: ClientAuthority,
    folder: tempfile::TempDir,
    servers: Authority,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let servers = Authority::new();
        let leaf = servers.leaf(KeyKind::P256, &NAMES);
        std::fs::write(folder.path().join("site.pem"), leaf).unwrap();
        let clients = ClientAuthority::root(folder.path(), "Clients CA");
        std::fs::write(folder.path().join("clients.pem"), clients.pem()).unwrap();
        let backend = Backend::start(|mut stream| stream.write_all(b"reached").unwrap()).address;
        Self { backend, clients, folder, servers }
    }

    /// The text of a snippet for this machine.
    fn placed(&self, text: &str, port: &ReservedPort) -> String {
        let ours = port.address().port().to_string();
        text.replace("/etc/ssl", self.folder.path().to_str().unwrap())
            .replace("0.0.0.0:443", &format!("127.0.0.1:{ours}"))
            .replace("[0.0.0.0]:443", &format!("[127.0.0.1]:{ours}"))
            .replace("127.0.0.1:8080", &self.backend.to_string())
            .replace("[127.0.0.1]:8080", &format!("[127.0.0.1]:{}", self.backend.port()))
    }

    /// What a client gets at `address`, which shows a certificate to who asks.
    fn reached(&self, address: SocketAddr) -> Vec<u8> {
        let shown = self.clients.issue(1, |leaf| {
            leaf.distinguished_name.push(rcgen::DnType::CommonName, "batch");
        });
        // Which nginx speaks by default, too.
        let connector = Connector::new(self.servers.der(), &TLS12).showing(&shown.pem());
        connector.connect(address).unwrap().read_rest().unwrap()
    }
}

/// The old program that reads `kind`, with its file at `path`.
fn command(kind: &str, path: &Path) -> Option<Command> {
    let (program, arguments): (_, &[&str]) = match kind {
        "haproxy" => ("haproxy", &["-db", "-f"]),
        "hitch" => ("hitch", hitch_arguments()),
        "nginx" => ("nginx", &["-e", "stderr", "-c"]),
        "stunnel" => ("stunnel4", &[]),
        "toml" => {
            let mut command = Command::new(BINARY);
            command.args(["serve", "--config"]).arg(path);
            return Some(command);
        }
        other => panic!("nobody reads {other}"),
    };
    let mut command = Command::new(required(program)?);
    command.args(arguments).arg(path);
    Some(command)
}

/// What stands in the file beside what the page shows.
fn around(kind: &str, text: &str, folder: &Path) -> Option<String> {
    let folder = folder.display();
    Some(match kind {
        "nginx" => format!(
            "{}\ndaemon off;\nmaster_process off;\npid {folder}/nginx.pid;\nerror_log stderr;\n\
             events {{ worker_connections 64; }}\n{text}",
            stream_module()?
        ),
        "stunnel" => format!("foreground = yes\npid =\n{text}"),
        _ => text.to_owned(),
    })
}

#[test]
fn every_file_on_the_page_leads_to_the_backend() {
    let site = Site::new();
    let mut kinds = Vec::new();
    for Snippet { kind, text } in snippets() {
        kinds.push(kind);
        if kind == "sh" {
            continue;
        }
        let port = ReservedPort::on_loopback().unwrap();
        let text = site.placed(text, &port);
        let Some(text) = around(kind, &text, site.folder.path()) else { continue };
        let path = site.folder.path().join(format!("file.{kind}"));
        std::fs::write(&path, &text).unwrap();
        let Some(mut command) = command(kind, &path) else { continue };
        let _process = quiet(&mut command);
        wait_for(&format!("{kind} listens:\n{text}"), || TcpStream::connect(port.address()).ok());
        assert_eq!(site.reached(port.address()), b"reached", "{kind}:\n{text}");
    }
    let pairs = ["hitch", "haproxy", "nginx", "stunnel", "sh"].map(|kind| [kind, "toml"]);
    assert_eq!(kinds, [&["sh"][..], pairs.as_flattened()].concat());
}

/// A key that the page names is one that a configuration has.
#[test]
fn every_key_on_the_page_is_in_the_example() {
    let example = include_str!("../../../packaging/sealane.toml");
    let rows = PAGE.lines().filter(|line| line.starts_with("| ")).skip(1);
    let ours = rows.filter_map(|row| row.split('|').nth(2));
    let mut keys = 0;
    for text in ours.flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
        let key = text.split([' ', '=']).next().unwrap();
        let key = key.strip_prefix("limits.").unwrap_or(key);
        let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if is_key && key != "tls" {
            keys += 1;
            let has = example.contains(&format!("{key} ="));
            assert!(has, "{key} is not in the example configuration");
        }
    }
    assert!(keys > 60, "{keys}");
}
