//! A listener of the agent's own, where clients push certificates over TCP: [`Door`].
//!
//! ```text
//!   TCP --> at most 256 that are not authenticated yet; the next one closes the oldest
//!    |  TLS 1.3, with a certificate; on a thread for handshakes
//!    v
//!   Client --> Rights, of [[push.role]]     at most 16 connections each
//!    |  HTTP/1.1, one request
//!    v
//!   sealane-store-requests, on a thread for what waits for the disk --> certificate store
//! ```
//!
//! It has a thread and a runtime of its own: orders go on whatever clients do.

mod answer;
mod complaints;
mod connections;
mod handshakes;
mod quotas;
mod requests;
mod roles;
mod server;
mod streams;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use sealane_store::KeyedStore;
use tokio::sync::{oneshot, watch};

use crate::settings::PushSettings;
use crate::trust::TrustError;

use requests::Keeper;
use roles::Roles;

/// A listener that takes certificates, until it is closed.
pub(crate) struct Door {
    address: SocketAddr,
    closing: watch::Sender<bool>,
    current: Shared,
    ended: oneshot::Receiver<()>,
}

/// What the next client meets.
struct Current {
    config: Arc<ServerConfig>,
    roles: Roles,
}

/// The same, which a reload replaces.
type Shared = Arc<RwLock<Arc<Current>>>;

impl Current {
    fn of(settings: &PushSettings) -> Result<Self, TrustError> {
        Ok(Self { config: server::config(settings)?, roles: Roles::new(&settings.roles) })
    }
}

impl Door {
    /// Looks at the files that it needs.
    ///
    /// # Errors
    /// They cannot be read, or do not hold what they should.
    pub(crate) fn check(settings: &PushSettings) -> Result<(), DoorError> {
        Current::of(settings)?;
        Ok(())
    }

    /// Listens.
    ///
    /// # Errors
    /// Its files are not in order, or the system refuses.
    pub(crate) fn open(settings: &PushSettings, store: Arc<KeyedStore>) -> Result<Self, DoorError> {
        let current: Shared = Arc::new(RwLock::new(Arc::new(Current::of(settings)?)));
        let address = settings.address;
        let listens = |error| DoorError::Listen { address, error };
        let listener = StdListener::bind(address).map_err(listens)?;
        listener.set_nonblocking(true).map_err(listens)?;
        let (closing, closed) = watch::channel(false);
        let (end, ended) = oneshot::channel();
        let keeper = Arc::new(Keeper::new(store)?);
        let shared = Arc::clone(&current);
        let run = move || {
            connections::run(listener, &shared, &keeper, closed);
            // Whoever waited may have ended.
            let _ = end.send(());
        };
        std::thread::Builder::new().name("push".into()).spawn(run).map_err(listens)?;
        Ok(Self { address, closing, current, ended })
    }

    /// Has files read anew, and other roles, for whoever connects from now on. With the answer it
    /// does so: all else that a reload looks at comes before.
    ///
    /// # Errors
    /// Its files are not in order, or the address has changed; then nothing has.
    pub(crate) fn reload(
        &self,
        settings: &PushSettings,
    ) -> Result<impl FnOnce() + use<>, DoorError> {
        if settings.address != self.address {
            return Err(DoorError::Restart);
        }
        let (shared, next) = (Arc::clone(&self.current), Arc::new(Current::of(settings)?));
        Ok(move || *shared.write().unwrap_or_else(PoisonError::into_inner) = next)
    }

    /// Takes no more clients, and waits for those that are there.
    pub(crate) async fn close(self) {
        // Its thread may have ended.
        let _ = self.closing.send(true);
        let _ = self.ended.await;
    }
}

/// Why there is no listener. The fault is the operator's.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DoorError {
    /// The system does not let it listen.
    #[error(
        "push.address: cannot listen on {address}: {error}; name an address of this machine and a \
         port that is free"
    )]
    Listen { address: SocketAddr, error: io::Error },
    /// The address cannot change while it listens.
    #[error("[push] and its address take a restart; restart the agent")]
    Restart,
    /// The files of the table are not in order.
    #[error("push: {0}")]
    Trust(#[from] TrustError),
}
