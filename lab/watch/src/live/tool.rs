//! An instrument that is a program of its own: [`Tool`], started, read within limits, and stopped
//! in order. It is our child, and the only thing here that is ever signalled.

use std::{
    ffi::OsStr,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;
use sealane_lab_harness::{
    child::{Child, Output},
    interrupt::Interrupt,
    programs::installed,
};
use sealane_lab_model::{document::Unseen, error::Error};

/// A running instrument.
pub struct Tool {
    child: Child,
    output: Output,
    said: Output,
}

/// One that has ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// The exit status; `None` if it had to be killed.
    pub status: Option<ExitStatus>,
    /// What it wrote to standard output.
    pub output: String,
    /// And to standard error.
    pub(crate) said: String,
}

impl Tool {
    /// Starts `program` of Debian's `package`.
    ///
    /// # Errors
    /// It is not there, or does not start; `what` is then not to be seen.
    pub(crate) fn start<A: AsRef<OsStr>>(
        (program, package): (&str, &str),
        arguments: impl IntoIterator<Item = A>,
        what: &str,
    ) -> Result<Self, Unseen> {
        let path = find(program, package, what)?;
        let mut command = Command::new(path);
        // Its words are read by a program: no language, and no pager.
        command.args(arguments).env("LC_ALL", "C").env("PAGER", "cat");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = Child::start(&mut command).map_err(|error| Unseen {
            what: what.to_owned(),
            why: format!("{program} does not start: {error}"),
            remedy: format!("apt-get install --reinstall {package}"),
        })?;
        // As if its operator pressed Ctrl-C.
        let mut child = child.asked_by(Signal::INT, STOP_TIME_MAX);
        let output = Output::of(child.take_output());
        let said = Output::of(child.take_errors());
        Ok(Self { child, output, said })
    }

    /// Whether it is still at work.
    pub fn runs(&self) -> bool {
        self.child.runs()
    }

    /// Whether it has ended, and not well.
    pub(crate) fn has_failed(&mut self) -> bool {
        self.child.ended().is_some_and(|status| !status.success())
    }

    /// Whether something has come on its standard output.
    pub fn has_spoken(&self) -> bool {
        self.output.has_spoken()
    }

    /// Asks it to end: it writes what it has.
    pub fn stop(&self) {
        let _ = self.child.signal(Signal::INT);
    }

    /// Waits for its end, for `within` at most or until the operator wants no more.
    pub fn end(mut self, within: Duration, stop: &Interrupt) -> Ended {
        let deadline = Instant::now() + within;
        while self.runs() && Instant::now() < deadline && !stop.is_pressed() {
            thread::sleep(POLL);
        }
        let killed = Some(Signal::KILL.as_raw());
        let status = self.child.end().filter(|status| status.signal() != killed);
        Ended { status, output: self.output.text(), said: self.said.text() }
    }
}

impl Ended {
    /// Whether it did what it was asked.
    pub(crate) fn is_well(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// The line of its words that tells most: the one that says error, else the first.
    pub fn words(&self) -> String {
        let lines = self.said.lines().map(str::trim);
        let mut lines = lines.filter(|line| !matches!(*line, "" | "Error:"));
        let telling = lines.clone().find(|line| {
            let line = line.to_lowercase();
            ["denied", "not permitted", "paranoid", "error", "failed"]
                .iter()
                .any(|word| line.contains(word))
        });
        let line = telling.or_else(|| lines.next()).unwrap_or("it said nothing");
        line.chars().take(WORDS_CHARS_MAX).collect()
    }
}

/// The path of `program`.
///
/// # Errors
/// It is not installed; `what` is then not to be seen.
pub fn find(program: &str, package: &str, what: &str) -> Result<PathBuf, Unseen> {
    installed(program, package).map_err(|error| {
        let remedy = match error {
            Error::Missing { remedy, .. } => remedy,
            other => other.to_string(),
        };
        Unseen { what: what.to_owned(), why: format!("{program} is missing"), remedy }
    })
}

/// The arguments with which `perf` ends by itself, should nobody be left to end it: it lasts as
/// long as a command that it is given.
pub(crate) fn for_at_most(seconds: u32) -> Vec<String> {
    let seconds = seconds.saturating_add(LONGER_SECONDS).to_string();
    let sleep = installed("sleep", "coreutils").map(|path| path.display().to_string());
    sleep.map(|sleep| vec!["--".to_owned(), sleep, seconds]).unwrap_or_default()
}

/// Beyond the time that the server is to be watched, an instrument has this until it ends itself.
pub(crate) const LONGER_SECONDS: u32 = 60;
const POLL: Duration = Duration::from_millis(10);
/// From being asked to end until it is killed.
const STOP_TIME_MAX: Duration = Duration::from_secs(10);
const WORDS_CHARS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_names_its_package() {
        let unseen = Tool::start(("no-such-tool", "its-package"), [""], "anything").err().unwrap();
        assert_eq!(unseen.why, "no-such-tool is missing");
        assert_eq!(unseen.remedy, "apt-get install its-package");
    }

    /// A program that has run the first part of `script`, up to where it makes the file that is its
    /// argument.
    fn started(program: (&str, &str), script: &str) -> Tool {
        let folder = tempfile::tempdir().unwrap();
        let ready = folder.path().join("ready");
        let arguments = ["-c".as_ref(), script.as_ref(), ready.as_os_str()];
        let tool = Tool::start(program, arguments, "anything").unwrap();
        while !ready.exists() {
            thread::yield_now();
        }
        tool
    }

    #[test]
    fn a_tool_is_asked_to_end_and_says_its_last_words() {
        // Like the instruments it has a handler of its own. A shell has none where the lab was
        // started in the background, with this signal ignored.
        let script = "import signal, sys, time\n\
                      def end(*_):\n    print('done')\n    sys.exit(3)\n\
                      signal.signal(signal.SIGINT, end)\n\
                      print('began')\n\
                      open(sys.argv[1], 'w').close()\n\
                      while True: time.sleep(1)\n";
        let tool = started(("python3", "python3"), script);
        tool.stop();
        let ended = tool.end(Duration::from_secs(60), &Interrupt::default());
        assert_eq!(ended.output, "began\ndone\n");
        assert!(!ended.is_well() && ended.status.unwrap().code() == Some(3));
    }

    #[test]
    fn one_that_does_not_end_is_killed_with_what_it_started() {
        let tool = started(("sh", "dash"), "trap '' INT; : > $0; sleep 600 & wait; sleep 600");
        let stop = Interrupt::default();
        stop.press();
        let ended = tool.end(Duration::from_secs(600), &stop);
        assert!(ended.status.is_none());
    }

    #[test]
    fn the_line_that_tells_most_is_kept() {
        let said = "Warning: old\nError:\nAccess denied to everything\n".to_owned();
        let words = |said: &str| Ended { said: said.into(), ..Ended::default() }.words();
        assert_eq!(words(&said), "Access denied to everything");
        assert_eq!(words("\n"), "it said nothing");
    }
}
