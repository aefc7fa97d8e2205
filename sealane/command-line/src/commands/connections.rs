//! `sealane connections`: lists open connections of a running Sealane, and closes them.

use std::io::{self, Write};

use sealane_traffic::http::encode;
use serde::Deserialize;
use tracing::error;

use crate::args::{CloseArguments, ConnectionsCommand, ListConnectionsArguments};
use crate::exit::Exit;

use super::running::{AskError, Running, printable_line};

/// Does what the command says.
///
/// # Errors
/// The writer's.
pub(super) fn run(command: &ConnectionsCommand, out: &mut dyn Write) -> io::Result<Exit> {
    let done = match command {
        ConnectionsCommand::Close(which) => close(which, out),
        ConnectionsCommand::List(which) => list(which, out),
    };
    match done {
        Ok(done) => done,
        Err(error) => {
            error!("{error}");
            Ok(Exit::Failed)
        }
    }
}

fn close(which: &CloseArguments, out: &mut dyn Write) -> Result<io::Result<Exit>, AskError> {
    let running = Running { socket: &which.socket.socket };
    let target = format!("/connections/close?connection={}", encode(&which.connection));
    let answered = running.order(&target)?;
    if let Some(exit) = answered.refused() {
        return Ok(Ok(exit));
    }
    Ok(writeln!(out, "closed {}", printable_line(&which.connection)).map(|()| Exit::Ok))
}

fn list(
    which: &ListConnectionsArguments,
    out: &mut dyn Write,
) -> Result<io::Result<Exit>, AskError> {
    let running = Running { socket: &which.socket.socket };
    let mut target = format!("/connections?limit={}", which.limit);
    if let Some(client) = which.client {
        target += &format!("&client={}", encode(&client.to_string()));
    }
    if let Some(name) = &which.name {
        target += &format!("&name={}", encode(name));
    }
    let answered = running.show(&target)?;
    if let Some(exit) = answered.refused() {
        return Ok(Ok(exit));
    }
    Ok(match answered.read::<Listed>() {
        Ok(listed) if !which.json => table(&listed, out).map(|()| Exit::Ok),
        Ok(_) => out.write_all(&answered.body).map(|()| Exit::Ok),
        Err(_) => writeln!(out, "{}", answered.words()).map(|()| Exit::Ok),
    })
}

fn table(listed: &Listed, out: &mut dyn Write) -> io::Result<()> {
    for each in &listed.connections {
        let text =
            |text: &Option<String>| text.as_deref().map_or_else(|| "-".into(), printable_line);
        let phase = if each.established { "" } else { ", in its handshake" };
        writeln!(
            out,
            "{}  {} s{phase}  {} -> {} {} -> {}  {} B in, {} B out",
            each.connection,
            each.age_ms / 1_000,
            text(&each.client),
            printable_line(&each.listener),
            text(&each.server_name),
            text(&each.backend),
            each.received_bytes,
            each.sent_bytes
        )?;
    }
    if listed.has_more {
        writeln!(out, "and others; --limit shows more")?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Listed {
    connections: Vec<Open>,
    has_more: bool,
}

#[derive(Deserialize)]
struct Open {
    connection: String,
    listener: String,
    client: Option<String>,
    server_name: Option<String>,
    established: bool,
    backend: Option<String>,
    age_ms: u64,
    received_bytes: u64,
    sent_bytes: u64,
}
