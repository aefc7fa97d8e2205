//! What `sealane certificates` takes.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What to do with a store.
#[derive(Debug, Subcommand)]
pub enum CertificatesCommand {
    /// Copy a store as it is to one file, sealed, while it is served and changed
    #[command(after_long_help = BACKUP_HELP)]
    Backup(BackupArguments),
    /// Read all of a store as a process of its own, for another one that must not end by it
    #[command(hide = true)]
    Examine(ExamineArguments),
    /// Write certificates as PEM, to a folder or to standard output
    #[command(after_long_help = EXPORT_HELP)]
    Export(ExportArguments),
    /// Add certificates with their private keys, or replace those of the same names
    Import(ImportArguments),
    /// List certificates, those that expire first at the top
    List(ListArguments),
    /// Serve nothing for some names any more, and erase their keys from the file
    Remove(RemoveArguments),
    /// Seal all private keys with the current sealing key, and erase the old seals from the file
    #[command(after_long_help = RESEAL_HELP)]
    Reseal(KeyArguments),
    /// Put a copy that `backup` made in the place of a store, also while it is served
    #[command(after_long_help = RESTORE_HELP)]
    Restore(RestoreArguments),
    /// Ask machines as a client does, and show what each of them serves for a name
    #[command(after_long_help = SERVED_HELP)]
    Served(ServedArguments),
    /// Show what a client gets that asks for a name
    Show(ShowArguments),
    /// Open every private key and see that it belongs to its certificate
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
    /// A program that prints the sealing keys, with its arguments, parted by spaces
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
    /// Ask the running Sealane with this admin socket, for its store: the one that --store names,
    /// as its configuration has it, if it has several
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
    /// A program that prints the sealing keys, with its arguments, parted by spaces
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
    /// Write the private keys too, behind their chains
    #[arg(long)]
    pub private_keys: bool,
    /// Replace files that are there
    #[arg(long, requires = "to")]
    pub replace: bool,
    /// The folder to write a file for each certificate to, made if it is missing; without it all
    /// goes to standard output
    #[arg(long, value_name = "FOLDER")]
    pub to: Option<PathBuf>,
    /// The names that clients ask for; without any, all certificates
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
    /// Make the store and the key file if they are missing
    #[arg(long, conflicts_with = "socket")]
    pub create: bool,
    /// A chain and its key in two files; may be repeated
    #[arg(long, num_args = 2, value_names = ["CHAIN", "KEY"])]
    pub pair: Vec<PathBuf>,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
    /// Files with a chain and its key in PEM, or directories of NAME.pem, of NAME.crt with
    /// NAME.key, or as ACME clients keep them; or `-` alone, for a stream of such files
    #[arg(value_name = "PATH", required_unless_present = "pair")]
    pub paths: Vec<PathBuf>,
}

/// What `list` takes.
#[derive(Args, Debug)]
pub struct ListArguments {
    /// The store.
    #[command(flatten)]
    pub reach: ReachArguments,
    /// Only those that expire within so many days, and those that have expired
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
    /// The server name that is asked for
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The machines; if a host has several addresses, each is one
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
    /// The server name that a client asks for
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
The copy is checked before it gets its name, and it is on the disk when this ends. Its private \
keys are sealed as in the store: it opens with the sealing keys alone, which are not in it. Keep a \
copy of those elsewhere.

Run by root it takes the rights of the store's user first, so that user must be able to write in \
the folder of FILE.

Example:
  sealane certificates backup --config /etc/sealane/sealane.toml --replace /var/lib/sealane/backup
";

const EXPORT_HELP: &str = "\
A file is called after the first name that its certificate is served for, and after its kind of \
key: www.example.com.ecdsa-p-256.pem, with + for the star of a wildcard. Files are for this user \
alone (mode 0600), and none is replaced unless that is asked for. Run by root it takes the rights \
of the store's user first, so that user must be able to write in FOLDER.

What goes to standard output with --private-keys can be imported by: sealane certificates import -

Example:
  sealane certificates export --config /etc/sealane/sealane.toml --private-keys --to exported
";

const RESTORE_HELP: &str = "\
Every private key of the copy is opened before anything is changed. What was there before is kept \
beside the store, under a name that is printed.

Over the store that it is a copy of, it is restored in one transaction: whatever serves from the \
store serves the copy at the next hello. Where that store is damaged, or another one, its folder \
is moved aside, and whatever serves from it must be restarted.

One that is killed has changed all or nothing. It may leave a folder beside the store, called \
after it with a dot before and six letters behind: remove that.

Example:
  sealane certificates restore --config /etc/sealane/sealane.toml /var/lib/sealane/backup
";

const IMPORT_HELP: &str = "All files are read and checked before anything is written: with one \
mistake nothing is imported. For a name and a kind of key that the store has already, the imported \
certificate takes the place of the old one; a certificate that is served for no name any more is \
removed.

A command that root runs on a store of another user takes that user's rights before it opens the \
store, after it has read files and keys.

With `-` chains and keys come from standard input, any number of them, file after file, each \
chain before its key or each after it. They are checked and written 1000 at a time: a mistake ends \
the import and says how many were imported before; the same stream may be imported again. Of two \
for one name the later one is served.

With --socket a running Sealane takes what is imported, files and streams alike, from root and \
from its own user; who sends it needs neither the folder nor the sealing key. It is served by all \
lanes when the command ends with 0.

What an ACME client obtains or renews is imported by its hook: packaging/acme-hook, for certbot, \
lego, acme.sh and dehydrated.

Example:
  sealane certificates import --config /etc/sealane/sealane.toml --pair www.crt www.key
  cat *.pem | sealane certificates import --socket /run/sealane/admin.sock -
";

const SERVED_HELP: &str = "\
A line for each machine: the SHA-256 of the certificate that it serves, or why there is none. \
Whether the certificate is to be believed is not asked. It may be any server of TLS.

Exit code 0: all serve the same certificate; 1: they do not, or one did not answer.";

const RESEAL_HELP: &str =
    "To change the sealing key: put the new one above the old one, reload what \
serves from the store, run this, remove the old one, reload again. It may be interrupted and run \
again at any time, while Sealane serves.

No byte of the store opens with the old sealing key afterwards. Copies that were made before still \
do, and so may blocks that the file system or the disk keeps (snapshots, copy on write, flash). So \
if a sealing key leaked, the private keys have leaked with it: import new certificates with new \
keys, revoke the old ones, and destroy the old copies.

A store that an older Sealane made is rewritten in the present format; stop what serves from it \
first.
";
