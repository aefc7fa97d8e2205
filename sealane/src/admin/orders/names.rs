//! `POST /names/wanted` takes the names that clients asked for and no certificate is for, and
//! `POST /names/served` those that have one, each since it was taken last: for whoever obtains
//! certificates on demand.

use std::collections::HashMap;

use crate::http::{Response, Status};
use crate::relay::{LaneOrder, NameKind, NotedName, NotedNames};

use super::{Orders, json, lanes};

/// Takes what all lanes have noted, the names first that were asked for most often.
pub(super) fn take(orders: &Orders, kind: NameKind) -> Response {
    let of_lanes = match lanes::ask_all(orders, |_, told| LaneOrder::Names { kind, told }) {
        Ok(of_lanes) => of_lanes,
        Err(response) => return response,
    };
    if of_lanes.iter().all(Option::is_none) {
        let words = "no listener has on_demand = true, so nothing is noted of names";
        return Response::text(Status::NotFound, words);
    }
    json(Status::Ok, &joined(of_lanes.into_iter().flatten()))
}

fn joined(of_lanes: impl Iterator<Item = NotedNames>) -> NotedNames {
    let (mut counted, mut dropped) = (HashMap::<Box<str>, u32>::new(), 0);
    for noted in of_lanes {
        dropped += noted.dropped;
        for NotedName { name, asked } in noted.names {
            let count = counted.entry(name).or_default();
            *count = count.saturating_add(asked);
        }
    }
    let names = counted.into_iter().map(|(name, asked)| NotedName { name, asked });
    let mut names: Vec<_> = names.collect();
    names.sort_by(|one, other| (other.asked, &one.name).cmp(&(one.asked, &other.name)));
    dropped += u64::try_from(names.len().saturating_sub(TOLD_MAX)).unwrap_or(u64::MAX);
    names.truncate(TOLD_MAX);
    NotedNames { names, dropped }
}

/// Names that are told at a time.
const TOLD_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lanes_are_one_list_of_a_bounded_length() {
        let noted = |name: &str, asked| NotedName { name: name.into(), asked };
        let lane = |names| NotedNames { names, dropped: 3 };
        let told = joined(
            [
                lane(vec![noted("b.test", 1), noted("a.test", 1)]),
                lane(vec![noted("c.test", 2), noted("b.test", 2)]),
            ]
            .into_iter(),
        );
        assert_eq!(told.names, [noted("b.test", 3), noted("c.test", 2), noted("a.test", 1)]);
        assert_eq!(told.dropped, 6);
        let many = (0..TOLD_MAX + 5).map(|number| noted(&format!("n{number}.test"), 1)).collect();
        let told = joined(std::iter::once(lane(many)));
        assert_eq!((told.names.len(), told.dropped), (TOLD_MAX, 8));
    }
}
