//! TLS handshakes of clients, on a thread of their own: [`Handshakes`].
//!
//! A handshake costs computing time before the client is authenticated. The thread that answers
//! requests does none of it, so unauthenticated clients delay only each other.

use std::io;
use std::sync::Arc;
use std::thread;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The thread for handshakes. It ends when this is dropped.
pub(super) struct Handshakes {
    handle: Handle,
    _end: oneshot::Sender<()>,
}

impl Handshakes {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system starts none.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            // An error means that the sender was dropped.
            let _ = runtime.block_on(ended);
        };
        thread::Builder::new().name(THREAD.into()).spawn(run)?;
        Ok(Self { handle, _end: end })
    }

    /// One handshake. The runtime of the caller waits for the socket, this thread computes. To drop
    /// the future ends the handshake.
    ///
    /// # Errors
    /// The handshake fails.
    pub(super) async fn accept(
        &self,
        config: Arc<ServerConfig>,
        socket: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut handshake = JoinSet::new();
        handshake.spawn_on(TlsAcceptor::from(config).accept(socket), &self.handle);
        match handshake.join_next().await {
            Some(Ok(ended)) => ended,
            Some(Err(error)) => Err(io::Error::other(error)),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

const THREAD: &str = "push-tls";

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rustls::server::{ClientHello, ResolvesServerCert};
    use rustls::sign::CertifiedKey;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsConnector;

    use super::*;
    use crate::trust::our_provider;

    /// Notes the thread that asks for a certificate.
    #[derive(Debug, Default)]
    struct ThreadNote(Mutex<String>);

    impl ResolvesServerCert for ThreadNote {
        fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
            *self.0.lock().unwrap() = thread::current().name().unwrap().to_owned();
            None
        }
    }

    #[test]
    fn handshake_runs_on_its_own_thread() {
        let provider = Arc::new(our_provider().unwrap());
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let note = Arc::new(ThreadNote::default());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&note) as Arc<dyn ResolvesServerCert>);
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let handshakes = Handshakes::start().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let socket = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (accepted, _) = listener.accept().await.unwrap();
            let connector = TlsConnector::from(Arc::new(client));
            let (answer, refusal) = tokio::join!(
                connector.connect("a.test".try_into().unwrap(), socket),
                handshakes.accept(Arc::new(server), accepted)
            );
            assert!(answer.is_err() && refusal.is_err());
        });
        assert_eq!(*note.0.lock().unwrap(), THREAD);
    }
}
