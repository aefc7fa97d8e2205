//! Names that a lane's clients ask for, noted for whoever obtains certificates on demand:
//! [`AskedNames`].
//!
//! A lane notes into memory of its own, and hands out what it has noted when it is ordered to.
//! Nothing is noted where no listener has `on_demand`.

use std::hash::{BuildHasher as _, RandomState};

use serde::Serialize;

/// What one lane has noted since it was asked last.
#[derive(Default)]
pub(super) struct AskedNames {
    /// A listener has `on_demand`.
    pub(super) is_on: bool,
    served: NameTable,
    wanted: NameTable,
}

impl AskedNames {
    /// Notes that a client asked for a name, and whether there was a certificate for that.
    pub(super) fn note(&mut self, name: &str, has_own: bool) {
        let table = if has_own { &mut self.served } else { &mut self.wanted };
        table.note(name);
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

/// Which names are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// Those with a certificate.
    Served,
    /// Those without one.
    Wanted,
}

/// Names that clients asked for, and how many could not be kept.
#[derive(Debug, Default, Serialize)]
pub struct NotedNames {
    /// The names, each once.
    pub names: Vec<NotedName>,
    /// How often a name had to make room for another, or found none.
    pub dropped: u64,
}

/// A name that clients asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotedName {
    /// In lower case, without a dot at its end.
    pub name: Box<str>,
    /// How often it was asked for.
    pub asked: u32,
}

/// A table of [`NAMES_MAX`] places. Each name has [`WAYS`] places where it may stand, which nobody
/// can foresee; if they are taken, it takes that of a name which was asked for once. So whoever
/// asks for many names drives out the like, and not what is asked for again and again.
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
    fn note(&mut self, name: &str) {
        // No authority gives a certificate for a name of one label.
        if name.len() > NAME_BYTES_MAX || !name.contains('.') {
            return;
        }
        if self.places.is_empty() {
            self.places.resize_with(NAMES_MAX, || None);
        }
        let set = usize::try_from(self.random.hash_one(name) % SETS).unwrap_or_default();
        let places = &mut self.places[set * WAYS..][..WAYS];
        if let Some(known) = places.iter_mut().flatten().find(|known| *known.name == *name) {
            known.asked = known.asked.saturating_add(1);
            return;
        }
        let place = places.iter().position(Option::is_none).or_else(|| {
            self.dropped += 1;
            self.turn = self.turn.wrapping_add(1);
            let mut others = (0..WAYS).map(|way| (self.turn.wrapping_add(way)) % WAYS);
            others.find(|at| places[*at].as_ref().is_some_and(|other| other.asked == 1))
        });
        if let Some(place) = place {
            places[place] = Some(NotedName { name: name.into(), asked: 1 });
        }
    }

    fn take(&mut self) -> NotedNames {
        let names = self.places.iter_mut().filter_map(Option::take).collect();
        NotedNames { names, dropped: std::mem::take(&mut self.dropped) }
    }
}

/// Names of each kind that a lane keeps.
const NAMES_MAX: usize = 1_024;
/// Bytes of a name of DNS.
const NAME_BYTES_MAX: usize = 253;
/// Places where one name may stand.
const WAYS: usize = 8;
const SETS: u64 = (NAMES_MAX / WAYS) as u64;

#[cfg(test)]
mod tests {
    use super::*;

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
            (&format!("{}.test", "x".repeat(249)), false),
        ] {
            names.note(name, has_own);
        }
        let told = noted(&mut names);
        assert_eq!(told.names, [NotedName { name: "a.test".into(), asked: 2 }]);
        assert_eq!(told.dropped, 0);
        let served = names.take(NameKind::Served).unwrap().names;
        assert_eq!(served, [NotedName { name: "b.test".into(), asked: 1 }]);
        assert!(noted(&mut names).names.is_empty(), "they are told once");
        assert!(AskedNames::default().take(NameKind::Wanted).is_none());
    }

    #[test]
    fn a_flood_takes_no_more_room_and_drives_out_nobody_who_comes_again() {
        let mut names = AskedNames { is_on: true, ..AskedNames::default() };
        let kept: Vec<_> = (0..32).map(|number| format!("kept{number}.test")).collect();
        for name in kept.iter().chain(&kept) {
            names.note(name, false);
        }
        let flood = 100_000;
        for number in 0..flood {
            names.note(&format!("flood{number}.test"), false);
        }
        names.note("late.test", false);
        let told = noted(&mut names);
        assert_eq!(told.names.len(), NAMES_MAX);
        let all = 32 + flood + 1;
        assert_eq!(told.dropped, all - u64::try_from(NAMES_MAX).unwrap(), "each is counted");
        let is_told = |name: &str| told.names.iter().any(|noted| *noted.name == *name);
        assert!(kept.iter().all(|name| is_told(name)));
        assert!(is_told("late.test"), "the last one has a place");
    }
}
