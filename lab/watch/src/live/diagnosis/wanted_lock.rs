//! Where locks are wanted: call paths, folded to a [`WantedLock`].

use std::collections::BTreeMap;

use sealane_lab_model::document::LivePath;

use crate::live::code::{bare, is_lock, is_lock_wrapper};

/// Where a lock's call paths lead most often.
pub(super) struct WantedLock {
    /// The lock's functions, the busiest first.
    pub(super) lock: String,
    /// The function that wanted it.
    pub(super) under: String,
    /// That function's file.
    pub(super) owner: String,
}

/// The place with the largest share of `paths`; `None` if none has a lock's function.
pub(super) fn busiest_place<'a>(paths: impl Iterator<Item = &'a LivePath>) -> Option<WantedLock> {
    let mut places: BTreeMap<(String, String), (f64, BTreeMap<String, f64>)> = BTreeMap::new();
    for path in paths {
        let frames = path.path.iter().map(|frame| {
            frame.rsplit_once(" (").map_or((frame.as_str(), ""), |(function, owner)| {
                (function, owner.trim_end_matches(')'))
            })
        });
        let frames: Vec<(&str, &str)> = frames.collect();
        let Some(last) = frames.iter().rposition(|(function, _)| is_lock(function)) else {
            continue;
        };
        let callers = frames.get(last + 1..).unwrap_or_default();
        let caller = callers.iter().find(|(function, _)| !is_lock_wrapper(function));
        let (function, owner) = caller.copied().unwrap_or(("a caller that is not known", "?"));
        let place = places.entry((function.to_owned(), owner.to_owned())).or_default();
        place.0 += path.share;
        *place.1.entry(bare(frames[last].0).to_owned()).or_default() += path.share;
    }
    let ((under, owner), (_, locks)) = places.into_iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
    let mut locks: Vec<(String, f64)> = locks.into_iter().collect();
    locks.sort_by(|a, b| b.1.total_cmp(&a.1));
    let names: Vec<String> = locks.into_iter().take(2).map(|(name, _)| name).collect();
    Some(WantedLock { lock: names.join(" and "), under, owner })
}
