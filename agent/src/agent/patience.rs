//! How long certificates that are due are left to the machines that look after them.

use std::collections::HashMap;

use sealane_renewal::{CertificateId, UnixSeconds};

/// Certificates that are due and left to the machines that look after them, each since when.
#[derive(Debug, Default)]
pub(super) struct Left(HashMap<CertificateId, UnixSeconds>);

impl Left {
    /// Until when a certificate that is due is left to its keeper; none once that one has had its
    /// time: it may be set up otherwise, or see no authority. While there is no certificate yet,
    /// that is short.
    pub(super) fn until(
        &mut self,
        now: UnixSeconds,
        id: CertificateId,
        is_held: bool,
    ) -> Option<UnixSeconds> {
        let since = *self.0.entry(id).or_insert(now);
        let patience_s = if is_held { PATIENCE_S } else { NEW_PATIENCE_S };
        // Where very many are due, each is looked at more seldom.
        let wait_s = LOOK_S + u64::try_from(self.0.len()).unwrap_or(u64::MAX) / LOOKS_A_SECOND;
        (now.since(since) < patience_s).then(|| now.plus(wait_s))
    }

    /// Forgets one that is there now, or that this machine orders.
    pub(super) fn forget(&mut self, id: CertificateId) {
        self.0.remove(&id);
    }
}

/// The shortest until it is looked again whether a certificate has come.
const LOOK_S: u64 = 20;
/// Looks in a second, about, however many are due.
const LOOKS_A_SECOND: u64 = 1_000;
/// How long the keeper has of one that is not there yet.
const NEW_PATIENCE_S: u64 = 30;
/// How long the keeper of a certificate has, once it is due.
const PATIENCE_S: u64 = 3_600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_left_to_another_for_an_hour() {
        let (mut left, id) = (Left::default(), CertificateId(7));
        let begun = UnixSeconds(1_000_000);
        assert_eq!(left.until(begun, id, true), Some(begun.plus(LOOK_S)));
        let last = begun.plus(PATIENCE_S - 1);
        assert_eq!(left.until(last, id, true), Some(last.plus(LOOK_S)));
        assert_eq!(left.until(begun.plus(PATIENCE_S), id, true), None);
        assert_eq!(left.until(begun.plus(NEW_PATIENCE_S), id, false), None);
        // The next time that it is due is another.
        left.forget(id);
        assert!(left.until(begun.plus(PATIENCE_S), id, true).is_some());
        // A million are looked at in a quarter of an hour, not in seconds.
        for number in 0..1_000_000 {
            left.0.insert(CertificateId(number), begun);
        }
        assert_eq!(left.until(begun, id, true), Some(begun.plus(LOOK_S + 1_000)));
    }
}
