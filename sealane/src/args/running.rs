//! What the commands take that speak to a running Sealane.

use std::path::PathBuf;

use clap::Args;

/// Where it listens for orders.
#[derive(Args, Debug)]
pub struct SocketArguments {
    /// The admin socket of the running Sealane: what its configuration has as admin.socket
    #[arg(long, value_name = "PATH", default_value = "/run/sealane/admin.sock")]
    pub socket: PathBuf,
}

/// What `sealane reload` takes.
#[derive(Args, Debug)]
#[command(after_long_help = RELOAD_HELP)]
pub struct ReloadArguments {
    /// The socket.
    #[command(flatten)]
    pub socket: SocketArguments,
    /// Print the verdict as one JSON object instead of text
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
    /// Show it on the terminal until Ctrl-C, anew every two seconds
    #[arg(long)]
    pub watch: bool,
}

const RELOAD_HELP: &str = "\
Does what SIGHUP does, waits until every lane serves what was read, and prints the verdict with \
all mistakes, as sealane check words them. Only root and the user that Sealane runs as are obeyed.

Exit codes:
  0  what was read is served; there may be warnings
  1  nobody could be asked, or it is about to end
  3  not in order: nothing was changed, and what ran goes on

Example:
  sealane check --config /etc/sealane/sealane.toml && sealane reload
";

const STATUS_HELP: &str = "\
Shows lanes with connections, handshakes per second and processor time, backends, certificates \
that expire first, the epoch of session tickets and the last reloads. What is per second is that of one \
second, for which the command waits. Whoever may open the socket may see it.

Exit codes:
  0  shown; with --watch, until Ctrl-C
  1  nobody could be asked
  2  --watch without a terminal

Example:
  sealane status --json | jq .lanes[].connections
";
