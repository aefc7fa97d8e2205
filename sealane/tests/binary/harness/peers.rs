//! Other programs that listen: started with a file, and waited for.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use sealane_reserved_port::ReservedPort;

use super::process::Process;
use super::wait_for;

/// Starts HAProxy with a file of this text, and waits until it listens on all of `ports`.
pub fn haproxy(program: &Path, file: &Path, text: &str, ports: &[&ReservedPort]) -> Process {
    listening(program, &["-db", "-f"], file, text, ports)
}

/// The same of any program that takes its file behind `arguments`.
pub fn listening(
    program: &Path,
    arguments: &[&str],
    file: &Path,
    text: &str,
    ports: &[&ReservedPort],
) -> Process {
    std::fs::write(file, text).unwrap();
    let process = quiet(Command::new(program).args(arguments).arg(file));
    for port in ports {
        wait_for(&format!("{} listens", program.display()), || {
            TcpStream::connect(port.address()).ok()
        });
    }
    process
}

/// Starts a program that reads nothing and says nothing.
pub fn quiet(command: &mut Command) -> Process {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Process::new(child.unwrap())
}

/// What hitch is told ahead of its file, so that it can be started by root and by anybody else.
pub fn hitch_arguments() -> &'static [&'static str] {
    // It refuses to work as root, and cannot change its user as anyone else.
    if rustix::process::geteuid().is_root() {
        &["--user=nobody", "--ocsp-dir=", "--config"]
    } else {
        &["--ocsp-dir=", "--config"]
    }
}

/// The line that loads nginx's stream module where that is a file of its own.
pub fn stream_module() -> Option<String> {
    let path = Path::new("/usr/lib/nginx/modules/ngx_stream_module.so");
    if path.exists() {
        return Some(format!("load_module {};", path.display()));
    }
    assert!(std::env::var_os("CI").is_none(), "libnginx-mod-stream is missing");
    println!("SKIPPED: libnginx-mod-stream is missing; ./check --only install brings it");
    None
}
