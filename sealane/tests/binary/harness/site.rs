//! A certificate store with its key, and what is served from it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::TLS13;
use tempfile::TempDir;

use super::backend::Backend;
use super::certificates::{Authority, KeyKind};
use super::client::Connector;
use super::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use super::tools;

/// A store, its key, and a Sealane that serves from it in front of an echo.
pub struct Site {
    pub authority: Authority,
    pub folder: TempDir,
    pub sealane: Option<Sealane>,
    pub settings: Settings,
}

impl Site {
    /// With a store that holds a certificate for `kept.test`.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = PathBuf::from(format!("store:{}", folder.path().join("store").display()));
        let backend = Backend::echo();
        let listener = ListenerSettings::new("site", &store, &backend.address)
            .with("unknown_names = \"refuse\"");
        let mut settings = Settings::new(vec![listener]);
        settings.more = "store_key = { file = \"key\" }".into();
        let site = Self { authority: Authority::new(), folder, sealane: None, settings };
        site.import(&["kept.test"], &["--create"]);
        site
    }

    pub fn start() -> Self {
        let mut site = Self::new();
        site.sealane = Some(Sealane::start(site.path(), &site.settings));
        site
    }

    pub fn sealane(&self) -> &Sealane {
        self.sealane.as_ref().unwrap()
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn key_file(&self) -> PathBuf {
        self.path().join("key")
    }

    pub fn address(&self) -> SocketAddr {
        self.settings.listeners[0].address
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("certificates").args(words).arg("--store").arg(self.path().join("store"));
        if matches!(words[0], "export" | "import" | "reseal" | "restore" | "verify") {
            command.arg("--key-file").arg(self.key_file());
        }
        command
    }

    /// What a command that must succeed prints.
    pub fn run(&self, words: &[&str]) -> String {
        tools::output(&mut self.command(words))
    }

    /// Imports a new certificate for `names` and returns it.
    pub fn import(&self, names: &[&str], more: &[&str]) -> CertificateDer<'static> {
        let text = self.authority.leaf(KeyKind::P256, names);
        let file = self.path().join("import.pem");
        std::fs::write(&file, &text).unwrap();
        self.run(&[&["import", file.to_str().unwrap()], more].concat());
        CertificateDer::from_pem_slice(text.as_bytes()).unwrap()
    }

    pub fn connector(&self, name: &str) -> Connector {
        Connector::new(self.authority.der(), &TLS13).with_name(name).without_tickets()
    }

    /// The certificate that a client gets for `name`, which it has verified, over a connection that
    /// carries bytes.
    pub fn served(&self, name: &str) -> std::io::Result<CertificateDer<'static>> {
        let mut client = self.connector(name).connect(self.address())?;
        client.echo(name.as_bytes())?;
        Ok(client.tls.peer_certificates().unwrap()[0].clone().into_owned())
    }
}

/// What a program said of its failure.
pub fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
