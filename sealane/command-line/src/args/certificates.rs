//! What `sealane certificates` takes.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub enum CertificatesCommand {
    /// Copy a store to one file, still sealed, while it is in use
    #[command(after_long_help = BACKUP_HELP)]
    Backup(BackupArguments),
    /// Check a store in a separate process, which a damaged file may end
    #[command(hide = true)]
    Examine(ExamineArguments),
    /// Write certificates as PEM to a folder or to standard output
    #[command(after_long_help = EXPORT_HELP)]
    Export(ExportArguments),
    /// Add or replace certificates with their private keys
    Import(ImportArguments),
    /// List certificates, the first to expire at the top
    List(ListArguments),
    /// Remove names, and erase their keys from the file
    Remove(RemoveArguments),
    /// Encrypt all private keys with the current sealing key, and erase the old copies
    #[command(after_long_help = RESEAL_HELP)]
    Reseal(KeyArguments),
    /// Restore a backup, also while the store is in use
    #[command(after_long_help = RESTORE_HELP)]
    Restore(RestoreArguments),
    /// Connect to machines by TLS, and show the certificate that each serves for a name
    #[command(after_long_help = SERVED_HELP)]
    Served(ServedArguments),
    /// Show the certificate for a server name
    Show(ShowArguments),
    /// Check that every private key belongs to its certificate
    Verify(VerifyArguments),
}

/// Which store.
#[derive(Args, Debug)]
pub struct StoreArguments {
    /// The folder of the store
    #[arg(long, value_name = "PATH", required_unless_present = "config")]
    pub store: Option<PathBuf>,
    /// Take the store and the source of its key from a configuration
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Which store, and what opens its seals.
#[derive(Args, Debug)]
#[group(id = "key")]
pub struct KeyArguments {
    /// The store.
    #[command(flatten)]
    pub store: StoreArguments,
    /// The file with the sealing keys, one per line, the current one first
    #[arg(long, value_name = "FILE", required_unless_present_any = ["config", "key_credential",
        "key_command"], conflicts_with_all = ["key_credential", "key_command"])]
    pub key_file: Option<PathBuf>,
    /// The credential of systemd with the sealing keys
    #[arg(long, value_name = "NAME", conflicts_with = "key_command")]
    pub key_credential: Option<String>,
    /// A program that prints the sealing keys, with its arguments, separated by spaces
    #[arg(long, value_name = "COMMAND")]
    pub key_command: Option<String>,
}

/// Which store, where it lies or of a Sealane that runs.
#[derive(Args, Debug)]
pub struct ReachArguments {
    /// The folder of the store
    #[arg(long, value_name = "PATH", required_unless_present_any = ["config", "socket"])]
    pub store: Option<PathBuf>,
    /// Take the store and the source of its key from a configuration
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    pub config: Option<PathBuf>,
    /// Use the store of the running Sealane with this admin socket; if it has several, --store
    /// chooses one, as its configuration writes it
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl ReachArguments {
    /// Where it lies.
    pub fn at_rest(&self) -> StoreArguments {
        StoreArguments { store: self.store.clone(), config: self.config.clone() }
    }
}

/// The same with what opens its seals, which a Sealane that runs has.
#[derive(Args, Debug)]
#[group(id = "key")]
pub struct ReachKeyArguments {
    /// The store.
    #[command(flatten)]
    pub reach: ReachArguments,
    /// The file with the sealing keys, one per line, the current one first
    #[arg(long, value_name = "FILE", required_unless_present_any = ["config", "key_credential",
        "key_command", "socket"], conflicts_with_all = ["key_credential", "key_command", "socket"])]
    pub key_file: Option<PathBuf>,
    /// The credential of systemd with the sealing keys
    #[arg(long, value_name = "NAME", conflicts_with_all = ["key_command", "socket"])]
    pub key_credential: Option<String>,
    /// A program that prints the sealing keys, with its arguments, separated by spaces
    #[arg(long, value_name = "COMMAND", conflicts_with = "socket")]
    pub key_command: Option<String>,
}

impl ReachKeyArguments {
    /// Where it lies.
    pub fn at_rest(&self) -> KeyArguments {
        KeyArguments {
            store: self.reach.at_rest(),
            key_file: self.key_file.clone(),
            key_credential: self.key_credential.clone(),
            key_command: self.key_command.clone(),
        }
    }
}

/// What `backup` takes.
#[derive(Args, Debug)]
pub struct BackupArguments {
    /// The store.
    #[command(flatten)]
    pub store: StoreArguments,
    /// Replace a file of this name
    #[arg(long)]
    pub replace: bool,
    /// The file to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// What `restore` takes.
#[derive(Args, Debug)]
pub struct RestoreArguments {
    /// The store and its key.
    #[command(flatten)]
    pub key: KeyArguments,
    /// The copy
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// What `examine` takes.
#[derive(Args, Debug)]
pub struct ExamineArguments {
    /// The folder of the store
    #[arg(value_name = "PATH")]
    pub store: PathBuf,
}

/// What `export` takes.
#[derive(Args, Debug)]
pub struct ExportArguments {
    /// The store and its key.
    #[command(flatten)]
    pub key: KeyArguments,
    /// Also write the private keys, after their chains
    #[arg(long)]
    pub private_keys: bool,
    /// Replace existing files
    #[arg(long, requires = "to")]
    pub replace: bool,
    /// Write a file for each certificate to this folder, which is created if it is missing
    /// (default: standard output)
    #[arg(long, value_name = "FOLDER")]
    pub to: Option<PathBuf>,
    /// Server names (default: all certificates)
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}

/// What `import` takes.
#[derive(Args, Debug)]
#[command(after_long_help = IMPORT_HELP)]
pub struct ImportArguments {
    /// The store and its key.
    #[command(flatten)]
    pub key: ReachKeyArguments,
    /// Create the store and the key file if they are missing
    #[arg(long, conflicts_with = "socket")]
    pub create: bool,
    /// A chain and its key in two files; may be repeated
    #[arg(long, num_args = 2, value_names = ["CHAIN", "KEY"])]
    pub pair: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Files with a chain and its key in PEM; directories of NAME.pem, of NAME.crt with NAME.key,
    /// or of an ACME client; or `-` alone, for a stream of such files
    #[arg(value_name = "PATH", required_unless_present = "pair")]
    pub paths: Vec<PathBuf>,
}

/// What `list` takes.
#[derive(Args, Debug)]
pub struct ListArguments {
    /// The store.
    #[command(flatten)]
    pub reach: ReachArguments,
    /// Only certificates that expire within DAYS days, and expired ones
    #[arg(long, value_name = "DAYS")]
    pub expiring: Option<u16>,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    pub json: bool,
}

impl ListArguments {
    /// Up to when certificates are listed that expire, if not all are.
    pub fn until_s(&self, now_s: i64) -> Option<i64> {
        let days = self.expiring.map(i64::from)?;
        Some(now_s.saturating_add(days.saturating_mul(DAY_S)))
    }
}

/// What `remove` takes.
#[derive(Args, Debug)]
pub struct RemoveArguments {
    /// The store.
    #[command(flatten)]
    pub reach: ReachArguments,
    /// Server names, or wildcards such as *.example.com
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
}

/// What `served` takes.
#[derive(Args, Debug)]
pub struct ServedArguments {
    /// Print one JSON object per line instead of text
    #[arg(long)]
    pub json: bool,
    /// Server name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Machines; every address of a host counts as one
    #[arg(value_name = "HOST:PORT", required = true)]
    pub addresses: Vec<String>,
}

/// What `show` takes.
#[derive(Args, Debug)]
pub struct ShowArguments {
    /// The store.
    #[command(flatten)]
    pub reach: ReachArguments,
    /// Print one JSON object per line instead of text
    #[arg(long)]
    pub json: bool,
    /// Server name
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// What `verify` takes.
#[derive(Args, Debug)]
pub struct VerifyArguments {
    /// The store and its key.
    #[command(flatten)]
    pub key: KeyArguments,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

const DAY_S: i64 = 86_400;

const BACKUP_HELP: &str = "\
The copy is checked before it gets its name, and it is on the disk when the command ends. Private \
keys in it are encrypted as in the store. Restoring needs the sealing keys, which are not in the \
backup: keep a copy of them elsewhere.

As root, the command switches to the store's user first. That user must be able to write in the \
folder of FILE.

Example:
  sealane certificates backup --config /etc/sealane/sealane.toml --replace /var/lib/sealane/backup
";

const EXPORT_HELP: &str = "\
A file has the first name of its certificate and the type of its key: \
www.example.com.ecdsa-p-256.pem, with + for the star of a wildcard. Only this user can read the \
files (mode 0600), and existing files are not replaced without --replace. As root, the command \
switches to the store's user first. That user must be able to write in FOLDER.

The output with --private-keys can be imported by: sealane certificates import -

Example:
  sealane certificates export --config /etc/sealane/sealane.toml --private-keys --to exported
";

const RESTORE_HELP: &str = "\
Every private key of the backup is checked before anything changes. The previous store is kept \
next to it, under a name that is printed.

A backup of the same store is restored in one transaction, and a running Sealane serves it from \
the next ClientHello on. If the store is damaged, or is another one, its folder is moved aside, \
and programs that use it must be restarted.

A killed restore has changed everything or nothing. It may leave a folder next to the store, with \
a dot in front of its name and six letters behind: remove it.

Example:
  sealane certificates restore --config /etc/sealane/sealane.toml /var/lib/sealane/backup
";

const IMPORT_HELP: &str = "All files are read and checked before anything is written: with one \
mistake nothing is imported. An imported certificate replaces the old one for the same name and \
type of key. A certificate without a name left is removed.

As root, on a store of another user, the command reads files and keys first and then switches to \
that user.

With `-` chains and keys come from standard input, file after file, each chain before its key or \
each after it. They are checked and written 1000 at a time. A mistake ends the import, with the \
number of imported certificates; the same stream may be imported again. Of two certificates for \
one name the later one is used.

With --socket a running Sealane does the import, for root and for its own user. The sender needs \
neither the folder nor the sealing key. All lanes serve the certificates when the command ends \
with 0.

packaging/acme-hook is the deploy hook for certbot, lego, acme.sh and dehydrated.

Example:
  sealane certificates import --config /etc/sealane/sealane.toml --pair www.crt www.key
  cat *.pem | sealane certificates import --socket /run/sealane/admin.sock -
";

const SERVED_HELP: &str = "\
Prints a line for each machine: the SHA-256 of its certificate, or the error. The certificate is \
not verified. Any TLS server can be queried.

Exit code 0: all serve the same certificate; 1: they differ, or one did not respond.";

const RESEAL_HELP: &str = "To change the sealing key: put the new one above the old one, reload \
Sealane, run this command, remove the old one, and reload again. The command may be interrupted \
and repeated at any time, while Sealane serves.

Afterwards no byte of the store is under the old sealing key. Older backups still are, and so may \
be blocks that the file system or the disk keeps (snapshots, copy on write, flash). If a sealing \
key leaked, the private keys have leaked with it: import new certificates with new keys, revoke \
the old ones, and destroy the old backups.

A store of an older Sealane is rewritten in the present format; stop Sealane first.
";
