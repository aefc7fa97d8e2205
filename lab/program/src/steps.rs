//! Commands of this binary one after the other, each in a process of its own, within a budget of
//! time, and a page of what they measured: what `quick` and `writeups` have in common. A step that
//! fails or runs out of time does not take the others with it.

use std::{
    fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sealane_lab_harness::{child::Child, interrupt::Interrupt};
use sealane_lab_model::{
    document::{Judgement, Reason},
    error::Error,
};
use sealane_lab_report::page::{self, Page};

/// One command of the lab.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    /// The name of its document's file.
    pub(crate) name: &'static str,
    /// What it does, for people.
    pub(crate) title: &'static str,
    /// This one, or another build of the lab.
    pub(crate) program: PathBuf,
    /// The subcommand and its arguments, without `--json`.
    pub(crate) arguments: Vec<String>,
    /// About how long it takes on 2 cores.
    pub(crate) seconds: u64,
    /// Why it cannot run here, if so.
    pub(crate) lacks: Option<String>,
}

impl Step {
    /// After so long it is stopped: another step wants its time too.
    fn seconds_max(&self) -> u64 {
        self.seconds * 2
    }
}

/// Where the results go.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Output {
    /// The page to write [default: sealane-lab.html]
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// Keeps the documents of the steps in that folder, which must exist
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// Takes all steps and lets `draw` make the page of their documents, given the steps that were left
/// out or failed; what `draw` made beside the page, and whether every step went well. Ctrl-C ends
/// the step that runs; what is measured is drawn.
///
/// # Errors
/// [`Error::Interrupted`]; or what kept every step from giving figures, or the page from being
/// written.
pub(crate) fn run<T>(
    steps: &[Step],
    budget_seconds: u64,
    output: &Output,
    draw: impl FnOnce(&[PathBuf], Judgement, &Path) -> Result<(Page, T), Error>,
) -> Result<(T, bool), Error> {
    let interrupt = Interrupt::catch()?;
    let folder = tempfile::tempdir().map_err(Error::io("make a temporary folder"))?;
    let documents = output.keep.as_deref().unwrap_or(folder.path());
    let mut course = Course::new(steps, budget_seconds);
    for (number, step) in steps.iter().enumerate() {
        if interrupt.is_pressed() {
            break;
        }
        course.step(number, step, documents, folder.path(), &interrupt);
    }
    let Course { bar, taken, written, all_well, .. } = course;
    bar.finish_and_clear();
    if written.is_empty() {
        if interrupt.is_pressed() {
            return Err(Error::Interrupted);
        }
        let why = taken.notes().join("; ");
        return Err(Error::Check(format!("no step gave figures: {why}")));
    }
    let path = output.output.as_deref().unwrap_or(Path::new(PAGE));
    let (page, beside) = draw(&written, taken, path)?;
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let said = writeln!(io::stdout(), "{}\n\n{}", page.headline, path.display());
    said.map_err(Error::io("standard output"))?;
    if interrupt.is_pressed() { Err(Error::Interrupted) } else { Ok((beside, all_well)) }
}

/// What has been done so far.
struct Course {
    begun: Instant,
    budget_seconds: u64,
    bar: ProgressBar,
    /// Steps that were left out, or failed.
    taken: Judgement,
    /// Documents with figures.
    written: Vec<PathBuf>,
    all_well: bool,
}

impl Course {
    fn new(steps: &[Step], budget_seconds: u64) -> Self {
        let seconds = steps.iter().filter(|step| step.lacks.is_none()).map(|step| step.seconds);
        let terminal = io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(seconds.sum()), target);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} about {msg}") {
            bar.set_style(style);
        }
        let (taken, written) = (Judgement::default(), Vec::new());
        Self { begun: Instant::now(), budget_seconds, bar, taken, written, all_well: true }
    }

    fn step(
        &mut self,
        number: usize,
        step: &Step,
        documents: &Path,
        logs: &Path,
        interrupt: &Interrupt,
    ) {
        if let Some(lacks) = &step.lacks {
            return self.leave_out(step, lacks);
        }
        let left = self.budget_seconds.saturating_sub(self.begun.elapsed().as_secs());
        if left < step.seconds {
            let seconds = step.seconds;
            let why = format!("it takes about {seconds} s, and {left} s of the time are left");
            return self.leave_out(step, &why);
        }
        self.say(&format!("{} (about {} s)", step.title, step.seconds));
        let document = documents.join(format!("{}.json", step.name));
        // A step that fails must not show the figures of a run before.
        let _ = fs::remove_file(&document);
        let mut command = Command::new(&step.program);
        command.args(&step.arguments).arg("--json").arg(&document);
        let ended = match self.wait(step, command, &logs.join(format!("{number}.log")), interrupt) {
            // Asked to end, it keeps whole rounds.
            Ok(()) | Err(Error::Interrupted) => None,
            Err(Error::Check(why)) => Some(why),
            Err(error) => Some(error.to_string()),
        };
        self.all_well &= ended.is_none();
        match document.is_file().then(|| page::judged(&document)) {
            // Its failed checks say why, and are counted by themselves.
            Some(Ok(judgement)) if !judgement.failed.is_empty() => self.written.push(document),
            Some(Err(error)) => self.failed(step, &error.to_string()),
            drawn => {
                self.written.extend(drawn.map(|_| document));
                if let Some(why) = ended {
                    self.failed(step, &why);
                }
            }
        }
        let done = self.bar.position().max(self.begun.elapsed().as_secs());
        self.bar.set_position(done);
    }

    /// Until it ends, its time is up, or the operator presses Ctrl-C.
    fn wait(
        &self,
        step: &Step,
        mut command: Command,
        log: &Path,
        interrupt: &Interrupt,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        let before = self.bar.position();
        let mut child = Child::logged(&mut command, log)?;
        loop {
            if let Some(status) = child.ended() {
                let reason = || child.last_line();
                return if status.success() { Ok(()) } else { Err(Error::Check(reason())) };
            }
            if interrupt.is_pressed() {
                return Err(Error::Interrupted);
            }
            let elapsed = begun.elapsed().as_secs();
            if self.begun.elapsed().as_secs() >= self.budget_seconds || elapsed > step.seconds_max()
            {
                let why = format!("it was stopped after {elapsed} s");
                return Err(Error::Check(why));
            }
            // A step that takes longer than expected must not run into the next one's part.
            self.bar.set_position(before + elapsed.min(step.seconds));
            let left = self.bar.length().unwrap_or(0).saturating_sub(self.bar.position());
            self.bar.set_message(format!("{left} s left: {}", step.title));
            thread::sleep(POLL);
        }
    }

    fn leave_out(&mut self, step: &Step, why: &str) {
        self.say(&format!("Left out: {}: {why}", step.title));
        self.taken.left_out.push(Reason { of: step.title.to_owned(), why: why.to_owned() });
    }

    fn failed(&mut self, step: &Step, why: &str) {
        self.say(&format!("Not whole: {}: {why}", step.title));
        self.taken.failed.push(Reason { of: step.title.to_owned(), why: why.to_owned() });
    }

    fn say(&self, line: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{line}");
        });
    }
}

const PAGE: &str = "sealane-lab.html";
const POLL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_does_not_show_an_older_document() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let step = Step {
            name: "old",
            title: "nothing",
            program: "false".into(),
            arguments: Vec::new(),
            seconds: 1,
            lacks: None,
        };
        let document = folder.join("old.json");
        sealane_lab_harness::journal::Journal::begin(Vec::new(), Some(&document))
            .save(true)
            .unwrap();
        let mut course = Course::new(std::slice::from_ref(&step), 60);
        course.step(0, &step, folder, folder, &Interrupt::default());
        assert!(!course.all_well && course.written.is_empty(), "{:?}", course.written);
        assert_eq!(course.taken.failed[0].of, "nothing");
    }
}
