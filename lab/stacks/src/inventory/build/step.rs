//! Runs one command of a build, with progress, a log, and an end when the operator wants one:
//! [`Runner`].

use std::{
    fs::{self, File},
    io::{self, IsTerminal, Read, Write},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use sealane_lab_harness::{child::Child, interrupt::Interrupt};
use sealane_lab_model::error::Error;

use super::recipe::{Progress, Step};

/// Runs the steps of one stack.
pub(super) struct Runner<'a> {
    /// The stack.
    pub(super) name: &'a str,
    /// The operator pressed Ctrl-C.
    pub(super) interrupt: &'a Interrupt,
    /// The folder of all stacks.
    pub(super) folder: &'a Path,
}

impl Runner<'_> {
    /// Runs `step` in `folder`; `objects` are those that it compiles, if that is known.
    pub(super) fn run(
        &self,
        step: &Step,
        folder: &Path,
        log: &Path,
        objects: Option<u64>,
    ) -> Result<(), Error> {
        let bar = self.bar(step.what, objects)?;
        let Some((program, arguments)) = step.command.split_first() else { return Ok(()) };
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder);
        let mut child = Child::logged(&mut command, log)?;
        let mut printed =
            Printed { file: File::open(log).map_err(Error::file(log))?, rest: vec![] };
        let status = loop {
            // Before the output is read, so that the last of it is.
            let status = child.ended();
            for line in printed.lines() {
                step.progress.advance(&line, &bar);
            }
            if status.is_some() {
                break status;
            }
            if self.interrupt.is_pressed() {
                bar.finish_and_clear();
                return Err(Error::Interrupted);
            }
            bar.tick();
            thread::sleep(STEP_POLL);
        };
        bar.finish_and_clear();
        if status.is_some_and(|status| status.success()) {
            return Ok(());
        }
        let kept = self.log();
        let last = child.last_words();
        let _ = fs::copy(log, &kept);
        let (name, what, kept) = (self.name, step.what, kept.display());
        Err(Error::Check(format!("{name}: {what} failed; all of its log is in {kept}\n{last}")))
    }

    /// Where the log of a failure goes.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    /// How many lines of a dry run of `step` compile something.
    pub(super) fn count_objects(&self, step: &Step, folder: &Path) -> Result<u64, Error> {
        let mut command = step.command.clone();
        command.push("--dry-run".to_owned());
        let dry = Step { what: "plan", command, progress: Progress::None };
        let log = folder.with_file_name("plan.log");
        self.run(&dry, folder, &log, None)?;
        let text = fs::read_to_string(&log).map_err(Error::file(&log))?;
        Ok(text.lines().filter(|line| compiles(line)).count() as u64)
    }

    /// Steps are lines where nobody watches, and bars where somebody does.
    fn bar(&self, what: &str, objects: Option<u64>) -> Result<ProgressBar, Error> {
        let title = format!("{}: {what}", self.name);
        if !io::stderr().is_terminal() {
            writeln!(io::stderr(), "{title}").map_err(Error::io("standard error"))?;
            return Ok(ProgressBar::hidden());
        }
        let (bar, form) = match objects {
            Some(objects) => (ProgressBar::new(objects), COUNTED),
            None => (ProgressBar::new_spinner(), UNCOUNTED),
        };
        bar.set_style(ProgressStyle::with_template(form).map_err(|_| Error::Interrupted)?);
        bar.set_message(title);
        Ok(bar)
    }
}

impl Progress {
    /// Takes from `line` how far the step is.
    fn advance(self, line: &str, bar: &ProgressBar) {
        match self {
            Self::Ninja => {
                if let Some((done, all)) = ninja(line) {
                    if bar.length() != Some(all) {
                        bar.set_length(all);
                        if let Ok(style) = ProgressStyle::with_template(COUNTED) {
                            bar.set_style(style);
                        }
                    }
                    bar.set_position(done);
                }
            }
            Self::Objects if compiles(line) => bar.inc(1),
            Self::None | Self::Objects => {}
        }
    }
}

/// What a growing log has gained since it was last asked.
struct Printed {
    file: File,
    /// The beginning of a line.
    rest: Vec<u8>,
}

impl Printed {
    fn lines(&mut self) -> Vec<String> {
        let _ = (&mut self.file).take(PRINTED_BYTES_MAX).read_to_end(&mut self.rest);
        let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect()
    }
}

/// Whether a line is a compiler's command, for one object.
fn compiles(line: &str) -> bool {
    line.contains(" -c ") && line.contains(" -o ")
}

/// `[done/all]` at the start of a line.
fn ninja(line: &str) -> Option<(u64, u64)> {
    let (done, all) = line.strip_prefix('[')?.split_once(']')?.0.split_once('/')?;
    Some((done.parse().ok()?, all.parse().ok()?))
}

const STEP_POLL: Duration = Duration::from_millis(100);
const PRINTED_BYTES_MAX: u64 = 16 << 20;
const COUNTED: &str = "{msg} [{bar:30}] {pos}/{len} {elapsed}, {eta} left";
const UNCOUNTED: &str = "{msg} {spinner} {elapsed}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ninja_tells_how_far_it_is() {
        assert_eq!(ninja("[12/345] Building C object crypto/a.c.o"), Some((12, 345)));
        assert_eq!(ninja("-- The C compiler identification is GNU"), None);
        assert_eq!(ninja("[x/3]"), None);
    }

    #[test]
    fn what_compiles_is_counted_and_what_links_is_not() {
        assert!(compiles("cc -I. -g -MMD -c -o crypto/a.o ../crypto/a.c"));
        assert!(!compiles("cc -shared -o libssl.so.3 ssl/a.o"));
    }

    #[test]
    fn a_failed_step_says_where_its_log_is_and_how_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::default();
        let runner = Runner { name: "x", interrupt: &interrupt, folder: folder.path() };
        let command = ["sh", "-c", "echo first; echo last words >&2; exit 3"].map(str::to_owned);
        let step = Step { what: "try", command: command.to_vec(), progress: Progress::None };
        let log = folder.path().join("log");
        let error = runner.run(&step, folder.path(), &log, None).unwrap_err().to_string();
        assert!(error.contains("x: try failed") && error.contains("last words"), "{error}");
        let kept = fs::read_to_string(folder.path().join("x.log")).unwrap();
        assert_eq!(kept, "first\nlast words\n");
    }

    #[test]
    fn an_interrupted_step_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let interrupt = Interrupt::default();
        interrupt.press();
        let runner = Runner { name: "x", interrupt: &interrupt, folder: folder.path() };
        let alive = folder.path().join("alive");
        let script = format!("(while :; do date > {}; done) & wait", alive.display());
        let command = ["sh", "-c", &script].map(str::to_owned);
        let step = Step { what: "try", command: command.to_vec(), progress: Progress::None };
        let log = folder.path().join("log");
        let error = runner.run(&step, folder.path(), &log, None).unwrap_err();
        assert!(matches!(error, Error::Interrupted));
        // Were the loop alive, it would write the file again at once.
        let _ = fs::remove_file(&alive);
        for _ in 0..100 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        assert!(!alive.exists());
    }
}
