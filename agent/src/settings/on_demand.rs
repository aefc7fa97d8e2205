//! The table `[on_demand]`: certificates for names that clients ask for and nobody has listed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sealane_operator::Problem;
use sealane_operator::key::{Count, Group, Key, Or, PathKind, Set, SharedKeys, TableKind, Text};
use sealane_operator::reader::{Table, Value};
use sealane_store::NAMES_SOCKET;

use super::parts::{
    CHALLENGE, Challenge, DNS_COMMAND, Program, RootSource, Roots, challenge, program_key, roots,
    roots_key,
};
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
    table: &Table<'_>,
    at: &Value<'_>,
    store: Option<&Path>,
) -> Option<OnDemandSettings> {
    let admin = table.value(&ADMIN).map(|all| ADMIN.read(&all));
    let challenge = challenge(table, &[]);
    let (rate, waiting_max) = (table.get(&RATE), table.get(&WAITING));
    let permission = permission(table, at);
    Some(OnDemandSettings {
        admin: admin.unwrap_or_else(|| Some(vec![store?.join(NAMES_SOCKET)]))?,
        challenge: challenge?,
        permission: permission?,
        rate: (rate.count, Duration::from_secs(rate.seconds)),
        waiting_max,
    })
}

/// Who says for which names there may be a certificate.
fn permission(table: &Table<'_>, at: &Value<'_>) -> Option<Permission> {
    if let Some(command) = table.value(&ASK_COMMAND) {
        table.refuse(&[ASK.name], "has no place beside ask_command", "keep one of the two");
        let remedy = "remove it, or write ask";
        table.refuse(&[ROOTS.name], "means nothing beside ask_command", remedy);
        return ASK_COMMAND.read(&command).map(Permission::Command);
    }
    let Some(written) = table.value(&ASK) else {
        let what = "without ask, whoever connects with any name orders a certificate";
        let remedy = "name the service that knows your names, as ask or ask_command";
        at.wrong(Problem::new(what, remedy));
        return None;
    };
    let roots = roots(table, &ROOTS).unwrap_or_else(|| vec![RootSource::System]);
    Some(Permission::Service { roots, url: ASK.read(&written)? })
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

/// How many requests in how much time.
#[derive(Clone)]
struct Rate {
    count: u32,
    seconds: u64,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = RATE_UNITS.iter().find(|(_, seconds)| *seconds == self.seconds);
        write!(f, "{}/{}", self.count, unit.map_or("s", |(name, _)| *name))
    }
}

/// Reads a rate such as `10/m`.
fn rate(text: &str) -> Result<Rate, Problem> {
    let (count, unit) = text.split_once('/').unwrap_or_default();
    let seconds = RATE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, seconds)| *seconds);
    let count = count.parse::<u32>().ok().filter(|count| (1..=RATE_MAX).contains(count));
    match (count, seconds) {
        (Some(count), Some(seconds)) => Ok(Rate { count, seconds }),
        _ => {
            let what = format!("{text:?} is no number from 1 to {RATE_MAX} in a time");
            Err(Problem::new(what, "write one like \"10/m\", with s, m or h"))
        }
    }
}

const ASK_EXAMPLE: &str = "\"http://127.0.0.1:5555/ask\"";
const RATE_MAX: u32 = 10_000;
const RATE_UNITS: [(&str, u64); 3] = [("s", 1), ("m", 60), ("h", 3_600)];

pub(super) static ON_DEMAND: Key<TableKind> = Key::new("on_demand", TableKind(&GROUP), "");

static GROUP: Group = Group::new(
    "on_demand",
    "Certificates for names that clients request and that no [[certificate]] lists: for listeners \
     with `on_demand = true` in sealane.toml. Off without this table. docs/certificates.md \
     explains it.",
    &[&ASK, &ROOTS, &ASK_COMMAND, &ADMIN, &RATE, &WAITING],
)
.shared(SharedKeys {
    from: "certificate",
    doc: "Keys of [[certificate]], with the same meaning. The challenge is required.",
    keys: &[&CHALLENGE, &DNS_COMMAND],
})
.example("[on_demand]\nask = \"http://127.0.0.1:5555/ask\"\nchallenge = \"tls-alpn-01\"\n");

static ASK: Key<Text<String>> = Key::new(
    "ask",
    Text("URL, with http on this machine only", service_url),
    "A service that allows or refuses a certificate for a name. The agent sends GET with ?name=. \
     The status 200 allows, 403 and 404 refuse, and after all others the agent asks again. \
     Required, unless there is ask_command.",
)
.examples(&[ASK_EXAMPLE]);

static ROOTS: Key<Roots> = roots_key(
    "Roots of trust for the service, if its URL begins with https: \"system\" and PEM files.",
);

static ASK_COMMAND: Key<Program> = program_key(
    "ask_command",
    "Instead of ask: a program and its arguments, to which the agent adds the name. The exit code \
     0 allows, 1 refuses.",
)
.examples(&["[\"/etc/sealane/may-have-a-certificate\"]"])
.alternative();

static ADMIN: Key<Set<PathKind>> = Key::new(
    "admin",
    Set(PathKind, 64),
    "Unix sockets that have the requested names. The default is the one that `sealane serve` makes \
     in the store's folder, for users that may write to the store. If several processes serve from \
     one store, name their admin sockets, and run the agent as the user that serves.",
)
.examples(&["[\"/var/lib/sealane/store/names.sock\"]"])
.without("names.sock in the store");

static RATE: Key<Or<Text<Rate>>> = Key::new(
    "rate",
    Or(
        Text("\"NUMBER/s\", \"NUMBER/m\" or \"NUMBER/h\", from 1 to 10000", rate),
        Rate { count: 10, seconds: 60 },
    ),
    "How many names the service is asked about in a second, a minute or an hour.",
);

static WAITING: Key<Or<Count>> = Key::new(
    "waiting",
    Or(Count(1..=10_000), 100),
    "Names that the agent asks about or orders at the same time.",
);
