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

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sealane_store::{Answer, Answerer, Given, HELD, PROPOSED, Proposed, SETTLED, Trouble};

use super::Control;
use super::build::build;
use super::kept::KeptSockets;
use super::sockets::open_new;
use crate::config::{Config, FleetText, FromFleet, Mistake, Mistakes};
use crate::operator::{Priority, say, say_at};
use crate::process::landlock;

/// What is known of a fleet's texts beside the one that is served.
pub(super) struct FleetTexts {
    /// Whoever answers; none while another process does.
    answerer: Option<Answerer>,
    /// What was said last, if it was left.
    told: Option<Answer>,
    /// This process, as answers tell it from others.
    process: u64,
    held: Followed<Given>,
    proposed: Followed<Proposed>,
    /// How the file with what is served looked, once that had settled.
    settled: Option<Facts>,
    /// The numbers of texts with which processes before this one ended; none known before this one
    /// has begun to answer.
    failed: BTreeSet<u64>,
    has_begun: bool,
    /// What was looked at of what is proposed, and what is wrong with it.
    judged: Option<(Given, String)>,
    /// What holds and is refused, and why.
    refused: Option<(Given, String)>,
    /// What was served before the text that is on trial; none: none is.
    before_trial: Option<Box<Config>>,
    /// When it was tried last to serve that again, and was refused.
    kept_from_it: Option<Instant>,
    /// Since when what is served is, if it was not known to do no harm.
    taken_at: Option<Instant>,
    /// What is wrong with the folder, as it was said.
    problem: Option<String>,
    is_leaving: bool,
}

impl Default for FleetTexts {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            answerer: None,
            told: None,
            process: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            held: Followed::default(),
            proposed: Followed::default(),
            settled: None,
            failed: BTreeSet::new(),
            has_begun: false,
            judged: None,
            refused: None,
            before_trial: None,
            kept_from_it: None,
            taken_at: None,
            problem: None,
            is_leaving: false,
        }
    }
}

impl FleetTexts {
    /// Has what is refused looked at again: what was missing may be there.
    pub(super) fn look_again(&mut self) {
        self.judged.take_if(|(_, refusal)| !refusal.is_empty());
        (self.refused, self.kept_from_it) = (None, None);
    }

    /// The same, and with what a process ended before: somebody wants it.
    pub(super) fn try_all_again(&mut self) {
        self.failed.clear();
        self.look_again();
    }

    /// The process ends, as it was told: by no fault of a text. Who comes next may answer.
    pub(super) fn leave(&mut self) {
        if let Some(answerer) = &self.answerer
            && self.taken_at.take().is_some()
        {
            // If that fails, the next process leaves out a text that does no harm, and says so.
            let _ = self.mark(answerer.folder(), None);
        }
        self.end();
    }

    /// The process ends, by whatever fault: it answers no more.
    pub(super) fn end(&mut self) {
        (self.is_leaving, self.answerer) = (true, None);
    }

    /// Notes what this process begins, or that this does no harm.
    fn mark(&self, store: &Path, begun: Option<u64>) -> io::Result<()> {
        Trouble { begun, failed: self.failed.clone() }.leave(store)
    }

    /// Reads what is new in the folder of the store.
    fn follow(&mut self, store: &Path, current: Option<u64>) -> io::Result<()> {
        if self.answerer.as_ref().is_none_or(|one| one.folder() != store || !one.is_there()) {
            (self.answerer, self.told) = (None, None);
            self.answerer = Answerer::of(store)?;
        }
        if self.answerer.is_some() && !self.has_begun {
            self.has_begun = true;
            let settled = Given::read(store, SETTLED).ok().flatten().map(|given| given.number);
            let Trouble { begun, failed } = Trouble::read(store);
            self.failed = failed;
            self.failed.extend(begun.filter(|_| begun != settled && begun != current));
        }
        self.held.follow(&store.join(HELD), || Given::read(store, HELD))?;
        self.proposed.follow(&store.join(PROPOSED), || Proposed::read(store))
    }

    /// The text that is meant to be served instead of `current`, and whether that is on trial.
    fn meant(&self, store: &Path, current: Option<&Given>) -> Option<(Option<Given>, bool)> {
        let trial = self.proposed.content.as_ref().filter(|proposed| {
            proposed.is_on_trial
                && self.answerer.is_some()
                && self.proposed.since.is_some_and(|at| at.elapsed() < PROPOSED_TIME)
                // What is served is looked at again after a reload, and served meanwhile.
                && (self.is_in_order(&proposed.given)
                    || !self.is_judged(&proposed.given) && current == Some(&proposed.given))
        });
        if let Some(trial) = trial {
            return Some((Some(trial.given.clone()), true));
        }
        let may_be = |given: &Given| self.refused.as_ref().is_none_or(|(it, _)| it != given);
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

    /// Whether this is what was looked at last.
    fn is_judged(&self, given: &Given) -> bool {
        self.judged.as_ref().is_some_and(|(it, _)| it == given)
    }

    /// The same, and nothing is wrong with it.
    fn is_in_order(&self, given: &Given) -> bool {
        self.is_judged(given) && self.judged.as_ref().is_some_and(|(_, wrong)| wrong.is_empty())
    }

    fn refusal(&self) -> Option<&(Given, String)> {
        let proposed = self.proposed.content.as_ref().and(self.judged.as_ref());
        proposed.or(self.refused.as_ref())
    }

    /// Says how it is, if that is new.
    fn tell(&mut self, number: u64) -> io::Result<()> {
        let (checked, refusal) =
            self.refusal().map_or((0, ""), |(given, refusal)| (given.number, refusal));
        let (refusal, process) = (refusal.to_owned(), self.process);
        let told = self.told.as_ref().map_or(0, |told| told.beat);
        let beat = told + u64::from(self.before_trial.is_some());
        let answer = Answer { holds: number, checked, refusal, process, beat };
        let Some(answerer) = &self.answerer else { return Ok(()) };
        if self.told.as_ref() != Some(&answer) {
            answerer.leave(&answer)?;
            self.told = Some(answer);
        }
        Ok(())
    }
}

impl Control {
    /// Looks at what a fleet gives to this machine and proposes to it, where its configuration
    /// includes that.
    pub(super) fn look_after_fleet(&mut self) {
        if self.fleet.is_leaving {
            return;
        }
        let Some(FromFleet { store, .. }) = &self.config.fleet else {
            if self.fleet.has_begun {
                self.fleet.leave();
                self.fleet = FleetTexts::default();
                self.state.lock().fleet_refused = None;
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

    fn follow_fleet(&mut self, store: &Path) -> io::Result<()> {
        let current = self.given().map(|given| given.number);
        // What fails of it keeps nothing else from being done: a trial ends on a full disk too.
        let followed = self.fleet.follow(store, current);
        if self.fleet.answerer.is_none() && self.fleet.before_trial.is_none() {
            return followed;
        }
        let settled = self.settle(store);
        let looked = self.look_at_proposed(store);
        let taken = self.take_what_is_meant(store);
        let refused = self.fleet.refusal().filter(|(_, refusal)| !refusal.is_empty());
        // Before it is answered: whoever reads that may ask.
        self.state.lock().fleet_refused = refused.map(|(given, _)| given.number);
        let number = self.given().map_or(0, |given| given.number);
        let told = self.fleet.tell(number);
        followed.and(settled).and(looked).and(taken).and(told)
    }

    /// The fleet's text that is served.
    fn given(&self) -> Option<&Given> {
        self.config.fleet.as_ref()?.given.as_ref()
    }

    /// Once a text has been served for a while, the next start begins with it.
    fn settle(&mut self, store: &Path) -> io::Result<()> {
        if self.fleet.taken_at.is_some_and(|at| at.elapsed() < SETTLED_AFTER) {
            return Ok(());
        }
        let is_on_trial = self.fleet.before_trial.is_some();
        let current = self.given().map(|given| given.number);
        if self.fleet.taken_at.take().is_some() {
            if let Some(number) = current.filter(|_| !is_on_trial) {
                // What is older does not come again.
                self.fleet.failed.retain(|failed| *failed > number);
            }
            self.fleet.mark(store, None)?;
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
        let Some(Proposed { given, .. }) = &self.fleet.proposed.content else { return Ok(()) };
        let is_judged = self.fleet.is_judged(given);
        // One at a time: the next process is to know which one this ended with.
        if is_judged || self.fleet.answerer.is_none() || self.fleet.taken_at.is_some() {
            return Ok(());
        }
        let (given, number) = (given.clone(), given.number);
        let refusal = match self.fleet.failed.contains(&number) {
            true => ENDED.to_owned(),
            false => {
                self.fleet.mark(store, Some(number))?;
                let wrong = self.wrong_with(PROPOSED, &given).join("\n");
                self.fleet.mark(store, None)?;
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
        if !is_on_trial && self.fleet.kept_from_it.is_some_and(|at| at.elapsed() < KEPT_FROM_TIME) {
            return Ok(());
        }
        let before = is_on_trial.then(|| Box::new(self.config.clone()));
        let refusal = match text.as_ref().map(|given| given.number) {
            Some(number) if self.fleet.failed.contains(&number) => ENDED.to_owned(),
            _ => self.take(store, text.as_ref())?,
        };
        if refusal.is_empty() {
            let number = text.map_or(0, |given| given.number);
            let trial = if is_on_trial { ", on trial" } else { "" };
            say(&format!("the fleet's configuration {number} is served{trial}"));
            // What was served before one trial was before the next, too.
            let first = self.fleet.before_trial.take();
            self.fleet.before_trial = before.map(|before| first.unwrap_or(before));
            return Ok(());
        }
        let number = text.as_ref().map_or(0, |given| given.number);
        say_refused(number, &refusal);
        match (is_on_trial, text) {
            (true, Some(given)) => self.fleet.judged = Some((given, refusal)),
            (false, Some(given)) => self.fleet.refused = Some((given, refusal)),
            (_, None) => {}
        }
        if !is_on_trial && let Some(before) = self.fleet.before_trial.take() {
            self.go_back(before);
        }
        Ok(())
    }

    /// Takes a text, or none, and returns what is wrong with it.
    fn take(&mut self, store: &Path, given: Option<&Given>) -> io::Result<String> {
        let settled = Given::read(store, SETTLED).ok().flatten();
        let is_new = given.is_some() && settled.as_ref() != given;
        if let Some(given) = given.filter(|_| is_new) {
            let marked = self.fleet.mark(store, Some(given.number));
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
            // If that fails, a later start leaves out what was refused here.
            false if is_new => drop(self.fleet.mark(store, None)),
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
                self.fleet.taken_at = Some(Instant::now());
                self.fleet.settled = None;
                let current = self.given().cloned();
                self.fleet.refused.take_if(|(refused, _)| Some(&*refused) == current.as_ref());
            }
            Err(errors) => {
                let text = format!(
                    "what was served before the trial is refused too, and tried again in {} s:\n{}",
                    KEPT_FROM_TIME.as_secs(),
                    errors.join("\n")
                );
                say_at(Priority::Error, &text);
                self.fleet.before_trial = Some(before);
                self.fleet.kept_from_it = Some(Instant::now());
            }
        }
    }

    /// What a reload would refuse with this text, as one of the file `name`: all of it is read and
    /// built, its addresses are bound, and nothing is published.
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
        let none = &mut KeptSockets::default();
        let opened =
            built.and_then(|built| open_new(&built.generation, &config, &self.bound, none));
        let wrong = opened.map(drop).err().unwrap_or_default();
        self.registries.names = names;
        self.registries.health.prune();
        wrong
    }
}

/// The configuration of a file, without what a fleet gives to it.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn own_part(file: &Path) -> Result<Config, Mistakes> {
    Config::load_with(file, &FleetText::This(SETTLED, None))
}

/// The configuration of a file that is in order by itself, `own`, with the text of a fleet by which
/// a process has served before: without it, if that is not in order any more.
pub(crate) fn with_fleets_part(file: &Path, own: Config) -> Config {
    let Some(FromFleet { store, .. }) = &own.fleet else { return own };
    let settled = match Given::read(store, SETTLED) {
        Ok(Some(settled)) => settled,
        Ok(None) => {
            let text =
                "nothing of a fleet's was served here before; it is once the agent brings it";
            say(&format!("include: store:{}: {text}", store.display()));
            return own;
        }
        Err(error) => {
            let path = store.join(SETTLED);
            let text = format!("{}: {error}; nothing of a fleet's is served yet", path.display());
            say_at(Priority::Error, &text);
            return own;
        }
    };
    let number = settled.number;
    let trouble = Trouble::read(store);
    if trouble.begun == Some(number) {
        // For once: what refused it may have been something else. If that cannot be written, it is
        // left out once more.
        let _ = Trouble { begun: None, ..trouble }.leave(store);
        let text = "the last start with it was refused; it is tried once this one serves";
        say_at(Priority::Error, &format!("the fleet's configuration {number} is left out: {text}"));
        return own;
    }
    Config::load_with(file, &FleetText::This(SETTLED, Some(settled))).unwrap_or_else(|mistakes| {
        say_refused(number, &mistakes.to_string());
        own
    })
}

/// Notes that a start was refused with what a fleet gives: the next one is without.
pub(crate) fn leave_out_next_time(fleet: &FromFleet) {
    let Some(given) = &fleet.given else { return };
    let begun = Some(given.number);
    let text = match (Trouble { begun, ..Trouble::read(&fleet.store) }).leave(&fleet.store) {
        Ok(()) => "the next start is without what the fleet gives".to_owned(),
        Err(error) => format!("{}: {error}", fleet.store.display()),
    };
    say_at(Priority::Error, &text);
}

fn say_refused(number: u64, refusal: &str) {
    let text = format!(
        "the fleet's configuration {number} is refused here, what is served goes on:\n{refusal}"
    );
    say_at(Priority::Error, &text);
}

/// A file that another process replaces.
struct Followed<T> {
    content: Option<T>,
    /// How it looked last, if it was there; the outer none: nobody has looked.
    facts: Option<Option<Facts>>,
    /// When it was replaced under this process's eyes.
    since: Option<Instant>,
}

impl<T> Default for Followed<T> {
    fn default() -> Self {
        Self { content: None, facts: None, since: None }
    }
}

impl<T> Followed<T> {
    fn follow(
        &mut self,
        path: &Path,
        read: impl FnOnce() -> io::Result<Option<T>>,
    ) -> io::Result<()> {
        let now = facts(path);
        if self.facts != Some(now) {
            self.content = read()?;
            // One that lies there at first may be of a trial that ended long ago.
            self.since = self.facts.map(|_| Instant::now());
            self.facts = Some(now);
        }
        Ok(())
    }
}

/// What differs of a file that was replaced: its inode, and when.
type Facts = (u64, i64, i64);

fn facts(path: &Path) -> Option<Facts> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.ino(), facts.ctime(), facts.ctime_nsec()))
}

/// Why a text is not taken that was once.
const ENDED: &str = "the process that served by it last ended soon after it had begun: see what it \
                     said then, mend that, and try again with: sealane reload";
/// For how long it is not tried again to end a trial that cannot be ended.
const KEPT_FROM_TIME: Duration = Duration::from_secs(60);
/// For how long what is proposed is believed without being written again.
const PROPOSED_TIME: Duration = Duration::from_secs(15);
/// For how long a process has to serve by a text before the next one begins with it.
const SETTLED_AFTER: Duration = Duration::from_secs(5);
