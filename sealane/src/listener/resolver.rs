//! Host names of backends, looked up with an end to the wait.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Looks `name` up, on a thread of its own: a resolver that is silent must not hold up a signal.
///
/// # Errors
/// It has no address, or there was no answer in time.
pub fn resolve(name: &str, port: u16) -> Result<SocketAddr, String> {
    let (sender, found) = channel();
    let asked = name.to_owned();
    let look_up = move || {
        let first = (asked, port).to_socket_addrs().map(|mut addresses| addresses.next());
        // Whoever asked may have given up.
        let _ = sender.send(first);
    };
    let spawned = thread::Builder::new().name("resolver".into()).spawn(look_up);
    spawned.map_err(|error| error.to_string())?;
    match found.recv_timeout(RESOLVE_TIMEOUT) {
        Ok(Ok(Some(address))) => Ok(address),
        Ok(Ok(None)) => Err("the name has no address".into()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLVE_TIMEOUT.as_secs())),
    }
}

/// One look-up; for as long a signal may have to wait.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);
