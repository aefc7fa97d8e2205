//! The certificate store of a listener: it serves the names that its files do not, or answers
//! challenges.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use sealane_config::ChallengeSource;
use sealane_engine::certificates::{Inventory, InventoryEntry, ListenerStore};
use sealane_engine::days::days;
use sealane_engine::tickets::UnixSeconds;
use sealane_store::KeyedStore;

use super::{
    EXPIRIES_SHOWN_MAX, EXPIRY_WARNING_DAYS, Found, Material, Reading, Survey, days_until, unix_s,
};

/// What changes in a store is served without a reload: there is no file to follow.
pub(super) const MATERIAL: Material = Material { files: |_| Vec::new(), read };

fn read(survey: &mut Survey<'_>, reading: &mut Reading<'_, '_>) {
    let listener = survey.listener;
    let Some(path) = &listener.store else { return };
    let (keyed, found) = reading.store(path, WITHOUT);
    let is_faulty = found.is_some();
    found.into_iter().for_each(|found| survey.note(reading, found));
    // Missing keys are reported once, of the whole configuration.
    let Some(keyed) = keyed else { return };
    if listener.acme_responder == Some(ChallengeSource::Store) {
        // What is wrong with what it serves is said where it is served.
        survey.challenges = Some(keyed);
        return;
    }
    let in_files =
        survey.certificates.as_ref().is_some_and(|index| !index.default_certificates().is_empty());
    let default_name = listener.default_certificate.as_deref().filter(|_| !in_files);
    let certificates = Arc::<KeyedStore>::clone(&keyed);
    let (default_name, on_demand) = (default_name.map(Box::from), listener.on_demand);
    let store = ListenerStore { certificates, default_name, on_demand };
    match store.certificates.inventory(EXPIRIES_SHOWN_MAX) {
        Ok(inventory) => {
            survey.warn(warnings(path, &store, &inventory, reading.around.now));
        }
        // The fault has been noted.
        Err(_) if is_faulty => {}
        Err(error) => {
            let (path, source, text) = (path.clone(), path.clone(), error.to_string());
            let found = Found { is_kept: false, path, source, text, without: WITHOUT };
            survey.note(reading, found);
        }
    }
    (survey.store, survey.keyed_store) = (Some(store), Some(keyed));
}

/// What an operator should know of the store at `path`.
fn warnings(
    path: &Path,
    store: &ListenerStore,
    inventory: &Inventory,
    now: UnixSeconds,
) -> Vec<String> {
    let shown = path.display();
    let mut warnings = Vec::new();
    let mode = fs::metadata(path).map_or(0, |facts| facts.mode() & 0o777);
    if mode & WRITABLE_BY_OTHERS != 0 {
        warnings.push(format!(
            "{shown}: others may write to this folder (mode {mode:03o}), and so lead Sealane \
             astray; chmod 700 it"
        ));
    }
    if inventory.certificates == 0 {
        warnings.push(format!("{shown}: the store is empty; import certificates into it"));
    }
    if let Ok(Some(name)) = store.missing_default() {
        warnings.push(format!(
            "default certificate {name:?}: it is in no file and not yet in {shown}; until it is \
             imported, unknown names are refused"
        ));
    }
    warnings.extend(inventory.soonest.iter().filter_map(|entry| expiring(entry, now)));
    warnings
}

fn expiring(entry: &InventoryEntry, now: UnixSeconds) -> Option<String> {
    let names = entry.names_text();
    let left_s = entry.not_after_s.saturating_sub(unix_s(now));
    match days_until(entry.not_after_s, now) {
        ..0 => Some(format!("{names}: expired {} ago; renew it", days(-left_s))),
        0..EXPIRY_WARNING_DAYS => Some(format!("{names}: expires in {}; renew it", days(left_s))),
        _ => None,
    }
}

const WITHOUT: &str = "names in the store are refused";
/// Permissions of the group and of everybody.
const WRITABLE_BY_OTHERS: u32 = 0o022;
