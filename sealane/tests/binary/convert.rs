//! `sealane convert`: what comes of each file of a table, and that clients and backends see the
//! same of the program that it is for, and of Sealane with what came of it.

mod cases;
mod probe;
mod site;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sealane_reserved_port::ReservedPort;

use crate::harness::backend::Backend;
use crate::harness::peers::{haproxy, hitch_arguments, quiet, stream_module};
use crate::harness::process::Process;
use crate::harness::sealane::BINARY;
use crate::harness::tools::{output, required, run};
use crate::harness::wait_for;

use cases::{CASES, Case};
use site::Site;

/// `SEALANE_BLESS=1` writes what came of the files as what is expected.
#[test]
fn what_comes_of_each_file_is_as_it_was() {
    let site = Site::new();
    for case in &CASES {
        let (toml, is_whole) = converted(case, &site, case.text().as_str());
        let toml = site.unplaced(&toml);
        if std::env::var_os("SEALANE_BLESS").is_some() {
            std::fs::write(case.expected(), &toml).unwrap();
        }
        let expected = std::fs::read_to_string(case.expected()).unwrap_or_default();
        assert_eq!(toml, expected, "{}", case.file);
        let says_so = toml.contains("All that clients and backends see was carried over");
        assert_eq!(says_so, is_whole, "{}:\n{toml}", case.file);
        assert_eq!(says_so, !toml.contains("# NOT CARRIED OVER"), "{}:\n{toml}", case.file);
    }
}

#[test]
fn every_file_of_the_folder_is_in_the_table() {
    let folder = cases::folder();
    let mut files = 0;
    for dialect in ["haproxy", "hitch", "nginx-stream", "stunnel"] {
        for entry in std::fs::read_dir(folder.join(dialect)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "toml") {
                let name = path.strip_prefix(&folder).unwrap().to_str().unwrap();
                assert!(CASES.iter().any(|case| case.file == name), "{name}");
                files += 1;
            }
        }
    }
    assert_eq!(files, CASES.len());
    assert!(files >= 40, "{files}");
}

#[test]
fn clients_and_backends_see_the_same() {
    let site = Site::new();
    let next = AtomicUsize::new(0);
    let differences = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..PAIRS_AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = CASES.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = compare(case, &site);
                    differences.lock().unwrap().extend(found);
                }
            });
        }
    });
    let differences = differences.into_inner().unwrap();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// HAProxy reads requests behind Sealane, with the lines that the comments name: clients get the
/// same answers, and the backend learns the same of them.
#[test]
fn haproxy_behind_sealane_answers_as_alone() {
    let Some(program) = required("haproxy") else { return };
    let (site, case) = (Site::new(), CASES.iter().find(|case| case.file.ends_with("in-front.cfg")));
    let case = case.unwrap();
    let backend = Backend::start(|mut stream| {
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        while !bytes.ends_with(b"\r\n\r\n") {
            match stream.read(&mut piece) {
                Ok(len @ 1..) => bytes.extend_from_slice(&piece[..len]),
                _ => return,
            }
        }
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
        let _ = stream.write_all(&[head.as_bytes(), &bytes].concat());
    });
    let [alone, front, behind, plain, plain_behind] = [(); 5].map(|()| reserved());
    let folder = site.folder_of(case, "both");
    let text = case.text().replace("127.0.0.1:8081", &backend.address.to_string());
    let text = site.placed(&text).replace("user haproxy", "").replace("group haproxy", "");
    let placed = |port: &ReservedPort, plain: &ReservedPort| {
        text.replace("*:4431", &port.address().to_string())
            .replace("*:8000", &plain.address().to_string())
    };
    let start = |name: &str, text: String, port: &ReservedPort| {
        haproxy(&program, &folder.join(name), &text, &[port])
    };
    let _alone = start("alone.cfg", placed(&alone, &plain), &alone);
    // As the comments have it.
    let lines = placed(&front, &plain_behind);
    let bind = lines.lines().find(|line| line.contains(" ssl crt ")).unwrap();
    let here = format!("bind {} accept-proxy", behind.address());
    let here_too = format!("{{ dst_port {} }}", front.address().port());
    let changed = lines.replace(bind, &here).replace("{ ssl_fc }", &here_too);
    let _behind = start("behind.cfg", changed, &behind);
    std::fs::write(folder.join("front.cfg"), &lines).unwrap();
    let converted =
        run(Command::new(BINARY).args(["convert", "haproxy"]).arg(folder.join("front.cfg")));
    let toml = String::from_utf8(converted.stdout).unwrap();
    let port = toml.lines().find_map(|line| line.strip_prefix("backends = [\"127.0.0.1:"));
    let port = port.unwrap().trim_end_matches("\"]");
    assert!(toml.contains(&format!("\"bind 127.0.0.1:{port} accept-proxy\"")), "{toml}");
    let ours = toml.replace(&format!("127.0.0.1:{port}"), &behind.address().to_string());
    std::fs::write(folder.join("sealane.toml"), format!("lanes = 1\n{ours}")).unwrap();
    let mut serve = Command::new(BINARY);
    serve.args(["serve", "--config"]).arg(folder.join("sealane.toml"));
    let _sealane = quiet(&mut serve);
    wait_for("Sealane listens", || TcpStream::connect(front.address()).ok());
    for alpn in ["http/1.1", "h2"] {
        let [theirs, ours] =
            [&alone, &front].map(|port| probe::requested(&site, port.address(), alpn));
        assert!(theirs.len() > 9 && theirs == ours, "{alpn}\n{theirs:?}\n{ours:?}");
    }
}

/// What differs between the two programs, but for what the case says.
fn compare(case: &Case, site: &Site) -> Vec<String> {
    if case.doors.is_empty() {
        return Vec::new();
    }
    let (theirs, mut their_process) = match start_theirs(case, site) {
        Some(Ok(started)) => started,
        Some(Err(why)) => return vec![why],
        None => return Vec::new(),
    };
    let (ours, mut our_process) = match start_ours(case, site) {
        Ok(started) => started,
        Err(why) => return vec![why],
    };
    let mut differences = Vec::new();
    let mut differing = Vec::new();
    for (port, opening) in case.doors {
        let see = |doors: &Doors| probe::see(site, doors.address(*port), *opening);
        let (their, our) = (see(&theirs), see(&ours));
        for (aspect, seen) in &their.0 {
            let same = our.0.get(aspect);
            if same == Some(seen) {
                continue;
            }
            differing.push(*aspect);
            let is_more = || {
                let ours = same.map_or("", String::as_str);
                seen.split(' ').all(|each| ours.split(' ').any(|our| our == each))
            };
            let is_meant =
                case.differs.contains(aspect) || case.has_more.contains(aspect) && is_more();
            if !is_meant {
                differences.push(format!(
                    "{}, {port}, {aspect}:\n  theirs {seen}\n  ours   {}",
                    case.file,
                    same.map_or("", String::as_str)
                ));
            }
        }
    }
    let stale =
        case.differs.iter().chain(case.has_more).filter(|aspect| !differing.contains(aspect));
    differences.extend(stale.map(|aspect| format!("{}: {aspect} does not differ", case.file)));
    let ended = [their_process.status(), our_process.status()];
    assert_eq!(ended, [None; 2], "{}", case.file);
    differences
}

/// Ports of a program in a test, by those in its file.
struct Doors(BTreeMap<u16, ReservedPort>);

impl Doors {
    fn new() -> Self {
        Self(PORTS.map(|port| (port, reserved())).into())
    }

    fn address(&self, port: u16) -> SocketAddr {
        self.0[&port].address()
    }

    /// A text with these ports, all of them of 127.0.0.1.
    fn placed(&self, text: &str) -> String {
        PORTS.iter().fold(text.to_owned(), |text, port| {
            let ours = self.address(*port);
            let number = ours.port();
            text.replace(&format!("0.0.0.0:{port}"), &ours.to_string())
                .replace(&format!("*:{port}"), &ours.to_string())
                .replace(&format!("[*]:{port}"), &format!("[127.0.0.1]:{number}"))
                .replace(&format!("[0.0.0.0]:{port}"), &format!("[127.0.0.1]:{number}"))
                .replace(&format!("bind :{port}"), &format!("bind {ours}"))
                .replace(&format!("listen {port}"), &format!("listen {ours}"))
                .replace(&format!("accept = {port}"), &format!("accept = {ours}"))
                .replace(&format!("accept  = {port}"), &format!("accept  = {ours}"))
                .replace(&format!("\":{port}\""), &format!("\"{ours}\""))
                .replace(&port.to_string(), &number.to_string())
        })
    }
}

/// A program that runs, or what it said instead.
type Started = Result<(Doors, Process), String>;

/// A port in whose digits no port of a file stands.
fn reserved() -> ReservedPort {
    let mut ports = (0..100).map(|_| ReservedPort::on_loopback().unwrap());
    ports.find(|port| site::is_clear(port.address())).unwrap()
}

fn start_theirs(case: &Case, site: &Site) -> Option<Started> {
    let doors = Doors::new();
    let folder = site.folder_of(case, "theirs");
    let text = site.with_included(&case.text(), &folder, |text| doors.placed(text));
    let text = doors.placed(&site.placed(&text));
    let text = text.replace("host = \"*\"", "host = \"127.0.0.1\"");
    let text = text.replace("host = \"0.0.0.0\"", "host = \"127.0.0.1\"");
    let text = match case.dialect() {
        "hitch" => text.replace("= on   #", "=").replace("daemon = on", "daemon = off"),
        "stunnel" => format!("foreground = yes\npid =\n{text}"),
        _ => text,
    };
    let path = folder.join(case.name());
    std::fs::write(&path, text).unwrap();
    let (program, arguments): (_, &[&str]) = match case.dialect() {
        "haproxy" => ("haproxy", &["-db", "-f"]),
        "hitch" => ("hitch", hitch_arguments()),
        "nginx-stream" => ("nginx", &["-e", "stderr", "-c"]),
        _ => ("stunnel4", &[]),
    };
    let mut command = Command::new(required(program)?);
    command.args(arguments).arg(&path).current_dir(&folder);
    if program == "nginx" {
        let more = format!(
            "{} daemon off; master_process off; pid {}/nginx.pid;",
            stream_module()?,
            folder.display()
        );
        command.args(["-g", &more]);
    }
    Some(started(case, doors, &mut command, &folder))
}

fn start_ours(case: &Case, site: &Site) -> Started {
    let doors = Doors::new();
    let (toml, _) = converted(case, site, &case.text());
    let toml = format!("lanes = 1\n{}", toml.replace("\nlanes = ", "\n# lanes = "));
    let folder = site.folder_of(case, "ours");
    let path = folder.join("sealane.toml");
    std::fs::write(&path, doors.placed(&toml)).unwrap();
    output(Command::new(BINARY).args(["check", "--config"]).arg(&path));
    let mut command = Command::new(BINARY);
    command.args(["serve", "--config"]).arg(&path);
    started(case, doors, &mut command, &folder)
}

/// Starts a program, and waits until it listens everywhere.
fn started(case: &Case, doors: Doors, command: &mut Command, folder: &Path) -> Started {
    let said = folder.join("said");
    let file = std::fs::File::create(&said).unwrap();
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
    let mut process = Process::new(command.spawn().unwrap());
    for (port, _) in case.doors {
        let address = doors.address(*port);
        let is_open = wait_for(&format!("{command:?} listens"), || {
            if process.status().is_some() {
                return Some(false);
            }
            TcpStream::connect(address).ok().map(|_| true)
        });
        if !is_open {
            let said = std::fs::read_to_string(said).unwrap();
            return Err(format!("{}: {command:?} ended:\n{said}", case.file));
        }
    }
    Ok((doors, process))
}

/// What the command prints of a file, and whether its status says that all was carried over.
fn converted(case: &Case, site: &Site, text: &str) -> (String, bool) {
    let folder = site.folder_of(case, "converted");
    let text = site.with_included(text, &folder, ToOwned::to_owned);
    std::fs::write(folder.join(case.name()), site.placed(&text)).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["convert", case.dialect(), case.name()]).current_dir(&folder);
    let output = run(&mut command);
    let code = output.status.code();
    assert!([Some(0), Some(5), Some(6)].contains(&code), "{}: {output:?}", case.file);
    assert_eq!(output.stderr.is_empty(), code == Some(0), "{}: {output:?}", case.file);
    (String::from_utf8(output.stdout).unwrap(), code != Some(5))
}

impl Case {
    fn dialect(&self) -> &'static str {
        self.file.split_once('/').unwrap().0
    }

    fn name(&self) -> &'static str {
        self.file.split_once('/').unwrap().1
    }

    fn text(&self) -> String {
        std::fs::read_to_string(cases::folder().join(self.file)).unwrap()
    }

    fn expected(&self) -> PathBuf {
        cases::folder().join(Path::new(self.file).with_extension("toml"))
    }
}

/// What files listen on.
const PORTS: [u16; 3] = [4431, 4432, 4433];
const PAIRS_AT_ONCE: usize = 6;
