//! The system calls of lanes: those that they make, under strace(1), are those that they may make.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use sealane_control::process::filter::CALLS;
use sealane_reserved_port::ReservedPort;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::certificates::{KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::filtered::filtered;
use crate::harness::sealane::{ListenerSettings, Sealane, TRACE_TO};
use crate::harness::secured::SecuredBackend;
use crate::harness::site::Site;
use crate::harness::tools::{self, required};

/// What lanes asked of the kernel once they were held to a filter, by traces in `folder`.
fn calls_in(folder: &Path) -> BTreeSet<String> {
    let mut calls = BTreeSet::new();
    let mut lanes = 0;
    for file in fs::read_dir(folder).unwrap() {
        let file = BufReader::new(File::open(file.unwrap().path()).unwrap());
        let lines = file.split(b'\n').map(|line| String::from_utf8_lossy(&line.unwrap()).into());
        let mut lines = lines.skip_while(|line: &String| !line.starts_with(NAMED));
        if !lines.any(|line| line.starts_with(FILTERED)) {
            continue;
        }
        lanes += 1;
        calls.extend(lines.filter_map(|line| {
            let name = line.split_once('(')?.0;
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            name.chars().all(is_name).then(|| name.to_owned())
        }));
    }
    assert!(lanes > 0, "no lane was traced in {}", folder.display());
    calls
}

/// Fails unless `made` are all calls of the list but those that are kept for what is rare.
fn assert_listed(made: &BTreeSet<String>) {
    let listed: BTreeSet<_> = CALLS.iter().map(|call| call.name.to_owned()).collect();
    let unlisted: Vec<_> = made.difference(&listed).collect();
    let as_a_rule = CALLS.iter().filter(|call| call.reserved_for.is_none());
    let unused: Vec<_> = as_a_rule.map(|call| call.name).filter(|c| !made.contains(*c)).collect();
    assert!(
        unlisted.is_empty() && unused.is_empty(),
        "lanes make calls that they may not: {unlisted:?}; they may make calls that they do not: \
         {unused:?}; they make {made:?}"
    );
}

/// A thread of a lane is named by its first call or one of the next.
const NAMED: &str = "prctl(PR_SET_NAME, \"lane-";
const FILTERED: &str = "seccomp(SECCOMP_SET_MODE_FILTER";

/// Everything that a lane does, once: all that listeners speak, from and to all kinds of sockets, a
/// store, checks, orders, a reload, and the end.
#[test]
fn lanes_make_all_calls_that_they_may_and_no_others() {
    if required("strace").is_none() {
        return;
    }
    let traces = tempfile::tempdir().unwrap();
    let mut rig = Rig::new();
    rig.site.settings.trace_to = Some(traces.path().into());
    rig.start();
    rig.speak();
    rig.order();
    rig.reload();
    let sealane = rig.site.sealane.take().unwrap();
    assert_eq!(sealane.stop(), Some(0));
    assert_listed(&calls_in(traces.path()));
}

/// A listener of every kind: `site`, from the store, is the first.
struct Rig {
    site: Site,
    certificate: PathBuf,
    echo: Backend,
    /// A port at which nobody listens.
    nobody: ReservedPort,
}

impl Rig {
    fn new() -> Self {
        let site = Site::new();
        let leaf = site.authority.leaf(KeyKind::P256, &NAMES);
        let certificate = site.path().join("site.pem");
        fs::write(&certificate, &leaf).unwrap();
        site.authority.write(site.path());
        let nobody = ReservedPort::on_loopback().unwrap();
        let mut rig = Self { site, certificate, echo: Backend::echo_for_many(), nobody };
        let secured = format!("tls://{}", SecuredBackend::echo(&leaf, None).address);
        let socket = rig.site.path().join("local.sock");
        let trust = "backend_tls.roots = [\"ca.pem\"]";

        let mut local = rig.listener("local", &format!("plain = \"relay\"\n{trust}"));
        (local.certificates, local.backends) = (None, vec![secured.clone()]);
        let mut to_local = rig.listener("to-local", "");
        to_local.backends = vec![format!("unix:{}", socket.display())];
        local.socket = Some(socket);
        let mut to_secured = rig.listener("to-secured", trust);
        to_secured.backends = vec![secured];
        let mut redirecting = rig.listener("redirecting", "plain = \"redirect\"");
        (redirecting.certificates, redirecting.backends) = (None, Vec::new());
        let announced = rig.listener("announced", ANNOUNCED);
        let telling = rig.listener("telling", TELLING);
        let starting = rig.listener("starting", "starttls = \"postgres\"");
        let mut passing = rig.listener("passing", "passthrough = true");
        (passing.certificates, passing.backends) = (None, vec![to_local.address.to_string()]);
        let mut refused = rig.listener("refused", "");
        refused.backends = vec![rig.nobody.address().to_string()];
        let more = [
            local,
            to_local,
            to_secured,
            redirecting,
            announced,
            telling,
            starting,
            passing,
            refused,
        ];
        rig.site.settings.listeners.extend(more);
        // Or else nobody may trace it.
        rig.site.settings.more += "\nprocess.allow_core_dump = true";
        rig.site.settings.more += "\naccess_log.path = \"access.log\"";
        rig
    }

    fn listener(&self, name: &str, more: &str) -> ListenerSettings {
        ListenerSettings::new(name, &self.certificate, &self.echo.address).with(more)
    }

    fn start(&mut self) {
        self.site.sealane = Some(Sealane::start(self.site.path(), &self.site.settings));
    }

    fn address(&self, name: &str) -> SocketAddr {
        let listeners = &self.site.settings.listeners;
        listeners.iter().find(|listener| listener.name == name).unwrap().address
    }

    fn connector(&self, version: &'static SupportedProtocolVersion) -> Connector {
        Connector::new(self.site.authority.der(), version)
    }

    /// Connections of all kinds.
    fn speak(&self) {
        self.site.served("kept.test").unwrap();
        for version in [&TLS12, &TLS13] {
            let connector = self.connector(version);
            // The second time it resumes.
            for name in ["to-secured", "to-local", "to-secured", "to-local"] {
                let mut client = connector.connect(self.address(name)).unwrap();
                client.echo(&[7; 100_000]).unwrap();
                client.end(true).unwrap();
                assert!(client.read_rest().unwrap().is_empty());
            }
            let stream = TcpStream::connect(self.address("announced")).unwrap();
            connector.behind(HEADER, stream, b"").unwrap().echo(b"a word").unwrap();
            let mut client = connector.connect(self.address("telling")).unwrap();
            client.write_all(b"a word").unwrap();
            client.end(true).unwrap();
            // Behind the header that the backend got.
            assert!(client.read_rest().unwrap().ends_with(b"a word"));
        }
        let connector = self.connector(&TLS13);
        let nobody = connector.connect(self.address("refused"));
        assert!(nobody.and_then(|mut client| client.echo(b"a word")).is_err());
        connector.connect(self.address("passing")).unwrap().echo(b"a word").unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
        assert!(self.said("redirecting", request).contains(" 308 "));
        assert!(!self.said("site", b"no hello\r\n").is_empty());
        let mut starting = TcpStream::connect(self.address("starting")).unwrap();
        starting.write_all(SSL_REQUEST).unwrap();
        let mut answer = [0];
        starting.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"S");
        assert!(connector.over(starting, b"").is_ok());
    }

    /// What a listener answers to these bytes before it ends the connection.
    fn said(&self, name: &str, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address(name)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        // A reset is an end too.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Orders of an operator: what there is, and that a connection ends.
    fn order(&self) {
        let mut client = self.connector(&TLS13).connect(self.address("to-local")).unwrap();
        client.echo(b"a word").unwrap();
        let command = |words: &[&str]| tools::output(&mut self.site.sealane().command(words));
        let listed = command(&["connections", "list", "--json"]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let all = listed["connections"].as_array().unwrap();
        let own = all.iter().find(|one| one["listener"] == "to-local").unwrap();
        command(&["connections", "close", own["connection"].as_str().unwrap()]);
        let backend = self.echo.address.to_string();
        command(&["backends", "drain", &backend]);
        command(&["backends", "restore", &backend]);
        let _ = client.read_rest();
    }

    /// A listener goes, another comes.
    fn reload(&mut self) {
        let added = self.listener("added", "");
        let address = added.address;
        let listeners = &mut self.site.settings.listeners;
        listeners.retain(|listener| listener.name != "announced");
        listeners.push(added);
        self.site.settings.write(self.site.path());
        self.site.sealane.as_mut().unwrap().wait_until_reloaded(1);
        self.connector(&TLS13).connect(address).unwrap().echo(b"a word").unwrap();
    }
}

/// A listener behind a balancer.
const ANNOUNCED: &str = "accept_proxy = \"required\"\nproxy_from = [\"127.0.0.0/8\"]";
const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.9 4000 443\r\n";
/// A listener whose backend is told of clients, and checked.
const TELLING: &str = "proxy_header = \"v2\"\ncheck = { every = \"100ms\" }";
/// What a client of PostgreSQL begins with that wants TLS.
const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];

/// With the variable SEALANE_TRACE_TO, which the tests of this binary ran with before.
#[test]
#[ignore = "of a suite that ran under strace"]
fn a_suite_that_was_traced_made_all_calls_that_lanes_may_make_and_no_others() {
    let folder = PathBuf::from(std::env::var_os(TRACE_TO).expect("the folder with traces"));
    assert_listed(&calls_in(&folder));
    // The next suite begins anew.
    fs::remove_dir_all(folder).unwrap();
}

/// Filters of every thread whose name begins so, in the kernel's words: one number.
fn filters(sealane: &Sealane, name: &str) -> u32 {
    let process = sealane.process.id();
    let threads = sealane.process.threads(name).into_iter();
    let status = |thread| fs::read_to_string(format!("/proc/{process}/task/{thread}/status"));
    let number = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("Seccomp_filters:\t"));
        line.expect("Linux 5.9").parse().unwrap()
    };
    let found: BTreeSet<u32> = threads.map(|thread| number(status(thread).unwrap())).collect();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.into_iter().next().unwrap()
}

fn process_of(sealane: &Sealane) -> Value {
    let state: Value = serde_json::from_str(&sealane.admin("/state")).unwrap();
    state["process"].clone()
}

#[test]
fn every_lane_has_a_filter_and_no_other_thread_unless_that_is_turned_off() {
    let mut site = Site::new();
    for (more, wanted) in [("", true), ("\nprocess.sandbox = false", false)] {
        site.settings.more += more;
        let mut sealane = Sealane::start(site.path(), &site.settings);
        site.served("kept.test").unwrap();
        // Who runs the tests may be under one too.
        let lanes = filters(&sealane, "lane-") - filters(&sealane, "signals");
        assert_eq!(lanes, u32::from(wanted), "{more}");
        let process = process_of(&sealane);
        assert_eq!(process["seccomp"], wanted, "{process}");
        assert_eq!(process["seccomp_refusal"].is_null(), wanted, "{process}");
        let status = tools::output(&mut sealane.command(&["status"]));
        let unfiltered = "lanes may make every system call: process.sandbox is false\n";
        assert_eq!(status.contains(unfiltered), !wanted, "{status}");
        assert_eq!(sealane.count_said("every system call"), 0, "{:?}", sealane.said());
        sealane.signal(Signal::HUP);
        sealane.wait_until_reloaded(1);
        site.served("kept.test").unwrap();
        assert_eq!(sealane.stop(), Some(0));
    }
}

/// A container's own filter may forbid it.
#[test]
fn where_no_filter_can_be_had_that_is_said_and_lanes_serve() {
    if required("python3").is_none() {
        return;
    }
    let mut site = Site::new();
    let program = filtered(site.path(), "seccomp");
    let mut sealane = Sealane::launch(site.path(), &site.settings, &program);
    sealane.wait_until_said("serve: ready");
    let expected = "lanes may make every system call: the system refuses a filter: Operation not \
                    permitted (os error 1); let whoever starts this process allow seccomp(2), as \
                    SystemCallFilter= of the unit in packaging does";
    assert_eq!(sealane.count_said(expected), 1, "{:?}", sealane.said());
    assert_eq!(filters(&sealane, "lane-"), filters(&sealane, "signals"));
    let process = process_of(&sealane);
    assert_eq!(process["seccomp"], false, "{process}");
    let status = tools::output(&mut sealane.command(&["status"]));
    assert!(status.contains(expected), "{status}");
    site.served("kept.test").unwrap();
    assert_eq!(sealane.stop(), Some(0));
    let mut check = |more: &str| {
        site.settings.more += more;
        site.settings.write(site.path());
        let mut command = Command::new(&program);
        tools::output(command.arg("check").arg("--config").arg(site.path().join("sealane.toml")))
    };
    let text = check("");
    assert!(text.contains(&format!("warning: {expected}")), "{text}");
    let text = check("\nprocess.sandbox = false");
    assert!(!text.contains("every system call"), "{text}");
}
