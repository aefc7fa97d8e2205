//! What is known of a fleet's texts beside the one that is served, and which of them is meant.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sealane_store::{Answer, Answerer, Given, HELD, PROPOSED, Proposed, SETTLED, Trouble};

use super::super::watchdog::Well;
use super::followed::{Facts, Followed};
use crate::config::Config;

/// What is known of a fleet's texts beside the one that is served.
pub(in crate::control) struct FleetTexts {
    /// Whoever answers; none while another process does.
    pub(super) answerer: Option<Answerer>,
    /// Whether another process was, when it was looked last.
    pub(super) is_waiting: bool,
    /// What was said last, if it was left.
    pub(super) told: Option<Answer>,
    /// This process, as answers tell it from others.
    pub(super) process: u64,
    held: Followed<Given>,
    proposed: Followed<Proposed>,
    /// How the file with what is served looked, once that had settled.
    pub(super) settled: Option<Facts>,
    /// What this process looks at and serves by, and what processes before it ended with; nothing
    /// is known before this one has begun to answer.
    pub(super) trouble: Trouble,
    /// The folder in which this one has begun to answer.
    pub(super) begun_in: Option<PathBuf>,
    /// What was looked at of what is proposed, and what is wrong with it.
    pub(super) judged: Option<(Given, String)>,
    /// What holds and is refused, and why.
    refused: Option<Refused>,
    /// The same of what has settled, if that is another.
    settled_refused: Option<Refused>,
    /// What was served before the text that is on trial; none: none is.
    pub(super) before_trial: Option<Box<Config>>,
    /// Since when the text is served that was on trial last.
    pub(super) trial_since: Option<Instant>,
    /// When it was tried last to serve that again, and was refused.
    pub(super) kept_from_it: Option<Instant>,
    /// Since when what is served is, if it was not known to do no harm.
    pub(super) taken_at: Option<Instant>,
    /// What is wrong with the folder, as it was said.
    pub(super) problem: Option<String>,
    pub(super) is_leaving: bool,
}

impl Default for FleetTexts {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            answerer: None,
            is_waiting: false,
            told: None,
            process: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            held: Followed::default(),
            proposed: Followed::default(),
            settled: None,
            trouble: Trouble::default(),
            begun_in: None,
            judged: None,
            refused: None,
            settled_refused: None,
            before_trial: None,
            trial_since: None,
            kept_from_it: None,
            taken_at: None,
            problem: None,
            is_leaving: false,
        }
    }
}

impl FleetTexts {
    /// Has what is refused looked at again: what was missing may be there.
    pub(in crate::control) fn look_again(&mut self) {
        self.judged.take_if(|(_, refusal)| !refusal.is_empty());
        (self.refused, self.settled_refused, self.kept_from_it) = (None, None, None);
    }

    /// The same, and with what a process ended before: somebody wants it.
    pub(in crate::control) fn try_all_again(&mut self) {
        self.trouble.failed.clear();
        self.look_again();
    }

    /// Whether what is served is on trial.
    pub(in crate::control) const fn is_on_trial(&self) -> bool {
        self.before_trial.is_some()
    }

    /// Whether it is not known yet that what is served does no harm.
    pub(in crate::control) const fn is_unproven(&self) -> bool {
        self.taken_at.is_some() || self.is_on_trial()
    }

    /// The process ends, as it was told: by no fault of a text. Who comes next may answer.
    ///
    /// Unless lanes stand still by it: who ends the process may do so for that.
    pub(in crate::control) fn leave(&mut self, lanes_stand_still: bool) {
        if let Some(answerer) = &self.answerer
            && self.taken_at.take().is_some()
            && !lanes_stand_still
        {
            // If that fails, the next process leaves out a text that does no harm, and says so.
            self.trouble.taken = None;
            let _ = self.trouble.leave(answerer.folder());
        }
        self.end();
    }

    /// The process ends, by whatever fault: it answers no more.
    pub(in crate::control) fn end(&mut self) {
        (self.is_leaving, self.answerer) = (true, None);
    }

    /// Whether a process ended with this text.
    pub(super) fn has_failed(&self, given: &Given) -> bool {
        self.trouble.failed.contains(&given.mark())
    }

    /// Notes for the next process what this one looks at, or that this does no harm.
    pub(super) fn mark_look(&mut self, store: &Path, given: Option<&Given>) -> io::Result<()> {
        self.trouble.looked_at = given.map(Given::mark);
        self.trouble.leave(store)
    }

    /// The same of what it serves by.
    pub(super) fn mark_taken(&mut self, store: &Path, mark: Option<u64>) -> io::Result<()> {
        self.trouble.taken = mark;
        self.trouble.leave(store)
    }

    /// Reads what is new in the folder of the store.
    pub(super) fn follow(&mut self, store: &Path) -> io::Result<()> {
        if self.answerer.as_ref().is_none_or(|one| one.folder() != store || !one.is_there()) {
            (self.answerer, self.told) = (None, None);
            self.is_waiting = false;
            self.answerer = Answerer::of(store)?;
            self.is_waiting = self.answerer.is_none();
        }
        if self.answerer.is_some() && self.begun_in.as_deref() != Some(store) {
            self.begun_in = Some(store.to_owned());
            self.trouble.failed.extend(Trouble::read(store).ended());
        }
        // It goes with a store that is emptied.
        let is_gone = self.answerer.is_some()
            && self.trouble != Trouble::default()
            && !Trouble::is_left(store);
        let left = if is_gone { self.trouble.leave(store) } else { Ok(()) };
        // This first: it is taken back after what holds is there.
        let proposed = self.proposed.follow(&store.join(PROPOSED), || Proposed::read(store));
        let held = self.held.follow(&store.join(HELD), || Given::read(store, HELD));
        left.and(proposed).and(held)
    }

    /// The text that is meant to be served instead of `current`, and whether that is on trial.
    pub(super) fn meant(
        &self,
        store: &Path,
        current: Option<&Given>,
    ) -> Option<(Option<Given>, bool)> {
        let trial = self.proposed().filter(|proposed| {
            proposed.is_on_trial && self.answerer.is_some() && self.is_in_order(&proposed.given)
        });
        if let Some(trial) = trial {
            return Some((Some(trial.given.clone()), true));
        }
        let refused = [&self.refused, &self.settled_refused];
        let may_be =
            |given: &Given| !refused.into_iter().flatten().any(|one| one.keeps_away(given));
        if let Some(held) = self.held.content.as_ref().filter(|held| may_be(held)) {
            return Some((Some(held.clone()), false));
        }
        if let Some(before) = &self.before_trial {
            let given = before.fleet.as_ref().and_then(|fleet| fleet.given.clone());
            return Some((given, false));
        }
        if current.is_some() {
            return None;
        }
        let settled = Given::read(store, SETTLED).ok().flatten().filter(may_be);
        settled.map(|settled| (Some(settled), false))
    }

    /// What is proposed by somebody who is there: one that lies there at a start, or is as it was
    /// for a while, may have ended long ago.
    pub(super) fn proposed(&self) -> Option<&Proposed> {
        let is_fresh = self.proposed.since.is_some_and(|at| at.elapsed() < PROPOSED_TIME);
        self.proposed.content.as_ref().filter(|_| is_fresh)
    }

    /// Whether this is what was looked at last.
    pub(super) fn is_judged(&self, given: &Given) -> bool {
        self.judged.as_ref().is_some_and(|(it, _)| it == given)
    }

    /// The same, and nothing is wrong with it.
    pub(super) fn is_in_order(&self, given: &Given) -> bool {
        self.is_judged(given) && self.judged.as_ref().is_some_and(|(_, wrong)| wrong.is_empty())
    }

    /// What is wrong with a text, if something is.
    pub(super) fn wrong(&self) -> Option<&(Given, String)> {
        self.refusal().filter(|(_, refusal)| !refusal.is_empty())
    }

    /// What was found last of a text that is proposed, or else of what holds.
    fn refusal(&self) -> Option<&(Given, String)> {
        let proposed = self.proposed().and(self.judged.as_ref());
        let refused = self.refused.as_ref().or(self.settled_refused.as_ref());
        proposed.or(refused.map(|one| &one.what))
    }

    /// Notes that a text is refused that is not on trial, and returns whether that is news.
    pub(in crate::control) fn refuse(&mut self, given: Given, refusal: String) -> bool {
        let told = [&self.refused, &self.settled_refused];
        let is_news =
            told.into_iter().flatten().all(|one| one.what.0 != given || one.what.1 != refusal);
        let is_settled = self.before_trial.is_none() && self.held.content.as_ref() != Some(&given);
        let place = if is_settled { &mut self.settled_refused } else { &mut self.refused };
        let what = (given, refusal);
        let before = place.as_ref().filter(|before| before.what.0 == what.0);
        let again = before.map_or(AGAIN_FIRST, |before| before.again * 2).min(AGAIN_AFTER);
        *place = Some(Refused { what, at: Instant::now(), again });
        is_news
    }

    /// Notes that a text is served that is not on trial.
    pub(super) fn accept(&mut self, given: Option<&Given>) {
        self.settled_refused = None;
        let is_held = self.held.content.as_ref() == given;
        self.refused.take_if(|one| is_held || Some(&one.what.0) == given);
    }

    /// Says how it is, if that is new: what is served, and when all lanes were known to do so.
    pub(super) fn tell(&mut self, number: u64, well: Option<Well>) -> io::Result<()> {
        let (checked, refusal) =
            self.refusal().map_or((0, ""), |(given, refusal)| (given.number, refusal));
        let (refusal, process) = (refusal.to_owned(), self.process);
        let is_it = |one: &Proposed| one.is_on_trial && one.given.number == number;
        let since = self.trial_since.filter(|_| self.proposed().is_some_and(is_it));
        // None is 0, so a second that is not over yet is one.
        let well_for = |since| well.map_or(0, |well| well.time_since(since).as_secs()).max(1);
        let trial_s = since.map_or(0, well_for);
        let answer = Answer { holds: number, checked, refusal, process, trial_s };
        let Some(answerer) = &self.answerer else { return Ok(()) };
        if self.told.as_ref() != Some(&answer) {
            answerer.leave(&answer)?;
            self.told = Some(answer);
        }
        Ok(())
    }
}

/// A text that was refused here, and why.
struct Refused {
    what: (Given, String),
    at: Instant,
    /// After what time it is tried again.
    again: Duration,
}

impl Refused {
    /// Whether this text is not to be tried: something else may have been in its way for a while.
    fn keeps_away(&self, given: &Given) -> bool {
        self.what.0 == *given && self.at.elapsed() < self.again
    }
}

/// After what time what was refused is tried again first: what it waits for may be about to come.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
/// After what time it is in the end, as it is tried again to end a trial that cannot be ended.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(30);
/// For how long what is proposed is believed without being written again.
const PROPOSED_TIME: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_tried_again_soon_and_then_every_half_minute() {
        let mut texts = FleetTexts::default();
        let given = Given { number: 1, text: String::new() };
        let mut again_s = Vec::new();
        for refusal in ["a", "a", "b", "b", "b", "b", "b"] {
            texts.refuse(given.clone(), refusal.to_owned());
            again_s.push(texts.settled_refused.as_ref().unwrap().again.as_secs());
        }
        assert_eq!(again_s, [1, 2, 4, 8, 16, 30, 30], "as docs/fleet.md has it");
        assert!(!texts.refuse(given.clone(), "b".to_owned()), "that is no news");
        assert!(texts.refuse(given, "c".to_owned()));
    }
}
