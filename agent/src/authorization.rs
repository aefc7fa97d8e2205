//! Shows an authority that the names of an order are the operator's: answers in the store, and
//! records that a command makes.

use instant_acme::{
    AuthorizationState, AuthorizationStatus, ChallengeHandle, ChallengeStatus, ChallengeType,
    Error, Order,
};
use sealane_renewal::Failure;
use tracing::warn;

use crate::certificate::challenge_pem;
use crate::dns;
use crate::failure::{Failed, plain};
use crate::ledger::{Answer, Record};
use crate::nonces::with_nonces;
use crate::order::state::Carried;
use crate::settings::Challenge;

/// Gives all answers that the order still asks for, and then has the authority look.
pub(crate) async fn show_all(carried: &mut Carried<'_>, order: &mut Order) -> Result<(), Failed> {
    fetch(carried, order).await?;
    let kind = kind(&carried.wanted.challenge);
    let answers = prepare(carried, order, &kind).await?;
    let mut names = carried.entry.answers.clone();
    names.extend(answers.iter().map(|answer| answer.name.clone()));
    names.sort();
    names.dedup();
    carried.entry.answers = names;
    carried.share(&answers).await?;
    carried.ledger.keep_order(carried.wanted.id, &carried.entry, answers)?;
    while let Some(place) = carried.entry.records.iter().position(|record| !record.is_made) {
        let Some(record) = carried.entry.records.get_mut(place) else { break };
        dns::present(record).await?;
        record.is_made = true;
        // Made once: an order that goes on makes what is missing alone.
        carried.keep()?;
    }
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        let mut each = next.map_err(|error| carried.failed("an authorization", &error))?;
        if each.status != AuthorizationStatus::Pending {
            continue;
        }
        let Some(mut challenge) = each.challenge(kind.clone()) else { continue };
        // One that it looks at already, because it was told before, is not told again.
        if challenge.status == ChallengeStatus::Pending {
            let told = with_nonces(async || challenge.set_ready().await).await;
            let failed = told.map_err(|error| carried.failed("a challenge", &error)).err();
            // What it has found already, or no longer asks for, is in the authorization.
            match failed.filter(|failed| failed.failure != Failure::Refused) {
                None => {}
                Some(failed) => return Err(failed),
            }
        }
    }
    Ok(())
}

/// Takes records away that a command made. What cannot be taken away is told, and left.
pub(crate) async fn take_back(carried: &mut Carried<'_>) {
    let records = std::mem::take(&mut carried.entry.records);
    if records.is_empty() {
        return;
    }
    dns::clean_up(&records).await;
    if let Err(failed) = carried.keep() {
        warn!("{}", failed.text);
    }
}

/// Why an order is invalid: what the authority found for each name.
pub(crate) async fn failures(carried: &Carried<'_>) -> Failed {
    let Some(url) = carried.entry.url.clone() else {
        return Failed::refused(format!("{}: the CA gave the order up", carried.label()));
    };
    // Asked anew, because what was fetched before it looked says nothing.
    let account = &carried.opened.account;
    let mut order = match with_nonces(async || account.order(url.clone()).await).await {
        Ok(order) => order,
        Err(error) => return carried.failed("the order", &error),
    };
    if let Err(failed) = fetch(carried, &mut order).await {
        return failed;
    }
    let whole = order.state().error.clone();
    let states = order.state().authorizations.iter().filter_map(|each| each.state.as_ref());
    let invalid: Vec<&AuthorizationState> =
        states.filter(|state| state.status == AuthorizationStatus::Invalid).collect();
    match whole {
        Some(problem) if invalid.is_empty() => {
            let failed = carried.failed("the order", &Error::Api(problem));
            Failed { ends_order: true, ..failed }
        }
        _ => Failed::of_validation(invalid.into_iter()),
    }
}

/// Fetches all authorizations: from then on none is asked for.
async fn fetch(carried: &Carried<'_>, order: &mut Order) -> Result<(), Failed> {
    let (asked, names) = (order.state().authorizations.len(), carried.wanted.names.len());
    if asked > names {
        let label = carried.label();
        return Err(Failed::refused(format!(
            "{label}: the CA wants {asked} authorizations for {names} names; ask another CA"
        )));
    }
    let fetched = with_nonces(async || {
        let mut authorizations = order.authorizations();
        while let Some(next) = authorizations.next().await {
            next?;
        }
        Ok(())
    });
    fetched.await.map_err(|error| carried.failed("an authorization", &error))
}

/// The answers that `sealane serve` is to give; records are put down in the order.
async fn prepare(
    carried: &mut Carried<'_>,
    order: &mut Order,
    kind: &ChallengeType,
) -> Result<Vec<Answer>, Failed> {
    let mut answers = Vec::new();
    let mut records = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        let mut each = next.map_err(|error| carried.failed("an authorization", &error))?;
        if each.status != AuthorizationStatus::Pending {
            continue;
        }
        let name = each.identifier().to_string();
        let name = without_wildcard(&name).to_owned();
        if !carried.wanted.names.iter().any(|ordered| without_wildcard(ordered) == name) {
            let (label, name) = (carried.label(), plain(&name));
            return Err(Failed::refused(format!(
                "{label}: the CA wants to know whose {name} is, which was not ordered; ask another \
                 CA"
            )));
        }
        let Some(challenge) = each.challenge(kind.clone()) else {
            return Err(Failed::refused(format!(
                "{name}: the CA does not offer {} for it; choose another challenge",
                text_of(&carried.wanted.challenge)
            )));
        };
        if !is_token(&challenge.token) {
            return Err(Failed::refused(format!(
                "{name}: the CA's token {} is no token (RFC 8555, 8.1); ask another CA",
                plain(&challenge.token)
            )));
        }
        match &carried.wanted.challenge {
            Challenge::Dns01(command) => records.push(record(command, &name, &challenge)),
            Challenge::Http01 => {
                let text = challenge.key_authorization();
                answers.push(Answer::over_http(&challenge.token, text.as_str()));
            }
            Challenge::TlsAlpn01 => {
                let digest = challenge.key_authorization().digest().as_ref().to_vec();
                answers.push(Answer::in_handshake(&name, challenge_pem(&name, &digest)?));
            }
        }
    }
    for record in records {
        let has = |known: &Record| {
            known.name == record.name
                && known.value == record.value
                && known.command == record.command
        };
        if !carried.entry.records.iter().any(has) {
            carried.entry.records.push(record);
        }
    }
    Ok(answers)
}

fn record(command: &[String], name: &str, challenge: &ChallengeHandle<'_>) -> Record {
    Record {
        name: format!("_acme-challenge.{name}"),
        value: challenge.key_authorization().dns_value(),
        command: command.to_vec(),
        is_made: false,
    }
}

fn without_wildcard(name: &str) -> &str {
    name.strip_prefix("*.").unwrap_or(name)
}

/// Whether a token is in base64url, as it has to be: it becomes the name of an entry, and a path.
fn is_token(token: &str) -> bool {
    let is_of_it = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(is_of_it)
}

fn kind(challenge: &Challenge) -> ChallengeType {
    match challenge {
        Challenge::Dns01(_) => ChallengeType::Dns01,
        Challenge::Http01 => ChallengeType::Http01,
        Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

fn text_of(challenge: &Challenge) -> &'static str {
    match challenge {
        Challenge::Dns01(_) => "dns-01",
        Challenge::Http01 => "http-01",
        Challenge::TlsAlpn01 => "tls-alpn-01",
    }
}

/// Bytes of a token; those of authorities have 43.
const TOKEN_BYTES_MAX: usize = 128;
