//! Access to a server and trust in PROXY headers: [`Access`], from `allow` and `deny`, and from
//! `set_real_ip_from`.

use sealane_config::network::network;

use super::super::plan::Listener;
use super::super::remark::Line;

/// Rules in their order, of which nginx takes the first that matches.
#[derive(Default)]
pub(super) struct Access {
    believed: Vec<(String, Line)>,
    rules: Vec<Rule>,
}

struct Rule {
    is_allowed: bool,
    line: Line,
    network: String,
}

impl Access {
    /// Takes a rule behind the others.
    pub(super) fn add(&mut self, is_allowed: bool, network: &str, line: &Line) {
        self.rules.push(Rule { is_allowed, line: line.clone(), network: network.to_owned() });
    }

    /// Takes a network of senders that are trusted for the addresses in their PROXY headers.
    pub(super) fn believe(&mut self, network: &str, line: &Line) {
        let network = if network == "unix:" { "unix" } else { network };
        self.believed.push((network.to_owned(), line.clone()));
    }

    /// Gives them to a listener; `proxied` is the line that wants a PROXY header, if one does.
    pub(super) fn put_into(&self, listener: &mut Listener, proxied: Option<&Line>) {
        self.put_rules_into(listener);
        match proxied {
            Some(line) if self.believed.is_empty() => self.put_senders_into(listener, line),
            Some(_) => {
                for (network, line) in &self.believed {
                    listener.accept_proxy.get_or_insert_default().push(network.clone());
                    listener.remarks.left_out(line, "proxy_from", OTHERS_REFUSED);
                }
                self.tell_who_is_let_in(listener, ANNOUNCES_NOBODY);
            }
            None => {
                for (_, line) in &self.believed {
                    listener.remarks.note(line, "", "no address here wants a PROXY header");
                }
                if listener.addresses.iter().any(|address| address.starts_with("unix:")) {
                    self.tell_who_is_let_in(listener, UNIX_CLIENTS);
                }
            }
        }
    }

    /// No sender is trusted there, so the rules are about the senders of headers.
    fn put_senders_into(&self, listener: &mut Listener, line: &Line) {
        let senders = std::mem::take(&mut listener.allow);
        let (key, why) = match senders.as_slice() {
            [] => ("accept_proxy", BELIEVES_NOBODY),
            _ => ("proxy_from", SENDERS),
        };
        listener.remarks.left_out(line, key, why);
        self.tell_who_is_let_in(listener, DENIED_SENDERS);
        listener.accept_proxy = Some(senders);
    }

    /// Adds a remark, with the reason `why`, that clients are admitted that the rules reject. It
    /// does so only if there are rules.
    fn tell_who_is_let_in(&self, listener: &mut Listener, why: &str) {
        let key = match (listener.allow.is_empty(), listener.deny.is_empty()) {
            (true, true) => return,
            (true, false) => "deny",
            (false, _) => "allow",
        };
        if let Some(rule) = self.rules.iter().find(|rule| rule.key() == key) {
            listener.remarks.admits_more(&rule.line, key, why);
        }
    }

    /// Writes the rules in Sealane's order: first `deny`, then `allow`, which admits no others.
    /// Where that is not the same, fewer clients are admitted.
    fn put_rules_into(&self, listener: &mut Listener) {
        let all = self.rules.iter().position(Rule::is_all);
        let (reached, behind) = self.rules.split_at(all.unwrap_or(self.rules.len()));
        let others_may = behind.first().is_none_or(|rule| rule.is_allowed);
        for rule in behind.iter().skip(1) {
            listener.remarks.note(&rule.line, rule.key(), "nginx looks at no rule behind \"all\"");
        }
        // At the end, a rule with the same effect as "all" has no effect.
        let needless = reached.iter().rev().take_while(|rule| rule.is_allowed == others_may);
        let (reached, needless) = reached.split_at(reached.len() - needless.count());
        for rule in needless {
            let text = match others_may {
                true => "nginx lets in everybody else as well: there is no \"deny all\"",
                false => "nginx refuses everybody else as well",
            };
            listener.remarks.note(&rule.line, rule.key(), text);
        }
        let mut is_excepted = false;
        for rule in reached {
            is_excepted |= rule.is_allowed;
            if network(&rule.network).is_err() {
                let why = format!("{:?} is no network", rule.network);
                match rule.is_allowed {
                    true => listener.remarks.left_out(&rule.line, "allow", why),
                    false => listener.remarks.admits_more(&rule.line, "deny", why),
                }
            } else if !rule.is_allowed {
                if is_excepted {
                    let why = "what is denied is denied here, also where allow came first";
                    listener.remarks.left_out(&rule.line, "deny", why);
                }
                listener.deny.push(rule.network.clone());
            } else if !others_may {
                listener.allow.push(rule.network.clone());
            }
        }
        if !others_may && listener.allow.is_empty() {
            listener.deny = EVERYBODY.map(ToOwned::to_owned).into();
            listener.remarks.note(&behind[0].line, "deny", "nobody may come");
        }
    }
}

impl Rule {
    fn is_all(&self) -> bool {
        self.network == "all"
    }

    fn key(&self) -> &'static str {
        if self.is_allowed { "allow" } else { "deny" }
    }
}

const ANNOUNCES_NOBODY: &str = "a header that announces nobody (LOCAL, UNKNOWN) is let in here, \
                                where nginx looks at its sender";
const BELIEVES_NOBODY: &str = "nginx believes nobody without set_real_ip_from, and backends are \
                               told the sender's address; here the header is believed whoever \
                               sends it: name the networks of your balancers in proxy_from";
const DENIED_SENDERS: &str = "nginx looks at who sends the PROXY header; here the clients that it \
                              announces are denied, and one that announces nobody is let in";
const EVERYBODY: [&str; 2] = ["0.0.0.0/0", "::/0"];
const OTHERS_REFUSED: &str = "others are refused here; nginx lets them in by their own address";
const SENDERS: &str = "nginx allows senders of the PROXY header without set_real_ip_from, and \
                       tells backends their address; here they announce clients, who may be \
                       anybody";
const UNIX_CLIENTS: &str = "clients of a unix socket have no network here, and are let in; \
                            socket_mode says who may open it";
