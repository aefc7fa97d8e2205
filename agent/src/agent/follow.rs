//! Changes that others make to the store: certificates that were imported, restored or removed,
//! and renewals that an operator asks for. The schedule follows them within seconds.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sealane_operator::{Priority, say, say_at, value};
use sealane_renewal::{CertificateId, UnixSeconds};

use super::{Agent, held_of, now};
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

impl Agent {
    /// Follows the store if it has changed. Where it has very many certificates they are compared
    /// less often, so that a fiftieth of the time goes into it.
    pub(super) fn follow_store(&mut self) {
        let Ok(generation) = self.ledger.generation() else { return };
        if self.followed.heard.replace(generation) != Some(generation)
            && let Err(error) = self.hear_renewals()
        {
            say_at(Priority::Warning, &format!("requests for renewals are not read: {error}"));
        }
        let is_due = self.followed.compared.is_none_or(|(seen, at, took)| {
            seen != generation && at.elapsed() >= took * COMPARE_SHARE
        });
        if !is_due {
            return;
        }
        let begun = Instant::now();
        let ids: Vec<CertificateId> = self.certificates.keys().copied().collect();
        // An on-demand certificate without requests is not scheduled until it expires.
        for id in ids.into_iter().filter(|id| self.schedule.contains(*id)).collect::<Vec<_>>() {
            self.look_again(id);
        }
        self.followed.compared = Some((generation, begun, begun.elapsed()));
    }

    /// Notes that the schedule was made from this generation of the store.
    pub(super) fn note_planned(&mut self, generation: u64) {
        let compared = Some((generation, Instant::now(), Duration::ZERO));
        // Requests for renewals are not in the plan.
        self.followed = Followed { compared, ..Followed::default() };
    }

    /// Reports certificates from other machines of the fleet to the schedule. Each counts for every
    /// wanted certificate that has a subset of its names.
    pub(super) fn note_taken(&mut self, all: &[Vec<String>]) {
        let several = all.iter().filter(|names| names.len() > 1);
        let of_several: HashSet<&str> = several.flatten().map(String::as_str).collect();
        let is_among = |wanted: &WantedCertificate| {
            wanted.names.first().is_some_and(|first| of_several.contains(first.as_str()))
        };
        let mut ids: HashSet<CertificateId> = HashSet::new();
        if !of_several.is_empty() {
            let among = self.certificates.iter().filter(|(_, wanted)| is_among(wanted));
            ids.extend(among.map(|(id, _)| *id));
        }
        for names in all {
            let id = id_of(names);
            if self.certificates.contains_key(&id) {
                ids.insert(id);
            } else {
                self.adopt_shared_demands(Some(names));
            }
        }
        for id in ids {
            self.look_again(id);
        }
    }

    /// Reports the certificate that the store has now, if any, to the schedule. Returns whether it
    /// was news. The certificate may have more names than are wanted.
    pub(super) fn look_again(&mut self, id: CertificateId) -> bool {
        let Some(known) = self.certificates.get(&id) else { return false };
        let Ok(listed) = self.ledger.held(&known.names) else { return false };
        if listed.is_none() && self.is_demanded(id) {
            return self.note_demanded_removed(id);
        }
        let held = listed.map(|listed| held_of(&self.settings, &listed));
        let is_news = self.schedule.want(now(), id, known.names.clone(), held);
        if is_news {
            self.left.forget(id);
        }
        is_news
    }

    /// Whether an operator wants a certificate renewed now.
    pub(super) fn is_forced(&self, id: CertificateId) -> bool {
        self.followed.forced.contains(&id)
    }

    /// Ends a renewal that an operator asked for: the new certificate is in the store.
    pub(super) fn end_renewal(&mut self, id: CertificateId) {
        if self.followed.forced.remove(&id)
            && let Err(error) = self.ledger.drop_renewal(id)
        {
            say_at(Priority::Warning, &error.to_string());
        }
    }

    /// Reports to the operator why a renewal failed.
    pub(super) fn note_renewal_failed(&self, id: CertificateId, failed: &Failed) {
        if !self.is_forced(id) || failed.is_no_news {
            return;
        }
        let noted = match self.ledger.renewal(id) {
            Ok(Some(entry)) => {
                let state = RenewalState::Failed(failed.text.clone());
                self.ledger.keep_renewal(id, &RenewalEntry { state, ..entry })
            }
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = noted {
            say_at(Priority::Warning, &error.to_string());
        }
    }

    /// Reads which renewals operators ask for, and begins those that are new.
    fn hear_renewals(&mut self) -> Result<(), LedgerError> {
        let all = self.ledger.renewals()?;
        let asked: HashSet<CertificateId> = all.iter().map(|(id, _)| *id).collect();
        self.followed.forced.retain(|id| asked.contains(id));
        for (id, entry) in all {
            if !self.certificates.contains_key(&id) {
                if entry.state != RenewalState::Unknown {
                    let state = RenewalState::Unknown;
                    self.ledger.keep_renewal(id, &RenewalEntry { state, ..entry })?;
                }
                continue;
            }
            let held_put_s = self.ledger.held(&entry.names)?.map(|held| held.imported_s);
            let is_new = self.followed.forced.insert(id) || entry.state == RenewalState::Asked;
            if held_put_s > entry.held_put_s {
                self.end_renewal(id);
            } else if is_new {
                self.begin_renewal(id, entry)?;
            }
        }
        Ok(())
    }

    fn begin_renewal(&mut self, id: CertificateId, entry: RenewalEntry) -> Result<(), LedgerError> {
        let names = entry.names.join(", ");
        self.schedule.renew(now(), id);
        let wait_s = self.schedule.due(id).map_or(0, |at: UnixSeconds| at.since(now()));
        let state = match wait_s {
            0 => RenewalState::Ordering,
            _ => RenewalState::Failed(format!(
                "{names}: not ordered for another {}: the CA's limits, or a validation that \
                 failed, do not allow it before",
                value::duration_text(Duration::from_secs(wait_s))
            )),
        };
        if entry.state == RenewalState::Asked {
            say(&format!("{names}: renewed now, as asked for by `renew`"));
            self.ledger.keep_renewal(id, &RenewalEntry { state, ..entry })?;
        }
        Ok(())
    }
}

/// Comparing certificates with the store takes at most one part in this many of the time.
const COMPARE_SHARE: u32 = 50;
