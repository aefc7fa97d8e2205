//! Certificates put into the store of a Sealane that runs, shown and removed, by its admin socket.

mod memory;
mod streams;

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::process::geteuid;
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::harness::certificates::KeyKind;
use crate::harness::sealane::{BINARY, ListenerSettings, Sealane};
use crate::harness::site::{Site, error_text};
use crate::harness::{PATIENCE, tools};

impl Site {
    fn leaf(&self, name: &str) -> String {
        self.authority.leaf(KeyKind::P256, &[name])
    }

    /// `sealane certificates` of such words, over the socket.
    fn over_socket(&self, words: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("certificates").args(words).arg("--socket").arg(self.admin_path());
        command
    }

    fn shown_over_socket(&self, words: &[&str]) -> Value {
        serde_json::from_str(&tools::output(&mut self.over_socket(words))).unwrap()
    }

    /// What comes of a stream.
    fn push(&self, text: &str) -> Value {
        let mut command = self.over_socket(&["import", "--json", "-"]);
        serde_json::from_str(&tools::output_with_input(&mut command, text.as_bytes())).unwrap()
    }

    fn admin_path(&self) -> PathBuf {
        self.path().join("admin.sock")
    }

    fn admin_socket(&self) -> UnixStream {
        let socket = UnixStream::connect(self.admin_path()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// The status of the answer to a request with such headers and body, and its words.
    fn request(&self, request: &str, headers: &str, body: &[u8]) -> (u16, String) {
        let mut socket = self.admin_socket();
        write!(socket, "{request} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        // Who is refused before the end need not read all of it.
        let _ = socket.write_all(body);
        answer(socket)
    }

    fn put(&self, body: &[u8]) -> (u16, String) {
        self.request("PUT /certificates", &format!("Content-Length: {}\r\n", body.len()), body)
    }

    fn stored(&self) -> u64 {
        let verified: Value = serde_json::from_str(&self.run(&["verify", "--json"])).unwrap();
        assert_eq!(verified["problems"], serde_json::json!([]), "{verified}");
        verified["store"]["certificates"].as_u64().unwrap()
    }
}

/// The status of an answer, and its body.
fn answer(mut socket: UnixStream) -> (u16, String) {
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.unwrap_or_else(|| panic!("{text:?}")), body.unwrap_or_default())
}

fn fingerprint(der: &CertificateDer<'_>) -> String {
    Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_is_put_is_served_by_all_lanes_read_back_and_removed() {
    let site = Site::start();
    let before = site.shown_over_socket(&["show", "--json", "kept.test"]);
    let put = site.push(&[site.leaf("a.test"), site.leaf("b.test")].concat());
    assert_eq!((&put["added"], &put["errors"]), (&2.into(), &serde_json::json!([])), "{put}");
    assert_eq!((&put["lanes"], &put["lanes_serving"]), (&2.into(), &2.into()), "{put}");
    let generation = |value: &Value| value["generation"].as_u64().unwrap();
    assert_eq!(generation(&put), generation(&before) + 1);

    let shown = site.shown_over_socket(&["show", "--json", "a.test"]);
    assert_eq!(generation(&shown), generation(&put));
    let served = fingerprint(&site.served("a.test").unwrap());
    let [only] = &shown["certificates"].as_array().unwrap()[..] else { panic!("{shown}") };
    assert_eq!(
        (&only["chain"][0], only["key"].as_str()),
        (&served.clone().into(), Some("ECDSA P-256"))
    );
    assert!(only["issuer"].as_str().unwrap().contains("Sealane test authority"), "{only}");
    let serves = serde_json::json!([{
        "listener": "site", "serves": { "from": "store", "leaves": [served] },
    }]);
    assert_eq!(shown["listeners"], serves);
    assert!(!shown.to_string().contains("PRIVATE"), "no key is shown");
    // The command says the same where the store lies.
    let at_rest: Value = serde_json::from_str(&site.run(&["show", "--json", "a.test"])).unwrap();
    for field in ["chain", "digest", "issuer", "names", "serial"] {
        assert_eq!(at_rest[field], only[field], "{field}");
    }
    let names = |listed: String| {
        let names = listed.lines().map(|line| line.split_whitespace().last().unwrap().to_owned());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let listed = names(tools::output(&mut site.over_socket(&["list"])));
    assert_eq!(listed, ["a.test", "b.test", "kept.test"].map(str::to_owned).into());
    assert_eq!(listed, names(site.run(&["list"])));
    let none = tools::output(&mut site.over_socket(&["list", "--expiring", "10"]));
    assert_eq!(none, "");

    // From files too, and in words.
    let file = site.path().join("c.pem");
    fs::write(&file, site.leaf("c.test")).unwrap();
    let said = tools::output(&mut site.over_socket(&["import", file.to_str().unwrap()]));
    assert!(said.starts_with("1 certificate added, 0 replaced, 0 unchanged; "), "{said}");
    assert!(said.ends_with("served by 2 of 2 lanes\n"), "{said}");
    site.served("c.test").unwrap();

    let removed = tools::run(&mut site.over_socket(&["remove", "a.test", "absent.test"]));
    assert_eq!(removed.status.code(), Some(1), "{removed:?}");
    let out = String::from_utf8_lossy(&removed.stdout);
    assert_eq!(out, "1 name no longer served; 1 certificate removed\n");
    assert!(error_text(&removed).contains("not in it: absent.test"), "{removed:?}");
    assert!(site.served("a.test").is_err());
    let gone = tools::run(&mut site.over_socket(&["show", "a.test"]));
    assert_eq!(gone.status.code(), Some(3), "{gone:?}");
    assert!(error_text(&gone).contains("nothing is served for a.test"), "{gone:?}");
    assert_eq!(site.request("GET /certificates?name=a.test", "", b"").0, 404);
    assert_eq!(site.request("DELETE /certificates?name=a.test", "", b"").0, 404);
}

/// The commands of docs/push-certificates.md.
#[test]
fn curl_puts_shows_and_removes() {
    if tools::required("curl").is_none() {
        return;
    }
    let site = Site::start();
    let file = site.path().join("www.example.com.pem");
    fs::write(&file, site.leaf("www.example.com")).unwrap();
    let curl = |more: &[&str], input: &[u8]| -> (Output, Value) {
        let mut command = Command::new("curl");
        command.args(["-sS", "--unix-socket"]).arg(site.admin_path()).args(more);
        let output = tools::run_with_input(&mut command, input);
        let value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        (output, value)
    };
    let (output, put) = curl(&["-T", file.to_str().unwrap(), "http://localhost/certificates"], b"");
    assert_eq!(put["added"], 1, "{output:?}");
    let (output, shown) = curl(&["http://localhost/certificates?name=www.example.com"], b"");
    let served = fingerprint(&site.served("www.example.com").unwrap());
    assert_eq!(shown["certificates"][0]["chain"][0], served, "{output:?}");
    let url = "http://localhost/certificates?name=www.example.com";
    let (output, removed) = curl(&["-X", "DELETE", url], b"");
    assert_eq!(removed["removed_names"], 1, "{output:?}");
    // In chunks, large enough that curl asks whether it may, and with a mistake at its beginning:
    // the answer arrives although most of the stream is never read.
    let long = ["no PEM\n".repeat(1 << 18), site.leaf("a.test")].concat();
    let (output, refused) = curl(&["-T", "-", "http://localhost/certificates"], long.as_bytes());
    let error = refused["errors"][0].as_str().unwrap_or_default();
    assert!(error.starts_with("admin socket, line 1: "), "{output:?}");
    let (output, put) =
        curl(&["-T", "-", "http://localhost/certificates"], site.leaf("a.test").as_bytes());
    assert_eq!(put["added"], 1, "{output:?}");
}

/// Heroku's way of working: a certificate is pushed to all machines, and what each serves is read
/// back.
#[test]
fn a_certificate_is_pushed_to_three_and_read_back_from_each() {
    let mut sites: [Site; 3] = [(); 3].map(|()| Site::start());
    let text = sites[0].leaf("app.example.com");
    let expected: Vec<String> = sites
        .iter()
        .map(|site| {
            let put = site.push(&text);
            assert_eq!((&put["added"], &put["lanes_serving"]), (&1.into(), &2.into()), "{put}");
            let shown = site.shown_over_socket(&["show", "--json", "app.example.com"]);
            assert_eq!(shown["generation"], put["generation"]);
            shown["listeners"][0]["serves"]["leaves"][0].as_str().unwrap().to_owned()
        })
        .collect();
    assert!(expected.iter().all(|each| *each == expected[0]), "{expected:?}");
    for site in &sites {
        // All of them trust the authority of the first.
        let connector = sites[0].connector("app.example.com");
        let client = connector.connect(site.address()).unwrap();
        let served = &client.tls.peer_certificates().unwrap()[0];
        assert_eq!(fingerprint(served), expected[0]);
    }
    let addresses = sites.each_ref().map(|site| site.address().to_string());
    let served = |words: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(["certificates", "served"]).args(words).arg("app.example.com");
        let output = command.args(&addresses).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), output.status.code())
    };
    let all: String = addresses.iter().map(|at| format!("{}  {at}\n", expected[0])).collect();
    assert_eq!(served(&[]), (all, Some(0)));
    // One machine has another, and one is away.
    let put = sites[1].push(&sites[1].leaf("app.example.com"));
    assert_eq!(put["replaced"], 1, "{put}");
    sites[2].sealane.take().unwrap().stop();
    let (text, code) = served(&["--json"]);
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(code, Some(1), "{text}");
    assert_eq!(told[0], serde_json::json!({ "machine": addresses[0], "leaf": expected[0] }));
    assert!(told[1]["leaf"].is_string() && told[1]["leaf"] != told[0]["leaf"], "{text}");
    assert!(told[2]["error"].as_str().unwrap().contains("refused"), "{text}");
}

/// By root, to a process that has left root, and may open what its configuration needs.
#[test]
fn root_pushes_to_a_process_of_another_user() {
    if !geteuid().is_root() {
        println!("SKIPPED: only root can be somebody else");
        return;
    }
    let mut site = Site::new();
    site.settings.more.push_str("\nprocess.user = \"nobody\"");
    tools::output(Command::new("chown").args(["-R", "nobody"]).arg(site.path()));
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    let put = site.push(&site.leaf("a.test"));
    assert_eq!((&put["added"], &put["lanes_serving"]), (&1.into(), &2.into()), "{put}");
    site.served("a.test").unwrap();
    // Somebody else's change is examined before the next, by a process of that user.
    fs::remove_file(site.path().join("store/state")).unwrap();
    assert_eq!(site.push(&site.leaf("b.test"))["added"], 1);
    let removed = tools::output(&mut site.over_socket(&["remove", "a.test"]));
    assert_eq!(removed, "1 name no longer served; 1 certificate removed\n");
    site.served("b.test").unwrap();
    let process = &serde_json::from_str::<Value>(&site.sealane().admin("/state")).unwrap();
    println!("landlock: {}", process["process"]["landlock"]);
}

#[test]
fn where_a_file_serves_the_name_that_is_told() {
    let mut site = Site::new();
    let file = site.path().join("site.pem");
    let text = site.leaf("a.test");
    fs::write(&file, &text).unwrap();
    let store = site.settings.listeners[0].certificates.take().unwrap();
    site.settings.listeners[0].more += &format!("\ncertificates = [{file:?}, {store:?}]");
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    site.push(&site.leaf("a.test"));
    let served = fingerprint(&site.served("a.test").unwrap());
    let shown = site.shown_over_socket(&["show", "--json", "a.test"]);
    assert_ne!(shown["certificates"][0]["chain"][0], served, "the store has another one");
    let serves = serde_json::json!({ "from": "files", "leaves": [served] });
    assert_eq!(shown["listeners"][0]["serves"], serves);
}

#[test]
fn with_several_stores_the_one_that_is_meant_is_named() {
    let mut site = Site::new();
    let second = site.path().join("second");
    let mut create = Command::new(BINARY);
    create.args(["certificates", "import", "--create", "import.pem", "--store"]).arg(&second);
    tools::output(create.arg("--key-file").arg(site.key_file()).current_dir(site.path()));
    let backend = site.settings.listeners[0].backends[0].clone();
    let store = format!("store:{}", second.display());
    site.settings.listeners.push(ListenerSettings::new("other", Path::new(&store), &backend));
    site.sealane = Some(Sealane::start(site.path(), &site.settings));

    let body = site.leaf("a.test");
    let (status, words) = site.put(body.as_bytes());
    let first = site.path().join("store");
    assert_eq!(status, 400, "{words}");
    for path in [&first, &second] {
        assert!(words.contains(path.to_str().unwrap()), "{words}");
    }
    let mut import = site.over_socket(&["import", "--json", "-"]);
    let put = tools::output_with_input(import.arg("--store").arg(&second), body.as_bytes());
    let put: Value = serde_json::from_str(&put).unwrap();
    assert_eq!((&put["store"], &put["added"]), (&second.to_str().unwrap().into(), &1.into()));
    assert_eq!(put["listeners"], serde_json::json!([{ "listener": "other" }]));
    let of = |path: &Path| {
        site.request(&format!("GET /certificates?name=a.test&store={}", path.display()), "", b"").0
    };
    assert_eq!((of(&first), of(&second)), (404, 200));
    let (status, words) = site.request("GET /certificates?store=/absent", "", b"");
    assert!(status == 404 && words.contains("there is"), "{status} {words}");

    site.settings.listeners.truncate(1);
    site.settings.listeners[0].certificates = Some(site.path().join("import.pem"));
    site.settings.write(site.path());
    tools::output(&mut site.sealane().command(&["reload"]));
    let (status, words) = site.put(body.as_bytes());
    assert!(status == 404 && words.contains("store:PATH"), "{status} {words}");
}
