//! Changes that others make to the store: certificates that were imported, restored or removed,
//! and renewals that an operator asks for. The schedule follows them within seconds.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sealane_operator::value;
use sealane_renewal::{CertificateId, UnixSeconds};
use tracing::{info, warn};

use super::book::Book;
use super::demand::Demanded;
use super::orders::Orders;
use crate::clock::now;
use crate::failure::Failed;
use crate::ledger::{LedgerError, RenewalEntry, RenewalState, id_of};
use crate::settings::WantedCertificate;

/// How far the schedule has followed the store.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// The generation of the store that all certificates were compared with, when, and how long
    /// that took.
    compared: Option<(u64, Instant, Duration)>,
    /// Certificates that an operator wants renewed now.
    forced: HashSet<CertificateId>,
    /// The generation of the store at the last read of renewal requests.
    heard: Option<u64>,
}

impl Followed {
    /// Follows the store if it has changed. Where it has very many certificates they are compared
    /// less often, so that a fiftieth of the time goes into it.
    pub(super) fn follow(&mut self, book: &mut Book, demanded: &mut Demanded) {
        let Ok(generation) = book.ledger.generation() else { return };
        if self.heard.replace(generation) != Some(generation)
            && let Err(error) = self.hear_renewals(book)
        {
            warn!("requests for renewals are not read: {error}");
        }
        let is_due = self.compared.is_none_or(|(seen, at, took)| {
            seen != generation && at.elapsed() >= took * COMPARE_SHARE
        });
        if !is_due {
            return;
        }
        let begun = Instant::now();
        let ids: Vec<CertificateId> = book.certificates.keys().copied().collect();
        // An on-demand certificate without requests is not scheduled until it expires.
        for id in ids.into_iter().filter(|id| book.schedule.contains(*id)).collect::<Vec<_>>() {
            demanded.look_again(book, id);
        }
        self.compared = Some((generation, begun, begun.elapsed()));
    }

    /// Notes that the schedule was made from this generation of the store.
    pub(super) fn note_planned(&mut self, generation: u64) {
        let compared = Some((generation, Instant::now(), Duration::ZERO));
        // Requests for renewals are not in the plan.
        *self = Self { compared, ..Self::default() };
    }

    /// Whether an operator wants a certificate renewed now.
    pub(super) fn is_forced(&self, id: CertificateId) -> bool {
        self.forced.contains(&id)
    }

    /// Ends a renewal that an operator asked for: the new certificate is in the store.
    pub(super) fn end_renewal(&mut self, book: &Book, id: CertificateId) {
        if self.forced.remove(&id)
            && let Err(error) = book.ledger.drop_renewal(id)
        {
            warn!("{error}");
        }
    }

    /// Reports to the operator why a renewal failed.
    pub(super) fn note_renewal_failed(&self, book: &Book, id: CertificateId, failed: &Failed) {
        if !self.is_forced(id) || failed.is_no_news {
            return;
        }
        let noted = match book.ledger.renewal(id) {
            Ok(Some(entry)) => {
                let state = RenewalState::Failed(failed.text.clone());
                book.ledger.keep_renewal(id, &RenewalEntry { state, ..entry })
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            warn!("{error}");
        }
    }

    /// Reads which renewals operators ask for, and begins those that are new.
    fn hear_renewals(&mut self, book: &mut Book) -> Result<(), LedgerError> {
        let all = book.ledger.renewals()?;
        let asked: HashSet<CertificateId> = all.iter().map(|(id, _)| *id).collect();
        self.forced.retain(|id| asked.contains(id));
        for (id, entry) in all {
            if !book.certificates.contains_key(&id) {
                if entry.state != RenewalState::Unknown {
                    let state = RenewalState::Unknown;
                    book.ledger.keep_renewal(id, &RenewalEntry { state, ..entry })?;
                }
                continue;
            }
            let held_put_s = book.ledger.held(&entry.names)?.map(|held| held.imported_s);
            let is_new = self.forced.insert(id) || entry.state == RenewalState::Asked;
            if held_put_s > entry.held_put_s {
                self.end_renewal(book, id);
            } else if is_new {
                begin_renewal(book, id, entry)?;
            }
        }
        Ok(())
    }
}

/// Reports certificates from other machines of the fleet to the schedule. Each counts for every
/// wanted certificate that has a subset of its names.
pub(super) fn note_taken(
    book: &mut Book,
    demanded: &mut Demanded,
    under_way: &Orders,
    all: &[Vec<String>],
) {
    let several = all.iter().filter(|names| names.len() > 1);
    let of_several: HashSet<&str> = several.flatten().map(String::as_str).collect();
    let is_among = |wanted: &WantedCertificate| {
        wanted.names.first().is_some_and(|first| of_several.contains(first.as_str()))
    };
    let mut ids: HashSet<CertificateId> = HashSet::new();
    if !of_several.is_empty() {
        let among = book.certificates.iter().filter(|(_, wanted)| is_among(wanted));
        ids.extend(among.map(|(id, _)| *id));
    }
    for names in all {
        let id = id_of(names);
        if book.certificates.contains_key(&id) {
            ids.insert(id);
        } else {
            demanded.adopt_shared(book, under_way, Some(names));
        }
    }
    for id in ids {
        demanded.look_again(book, id);
    }
}

fn begin_renewal(
    book: &mut Book,
    id: CertificateId,
    entry: RenewalEntry,
) -> Result<(), LedgerError> {
    let names = entry.names.join(", ");
    book.schedule.renew(now(), id);
    let wait_s = book.schedule.due(id).map_or(0, |at: UnixSeconds| at.since(now()));
    let state = match wait_s {
        0 => RenewalState::Ordering,
        _ => RenewalState::Failed(format!(
            "{names}: not ordered for another {}: the CA's limits, or a validation that \
             failed, do not allow it before",
            value::duration_text(Duration::from_secs(wait_s))
        )),
    };
    if entry.state == RenewalState::Asked {
        info!("{names}: renewed now, as asked for by `renew`");
        book.ledger.keep_renewal(id, &RenewalEntry { state, ..entry })?;
    }
    Ok(())
}

/// Comparing certificates with the store takes at most one part in this many of the time.
const COMPARE_SHARE: u32 = 50;
