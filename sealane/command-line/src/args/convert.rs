//! What `sealane convert` takes.

use std::path::PathBuf;

use clap::Args;
use sealane_convert::Dialect;

/// What `sealane convert` takes.
#[derive(Args, Debug)]
pub struct ConvertArguments {
    /// Whose configuration it is
    pub dialect: Dialect,
    /// The file; what it includes is read as well
    pub file: PathBuf,
}

pub(super) const HELP: &str = "\
Prints a configuration of Sealane that does the same as the file. A comment above a key names each
line that was not carried over, with the reason. Other comments are notes: clients
and backends see nothing of them, such as the user of the process or its log. Nothing is started or
changed. Run sealane check on the result.

Exit codes:
  0  everything was carried over
  3  the file cannot be read
  5  some lines were not carried over: clients or backends see a difference
  6  everything that clients and backends see was carried over; comments have notes

Examples:
  sealane convert hitch /etc/hitch/hitch.conf > sealane.toml
  sealane convert haproxy /etc/haproxy/haproxy.cfg > sealane.toml
  sealane convert nginx-stream /etc/nginx/nginx.conf > sealane.toml
  sealane convert stunnel /etc/stunnel/stunnel.conf > sealane.toml
";
