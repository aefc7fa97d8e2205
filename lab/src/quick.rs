//! The command `quick`: what is on this machine, measured in under three minutes and drawn as one
//! page. Each of the steps of its plan is another command of this binary, in a process of its
//! own: one that fails or runs out of time does not take the others with it.

mod child;
mod plan;

use std::{
    env, fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{error::Error, interrupt::Interrupt, page};

use child::Child;
use plan::{BUDGET_SECONDS, Step};

/// Its arguments.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The page to write
    #[arg(short, long, value_name = "FILE.html", default_value = "sealane-lab.html")]
    output: PathBuf,
    /// Keeps the documents of the steps in that folder, which must exist
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// `true` if every step went well. Ctrl-C ends the step that runs; what is measured is drawn.
///
/// # Errors
/// [`Error::Interrupted`]; or what kept every step from giving figures, or the page from being
/// written.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let interrupt = Interrupt::catch()?;
    let folder = tempfile::tempdir().map_err(Error::io("make a temporary folder"))?;
    let documents = arguments.keep.as_deref().unwrap_or(folder.path());
    let binary = env::current_exe().map_err(Error::io("find this program's file"))?;
    let steps = plan::steps(&binary);
    let mut quick = Quick::new(&steps);
    for (number, step) in steps.iter().enumerate() {
        if interrupt.is_pressed() {
            break;
        }
        quick.step(number, step, documents, folder.path(), &interrupt);
    }
    let Quick { bar, notes, written, all_well, .. } = quick;
    bar.finish_and_clear();
    if written.is_empty() {
        if interrupt.is_pressed() {
            return Err(Error::Interrupted);
        }
        let why = notes.join("; ");
        return Err(Error::Check(format!("no step gave figures: {why}")));
    }
    let page = page::write(&written, notes, &arguments.output)?;
    let path = arguments.output.canonicalize().unwrap_or_else(|_| arguments.output.clone());
    let said = writeln!(io::stdout(), "{}\n\n{}", page.headline, path.display());
    said.map_err(Error::io("standard output"))?;
    if interrupt.is_pressed() { Err(Error::Interrupted) } else { Ok(all_well) }
}

/// What has been done so far.
struct Quick {
    begun: Instant,
    bar: ProgressBar,
    /// What the page must say: steps that were left out, or failed.
    notes: Vec<String>,
    /// Documents with figures.
    written: Vec<PathBuf>,
    all_well: bool,
}

impl Quick {
    fn new(steps: &[Step]) -> Self {
        let seconds = steps.iter().filter(|step| step.lacks.is_none()).map(|step| step.seconds);
        let terminal = io::stderr().is_terminal();
        let target =
            if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(seconds.sum()), target);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} about {msg}") {
            bar.set_style(style);
        }
        let (notes, written) = (Vec::new(), Vec::new());
        Self { begun: Instant::now(), bar, notes, written, all_well: true }
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
            return self.note(format!("Left out: {}: {lacks}", step.title));
        }
        let left = BUDGET_SECONDS.saturating_sub(self.begun.elapsed().as_secs());
        if left < step.seconds {
            let seconds = step.seconds;
            let why = format!("it takes about {seconds} s, and {left} s of the time are left");
            return self.note(format!("Left out: {}: {why}", step.title));
        }
        self.say(&format!("{} (about {} s)", step.title, step.seconds));
        let document = documents.join(format!("{}.json", step.name));
        // A step that fails must not show the figures of a run before.
        let _ = fs::remove_file(&document);
        let mut command = Command::new(&step.program);
        command.args(&step.arguments).arg("--json").arg(&document);
        match self.wait(step, command, &logs.join(format!("{number}.log")), interrupt) {
            // Asked to end, it keeps whole rounds.
            Ok(()) | Err(Error::Interrupted) => {}
            Err(Error::Check(why)) => self.failed(step, &why),
            Err(error) => self.failed(step, &error.to_string()),
        }
        if document.is_file() {
            match page::readable(&document) {
                Ok(()) => self.written.push(document),
                Err(error) => self.note(format!("Left out: {}: {error}", step.title)),
            }
        }
        let done = self.bar.position().max(self.begun.elapsed().as_secs());
        self.bar.set_position(done);
    }

    /// Until it ends, its time is up, or the operator presses Ctrl-C.
    fn wait(
        &self,
        step: &Step,
        command: Command,
        log: &Path,
        interrupt: &Interrupt,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        let before = self.bar.position();
        let mut child = Child::start(command, log)?;
        loop {
            if let Some(status) = child.ended() {
                let reason = || child.last_words();
                return if status.success() { Ok(()) } else { Err(Error::Check(reason())) };
            }
            if interrupt.is_pressed() {
                return Err(Error::Interrupted);
            }
            let elapsed = begun.elapsed().as_secs();
            if self.begun.elapsed().as_secs() >= BUDGET_SECONDS || elapsed > step.seconds_max() {
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

    fn failed(&mut self, step: &Step, why: &str) {
        self.all_well = false;
        self.note(format!("Not whole: {}: {why}", step.title));
    }

    fn note(&mut self, note: String) {
        self.say(&note);
        self.notes.push(note);
    }

    fn say(&self, line: &str) {
        self.bar.suspend(|| {
            let _ = writeln!(io::stderr(), "{line}");
        });
    }
}

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
        crate::journal::Journal::begin(Vec::new(), Some(&document)).save(true).unwrap();
        let mut quick = Quick::new(std::slice::from_ref(&step));
        quick.step(0, &step, folder, folder, &Interrupt::default());
        assert!(!quick.all_well && quick.written.is_empty(), "{:?}", quick.written);
        assert!(quick.notes[0].starts_with("Not whole: nothing"), "{:?}", quick.notes);
    }
}
