//! `sealane demo`: the terminator at work before a small backend, with certificates of its own.
//!
//! [`run`] makes a CA and a certificate, starts a backend whose page shows what the terminator told
//! it, starts the terminator as `serve` would, and says what to try; or tries it itself.

mod certificates;
mod client;
mod invitation;
mod page;

use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use sealane_config::{Address, BackendAddress, Config, ProxyHeader, Simple, Tlvs, WrittenBackend};
use sealane_control::{ConfigSource, Control, StartControl};
use sealane_operator::say;
use sealane_traffic::http;

use super::serve;
use crate::args::DemoArguments;
use crate::exit::Exit;

use certificates::DemoFiles;
use invitation::Invitation;

/// Runs the demo until a signal ends it, or once.
///
/// # Errors
/// The writer's.
pub fn run(
    arguments: &DemoArguments,
    start_control: StartControl,
    out: &mut dyn Write,
) -> io::Result<Exit> {
    let demo = match Demo::start(arguments, start_control) {
        Ok(demo) => demo,
        Err(exit) => return Ok(exit),
    };
    let Demo { backend, control, files } = demo;
    let Some(Address::Tcp(listening)) = control.bound().next() else { return Ok(Exit::Failed) };
    let invitation = Invitation {
        ca: &files.ca,
        lanes: control.lane_count(),
        listening: *listening,
        metrics: control.admin_addresses().next(),
    };
    write!(out, "{invitation}")?;
    out.flush()?;
    let exit = if arguments.once {
        let tried = client::try_out(&invitation, out);
        let ended = serve::finish(control.stop());
        match tried {
            Ok(()) => ended,
            Err(error) => {
                say(&format!("the demo failed: {error}"));
                Exit::Failed
            }
        }
    } else {
        serve::finish(control.run())
    };
    backend.stop();
    Ok(exit)
}

/// All that runs, and where its files are.
struct Demo {
    backend: http::Server,
    control: Control,
    files: DemoFiles,
}

impl Demo {
    fn start(arguments: &DemoArguments, start_control: StartControl) -> Result<Self, Exit> {
        let invalid = |problem: String| {
            say(&problem);
            Exit::Invalid
        };
        let port = if arguments.once { 0 } else { PORT };
        let listen = arguments.listen.unwrap_or((Ipv4Addr::LOCALHOST, port).into());
        check_is_free(listen).map_err(invalid)?;
        let files = DemoFiles::provide(&arguments.directory).map_err(|error| {
            invalid(format!("{error}; see that {} can be written", arguments.directory.display()))
        })?;
        let failed = |error: io::Error| {
            say(&format!("the demo's backend cannot start: {error}"));
            Exit::Failed
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let config = configuration(listen, address, files.certificate.clone()).map_err(invalid)?;
        let lanes = config.lanes.get();
        let handler = move |request: &http::Request<'_>| page::respond(request, lanes);
        let backend = http::serve_proxied(listener, "backend", handler).map_err(failed)?;
        say(&format!("the demo's backend is on {address}"));
        let source = ConfigSource::Flags(Box::new(config.clone()));
        let control = serve::start(source, config, start_control)?;
        Ok(Self { backend, control, files })
    }
}

/// Sealane's own listeners share their port, so that the lanes can: a second demo would not fail,
/// but take connections from the first. A bind that shares nothing sees whether anyone is there.
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

/// Where the demo listens on 127.0.0.1 unless told; with --once it is any free port.
const PORT: u16 = 8443;
