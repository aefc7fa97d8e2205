//! Programs in C on the built library, against a real Redis: by themselves, and under valgrind.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use sealane_reserved_port::ReservedPort;
use tempfile::TempDir;

// Not used. It makes cargo build the libraries for C.
use sealane_client as _;

/// Redis, the files of its certificate, and a library that was installed.
struct World {
    child: Child,
    folder: TempDir,
    reserved: ReservedPort,
}

impl World {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = authority("authority");
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        write("ca.pem", authority.pem());
        write("other.pem", self::authority("stranger").pem());
        write("redis.crt", certificate.pem());
        write("redis.key", key.serialize_pem());
        install(&folder.path().join("prefix"));
        let reserved = ReservedPort::on_loopback().unwrap();
        let mut child = spawn(&folder, reserved.address().port());
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(reserved.address()).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "redis-server ended at once");
            assert!(Instant::now() < deadline, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { child, folder, reserved }
    }

    /// Compiles `source` by the command of docs/c-clients.md, with pkg-config's flags.
    fn compiled(&self, source: &str, linkage: &str) -> PathBuf {
        let program = self.folder.path().join("program");
        let command = format!(
            "cc -std=c11 -Wall -Wextra -Werror -o {} {source} -pthread \
             $(pkg-config --cflags --libs {linkage} sealane_client)",
            program.display()
        );
        let mut compile = Command::new("sh");
        compile.args(["-c", &command]).current_dir(env!("CARGO_MANIFEST_DIR"));
        compile.env("PKG_CONFIG_PATH", self.prefix().join("lib/pkgconfig"));
        assert!(compile.status().unwrap().success(), "{command}");
        program
    }

    /// Runs the program behind `wrapper`, with this number of threads and of connections for each.
    fn run(&self, wrapper: &[&str], program: &Path, size: [usize; 2]) -> Output {
        let program = program.to_str().unwrap();
        let words = [wrapper, &[program]].concat();
        Command::new(words[0])
            .args(&words[1..])
            .args([self.port(), self.child.id().to_string()])
            .args(size.map(|number| number.to_string()))
            .arg(self.folder.path())
            .env("LD_LIBRARY_PATH", self.prefix().join("lib"))
            .output()
            .unwrap()
    }

    fn port(&self) -> String {
        self.reserved.address().port().to_string()
    }

    fn prefix(&self) -> PathBuf {
        self.folder.path().join("prefix")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn spawn(folder: &TempDir, port: u16) -> Child {
    let port = port.to_string();
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", "0", "--tls-port", &port])
        .args(["--tls-cert-file", "redis.crt", "--tls-key-file", "redis.key"])
        .args(["--tls-ca-cert-file", "ca.pem", "--tls-auth-clients", "no"])
        .args(["--save", "", "--daemonize", "no"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("redis-server starts; install the package redis-server")
}

/// The same work as `client-c/install /usr/local`, with cargo's output for this test.
fn install(prefix: &Path) {
    let test = std::env::current_exe().unwrap();
    let status = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/install"))
        .arg("--built")
        .arg(test.parent().unwrap())
        .arg(prefix)
        .status();
    assert!(status.unwrap().success());
}

#[track_caller]
fn assert_good(output: &Output, says: &str) {
    let [out, error] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(output.status.success() && out.contains(says), "{}: {out}\n{error}", output.status);
}

#[test]
fn two_hundred_connections_of_eight_threads_have_one_context_that_is_swapped() {
    let world = World::start();
    let program = world.compiled("tests/clients.c", "");
    assert_good(&world.run(&[], &program, [8, 25]), "all is so");
}

#[test]
fn no_byte_is_lost_or_read_unset_under_valgrind() {
    let world = World::start();
    let program = world.compiled("tests/clients.c", "");
    assert_good(&world.run(&VALGRIND, &program, [2, 2]), "all is so");
}

#[test]
fn the_example_pings_and_the_page_shows_it() {
    let world = World::start();
    let program = world.compiled("examples/redis_ping.c", "");
    let ping = |host: &str| {
        let ca = world.folder.path().join("ca.pem");
        let mut ping = Command::new(&program);
        ping.args([host, &world.port()]).arg(ca);
        ping.env("LD_LIBRARY_PATH", world.prefix().join("lib")).output().unwrap()
    };
    assert_good(&ping("localhost"), "PONG");
    let refused = ping("127.0.0.1");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stdout).contains("not for 127.0.0.1"), "{refused:?}");

    let [example, page] = ["examples/redis_ping.c", "../docs/c-clients.md"]
        .map(|path| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap());
    let from_loop = example.split_once("c-clients.md shows */\n").unwrap().1;
    let shown = from_loop.split_once("/* the end of the loop */").unwrap().0;
    assert!(page.contains(shown), "docs/c-clients.md does not show the loop of the example");
}

#[test]
fn the_static_library_links_alone() {
    let world = World::start();
    let folder = world.prefix().join("lib");
    for name in ["libsealane_client.so", "libsealane_client.so.0"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    let program = world.compiled("examples/redis_ping.c", "--static");
    let mut ping = Command::new(program);
    ping.args(["localhost", &world.port()]).arg(world.folder.path().join("ca.pem"));
    assert_good(&ping.output().unwrap(), "PONG");
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path());
    let library = folder.path().join("lib/libsealane_client.so.0");
    let listed = |arguments: &[&str], program: &str| {
        let output = Command::new(program).args(arguments).arg(&library).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let symbols = listed(&["-D", "--defined-only", "--format=posix"], "nm");
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names.len(), 16, "{names:?}");
    let header = fs::read_to_string(folder.path().join("include/sealane_client.h")).unwrap();
    for name in names {
        assert!(header.contains(&format!("{name}(")), "{name}");
    }
    assert!(listed(&["-d"], "readelf").contains("soname: [libsealane_client.so.0]"));
}

/// Errors and leaks of all kinds, except memory that is still reachable at the end: Rust's and
/// AWS-LC's own tables of a process.
const VALGRIND: [&str; 7] = [
    "valgrind",
    "--quiet",
    "--error-exitcode=9",
    "--leak-check=full",
    "--show-leak-kinds=definite,indirect,possible",
    "--errors-for-leak-kinds=definite,indirect,possible",
    concat!("--suppressions=", env!("CARGO_MANIFEST_DIR"), "/tests/memcheck.supp"),
];
/// Longest wait for Redis to listen.
const PATIENCE: Duration = Duration::from_secs(20);
