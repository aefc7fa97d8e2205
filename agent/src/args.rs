//! What is typed: [`Arguments`].

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use sealane_operator::log::{LogFormat, LogLevel};

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "sealane-agent",
    bin_name = "sealane agent",
    version,
    about = "Obtains certificates by ACME and keeps them in Sealane's certificate store",
    after_long_help = HELP,
    args_conflicts_with_subcommands = true
)]
pub struct Arguments {
    /// Read everything from this TOML file
    #[arg(long, value_name = "FILE", default_value = FILE_DEFAULT)]
    pub config: PathBuf,
    /// Log lines of this level and above: error, warning, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log_level: LogLevel,
    /// The form of log lines: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// What to do; without it, to obtain and renew certificates until a signal comes.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Arguments {
    /// Reads the process's own; ends it if they are not understood, or ask for help.
    #[must_use]
    pub fn from_process() -> Self {
        Self::parse()
    }
}

/// Something else to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check the configuration and report every mistake; makes the store if there is none
    Check {
        /// The configuration to check
        #[arg(long, value_name = "FILE", default_value = FILE_DEFAULT)]
        config: PathBuf,
    },
    /// Print facts about configurations
    Config {
        /// What to print
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Show the machines that share certificates, or change their ticket keys
    Fleet {
        /// What to do
        #[command(subcommand)]
        command: FleetCommand,
    },
    /// Renew the certificates for a name now, and report the result
    ///
    /// For a private key that may have leaked: the running agent orders a new certificate with a
    /// new key, and Sealane serves it without a reload. The old one is not revoked. The command
    /// waits up to 5 minutes for each certificate.
    #[command(after_long_help = RENEW_HELP)]
    Renew {
        /// A name of the certificate, as it is in the configuration
        name: String,
        /// The configuration
        #[arg(long, value_name = "FILE", default_value = FILE_DEFAULT)]
        config: PathBuf,
    },
    /// Read all of a store, and say whether it is in order
    #[command(hide = true)]
    Examine {
        /// The store
        store: PathBuf,
    },
}

/// What to print about configurations.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print a JSON Schema (draft 2020-12) of the agent's configuration, for editors
    #[command(after_long_help = SCHEMA_HELP)]
    Schema,
}

/// What to do with a fleet.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Have a new root of ticket keys hold on all machines, as soon as all can have it
    ///
    /// It is announced to all machines, and holds when two whole lifetimes of a ticket key have
    /// passed. Do it when somebody may have read the root: until then they read on.
    RotateTickets {
        /// The configuration, with the table `[fleet]`
        #[arg(long, value_name = "FILE", default_value = FILE_DEFAULT)]
        config: PathBuf,
    },
    /// Show how each machine is that is there
    Status {
        /// The configuration, with the table `[fleet]`
        #[arg(long, value_name = "FILE", default_value = FILE_DEFAULT)]
        config: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

const FILE_DEFAULT: &str = "/etc/sealane/agent.toml";

const SCHEMA_HELP: &str = "\
With the schema an editor completes the keys of the configuration, shows their documentation, and \
marks unknown keys and values of a wrong type. It knows no contradictions between keys: sealane \
agent check does.

Example:
  sealane agent config schema > agent.schema.json
";

const RENEW_HELP: &str = "\
Exit codes:
  0  renewed
  1  the order failed, the agent does not run, or it obtains no certificate for the name
  2  the command line is not understood
  3  the configuration or the store is missing or not in order
";

const HELP: &str = "\
Every key is explained in docs/agent-configuration.md and, as an example with comments, in
packaging/agent.toml.

Signals:
  SIGHUP            reload the configuration; if something is wrong, what runs goes on
  SIGTERM, SIGINT   begin nothing more, and end; an order under way goes on at the next start

Files:
  FILE              the configuration; relative paths in it start at its folder

Exit codes:
  0  ended as asked; or the configuration is in order
  1  failed while it ran
  2  the command line is not understood
  3  the configuration or the store is missing or not in order; nothing started

Examples:
  sealane agent check
  sealane agent renew www.example.com
  sealane agent fleet status
  sealane agent --config /etc/sealane/agent.toml
";
