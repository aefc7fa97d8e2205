//! `sealane demo`: the terminator at work before a small backend, with a certificate of its own.
//!
//! [`run`] makes a self-signed certificate, starts a backend whose page shows the PROXY header that
//! the terminator sends, starts the terminator as `serve` would, and prints lines to try; or tries
//! the first one itself.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use sealane_config::{Address, BackendAddress, Config, ProxyHeader, Simple, Tlvs, WrittenBackend};
use sealane_control::{ConfigSource, Control, StartControl};
use sealane_traffic::http;
use sealane_traffic::proxy_header::Facts;
use tracing::info;
use zeroize::Zeroizing;

use super::serve;
use crate::args::DemoArguments;
use crate::exit::Exit;

/// Runs the demo until a signal ends it, or once.
///
/// # Errors
/// The writer's.
pub fn run(
    arguments: &DemoArguments,
    start_control: StartControl,
    out: &mut dyn Write,
) -> io::Result<Exit> {
    let (backend, control) = match start(arguments, start_control) {
        Ok(started) => started,
        Err(exit) => return Ok(exit),
    };
    let Some(Address::Tcp(listening)) = control.bound().next().cloned() else {
        return Ok(Exit::Failed);
    };
    let certificate = arguments.directory.join(CERTIFICATE_FILE);
    let curl = curl_arguments(&certificate, listening);
    let words: Vec<_> = curl.iter().map(|word| quoted(word)).collect();
    let lanes = control.lane_count();
    writeln!(out, "\nSealane terminates TLS on {} (lanes: {lanes}).", url(listening))?;
    writeln!(out, "Try it; each line verifies the certificate:\n\n  curl {}", words.join(" "))?;
    let (address, file) = (reachable(listening), quoted(&certificate.to_string_lossy()));
    writeln!(
        out,
        "  openssl s_client -connect {address} -servername {SERVER_NAME} -CAfile {file} \
         -verify_return_error"
    )?;
    if let Some(metrics) = control.admin_addresses().next() {
        writeln!(out, "\nMetrics, health and state:\n\n  curl http://{metrics}/metrics")?;
    }
    writeln!(out, "\nCtrl-C ends it.\n")?;
    out.flush()?;
    let exit = if arguments.once {
        let tried = try_out(&curl, out);
        let ended = serve::finish(control.stop());
        tried.map_or_else(|problem| failed(&problem), |()| ended)
    } else {
        serve::finish(control.run())
    };
    backend.stop();
    Ok(exit)
}

fn start(
    arguments: &DemoArguments,
    start_control: StartControl,
) -> Result<(http::Server, Control), Exit> {
    let invalid = |problem: String| {
        info!("{problem}");
        Exit::Invalid
    };
    let port = if arguments.once { 0 } else { PORT };
    let listen = arguments.listen.unwrap_or((Ipv4Addr::LOCALHOST, port).into());
    check_is_free(listen).map_err(invalid)?;
    let certificate = write_certificate(&arguments.directory).map_err(|error| {
        invalid(format!("{}: cannot be written: {error}", arguments.directory.display()))
    })?;
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|e| failed(&e.to_string()))?;
    let address = listener.local_addr().map_err(|error| failed(&error.to_string()))?;
    let config = configuration(listen, address, certificate).map_err(invalid)?;
    let backend = http::serve_proxied(listener, "backend", respond);
    let backend = backend.map_err(|error| failed(&error.to_string()))?;
    let source = ConfigSource::Flags(Box::new(config.clone()));
    Ok((backend, serve::start(source, config, start_control)?))
}

fn failed(problem: &str) -> Exit {
    info!("the demo failed: {problem}");
    Exit::Failed
}

/// Sealane's own listeners share their port, so that the lanes can: a second demo would not fail,
/// but take connections from the first. A bind that shares nothing shows whether the port is free.
fn check_is_free(listen: SocketAddr) -> Result<(), String> {
    if listen.port() == 0 {
        return Ok(());
    }
    TcpListener::bind(listen).map(drop).map_err(|error| {
        let other = SocketAddr::new(listen.ip(), 0);
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another program uses it".to_owned(),
            _ => error.to_string(),
        };
        format!(
            "cannot listen on {listen}: {why}; choose another with --listen ADDR:PORT, or any that \
             is free with --listen {other}"
        )
    })
}

/// Writes a new self-signed certificate with its key, in one file that only this user can read.
fn write_certificate(directory: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let names = [SERVER_NAME, "127.0.0.1", "::1"].map(ToOwned::to_owned);
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    let key = Zeroizing::new(made.signing_key.serialize_pem());
    let (path, new) = (directory.join(CERTIFICATE_FILE), directory.join("localhost.new"));
    // Another mode, or half a file, of an earlier run.
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(made.cert.pem().as_bytes())?;
    file.write_all(key.as_bytes())?;
    fs::rename(&new, &path)?;
    Ok(path)
}

fn configuration(
    listen: SocketAddr,
    backend: SocketAddr,
    certificate: PathBuf,
) -> Result<Config, String> {
    let simple = Simple {
        backends: vec![WrittenBackend { address: BackendAddress::Tcp(backend), tls: false }],
        certificates: vec![certificate],
        listen: vec![Address::Tcp(listen)],
        ..Simple::default()
    };
    let mut config = Config::simple(simple).map_err(|mistakes| mistakes.to_string())?;
    // Not among the flags: there, port 0 of the same address counts as the same address.
    config.admin.address = Some((Ipv4Addr::LOCALHOST, 0).into());
    for listener in &mut config.listeners {
        listener.policy.alpn = vec![b"http/1.1".to_vec()];
        listener.destination.proxy_header = ProxyHeader::V2(Tlvs::default());
    }
    Ok(config)
}

/// The page of the backend: the PROXY header of the connection.
fn respond(request: &http::Request<'_>) -> http::Response {
    let header: Facts<'_> = request.proxy_header.unwrap_or_default();
    let tls = header.tls.unwrap_or_default();
    let mut page = "Sealane terminated the TLS of this connection.\n\n".to_owned();
    for (name, fact) in [
        ("lane", header.lane.map(|lane| lane.to_string())),
        ("TLS version", tls.version.map(ToOwned::to_owned)),
        ("suite", tls.suite.map(ToOwned::to_owned)),
        ("group", tls.group.map(ToOwned::to_owned)),
        ("server name", header.server_name.map(ToOwned::to_owned)),
        ("protocol", header.alpn.map(|alpn| alpn.escape_ascii().to_string())),
        ("resumed", header.resumed.map(|resumed| if resumed { "yes" } else { "no" }.to_owned())),
        ("client", header.addresses.map(|(client, _)| client.to_string())),
    ] {
        let _ = writeln!(page, "  {name:<12}  {}", fact.as_deref().unwrap_or("none"));
    }
    http::Response::text(http::Status::Ok, &page)
}

/// Fetches the page with curl, which verifies the certificate, twice: the second connection resumes
/// the session of the first.
fn try_out(curl: &[String], out: &mut dyn Write) -> Result<(), String> {
    // First of all: a user's own settings must not matter.
    let own = ["--disable", "--silent", "--show-error", "--fail", "--max-time", "10"];
    let ran = Command::new("curl").args(own).args(curl).args(curl.last()).output();
    let ran = ran.map_err(|error| format!("curl cannot be run: {error}"))?;
    if !ran.status.success() {
        return Err(format!("curl said: {}", String::from_utf8_lossy(&ran.stderr).trim()));
    }
    let pages = String::from_utf8_lossy(&ran.stdout);
    out.write_all(pages.as_bytes()).map_err(|error| error.to_string())?;
    match ["no", "yes"].iter().all(|how| pages.contains(&format!("  resumed       {how}\n"))) {
        true => Ok(()),
        false => Err("the second connection did not resume the session of the first".to_owned()),
    }
}

fn curl_arguments(certificate: &Path, listening: SocketAddr) -> Vec<String> {
    let file = certificate.to_string_lossy().into_owned();
    // The name stands for an address of IPv4 and one of IPv6; another program may listen on the
    // same port of the other one, and a proxy of the environment is not meant.
    let to = format!("::{}", reachable(listening));
    let words = ["--noproxy", "*", "--cacert", &file, "--connect-to", &to, &url(listening)];
    words.map(ToOwned::to_owned).into()
}

fn url(listening: SocketAddr) -> String {
    format!("https://{SERVER_NAME}:{}/", listening.port())
}

/// An address to connect to: one that stands for all addresses is none.
fn reachable(listening: SocketAddr) -> SocketAddr {
    let ip = match listening.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listening.port())
}

/// The text as a shell takes it for one word.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The certificate and its key.
const CERTIFICATE_FILE: &str = "localhost.pem";
/// The name in the URL.
const SERVER_NAME: &str = "localhost";
/// Where the demo listens on 127.0.0.1 by default; with --once it is any free port.
const PORT: u16 = 8443;
