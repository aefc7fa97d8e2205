//! Challenges of ACME that are answered where all other requests are sent to HTTPS: by real clients
//! at a real server, and by hand.

mod kept;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::harness::acme::{Acme, first_of};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::{output, required};
use crate::harness::{PATIENCE, wait_for};

const PREFIX: &str = "/.well-known/acme-challenge/";
const THUMBPRINT: &str = "9jg46WB3rR_AHD-EBXdN7cBkH1WOu0tA3M9fm21mqTI";

/// A folder with the configuration, and a webroot.
struct Site {
    folder: TempDir,
    webroot: PathBuf,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let webroot = folder.path().join("web");
        std::fs::create_dir_all(webroot.join(&PREFIX[1..])).unwrap();
        Self { folder, webroot }
    }

    /// A listener that answers challenges of the webroot.
    fn listener(&self, keys: &str) -> ListenerSettings {
        redirecting(&format!("acme_responder = {:?}\n{keys}", self.webroot))
    }

    fn start(&self, listeners: Vec<ListenerSettings>) -> Sealane {
        Sealane::start(self.folder.path(), &Settings::new(listeners))
    }

    /// What a client writes for the authority, and the authority is to get.
    fn challenge(&self, token: &str) -> String {
        let text = format!("{token}.{THUMBPRINT}");
        std::fs::write(self.webroot.join(&PREFIX[1..]).join(token), &text).unwrap();
        text
    }
}

fn redirecting(keys: &str) -> ListenerSettings {
    let mut listener = ListenerSettings::new("http", Path::new(""), &"");
    listener.certificates = None;
    listener.backends.clear();
    listener.with(&format!("plain = \"redirect\"\n{keys}"))
}

/// The status and the body that `request` gets.
fn ask(address: SocketAddr, request: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
}

#[test]
fn clients_prove_their_names_through_a_listener_that_redirects() {
    let listener = redirecting("");
    let port = listener.address.port();
    let Some(acme) = Acme::start_asking(&["certbot", "lego", "dehydrated"], Some(port)) else {
        return;
    };
    let webroot = acme.path("web");
    let listener = redirecting_like(&listener, &format!("acme_responder = {webroot:?}"));
    let sealane = Sealane::start(acme.folder.path(), &Settings::new(vec![listener]));
    acme.certbot(&["certonly", "-d", "a.test", "-d", "www.a.test"]);
    acme.certbot(&["renew", "--cert-name", "a.test", "--force-renewal"]);
    acme.lego("b.test");
    acme.dehydrated("c.test");
    for file in [
        "certbot/live/a.test/fullchain.pem",
        "lego/certificates/b.test.crt",
        "dehydrated/certs/c.test/fullchain.pem",
    ] {
        assert!(!first_of(&acme.path(file)).is_empty(), "{file}");
    }
    let label = format!("acme:{}", webroot.display());
    let metrics = sealane.metrics();
    let answered = metrics.sum("sealane_backend_connected_total", &[("backend", &label)]);
    // Pebble remembers who has proven a name; it asks for each name once at least.
    assert!(answered >= 4, "{answered}");
    assert_eq!(sealane.stop(), Some(0));
}

/// The same listener with other keys.
fn redirecting_like(listener: &ListenerSettings, keys: &str) -> ListenerSettings {
    listener.clone().with(&format!("plain = \"redirect\"\n{keys}"))
}

#[test]
fn a_challenge_is_served_as_soon_as_its_file_is_there_and_nothing_else_is() {
    let Some(curl) = required("curl") else { return };
    let site = Site::new();
    let listener = site.listener("");
    let address = listener.address;
    let balanced = "accept_proxy = \"required\"\nproxy_from = [\"127.0.0.0/8\"]";
    let mut behind = site.listener(balanced);
    behind.name = "behind".into();
    let balanced = behind.address;
    let sealane = site.start(vec![listener, behind]);
    assert_eq!(sealane.process.threads("acme-responder").len(), 1, "one for a folder");
    // Each is asked for at once, as authorities do: nothing is waited for.
    for number in 0..50 {
        let token = format!("token-{number}_");
        let path = format!("{PREFIX}{token}");
        assert_eq!(get(address, &path).0, 404);
        let text = site.challenge(&token);
        assert_eq!(get(address, &path), (200, text.clone()));
        let announced =
            format!("PROXY TCP4 192.0.2.7 192.0.2.1 1 80\r\nGET {path} HTTP/1.1\r\n\r\n");
        assert_eq!(ask(balanced, &announced), (200, text));
    }
    let text = site.challenge("by-curl");
    let url = format!("http://{address}{PREFIX}by-curl");
    assert_eq!(output(Command::new(&curl).args(["--silent", "--fail", &url])), text);
    let head = output(Command::new(&curl).args(["--silent", "--head", &url]));
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", text.len())), "{head}");

    let web = site.webroot.join(&PREFIX[1..]);
    std::fs::write(site.webroot.join("secret"), format!("secret.{THUMBPRINT}")).unwrap();
    std::os::unix::fs::symlink(web.join("by-curl"), web.join("link")).unwrap();
    std::fs::write(web.join("huge"), format!("huge.{}", "a".repeat(1 << 20))).unwrap();
    std::fs::write(web.join("other"), "root:x:0:0:root\n").unwrap();
    for token in
        ["../../secret", "..", "", "link", "huge", "other", "a%2f..", "by-curl?", &"a".repeat(129)]
    {
        let (status, body) = get(address, &format!("{PREFIX}{token}"));
        assert_eq!(status, 404, "{token}: {body}");
        assert!(!body.contains("root") && !body.contains(THUMBPRINT), "{token}: {body}");
    }
    let path = format!("{PREFIX}by-curl");
    assert_eq!(get(address, "/").0, 308);
    assert_eq!(get(address, &PREFIX[..PREFIX.len() - 1]).0, 308);
    let post = format!("POST {path} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(ask(address, &post).0, 308);
    assert_eq!(sealane.stop(), Some(0));
}

/// Neither on a lane nor at the responder: what is held of them is a socket.
#[test]
fn who_says_or_reads_nothing_more_holds_up_nobody() {
    let site = Site::new();
    let patient = "idle_timeout = \"10m\"\nhalf_closed_timeout = \"10m\"\n\
                   handshake_timeout = \"5m\"";
    let listener = site.listener(patient);
    let address = listener.address;
    let sealane = site.start(vec![listener]);
    let text = site.challenge("token");
    let path = format!("{PREFIX}token");
    let begin = |request: &str| {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        socket
    };
    let silent: Vec<_> = (0..CLIENTS).map(|_| begin(&format!("GET {path} HTTP/1.1\r\n"))).collect();
    let deaf: Vec<_> =
        (0..CLIENTS).map(|_| begin(&format!("GET {path} HTTP/1.1\r\n\r\n"))).collect();
    assert_eq!(get(address, &path), (200, text.clone()));
    sealane.wait_for_metrics("who was answered is done with", |metrics| {
        metrics.open() == CLIENTS as u64 && metrics.ended("clean") == CLIENTS as u64 + 1
    });
    for mut socket in deaf {
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(&text), "{answer}");
    }
    // And who goes on gets an answer, too.
    for mut socket in silent {
        socket.write_all(b"\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with(&text), "{answer}");
    }
    assert_eq!(sealane.stop(), Some(0));
}

const CLIENTS: usize = 300;

#[test]
fn a_reload_begins_and_ends_it_and_one_with_a_mistake_changes_nothing() {
    let site = Site::new();
    let with = site.listener("");
    let address = with.address;
    let mut settings = Settings::new(vec![with.clone()]);
    let mut sealane = Sealane::start(site.folder.path(), &settings);
    let text = site.challenge("token");
    let path = format!("{PREFIX}token");
    let mut reload = |listener: ListenerSettings, said: &str| {
        settings.listeners = vec![listener];
        settings.write(site.folder.path());
        sealane.signal(Signal::HUP);
        sealane.wait_until_said(said);
        if said.contains("reloaded") {
            sealane.wait_until_lanes_serve();
        }
    };
    assert_eq!(get(address, &path), (200, text.clone()));
    let file = format!("acme_responder = {:?}", site.folder.path().join("sealane.toml"));
    reload(redirecting_like(&with, &file), "sealane.toml: is no folder; name one that the ACME");
    assert_eq!(get(address, &path), (200, text));
    let absent = format!("acme_responder = {:?}", site.folder.path().join("absent"));
    reload(redirecting_like(&with, &absent), "absent: is not there; make it, and let the ACME");
    wait_for("what else was reloaded is served", || (get(address, &path).0 == 404).then_some(()));
    reload(redirecting_like(&with, ""), "reloaded: generation 3");
    assert_eq!(get(address, &path).0, 308);
    wait_for("its thread ends", || {
        sealane.process.threads("acme-responder").is_empty().then_some(())
    });
    assert_eq!(sealane.stop(), Some(0));
}
