//! The keys of a listener about PROXY headers of its clients.

use std::net::IpAddr;

use sealane_operator::key::{Bool, Choice, Count, Either, Key, Or, Set, Text, Word};
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Readable as _, Table, Value};

use crate::network::{Network, network};
use crate::proxy_header;

/// Who announces clients to a listener by a PROXY header, and what of it is passed on. Everybody
/// who connects has to send one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptProxy {
    /// Networks of those who are believed.
    pub from: Vec<Network>,
    /// Whether those are believed who come by a unix socket.
    pub from_unix: bool,
    /// Types of values that go on to the backend, where it gets a header too.
    pub passed_values: Vec<u8>,
}

impl AcceptProxy {
    /// Whether `peer` is believed; who comes by a unix socket has no address.
    pub fn believes(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(peer) => self.from.iter().any(|network| network.contains(peer)),
            None => self.from_unix,
        }
    }

    /// Who is believed, as it is written.
    pub fn sources(&self) -> Vec<String> {
        let networks = self.from.iter().map(ToString::to_string);
        networks.chain(self.from_unix.then(|| UNIX.to_owned())).collect()
    }
}

/// Whether connections begin with a PROXY header, and whose counts.
pub(crate) fn accept_proxy(table: &Table<'_>) -> Option<AcceptProxy> {
    let written = table.value(&ACCEPT_PROXY);
    let from = table.value(&PROXY_FROM);
    let claims = table.value(&ALLOW_ANYBODY);
    let passed = table.value(&PROXY_PASS_TLVS);
    let is_required = written.as_ref().map_or(Some(false), |v| ACCEPT_PROXY.read(v));
    if is_required == Some(false) {
        for (key, unused) in [
            (ALLOW_ANYBODY.name, &claims),
            (PROXY_FROM.name, &from),
            (PROXY_PASS_TLVS.name, &passed),
        ] {
            if let Some(value) = unused {
                let what = "means nothing to a listener that takes no PROXY header";
                let remedy = format!("say accept_proxy = \"required\", or remove {key}");
                value.wrong(Problem::new(what, remedy));
            }
        }
        return None;
    }
    let Some(from) = from else {
        written?.wrong(Problem::new(
            "whoever connects could claim any address",
            "name the networks of your balancers in proxy_from",
        ));
        return None;
    };
    let anybody = claims.and_then(|v| ALLOW_ANYBODY.read(&v)).unwrap_or(false);
    // Of the sources that are written, the unix socket is the one without a network.
    let sources = from.set(PROXY_FROM.kind.1, |v| source(v, anybody))?;
    let from_unix = sources.contains(&None);
    let from = sources.into_iter().flatten().collect();
    let passed_values = passed.map(|v| v.set(PROXY_PASS_TLVS.kind.1, value_type));
    is_required?;
    Some(AcceptProxy {
        from,
        from_unix,
        passed_values: passed_values.map_or(Some(Vec::new()), |read| read)?,
    })
}

/// A network, or none for the unix socket.
fn source(written: &Value<'_>, anybody: bool) -> Option<Option<Network>> {
    if written.as_text() == Some(UNIX) {
        return Some(None);
    }
    written.parsed(|text| match network(text)? {
        everything if everything.is_everything() && !anybody => Err(Problem::new(
            format!("{everything} believes everybody"),
            "say allow_anybody_to_claim_an_address = true if that is meant",
        )),
        network => Ok(Some(network)),
    })
}

fn value_type(written: &Value<'_>) -> Option<u8> {
    let kind = u8::try_from(PROXY_PASS_TLVS.kind.0.read(written)?).ok()?;
    if WRITTEN_HERE.contains(&kind) {
        let what = format!("{kind:#04x} is about one hop, and Sealane writes its own");
        written
            .wrong(Problem::new(what, "remove it; proxy_header and proxy_tlvs say what is told"));
        return None;
    }
    Some(kind)
}

/// Everybody who may open the unix sockets of the listener.
pub(crate) const UNIX: &str = "unix";

/// Types of values of which a header has one, by whoever writes it; and padding.
const WRITTEN_HERE: [u8; 8] = [
    proxy_header::TYPE_ALPN,
    proxy_header::TYPE_AUTHORITY,
    proxy_header::TYPE_CRC32C,
    proxy_header::TYPE_LANE,
    proxy_header::TYPE_NOOP,
    proxy_header::TYPE_RESUMED,
    proxy_header::TYPE_SSL,
    proxy_header::TYPE_UNIQUE_ID,
];

pub(crate) static ACCEPT_PROXY: Key<Or<Choice<bool>>> = Key::new(
    "accept_proxy",
    Or(Choice(&[("off", false), ("required", true)]), false),
    "\"required\": every connection begins with a PROXY protocol header, version 1 or 2, by which \
     a load balancer in front announces the client. The log, the limits and the header to backends \
     use the announced address. A connection from another network than proxy_from is reset: \
     otherwise every client could claim any address.",
)
.examples(&["\"required\""])
.see(&["limits.proxy_timeout", "listener.proxy_header"]);

pub(crate) static PROXY_FROM: Key<Set<Either<Text<Network>, Word>>> = Key::new(
    "proxy_from",
    Set(Either(Text("network", network), Word(UNIX)), 256),
    "Networks of the load balancers. A client that they announce without an address is accepted \
     whatever allow and deny have. \"unix\" is every program that can open the listener's unix \
     sockets. Required with accept_proxy.",
)
.examples(&["[\"10.0.0.0/8\", \"2001:db8::/32\", \"unix\"]"]);

pub(crate) static ALLOW_ANYBODY: Key<Or<Bool>> = Key::new(
    "allow_anybody_to_claim_an_address",
    Or(Bool, false),
    "0.0.0.0/0 and ::/0 in proxy_from are refused unless this is true.",
)
.examples(&["true"]);

pub(crate) static PROXY_PASS_TLVS: Key<Set<Count>> = Key::new(
    "proxy_pass_tlvs",
    Set(Count(1..=255), 8),
    "Types of values (TLVs) in the accepted header that are forwarded to backends with \
     proxy_header, such as 0xEA, by which a cloud announces the endpoint that was used.",
)
.examples(&["[0xEA]"])
.without("none");
