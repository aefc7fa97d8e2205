//! Whose turn it is among clients that ask for names: [`Turns`].

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use sealane_renewal::UnixSeconds;

use super::listen::Wanted;

/// The clients for whom the operator's service was asked of late; those without an address, as
/// behind a unix socket, are one.
#[derive(Default)]
pub(crate) struct Turns(VecDeque<(UnixSeconds, Option<IpAddr>)>);

impl Turns {
    /// Puts names first that are of the clients who had the fewest turns; those of clients who had
    /// as many stay in their order. A name of several clients is the one's that is first.
    pub(crate) fn order(&mut self, now: UnixSeconds, wanted: &mut [Wanted]) {
        self.0.retain(|(had_at, _)| now.since(*had_at) < REMEMBERED_S);
        let mut turns = HashMap::<Option<IpAddr>, usize>::new();
        self.0.iter().for_each(|(_, client)| *turns.entry(*client).or_default() += 1);
        let had = |client: Option<IpAddr>| turns.get(&client).copied().unwrap_or_default();
        wanted.sort_by_cached_key(|wanted| clients(wanted).map(had).min().unwrap_or_default());
    }

    /// The service is asked about a name.
    pub(crate) fn note(&mut self, now: UnixSeconds, wanted: &Wanted) {
        self.0.extend(clients(wanted).map(|client| (now, client)));
        while self.0.len() > TURNS_MAX {
            self.0.pop_front();
        }
    }
}

/// Who asks for a name.
fn clients(wanted: &Wanted) -> impl Iterator<Item = Option<IpAddr>> {
    let nobody_known = wanted.from.is_empty().then_some(None);
    wanted.from.iter().copied().map(Some).chain(nobody_known)
}

/// How long a turn counts.
const REMEMBERED_S: u64 = 3_600;
/// Turns that are remembered.
const TURNS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str, from: &[&str]) -> Wanted {
        let from = from.iter().map(|client| client.parse().unwrap()).collect();
        Wanted { from, name: name.into() }
    }

    fn ordered(turns: &mut Turns, now_s: u64, mut names: Vec<Wanted>) -> Vec<String> {
        turns.order(UnixSeconds(now_s), &mut names);
        names.into_iter().map(|wanted| wanted.name).collect()
    }

    #[test]
    fn who_had_fewest_turns_is_first_until_they_are_forgotten() {
        let mut turns = Turns::default();
        let names = || {
            vec![
                wanted("loud1.test", &["192.0.2.1"]),
                wanted("both.test", &["192.0.2.1", "192.0.2.2"]),
                wanted("loud2.test", &["192.0.2.1"]),
                wanted("new.test", &["192.0.2.3"]),
            ]
        };
        let as_told = ["loud1.test", "both.test", "loud2.test", "new.test"];
        assert_eq!(ordered(&mut turns, 1_000, names()), as_told);
        turns.note(UnixSeconds(1_000), &wanted("loud0.test", &["192.0.2.1"]));
        let fair = ["both.test", "new.test", "loud1.test", "loud2.test"];
        assert_eq!(ordered(&mut turns, 1_001, names()), fair);
        assert_eq!(ordered(&mut turns, 999 + REMEMBERED_S, names()), fair);
        assert_eq!(ordered(&mut turns, 1_000 + REMEMBERED_S, names()), as_told);
        // Those without an address are one client.
        let unknown = wanted("unknown.test", &[]);
        turns.note(UnixSeconds(8_000), &unknown);
        let after = [unknown, wanted("new.test", &["192.0.2.3"])];
        assert_eq!(ordered(&mut turns, 8_001, after.into()), ["new.test", "unknown.test"]);
        (0..5_000).for_each(|_| turns.note(UnixSeconds(9_000), &names()[0]));
        assert_eq!(turns.0.len(), TURNS_MAX);
    }
}
