//! Certificates where ACME clients keep them, made by the clients themselves at a real ACME server,
//! Pebble; and their hook, which imports what they renew into a store.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::process::Process;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::{tools, wait_for};

#[test]
fn what_acme_clients_keep_is_served_where_it_lies_and_renewed_without_a_word() {
    let Some(acme) = Acme::start(&["certbot", "lego", "dehydrated"]) else { return };
    acme.certbot(&["certonly", "-d", "a.test", "-d", "www.a.test"]);
    acme.certbot(&["certonly", "-d", "other.test"]);
    acme.lego("b.test");
    acme.dehydrated("c.test");
    let folders = ["certbot/live", "lego/certificates", "dehydrated/certs"];
    let listeners = folders.map(|folder| {
        ListenerSettings::new(folder.split_once('/').unwrap().0, &acme.path(folder), &acme.backend)
            .with("unknown_names = \"refuse\"")
    });
    let [address, of_lego, of_dehydrated] = listeners.each_ref().map(|each| each.address);
    let mut sealane = Sealane::start(acme.folder.path(), &Settings::new(listeners.into()));
    let metrics = sealane.metrics();
    assert_eq!(metrics.sum("sealane_certificates", &[]), 4);
    for (address, name, file) in [
        (address, "a.test", "certbot/live/a.test/fullchain.pem"),
        (address, "www.a.test", "certbot/live/a.test/fullchain.pem"),
        (address, "other.test", "certbot/live/other.test/fullchain.pem"),
        (of_lego, "b.test", "lego/certificates/b.test.crt"),
        (of_dehydrated, "c.test", "dehydrated/certs/c.test/fullchain.pem"),
    ] {
        assert_eq!(acme.served(address, name), first_of(&acme.path(file)), "{name}");
    }
    // A link moves in a folder of a folder; nobody tells Sealane.
    let before = acme.served(address, "a.test");
    acme.certbot(&["renew", "--cert-name", "a.test", "--force-renewal"]);
    let renewed = first_of(&acme.path("certbot/live/a.test/fullchain.pem"));
    assert_ne!(before, renewed);
    wait_for("the renewed certificate", || {
        (acme.served(address, "a.test") == renewed).then_some(())
    });
    // And a name that is new.
    acme.certbot(&["certonly", "-d", "new.test"]);
    wait_for("the new name", || acme.connector("new.test").connect(address).ok());
    sealane.wait_until_said("reloaded: generation ");
    assert_eq!(sealane.stop(), Some(0));
}

#[test]
fn a_hook_imports_what_a_client_has_obtained_into_a_store() {
    let Some(acme) = Acme::start(&["certbot", "lego", "dehydrated"]) else { return };
    let store = PathBuf::from(format!("store:{}", acme.path("store").display()));
    let listener = ListenerSettings::new("acme", &store, &acme.backend);
    let mut settings = Settings::new(vec![listener.with("unknown_names = \"refuse\"")]);
    settings.more = "store_key = { file = \"key\" }".into();
    let address = settings.listeners[0].address;
    let first = acme.path("first.pem");
    std::fs::write(&first, Authority::new().leaf(KeyKind::P256, &["kept.test"])).unwrap();
    let mut import = Command::new(BINARY);
    import.args(["certificates", "import", "--create", "--store"]).arg(acme.path("store"));
    tools::output(import.arg("--key-file").arg(acme.path("key")).arg(first));
    let sealane = Sealane::start(acme.folder.path(), &settings);

    let hook = HOOK.display().to_string();
    acme.certbot(&["certonly", "-d", "a.test", "--deploy-hook", &hook]);
    acme.lego_with("b.test", &["--run-hook", &hook]);
    acme.dehydrated_with("c.test", &["--hook", &hook]);
    for (name, file) in [
        ("a.test", "certbot/live/a.test/fullchain.pem"),
        ("b.test", "lego/certificates/b.test.crt"),
        ("c.test", "dehydrated/certs/c.test/fullchain.pem"),
    ] {
        assert_eq!(acme.served(address, name), first_of(&acme.path(file)), "{name}");
    }
    acme.certbot(&["renew", "--cert-name", "a.test", "--force-renewal"]);
    let renewed = first_of(&acme.path("certbot/live/a.test/fullchain.pem"));
    assert_eq!(acme.served(address, "a.test"), renewed, "when the client has ended");
    assert_eq!(sealane.count_said("reloaded"), 0);

    // As acme.sh and newer versions of lego call it, and with options in place of a configuration.
    let (store, key_file) = (acme.path("store"), acme.path("key"));
    let options = format!("--store {} --key-file {}", store.display(), key_file.display());
    for (name, chain, key) in [
        ("d.test", "CERT_FULLCHAIN_PATH", "CERT_KEY_PATH"),
        ("e.test", "LEGO_HOOK_CERT_PATH", "LEGO_HOOK_CERT_KEY_PATH"),
    ] {
        acme.lego(name);
        let file = |kind: &str| acme.path("lego/certificates").join(format!("{name}.{kind}"));
        let mut hook = acme.client(HOOK.to_str().unwrap());
        hook.env(chain, file("crt")).env(key, file("key"));
        tools::output(hook.env("SEALANE_IMPORT", &options).env("SEALANE_CONFIG", "absent"));
        assert_eq!(acme.served(address, name), first_of(&file("crt")), "{name}");
    }
    let alone = tools::run(&mut Command::new(&*HOOK));
    assert_eq!(alone.status.code(), Some(2));
    let said = String::from_utf8(alone.stderr).unwrap();
    assert!(said.contains("is run by an ACME client"), "{said}");
}

/// What certbot makes is for root alone: whoever may not read it is told who that is, and what to
/// do.
#[test]
fn who_may_not_read_a_key_is_told_what_to_do() {
    if !rustix::process::geteuid().is_root() || tools::required("setpriv").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let live = folder.path().join("live");
    std::fs::create_dir(&live).unwrap();
    let mode = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(folder.path(), 0o755);
    mode(&live, 0o700);
    let config = format!(
        "[[listener]]\naddress = \"127.0.0.1:1\"\nbackends = [\"127.0.0.1:2\"]\n\
         certificates = [{live:?}]\n"
    );
    std::fs::write(folder.path().join("sealane.toml"), config).unwrap();
    // The program itself may stand where nobody else comes to.
    let binary = folder.path().join("sealane");
    crate::harness::install(BINARY.as_ref(), &binary);
    let check = || {
        let mut check = Command::new("setpriv");
        check.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(&binary);
        check.args(["check", "--config", "sealane.toml"]).current_dir(folder.path());
        check
    };
    let told = tools::run(&mut check());
    let text = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.status.code(), Some(3), "{text}");
    let expected = "live: the user of this process, number 65534, may not read it; give access";
    assert!(text.contains(expected) && text.contains("(acme-hook)"), "{text}");
    // On the way there, behind a link: it is the folder that is closed, and not the file.
    mode(&live, 0o755);
    let archive = folder.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    mode(&archive, 0o700);
    std::os::unix::fs::symlink(&archive, live.join("a.test")).unwrap();
    std::os::unix::fs::symlink("../archive/b.pem", live.join("b.pem")).unwrap();
    let told = tools::run(&mut check());
    let text = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.status.code(), Some(3), "{text}");
    let at = archive.display();
    assert!(
        text.contains(&format!(
            "b.pem: the user of this process, number 65534, may not enter {at};"
        )),
        "{text}"
    );
    // Beside what can be served a closed folder is passed over, a link into one is not.
    mode(&archive, 0o755);
    std::fs::remove_file(live.join("b.pem")).unwrap();
    std::fs::write(live.join("a.pem"), Authority::new().leaf(KeyKind::P256, &NAMES)).unwrap();
    mode(&live.join("a.pem"), 0o644);
    std::fs::create_dir(live.join("lost+found")).unwrap();
    mode(&live.join("lost+found"), 0o700);
    let told = tools::run(&mut check());
    let text = String::from_utf8(told.stdout).unwrap();
    assert_eq!(told.status.code(), Some(0), "{text}");
    assert!(text.contains("lost+found: ") && text.contains("; it is passed over"), "{text}");
}

/// Pebble, and a folder in which its clients keep what they get.
struct Acme {
    folder: TempDir,
    /// The address of an echo.
    backend: String,
    directory: String,
    _pebble: Process,
    _reserved: [ReservedPort; 2],
    root: CertificateDer<'static>,
}

impl Acme {
    fn start(clients: &[&str]) -> Option<Self> {
        if !clients.iter().chain(&["pebble", "curl"]).all(|name| tools::required(name).is_some()) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let authority = Authority::named("who vouches for Pebble");
        authority.write(folder.path());
        std::fs::write(path("pebble.pem"), authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        std::fs::create_dir(path("web")).unwrap();
        let reserved = [(); 2].map(|()| ReservedPort::on_loopback().unwrap());
        let [served, managed] = reserved.each_ref().map(ReservedPort::address);
        let settings = serde_json::json!({ "pebble": {
            "listenAddress": served.to_string(),
            "managementListenAddress": managed.to_string(),
            "certificate": path("pebble.pem"),
            "privateKey": path("pebble.pem"),
            "httpPort": 1,
            "tlsPort": 1,
        }});
        std::fs::write(path("pebble.json"), settings.to_string()).unwrap();
        // Neither who owns the names nor how clients stand refusals is what is tried here.
        let pebble = Command::new("pebble")
            .arg("-config")
            .arg(path("pebble.json"))
            .envs([("PEBBLE_VA_ALWAYS_VALID", "1"), ("PEBBLE_VA_NOSLEEP", "1")])
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let pebble = Process::new(pebble);
        for address in [served, managed] {
            wait_for("Pebble", || TcpStream::connect(address).ok());
        }
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--fail", "--cacert"]).arg(path("ca.pem"));
        let root = tools::output(curl.arg(format!("https://{managed}/roots/0")));
        Some(Self {
            backend: Backend::echo().address.to_string(),
            directory: format!("https://{served}/dir"),
            _pebble: pebble,
            _reserved: reserved,
            root: CertificateDer::from_pem_slice(root.as_bytes()).unwrap(),
            folder,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// With what every client and its hook need.
    fn client(&self, program: &str) -> Command {
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

    fn certbot(&self, words: &[&str]) {
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

    fn lego(&self, name: &str) {
        self.lego_with(name, &[]);
    }

    fn lego_with(&self, name: &str, more: &[&str]) {
        let mut lego = self.client("lego");
        lego.args(["--accept-tos", "--email", "a@a.test", "--domains", name, "--server"]);
        lego.arg(&self.directory).args(["--http", "--http.webroot"]).arg(self.path("web"));
        tools::output(lego.arg("--path").arg(self.path("lego")).arg("run").args(more));
    }

    fn dehydrated(&self, name: &str) {
        self.dehydrated_with(name, &[]);
    }

    fn dehydrated_with(&self, name: &str, more: &[&str]) {
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

    fn connector(&self, name: &str) -> Connector {
        Connector::new(self.root.clone(), &TLS13).with_name(name).without_tickets()
    }

    /// The certificate that a client gets for `name`, which it has verified.
    fn served(&self, address: SocketAddr, name: &str) -> CertificateDer<'static> {
        let mut client = self.connector(name).connect(address).unwrap();
        client.echo(name.as_bytes()).unwrap();
        client.tls.peer_certificates().unwrap()[0].clone().into_owned()
    }
}

/// The first certificate in a file.
fn first_of(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

static HOOK: std::sync::LazyLock<PathBuf> = std::sync::LazyLock::new(|| {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/acme-hook")
});
