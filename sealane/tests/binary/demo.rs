//! The demo through the real binary: it shows what it promises, and ends as asked.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::write_program;

fn demo(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sealane"));
    command.arg("demo").arg("--directory").arg(directory).stdin(Stdio::null());
    command
}

/// What every page says.
const FACTS: [&str; 7] = [
    "  lane          ",
    "  TLS version   TLSv1.3\n",
    "  suite         TLS_AES_128_GCM_SHA256\n",
    "  group         X25519",
    "  server name   localhost\n",
    "  protocol      http/1.1\n",
    "  client        127.0.0.1:",
];

/// The pages in what `demo --once` printed, in their order.
fn pages(printed: &str) -> Vec<&str> {
    printed.split("Sealane terminated the TLS of this connection.").skip(1).collect()
}

#[test]
fn once_shows_full_and_resumed_connection() {
    let folder = tempfile::tempdir().unwrap();
    let ran = demo(folder.path()).arg("--once").output().unwrap();
    let printed = String::from_utf8(ran.stdout).unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(0), "{said}\n{printed}");
    assert!(said.ends_with("sealane: ended\n"), "{said}");
    let pages = pages(&printed);
    assert_eq!(pages.len(), 2, "{printed}");
    for page in &pages {
        assert!(FACTS.iter().all(|fact| page.contains(fact)), "{page}");
    }
    for (page, resumed) in pages.iter().zip(["no", "yes"]) {
        assert!(page.contains(&format!("  resumed       {resumed}\n")), "{page}");
    }

    let mode = |name| fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("localhost.pem"), 0o600);
}

/// A curl that fails stands for whatever a visitor may find amiss.
#[test]
fn once_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let curl = folder.path().join("curl");
    write_program(&curl, "#!/bin/sh\necho 'curl: (60) not to my taste' >&2\nexit 60\n");
    let ran = demo(folder.path()).arg("--once").env("PATH", folder.path()).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{said}");
    assert!(said.contains("the demo failed: curl said: curl: (60) not to my taste\n"), "{said}");
}

#[test]
fn once_works_on_other_addresses() {
    for listen in ["127.0.0.9:0", "0.0.0.0:0", "[::1]:0"] {
        let folder = tempfile::tempdir().unwrap();
        let ran = demo(folder.path()).args(["--once", "--listen", listen]).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(0), "{listen}: {said}");
    }
}

/// `localhost` is 127.0.0.1 too, where another program may have the port and not say a word.
#[test]
fn nobody_else_is_asked() {
    let folder = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("[::1]:{}", other.local_addr().unwrap().port());
    let ran = demo(folder.path()).args(["--once", "--listen", &listen]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{said}");
}

#[test]
fn the_lines_that_it_prints_work_and_a_signal_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    // A blank and a quote, which the lines must survive.
    let directory = folder.path().join("it's a demo");
    let running = Running::start(demo(&directory).args(["--listen", "127.0.0.1:0"]));

    let page = running.shell("curl --noproxy");
    assert!(FACTS.iter().all(|fact| page.contains(fact)), "{page}");
    let session = running.shell("openssl s_client");
    assert!(session.contains("Verify return code: 0 (ok)"), "{session}");
    let metrics = running.shell("curl http://127.0.0.1:");
    assert!(metrics.contains("\nsealane_"), "{metrics}");

    let (code, said) = running.end(Signal::INT);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("sealane: ended\n"), "{said}");
}

/// Another program, then another demo, whose lanes would share the port without a word.
#[test]
fn a_port_that_is_taken_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |address: &str| {
        let ran = demo(folder.path()).args(["--listen", address]).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!(ran.status.code(), Some(3), "{said}");
        let expected = format!("sealane: cannot listen on {address}: another program uses it; ");
        assert!(said.starts_with(&expected) && said.contains("--listen 127.0.0.1:0"), "{said}");
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    refused(&taken.local_addr().unwrap().to_string());
    let running = Running::start(demo(folder.path()).args(["--listen", "127.0.0.1:0"]));
    let (_, port) = running.line("curl --noproxy").rsplit_once(':').unwrap();
    refused(&format!("127.0.0.1:{}", port.trim_end_matches('/')));
    assert_eq!(running.end(Signal::INT).0, Some(0));
}

/// A demo that waits for its signal, and what it printed before that.
struct Running {
    child: Child,
    printed: String,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut printed = String::new();
        while !printed.ends_with("Ctrl-C ends it.\n") {
            assert_ne!(out.read_line(&mut printed).unwrap(), 0, "it ended: {printed}");
        }
        Self { child, printed }
    }

    /// The line to type that begins with `start`.
    fn line(&self, start: &str) -> &str {
        let mut lines = self.printed.lines().filter_map(|line| line.strip_prefix("  "));
        lines.find(|line| line.starts_with(start)).unwrap()
    }

    /// What comes when the line that begins with `start` is typed.
    fn shell(&self, start: &str) -> String {
        shell(self.line(start))
    }

    /// The exit code and all that the demo said.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }
}

impl Drop for Running {
    /// A test that failed leaves nothing running.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shell(line: &str) -> String {
    let ran = Command::new("sh").args(["-c", line]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{line}\n{said}");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}
