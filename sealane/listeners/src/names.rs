//! What names of backends lead to, kept from one look to the next.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::resolver::Answers;

/// What names of backends lead to.
///
/// A name that cannot be looked up is no reason not to start, for the machine may have started with
/// its resolver missing; nor to give up addresses that were good so far. In a later reading a name
/// that is new must lead somewhere.
#[derive(Clone, Default)]
pub struct Names {
    known: HashMap<String, Known>,
    /// Whether a reading has been served.
    has_started: bool,
}

#[derive(Clone)]
struct Known {
    /// In order; none while it leads nowhere.
    addresses: Vec<SocketAddr>,
    /// When it was last asked for.
    asked: Instant,
    /// Between two looks; none if a look is for readings alone.
    every: Option<Duration>,
    /// Looks that found nothing.
    failures: u64,
    /// Why the last look found nothing, if so.
    failure: Option<String>,
}

/// Where a name leads.
#[derive(Debug, PartialEq, Eq)]
pub enum Led {
    /// Where its addresses are now.
    Here,
    /// Nowhere yet, and why.
    Nowhere(String),
    /// Where its addresses were when it was last looked up, and why it cannot be now.
    Once(String),
}

/// What is new about a name.
#[derive(Debug, PartialEq, Eq)]
pub enum NameNews {
    /// The name leads to its addresses again, as before.
    Back,
    /// The name cannot be looked up any more, and why.
    Lost(String),
    /// The name leads to other addresses.
    Moved,
}

/// A name as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameSummary {
    /// The name.
    pub name: String,
    /// What it leads to.
    pub addresses: Vec<String>,
    /// Looks that found nothing.
    pub failures: u64,
    /// Why the last one found nothing, if so.
    pub failure: Option<String>,
}

impl Names {
    /// Where `name` leads by these `answers`, or else as it did. Whoever is strict bears no name
    /// that never led anywhere.
    ///
    /// # Errors
    /// It is new and cannot be looked up.
    pub fn look_up(
        &mut self,
        name: &str,
        answers: &Answers,
        is_strict: bool,
    ) -> Result<Led, String> {
        let is_known = self.known.contains_key(name);
        let failure = answers.of(name).err().map(str::to_owned);
        if let Some(why) = &failure
            && !is_known
            && (self.has_started || is_strict)
        {
            return Err(why.clone());
        }
        self.learn(name, answers);
        Ok(match failure {
            None => Led::Here,
            Some(why) if self.addresses(name).is_empty() => Led::Nowhere(why),
            Some(why) => Led::Once(why),
        })
    }

    /// Takes over what `answers` say, and tells what is new.
    pub fn follow(&mut self, answers: &Answers) -> BTreeMap<String, NameNews> {
        let names: BTreeSet<&str> = answers.iter().map(|(name, _)| name).collect();
        // One may have left the configuration meanwhile, or a reload may know better.
        let is_newer = |known: &Known| known.asked <= answers.asked();
        let known = names.into_iter().filter(|name| self.known.get(*name).is_some_and(is_newer));
        let known: Vec<&str> = known.collect();
        let news = known.into_iter().filter_map(|name| {
            let news = self.learn(name, answers)?;
            Some((name.to_owned(), news))
        });
        news.collect()
    }

    fn learn(&mut self, name: &str, answers: &Answers) -> Option<NameNews> {
        let asked = answers.asked();
        let known = self.known.entry(name.to_owned()).or_insert_with(|| Known {
            addresses: Vec::new(),
            asked,
            every: None,
            failures: 0,
            failure: None,
        });
        known.asked = asked;
        let before = known.failure.take();
        match answers.of(name) {
            Ok(found) if found == known.addresses => before.map(|_| NameNews::Back),
            Ok(found) => {
                known.addresses = found.to_vec();
                Some(NameNews::Moved)
            }
            Err(why) => {
                known.failures += 1;
                known.failure = Some(why.to_owned());
                before.is_none().then(|| NameNews::Lost(why.to_owned()))
            }
        }
    }

    /// The addresses that `name` leads to, with port 0.
    pub fn addresses(&self, name: &str) -> &[SocketAddr] {
        self.known.get(name).map_or(&[], |known| &known.addresses)
    }

    /// What is served from now on has these names, and no others; each with how often it is looked
    /// up, if it is.
    pub fn serve<'n>(&mut self, names: impl IntoIterator<Item = (&'n str, Option<Duration>)>) {
        let mut known = std::mem::take(&mut self.known);
        let kept = names.into_iter().filter_map(|(name, every)| {
            let (name, of_name) = known.remove_entry(name)?;
            Some((name, Known { every, ..of_name }))
        });
        self.known = kept.collect();
        self.has_started = true;
    }

    /// The names that are to be looked up at `now`.
    pub fn due(&self, now: Instant) -> BTreeSet<String> {
        let is_due = |known: &Known| {
            let every = known.every?;
            let every = if known.addresses.is_empty() { every.min(LOOK_AGAIN) } else { every };
            (now.saturating_duration_since(known.asked) >= every).then_some(())
        };
        let due = self.known.iter().filter(|(_, known)| is_due(known).is_some());
        due.map(|(name, _)| name.clone()).collect()
    }

    /// All names, as they are shown.
    pub fn summaries(&self) -> Vec<NameSummary> {
        let shown = |(name, known): (&String, &Known)| NameSummary {
            name: name.clone(),
            addresses: known.addresses.iter().map(|address| address.ip().to_string()).collect(),
            failures: known.failures,
            failure: known.failure.clone(),
        };
        let mut summaries: Vec<_> = self.known.iter().map(shown).collect();
        summaries.sort_by(|one, other| one.name.cmp(&other.name));
        summaries
    }
}

/// Between two looks for a name that leads nowhere.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 0))
    }

    fn answers(of: &[(&str, &[u8])]) -> Answers {
        let answer = |found: &[u8]| match found {
            [] => Err("no such host".to_owned()),
            found => Ok(found.iter().map(|last| at(*last)).collect()),
        };
        of.iter().map(|(name, found)| ((*name).to_owned(), answer(found))).collect()
    }

    #[test]
    fn a_name_that_leads_nowhere_is_borne_at_the_start_alone_and_by_nobody_strict() {
        let mut names = Names::default();
        let none = answers(&[("early.test", &[]), ("gone.test", &[]), ("strict.test", &[])]);
        let nowhere = || Ok(Led::Nowhere("no such host".into()));
        assert_eq!(names.look_up("early.test", &none, false), nowhere());
        assert_eq!(names.look_up("gone.test", &none, false), nowhere());
        assert_eq!(names.look_up("strict.test", &none, true), Err("no such host".into()));
        names.serve([("early.test", None)]);
        assert_eq!(names.look_up("early.test", &none, false), nowhere());
        assert_eq!(names.look_up("gone.test", &none, false), Err("no such host".into()));
        assert_eq!(names.look_up("late.test", &none, false), Err("it was not looked up".into()));
        let found = answers(&[("early.test", &[1, 2])]);
        assert_eq!(names.look_up("early.test", &found, true), Ok(Led::Here));
        assert_eq!(names.look_up("early.test", &none, true), Ok(Led::Once("no such host".into())));
        assert_eq!(names.addresses("early.test"), [at(1), at(2)]);
    }

    #[test]
    fn a_name_is_followed_and_a_failure_changes_nothing_and_is_told_once() {
        let mut names = Names::default();
        let mut follow = |found: &[u8]| names.follow(&answers(&[("app.test", found)]));
        assert!(follow(&[1]).is_empty(), "nobody has such a backend");
        names.look_up("app.test", &answers(&[("app.test", &[1])]), false).unwrap();
        let mut follow = |found: &[u8]| {
            let news = names.follow(&answers(&[("app.test", found)]));
            news.into_values().next()
        };
        assert_eq!(follow(&[1]), None);
        assert_eq!(follow(&[2, 3]), Some(NameNews::Moved));
        assert_eq!(follow(&[]), Some(NameNews::Lost("no such host".into())));
        assert_eq!(follow(&[]), None);
        assert_eq!(follow(&[2, 3]), Some(NameNews::Back));
        assert_eq!(follow(&[]), Some(NameNews::Lost("no such host".into())));
        let summary = names.summaries().remove(0);
        assert_eq!((summary.failures, summary.addresses.len()), (3, 2));
    }

    #[test]
    fn a_name_is_due_when_its_time_has_passed_and_sooner_while_it_leads_nowhere() {
        let mut names = Names::default();
        let found = answers(&[("app.test", &[1]), ("none.test", &[]), ("off.test", &[1])]);
        for name in ["app.test", "none.test", "off.test"] {
            names.look_up(name, &found, false).unwrap();
        }
        let every = Some(Duration::from_secs(30));
        names.serve([("app.test", every), ("none.test", every), ("off.test", None)]);
        for (after_s, expected) in [
            (4, &[][..]),
            (5, &["none.test"]),
            (29, &["none.test"]),
            (30, &["app.test", "none.test"]),
        ] {
            let due = names.due(found.asked() + Duration::from_secs(after_s));
            assert!(due.iter().eq(expected), "{after_s} s: {due:?}");
        }
        assert!(names.due(found.asked()).is_empty());
    }
}
