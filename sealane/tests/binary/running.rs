//! Commands that speak to a running Sealane over its admin socket, and whom it obeys.

mod orders;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::geteuid;
use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::process::Process;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane, Settings};
use crate::harness::tools::{required, run};
use crate::harness::{PATIENCE, wait_for};

/// Sealane in front of an echo, with `watch = false`, so that nothing but an order reloads.
struct Rig {
    connector: Connector,
    folder: tempfile::TempDir,
    sealane: Sealane,
    settings: Settings,
}

impl Rig {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let listener = ListenerSettings::new("web", &certificate, &Backend::echo().address);
        let mut settings = Settings::new(vec![listener]);
        settings.more = "watch = false".into();
        let sealane = Sealane::start(folder.path(), &settings);
        let connector = Connector::new(authority.der(), &TLS13);
        Self { connector, folder, sealane, settings }
    }

    fn run(&self, words: &[&str]) -> Ran {
        Ran::of(&run(&mut self.sealane.command(words)))
    }
}

/// What a command came to.
#[derive(Debug, PartialEq)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

#[test]
fn an_ordered_reload_says_what_came_of_it() {
    let rig = Rig::start();
    let path = rig.folder.path();
    let accepted = rig.run(&["reload"]);
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    assert!(accepted.out.starts_with("reloaded: generation 2 in "), "{accepted:?}");
    let lanes = rig.sealane.metrics().sum("sealane_lane_generation", &[]);
    assert_eq!(lanes, 2 * 2, "both lanes serve it when the command ends");

    let mut wrong = rig.settings.clone();
    wrong.listeners[0].more = "suites = [\"x\"]\nbalanse = \"round-robin\"".into();
    wrong.lanes = 3;
    wrong.write(path);
    let refused = rig.run(&["reload"]);
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.out.starts_with("reload refused, generation 2 goes on\n"), "{refused:?}");
    let check =
        run(Command::new(BINARY).arg("check").arg("--config").arg(path.join("sealane.toml")));
    let check = Ran::of(&check).out;
    let mistakes: Vec<_> = check.lines().filter(|line| line.starts_with("  error: ")).collect();
    assert!(mistakes.len() == 2 && mistakes[1].contains("did you mean"), "{check}");
    for mistake in mistakes {
        assert!(refused.out.lines().any(|line| line == mistake), "{mistake} in {refused:?}");
    }

    wrong.listeners[0].more.clear();
    wrong.write(path);
    let warned = rig.run(&["reload", "--json"]);
    assert_eq!(warned.code, Some(0), "{warned:?}");
    let verdict: Value = serde_json::from_str(&warned.out).unwrap();
    let warning = "the change of lanes takes effect at the next start";
    assert_eq!(verdict["warnings"][0], warning, "{verdict}");
    assert_eq!((&verdict["generation"], &verdict["errors"]), (&3.into(), &serde_json::json!([])));
    let state: Value = serde_json::from_str(&rig.sealane.admin("/state")).unwrap();
    let outcomes = state["reloads"]["recent"].as_array().unwrap().iter();
    let outcomes: Vec<_> = outcomes.map(|each| each["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["accepted", "refused", "accepted"]);
}

#[test]
fn what_runs_is_shown_at_once_and_live() {
    let mut rig = Rig::start();
    let mut client = rig.connector.connect(rig.settings.listeners[0].address).unwrap();
    client.echo(b"hello").unwrap();
    let shown = rig.run(&["status"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let backend = &rig.settings.listeners[0].backends[0];
    for text in [
        "1 connection, 0 of them in handshakes",
        "generation 1, 1 alive; tickets of epoch ",
        "  1 certificate; the first to expire:\n",
        "  localhost (web)\n",
        &format!("  {backend:<40}      up            1          1        0\n"),
    ] {
        assert!(shown.out.contains(text), "{text:?} in {}", shown.out);
    }
    let json: Value = serde_json::from_str(&rig.run(&["status", "--json"]).out).unwrap();
    assert_eq!(json["lanes"].as_array().unwrap().len(), 2);
    assert!(json["lanes"][0]["cpu_ms"].is_u64(), "{}", json["lanes"]);
    let alone = rig.run(&["status", "--watch"]);
    assert_eq!(alone.code, Some(2), "{alone:?}");

    if required("script").is_none() {
        return;
    }
    let typescript = rig.folder.path().join("typescript");
    // In the shell's place: one that stays hears of Ctrl-C as well, and says so by its exit code.
    let command = format!("exec {:?}", rig.sealane.command(&["status", "--watch"]));
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--flush", "--command", &command]).arg(&typescript);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut terminal = Process::new(child);
    let drawn = || String::from_utf8_lossy(&std::fs::read(&typescript).unwrap()).into_owned();
    wait_for("two pictures", || {
        let has_two = typescript.exists() && drawn().matches("\x1b[Hsealane ").count() >= 2;
        has_two.then_some(())
    });
    keys.write_all(b"\x03").unwrap();
    assert_eq!(terminal.wait(PATIENCE).code(), Some(0));
    assert!(drawn().contains("\x1b[?25h\x1b[?1049l"), "the terminal is left as it was");

    rig.sealane.signal(rustix::process::Signal::TERM);
    drop(client);
    rig.sealane.process.wait(PATIENCE);
    let gone = rig.run(&["status"]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.err.contains("admin.sock: No such file"), "{gone:?}");
    assert!(gone.err.contains("see that Sealane runs"), "{gone:?}");
}

/// Whoever may open the socket sees what everybody may see; orders are another thing.
#[test]
fn strangers_see_and_do_not_order() {
    if !geteuid().is_root() || required("setpriv").is_none() {
        println!("SKIPPED: only root can be somebody else");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let certificate = folder.path().join("site.pem");
    std::fs::write(&certificate, Authority::new().leaf(KeyKind::P256, &NAMES)).unwrap();
    let backend = Backend::echo().address;
    let listener = ListenerSettings::new("web", &certificate, &backend);
    let tcp = ReservedPort::on_loopback().unwrap();
    let socket = folder.path().join("admin.sock");
    let config = format!(
        "[admin]\naddress = \"{}\"\nsocket = {socket:?}\nsocket_mode = \"0666\"\n\
         [[listener]]\naddress = \"{}\"\ncertificates = [{certificate:?}]\n\
         backends = [\"{backend}\"]\n",
        tcp.address(),
        listener.address
    );
    let file = folder.path().join("sealane.toml");
    std::fs::write(&file, config).unwrap();
    let mut serve = Command::new(BINARY);
    serve.args(["serve", "--config"]).arg(&file).stderr(Stdio::null());
    let _process = Process::new(serve.spawn().unwrap());
    wait_for("the socket", || std::os::unix::net::UnixStream::connect(&socket).ok());
    // The build's own folder is not for everybody.
    let binary = folder.path().join("sealane");
    crate::harness::install(Path::new(BINARY), &binary);
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
        Ran::of(&run(command.args(words).arg("--socket").arg(&socket)))
    };
    let shown = as_nobody(&["status", "--json"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let refused = as_nobody(&["reload"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("orders are taken from root, and from the user"), "{refused:?}");
    for words in [&["list"][..], &["show", "localhost"], &["remove", "localhost"], &["import", "-"]]
    {
        let refused = as_nobody(&[&["certificates"], words].concat());
        assert_ne!(refused.code, Some(0), "{refused:?}");
        assert!(refused.err.contains("orders are taken from root"), "{words:?}: {refused:?}");
    }
    let obeyed = run(Command::new(BINARY).arg("reload").arg("--socket").arg(&socket));
    assert!(obeyed.status.success(), "{obeyed:?}");

    // Over TCP nobody is obeyed, not even root.
    let ask = |request: &str| {
        let mut stream = TcpStream::connect(tcp.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(ask("GET /healthz"), "HTTP/1.1 200 OK");
    assert_eq!(ask("POST /reload"), "HTTP/1.1 405 Method Not Allowed");
    assert_eq!(ask("GET /reload"), "HTTP/1.1 404 Not Found");
    assert_eq!(ask("GET /certificates"), "HTTP/1.1 404 Not Found");
    for method in ["DELETE", "PUT"] {
        let refused = ask(&format!("{method} /certificates"));
        assert_eq!(refused, "HTTP/1.1 405 Method Not Allowed");
    }
}

#[test]
fn a_socket_that_nobody_answers_at_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let mut command = Command::new(BINARY);
    let ran = Ran::of(&run(command.arg("reload").arg("--socket").arg(&socket)));
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("stale.sock: Connection refused"), "{}", ran.err);
    assert!(ran.err.contains("Sealane has ended; start it"), "{}", ran.err);
}
