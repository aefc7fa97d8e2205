//! The command line: what each command takes, and the help that people work from.

mod certificates;
mod convert;
mod running;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use sealane_config::{
    Address, Config, LANES_MAX, Limits, Mistakes, Problem, ProxyHeader, Simple, Tickets,
    WrittenBackend, value,
    value::{AlpnProtocol, ListenAddresses},
};

use sealane_operator::log::{LogFormat, LogLevel};

use crate::exit::Exit;

pub use certificates::{
    BackupArguments, CertificatesCommand, ExportArguments, ImportArguments, KeyArguments,
    ListArguments, ReachArguments, RemoveArguments, RestoreArguments, ServedArguments,
    ShowArguments, StoreArguments, VerifyArguments,
};
pub use convert::ConvertArguments;
use running::{BACKENDS_HELP, CONNECTIONS_HELP};
pub use running::{
    BackendArguments, BackendsCommand, CloseArguments, ConnectionsCommand,
    ListConnectionsArguments, ListRunningArguments, ReloadArguments, SocketArguments,
    StatusArguments,
};

/// TLS terminator: accepts TLS on every core and forwards plaintext to backends
#[derive(Debug, Parser)]
#[command(name = "sealane", version, arg_required_else_help = true)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Reads the process's arguments; ends the process with a message if they are not understood,
    /// or with help if it is asked for.
    pub fn from_process() -> Self {
        let matches = Self::full_command().get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }

    /// The command line with everything that is computed for its help.
    pub fn full_command() -> clap::Command {
        Self::command().mut_subcommand("serve", |serve| serve.after_long_help(serve_help()))
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Obtain and renew certificates by ACME in a store
    #[command(disable_help_flag = true, after_long_help = AGENT_HELP)]
    Agent {
        /// Arguments of sealane-agent: see sealane agent --help
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// List, drain and restore the backends of a running Sealane
    #[command(subcommand, after_long_help = BACKENDS_HELP)]
    Backends(BackendsCommand),
    /// Manage a certificate store with sealed private keys
    #[command(subcommand, after_long_help = CERTIFICATES_HELP)]
    Certificates(CertificatesCommand),
    /// Validate a configuration and estimate its resource use
    Check(CheckArguments),
    /// Print a completion script for a shell
    #[command(after_long_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a description of the configuration's keys
    #[command(subcommand)]
    Config(ConfigCommand),
    /// List and close connections of a running Sealane
    #[command(subcommand, after_long_help = CONNECTIONS_HELP)]
    Connections(ConnectionsCommand),
    /// Convert the configuration of another program
    #[command(after_long_help = convert::HELP)]
    Convert(ConvertArguments),
    /// Run Sealane with a demo certificate and a demo backend
    Demo(DemoArguments),
    /// Show the machines of a fleet, or rotate their ticket keys
    #[command(disable_help_flag = true, after_long_help = FLEET_HELP)]
    Fleet {
        /// Arguments of sealane-agent fleet: see sealane fleet --help
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<OsString>,
    },
    /// Print a man page
    #[command(after_long_help = MAN_HELP)]
    Man {
        /// Command whose page is printed (default: sealane itself)
        command: Option<String>,
    },
    /// Reload the configuration and report the result
    Reload(ReloadArguments),
    /// Run the proxy
    #[command(override_usage = SERVE_USAGE)]
    Serve(ServeArguments),
    /// Show lanes, backends, certificates and reloads of a running Sealane
    Status(StatusArguments),
}

/// What to print about configurations.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a JSON Schema (draft 2020-12) of configuration files, for editors
    #[command(after_long_help = SCHEMA_HELP)]
    Schema,
}

/// What `sealane check` takes.
#[derive(Args, Debug)]
#[command(after_long_help = CHECK_HELP)]
pub struct CheckArguments {
    /// The configuration to check
    #[arg(long, value_name = "FILE", default_value = "/etc/sealane/sealane.toml")]
    pub config: PathBuf,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Check the configuration alone, without the files that it names, for a machine without the
    /// keys
    #[arg(long)]
    pub no_files: bool,
    /// Fail if there are warnings
    #[arg(long)]
    pub strict: bool,
}

/// What `sealane demo` takes.
#[derive(Args, Debug)]
#[command(after_long_help = DEMO_HELP)]
pub struct DemoArguments {
    /// Fetch the page once with a full handshake and once with a resumed session, then exit
    #[arg(long)]
    pub once: bool,
    /// Listen here (default: 127.0.0.1:8443; with --once any free port)
    #[arg(long, value_name = "ADDR:PORT", value_parser = value::listen_address)]
    pub listen: Option<SocketAddr>,
    /// Write the demo certificate to this directory
    #[arg(long, value_name = "DIR", default_value = "demo-data")]
    pub directory: PathBuf,
}

/// What `sealane serve` takes: a file, or flags alone for the simple case.
#[derive(Args, Debug)]
pub struct ServeArguments {
    /// Read everything from a TOML file
    ///
    /// docs/configuration.md documents every key, packaging/sealane.toml is an example with all of
    /// them. With a file only the flags of the log are allowed.
    #[arg(long, value_name = "FILE", conflicts_with_all = SIMPLE_FLAGS)]
    pub config: Option<PathBuf>,
    /// Accept TLS here; may be repeated
    #[arg(long, long_help = LISTEN_HELP, value_name = "ADDR:PORT|unix:PATH",
        required_unless_present = "config", value_parser = value::listen_addresses)]
    pub listen: Vec<ListenAddresses>,
    /// Forward plaintext to this backend; may be repeated
    ///
    /// ADDR:PORT, HOST:PORT or unix:/PATH. Several backends are load-balanced; after a failure one
    /// gets no connections for a while. With tls:// in front, Sealane connects by TLS and verifies
    /// the certificate with the system's roots; a configuration file can name others.
    #[arg(long, value_name = "[tls://]ADDR:PORT|unix:PATH", required_unless_present = "config",
        value_parser = value::backend)]
    pub backend: Vec<WrittenBackend>,
    /// Serve the certificates of this file or directory; may be repeated
    ///
    /// store:PATH names a certificate store, see sealane certificates.
    ///
    /// A file has a chain and its key in PEM. Of a directory, Sealane takes all NAME.pem files with
    /// both, all NAME.crt or NAME.cer with NAME.key, and the folders of certbot, lego, acme.sh and
    /// dehydrated, such as /etc/letsencrypt/live; it ignores other files. Names that no certificate
    /// covers get the first one.
    #[arg(long, value_name = "PATH", required_unless_present = "config")]
    pub certificates: Vec<PathBuf>,
    /// The file with the sealing keys of a certificate store
    #[arg(long, value_name = "FILE")]
    pub store_key_file: Option<PathBuf>,
    /// ALPN protocols, comma-separated, in order of preference
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = value::alpn_protocol)]
    pub alpn: Vec<AlpnProtocol>,
    /// Send a PROXY protocol header to backends (default: v2)
    #[arg(long, value_name = "v1|v2", num_args = 0..=1, default_missing_value = "v2",
        value_parser = value::proxy_header)]
    pub proxy_header: Option<ProxyHeader>,
    /// Log lines of this level and above: error, warning, info or debug
    ///
    /// At debug each connection is logged while it is open: accept, hello, route, backend and end,
    /// each with the number that the access log has.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<LogLevel>,
    /// The form of log lines: text or json
    ///
    /// The default is text, or JSON if the access log goes to standard error as well.
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Event loops, one thread each (default: one per core)
    #[arg(long, value_name = "N", value_parser = lanes)]
    pub lanes: Option<NonZeroUsize>,
    /// Serve metrics, health and state here: loopback or a unix socket (default: off)
    ///
    /// Other addresses need a configuration file with allow_remote = true.
    #[arg(long, value_name = "ADDR:PORT|unix:PATH", value_parser = value::admin_address)]
    pub admin: Option<Address>,
}

impl ServeArguments {
    /// Reads the file, or makes a configuration out of the flags.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn into_config(self) -> Result<Config, Mistakes> {
        match self.config {
            Some(file) => Config::load(&file),
            None => Config::simple(Simple {
                admin: self.admin,
                alpn: self.alpn.into_iter().map(|protocol| protocol.0).collect(),
                backends: self.backend,
                certificates: self.certificates,
                lanes: self.lanes,
                listen: self.listen.into_iter().flat_map(|written| written.0).collect(),
                proxy_header: self.proxy_header.unwrap_or_default(),
                store_key_file: self.store_key_file,
            }),
        }
    }
}

fn lanes(text: &str) -> Result<NonZeroUsize, Problem> {
    text.parse().ok().filter(|lanes: &NonZeroUsize| lanes.get() <= LANES_MAX).ok_or_else(|| {
        Problem::new(format!("{text:?} is not a number of lanes"), format!("1 to {LANES_MAX}"))
    })
}

fn serve_help() -> String {
    let limits = Limits::default();
    let tickets = Tickets::default();
    let time = value::duration_text;
    let codes: String = Exit::OF_SERVE
        .iter()
        .map(|exit| format!("  {}  {}\n", exit.code(), exit.meaning()))
        .collect();
    format!(
        "{SERVE_EXAMPLES}
Defaults (a file changes them, key by key):
  TLS 1.2 and 1.3; X25519MLKEM768, X25519, secp256r1, secp384r1; no ALPN
  unknown names     the first certificate is served
  session tickets   {count} per full handshake, key changed every {lifetime}
  connections       {connections} in all, divided among the lanes; beyond it the newest is reset
  handshakes        {handshakes} in flight; beyond it the oldest is reset
  timeouts          handshake {handshake}, connect {connect}, idle {idle}, drain {drain};
                    connections may live forever
  unfinished bytes  {unfinished} on each lane; beyond it the longest wait is reset
  access log        none

{SERVE_SIGNALS}
Exit codes:
{codes}",
        count = tickets.count,
        lifetime = time(tickets.lifetime),
        connections = limits.connections_max,
        handshakes = limits.handshakes_max,
        handshake = time(limits.timeouts.handshake),
        connect = time(limits.connect_timeout),
        idle = time(limits.timeouts.idle),
        drain = time(limits.drain_timeout),
        unfinished = value::size_text(limits.unfinished_bytes_per_lane_max as u64),
    )
}

const SIMPLE_FLAGS: [&str; 8] = [
    "listen",
    "backend",
    "certificates",
    "store_key_file",
    "alpn",
    "proxy_header",
    "lanes",
    "admin",
];

const SERVE_USAGE: &str = "sealane serve --config FILE
       sealane serve --listen ADDR:PORT --backend ADDR:PORT --certificates PATH [--lanes N] \
[--alpn NAMES] [--proxy-header [v1|v2]] [--admin ADDR:PORT|unix:PATH]
Both take [--log-level LEVEL] [--log-format FORMAT]";

const LISTEN_HELP: &str = "Accept TLS here; may be repeated

The address is numeric: 0.0.0.0:443 for every IPv4 address, [::]:443 for IPv6; :443 is both. \
unix:/PATH is a socket that this user and this user's group may open.";

const SERVE_EXAMPLES: &str = "Examples:
  sealane serve --listen 0.0.0.0:443 --backend 127.0.0.1:8080 --certificates /etc/sealane/certs
  sealane serve --listen 0.0.0.0:443 --listen [::]:443 --backend unix:/run/app.sock \\
      --certificates www.pem --lanes 4 --admin 127.0.0.1:9180
  sealane check --config /etc/sealane/sealane.toml && \\
      sealane serve --config /etc/sealane/sealane.toml
";

const SERVE_SIGNALS: &str = "Signals:
  SIGHUP            reload the configuration, all certificates in files and the sealing keys
  SIGTERM, SIGINT   graceful shutdown: serve on for the drain delay, if there is one; then accept no
                    more, let connections finish, and cut the rest at the drain timeout. A second
                    signal ends the delay, and another cuts all connections at once

Faults:
  A faulty certificate, list, key, store or folder stops neither a start nor a reload. Sealane uses
  its last good state; without one it rejects the clients that need it. The log, sealane status and
  /healthz name each fault.

Reload (SIGHUP, or a change of the configuration or of a certificate file):
  Sealane reads and checks everything first. A mistake in the configuration changes nothing and is
  logged. Open connections keep their settings. New listeners open, removed ones drain.
  Session tickets stay valid. Changes of [admin], [log], [access_log], [process], lanes, pin_lanes,
  and the lifetime and root of tickets need a restart.

Files:
  FILE              the configuration; relative paths in it start at its folder
  PATH              chains and keys; Sealane reloads when they change. Only this user and its group
                    should be able to read private keys

Environment, as systemd sets it:
  NOTIFY_SOCKET     receives the process's state, and keeps listening sockets for the next process
  LISTEN_FDS        the listening sockets of the process before, with LISTEN_PID and LISTEN_FDNAMES
  WATCHDOG_USEC     the interval of watchdog messages, with WATCHDOG_PID
  JOURNAL_STREAM    log lines have a priority if standard error is the journal
";

const FLEET_HELP: &str = "\
Runs the program sealane-agent, which is in the same folder or in ../libexec. It uses the etcd \
cluster through which the machines share certificates.

Exit codes:
  0  done
  1  it failed, or is not installed
  2  wrong command line
  3  its configuration is invalid

Examples:
  sealane fleet status
  sealane fleet rotate-tickets
";

const AGENT_HELP: &str = "Runs the program sealane-agent, which is in the same folder or in \
../libexec. It writes to a certificate store, from which sealane serve takes certificates and \
answers challenges.

Commands:
  check         check its configuration; create the store if it is missing
  fleet         the same as sealane fleet
  renew NAME    order a new certificate for NAME now, and wait for it

Exit codes:
  0  stopped by a signal or done; or its configuration is valid
  1  it failed, or is not installed
  2  wrong command line
  3  its configuration or the store is missing or invalid; nothing started

Examples:
  sealane agent check --config /etc/sealane/agent.toml
  sealane agent renew www.example.com
  sealane agent --config /etc/sealane/agent.toml
";

const CHECK_HELP: &str =
    "Reads the configuration and every certificate and key, decodes each key, \
looks up every backend, and opens no listener. It prints all mistakes at once, each with file, \
line, column, field and remedy; then memory, file descriptors, and the handshakes per second that \
the keys allow. A file that this user cannot read is a mistake: run it as the service's user.

Notes are about the limits of this shell. A service gets its limits from its unit.

Exit codes:
  0  valid; there may be warnings, except with --strict
  3  invalid
  6  valid, with warnings (--strict only)

For CI, without keys and backends:
  sealane check --no-files --strict --config sealane.toml

Example:
  runuser -u sealane -- sealane check --json | jq .errors
";

const CERTIFICATES_HELP: &str = "\
A store holds certificates with private keys, encrypted by a sealing key that is not in the store. \
A listener uses it with certificates = [\"store:PATH\"]. Imports and removals take effect with \
the next ClientHello, without a reload. All commands may run while Sealane serves.

To begin:
  sealane certificates import --store /var/lib/sealane/store --key-file /etc/sealane/store.key \\
      --create /etc/letsencrypt/live/*/combined.pem
  sealane serve --listen 0.0.0.0:443 --backend 127.0.0.1:8080 \\
      --certificates store:/var/lib/sealane/store --store-key-file /etc/sealane/store.key

To change the sealing key:
  1. Put a new key in the first line of the key file (openssl rand -base64 32), above the old one.
     A running Sealane notices a changed file, and runs a key command at SIGHUP; wait until it logs
     the reload. A systemd credential is read at the start only: restart it.
  2. sealane certificates reseal --store PATH --key-file FILE
  3. Remove the old line.
  Unused pages of the store may still hold data under the old key: if that key has leaked, replace
  the private keys as well.

Exit codes:
  0  done
  1  verify found a problem; remove did not find a name
  3  a certificate, the store or its key is invalid; nothing was changed, except complete batches
     of 1,000 by import or reseal: run it again
";

const SCHEMA_HELP: &str = "\
With the schema an editor completes the keys of a configuration, shows their documentation, and \
marks unknown keys and wrong types. Contradictions between keys are found by sealane check only.

Exit codes:
  0  printed

Example:
  sealane config schema > sealane.schema.json
";

const COMPLETIONS_HELP: &str = "Examples:
  sealane completions bash > /usr/share/bash-completion/completions/sealane
  sealane completions zsh > /usr/share/zsh/site-functions/_sealane
  sealane completions fish > /usr/share/fish/vendor_completions.d/sealane.fish
";

const DEMO_HELP: &str =
    "Starts a small HTTP backend, Sealane in front of it, and metrics on a free \
port, and prints commands for curl and openssl that verify the certificate. The page shows the \
facts in the PROXY header: lane, TLS version, suite, group, server name, resumed or not. Ctrl-C \
ends it.

File:
  DIR/localhost.pem  a new self-signed certificate and its key, for localhost, 127.0.0.1 and ::1

Exit codes:
  0  stopped by a signal; with --once, both pages were fetched and verified (needs curl)
  1  a page could not be fetched, or Sealane failed
  3  the address or the directory cannot be used; nothing started

Example:
  sealane demo --once --listen 127.0.0.1:9443
";

const MAN_HELP: &str = "Examples:
  sealane man | man -l -
  sealane man serve > /usr/share/man/man1/sealane-serve.1
";

#[cfg(test)]
mod tests;
