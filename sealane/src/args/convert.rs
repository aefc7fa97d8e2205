//! What `sealane convert` takes.

use std::path::PathBuf;

use clap::Args;

use crate::convert::Dialect;

/// What `sealane convert` takes.
#[derive(Args, Debug)]
pub struct ConvertArguments {
    /// Whose configuration it is
    pub dialect: Dialect,
    /// The file; what it includes is read as well
    pub file: PathBuf,
}

pub(super) const HELP: &str = "\
Prints a configuration of Sealane that does what the file does. Of each line that was not carried
over a comment says where it stands, why it was not, and what to do instead, beside what it
concerns; so does one of what only the process has, its user or its log, which is no loss. Nothing
is started or changed; sealane check says whether the result is in order.

Exit codes:
  0  all that clients and backends see was carried over
  3  the file cannot be read
  5  some lines were not carried over

Examples:
  sealane convert hitch /etc/hitch/hitch.conf > sealane.toml
  sealane convert haproxy /etc/haproxy/haproxy.cfg > sealane.toml
  sealane convert nginx-stream /etc/nginx/nginx.conf > sealane.toml
  sealane convert stunnel /etc/stunnel/stunnel.conf > sealane.toml
";
