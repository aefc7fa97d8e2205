//! A cluster of one or three etcd servers with TLS, certificates of clients, users and a role.

use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

use super::process::Process;
use super::{close, required, wait_for};

/// Servers of this test's own.
pub struct Cluster {
    pub folder: TempDir,
    /// How many clusters were here before: by that, this one is told from them.
    lives: Cell<usize>,
    nodes: RefCell<Vec<Option<Process>>>,
    ports: Vec<[ReservedPort; 2]>,
    quota_bytes: u64,
}

impl Cluster {
    /// Starts one server, with a user that is limited to [`PREFIX`]. Three cost each test three
    /// times the CPU time, and are for tests in which a server fails or all must be in step.
    pub fn start() -> Option<Self> {
        Self::start_with(1, QUOTA_BYTES)
    }

    /// Starts three.
    pub fn start_three() -> Option<Self> {
        Self::start_with(3, QUOTA_BYTES)
    }

    /// Starts this many, with another quota.
    pub fn start_with(servers: usize, quota_bytes: u64) -> Option<Self> {
        required(ETCD.into())?;
        required(ETCDCTL.into())?;
        let folder = tempfile::tempdir().unwrap();
        write_certificates(folder.path());
        fs::write(folder.path().join("password"), "a password\n").unwrap();
        close(&folder.path().join("password"));
        let port = || ReservedPort::on_loopback().unwrap();
        let ports: Vec<_> = (0..servers).map(|_| [port(), port()]).collect();
        let nodes = RefCell::new((0..servers).map(|_| None).collect());
        let lives = Cell::new(0);
        let cluster = Self { folder, lives, nodes, ports, quota_bytes };
        cluster.begin();
        Some(cluster)
    }

    /// Ends all servers, and starts others that know nothing, set up as the first were: another
    /// cluster.
    pub fn start_over(&self) {
        self.kill_all();
        self.lives.set(self.lives.get() + 1);
        self.numbers().for_each(|number| fs::remove_dir_all(self.data(number)).unwrap());
        fs::remove_file(self.folder.path().join("with-auth")).unwrap();
        self.begin();
    }

    /// Starts servers that know nothing, and makes users, as the page on fleets has it.
    fn begin(&self) {
        self.start_again();
        for order in [
            "user add root:root",
            "role add sealane",
            &format!("role grant-permission sealane --prefix=true readwrite {PREFIX}"),
            "user add sealane:a_password",
            "user grant-role sealane sealane",
            "user grant-role root root",
            "auth enable",
        ] {
            let words: Vec<_> = order.split(' ').map(|word| word.replace('_', " ")).collect();
            self.control(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    /// The table `[fleet]` of a machine.
    pub fn table(&self, machine: &str) -> String {
        let path = |name: &str| self.folder.path().join(name);
        let endpoints: Vec<_> = self.numbers().map(|number| self.endpoint(number)).collect();
        format!(
            "[fleet]\netcd = {endpoints:?}\nroots = [{:?}]\ncertificate = {:?}\nkey = {:?}\n\
             user = \"sealane\"\npassword = {{ file = {:?} }}\nprefix = \"{PREFIX}\"\n\
             machine = \"{machine}\"\nlease = \"5s\"\n",
            path("ca.pem"),
            path("node.pem"),
            path("node.key"),
            path("password"),
        )
    }

    /// Runs etcdctl as root, and returns what it says.
    pub fn control(&self, arguments: &[&str]) -> String {
        self.try_control(arguments).unwrap_or_else(|text| panic!("{arguments:?}: {text}"))
    }

    /// Runs etcdctl as root against one server.
    pub fn control_at(&self, number: usize, arguments: &[&str]) -> String {
        let output = self.run(&self.endpoint(number), arguments);
        output.unwrap_or_else(|text| panic!("{arguments:?}: {text}"))
    }

    pub fn try_control(&self, arguments: &[&str]) -> Result<String, String> {
        let endpoints: Vec<_> = self.numbers().map(|number| self.endpoint(number)).collect();
        self.run(&endpoints.join(","), arguments)
    }

    fn run(&self, endpoints: &str, arguments: &[&str]) -> Result<String, String> {
        let output = self.etcdctl(endpoints).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if arguments == ["auth", "enable"] {
            fs::write(self.folder.path().join("with-auth"), "").unwrap();
        }
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// Puts junk until the cluster takes no more, and returns what it says then.
    pub fn fill(&self) -> String {
        let junk = self.folder.path().join("junk");
        fs::write(&junk, vec![b'x'; 1 << 20]).unwrap();
        loop {
            let mut command = self.etcdctl(&self.endpoint(0));
            let output = command.args(["put", "/junk"]).stdin(File::open(&junk).unwrap()).output();
            let output = output.unwrap();
            if !output.status.success() {
                return String::from_utf8_lossy(&output.stderr).into_owned();
            }
        }
    }

    /// Has a shell do what a page says, as root.
    pub fn shell(&self, script: &str) {
        let path = |name: &str| self.folder.path().join(name);
        let endpoints: Vec<_> = self.numbers().map(|number| self.endpoint(number)).collect();
        let mut command = Command::new("/bin/sh");
        command.args(["-e", "-c", script]).env("ETCDCTL_API", "3").env("ETCDCTL_USER", "root:root");
        command.env("ETCDCTL_ENDPOINTS", endpoints.join(",")).env("ETCDCTL_CACERT", path("ca.pem"));
        command.env("ETCDCTL_CERT", path("node.pem")).env("ETCDCTL_KEY", path("node.key"));
        // Five seconds otherwise, which three servers on a busy machine may not do with.
        command.env("ETCDCTL_COMMAND_TIMEOUT", "60s").env("ETCDCTL_DIAL_TIMEOUT", "20s");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:.300}: {}: {said}", script, output.status);
    }

    /// What is at a key.
    pub fn value(&self, key: &str) -> Vec<u8> {
        let mut command = self.etcdctl(&self.endpoint(0));
        let mut value = command.args(["get", "--print-value-only", key]).output().unwrap().stdout;
        // It ends the line.
        value.pop();
        value
    }

    /// Changes the last byte of what is at a key, and returns what is there then.
    pub fn ruin(&self, key: &str) -> Vec<u8> {
        let mut value = self.value(key);
        *value.last_mut().unwrap() ^= 1;
        self.put(key, &value);
        value
    }

    /// Puts this at a key.
    pub fn put(&self, key: &str, value: &[u8]) {
        let file = self.folder.path().join("value");
        fs::write(&file, value).unwrap();
        let mut command = self.etcdctl(&self.endpoint(0));
        let output = command.args(["put", key]).stdin(File::open(&file).unwrap()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// The keys below the prefix and `below`.
    pub fn keys(&self, below: &str) -> Vec<String> {
        let all = self.control(&["get", "--prefix", "--keys-only", &format!("{PREFIX}{below}")]);
        all.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// How many there are.
    pub fn count(&self, below: &str) -> u64 {
        let below = format!("{PREFIX}{below}");
        let all = self.control(&["get", "--prefix", "--limit=1", "-w", "fields", &below]);
        let line = all.lines().find(|line| line.starts_with("\"Count\"")).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Ends a server, as a machine that fails.
    pub fn kill(&self, number: usize) {
        if let Some(mut node) = self.nodes.borrow_mut()[number].take() {
            node.signal(Signal::KILL);
            node.end();
        }
    }

    /// Sends a server a signal.
    pub fn signal(&self, number: usize, signal: Signal) {
        if let Some(node) = &mut self.nodes.borrow_mut()[number] {
            node.signal(signal);
        }
    }

    /// Ends all servers.
    pub fn kill_all(&self) {
        self.numbers().for_each(|number| self.kill(number));
    }

    /// Starts servers that were killed, with what they know.
    pub fn start_again(&self) {
        for number in self.numbers() {
            if self.nodes.borrow()[number].is_none() {
                let node = self.spawn(number, &[]);
                self.nodes.borrow_mut()[number] = Some(node);
            }
        }
        self.wait_until_well();
    }

    /// Which server leads.
    pub fn leader(&self) -> usize {
        let leads =
            |number: &usize| self.field(*number, "MemberID") == self.field(*number, "Leader");
        wait_for("a leader", || self.numbers().find(leads))
    }

    /// What a server says of itself.
    pub fn field(&self, number: usize, name: &str) -> String {
        let status = self.control_at(number, &["endpoint", "status", "-w", "fields"]);
        let line = status.lines().find(|line| line.starts_with(&format!("\"{name}\""))).unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    }

    /// Sets all servers back to a snapshot.
    pub fn restore(&self, snapshot: &Path) {
        self.kill_all();
        for number in self.numbers() {
            let data = self.data(number);
            fs::remove_dir_all(&data).unwrap();
            let mut command = Command::new(ETCDCTL);
            command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(snapshot);
            command.args(["--name", &format!("n{number}"), "--initial-cluster", &self.members()]);
            command.args(["--initial-cluster-token", &self.token()]);
            command.args(["--initial-advertise-peer-urls", &self.peer(number), "--data-dir"]);
            let output = command.arg(data).output().unwrap();
            assert!(output.status.success(), "{output:?}");
        }
        self.start_again();
    }

    fn numbers(&self) -> Range<usize> {
        0..self.ports.len()
    }

    pub fn endpoint(&self, number: usize) -> String {
        format!("https://{}", self.ports[number][0].address())
    }

    fn peer(&self, number: usize) -> String {
        format!("https://{}", self.ports[number][1].address())
    }

    fn members(&self) -> String {
        let each = self.numbers().map(|number| format!("n{number}={}", self.peer(number)));
        each.collect::<Vec<_>>().join(",")
    }

    /// What, beside its members, makes the number of a cluster.
    fn token(&self) -> String {
        format!("sealane-{}", self.lives.get())
    }

    fn data(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("data-{number}"))
    }

    fn spawn(&self, number: usize, more: &[&str]) -> Process {
        let path = |name: &str| self.folder.path().join(name);
        let log = File::options().create(true).append(true).open(path("etcd.log")).unwrap();
        let mut command = Command::new(ETCD);
        command.args(["--name", &format!("n{number}"), "--data-dir"]).arg(self.data(number));
        let (client, peer) = (self.endpoint(number), self.peer(number));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.members()]);
        command.args(["--initial-cluster-token", &self.token()]);
        for kind in ["", "peer-"] {
            command.arg(format!("--{kind}client-cert-auth"));
            command.arg(format!("--{kind}trusted-ca-file")).arg(path("ca.pem"));
            command.arg(format!("--{kind}cert-file")).arg(path("node.pem"));
            command.arg(format!("--{kind}key-file")).arg(path("node.key"));
        }
        command.arg(format!("--quota-backend-bytes={}", self.quota_bytes)).args(more);
        let log_too = log.try_clone().unwrap();
        Process::new(command.stdin(Stdio::null()).stdout(log).stderr(log_too).spawn().unwrap())
    }

    fn wait_until_well(&self) {
        wait_for("all servers", || self.try_control(&["endpoint", "health"]).ok());
    }

    fn etcdctl(&self, endpoints: &str) -> Command {
        let path = |name: &str| self.folder.path().join(name);
        let mut command = Command::new(ETCDCTL);
        command.env("ETCDCTL_API", "3").arg("--cacert").arg(path("ca.pem"));
        command.arg("--cert").arg(path("node.pem")).arg("--key").arg(path("node.key"));
        command.args(["--endpoints", endpoints]);
        let is_open = fs::metadata(path("with-auth")).is_ok();
        if is_open {
            command.args(["--user", "root:root"]);
        }
        command
    }
}

/// A root in `ca.pem`, and in `node.pem` and `node.key` what servers and clients show. It has no
/// name but the address: etcd takes a common name for that of a user.
fn write_certificates(folder: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let root = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    fs::write(folder.join("ca.pem"), root.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let leaf = params.signed_by(&key, &issuer).unwrap();
    fs::write(folder.join("node.pem"), leaf.pem()).unwrap();
    fs::write(folder.join("node.key"), key.serialize_pem()).unwrap();
    close(&folder.join("node.key"));
}

/// What stands before every key of the fleet.
pub const PREFIX: &str = "/sealane/test/";

const ETCD: &str = "/usr/bin/etcd";
const ETCDCTL: &str = "/usr/bin/etcdctl";
/// More than any test needs, and soon used up by one that wants that.
const QUOTA_BYTES: u64 = 32 << 20;
