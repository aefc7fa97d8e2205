//! The socket in a store's folder where the names are taken that clients ask for, and nothing else:
//! [`NamesSocket`].
//!
//! Whoever may write to the store may open it, which is what the folder says of its files: who
//! obtains certificates needs no other right, and is no user who may order.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use sealane_config::unix_socket::{self, SocketFile};
use sealane_store::{NAMES_SOCKET, Sharing};
use sealane_traffic::http::{Request, Server, serve_orders};

use super::{BACKLOG, orders};
use crate::state::SharedState;

/// A server of names. Dropping it ends it, without waiting for that.
pub struct NamesSocket {
    file: SocketFile,
    _server: Server,
}

impl NamesSocket {
    /// Tells what the lanes of `state` have noted, in the folder of a store.
    ///
    /// # Errors
    /// Somebody listens there, or the system refuses it.
    pub fn start(folder: &Path, state: SharedState) -> io::Result<Self> {
        let mode = Sharing::of(folder)?.mode();
        let (listener, file) = unix_socket::bind(&folder.join(NAMES_SOCKET), mode, BACKLOG)?;
        let answer = move |request: &Request<'_>| orders::names::answer(request, &state, true);
        let server = serve_orders(UnixListener::from(listener), THREAD, answer)?;
        Ok(Self { file, _server: server })
    }

    /// Whether those may open it who may write to the store in this folder now.
    pub fn is_for(&self, folder: &Path) -> bool {
        let Ok(sharing) = Sharing::of(folder) else { return false };
        let is_theirs = sharing.group.is_none_or(|group| self.file.group() == Some(group));
        is_theirs && self.file.permit(sharing.mode()).is_ok()
    }
}

const THREAD: &str = "names";
