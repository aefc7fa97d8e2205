//! Where locks are taken: call paths as an icicle for each stack and side.

use sealane_lab_model::{
    document::{CountResult, LockCounts, LockSite},
    number::number,
};

use crate::plot::{Icicle, Path, Step};

use super::{
    frame::{Figure, Tag},
    sharing::{SIDES, Side},
    sources::Part,
};

/// A figure for each side of each stack that takes locks.
pub(crate) fn figures(parts: &[Part<'_, CountResult>]) -> String {
    let mut html = String::new();
    for part in parts {
        let Some(locks) = &part.of.locks else { continue };
        for (side, of) in SIDES {
            let icicle = icicle(&part.label, locks, (side, of));
            if icicle.paths.is_empty() {
                continue;
            }
            let title = format!("Where {}'s {side} takes locks", part.label);
            let drawing = &icicle.draw();
            let look = format!(
                "All of its {} acquisitions per handshake, by call path: the outermost function \
                 on top, the lock at the bottom. A block is as wide as the share of acquisitions \
                 that run through it, so a wide block is what to remove. Point at one for its \
                 figures; a phone scrolls sideways.",
                number(icicle.total)
            );
            html += &Figure { title: &title, tag: Tag::Counted, look: &look, drawing }.html();
        }
    }
    html
}

fn icicle(label: &str, locks: &LockCounts, (side, of): Side) -> Icicle {
    let paths = locks.sites.iter().filter(|site| of(&site.calls) > 0.0);
    let paths = paths.map(|site| Path { steps: steps(site), amount: of(&site.calls) });
    Icicle {
        name: format!("Call paths to locks: {label}, {side}"),
        unit: "acquisitions per handshake".into(),
        root: format!("{label}, {side}"),
        paths: paths.collect(),
        total: of(&locks.read) + of(&locks.write) + of(&locks.mutex),
    }
}

/// A function as documents name it, `SSL_accept (libssl.so.3)`: its owner is its group.
pub(crate) fn function_step(function: &str) -> Step {
    let (label, group) = match function.rsplit_once(" (") {
        Some((name, owner)) => (name, owner.trim_end_matches(')')),
        None => (function, "owner not known"),
    };
    Step { label: label.into(), group: group.into() }
}

/// From the outermost function to the lock.
fn steps(site: &LockSite) -> Vec<Step> {
    let functions = site.path.iter().rev().map(|function| function_step(function));
    let lock = format!("lock {}, {}", site.lock, site.kind);
    functions.chain([Step { label: lock, group: "the lock".into() }]).collect()
}

#[cfg(test)]
mod tests {
    use sealane_lab_model::document::BySide;

    use super::*;

    #[test]
    fn a_side_without_a_lock_has_no_paths_and_the_owner_is_the_colour() {
        let site = LockSite {
            lock: "namemap".into(),
            kind: "read".into(),
            calls: BySide { server: 0.0, client: 7.0 },
            path: vec!["inner (a.so)".into(), "outer (b.so)".into()],
        };
        let read = BySide { server: 0.0, client: 9.0 };
        let locks = LockCounts { read, sites: vec![site], ..LockCounts::default() };
        assert!(icicle("x", &locks, SIDES[0]).paths.is_empty());
        let client = icicle("x", &locks, SIDES[1]);
        let steps: Vec<_> =
            client.paths[0].steps.iter().map(|s| (s.label.as_str(), s.group.as_str())).collect();
        let expected = [("outer", "b.so"), ("inner", "a.so"), ("lock namemap, read", "the lock")];
        assert_eq!(steps, expected);
        assert!((client.total - 9.0).abs() < f64::EPSILON);
    }
}
