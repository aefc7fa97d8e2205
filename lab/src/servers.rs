//! The servers under test: how each [`Program`] is found, tuned, started and asked its version.
//!
//! Every one gets two workers, TLS 1.3 with X25519 and AES-128-GCM alone, two tickets per full
//! handshake (all send two by default), and the settings its manual advises for load.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{error::Error, load::Case, process::Process};

/// Workers, threads or lanes of every server.
pub(crate) const WORKERS: u32 = 2;

/// One row of the table.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) program: Program,
    /// Bytes of a connection's buffers, where they are settable and not the default.
    buffer_bytes: Option<u32>,
    pub(crate) cases: &'static [Case],
}

/// A server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    Haproxy,
    Hitch,
    Nginx,
    Sealane,
}

/// Where a server runs.
pub(crate) struct Place<'a> {
    /// For its configuration and its log.
    pub(crate) folder: &'a Path,
    pub(crate) listen: SocketAddr,
    pub(crate) backend: SocketAddr,
    /// Certificate, then key.
    pub(crate) pem: &'a Path,
    /// The most connections at once that it must hold.
    pub(crate) connections_max: u64,
}

/// All rows. Larger buffers help transfers and cost memory: such rows take part in the former
/// alone, so that each peer is judged by its better side.
pub(crate) const ENTRIES: [Entry; 6] = [
    Entry::new("sealane", Program::Sealane, None, &Case::ALL),
    Entry::new("nginx", Program::Nginx, None, &Case::ALL),
    Entry::new("nginx, 64K buffers", Program::Nginx, Some(65_536), &TRANSFERS),
    Entry::new("haproxy", Program::Haproxy, None, &Case::ALL),
    Entry::new("haproxy, 64K buffers", Program::Haproxy, Some(65_536), &TRANSFERS),
    Entry::new("hitch", Program::Hitch, None, &Case::ALL),
];

const TRANSFERS: [Case; 2] = [Case::Download, Case::Upload];

impl Entry {
    const fn new(
        name: &'static str,
        program: Program,
        buffer_bytes: Option<u32>,
        cases: &'static [Case],
    ) -> Self {
        Self { name, program, buffer_bytes, cases }
    }

    /// Writes the configuration and gives the command that runs the server in the foreground.
    pub(crate) fn command(&self, binary: &Path, place: &Place<'_>) -> Result<Command, Error> {
        let mut command = Command::new(binary);
        let text = match self.program {
            Program::Haproxy => haproxy(place, self.buffer_bytes),
            Program::Hitch => hitch(place),
            Program::Nginx => nginx(place, self.buffer_bytes),
            Program::Sealane => {
                let (listen, backend) = (place.listen.to_string(), place.backend.to_string());
                command.args(["serve", "--listen", &listen, "--backend", &backend]);
                command.arg("--certificates").arg(place.pem);
                command.args(["--lanes", &WORKERS.to_string()]);
                return Ok(command);
            }
        };
        let file = place.folder.join("config");
        fs::write(&file, text).map_err(Error::file(&file))?;
        match self.program {
            Program::Haproxy => command.args(["-db", "-f"]).arg(&file),
            Program::Hitch => command.arg("--config").arg(&file),
            _ => command.arg("-p").arg(place.folder).arg("-c").arg(&file),
        };
        Ok(command)
    }
}

impl Program {
    /// Where it is installed, or how to get it.
    pub(crate) fn find(self, sealane: &Path) -> Result<PathBuf, Error> {
        let (name, packages) = match self {
            Self::Haproxy => ("haproxy", "haproxy"),
            Self::Hitch => ("hitch", "hitch"),
            Self::Nginx => ("nginx", "nginx-light libnginx-mod-stream"),
            Self::Sealane => {
                let program = format!("sealane ({})", sealane.display());
                let remedy = "cargo build --release -p sealane".into();
                return sealane.canonicalize().map_err(|_| Error::Missing { program, remedy });
            }
        };
        let path = env::var_os("PATH").unwrap_or_default();
        let found = env::split_paths(&path)
            // Debian keeps servers where a shell without a login does not look.
            .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
            .map(|folder| folder.join(name))
            .find(|file| file.is_file());
        match found {
            Some(file) if self != Self::Nginx || Path::new(NGINX_STREAM).is_file() => Ok(file),
            _ => {
                let remedy = format!("apt-get install --no-install-recommends {packages}");
                Err(Error::Missing { program: name.into(), remedy })
            }
        }
    }

    /// The line in which it says what it is.
    pub(crate) fn version(self, binary: &Path) -> String {
        let argument = if matches!(self, Self::Haproxy | Self::Nginx) { "-v" } else { "--version" };
        let Ok(output) = Command::new(binary).arg(argument).output() else {
            return "version unknown".into();
        };
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit()));
        line.filter(|_| output.status.success()).unwrap_or("version unknown").trim().into()
    }
}

/// What the running server's TLS comes from: the version in the libcrypto it has mapped, or the
/// crates that the names of source files in its binary tell.
pub(crate) fn tls_library(process: &Process, binary: &Path) -> Result<String, Error> {
    let libraries = process.libraries()?;
    let shared = libraries.iter().find(|path| path.to_string_lossy().contains("/libcrypto"));
    let path = shared.map_or(binary, PathBuf::as_path);
    let bytes = fs::read(path).map_err(Error::file(path))?;
    let mut found: Vec<String> = match shared {
        Some(_) => versions_after(&bytes, "OpenSSL ").into_iter().take(1).collect(),
        None => RUST_LIBRARIES.iter().flat_map(|name| versions_after(&bytes, name)).collect(),
    };
    found.dedup();
    Ok(if found.is_empty() { "TLS library unknown".into() } else { found.join(", ") })
}

/// Every different "`name`1.2.3" in `bytes`.
fn versions_after(bytes: &[u8], name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for at in bytes.windows(name.len()).enumerate().filter(|(_, w)| *w == name.as_bytes()) {
        let rest = &bytes[at.0 + name.len()..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
        let version = String::from_utf8_lossy(&rest[..digits]);
        if version.matches('.').count() == 2 {
            let name = name.trim_matches(['/', '-', ' ']);
            found.push(format!("{name} {}", version.trim_end_matches('.')));
        }
    }
    found.sort();
    found.dedup();
    found
}

fn nginx(place: &Place<'_>, buffer_bytes: Option<u32>) -> String {
    let Place { listen, backend, .. } = place;
    let (folder, pem) = (place.folder.display(), place.pem.display());
    let buffer_bytes = buffer_bytes.unwrap_or(16_384); // its default
    // Client and backend side, and as much again because the kernel deals unevenly.
    let connections = place.connections_max * 3;
    format!(
        "load_module {NGINX_STREAM};
daemon off;
worker_processes {WORKERS};
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections {connections}; }}
stream {{
  server {{
    listen {listen} ssl reuseport backlog=4096;
    ssl_certificate {pem};
    ssl_certificate_key {pem};
    ssl_protocols TLSv1.3;
    ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
    ssl_ecdh_curve X25519;
    ssl_session_tickets on;
    proxy_pass {backend};
    proxy_buffer_size {buffer_bytes};
    proxy_timeout 10m;
  }}
}}
"
    )
}

fn haproxy(place: &Place<'_>, buffer_bytes: Option<u32>) -> String {
    let Place { listen, backend, connections_max, .. } = place;
    let pem = place.pem.display();
    let buffer_bytes = buffer_bytes.unwrap_or(16_384); // its default
    // Sessions resume by ticket: the shared cache would only cost.
    format!(
        "global
  nbthread {WORKERS}
  maxconn {connections_max}
  tune.bufsize {buffer_bytes}
  tune.ssl.cachesize 0
  ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256
  ssl-default-bind-options ssl-min-ver TLSv1.3
defaults
  mode tcp
  timeout connect 10s
  timeout client 10m
  timeout server 10m
listen tls
  bind {listen} ssl crt {pem} curves X25519 backlog 4096 shards by-thread
  server backend {backend}
"
    )
}

fn hitch(place: &Place<'_>) -> String {
    let Place { listen, backend, .. } = place;
    let pem = place.pem.display();
    // It refuses to work as root, and cannot change its user as anyone else.
    let user = if rustix::process::geteuid().is_root() { "user = \"nobody\"\n" } else { "" };
    format!(
        "frontend = {{ host = \"{}\" port = \"{}\" }}
backend = \"[{}]:{}\"
pem-file = \"{pem}\"
workers = {WORKERS}
backlog = 4096
tls-protos = TLSv1.3
ciphersuites = \"TLS_AES_128_GCM_SHA256\"
ecdh-curve = \"X25519\"
ocsp-dir = \"\"
log-level = 1
daemon = off
{user}",
        listen.ip(),
        listen.port(),
        backend.ip(),
        backend.port()
    )
}

const NGINX_STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
const RUST_LIBRARIES: [&str; 3] = ["/rustls-", "/graviola-", "/aws-lc-rs-"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_between_other_bytes() {
        let bytes = b"\0OpenSSL 3.0.19 27 Jan 2026\0OpenSSL x\0/a/rustls-0.23.46/src\0rustls-1";
        assert_eq!(versions_after(bytes, "OpenSSL "), ["OpenSSL 3.0.19"]);
        assert_eq!(versions_after(bytes, "/rustls-"), ["rustls 0.23.46"]);
    }

    #[test]
    fn a_missing_program_names_its_remedy() {
        let error = Program::Sealane.find(Path::new("/nonexistent")).unwrap_err();
        assert!(error.to_string().contains("cargo build --release"), "{error}");
    }
}
