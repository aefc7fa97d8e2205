//! The keys by which a listener asks its clients for certificates.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use sealane_engine::client_certificates::{CLIENT_NAMES_MAX, CRLS_MAX, ClientRules};

use super::super::client_trust::{ClientDemand, ClientTrust, PROOF_AGE_MAX_DEFAULT, client_name};
use super::super::mistake::Problem;
use super::super::reader::{Table, Value};

/// What is asked of clients, if anything is.
pub(super) fn clients(table: &mut Table<'_>) -> Option<ClientTrust> {
    let demand = table.value("certificates").and_then(|v| v.choice(&DEMANDS)).unwrap_or(None);
    let roots = match demand {
        Some(_) => table.required("roots", "roots = [\"/etc/sealane/clients.pem\"]"),
        None => table.value("roots"),
    };
    let roots = roots.and_then(|v| v.set(ROOT_FILES_MAX, root));
    let crls = table.value("crls").and_then(|v| v.set(CRLS_MAX, Value::path));
    let (names, cut_revoked) = (table.value("names"), table.value("cut_revoked"));
    let allow_other_names = table.value("allow_other_names");
    let read_names = |v: &Value<'_>| v.set(CLIENT_NAMES_MAX, |v| v.parsed(client_name));
    let rules = ClientRules {
        accept_ended_lists: table
            .value("on_expired_crl")
            .and_then(|v| v.choice(&ON_EXPIRED_CRL))
            .unwrap_or(false),
        cut_revoked: cut_revoked.as_ref().and_then(Value::boolean).unwrap_or(false),
        names: names.as_ref().and_then(read_names).unwrap_or_default(),
        proof_age_max: table.duration("proof_age_max", PROOF_AGE).or(Some(PROOF_AGE_MAX_DEFAULT)),
    };
    let allows = allow_other_names.as_ref().and_then(Value::boolean).unwrap_or(false);
    if let Some(written) = allow_other_names.filter(|_| allows && demand != REQUIRED) {
        let what = "means nothing unless client certificates are required";
        written.wrong(Problem::new(what, "remove it, or set certificates = \"required\""));
    }
    let demand = demand?;
    if demand == ClientDemand::Asked {
        let is_cut = cut_revoked.filter(|_| rules.cut_revoked);
        for written in [names, is_cut].into_iter().flatten() {
            let what = "everybody is let in where certificates are only asked for";
            written.wrong(Problem::new(what, "remove it, or say certificates = \"required\""));
        }
    }
    let crls = crls.unwrap_or_default();
    Some(ClientTrust { allow_other_names: allows, crls, demand, roots: roots?, rules })
}

fn root(written: &Value<'_>) -> Option<PathBuf> {
    if written.as_text() == Some("system") {
        written.wrong(Problem::new(
            "\"system\" would let in whoever has any web certificate",
            "name the authority of your clients",
        ));
        return None;
    }
    written.path()
}

const REQUIRED: Option<ClientDemand> = Some(ClientDemand::Required);
const DEMANDS: [(&str, Option<ClientDemand>); 3] = [
    ("off", None),
    (ClientDemand::Asked.name(), Some(ClientDemand::Asked)),
    (ClientDemand::Required.name(), Some(ClientDemand::Required)),
];
const ON_EXPIRED_CRL: [(&str, bool); 2] = [("accept", true), ("refuse", false)];
const PROOF_AGE: RangeInclusive<Duration> = Duration::from_mins(1)..=Duration::from_hours(7 * 24);
/// Files with the authorities of one listener's clients.
const ROOT_FILES_MAX: usize = 64;
