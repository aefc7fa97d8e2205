//! The page at the admin address in a real Chromium, and the metrics that dashboards ask for.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;
use serde_json::Value;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::Connector;
use crate::harness::process::Process;
use crate::harness::sealane::{BINARY, ListenerSettings};
use crate::harness::tools::{self, required};
use crate::harness::{PATIENCE, wait_for};

const HOSTILE: &str = "<img src=x onerror=document.title=1>";

/// Sealane with a page on TCP, one backend that works and one that is not there, and names of
/// strangers.
struct Rig {
    admin: SocketAddr,
    folder: tempfile::TempDir,
    _process: Process,
    _reserved: ReservedPort,
}

impl Rig {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let backend = Backend::echo().address;
        let listener = ListenerSettings::new("web", &certificate, &backend);
        let reserved = ReservedPort::on_loopback().unwrap();
        let (admin, socket) = (reserved.address(), folder.path().join("admin.sock"));
        let text = format!(
            "lanes = 2\nwatch = false\n[admin]\naddress = \"{admin}\"\nsocket = {socket:?}\n\
             [access_log]\npath = {:?}\n\
             [[listener]]\nname = \"web\"\naddress = \"{}\"\n\
             certificates = [{certificate:?}]\n\
             backends = [\"{backend}\", \"unix:{}/{HOSTILE}\"]\n\
             [listener.check]\nevery = \"100ms\"\nfall = 1\nrise = 1\n",
            folder.path().join("access.log"),
            listener.address,
            folder.path().display(),
        );
        let file = folder.path().join("sealane.toml");
        std::fs::write(&file, &text).unwrap();
        let mut serve = Command::new(BINARY);
        serve.args(["serve", "--config"]).arg(&file).stderr(Stdio::null());
        let process = Process::new(serve.spawn().unwrap());
        wait_for("the page", || TcpStream::connect(admin).ok());
        let connector = Connector::new(authority.der(), &TLS13);
        for _ in 0..4 {
            let mut client = wait_for("a client", || connector.connect(listener.address).ok());
            client.echo(b"hello").unwrap();
            client.end(true).unwrap();
        }
        std::fs::write(&file, text.replace("watch", &format!("\"{HOSTILE}\""))).unwrap();
        let mut reload = Command::new(BINARY);
        reload.arg("reload").arg("--socket").arg(&socket).stdout(Stdio::null());
        assert_eq!(reload.status().unwrap().code(), Some(3), "a mistake that names a stranger");
        let rig = Self { admin, folder, _process: process, _reserved: reserved };
        let found = "backend_up{backend=\"unix:";
        wait_for("a check", || rig.get("/metrics", "*/*").1.contains(found).then_some(()));
        rig
    }

    fn get(&self, path: &str, accept: &str) -> (String, String) {
        let mut stream = TcpStream::connect(self.admin).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// The document that Chromium has made of a page, and what it complained of.
    fn browse(&self, url: &str, more: &[&str]) -> Option<(String, String)> {
        let chromium = required("chromium")?;
        let mut command = Command::new(chromium);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]);
        command.arg(format!("--user-data-dir={}", self.folder.path().join("chromium").display()));
        command.args(["--virtual-time-budget=9000", "--dump-dom"]).args(more).arg(url);
        let output = tools::run(&mut command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some((text(&output.stdout), text(&output.stderr)))
    }
}

#[test]
fn a_browser_draws_the_page_and_shows_names_as_text() {
    let rig = Rig::start();
    let (head, page) = rig.get("/", "text/html,*/*");
    assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; "), "{head}");
    assert!(!page.contains("http://") || page.matches("http://").count() == 2, "{page:.200}");
    assert!(rig.get("/", "*/*").1.starts_with("Sealane; a browser gets a page here\n"));
    let Some((dom, log)) = rig.browse(&format!("http://{}/", rig.admin), &[]) else { return };
    assert!(!log.contains("CONSOLE"), "{log}");
    assert!(dom.contains("<title>Sealane</title>"), "nothing of a stranger's ran: {dom}");
    assert!(!dom.contains("<img"), "a name became markup: {dom}");
    for text in [
        "&lt;img src=x onerror=document.title=1&gt;",
        "<span class=\"good\">up</span>",
        "<span class=\"bad\">down: it cannot be connected to: ",
        "<span class=\"bad\">refused</span>",
        "is not a known key",
        "<td>clean</td>",
        "<td>localhost</td>",
        "<p id=\"balance\">Busiest: ",
        "<polyline",
        "<meter",
    ] {
        assert!(dom.contains(text), "{text} is not in {dom}");
    }
}

/// On a phone, in both themes: nothing is wider than the window, and the themes differ.
#[test]
fn the_page_fits_a_phone_in_both_themes() {
    let rig = Rig::start();
    let page = rig.get("/", "text/html").1;
    let state: Value = serde_json::from_str(&rig.get("/state", "*/*").1).unwrap();
    let stub = format!(
        "<script>window.fetch = async () => ({{ ok: true, json: async () => ({}) }});</script>",
        state.to_string().replace('<', "\\u003c")
    );
    let probe = "<script>setTimeout(() => {\
        const d = document.documentElement;\
        parent.document.getElementById('said').textContent = [innerWidth,\
        d.scrollWidth - d.clientWidth,\
        document.querySelectorAll('#lanes tr').length,\
        getComputedStyle(document.body).backgroundColor].join(' ');}, 3000)</script>";
    let page = page.replace("<head>", &format!("<head>{stub}")).replace("</body>", probe);
    let page = page.replace('&', "&amp;").replace('"', "&quot;");
    let mut themes = Vec::new();
    for (width, dark) in [(360, false), (360, true), (1280, false)] {
        let file = rig.folder.path().join(format!("{width}-{dark}.html"));
        let frame = format!(
            "<!doctype html><meta charset=\"utf-8\"><meta name=\"color-scheme\" \
             content=\"light dark\"><body><pre id=\"said\"></pre><iframe width=\"{width}\" \
             height=\"900\" frameborder=\"0\" srcdoc=\"{page}\"></iframe></body>"
        );
        std::fs::write(&file, frame).unwrap();
        let more = if dark { &["--blink-settings=preferredColorScheme=0"][..] } else { &[] };
        let url = format!("file://{}", file.display());
        let Some((dom, log)) = rig.browse(&url, more) else { return };
        let (_, said) = dom.split_once("<pre id=\"said\">").unwrap();
        let said = said.split_once("</pre>").unwrap().0;
        let facts: Vec<_> = said.splitn(4, ' ').collect();
        assert_eq!(facts[..3], [&width.to_string(), "0", "3"], "{said}: {log}");
        themes.push(facts[3].to_owned());
    }
    assert_eq!(themes[0], themes[2]);
    assert_ne!(themes[0], themes[1], "light and dark differ");
}

/// Every metric that the dashboard and the alerts ask for is one that is there.
#[test]
fn dashboard_and_alerts_ask_for_metrics_that_there_are() {
    let rig = Rig::start();
    let metrics = rig.get("/metrics", "*/*").1;
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
    let read = |name: &str| std::fs::read_to_string(packaging.join(name)).unwrap();
    let (dashboard, alerts) = (read("grafana.json"), read("alerts.yml"));
    let board: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(queries.len() > 10, "{queries:?}");
    let mut asked = Vec::new();
    for text in queries.iter().copied().chain([alerts.as_str()]) {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        asked.extend(words.filter(|word| word.starts_with("sealane_")).map(ToOwned::to_owned));
    }
    asked.sort_unstable();
    asked.dedup();
    assert!(asked.len() > 15, "{asked:?}");
    for name in &asked {
        let has = metrics.lines().any(|line| {
            line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "))
        });
        assert!(has, "no {name} in\n{metrics}");
    }
    let Some(promtool) = required("promtool") else { return };
    tools::output(
        Command::new(&promtool).args(["check", "rules"]).arg(packaging.join("alerts.yml")),
    );
    tools::output_with_input(
        Command::new(&promtool).args(["check", "metrics"]),
        metrics.as_bytes(),
    );
    // What the dashboard asks is understood too: as rules of their own.
    let rule = |(number, query): (usize, &&str)| {
        let query = query.replace("$__rate_interval", "5m").replace("$instance", ".*");
        format!("  - record: query:{number}\n    expr: {query:?}\n")
    };
    let rules: String = queries.iter().enumerate().map(rule).collect();
    let file = rig.folder.path().join("queries.yml");
    std::fs::write(&file, format!("groups:\n- name: dashboard\n  rules:\n{rules}")).unwrap();
    tools::output(Command::new(&promtool).args(["check", "rules"]).arg(file));
}
