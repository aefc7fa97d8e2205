//! The socket in a store's folder where names are taken that clients ask for: by whom, and that it
//! does nothing else.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, geteuid};
use serde_json::Value;

use crate::harness::sealane::{BINARY, ListenerSettings, Sealane};
use crate::harness::site::Site;
use crate::harness::{PATIENCE, tools, wait_for};

/// A Sealane that notes names, and a store in whose folder they are told.
fn site() -> Site {
    let mut site = Site::new();
    site.settings.listeners[0].more += "\non_demand = true";
    site.settings.lanes = 1;
    site
}

fn start(mut site: Site) -> Site {
    site.sealane = Some(Sealane::start(site.path(), &site.settings));
    site
}

impl Site {
    fn names_socket(&self) -> PathBuf {
        self.path().join("store/names.sock")
    }

    /// Has it read its settings again, so many times by now.
    fn reload(&mut self, times: usize) {
        self.settings.write(self.path());
        self.sealane().signal(Signal::HUP);
        self.sealane.as_mut().unwrap().wait_until_reloaded(times);
    }

    /// What `sealane check` says of its settings.
    fn check(&self) -> String {
        let mut command = Command::new(BINARY);
        tools::output(command.args(["check", "--config"]).arg(self.path().join("sealane.toml")))
    }

    /// The names that are told now.
    fn wanted(&self) -> Vec<String> {
        let (status, body) = ask(&self.names_socket(), TAKE).unwrap();
        assert_eq!(status, 200, "{body}");
        let told: Value = serde_json::from_str(&body).unwrap();
        let names = told["names"].as_array().unwrap().iter();
        names.map(|noted| noted["name"].as_str().unwrap().to_owned()).collect()
    }
}

/// The status of an answer, and its body.
fn ask(socket: &Path, request: &str) -> std::io::Result<(u16, String)> {
    let mut socket = UnixStream::connect(socket)?;
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(socket, "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.unwrap(), text.split_once("\r\n\r\n").unwrap().1.to_owned()))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn names_are_taken_in_the_folder_of_the_store_and_nothing_else_is_done_there() {
    let site = start(site());
    let socket = site.names_socket();
    assert_eq!(mode(&socket), 0o600, "the folder is one user's");
    assert!(site.served("new.test").is_err());
    assert_eq!(site.wanted(), ["new.test"]);
    assert!(site.wanted().is_empty(), "they are told once");
    // Even to the user who serves and to root, who may order where orders are taken.
    for request in [
        "DELETE /certificates?name=kept.test",
        "GET /",
        "GET /certificates",
        "GET /connections",
        "GET /healthz",
        "GET /metrics",
        "GET /state",
        "POST /backends/drain",
        "POST /backends/restore",
        "POST /connections/close",
        "POST /reload",
        "PUT /certificates",
    ] {
        let (status, body) = ask(&socket, request).unwrap();
        assert_eq!(status, 404, "{request}: {body}");
        assert!(body.contains("nothing else is answered"), "{request}: {body}");
    }
    assert_eq!(ask(&socket, "GET /names/wanted").unwrap().0, 405);
    site.served("kept.test").unwrap();
    assert_eq!(site.sealane().count_said("reloaded"), 0);
    let Site { sealane, folder, .. } = site;
    assert_eq!(sealane.unwrap().stop(), Some(0));
    assert!(!folder.path().join("store/names.sock").exists());
}

#[test]
fn it_is_there_again_after_whatever_happened_to_it() {
    let mut site = start(site());
    let socket = site.names_socket();
    let again = |what: &str| wait_for(what, || ask(&socket, TAKE).ok());
    fs::remove_file(&socket).unwrap();
    again("it was removed");
    // By its path somebody else's file is left alone.
    fs::remove_file(&socket).unwrap();
    fs::write(&socket, "precious").unwrap();
    site.sealane.as_mut().unwrap().wait_until_said("a file that is no socket is there; remove it");
    site.served("kept.test").unwrap();
    // Each reload is a look; what it finds again is not said again.
    site.reload(1);
    site.reload(2);
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    fs::remove_file(&socket).unwrap();
    again("it is free again");
    let said = site.sealane().count_said("on_demand: ");
    assert_eq!(said, 1, "{:?}", site.sealane().said());
    // A killed process leaves its own.
    site.sealane().signal(Signal::KILL);
    site.sealane.as_mut().unwrap().process.wait(PATIENCE);
    assert!(ask(&socket, TAKE).is_err() && socket.exists());
    let mut site = start(site);
    assert!(site.wanted().is_empty());
    // It comes and goes with what asks for it.
    let with = site.settings.listeners[0].more.clone();
    for (more, reloads) in [("unknown_names = \"refuse\"", 1), (&with, 2)] {
        site.settings.listeners[0].more = more.into();
        site.reload(reloads);
        assert_eq!(socket.exists(), reloads == 2);
    }
    assert!(site.wanted().is_empty());
}

/// Who may write to a folder can change under way; it is no other socket then.
#[test]
fn it_is_for_whoever_its_folder_is_for_by_now() {
    let mut site = start(site());
    let (store, socket) = (site.path().join("store"), site.names_socket());
    // A number alone may be given again.
    let identity = || {
        let facts = fs::metadata(&socket).unwrap();
        (facts.ino(), facts.created().ok())
    };
    let first = identity();
    let group = format!("this user and group {}", fs::metadata(&store).unwrap().gid());
    for (reloads, of_folder, expected, whose) in [
        (1, 0o2770, 0o660, &*group),
        (2, 0o700, 0o600, "this user alone"),
        (3, 0o700, 0o600, "this user alone"),
    ] {
        fs::set_permissions(&store, Permissions::from_mode(of_folder)).unwrap();
        site.reload(reloads);
        let case = format!("{reloads}, in a folder of {of_folder:o}");
        assert_eq!((mode(&socket), identity()), (expected, first), "{case}");
        assert!(site.check().contains(&format!("told at {} to {whose}", socket.display())));
    }
}

#[test]
fn it_goes_to_the_store_of_the_listener_that_has_on_demand() {
    let mut site = site();
    let import = ["import", "import.pem", "--create", "--store", "other", "--key-file", "key"];
    let mut command = Command::new(BINARY);
    tools::output(command.arg("certificates").args(import).current_dir(site.path()));
    let store = PathBuf::from(format!("store:{}", site.path().join("other").display()));
    let backend = site.settings.listeners[0].backends[0].clone();
    site.settings.listeners.push(ListenerSettings::new("other", &store, &backend));
    let mut site = start(site);
    let [first, second] = ["store/names.sock", "other/names.sock"].map(|at| site.path().join(at));
    let places = || (ask(&first, TAKE).is_ok(), ask(&second, TAKE).is_ok());
    assert_eq!(places(), (true, false));
    let [one, other] = &mut site.settings.listeners[..] else { panic!() };
    std::mem::swap(&mut one.more, &mut other.more);
    site.reload(1);
    assert_eq!(places(), (false, true));
    assert!(!first.exists());
}

/// Another process may serve from the store already: it is served from all the same.
#[test]
fn of_two_who_serve_from_a_store_one_tells_names_there_and_the_next_one_after_it() {
    let first = start(site());
    let mut settings = first.settings.clone();
    let more = settings.listeners.remove(0);
    let home = tempfile::tempdir().unwrap();
    let backend = more.backends[0].clone();
    let mut other = Site { folder: home, settings, sealane: None, ..Site::new() };
    let store = PathBuf::from(format!("store:{}", first.path().join("store").display()));
    let listener = ListenerSettings::new("second", &store, &backend);
    other.settings.more = format!("store_key = {{ file = {:?} }}", first.key_file());
    other.settings.listeners = vec![listener.with(&more.more)];
    let mut other = start(other);
    other.sealane.as_mut().unwrap().wait_until_said("another process listens there; names that");
    assert!(other.served("other.test").is_err());
    assert!(first.served("first.test").is_err());
    assert_eq!(first.wanted(), ["first.test"]);
    let Site { sealane, folder, .. } = first;
    assert_eq!(sealane.unwrap().stop(), Some(0));
    let socket = folder.path().join("store/names.sock");
    let (_, told) = wait_for("the next one", || ask(&socket, TAKE).ok());
    assert!(told.contains("other.test"), "{told}");
}

/// A Sealane of the user nobody, a store that it shares with a group, and who asks for names there.
#[test]
fn whoever_may_write_to_the_store_takes_names_and_may_do_nothing_else() {
    let programs = ["curl", "setpriv"].map(tools::required);
    if !geteuid().is_root() || programs.iter().any(Option::is_none) {
        println!("SKIPPED: only root can be somebody else");
        return;
    }
    let mut site = site();
    tools::output(Command::new("chown").args(["-R", "nobody"]).arg(site.path()));
    site.settings.more += "\nprocess.user = \"nobody\"";
    let store = site.path().join("store");
    let share = |group| {
        chown(&store, None, Some(group)).unwrap();
        fs::set_permissions(&store, Permissions::from_mode(0o2770)).unwrap();
    };
    share(GROUP);
    for entry in fs::read_dir(&store).unwrap() {
        chown(entry.unwrap().path(), None, Some(GROUP)).unwrap();
    }
    fs::set_permissions(site.path(), Permissions::from_mode(0o711)).unwrap();
    let site = start(site);
    // Who may enter the folder that it is in is no bar here.
    let admin = site.path().join("admin.sock");
    let socket = site.names_socket();
    let facts = fs::metadata(&socket).unwrap();
    assert_eq!((facts.mode() & 0o777, facts.gid()), (0o660, GROUP));
    let asked = |groups: &str, socket: &Path, path: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=70002", "--regid=70002", groups, "--no-new-privs", "curl", "-sS"]);
        command.args(["-X", "POST", "-w", "%{http_code}", "--unix-socket"]).arg(socket);
        let output = tools::run(command.arg(format!("http://localhost{path}")));
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let member = format!("--groups={GROUP}");
    assert!(site.served("new.test").is_err());
    for groups in ["--clear-groups", "--groups=70009"] {
        let refused = asked(groups, &socket, "/names/wanted");
        assert!(
            refused.ends_with("connect to server\n") || refused.contains("curl: (7)"),
            "{refused}"
        );
    }
    let told = asked(&member, &socket, "/names/wanted");
    assert!(told.contains("new.test") && told.ends_with("200"), "{told}");
    assert!(asked(&member, &socket, "/names/served").ends_with("200"));
    assert!(asked(&member, &socket, "/reload").ends_with("404"));
    // Nor at the admin socket, which is another user's, however far it is open.
    assert!(asked(&member, &admin, "/reload").contains("curl: (7)"));
    fs::set_permissions(&admin, Permissions::from_mode(0o666)).unwrap();
    for path in ["/names/served", "/names/wanted", "/reload", "/connections/close"] {
        let refused = asked(&member, &admin, path);
        assert!(refused.contains("orders are taken from root") && refused.ends_with("403"));
    }
    assert_eq!(site.sealane().count_said("reloaded"), 0);
    // Whoever shares the store from now on.
    share(70_005);
    wait_for("the other group", || {
        asked("--groups=70005", &socket, "/names/wanted").ends_with("200").then_some(())
    });
    assert!(!asked(&member, &socket, "/names/wanted").ends_with("200"));
}

const GROUP: u32 = 70_001;
/// What takes the names without a certificate.
const TAKE: &str = "POST /names/wanted";
