//! A real ACME server, Pebble, and real clients that obtain certificates of it.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use super::backend::Backend;
use super::certificates::{Authority, KeyKind, NAMES};
use super::client::Connector;
use super::process::Process;
use super::sealane::BINARY;
use super::{tools, wait_for};

/// Pebble, and a folder in which its clients keep what they get.
pub struct Acme {
    pub folder: TempDir,
    /// The address of an echo.
    pub backend: String,
    directory: String,
    _programs: Vec<Process>,
    _reserved: [ReservedPort; 4],
    root: CertificateDer<'static>,
}

impl Acme {
    /// With Pebble believing whoever asks, for whom the `clients` are there.
    pub fn start(clients: &[&str]) -> Option<Self> {
        Self::start_asking(clients, None)
    }

    /// With Pebble asking for challenges at `http_port` of this machine, if it is told one: every
    /// name leads here.
    pub fn start_asking(clients: &[&str], http_port: Option<u16>) -> Option<Self> {
        let programs = ["pebble", "pebble-challtestsrv", "curl"];
        if !clients.iter().chain(&programs).all(|name| tools::required(name).is_some()) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let authority = Authority::named("who vouches for Pebble");
        authority.write(folder.path());
        std::fs::write(path("pebble.pem"), authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        std::fs::create_dir(path("web")).unwrap();
        let reserved = [(); 4].map(|()| ReservedPort::on_loopback().unwrap());
        let [served, managed, names, of_names] = reserved.each_ref().map(ReservedPort::address);
        let settings = serde_json::json!({ "pebble": {
            "listenAddress": served.to_string(),
            "managementListenAddress": managed.to_string(),
            "certificate": path("pebble.pem"),
            "privateKey": path("pebble.pem"),
            "httpPort": http_port.unwrap_or(1),
            "tlsPort": 1,
        }});
        std::fs::write(path("pebble.json"), settings.to_string()).unwrap();
        let spawn = |command: &mut Command| {
            let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
            Process::new(quiet.spawn().unwrap())
        };
        let mut resolver = Command::new("pebble-challtestsrv");
        resolver.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-defaultIPv6", ""]);
        resolver.args(["-dns01", &names.to_string(), "-management", &of_names.to_string()]);
        let resolver = spawn(&mut resolver);
        // How clients stand refusals is not what is tried here.
        let mut pebble = Command::new("pebble");
        pebble.arg("-config").arg(path("pebble.json")).args(["-dnsserver", &names.to_string()]);
        pebble.envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "0")]);
        if http_port.is_none() {
            pebble.env("PEBBLE_VA_ALWAYS_VALID", "1");
        }
        let pebble = spawn(&mut pebble);
        for address in [names, served, managed] {
            wait_for("Pebble", || TcpStream::connect(address).ok());
        }
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--cacert"]).arg(path("ca.pem"));
        let root = tools::output(curl.arg(format!("https://{managed}/roots/0")));
        Some(Self {
            backend: Backend::echo().address.to_string(),
            directory: format!("https://{served}/dir"),
            _programs: vec![pebble, resolver],
            _reserved: reserved,
            root: CertificateDer::from_pem_slice(root.as_bytes()).unwrap(),
            folder,
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// With what every client and its hook need.
    pub fn client(&self, program: &str) -> Command {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let own = Path::new(BINARY).parent().unwrap().to_owned();
        let paths = std::iter::once(own).chain(std::env::split_paths(&paths));
        let mut command = Command::new(program);
        command.env("PATH", std::env::join_paths(paths).unwrap());
        command.env("SEALANE_CONFIG", self.path("sealane.toml"));
        for trusted in ["LEGO_CA_CERTIFICATES", "REQUESTS_CA_BUNDLE"] {
            command.env(trusted, self.path("ca.pem"));
        }
        command
    }

    pub fn certbot(&self, words: &[&str]) {
        let mut certbot = self.client("certbot");
        certbot.args(words).args(["--non-interactive", "--agree-tos", "--server"]);
        certbot.arg(&self.directory).arg("--register-unsafely-without-email");
        certbot.args(["--webroot", "--webroot-path"]).arg(self.path("web"));
        certbot.arg("--no-random-sleep-on-renew");
        for (option, folder) in
            [("--config-dir", "certbot"), ("--work-dir", "work"), ("--logs-dir", "logs")]
        {
            certbot.arg(option).arg(self.path(folder));
        }
        tools::output(&mut certbot);
    }

    pub fn lego(&self, name: &str) {
        self.lego_with(name, &[]);
    }

    pub fn lego_with(&self, name: &str, more: &[&str]) {
        let mut lego = self.client("lego");
        lego.args(["--accept-tos", "--email", "a@a.test", "--domains", name, "--server"]);
        lego.arg(&self.directory).args(["--http", "--http.webroot"]).arg(self.path("web"));
        tools::output(lego.arg("--path").arg(self.path("lego")).arg("run").args(more));
    }

    pub fn dehydrated(&self, name: &str) {
        self.dehydrated_with(name, &[]);
    }

    pub fn dehydrated_with(&self, name: &str, more: &[&str]) {
        let (base, settings) = (self.path("dehydrated"), self.path("dehydrated.conf"));
        std::fs::create_dir_all(&base).unwrap();
        let text = format!(
            "CA={}\nBASEDIR={}\nWELLKNOWN={}\nCURL_OPTS=\"--cacert {}\"\n",
            self.directory,
            base.display(),
            self.path("web").display(),
            self.path("ca.pem").display()
        );
        std::fs::write(&settings, text).unwrap();
        let words = [&["--cron", "--domain", name][..], more].concat();
        for words in [&["--register", "--accept-terms"][..], &words] {
            tools::output(self.client("dehydrated").arg("--config").arg(&settings).args(words));
        }
    }

    pub fn connector(&self, name: &str) -> Connector {
        Connector::new(self.root.clone(), &TLS13).with_name(name).without_tickets()
    }

    /// The certificate that a client gets for `name`, which it has verified.
    pub fn served(&self, address: SocketAddr, name: &str) -> CertificateDer<'static> {
        let mut client = self.connector(name).connect(address).unwrap();
        client.echo(name.as_bytes()).unwrap();
        client.tls.peer_certificates().unwrap()[0].clone().into_owned()
    }
}

/// The first certificate in a file.
pub fn first_of(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}
