//! What is waited for after failures, remembered over a restart, and by the whole fleet: a process
//! that is started again and again asks an authority no more often than one that runs.

use sealane_renewal::{AuthorityId, CertificateId, Failure, Schedule, UnixSeconds};
use tracing::warn;

use super::book::Book;
use super::plan::authority_of;
use crate::clock::now;
use crate::failure::Failed;
use crate::ledger::Ledger;
use crate::order::state::Wanted;
use crate::settings::Settings;

/// Tells a schedule what a process before this one waited for. What is long over is forgotten.
pub(super) fn recall(schedule: &mut Schedule, settings: &Settings, ledger: &Ledger) {
    recall_told(schedule, settings, ledger);
    let mut recalled = || -> Result<(), crate::ledger::LedgerError> {
        for (id, waits) in ledger.all_waits(WAITS_MAX)? {
            let last = waits.iter().map(|(_, failing)| failing.until).max();
            if last.is_none_or(|last| last.plus(FORGOTTEN_S) < now()) {
                ledger.keep_waits(id, &[])?;
                continue;
            }
            for (name, failing) in waits {
                schedule.learn_failing(&name, failing);
            }
        }
        Ok(())
    };
    if let Err(error) = recalled() {
        warn!("what was waited for is forgotten: {error}");
    }
}

/// Tells a schedule until when authorities are left alone, whichever machine they told.
pub(super) fn recall_told(schedule: &mut Schedule, settings: &Settings, ledger: &Ledger) {
    for (place, authority) in (0..).zip(&settings.authorities) {
        // What cannot be read is told where it is written.
        if let Ok(Some(until)) = ledger.told_until(&authority.directory) {
            schedule.learn_told(AuthorityId(place), until);
        }
    }
}

/// Remembers what is waited for after a failure.
pub(super) fn remember(book: &Book, wanted: &Wanted, failed: &Failed) {
    let remembered = match &failed.failure {
        Failure::Validation { .. } => {
            let failing = |name: &String| Some((name.clone(), book.schedule.failing(name)?));
            let waits: Vec<_> = wanted.names.iter().filter_map(failing).collect();
            book.ledger.keep_waits(wanted.id, &waits)
        }
        Failure::RateLimited { .. } | Failure::Away { .. } => {
            let place = authority_of(&book.settings, &wanted.directory);
            let told = place.and_then(|place| book.schedule.told_until(now(), place));
            match told {
                Some(until) => book.ledger.keep_told(&wanted.directory, until),
                None => Ok(None),
            }
        }
        _ => return,
    };
    share(book, remembered);
}

/// Forgets what was waited for, of a certificate that is there now.
pub(super) fn forget(book: &Book, id: CertificateId) {
    match book.ledger.waits(id) {
        Ok(waits) if waits.is_empty() => {}
        _ => share(book, book.ledger.keep_waits(id, &[])),
    }
}

/// Until when a certificate waits because of what another machine of the fleet has seen.
pub(super) fn learn(book: &mut Book, id: CertificateId) -> Option<UnixSeconds> {
    book.fleet.as_ref()?;
    let waits = book.ledger.waits(id).unwrap_or_default();
    let until = waits.iter().map(|(_, failing)| failing.until).max();
    for (name, failing) in waits {
        book.schedule.learn_failing(&name, failing);
    }
    until.filter(|until| *until > now())
}

fn share(book: &Book, remembered: Result<Remembered, crate::ledger::LedgerError>) {
    match (remembered, &book.fleet) {
        (Err(error), _) => warn!("{error}"),
        (Ok(Some((name, value))), Some(fleet)) => fleet.put_soon(name, value),
        (Ok(_), _) => {}
    }
}

/// The name and the value of an entry that was written; no value: it was removed.
type Remembered = Option<(String, Option<zeroize::Zeroizing<Vec<u8>>>)>;

/// How long after its last moment a wait is forgotten.
const FORGOTTEN_S: u64 = 2 * 86_400;
/// Waits that are recalled.
const WAITS_MAX: usize = 100_000;
