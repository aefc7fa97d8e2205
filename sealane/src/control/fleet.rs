//! What a fleet gives to the configuration: looked at before it holds, taken when it does, answered
//! in the store that it comes by, and left again, without anybody's help, if it does no good.
//!
//! ```text
//!   start:   SETTLED, by which a process has served before; without that, the own file alone
//!   then:    what is proposed, on trial, while whoever proposes it is there
//!            else HELD, unless it is refused here, or a process ended with it
//!            else what is served stays, or what was served before the trial
//! ```
//!
//! A file that is not there changes nothing: it may have been removed with a store. Of several
//! processes that serve from one store, one takes what is there, and the next one after it.

mod followed;
mod start;
mod texts;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use sealane_lanes::start::LaneHandle;
use sealane_store::{Answerer, Given, HELD, PROPOSED, Proposed, SETTLED};

use super::Control;
use super::build::build;
use super::sockets::try_new;
use super::watchdog::Well;
use crate::admin::Verdict;
use crate::config::{Config, FleetText, FromFleet, Mistake};
use crate::operator::{Priority, say, say_at};
use crate::process::landlock;
use crate::relay::Relay;
use followed::facts;
pub(crate) use start::{Begun, own_part, with_fleets_part};
use texts::AGAIN_AFTER;
pub(super) use texts::FleetTexts;

impl Control {
    /// Looks at what a fleet gives to this machine and proposes to it, where its configuration
    /// includes that.
    pub(super) fn look_after_fleet(&mut self) {
        if self.fleet.is_leaving {
            return;
        }
        let Some(FromFleet { store, .. }) = &self.config.fleet else {
            if self.fleet.begun_in.is_some() {
                self.fleet.leave(false);
                self.fleet = FleetTexts::default();
                let mut state = self.state.lock();
                (state.fleet_refused, state.is_without_fleet) = (None, false);
            }
            return;
        };
        let store = store.clone();
        let looked = self.follow_fleet(&store);
        let problem = looked.err().map(|error| {
            format!(
                "what the fleet gives is neither taken nor answered: {}: {error}; see that this \
                 user may read and write there; what is served goes on",
                store.display()
            )
        });
        if let Some(problem) =
            problem.as_ref().filter(|now| self.fleet.problem.as_ref() != Some(now))
        {
            say_at(Priority::Warning, problem);
        }
        self.fleet.problem = problem;
    }

    /// Answers to the fleet from the start on, if this is the process that does.
    pub(crate) fn answer_fleet(&mut self, answerer: Option<Answerer>) {
        self.fleet.answerer = answerer;
        self.fleet.is_waiting = self.fleet.answerer.is_none();
        self.note_lack();
    }

    /// Notes whether nothing of the fleet's is served that was before. If another process answers,
    /// that serves it.
    fn note_lack(&self) {
        let fleet = self.config.fleet.as_ref().filter(|fleet| fleet.given.is_none());
        let is_without = fleet.is_some_and(|fleet| fleet.store.join(SETTLED).exists());
        self.state.lock().is_without_fleet = is_without && !self.fleet.is_waiting;
    }

    fn follow_fleet(&mut self, store: &Path) -> io::Result<()> {
        // What fails of it keeps nothing else from being done: a trial ends on a full disk too.
        let followed = self.fleet.follow(store);
        if self.fleet.answerer.is_none() && self.fleet.before_trial.is_none() {
            self.note_lack();
            return followed;
        }
        let settled = self.settle(store);
        let looked = self.look_at_proposed(store);
        let taken = self.take_what_is_meant(store);
        // Before it is answered: whoever reads that may ask.
        self.state.lock().fleet_refused = self.fleet.wrong().map(|(given, _)| given.number);
        self.note_lack();
        let number = self.given().map_or(0, |given| given.number);
        let told = self.fleet.tell(number, self.well());
        followed.and(settled).and(looked).and(taken).and(told)
    }

    /// A verdict with what is wrong with the fleet's text, if something is.
    pub(super) fn with_fleets_refusal(&self, mut verdict: Verdict) -> Verdict {
        let told = |(given, refusal): &(Given, String)| told_refused(given.number, refusal);
        verdict.warnings.extend(self.fleet.wrong().map(told));
        verdict
    }

    /// The fleet's text that is served.
    pub(super) fn given(&self) -> Option<&Given> {
        self.config.fleet.as_ref()?.given.as_ref()
    }

    /// When all lanes were known to serve what this process does, if they are.
    fn well(&self) -> Option<Well> {
        let serves = |lane: &LaneHandle<Relay>| lane.counters.generation.value() == self.number;
        self.watchdog.well().filter(|_| self.lanes.iter().all(serves))
    }

    /// Once a text has been served for a while, the next start begins with it.
    fn settle(&mut self, store: &Path) -> io::Result<()> {
        let well = self.well();
        let has_settled = |at| well.is_some_and(|well| well.time_since(at) >= SETTLED_AFTER);
        if self.fleet.taken_at.is_some_and(|at| !has_settled(at)) {
            return Ok(());
        }
        let is_on_trial = self.fleet.is_on_trial();
        if self.fleet.taken_at.take().is_some() {
            self.fleet.mark_taken(store, None)?;
        }
        if is_on_trial {
            return Ok(());
        }
        let path = store.join(SETTLED);
        if let Some(given) = self.given()
            && (self.fleet.settled.is_none() || facts(&path) != self.fleet.settled)
        {
            if Given::read(store, SETTLED).ok().flatten().as_ref() != Some(given) {
                given.put(store, SETTLED)?;
            }
            self.fleet.settled = facts(&path);
        }
        Ok(())
    }

    /// Looks at the text that is proposed, once.
    fn look_at_proposed(&mut self, store: &Path) -> io::Result<()> {
        let Some(Proposed { given, .. }) = self.fleet.proposed() else { return Ok(()) };
        let is_judged = self.fleet.is_judged(given);
        if is_judged || self.fleet.answerer.is_none() {
            return Ok(());
        }
        let (given, number) = (given.clone(), given.number);
        let refusal = match self.fleet.has_failed(&given) {
            true => ENDED.to_owned(),
            false => {
                self.fleet.mark_look(store, Some(&given))?;
                let wrong = self.wrong_with(PROPOSED, &given).join("\n");
                self.fleet.mark_look(store, None)?;
                wrong
            }
        };
        match refusal.is_empty() {
            true => say(&format!("the fleet's configuration {number} is in order here")),
            false => say_refused(number, &refusal),
        }
        self.fleet.judged = Some((given, refusal));
        Ok(())
    }

    /// Has the text served that is meant to be, if it is not.
    fn take_what_is_meant(&mut self, store: &Path) -> io::Result<()> {
        let meant = self.fleet.meant(store, self.given());
        let Some((text, is_on_trial)) = meant else { return Ok(()) };
        if text.as_ref() == self.given() {
            if !is_on_trial && self.fleet.before_trial.take().is_some() {
                self.fleet.settled = None;
            }
            return Ok(());
        }
        if !is_on_trial && self.fleet.kept_from_it.is_some_and(|at| at.elapsed() < AGAIN_AFTER) {
            return Ok(());
        }
        let before = is_on_trial.then(|| Box::new(self.config.clone()));
        let refusal = match &text {
            Some(given) if self.fleet.has_failed(given) => ENDED.to_owned(),
            _ => self.take(store, text.as_ref())?,
        };
        if refusal.is_empty() {
            if !is_on_trial {
                self.fleet.accept(text.as_ref());
            }
            let number = text.map_or(0, |given| given.number);
            let trial = if is_on_trial { ", on trial" } else { "" };
            say(&format!("the fleet's configuration {number} is served{trial}"));
            self.fleet.trial_since = is_on_trial.then(Instant::now);
            // What was served before one trial was before the next, too.
            let first = self.fleet.before_trial.take();
            self.fleet.before_trial = before.map(|before| first.unwrap_or(before));
            return Ok(());
        }
        match text {
            Some(given) if is_on_trial => {
                say_refused(given.number, &refusal);
                self.fleet.judged = Some((given, refusal));
            }
            Some(given) => self.refuse(given, refusal),
            None => say_refused(0, &refusal),
        }
        if !is_on_trial && let Some(before) = self.fleet.before_trial.take() {
            self.go_back(before);
        }
        Ok(())
    }

    /// Notes that a text is refused that is not on trial, and says so if that is news.
    pub(super) fn refuse(&mut self, given: Given, refusal: String) {
        let (number, text) = (given.number, refusal.clone());
        if self.fleet.refuse(given, refusal) {
            say_refused(number, &text);
        }
    }

    /// Takes a text, or none, and returns what is wrong with it.
    fn take(&mut self, store: &Path, given: Option<&Given>) -> io::Result<String> {
        let settled = Given::read(store, SETTLED).ok().flatten();
        let is_new = given.is_some() && settled.as_ref() != given;
        let before = self.fleet.taken_at.and(self.fleet.trouble.taken);
        if let Some(given) = given.filter(|_| is_new) {
            let marked = self.fleet.mark_taken(store, Some(given.mark()));
            // What ends a trial is taken in any case.
            if self.fleet.before_trial.is_none() {
                marked?;
            }
        }
        let unknown = given.filter(|given| !self.fleet.is_in_order(given)).cloned();
        let mut wrong = unknown.map(|given| self.wrong_with(HELD, &given)).unwrap_or_default();
        if wrong.is_empty() {
            wrong = self.reload_with(&FleetText::This(HELD, given.cloned())).errors;
        }
        match wrong.is_empty() {
            true => {
                self.fleet.settled = None;
                self.fleet.taken_at = Some(Instant::now());
            }
            // What is served on may still do harm. If this fails, a later start leaves out what was
            // refused here.
            false if is_new => drop(self.fleet.mark_taken(store, before)),
            false => {}
        }
        Ok(wrong.join("\n"))
    }

    /// Serves what was served before a trial, though the file of this machine, or what should
    /// hold, is not in order.
    fn go_back(&mut self, before: Box<Config>) {
        match self.serve((*before).clone()) {
            Ok(_) => {
                say("what was served before the trial is served again");
                // What this one reads may be of folders that the trial's did not name.
                self.follow_files();
                self.fleet.taken_at = Some(Instant::now());
                self.fleet.settled = None;
                let current = self.given().cloned();
                self.fleet.accept(current.as_ref());
            }
            Err(errors) => {
                let text = format!(
                    "what was served before the trial is refused too, and tried again in {} s:\n{}",
                    AGAIN_AFTER.as_secs(),
                    errors.join("\n")
                );
                say_at(Priority::Error, &text);
                self.fleet.before_trial = Some(before);
                self.fleet.kept_from_it = Some(Instant::now());
            }
        }
    }

    /// What a reload would refuse with this text, as one of the file `name`: all of it is read and
    /// built, its addresses are tried, and nothing is published.
    fn wrong_with(&mut self, name: &'static str, given: &Given) -> Vec<String> {
        let Some(file) = self.source.file() else { return Vec::new() };
        let text = FleetText::This(name, Some(given.clone()));
        let config = match Config::load_anew(file, self.config.lanes, &text) {
            Ok(config) => config,
            Err(mistakes) => return mistakes.0.iter().map(Mistake::to_string).collect(),
        };
        let outside = landlock::mistakes(Some(file), &config);
        if !outside.is_empty() {
            return outside;
        }
        let (config, _) = self.keep_what_needs_a_restart(config);
        let names = self.registries.names.clone();
        let built = build(&config, self.number + 1, &mut self.registries);
        let tried = built.and_then(|built| try_new(&built.generation, &config, &self.bound));
        let wrong = tried.err().unwrap_or_default();
        self.registries.names = names;
        self.registries.health.prune();
        wrong
    }
}

fn say_refused(number: u64, refusal: &str) {
    say_at(Priority::Error, &told_refused(number, refusal));
}

fn told_refused(number: u64, refusal: &str) -> String {
    format!(
        "the fleet's configuration {number} is refused here, what is served goes on:\n{refusal}"
    )
}

/// Why a text is not taken that was once.
const ENDED: &str = "the process that served by it last ended soon after it had begun: see what it \
                     said then, mend that, and try again with: sealane reload";
/// For how long a process has to serve by a text before the next one begins with it.
const SETTLED_AFTER: Duration = Duration::from_secs(15);
