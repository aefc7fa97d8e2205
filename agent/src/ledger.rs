//! What the agent remembers, in the certificate store: accounts, orders, answers to challenges, and
//! what came of them. Each entry is sealed like a private key.

use std::collections::BTreeSet;
use std::sync::Arc;

use sealane_engine::certificates::{Certificate, CertificateStore as _};
use sealane_renewal::{CertificateId, Failing, Spent, UnixSeconds};
use sealane_store::{HTTP_01, KEPT_BYTES_MAX, KeyedStore, Listed, StoreError, TLS_ALPN_01};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tracing::warn;
use zeroize::Zeroizing;

use crate::certificate::{KnownAs, known_as};
use crate::clock::now_s;
use crate::failure::Failed;
use crate::secret::Secret;

/// The agent's entries in a store.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    store: Arc<KeyedStore>,
}

impl Ledger {
    pub(crate) fn new(store: Arc<KeyedStore>) -> Self {
        Self { store }
    }

    /// The account with the authority that has this directory.
    pub(crate) fn account(&self, directory: &str) -> Result<Option<AccountEntry>, LedgerError> {
        self.read(&account_name(directory))
    }

    /// Remembers the account with the authority that has this directory.
    pub(crate) fn keep_account(
        &self,
        directory: &str,
        account: &AccountEntry,
    ) -> Result<(), LedgerError> {
        self.write(&[], &[(account_name(directory), Some(encode(account)?))])
    }

    /// The order that is under way for a certificate.
    pub(crate) fn order(&self, id: CertificateId) -> Result<Option<OrderEntry>, LedgerError> {
        self.read(&order_name(id))
    }

    /// Remembers what is known of names that failed; of none: forgets it. Returns the entry.
    pub(crate) fn keep_waits(
        &self,
        id: CertificateId,
        waits: &[(String, Failing)],
    ) -> Result<Option<Change>, LedgerError> {
        let waits: Vec<_> = waits.iter().map(WaitEntry::of).collect();
        let text = if waits.is_empty() { None } else { Some(encode(&waits)?) };
        let change = (format!("{WAITS}{:016x}", id.0), text);
        self.write(&[], std::slice::from_ref(&change))?;
        Ok(Some(change))
    }

    /// What is known of the names of a certificate that failed.
    pub(crate) fn waits(&self, id: CertificateId) -> Result<Waits, LedgerError> {
        let waits: Option<Vec<WaitEntry>> = self.read(&format!("{WAITS}{:016x}", id.0))?;
        Ok(waits.unwrap_or_default().into_iter().map(WaitEntry::failing).collect())
    }

    /// The same for all certificates, `count_max` at most.
    pub(crate) fn all_waits(
        &self,
        count_max: usize,
    ) -> Result<Vec<(CertificateId, Waits)>, LedgerError> {
        let mut all = Vec::new();
        for (name, text) in self.store.kept_under(WAITS, None, count_max)? {
            let number = name.strip_prefix(WAITS);
            let number = number.and_then(|text| u64::from_str_radix(text, 16).ok());
            let Some(number) = number else { continue };
            let waits: Vec<WaitEntry> = decode(&name, &text)?;
            let waits = waits.into_iter().map(WaitEntry::failing).collect();
            all.push((CertificateId(number), waits));
        }
        Ok(all)
    }

    /// Remembers until when an authority is left alone. Returns the entry.
    pub(crate) fn keep_told(
        &self,
        directory: &str,
        until: UnixSeconds,
    ) -> Result<Option<Change>, LedgerError> {
        let change = (told_name(directory), Some(encode(&until.0)?));
        self.write(&[], std::slice::from_ref(&change))?;
        Ok(Some(change))
    }

    /// Until when an authority is left alone.
    pub(crate) fn told_until(&self, directory: &str) -> Result<Option<UnixSeconds>, LedgerError> {
        Ok(self.read(&told_name(directory))?.map(UnixSeconds))
    }

    /// All orders that are under way.
    pub(crate) fn orders(&self) -> Result<Vec<(CertificateId, OrderEntry)>, LedgerError> {
        let mut orders = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let entries = self.store.kept_under(ORDERS, after.as_deref(), PAGE)?;
            let Some((last, _)) = entries.last() else { return Ok(orders) };
            after = Some(last.clone());
            for (name, text) in &entries {
                let number = name.strip_prefix(ORDERS);
                let number = number.and_then(|text| u64::from_str_radix(text, 16).ok());
                let Some(number) = number else { continue };
                orders.push((CertificateId(number), decode(name, text)?));
            }
        }
    }

    /// Remembers what an order has come to, with the answers that `sealane serve` gives for it.
    pub(crate) fn keep_order(
        &self,
        id: CertificateId,
        order: &OrderEntry,
        answers: Vec<Answer>,
    ) -> Result<(), LedgerError> {
        let answers = answers.into_iter().map(|answer| (answer.name, Some(answer.text)));
        let mut changes = vec![(order_name(id), Some(encode(order)?))];
        changes.extend(answers);
        self.write(&[], &changes)
    }

    /// All names that certificates were allowed for on demand.
    pub(crate) fn demands(&self) -> Result<Vec<DemandEntry>, LedgerError> {
        let mut demands = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let entries = self.store.kept_under(DEMANDS, after.as_deref(), PAGE)?;
            let Some((last, _)) = entries.last() else { return Ok(demands) };
            after = Some(last.clone());
            for (name, text) in &entries {
                demands.push(decode(name, text)?);
            }
        }
    }

    /// What is remembered of a name that a certificate was allowed for on demand.
    pub(crate) fn demand(&self, name: &str) -> Result<Option<DemandEntry>, LedgerError> {
        self.read(&demand_name(name))
    }

    /// Remembers a name that a certificate was allowed for on demand; returns the entry's name and
    /// value.
    pub(crate) fn keep_demand(
        &self,
        demand: &DemandEntry,
    ) -> Result<(String, Zeroizing<Vec<u8>>), LedgerError> {
        let (name, value) = (demand_name(&demand.name), encode(demand)?);
        self.write(&[], &[(name.clone(), Some(value.clone()))])?;
        Ok((name, value))
    }

    /// Forgets a name that a certificate was allowed for on demand; returns the entry's name.
    pub(crate) fn drop_demand(&self, name: &str) -> Result<String, LedgerError> {
        let name = demand_name(name);
        self.write(&[], &[(name.clone(), None)])?;
        Ok(name)
    }

    /// How often the store was changed.
    pub(crate) fn generation(&self) -> Result<u64, LedgerError> {
        Ok(self.store.store().generation()?)
    }

    /// The renewals that operators asked for, [`RENEWALS_MAX`] at most. One that cannot be read is
    /// removed, with a warning: it holds up no other, and the operator can ask again.
    pub(crate) fn renewals(&self) -> Result<Vec<(CertificateId, RenewalEntry)>, LedgerError> {
        let mut renewals = Vec::new();
        for (name, text) in self.store.kept_under(RENEWALS, None, RENEWALS_MAX)? {
            match decode::<RenewalEntry>(&name, &text) {
                Ok(entry) => renewals.push((id_of(&entry.names), entry)),
                Err(error) => {
                    self.write(&[], &[(name, None)])?;
                    let text = format!("a request for a renewal is removed; ask again: {error}");
                    warn!("{text}");
                }
            }
        }
        Ok(renewals)
    }

    /// Forgets the renewals that failed: an earlier process has tried them.
    pub(crate) fn drop_failed_renewals(&self) -> Result<(), LedgerError> {
        for (id, entry) in self.renewals()? {
            if let RenewalState::Failed(why) = entry.state {
                self.drop_renewal(id)?;
                let names = entry.names.join(", ");
                let text = format!("{names}: the renewal asked for by `renew` is dropped: {why}");
                warn!("{text}");
            }
        }
        Ok(())
    }

    /// The renewal of a certificate that an operator asked for.
    pub(crate) fn renewal(&self, id: CertificateId) -> Result<Option<RenewalEntry>, LedgerError> {
        self.read(&renewal_name(id))
    }

    /// Stores the state of a renewal that an operator asked for.
    pub(crate) fn keep_renewal(
        &self,
        id: CertificateId,
        renewal: &RenewalEntry,
    ) -> Result<(), LedgerError> {
        self.write(&[], &[(renewal_name(id), Some(encode(renewal)?))])
    }

    /// Forgets that an operator asked for a renewal.
    pub(crate) fn drop_renewal(&self, id: CertificateId) -> Result<(), LedgerError> {
        self.write(&[], &[(renewal_name(id), None)])
    }

    /// Takes a name out of the store, with its certificate if that has no other.
    pub(crate) fn remove(&self, name: &str) -> Result<(), LedgerError> {
        self.store.store().remove(&[name.to_owned()], now_s())?;
        Ok(())
    }

    /// Remembers an order that another machine had begun, instead of what is remembered here.
    pub(crate) fn take_over(&self, id: CertificateId, text: &[u8]) -> Result<(), LedgerError> {
        let name = order_name(id);
        let order: OrderEntry = decode(&name, text)?;
        self.write(&[], &[(name, Some(encode(&order)?))])
    }

    /// Whether the names of an order were given another certificate since it was begun, or removed:
    /// then it would bring an older one. Another machine may have completed it, or a restored copy
    /// brought it back.
    pub(crate) fn is_over(&self, order: &OrderEntry) -> Result<bool, LedgerError> {
        let held_s = self.held(&order.names)?.map(|held| held.imported_s);
        // Clocks of machines differ: the certificate that it replaces decides, if it is known.
        let is_newer = match order.held_put_s {
            Some(before_s) => held_s.is_some_and(|held_s| held_s > before_s),
            None => held_s.is_some_and(|held_s| held_s >= order.begun_s),
        };
        if is_newer {
            return Ok(true);
        }
        let removed = order.names.iter().map(|name| self.store.store().removal(name));
        let removed = removed.collect::<Result<Vec<_>, _>>()?;
        // Times are whole seconds: within one, the removal counts as the later of the two.
        Ok(removed.into_iter().flatten().any(|word| word.at_s >= order.begun_s))
    }

    /// An order as another machine takes it over.
    pub(crate) fn order_text(order: &OrderEntry) -> Result<Zeroizing<Vec<u8>>, LedgerError> {
        encode(order)
    }

    /// The name and the text of the account's entry.
    pub(crate) fn account_text(
        directory: &str,
        account: &AccountEntry,
    ) -> Result<(String, Zeroizing<Vec<u8>>), LedgerError> {
        Ok((account_name(directory), encode(account)?))
    }

    /// The account in the text of an entry.
    pub(crate) fn account_of(directory: &str, text: &[u8]) -> Result<AccountEntry, LedgerError> {
        decode(&account_name(directory), text)
    }

    /// Forgets an order that another machine of the fleet has taken over. Its answers stay: that
    /// machine removes them from all stores.
    pub(crate) fn hand_over_order(&self, id: CertificateId) -> Result<(), LedgerError> {
        self.write(&[], &[(order_name(id), None)])
    }

    /// Forgets an order, and the answers that were given for it.
    pub(crate) fn drop_order(
        &self,
        id: CertificateId,
        order: &OrderEntry,
    ) -> Result<(), LedgerError> {
        self.write(&[], &ended(id, order))
    }

    /// Puts a certificate into the store and forgets its order, in one transaction.
    pub(crate) fn issue(
        &self,
        id: CertificateId,
        order: &OrderEntry,
        certificate: &Arc<Certificate>,
        now_s: i64,
    ) -> Result<(), LedgerError> {
        self.write_at(std::slice::from_ref(certificate), &ended(id, order), now_s)
    }

    /// The certificate in the store for all of these names, the last one to expire. Its label is
    /// the directory of the authority, if the agent obtained it.
    pub(crate) fn held(&self, names: &[String]) -> Result<Option<Listed>, LedgerError> {
        let Some(first) = names.first() else { return Ok(None) };
        let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let found = self.store.store().find(first)?;
        let fits = found.iter().filter(|listed| {
            let served: BTreeSet<&str> = listed.names.iter().map(String::as_str).collect();
            wanted.is_subset(&served)
        });
        Ok(fits.max_by_key(|listed| listed.not_after_s).cloned())
    }

    /// By which its authority knows the certificate in the store for these names.
    pub(crate) fn known_as(&self, names: &[String]) -> Option<KnownAs> {
        let held = self.held(names).ok()??;
        let opened = self.store.view().ok()?.open(held.digest).ok()?;
        known_as(opened.chain.first()?)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, LedgerError> {
        let text = self.store.kept(name)?;
        text.map(|text| decode(name, &text)).transpose()
    }

    fn write(
        &self,
        certificates: &[Arc<Certificate>],
        changes: &[(String, Option<Zeroizing<Vec<u8>>>)],
    ) -> Result<(), LedgerError> {
        self.write_at(certificates, changes, 0)
    }

    fn write_at(
        &self,
        certificates: &[Arc<Certificate>],
        changes: &[(String, Option<Zeroizing<Vec<u8>>>)],
        now_s: i64,
    ) -> Result<(), LedgerError> {
        let changes: Vec<(&str, Option<&[u8]>)> = changes
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_ref().map(|text| text.as_slice())))
            .collect();
        self.store.keep(certificates, now_s, &changes)?;
        Ok(())
    }
}

/// An account with an authority.
#[derive(Deserialize, Serialize)]
pub(crate) struct AccountEntry {
    /// Whom the authority writes to.
    pub(crate) contact: Vec<String>,
    /// The private key as PKCS #8; there before the authority has heard of it.
    pub(crate) key: Secret,
    /// The name of the external account that it is bound to.
    #[serde(default)]
    pub(crate) kid: Option<String>,
    /// The URL by which the authority knows it, once it does.
    pub(crate) url: Option<String>,
}

/// An order under way.
#[derive(Deserialize, Serialize)]
pub(crate) struct OrderEntry {
    /// Names of entries with answers that `sealane serve` gives.
    pub(crate) answers: Vec<String>,
    /// When it was begun, in Unix time.
    #[serde(default)]
    pub(crate) begun_s: i64,
    /// The directory of the authority.
    pub(crate) directory: String,
    /// When the certificate was put into the store that this order is to replace, in Unix time;
    /// missing in orders of older versions.
    #[serde(default)]
    pub(crate) held_put_s: Option<i64>,
    /// The private key of the certificate as PKCS #8.
    pub(crate) key: Secret,
    /// The names, sorted.
    pub(crate) names: Vec<String>,
    /// Records that a command has made: what it is to be called with to take them away.
    pub(crate) records: Vec<Record>,
    /// The URL of the order, once the authority has told it.
    pub(crate) url: Option<String>,
}

/// A name that failed, as it is remembered.
#[derive(Deserialize, Serialize)]
struct WaitEntry {
    name: String,
    count: u32,
    until_s: u64,
    spent_until_ms: u64,
}

impl WaitEntry {
    fn of((name, failing): &(String, Failing)) -> Self {
        Self {
            name: name.clone(),
            count: failing.count,
            until_s: failing.until.0,
            spent_until_ms: failing.spent.until_ms,
        }
    }

    fn failing(self) -> (String, Failing) {
        let failing = Failing {
            count: self.count,
            until: UnixSeconds(self.until_s),
            spent: Spent { until_ms: self.spent_until_ms },
        };
        (self.name, failing)
    }
}

/// Names that failed, with what is known of them.
type Waits = Vec<(String, Failing)>;

/// An entry's name with what it holds now; nothing: it is gone.
type Change = (String, Option<Zeroizing<Vec<u8>>>);

/// A record of DNS that was made for a challenge.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// The command has made it.
    #[serde(default)]
    pub(crate) is_made: bool,
}

/// A name that a certificate was allowed for on demand.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct DemandEntry {
    pub(crate) name: String,
    /// When a client asked for it last, in seconds since 1970; by some hours too early.
    pub(crate) seen_s: u64,
}

/// A renewal that an operator asked for.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct RenewalEntry {
    /// When the certificate was put into the store that is to be replaced, in Unix time.
    pub(crate) held_put_s: Option<i64>,
    /// The names of the certificate.
    pub(crate) names: Vec<String>,
    pub(crate) state: RenewalState,
}

/// The state of a renewal that an operator asked for.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum RenewalState {
    /// The agent has not seen it yet.
    Asked,
    /// Why it is not ordered yet, or why the order failed; it is tried again until a restart.
    Failed(String),
    /// The agent orders the certificate.
    Ordering,
    /// The agent does not look after such a certificate.
    Unknown,
}

/// An answer to a challenge, as an entry of the store.
pub(crate) struct Answer {
    pub(crate) name: String,
    text: Zeroizing<Vec<u8>>,
}

impl Answer {
    /// What the entry holds.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    /// What is answered over HTTP to whoever asks for `token`.
    pub(crate) fn over_http(token: &str, text: &str) -> Self {
        let text = Zeroizing::new(text.as_bytes().to_vec());
        Self { name: format!("{HTTP_01}{token}"), text }
    }

    /// The certificate and key, in PEM, with which a handshake for `name` is made.
    pub(crate) fn in_handshake(name: &str, pem: Zeroizing<Vec<u8>>) -> Self {
        Self { name: format!("{TLS_ALPN_01}{name}"), text: pem }
    }
}

/// The number of a certificate: the same for the same names in any order.
pub(crate) fn id_of(names: &[String]) -> CertificateId {
    let mut sorted: Vec<&str> = names.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    let mut digest = Sha256::new();
    for name in sorted {
        digest.update(name.as_bytes());
        digest.update([0]);
    }
    let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(digest.finalize());
    CertificateId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

fn ended(id: CertificateId, order: &OrderEntry) -> Vec<(String, Option<Zeroizing<Vec<u8>>>)> {
    let names = order.answers.iter().cloned().chain([order_name(id)]);
    names.map(|name| (name, None)).collect()
}

fn encode(entry: &impl Serialize) -> Result<Zeroizing<Vec<u8>>, LedgerError> {
    // Large enough for any entry, so that it never moves and leaves a copy of a key behind.
    let mut text = Zeroizing::new(Vec::with_capacity(KEPT_BYTES_MAX));
    serde_json::to_writer(&mut *text, entry).map_err(|error| LedgerError::Entry {
        name: "a new entry".into(),
        what: error.to_string(),
    })?;
    Ok(text)
}

fn decode<T: DeserializeOwned>(name: &str, text: &[u8]) -> Result<T, LedgerError> {
    let read = serde_json::from_slice(text);
    // What it says of the place says nothing of the text.
    read.map_err(|error| LedgerError::Entry {
        name: name.to_owned(),
        what: format!(
            "line {} column {} is not as this agent writes it",
            error.line(),
            error.column()
        ),
    })
}

fn account_name(directory: &str) -> String {
    let digest = Sha256::digest(directory.as_bytes());
    let short: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("acme/account/{short}")
}

fn told_name(directory: &str) -> String {
    account_name(directory).replace("acme/account/", "acme/wait/authority/")
}

fn order_name(CertificateId(number): CertificateId) -> String {
    format!("{ORDERS}{number:016x}")
}

fn renewal_name(CertificateId(number): CertificateId) -> String {
    format!("{RENEWALS}{number:016x}")
}

fn demand_name(name: &str) -> String {
    format!("{DEMANDS}{name}")
}

/// Why the agent cannot read or write what it remembers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    /// An entry of another version of the agent.
    #[error("{name}: {what}; run the version of the agent that wrote it, or a newer one")]
    Entry { name: String, what: String },
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<LedgerError> for Failed {
    fn from(error: LedgerError) -> Self {
        Self::ours(error.to_string())
    }
}

const DEMANDS: &str = "acme/demand/";
const ORDERS: &str = "acme/order/";
const RENEWALS: &str = "acme/renew/";
/// Renewals that operators may ask for at a time.
const RENEWALS_MAX: usize = 1_000;
const WAITS: &str = "acme/wait/names/";
/// Entries that are read at a time.
const PAGE: usize = 1_000;
