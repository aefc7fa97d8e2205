//! The demo's own visitor: fetches the page with verification, and again with a resumed session.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::time_provider::DefaultTimeProvider;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, Stream};
use sealane_engine::client::{ClientContexts, ClientOptions, ClientOptionsError, Roots};
use thiserror::Error;

use super::invitation::{Invitation, SERVER_NAME};

/// Fetches the page as the invitation says, with curl if there is one, then twice on connections
/// of which the second resumes the session of the first, and prints what came.
///
/// # Errors
/// A page did not come, or did not say what it must.
pub(super) fn try_out(invitation: &Invitation<'_>, out: &mut dyn Write) -> Result<(), VisitError> {
    if let Some(page) = fetch_with_curl(invitation)? {
        expect(&page, "resumed       no")?;
        writeln!(out, "With curl:\n\n{page}")?;
    }
    let visitor = Visitor::new(invitation)?;
    let (first, kind) = visitor.fetch()?;
    if kind == Some(HandshakeKind::Resumed) {
        return Err(VisitError::Resumption("there was no session to resume, and one was"));
    }
    expect(&first, "resumed       no")?;
    writeln!(out, "With a client of Sealane's own, first connection:\n\n{first}")?;
    let (second, kind) = visitor.fetch()?;
    if kind != Some(HandshakeKind::Resumed) {
        return Err(VisitError::Resumption("the second connection did not resume the session"));
    }
    expect(&second, "resumed       yes")?;
    writeln!(out, "Second connection, with the ticket of the first:\n\n{second}")?;
    Ok(())
}

/// Why the page was not what it should be.
#[derive(Debug, Error)]
pub(super) enum VisitError {
    /// The CA's file cannot be read.
    #[error("the demo CA cannot be used: {0}")]
    Ca(io::Error),
    /// The CA's certificate, or the cryptography, cannot be used.
    #[error("the demo CA cannot be used: {0}")]
    Client(#[from] ClientOptionsError),
    /// curl ran and was not content; this is what it said.
    #[error("curl said: {0}")]
    Curl(String),
    /// The system, or what came over the connection.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server name.
    #[error(transparent)]
    Name(#[from] InvalidDnsNameError),
    /// What came is not the page.
    #[error("`{expected}` is missing from what came:\n{came}")]
    Page {
        /// What the page must hold.
        expected: &'static str,
        /// What came.
        came: String,
    },
    /// A session was resumed, or was not.
    #[error("{0}")]
    Resumption(&'static str),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// The page as curl gets it; none without curl.
fn fetch_with_curl(invitation: &Invitation<'_>) -> Result<Option<String>, VisitError> {
    let seconds = TIMEOUT.as_secs().to_string();
    let ran = Command::new("curl")
        // The first of all: what a user's file of settings says must not matter.
        .args(["--disable", "--silent", "--show-error", "--fail", "--max-time", &seconds])
        .args(invitation.curl_arguments())
        .stdin(Stdio::null())
        .output();
    match ran {
        Ok(output) if output.status.success() => {
            Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(VisitError::Curl(if said.is_empty() { output.status.to_string() } else { said }))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A client that keeps its session between connections.
struct Visitor<'a> {
    config: Arc<ClientConfig>,
    invitation: &'a Invitation<'a>,
}

impl<'a> Visitor<'a> {
    fn new(invitation: &'a Invitation<'a>) -> Result<Self, VisitError> {
        let ca = fs::read(invitation.ca).map_err(VisitError::Ca)?;
        let roots = Roots::from_pem(&invitation.ca.display().to_string(), &ca)?;
        let options =
            ClientOptions { alpn: vec![b"http/1.1".to_vec()], ..ClientOptions::trusting(roots) };
        let context = ClientContexts::new().context(&options)?;
        Ok(Self { config: context.replica(Arc::new(DefaultTimeProvider))?, invitation })
    }

    /// The page over a connection of its own, and how that connection began.
    fn fetch(&self) -> Result<(String, Option<HandshakeKind>), VisitError> {
        let mut socket = TcpStream::connect_timeout(&self.invitation.address(), TIMEOUT)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        let name = ServerName::try_from(SERVER_NAME)?;
        let mut tls = ClientConnection::new(Arc::clone(&self.config), name)?;
        let mut stream = Stream::new(&mut tls, &mut socket);
        stream.write_all(REQUEST)?;
        let mut response = String::new();
        (&mut stream).take(RESPONSE_BYTES_MAX).read_to_string(&mut response)?;
        let page = match response.split_once("\r\n\r\n") {
            Some((head, page)) if head.starts_with("HTTP/1.1 200 ") => page.to_owned(),
            _ => return Err(VisitError::Page { expected: "HTTP/1.1 200", came: response }),
        };
        Ok((page, tls.handshake_kind()))
    }
}

fn expect(page: &str, expected: &'static str) -> Result<(), VisitError> {
    if page.contains(expected) {
        return Ok(());
    }
    Err(VisitError::Page { expected, came: page.to_owned() })
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
/// Bytes of a response; the page has a few hundred.
const RESPONSE_BYTES_MAX: u64 = 64 * 1024;
/// The time for a connect, a read, a write, and a whole curl.
const TIMEOUT: Duration = Duration::from_secs(10);
