//! `sealane backends`: lists backends of a running Sealane, drains them and puts them back.

use std::io::{self, Write};

use sealane_traffic::http::encode;
use serde::Deserialize;
use tracing::error;

use crate::args::{BackendArguments, BackendsCommand};
use crate::exit::Exit;

use super::running::{Answered, AskError, Running};
use super::status;

/// Does what the command says.
///
/// # Errors
/// The writer's.
pub(super) fn run(command: &BackendsCommand, out: &mut dyn Write) -> io::Result<Exit> {
    let done = match command {
        BackendsCommand::Drain(which) => order("drain", which, out),
        BackendsCommand::List(arguments) => {
            list(&Running { socket: &arguments.socket.socket }, out)
        }
        BackendsCommand::Restore(which) => order("restore", which, out),
    };
    match done {
        Ok(done) => done,
        Err(error) => {
            error!("{error}");
            Ok(Exit::Failed)
        }
    }
}

fn order(
    what: &str,
    which: &BackendArguments,
    out: &mut dyn Write,
) -> Result<io::Result<Exit>, AskError> {
    let running = Running { socket: &which.socket.socket };
    let target = format!("/backends/{what}?backend={}", encode(&which.backend));
    let answered = running.order(&target)?;
    if let Some(exit) = answered.refused() {
        return Ok(Ok(exit));
    }
    Ok(write!(out, "{}", text(&answered, &which.backend)).map(|()| Exit::Ok))
}

fn text(answered: &Answered, name: &str) -> String {
    match answered.read() {
        Ok(Done { drained: true, connections }) => {
            format!("{name} gets no new connections; it has {connections}\n")
        }
        Ok(Done { drained: false, .. }) => format!("{name} gets new connections\n"),
        Err(_) => answered.words() + "\n",
    }
}

#[derive(Deserialize)]
struct Done {
    drained: bool,
    connections: u64,
}

fn list(running: &Running<'_>, out: &mut dyn Write) -> Result<io::Result<Exit>, AskError> {
    let answered = running.show("/state")?;
    if let Some(exit) = answered.refused() {
        return Ok(Ok(exit));
    }
    Ok(write!(out, "{}", status::backends(&answered)).map(|()| Exit::Ok))
}
