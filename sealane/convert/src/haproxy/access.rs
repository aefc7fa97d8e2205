//! Rules about the networks of clients, of which HAProxy takes the first that holds: [`Access`].

use sealane_config::network::{Network, network};

use super::super::plan::{Listener, Spoken};
use super::super::remark::{Line, Remarks};
use super::condition::{Condition, Test};

/// Rules of a proxy in their order.
#[derive(Default)]
pub(super) struct Access {
    rules: Vec<Rule>,
}

struct Rule {
    /// None for one that is not understood.
    condition: Option<Condition>,
    is_accept: bool,
    line: Line,
    moment: Moment,
}

/// The moment at which a rule is evaluated. Each has a separate list of rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Before a PROXY header, so that the rule sees its sender.
    Connection,
    Session,
    Content,
}

impl Access {
    /// Takes `tcp-request MOMENT ACTION`, if that decides about access.
    pub(super) fn add(
        &mut self,
        [moment, action]: [&str; 2],
        condition: Option<Condition>,
        line: &Line,
    ) -> bool {
        let moment = match moment {
            "connection" => Moment::Connection,
            "content" => Moment::Content,
            "session" => Moment::Session,
            _ => return false,
        };
        let is_accept = action == "accept";
        // Of others some look at nothing; a script may reject.
        let decides = is_accept || !ACTIONS_FOR_ALL.iter().any(|other| action.starts_with(other));
        if decides {
            let condition = condition.filter(|_| is_accept || REJECTIONS.contains(&action));
            self.rules.push(Rule { condition, is_accept, line: line.clone(), moment });
        }
        decides
    }

    /// The number of rules, which is the cost of a copy.
    pub(super) fn len(&self) -> usize {
        self.rules.len()
    }

    /// Writes the rules for its addresses into a listener.
    pub(super) fn put_into(&self, listener: &mut Listener) {
        let mut remarks = std::mem::take(&mut listener.remarks);
        let forwards = listener.spoken == Spoken::TlsPassedOn;
        let (mut senders, mut clients) = (Admitted::default(), Admitted::default());
        let has_senders = listener.accept_proxy.is_some();
        let of_connections = if has_senders { &mut senders } else { &mut clients };
        self.narrow(Moment::Connection, forwards, of_connections, &mut remarks);
        self.narrow(Moment::Session, forwards, &mut clients, &mut remarks);
        self.narrow(Moment::Content, forwards, &mut clients, &mut remarks);
        if let Some(announcers) = &mut listener.accept_proxy {
            clients.tell_unannounced(&mut remarks);
            senders.put_senders_into(announcers, &mut clients, &mut remarks);
        }
        let is_unix = listener.addresses.iter().any(|address| address.starts_with("unix:"));
        if let (Some((_, line)), true) = (&clients.allowed, is_unix) {
            remarks.admits_more(line, "allow", UNIX_CLIENTS);
        }
        if let Some((networks, line)) = clients.allowed {
            if networks.is_empty() {
                remarks.note(&line, "deny", "no client is left that HAProxy accepts");
                clients.denied.extend(EVERY_NETWORK.map(ToOwned::to_owned));
            }
            listener.allow.extend(networks);
        }
        listener.deny.extend(clients.denied);
        listener.remarks = remarks;
    }

    /// Applies the rules of one moment. Later moments may still reject a client that these accept.
    fn narrow(
        &self,
        moment: Moment,
        forwards: bool,
        admitted: &mut Admitted,
        remarks: &mut Remarks,
    ) {
        let mut accepted = Accepted::default();
        for rule in self.rules.iter().filter(|rule| rule.moment == moment) {
            let Some(Condition { is_negated, test }) = &rule.condition else {
                rule.tell_unknown(remarks);
                continue;
            };
            let is_inside = !is_negated;
            match (test, rule.is_accept) {
                // Sealane forwards nothing but TLS.
                (Test::Hello, true) if is_inside && forwards => return,
                (Test::Hello, false) if !is_inside && forwards => {}
                // Fewer are accepted without it, if another rule rejects.
                (Test::Hello, true) => {}
                (Test::Always, _) if !is_inside => {}
                (Test::Always, true) => return,
                (Test::Always, false) => {
                    match accepted.outside.take() {
                        Some(networks) => {
                            admitted.deny(&networks, accepted.networks.is_empty(), rule, remarks);
                        }
                        None => admitted.allow_only(&accepted.networks, rule, remarks),
                    }
                    return;
                }
                (Test::Source(networks), true) if is_inside => {
                    accepted.networks.extend_from_slice(networks);
                }
                (Test::Source(networks), true) if accepted.outside.is_none() => {
                    accepted.outside = Some(networks.clone());
                }
                (Test::Source(networks), false) if is_inside => {
                    let (left, is_exact) = accepted.left_of(networks);
                    if !left.is_empty() {
                        admitted.deny(&left, is_exact, rule, remarks);
                    }
                }
                (Test::Source(networks), false) if accepted.outside.is_none() => {
                    let networks = [networks.as_slice(), &accepted.networks].concat();
                    admitted.allow_only(&networks, rule, remarks);
                }
                _ => rule.tell_unknown(remarks),
            }
        }
    }
}

impl Rule {
    fn tell_unknown(&self, remarks: &mut Remarks) {
        match self.is_accept {
            true => remarks.left_out(&self.line, "", ACCEPTS),
            false => remarks.admits_more(&self.line, "", REJECTS),
        }
    }
}

/// Networks that rules of one moment accept, so that later ones of it do not count for them.
#[derive(Default)]
struct Accepted {
    networks: Vec<String>,
    /// All but these are accepted.
    outside: Option<Vec<String>>,
}

impl Accepted {
    /// Those of `networks` that no rule has accepted, and whether they are exactly known; if not,
    /// all of them.
    fn left_of(&self, networks: &[String]) -> (Vec<String>, bool) {
        let left = self.outside.as_ref().map(|outside| common(outside, networks));
        let is_exact = self.networks.is_empty() && left != Some(None);
        (left.flatten().unwrap_or_else(|| networks.to_vec()), is_exact)
    }
}

/// The clients that the rules admit, as lists of Sealane.
#[derive(Default)]
struct Admitted {
    /// None is every network. With the line of the first rule for the list.
    allowed: Option<(Vec<String>, Line)>,
    /// These have precedence over the allowed ones.
    denied: Vec<String>,
    line_of_denied: Option<Line>,
}

impl Admitted {
    fn deny(&mut self, networks: &[String], is_exact: bool, rule: &Rule, remarks: &mut Remarks) {
        if !is_exact {
            remarks.left_out(&rule.line, "deny", DENIED_FIRST);
        }
        self.denied.extend_from_slice(networks);
        self.line_of_denied.get_or_insert_with(|| rule.line.clone());
    }

    fn allow_only(&mut self, networks: &[String], rule: &Rule, remarks: &mut Remarks) {
        match &mut self.allowed {
            None => self.allowed = Some((networks.to_vec(), rule.line.clone())),
            Some((before, _)) => match common(before, networks) {
                Some(both) => *before = both,
                None => remarks.admits_more(&rule.line, "allow", SEVERAL_LISTS),
            },
        }
    }

    /// Reports that these lists hold only for clients that a PROXY header announces.
    fn tell_unannounced(&self, remarks: &mut Remarks) {
        let of_denied = self.line_of_denied.as_ref().map(|line| (line, "deny"));
        let of_allowed = self.allowed.as_ref().map(|(_, line)| (line, "allow"));
        if let Some((line, key)) = of_allowed.or(of_denied) {
            remarks.admits_more(line, key, UNANNOUNCED);
        }
    }

    /// Makes of rules about senders the networks that may announce clients.
    fn put_senders_into(
        self,
        announcers: &mut Vec<String>,
        clients: &mut Self,
        remarks: &mut Remarks,
    ) {
        if let Some(line) = self.line_of_denied {
            clients.denied.extend(self.denied);
            remarks.admits_more(&line, "deny", DENIED_SENDERS);
        }
        let Some((allowed, line)) = self.allowed else { return };
        let both = match announcers.is_empty() {
            true => Some(allowed),
            false => common(announcers, &allowed),
        };
        match both {
            Some(none) if none.is_empty() => clients.allowed = Some((none, line)),
            Some(both) => *announcers = both,
            None => remarks.admits_more(&line, "proxy_from", SEVERAL_LISTS),
        }
    }
}

/// The networks that both lists have; none if that cannot be known because of files.
fn common(one: &[String], other: &[String]) -> Option<Vec<String>> {
    if one == other {
        return Some(one.to_vec());
    }
    let read = |list: &[String]| -> Option<Vec<Network>> {
        list.iter().map(|text| network(text).ok()).collect()
    };
    let (one, other) = (read(one)?, read(other)?);
    if one.len().saturating_mul(other.len()) > PAIRS_MAX {
        return None;
    }
    // Of two networks one has the other, or they have nothing in common.
    let has = |outer: &Network, inner: &Network| {
        let inner = inner.range();
        outer.contains(*inner.start()) && outer.contains(*inner.end())
    };
    let pairs = one.iter().flat_map(|one| other.iter().map(move |other| (one, other)));
    let both = pairs.filter_map(|(one, other)| match (has(one, other), has(other, one)) {
        (true, _) => Some(other),
        (false, true) => Some(one),
        (false, false) => None,
    });
    Some(both.map(ToString::to_string).collect())
}

const REJECTIONS: [&str; 2] = ["reject", "silent-drop"];
/// Beginnings of actions that close no connection.
const ACTIONS_FOR_ALL: [&str; 10] = [
    "capture",
    "do-resolve",
    "expect-",
    "sc-",
    "set-dst",
    "set-log",
    "set-var",
    "switch-mode",
    "track-sc",
    "unset-var",
];
/// Pairs of networks that are compared.
const PAIRS_MAX: usize = 1_000_000;
const EVERY_NETWORK: [&str; 2] = ["0.0.0.0/0", "::/0"];

const ACCEPTS: &str = "of rules Sealane has those about networks: fewer clients are accepted here \
                       if another rule rejects them; add their networks to allow";
const REJECTS: &str = "of rules Sealane has allow, deny, accept_proxy, connections_per_client and \
                       handshakes_per_client; write one of them, or keep HAProxy for it";
const DENIED_FIRST: &str = "a network that is denied is denied here, also if an earlier rule \
                            accepts a part of it; write smaller networks";
const DENIED_SENDERS: &str = "HAProxy looks at who sends the PROXY header; here the clients that \
                              it announces are denied: refuse senders by proxy_from";
const SEVERAL_LISTS: &str = "HAProxy accepts clients that are in several lists; here one of them \
                             counts: write the networks that all of them have";
const UNANNOUNCED: &str = "a header that announces no client (LOCAL, UNKNOWN) is accepted here, \
                           where HAProxy looks at its sender";
const UNIX_CLIENTS: &str = "clients of a unix socket have no network here, and are accepted; \
                            socket_mode says who may open it";
