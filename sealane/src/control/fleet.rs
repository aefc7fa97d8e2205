//! What a fleet gives to the configuration: looked at before it holds, taken when it does, and
//! answered in the store that it comes by.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sealane_store::{Answer, Given, HELD, PROPOSED};

use super::Control;
use super::build::build;
use super::kept::KeptSockets;
use super::sockets::open_new;
use crate::config::{Config, Mistake};
use crate::operator::{Priority, say, say_at};
use crate::process::landlock;

/// What was seen of a fleet's texts, and answered.
#[derive(Default)]
pub(super) struct FleetAnswers {
    answer: Answer,
    seen: Option<[Option<Facts>; 2]>,
    /// The folder in which an answer lies.
    told: Option<PathBuf>,
}

/// What differs of a file that was replaced: its inode, and when.
type Facts = (u64, i64, i64);

impl FleetAnswers {
    /// Has everything looked at again: what was missing may be there.
    pub(super) fn look_again(&mut self) {
        self.seen = None;
        self.answer.checked = 0;
    }
}

/// Who has ended takes nothing any more.
impl Drop for FleetAnswers {
    fn drop(&mut self) {
        self.told.take().map(|told| Answer::take_back(&told));
    }
}

impl Control {
    /// Looks at what a fleet gives to this machine and proposes to it, where its configuration
    /// includes that and either is new.
    pub(super) fn look_after_fleet(&mut self) {
        let store = self.config.fleet.as_ref().map(|fleet| fleet.store.clone());
        if self.fleet.told.is_some() && self.fleet.told != store {
            // Nobody takes there what a fleet gives any more.
            self.fleet.told.take().map(|told| Answer::take_back(&told));
            self.fleet.seen = None;
        }
        let Some(store) = store else { return };
        let seen = [HELD, PROPOSED].map(|file| facts(&store.join(file)));
        if self.fleet.seen == Some(seen) {
            return;
        }
        let before = self.fleet.answer.clone();
        self.take_held(&store);
        self.look_at_proposed(&store);
        self.fleet.seen = Some(seen);
        let answer = &self.fleet.answer;
        if *answer != before || self.fleet.told.is_none() {
            let left = answer.leave(&store);
            self.fleet.told = Some(store);
            if let Err(error) = left {
                let text = format!("the fleet is not answered: {error}; its command will wait");
                say_at(Priority::Warning, &text);
            }
        }
    }

    /// The number of the fleet's text that is served.
    fn fleet_number(&self) -> u64 {
        self.config.fleet.as_ref().map_or(0, |fleet| fleet.number)
    }

    /// Takes the text that holds, if it is not what is served.
    fn take_held(&mut self, store: &Path) {
        let held = Given::read(store, HELD).ok().flatten().map_or(0, |held| held.number);
        if held != self.fleet_number() && self.fleet.answer.accepts(held) != Some(false) {
            let answer = self.reload();
            if !answer.is_accepted() {
                let refusal = answer.errors.join("\n");
                self.fleet.answer = Answer { holds: 0, checked: held, refusal };
            }
        }
        self.fleet.answer.holds = self.fleet_number();
    }

    /// Looks at the text that is proposed, once.
    fn look_at_proposed(&mut self, store: &Path) {
        let proposed = Given::read(store, PROPOSED).ok().flatten().map(|given| given.number);
        if let Some(number) = proposed.filter(|number| *number != self.fleet.answer.checked) {
            let refusal = self.wrong_with_proposed().join("\n");
            match refusal.is_empty() {
                true => say(&format!("the fleet's configuration {number} is in order here")),
                false => {
                    let text = format!(
                        "the fleet's configuration {number} is refused, what is served goes on:\n\
                         {refusal}"
                    );
                    say_at(Priority::Error, &text);
                }
            }
            self.fleet.answer.checked = number;
            self.fleet.answer.refusal = refusal;
        }
        let is_refused = proposed.is_some() && !self.fleet.answer.refusal.is_empty();
        self.state.lock().fleet_refused = is_refused.then_some(self.fleet.answer.checked);
    }

    /// What a reload would refuse if the text that is proposed held: all of it is read and built,
    /// its addresses are bound, and nothing is published.
    fn wrong_with_proposed(&mut self) -> Vec<String> {
        let Some(file) = self.source.file() else { return Vec::new() };
        let config = match Config::load_proposed(file, self.config.lanes) {
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
        let none = &mut KeptSockets::default();
        let opened =
            built.and_then(|built| open_new(&built.generation, &config, &self.bound, none));
        let wrong = opened.map(drop).err().unwrap_or_default();
        self.registries.names = names;
        self.registries.health.prune();
        wrong
    }
}

fn facts(path: &Path) -> Option<Facts> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.ino(), facts.mtime(), facts.mtime_nsec()))
}
