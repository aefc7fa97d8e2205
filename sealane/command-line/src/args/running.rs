//! What the commands take that speak to a running Sealane.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Where it listens for orders.
#[derive(Args, Debug)]
pub struct SocketArguments {
    /// Admin socket of the running Sealane: admin.socket in its configuration
    #[arg(long, value_name = "PATH", default_value = "/run/sealane/admin.sock")]
    pub socket: PathBuf,
}

/// What to do with backends.
#[derive(Debug, Subcommand)]
pub enum BackendsCommand {
    /// Send no new connections to a backend; open ones go on
    Drain(BackendArguments),
    /// List backends with their state and connections
    List(ListRunningArguments),
    /// Send new connections to a drained backend again
    Restore(BackendArguments),
}

/// What to do with connections.
#[derive(Debug, Subcommand)]
pub enum ConnectionsCommand {
    /// Reset a connection and the one to its backend
    Close(CloseArguments),
    /// List open connections
    List(ListConnectionsArguments),
}

/// What `sealane backends list` takes.
#[derive(Args, Debug)]
pub struct ListRunningArguments {
    /// The socket.
    #[command(flatten)]
    pub socket: SocketArguments,
}

/// Which backend.
#[derive(Args, Debug)]
pub struct BackendArguments {
    /// The socket.
    #[command(flatten)]
    pub socket: SocketArguments,
    /// Backend, as the configuration writes it
    #[arg(value_name = "BACKEND")]
    pub backend: String,
}

/// Which connection.
#[derive(Args, Debug)]
pub struct CloseArguments {
    /// The socket.
    #[command(flatten)]
    pub socket: SocketArguments,
    /// Number of the connection, as in the access log and in the list
    #[arg(value_name = "CONNECTION")]
    pub connection: String,
}

/// Which connections.
#[derive(Args, Debug)]
pub struct ListConnectionsArguments {
    /// The socket.
    #[command(flatten)]
    pub socket: SocketArguments,
    /// Only connections of this client
    #[arg(long, value_name = "IP")]
    pub client: Option<IpAddr>,
    /// Only connections with this server name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Most connections to list
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub limit: u16,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// What `sealane reload` takes.
#[derive(Args, Debug)]
#[command(after_long_help = RELOAD_HELP)]
pub struct ReloadArguments {
    /// The socket.
    #[command(flatten)]
    pub socket: SocketArguments,
    /// Print the result as one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// What `sealane status` takes.
#[derive(Args, Debug)]
#[command(after_long_help = STATUS_HELP)]
pub struct StatusArguments {
    /// The socket.
    #[command(flatten)]
    pub socket: SocketArguments,
    /// Print one JSON object instead of text, as /state has it
    #[arg(long, conflicts_with = "watch")]
    pub json: bool,
    /// Refresh every two seconds on the terminal until Ctrl-C
    #[arg(long)]
    pub watch: bool,
}

pub(super) const BACKENDS_HELP: &str = "\
A backend stays drained over reloads, until it is restored or Sealane restarts. If all backends of \
a listener are drained, its clients are reset. Only root and Sealane's user may do this.

Exit codes:
  0  done
  1  cannot connect to Sealane, or a lane did not respond
  3  no such backend

Example:
  sealane backends drain 10.0.0.7:8080 && sealane backends list
";

pub(super) const CONNECTIONS_HELP: &str = "\
Only root and Sealane's user may close connections.

Exit codes:
  0  done
  1  cannot connect to Sealane, or a lane did not respond
  3  no such connection

Example:
  sealane connections list --client 192.0.2.7 --json | jq -r .connections[].connection |
      xargs -n 1 sealane connections close
";

const RELOAD_HELP: &str = "\
Does the same as SIGHUP, waits until every lane serves the new generation, and prints the result \
with all mistakes and faults. Only root and Sealane's user may reload.

Exit codes:
  0  reloaded; there may be warnings
  1  cannot connect to Sealane, or it is shutting down
  3  a mistake in the configuration: nothing was changed
  5  reloaded, but a certificate, list, key, store or folder is faulty

Example:
  sealane check --config /etc/sealane/sealane.toml && sealane reload
";

const STATUS_HELP: &str = "\
Shows lanes with connections, handshakes per second and CPU time, backends, the certificates that \
expire first, the epoch of session tickets and the last reloads. The command measures rates for \
one second. Every user that can open the socket may run it.

States of a backend: up; failing (the last attempt of a lane failed, and the next client may \
still be sent there); down (a health check failed, or all lanes back off after failed attempts); \
drained (by `sealane backends drain`).

Exit codes:
  0  shown; with --watch, until Ctrl-C
  1  cannot connect to Sealane
  2  --watch without a terminal

Example:
  sealane status --json | jq .lanes[].connections
";
