//! The table `[on_demand]`: certificates for names that clients ask for and nobody has listed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sealane_operator::reader::{Table, Value};
use sealane_operator::{Problem, value};
use sealane_store::NAMES_SOCKET;

use super::parts::{COMMAND_WORDS_MAX, Challenge, ROOTS_MAX, RootSource, challenge, root_source};
use super::url::{Way, way_to};

/// How certificates come for names that clients ask for and nobody has listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemandSettings {
    /// Where names are taken of those who serve on this machine: in the store's folder, or at their
    /// admin sockets.
    pub admin: Vec<PathBuf>,
    /// How it is shown that the names are the operator's.
    pub challenge: Challenge,
    /// Who says for which names.
    pub permission: Permission,
    /// About how many names it is asked in a time.
    pub rate: (u32, Duration),
    /// Names that are asked about or ordered at the same time.
    pub waiting_max: usize,
}

/// Who says for which names there may be a certificate on demand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permission {
    /// A command: its path, then its arguments, and the name behind them.
    Command(Vec<String>),
    /// A service that is asked over HTTP.
    Service {
        /// Whom its certificate is held against.
        roots: Vec<RootSource>,
        /// The URL, which the name is added to as a query.
        url: String,
    },
}

/// Reads the table, which stands at `at`, for an agent with this store.
pub(super) fn on_demand(
    table: &mut Table<'_>,
    at: &Value<'_>,
    store: Option<&Path>,
) -> Option<OnDemandSettings> {
    let admin = table.value("admin").map(|all| all.set(SOCKETS_MAX, Value::path));
    let challenge = challenge(table, &[]);
    let rate = table.value("rate").map(|value| value.parsed(rate));
    let waiting = table.value("waiting").map(|value| value.count(1..=WAITING_MAX));
    let permission = permission(table, at);
    Some(OnDemandSettings {
        admin: admin.unwrap_or_else(|| Some(vec![store?.join(NAMES_SOCKET)]))?,
        challenge: challenge?,
        permission: permission?,
        rate: rate.unwrap_or(Some(RATE_DEFAULT))?,
        waiting_max: waiting.unwrap_or(Some(WAITING_DEFAULT))?,
    })
}

/// Who says for which names there may be a certificate.
fn permission(table: &mut Table<'_>, at: &Value<'_>) -> Option<Permission> {
    let roots = table.value("roots");
    if let Some(command) = table.value("ask_command") {
        table.refuse(&["ask"], "has no place beside ask_command", "keep one of the two");
        if let Some(roots) = roots {
            let what = "means nothing beside ask_command";
            roots.wrong(Problem::new(what, "remove it, or write ask"));
        }
        let words = command.list(COMMAND_WORDS_MAX, |word| word.parsed(value::word))?;
        return Some(Permission::Command(words));
    }
    let Some(written) = table.value("ask") else {
        let what = "without ask, whoever connects with any name orders a certificate";
        let remedy = "name the service that knows your names, as ask or ask_command";
        at.wrong(Problem::new(what, remedy));
        return None;
    };
    let roots = roots.map(|all| all.set(ROOTS_MAX, root_source));
    let url = written.parsed(service_url);
    let roots = roots.unwrap_or_else(|| Some(vec![RootSource::System]));
    Some(Permission::Service { roots: roots?, url: url? })
}

/// A URL to which a query can be added. What a service in the clear says, whoever is between can
/// say too: it has to be on this machine.
fn service_url(text: &str) -> Result<String, Problem> {
    let uri = text.parse::<http::Uri>().ok().filter(|_| !text.contains('#'));
    match way_to(uri.as_ref()) {
        Way::Closed => Ok(text.to_owned()),
        Way::Open => {
            let what = format!("{text:?} would be believed in clear, from whoever is on the way");
            Err(Problem::new(what, "write https, or ask a service on 127.0.0.1"))
        }
        Way::Nowhere => {
            let what = format!("{text:?} is not the URL of a service");
            Err(Problem::new(what, format!("write one like {ASK_EXAMPLE}")))
        }
    }
}

/// So many in a second, a minute or an hour, such as `10/m`.
fn rate(text: &str) -> Result<(u32, Duration), Problem> {
    let (count, unit) = text.split_once('/').unwrap_or_default();
    let seconds = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        _ => None,
    };
    let count = count.parse::<u32>().ok().filter(|count| (1..=RATE_MAX).contains(count));
    match (count, seconds) {
        (Some(count), Some(seconds)) => Ok((count, Duration::from_secs(seconds))),
        _ => {
            let what = format!("{text:?} is no number from 1 to {RATE_MAX} in a time");
            Err(Problem::new(what, "write one like \"10/m\", with s, m or h"))
        }
    }
}

const ASK_EXAMPLE: &str = "\"http://127.0.0.1:5555/ask\"";
const RATE_DEFAULT: (u32, Duration) = (10, Duration::from_secs(60));
const RATE_MAX: u32 = 10_000;
const SOCKETS_MAX: usize = 64;
const WAITING_DEFAULT: usize = 100;
const WAITING_MAX: usize = 10_000;
