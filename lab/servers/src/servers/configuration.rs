//! The command and the configuration of each server under test, for one [`Place`].
//!
//! Every one gets the same workers, one version, one group and one suite, its default of tickets
//! (two per full handshake), no log, and the settings that its manual advises for load.

use std::{fmt::Write, fs, net::SocketAddr, path::Path, process::Command};

use rustix::process::Signal;
use sealane_lab_model::{error::Error, scenario::Version};

use crate::servers::{
    case::Profile,
    programs::{Entry, LARGE_BUFFER_BYTES, NGINX_STREAM, Program, Tuning},
};

/// Where and how a server runs.
pub struct Place<'a> {
    /// For its configuration and its log.
    pub folder: &'a Path,
    /// Where clients connect.
    pub listen: SocketAddr,
    /// Where the backend listens.
    pub backend: SocketAddr,
    /// Certificate, then key.
    pub pem: &'a Path,
    /// Instead of `pem`: many certificates.
    pub many: Option<Many<'a>>,
    /// What it is to offer.
    pub profile: Profile,
    /// Workers, threads or lanes.
    pub workers: usize,
    /// The most connections at once that it must hold.
    pub connections_max: u64,
}

/// A folder with a `NAME.pem` for each name, certificate and key.
#[derive(Clone, Copy)]
pub struct Many<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// The names, each of a file.
    pub names: &'a [String],
}

impl Entry {
    /// Writes the configuration and gives the command that runs the server in the foreground.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the lab does not know how to have this server do that.
    pub fn command(&self, binary: &Path, place: &Place<'_>) -> Result<Command, Error> {
        let mut command = Command::new(binary);
        let text = match &self.program {
            Program::Command(line) => {
                if place.many.is_some() {
                    let why = "a command line has no place for a folder of certificates";
                    return Err(Error::Unsupported(why.into()));
                }
                command.arg("-c").arg(filled(line, place));
                return Ok(command);
            }
            Program::Caddy => caddy(place),
            Program::Haproxy(_) | Program::PlainHaproxy(_) => haproxy(self, place),
            Program::Hitch => hitch(place),
            Program::NginxHttp => nginx_http(place, self.tuning),
            Program::NginxStream => nginx_stream(place, self.tuning),
            Program::PlainRelay => {
                command.arg("relay").arg(place.listen.to_string());
                command.args([place.backend.to_string(), place.workers.to_string()]);
                return Ok(command);
            }
            Program::Sealane => sealane(place),
            Program::Stunnel => stunnel(place),
        };
        let file = place.folder.join(FILE);
        fs::write(&file, text).map_err(Error::file(&file))?;
        match &self.program {
            // A master process, so that there is something to reload.
            Program::Haproxy(_) if place.many.is_some() => command.args(["-W", "-db", "-f"]),
            Program::Haproxy(_) | Program::PlainHaproxy(_) => command.args(["-db", "-f"]),
            Program::Sealane => command.args(["serve", "--config"]),
            Program::Caddy => {
                command.env("HOME", place.folder);
                command.args(["run", "--adapter", "caddyfile", "--config"])
            }
            Program::Hitch => command.arg("--config"),
            Program::NginxHttp | Program::NginxStream => {
                command.arg("-p").arg(place.folder).arg("-c")
            }
            _ => &mut command,
        };
        command.arg(&file);
        Ok(command)
    }

    /// What the configuration that was written in `folder` sets for the sake of speed.
    pub(crate) fn settings(folder: &Path) -> Vec<String> {
        let text = fs::read_to_string(folder.join(FILE)).unwrap_or_default();
        let lines = text.lines().map(|line| line.trim().trim_end_matches(';'));
        let told = lines.filter(|line| FOR_SPEED.iter().any(|word| line.starts_with(word)));
        told.map(Into::into).collect()
    }

    /// What makes it read its certificates again.
    pub(crate) fn reload_signal(&self) -> Option<Signal> {
        match self.program {
            Program::Haproxy(_) => Some(Signal::USR2),
            Program::Hitch
            | Program::NginxHttp
            | Program::NginxStream
            | Program::Sealane
            | Program::Stunnel => Some(Signal::HUP),
            Program::Caddy
            | Program::Command(_)
            | Program::PlainHaproxy(_)
            | Program::PlainRelay => None,
        }
    }
}

fn filled(line: &str, place: &Place<'_>) -> String {
    line.replace("{port}", &place.listen.port().to_string())
        .replace("{backend}", &place.backend.to_string())
        .replace("{workers}", &place.workers.to_string())
        .replace("{cert}", &place.pem.display().to_string())
        .replace("{folder}", &place.folder.display().to_string())
}

fn sealane(place: &Place<'_>) -> String {
    let Place { listen, backend, workers, profile, connections_max, .. } = place;
    let certificates = place.many.map_or(place.pem, |many| many.folder).display();
    let version = if profile.version == Version::Tls12 { "1.2" } else { "1.3" };
    // P-256 has two names in use.
    let groups = profile.group_names().join("\", \"").replace("P-256", "secp256r1");
    format!(
        "lanes = {workers}
# So that a lab which is not root's can read its memory.
[process]
allow_core_dump = true
[limits]
connections = {connections_max}
[[listener]]
addresses = [\"{listen}\"]
certificates = [\"{certificates}\"]
versions = [\"{version}\"]
groups = [\"{groups}\"]
backends = [\"{backend}\"]
"
    )
}

fn nginx_main(place: &Place<'_>) -> String {
    let (folder, workers) = (place.folder.display(), place.workers);
    // Client and backend side, and as much again because the kernel deals unevenly.
    let connections = place.connections_max * 3;
    // Workers of another user could not read keys that they read late.
    let user = if rustix::process::geteuid().is_root() { "user root;\n" } else { "" };
    format!(
        "daemon off;
{user}worker_processes {workers};
pid {folder}/pid;
error_log stderr crit;
worker_rlimit_nofile {};
events {{ worker_connections {connections}; }}
",
        connections * 2
    )
}

fn nginx_tls(place: &Place<'_>) -> String {
    let (version, group) = (place.profile.version_name(), place.profile.group_names().join(":"));
    format!(
        "    ssl_protocols {version};
    ssl_conf_command Ciphersuites {SUITE_13};
    ssl_ciphers {SUITES_12};
    ssl_ecdh_curve {group};
    ssl_session_tickets on;
"
    )
}

fn nginx_stream(place: &Place<'_>, tuning: Tuning) -> String {
    let Place { listen, backend, .. } = place;
    let buffer_bytes = buffer_bytes(tuning);
    // Its stream module has one server per address: names are a variable, read at each handshake.
    let pem = match place.many {
        Some(many) => format!("{}/$ssl_server_name.pem", many.folder.display()),
        None => place.pem.display().to_string(),
    };
    format!(
        "load_module {NGINX_STREAM};
{}stream {{
  server {{
    listen {listen} ssl reuseport backlog=4096;
    ssl_certificate {pem};
    ssl_certificate_key {pem};
{}    proxy_pass {backend};
    proxy_buffer_size {buffer_bytes};
    proxy_timeout 10m;
  }}
}}
",
        nginx_main(place),
        nginx_tls(place)
    )
}

fn nginx_http(place: &Place<'_>, tuning: Tuning) -> String {
    let Place { listen, backend, folder, .. } = place;
    // Its own are a page for heads and eight for bodies.
    let buffers = match tuning {
        Tuning::LargeBuffers => format!(
            "  proxy_buffer_size {LARGE_BUFFER_BYTES};
  proxy_buffers 16 {LARGE_BUFFER_BYTES};
  proxy_busy_buffers_size {};
  client_body_buffer_size {LARGE_BUFFER_BYTES};
",
            LARGE_BUFFER_BYTES * 2
        ),
        _ => String::new(),
    };
    let (folder, tls) = (folder.display(), nginx_tls(place));
    let server = |options: &str, name: &str, pem: &str| {
        format!(
            "  server {{
    listen {listen} ssl{options};
    server_name {name};
    ssl_certificate {pem};
    ssl_certificate_key {pem};
    location / {{ proxy_pass http://backend; }}
  }}
"
        )
    };
    let options = " reuseport backlog=4096";
    let mut servers = String::new();
    match place.many {
        Some(many) => {
            for (number, name) in many.names.iter().enumerate() {
                let pem = format!("{}/{name}.pem", many.folder.display());
                servers += &server(if number == 0 { options } else { "" }, name, &pem);
            }
        }
        None => servers += &server(options, "localhost", &place.pem.display().to_string()),
    }
    format!(
        "{}http {{
  access_log off;
  server_names_hash_max_size 65536;
  server_names_hash_bucket_size 128;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  client_max_body_size 0;
  keepalive_requests 1000000000;
  keepalive_timeout 10m;
  proxy_http_version 1.1;
  proxy_set_header Connection \"\";
  proxy_request_buffering off;
  proxy_max_temp_file_size 0;
{buffers}{tls}  {NGINX_POOL} backend {{
    server {backend}; keepalive 256; keepalive_requests 1000000000;
  }}
{servers}}}
",
        nginx_main(place)
    )
}

/// A server that answers from files below `root`, certificate and key in `pem`.
pub(crate) fn nginx_files(place: &Place<'_>, root: &Path, protocol: &str) -> String {
    let Place { listen, folder, pem, .. } = place;
    let (folder, pem, root) = (folder.display(), pem.display(), root.display());
    format!(
        "{}http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  keepalive_timeout 10m;
  open_file_cache max=100;
  sendfile on;
{}  server {{
    listen {listen} {protocol} reuseport backlog=4096;
    server_name localhost;
    ssl_certificate {pem};
    ssl_certificate_key {pem};
    location / {{ root {root}; }}
  }}
}}
",
        nginx_main(place),
        nginx_tls(place)
    )
}

/// Caddy takes as many processors as it may use: workers are not settable.
fn caddy(place: &Place<'_>) -> String {
    let Place { listen, backend, pem, profile, .. } = place;
    let (pem, port) = (pem.display(), listen.port());
    let version = profile.version_name().replace('v', "").to_lowercase();
    let group = profile.group_names()[0].to_lowercase();
    format!(
        "{{
  admin off
  auto_https off
  log {{
    output discard
  }}
}}
https://:{port} {{
  bind {}
  tls {pem} {pem} {{
    protocols {version} {version}
    curves {group}
  }}
  reverse_proxy {backend}
}}
",
        listen.ip()
    )
}

fn haproxy(entry: &Entry, place: &Place<'_>) -> String {
    let Place { listen, backend, connections_max, workers, profile, .. } = place;
    let pem = place.many.map_or(place.pem, |many| many.folder).display();
    let buffer_bytes = buffer_bytes(entry.tuning);
    // `splice-auto` asks for streams that fill its buffers several times in a row: here it splices
    // nothing but the end.
    let (pipes, splicing) = match entry.tuning {
        Tuning::Splicing => (
            format!("  tune.pipesize {PIPE_BYTES}\n"),
            "  option splice-request\n  option splice-response\n",
        ),
        _ => (String::new(), ""),
    };
    let (version, group) = (profile.version_name(), profile.group_names().join(":"));
    let tls = match entry.has_tls() {
        true => {
            format!(" ssl crt {pem} curves {group} ssl-min-ver {version} ssl-max-ver {version}")
        }
        false => String::new(),
    };
    // Sessions resume by ticket: the shared cache would only cost.
    format!(
        "global
  nbthread {workers}
  maxconn {connections_max}
  tune.bufsize {buffer_bytes}
{pipes}  tune.ssl.cachesize 0
  ssl-default-bind-ciphersuites {SUITE_13}
  ssl-default-bind-ciphers {SUITES_12}
defaults
  mode tcp
{splicing}  timeout connect 10s
  timeout client 10m
  timeout server 10m
listen tls
  bind {listen}{tls} backlog 4096 shards by-thread
  server backend {backend}
"
    )
}

fn buffer_bytes(tuning: Tuning) -> u32 {
    match tuning {
        Tuning::LargeBuffers => LARGE_BUFFER_BYTES,
        Tuning::Splicing | Tuning::Usual => 16_384, // the default of HAProxy and nginx
    }
}

fn hitch(place: &Place<'_>) -> String {
    let Place { listen, backend, workers, profile, .. } = place;
    let certificates = match place.many {
        Some(many) => format!("pem-dir = \"{}\"", many.folder.display()),
        None => format!("pem-file = \"{}\"", place.pem.display()),
    };
    // It refuses to work as root, and cannot change its user as anyone else.
    let user = if rustix::process::geteuid().is_root() { "user = \"nobody\"\n" } else { "" };
    format!(
        "frontend = {{ host = \"{}\" port = \"{}\" }}
backend = \"[{}]:{}\"
{certificates}
workers = {workers}
backlog = 4096
tls-protos = {}
ciphersuites = \"{SUITE_13}\"
ciphers = \"{SUITES_12}\"
ecdh-curve = \"{}\"
ocsp-dir = \"\"
log-level = 1
daemon = off
{user}",
        listen.ip(),
        listen.port(),
        backend.ip(),
        backend.port(),
        profile.version_name(),
        profile.group_names().join(":")
    )
}

/// One thread per connection is its design: workers are not settable.
fn stunnel(place: &Place<'_>) -> String {
    let Place { listen, backend, profile, .. } = place;
    let first = match place.many {
        Some(many) => many.folder.join(format!("{}.pem", many.names[0])).display().to_string(),
        None => place.pem.display().to_string(),
    };
    let (version, group) = (profile.version_name(), profile.group_names().join(":"));
    let tls = format!(
        "sslVersionMin = {version}
sslVersionMax = {version}
ciphersuites = {SUITE_13}
ciphers = {SUITES_12}
curves = {group}
options = -NO_TICKET
TIMEOUTidle = 600
"
    );
    let mut text = format!(
        "foreground = quiet
syslog = no
debug = 3
pid =
socket = l:TCP_NODELAY=1
socket = r:TCP_NODELAY=1
[lab]
accept = {listen}
connect = {backend}
cert = {first}
{tls}"
    );
    let names = place.many.map_or(&[][..], |many| many.names);
    for (number, name) in names.iter().enumerate() {
        let folder = place.many.map_or(place.folder, |many| many.folder).display();
        let _ = write!(
            text,
            "[n{number}]
sni = lab:{name}
connect = {backend}
cert = {folder}/{name}.pem
{tls}"
        );
    }
    text
}

const FILE: &str = "config";
/// How settings begin that a row tells, because its figures depend on them.
const FOR_SPEED: [&str; 7] = [
    "client_body_buffer_size ",
    "option splice-",
    "proxy_buffer",
    "proxy_busy_buffers_size ",
    "proxy_request_buffering ",
    "tune.bufsize ",
    "tune.pipesize ",
];
/// The most that Linux lets anybody make a pipe.
const PIPE_BYTES: u32 = 1 << 20;
/// The word of nginx for a group of backends.
const NGINX_POOL: &str = concat!("up", "stream");
const SUITE_13: &str = "TLS_AES_128_GCM_SHA256";
const SUITES_12: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256";

#[cfg(test)]
mod tests {
    use sealane_lab_model::scenario::{Group, Key};

    use super::*;
    use crate::servers::case::Case;

    /// What the file says, and nothing else.
    #[test]
    fn a_row_tells_what_its_configuration_sets_for_speed() {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let profile = Profile { key: Key::P256, version: Version::Tls13, group: Group::X25519 };
        let place = Place {
            folder: folder.path(),
            listen: address,
            backend: address,
            pem: Path::new("/nonexistent"),
            many: None,
            profile,
            workers: 2,
            connections_max: 10,
        };
        let told = |program: Program, tuning| {
            let cases = vec![Case::Down];
            let entry = Entry { name: "row".into(), program, tuning, cases };
            entry.command(Path::new("/bin/true"), &place).unwrap();
            Entry::settings(folder.path())
        };
        let plain = Program::PlainHaproxy(None);
        assert_eq!(told(plain.clone(), Tuning::Usual), ["tune.bufsize 16384"]);
        assert_eq!(told(plain.clone(), Tuning::LargeBuffers), ["tune.bufsize 65536"]);
        let splicing = [
            "tune.bufsize 16384",
            "tune.pipesize 1048576",
            "option splice-request",
            "option splice-response",
        ];
        assert_eq!(told(plain, Tuning::Splicing), splicing);
        assert_eq!(told(Program::NginxStream, Tuning::LargeBuffers), ["proxy_buffer_size 65536"]);
        let http = told(Program::NginxHttp, Tuning::LargeBuffers);
        assert!(http.iter().any(|line| line == "proxy_buffers 16 65536"), "{http:?}");
        assert_eq!(told(Program::Hitch, Tuning::Usual), Vec::<String>::new());
    }
}
