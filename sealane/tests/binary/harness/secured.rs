//! Backends of a test's own that speak TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use super::backend::Backend;
use super::certificates::Authority;

/// A connection under TLS.
pub type Secured = StreamOwned<ServerConnection, TcpStream>;

/// A backend that speaks TLS, with a certificate that can be changed while it runs.
pub struct SecuredBackend {
    pub address: SocketAddr,
    config: Arc<Mutex<Arc<ServerConfig>>>,
}

impl SecuredBackend {
    /// Gives each connection whose handshake is complete to `serve`, and why it failed otherwise.
    pub fn start(
        leaf: &str,
        clients: Option<&Authority>,
        serve: impl Fn(io::Result<Secured>) + Send + Sync + 'static,
    ) -> Self {
        Self::behind(leaf, clients, |_| Ok(()), serve)
    }

    /// The same, with `before` for what comes in the clear.
    pub fn behind(
        leaf: &str,
        clients: Option<&Authority>,
        before: impl Fn(&mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
        serve: impl Fn(io::Result<Secured>) + Send + Sync + 'static,
    ) -> Self {
        let config = Arc::new(Mutex::new(server_config(leaf, clients)));
        let shared = Arc::clone(&config);
        let backend = Backend::start(move |mut stream| {
            let config = Arc::clone(&shared.lock().unwrap());
            let shaken = before(&mut stream).and_then(|()| shake(config, stream));
            serve(shaken);
        });
        Self { address: backend.address, config }
    }

    /// Sends back what it gets, and ends cleanly when the client has.
    pub fn echo(leaf: &str, clients: Option<&Authority>) -> Self {
        Self::start(leaf, clients, |shaken| {
            if let Ok(mut secured) = shaken {
                let _ = echo(&mut secured);
            }
        })
    }

    /// From now on shows `leaf`, and resumes no session from before.
    pub fn show(&self, leaf: &str) {
        *self.config.lock().unwrap() = server_config(leaf, None);
    }

    /// The address as it stands in a configuration.
    pub fn written(&self) -> String {
        format!("tls://{}", self.address)
    }
}

fn echo(secured: &mut Secured) -> io::Result<()> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        match secured.read(&mut buffer)? {
            0 => return finish(secured),
            len => secured.write_all(&buffer[..len])?,
        }
        secured.flush()?;
    }
}

/// The clean end: close_notify and FIN.
pub fn finish(secured: &mut Secured) -> io::Result<()> {
    secured.conn.send_close_notify();
    secured.flush()?;
    secured.sock.shutdown(Shutdown::Write)
}

fn shake(config: Arc<ServerConfig>, mut stream: TcpStream) -> io::Result<Secured> {
    let mut tls = ServerConnection::new(config).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(tls, stream))
}

fn server_config(leaf: &str, clients: Option<&Authority>) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(leaf.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(leaf.as_bytes()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.unwrap())
        }
    };
    Arc::new(builder.with_single_cert(chain, key).unwrap())
}
