//! `POST /names/wanted` takes the names that clients asked for and no certificate is for, and
//! `POST /names/served` those that have one, each since it was taken last: for whoever obtains
//! certificates on demand.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

use sealane_traffic::http::{Answer, Method, Request, Response, Status};
use sealane_traffic::lane_orders::{LaneOrder, NameKind, NotedName, NotedNames};

use crate::state::SharedState;

use super::{json, lanes};

/// The answer to a request where names are taken, and nothing else is done. Lanes may not have
/// heard yet that `is_on`.
pub(in crate::admin) fn answer(request: &Request<'_>, state: &SharedState, is_on: bool) -> Answer {
    let Some(kind) = kind(request.path) else {
        let words = "names are taken here by POST /names/wanted and POST /names/served, and \
                     nothing else is answered; what is seen and ordered is at the admin socket";
        return Response::text(Status::NotFound, words).into();
    };
    if request.method != Method::Post {
        return Response::text(Status::PostOnly, Status::PostOnly.line()).into();
    }
    let state = state.clone();
    Answer::Later(Box::new(move || take(&state, kind, is_on)))
}

/// Which names are taken at a path.
fn kind(path: &str) -> Option<NameKind> {
    match path {
        "/names/served" => Some(NameKind::Served),
        "/names/wanted" => Some(NameKind::Wanted),
        _ => None,
    }
}

/// Takes what all lanes have noted, in the order of [`in_turn`].
fn take(state: &SharedState, kind: NameKind, is_on: bool) -> Response {
    let of_lanes = match lanes::ask_all(state, |_, told| LaneOrder::Names { kind, told }) {
        Ok(of_lanes) => of_lanes,
        Err(response) => return response,
    };
    if !is_on && of_lanes.iter().all(Option::is_none) {
        let words = "no listener has on_demand = true, so nothing is noted of names";
        return Response::text(Status::NotFound, words);
    }
    json(Status::Ok, &joined(of_lanes.into_iter().flatten()))
}

fn joined(of_lanes: impl Iterator<Item = NotedNames>) -> NotedNames {
    let (mut joined, mut dropped) = (HashMap::<Box<str>, NotedName>::new(), 0);
    for noted in of_lanes {
        dropped += noted.dropped;
        for noted in noted.names {
            let Some(known) = joined.get_mut(&noted.name) else {
                joined.insert(noted.name.clone(), noted);
                continue;
            };
            known.asked = known.asked.saturating_add(noted.asked);
            noted.from.into_iter().for_each(|client| known.add_client(client));
        }
    }
    let mut names = in_turn(joined.into_values().collect());
    dropped += u64::try_from(names.len().saturating_sub(TOLD_MAX)).unwrap_or(u64::MAX);
    names.truncate(TOLD_MAX);
    NotedNames { names, dropped }
}

/// Names of clients in turn: one of each client, then the next of each. Of one client's that is
/// first which was asked for most often, and who is before whom among clients, nobody can choose.
fn in_turn(mut names: Vec<NotedName>) -> Vec<NotedName> {
    let random = RandomState::new();
    names.sort_by_cached_key(|noted| (Reverse(noted.asked), random.hash_one(&noted.name)));
    let mut had = HashMap::<Option<IpAddr>, usize>::new();
    let mut next = |client| {
        let had = had.entry(client).or_default();
        *had += 1;
        *had
    };
    let with_turns = names.into_iter().map(|noted| {
        let turn = match noted.from.iter().map(|client| next(Some(*client))).min() {
            Some(turn) => turn,
            None => next(None),
        };
        (turn, noted)
    });
    let mut names: Vec<_> = with_turns.collect();
    // Whoever is loudest is no earlier than others of the same turn.
    names.sort_by_cached_key(|(turn, noted)| (*turn, random.hash_one(&noted.name)));
    names.into_iter().map(|(_, noted)| noted).collect()
}

/// Names that are told at a time.
const TOLD_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_lanes_are_one_list_of_a_bounded_length() {
        let noted = |name: &str, asked| NotedName { name: name.into(), asked, from: Vec::new() };
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

    #[test]
    fn clients_have_turns_however_often_and_for_however_many_names_one_asks() {
        let noted = |name: String, asked, client: &str| {
            let from = vec![client.parse().unwrap()];
            NotedName { name: name.into(), asked, from }
        };
        let flood = (0..5_000).map(|number| noted(format!("f{number}.test"), 9 + number, "::"));
        let quiet =
            (0..10).map(|number| noted(format!("q{number}.test"), 1, &format!("192.0.2.{number}")));
        let mut both = noted("f7.test".into(), 1, "192.0.2.99");
        both.add_client("::".parse().unwrap());
        let names = flood.chain(quiet).collect();
        let lanes =
            [NotedNames { names, dropped: 0 }, NotedNames { names: vec![both], dropped: 0 }];
        let told = joined(lanes.into_iter()).names;
        let first: Vec<_> = told.iter().take(12).map(|noted| &*noted.name).collect();
        assert_eq!(first.iter().filter(|name| name.starts_with('q')).count(), 10, "{first:?}");
        assert!(first.contains(&"f4999.test"), "what it asks for most: {first:?}");
        assert!(first.contains(&"f7.test"), "another asks for it too: {first:?}");
        assert_eq!(told.len(), TOLD_MAX);
    }
}
