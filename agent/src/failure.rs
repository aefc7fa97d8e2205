//! Why an order failed: in words for the operator, with the name and a remedy, and as the outcome
//! that the schedule is told.

use std::time::SystemTime;

use instant_acme::{AuthorizationState, ChallengeType, Error, Identifier, Problem, Subproblem};
use sealane_renewal::{Failure, Outcome, Scope, UnixSeconds};

use crate::settings::NAMES_MAX;

/// A failure, with all that is known of it.
#[derive(Debug)]
pub(crate) struct Failed {
    /// What the schedule is told.
    pub(crate) failure: Failure,
    /// The order at the authority is of no more use: the next one is a new one.
    pub(crate) ends_order: bool,
    /// Another machine of the fleet has the claim on the order by now, and goes on with it.
    pub(crate) loses_order: bool,
    /// The authority does not know our account: it is opened again, with the same key.
    pub(crate) loses_account: bool,
    /// When the order is tried again, if the failure says nothing about the authority: another
    /// machine of the fleet orders it, or the fleet's cluster does not answer.
    pub(crate) held_until: Option<UnixSeconds>,
    /// The operator is not told.
    pub(crate) is_no_news: bool,
    /// What the operator is told, a line each.
    pub(crate) text: String,
}

impl Failed {
    /// A fault of this machine.
    pub(crate) fn ours(text: impl Into<String>) -> Self {
        Self::of(Failure::Ours, false, text.into())
    }

    /// Nobody's answer, or one that may be another later.
    pub(crate) fn later(text: impl Into<String>) -> Self {
        Self::of(Failure::TryLater, false, text.into())
    }

    /// Another machine of the fleet does it.
    pub(crate) fn held(until: UnixSeconds, text: impl Into<String>) -> Self {
        Self { held_until: Some(until), is_no_news: true, ..Self::later(text) }
    }

    /// The fleet's cluster does not answer as it should.
    pub(crate) fn of_cluster(now: UnixSeconds, text: impl Into<String>) -> Self {
        Self { held_until: Some(now.plus(CLUSTER_WAIT_S)), ..Self::ours(text) }
    }

    /// The claim on an order lapsed: another machine of the fleet goes on with it.
    pub(crate) fn of_lost_claim(now: UnixSeconds, text: impl Into<String>) -> Self {
        Self { loses_order: true, ..Self::of_cluster(now, text) }
    }

    /// What the authority will never do.
    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self::of(Failure::Refused, true, text.into())
    }

    /// What an authority answered while `doing` was done; `told_until` is its `Retry-After`.
    pub(crate) fn of_answer(
        doing: &str,
        error: &Error,
        told_until: Option<SystemTime>,
        now: UnixSeconds,
    ) -> Self {
        let later = told_until.map_or(Failure::TryLater, |at| {
            let until = unix_seconds(at);
            Failure::Away { until }
        });
        let Error::Api(problem) = error else {
            let text = format!("{doing}: {}", plain(&error.to_string()));
            return Self::of(later, false, text);
        };
        let kind = kind(problem);
        let failure = match kind {
            "alreadyReplaced" => Failure::AlreadyReplaced,
            "rateLimited" => {
                let until = told_until.map_or(now.plus(LIMITED_S), unix_seconds);
                Failure::RateLimited { until, scope: scope(problem) }
            }
            "accountDoesNotExist" | "badNonce" | "serverInternal" | "" => later,
            _ if problem.status.is_some_and(|status| status == 429 || status >= 500) => later,
            _ => Failure::Refused,
        };
        let ends_order = failure == Failure::Refused;
        let remedy = remedy(kind).map(|remedy| format!("; {remedy}")).unwrap_or_default();
        let mut text = format!("{doing}: {}{remedy}", said(problem));
        for sub in problem.subproblems.iter().take(NAMES_MAX) {
            text.push_str("\n  ");
            text.push_str(&said_of(sub));
        }
        Self { loses_account: kind == "accountDoesNotExist", ..Self::of(failure, ends_order, text) }
    }

    /// Authorizations that an authority has given up, each with what it looked for and found.
    pub(crate) fn of_validation<'s>(states: impl Iterator<Item = &'s AuthorizationState>) -> Self {
        let (mut names, mut lines, mut is_refused) = (Vec::new(), Vec::new(), false);
        for state in states {
            let name = plain(&state.identifier().to_string());
            for challenge in &state.challenges {
                let Some(problem) = &challenge.error else { continue };
                is_refused |= matches!(kind(problem), "caa" | "rejectedIdentifier");
                lines.push(looked(&name, &challenge.r#type, &challenge.token, problem));
            }
            names.push(name);
        }
        if lines.is_empty() {
            lines.push(format!("{}: the CA gave no reason; order again", names.join(", ")));
        }
        let failure = match is_refused {
            true => Failure::Refused,
            false => Failure::Validation { names },
        };
        Self::of(failure, true, lines.join("\n"))
    }

    fn of(failure: Failure, ends_order: bool, text: String) -> Self {
        Self {
            failure,
            ends_order,
            held_until: None,
            is_no_news: false,
            loses_account: false,
            loses_order: false,
            text,
        }
    }

    /// The outcome for the schedule.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.held_until {
            Some(until) => Outcome::HeldByAnother { until },
            None => Outcome::Failed(self.failure.clone()),
        }
    }
}

/// Whether an authority refused a number that is to be used once, as it may whenever it likes.
pub(crate) fn is_bad_nonce(error: &Error) -> bool {
    matches!(error, Error::Api(problem) if kind(problem) == "badNonce")
}

/// Whether an authority knows no such account.
pub(crate) fn is_unknown_account(error: &Error) -> bool {
    matches!(error, Error::Api(problem) if kind(problem) == "accountDoesNotExist")
}

/// Whether the authority has nothing at the URL that it was asked about.
pub(crate) fn is_gone(error: &Error) -> bool {
    let Error::Api(problem) = error else { return false };
    matches!(problem.status, Some(404 | 410))
        || matches!(kind(problem), "malformed" | "unauthorized")
}

/// Whether an authority has made an order that says nothing of what it replaces, though it was to;
/// or none, because it does not find the order of that one any more (Pebble and Boulder say so in
/// these words, as a fault of their own).
pub(crate) fn is_unmatched(error: &Error) -> bool {
    match error {
        Error::Other(cause) => cause.to_string().starts_with("replaces field mismatch"),
        Error::Api(problem) => {
            let detail = problem.detail.as_deref().unwrap_or_default();
            detail.contains("could not find an order for the given certificate")
        }
        _ => false,
    }
}

/// What an authority looked for to validate a name, and found.
fn looked(name: &str, challenge: &ChallengeType, token: &str, problem: &Problem) -> String {
    let host = name.strip_prefix("*.").unwrap_or(name);
    let (found, token) = (found(problem), plain(token));
    match (kind(problem), challenge) {
        ("caa" | "rejectedIdentifier", _) => {
            format!("{name}: the CA refuses: {found}; see the CAA records of {host}")
        }
        (_, ChallengeType::Http01) => format!(
            "{name}: the CA looked at http://{host}/.well-known/acme-challenge/{token} and got \
             {found}; does the name point here, and is a listener on port 80 with an ACME \
             responder for this store?"
        ),
        (_, ChallengeType::TlsAlpn01) => format!(
            "{name}: the CA connected to {host}:443 with acme-tls/1 and got {found}; does the name \
             point here, and does a listener on port 443 serve from this store?"
        ),
        (_, ChallengeType::Dns01) => format!(
            "{name}: the CA looked for a TXT record at _acme-challenge.{host} and got {found}; did \
             dns_command make it, and do all servers of the zone have it by then?"
        ),
        _ => format!("{name}: {found}"),
    }
}

fn found(problem: &Problem) -> String {
    quoted(problem.detail.as_deref().unwrap_or(kind(problem)))
}

fn said(problem: &Problem) -> String {
    let detail = quoted(problem.detail.as_deref().unwrap_or("no reason given"));
    match kind(problem) {
        "" => format!("the CA says {detail}"),
        kind => format!("the CA says {detail} ({})", plain(kind)),
    }
}

fn said_of(sub: &Subproblem) -> String {
    let name = match &sub.identifier {
        Some(Identifier::Dns(name)) => name.as_str(),
        _ => "an identifier",
    };
    let kind = short(sub.r#type.as_deref().unwrap_or_default());
    let detail = quoted(sub.detail.as_deref().unwrap_or("no reason given"));
    format!("{}: {detail} ({})", plain(name), plain(kind))
}

/// Text of an authority's as a log may have it: on one line, with nothing that a terminal takes for
/// a command, and not too long.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for each in text.chars().take(TEXT_CHARS_MAX) {
        match each {
            '"' | '\'' | '\\' => plain.push(each),
            _ => plain.extend(each.escape_debug()),
        }
    }
    plain
}

/// The same in quotation marks.
fn quoted(text: &str) -> String {
    let end = text.char_indices().nth(TEXT_CHARS_MAX).map_or(text.len(), |(at, _)| at);
    format!("{:?}", text.get(..end).unwrap_or_default())
}

fn remedy(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "accountDoesNotExist" => "the next order opens a new account",
        "badCSR" | "badPublicKey" => "choose another key in [[authority]]",
        "caa" => "see the CAA records of the name",
        "externalAccountRequired" => {
            "add [authority.external_account] with the kid and key that the CA gave you"
        }
        "invalidContact" | "unsupportedContact" => "correct contact in [[authority]]",
        "rateLimited" => "nothing to do: it is ordered when the CA allows it",
        "rejectedIdentifier" | "unsupportedIdentifier" => {
            "take the name out of [[certificate]], or ask another CA"
        }
        "userActionRequired" => "read the CA's new terms at the address that it names",
        _ => return None,
    })
}

/// Whom a limit stops: authorities say so in words alone.
fn scope(problem: &Problem) -> Scope {
    let detail = problem.detail.as_deref().unwrap_or_default();
    let is_narrow = ["exact set", "registered domain", "certificates (", "failed authorizations"]
        .iter()
        .any(|words| detail.contains(words));
    if is_narrow { Scope::Certificate } else { Scope::Account }
}

fn kind(problem: &Problem) -> &str {
    short(problem.r#type.as_deref().unwrap_or_default())
}

fn short(kind: &str) -> &str {
    kind.strip_prefix("urn:ietf:params:acme:error:").unwrap_or(kind)
}

fn unix_seconds(time: SystemTime) -> UnixSeconds {
    UnixSeconds(time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Until a cluster that does not answer as it should is asked again for an order.
const CLUSTER_WAIT_S: u64 = 60;
/// For how long an authority is left alone that names no moment.
const LIMITED_S: u64 = 3_600;
/// Characters of each text of an authority's that are told.
const TEXT_CHARS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(kind: &str, detail: &str, status: u16, told: Option<SystemTime>) -> Failed {
        let problem = Problem {
            r#type: Some(format!("urn:ietf:params:acme:error:{kind}")),
            detail: Some(detail.to_owned()),
            status: Some(status),
            subproblems: vec![Subproblem {
                identifier: Some(Identifier::Dns("b.test".into())),
                r#type: Some("urn:ietf:params:acme:error:caa".into()),
                detail: Some("no".into()),
            }],
        };
        Failed::of_answer("a.test: a new order", &Error::Api(problem), told, UnixSeconds(1_000))
    }

    #[test]
    fn an_order_that_replaces_what_is_not_found_is_made_without_saying_so() {
        let api = |detail: &str| {
            let kind = "urn:ietf:params:acme:error:serverInternal";
            let text = serde_json::json!({ "type": kind, "detail": detail, "status": 500 });
            Error::Api(serde_json::from_value(text).unwrap())
        };
        let found = "could not find an order for the given certificate: no such serial number";
        assert!(is_unmatched(&api(found)));
        assert!(!is_unmatched(&api("the database is away")));
    }

    #[test]
    fn each_problem_is_told_in_full_and_goes_where_it_belongs() {
        let told = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(5_000);
        let away = Failure::Away { until: UnixSeconds(5_000) };
        let account = |until| Failure::RateLimited { until, scope: Scope::Account };
        let exact = "too many certificates (5) already issued for this exact set of identifiers";
        for (kind, detail, status, told, failure) in [
            ("rateLimited", "too many new orders", 429, Some(told), account(UnixSeconds(5_000))),
            ("rateLimited", "too many", 429, None, account(UnixSeconds(4_600))),
            (
                "rateLimited",
                exact,
                429,
                Some(told),
                Failure::RateLimited { until: UnixSeconds(5_000), scope: Scope::Certificate },
            ),
            ("alreadyReplaced", "a replacement is there", 409, None, Failure::AlreadyReplaced),
            ("rejectedIdentifier", "policy", 400, None, Failure::Refused),
            ("caa", "forbids", 403, None, Failure::Refused),
            ("serverInternal", "oops", 500, None, Failure::TryLater),
            ("somethingNew", "oops", 503, None, Failure::TryLater),
            ("somethingNew", "busy", 503, Some(told), away.clone()),
            ("malformed", "slow down", 429, Some(told), away),
            ("badNonce", "used", 400, None, Failure::TryLater),
            ("accountDoesNotExist", "who?", 400, None, Failure::TryLater),
        ] {
            let failed = failed(kind, detail, status, told);
            assert_eq!(failed.failure, failure, "{kind} {detail}");
            assert_eq!(failed.ends_order, failure == Failure::Refused, "{kind}");
            assert_eq!(failed.loses_account, kind == "accountDoesNotExist");
            let text = format!("a.test: a new order: the CA says {detail:?} ({kind})");
            assert!(failed.text.starts_with(&text), "{}", failed.text);
            assert!(failed.text.ends_with("\n  b.test: \"no\" (caa)"), "{}", failed.text);
        }
    }

    #[test]
    fn a_hostile_problem_is_told_on_few_lines_and_moves_no_cursor() {
        let sub = Subproblem {
            identifier: Some(Identifier::Dns("b\u{1b}[2J\n.test".into())),
            r#type: Some("x\r\n".into()),
            detail: Some("\u{202e}\u{1b}]0;".repeat(10_000)),
        };
        let problem = Problem {
            r#type: Some("k\u{7}\n".into()),
            detail: Some("\u{9b}\n".repeat(10_000)),
            status: Some(400),
            subproblems: vec![sub; 5_000],
        };
        let of = |error| Failed::of_answer("a.test: an order", &error, None, UnixSeconds(1)).text;
        let text = of(Error::Api(problem));
        assert_eq!(text.lines().count(), 1 + NAMES_MAX);
        assert!(!text.replace('\n', "").contains(|c: char| c.is_control() || c == '\u{202e}'));
        assert!(
            text.contains("(k\\u{7}\\n)") && text.contains("b\\u{1b}[2J\\n.test: "),
            "{text:.300}"
        );
        assert!(text.len() < 2_000_000, "{}", text.len());
        let text = of(Error::Other("unknown variant `\u{1b}[1m\n`".into()));
        assert_eq!(text, "a.test: an order: unknown variant `\\u{1b}[1m\\n`");
    }
}
