//! Both ends of a connection in one thread's memory, where no clock divides the time between them:
//! [`shake_hands`].

use sealane_lab_model::error::Error;

use crate::stack::{Endpoint, Progress};

/// A whole handshake and the tickets behind it.
///
/// # Errors
/// The stack's own; or it did not come to an end, or brought application data.
pub(crate) fn shake_hands(
    server: &mut dyn Endpoint,
    client: &mut dyn Endpoint,
) -> Result<(), Error> {
    let (mut server_done, mut client_done) = (false, false);
    let (mut to_server, mut to_client, mut plaintext) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..FLIGHTS_MAX {
        to_server.clear();
        step(client, &mut client_done, &to_client, &mut plaintext, &mut to_server)?;
        to_client.clear();
        if !to_server.is_empty() {
            step(server, &mut server_done, &to_server, &mut plaintext, &mut to_client)?;
        }
        if to_client.is_empty() {
            break;
        }
    }
    if !(client_done && server_done) {
        return Err(Error::Check("the handshake did not come to its end".into()));
    }
    if !plaintext.is_empty() {
        return Err(Error::Check("a handshake brought application data".into()));
    }
    Ok(())
}

fn step(
    end: &mut dyn Endpoint,
    done: &mut bool,
    incoming: &[u8],
    plaintext: &mut Vec<u8>,
    outgoing: &mut Vec<u8>,
) -> Result<(), Error> {
    if *done {
        return end.receive(incoming, plaintext, outgoing).map(|_| ());
    }
    *done = end.handshake(incoming, outgoing)? == Progress::Done;
    Ok(())
}

/// Round trips of any handshake, and the tickets behind it.
const FLIGHTS_MAX: usize = 8;
