//! Names that a lane's clients ask for, noted for whoever obtains certificates on demand:
//! [`AskedNames`].
//!
//! A lane notes into memory of its own, and hands out what it has noted when it is ordered to.
//! Nothing is noted where no listener has `on_demand`.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use sealane_operator::value::is_host_name;
use sealane_traffic::lane_orders::{NameKind, NotedName, NotedNames};

/// What one lane has noted since it was asked last.
#[derive(Default)]
pub(super) struct AskedNames {
    /// A listener has `on_demand`.
    pub(super) is_on: bool,
    served: NameTable,
    wanted: NameTable,
}

impl AskedNames {
    /// Notes that the client at an address asked for a name, and whether there was a certificate
    /// for that.
    pub(super) fn note(&mut self, name: &str, has_own: bool, address: Option<IpAddr>) {
        match has_own {
            // Nobody has to wait for such a name.
            true => self.served.note(name, None),
            false => self.wanted.note(name, address.map(network)),
        }
    }

    /// Takes what was noted of one kind; none if no listener has `on_demand`.
    pub(super) fn take(&mut self, kind: NameKind) -> Option<NotedNames> {
        let table = match kind {
            NameKind::Served => &mut self.served,
            NameKind::Wanted => &mut self.wanted,
        };
        self.is_on.then(|| table.take())
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

/// A table of [`NAMES_MAX`] places. Each name has [`WAYS`] places where it may stand, which nobody
/// can foresee; if they are taken, one of the client makes room who has most of them. So whoever
/// asks for many names drives out its own, and of those what it asked for once.
#[derive(Default)]
struct NameTable {
    dropped: u64,
    /// Empty until there is something in it.
    places: Vec<Option<NotedName>>,
    random: RandomState,
    /// Where one is looked for that makes room.
    turn: usize,
}

impl NameTable {
    fn note(&mut self, name: &str, client: Option<IpAddr>) {
        // No authority issues a certificate for a name of one label, or one that is no host name.
        if !name.contains('.') || !is_host_name(name) {
            return;
        }
        if self.places.is_empty() {
            self.places.resize_with(NAMES_MAX, || None);
        }
        let set = usize::try_from(self.random.hash_one(name) % SETS).unwrap_or_default();
        let places = &mut self.places[set * WAYS..][..WAYS];
        if let Some(known) = places.iter_mut().flatten().find(|known| *known.name == *name) {
            known.asked = known.asked.saturating_add(1);
            if let Some(client) = client {
                known.add_client(client);
            }
            return;
        }
        let place = places.iter().position(Option::is_none).or_else(|| {
            self.dropped += 1;
            self.turn = self.turn.wrapping_add(1);
            place_to_take(places, client, self.turn)
        });
        if let Some(place) = place {
            let from = client.into_iter().collect();
            places[place] = Some(NotedName { name: name.into(), asked: 1, from });
        }
    }

    fn take(&mut self) -> NotedNames {
        let names = self.places.iter_mut().filter_map(Option::take).collect();
        NotedNames { names, dropped: std::mem::take(&mut self.dropped) }
    }
}

/// Which name makes room for another one of `client`, of places that are all taken. It is one of
/// the client who has most of them, with that other one; if whoever asks has as many, one that was
/// asked for once. Those of one client make room in turn.
fn place_to_take(
    places: &[Option<NotedName>],
    client: Option<IpAddr>,
    turn: usize,
) -> Option<usize> {
    let owner =
        |place: &Option<NotedName>| place.as_ref().and_then(|noted| noted.from.first().copied());
    let count = |of| {
        let its = places.iter().filter(|place| owner(place) == of).count();
        its + usize::from(of == client)
    };
    let most = places.iter().map(|place| count(owner(place))).max()?;
    let may_take_any = most > count(client);
    let in_turn = (0..places.len()).map(|way| turn.wrapping_add(way) % places.len());
    let asked = |at: usize| places[at].as_ref().map_or(0, |noted| noted.asked);
    let crowded = in_turn.filter(|at| count(owner(&places[*at])) == most);
    crowded.filter(|at| may_take_any || asked(*at) <= 1).min_by_key(|at| asked(*at))
}

/// Names of each kind that a lane keeps.
const NAMES_MAX: usize = 1_024;
/// Places where one name may stand.
const WAYS: usize = 8;
const SETS: u64 = (NAMES_MAX / WAYS) as u64;

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, asked: u32) -> NotedName {
        NotedName { name: name.into(), asked, from: Vec::new() }
    }

    fn noted(names: &mut AskedNames) -> NotedNames {
        names.take(NameKind::Wanted).unwrap()
    }

    #[test]
    fn a_name_is_told_once_with_how_often_it_was_asked_for() {
        let mut names = AskedNames { is_on: true, ..AskedNames::default() };
        for (name, has_own) in [
            ("a.test", false),
            ("b.test", true),
            ("a.test", false),
            ("localhost", false),
            (".a.test", false),
            ("a..test", false),
            (&format!("{}.test", "x".repeat(64)), false),
            (&format!("{}.test", "x".repeat(249)), false),
        ] {
            names.note(name, has_own, None);
        }
        let told = noted(&mut names);
        assert_eq!(told.names, [of("a.test", 2)]);
        assert_eq!(told.dropped, 0);
        let served = names.take(NameKind::Served).unwrap().names;
        assert_eq!(served, [of("b.test", 1)]);
        assert!(noted(&mut names).names.is_empty(), "they are told once");
        assert!(AskedNames::default().take(NameKind::Wanted).is_none());
    }

    #[test]
    fn a_flood_takes_no_more_room_and_drives_out_nobody_who_comes_again() {
        let mut names = AskedNames { is_on: true, ..AskedNames::default() };
        let kept: Vec<_> = (0..32).map(|number| format!("kept{number}.test")).collect();
        for name in kept.iter().chain(&kept) {
            names.note(name, false, None);
        }
        let flood = 100_000;
        for number in 0..flood {
            names.note(&format!("flood{number}.test"), false, None);
        }
        names.note("late.test", false, None);
        let told = noted(&mut names);
        assert_eq!(told.names.len(), NAMES_MAX);
        let all = 32 + flood + 1;
        assert_eq!(told.dropped, all - u64::try_from(NAMES_MAX).unwrap(), "each is counted");
        let is_told = |name: &str| told.names.iter().any(|noted| *noted.name == *name);
        assert!(kept.iter().all(|name| is_told(name)));
        assert!(is_told("late.test"), "the last one has a place");
    }

    #[test]
    fn whoever_asks_for_many_names_again_and_again_drives_out_nobody_elses() {
        let mut names = AskedNames { is_on: true, ..AskedNames::default() };
        let at = |text: &str| Some(text.parse().unwrap());
        let flood: Vec<_> = (0..10_000).map(|number| format!("flood{number}.test")).collect();
        let others: Vec<_> = (0..100).map(|number| format!("other{number}.test")).collect();
        let others =
            || others.iter().zip(1..).map(|(name, last)| (name, format!("192.0.2.{last}")));
        for (name, address) in others().take(50) {
            names.note(name, false, at(&address));
        }
        for name in &flood {
            (0..3).for_each(|_| names.note(name, false, at("2001:db8::bad")));
        }
        for (name, address) in others().skip(50) {
            names.note(name, false, at(&address));
        }
        let told = noted(&mut names).names;
        let is_told = |name: &str| told.iter().any(|noted| *noted.name == *name);
        assert!(others().all(|(name, _)| is_told(name)));
        assert!(told.len() > NAMES_MAX - 100, "{}", told.len());
    }

    #[test]
    fn the_first_clients_of_a_name_are_told_as_the_networks_of_houses() {
        let mut names = AskedNames { is_on: true, ..AskedNames::default() };
        for address in [
            "::ffff:192.0.2.7",
            "2001:db8::1",
            "2001:db8::2",
            "192.0.2.7",
            "2001:db8:1::",
            "::1",
            "::2:0:0:0:0",
        ] {
            names.note("a.test", false, Some(address.parse().unwrap()));
        }
        let from = &noted(&mut names).names[0].from;
        let from: Vec<_> = from.iter().map(ToString::to_string).collect();
        assert_eq!(from, ["192.0.2.7", "2001:db8::", "2001:db8:1::", "::"]);
    }
}
