//! A process that the lab starts, as a guard, [`Child`]: in a group of its own, ended with all that
//! it started, there and in other groups, and waited for, whatever happens; and its [`Output`].

use std::{
    fs::{self, File},
    io::Read,
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::{Path, PathBuf},
    process::{self, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    pidfd_send_signal, waitid,
};
use sealane_lab_model::error::Error;

use crate::descendants::tree;

/// A running child and its descendants; dropping it ends them.
pub struct Child {
    process: process::Child,
    pid: Pid,
    /// The signal that asks it to end, and the time that it has for that.
    asked_by: Option<(Signal, Duration)>,
    /// What it prints, if a file has that.
    log: Option<PathBuf>,
    /// The variable that its environment has, and that of all that it starts.
    mark: String,
    /// After this its number may be somebody else's.
    is_waited_for: bool,
}

impl Child {
    /// Starts `command`, which is killed at once when it is to end.
    ///
    /// # Errors
    /// [`Error::Io`] of the system.
    pub fn start(command: &mut Command) -> Result<Self, Error> {
        let what = format!("start {}", command.get_program().to_string_lossy());
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let mark = format!("SEALANE_LAB_CHILD_{}_{number}", process::id());
        command.env(&mark, "1");
        // In its own group, Ctrl-C reaches the lab alone, which ends its children in order.
        let process = command.process_group(0).spawn().map_err(Error::io(what))?;
        let pid = Pid::from_child(&process);
        Ok(Self { process, pid, asked_by: None, log: None, mark, is_waited_for: false })
    }

    /// Starts `command`, with what it prints in the file `log`.
    ///
    /// # Errors
    /// [`Error::Io`] of the system.
    pub fn logged(command: &mut Command, log: &Path) -> Result<Self, Error> {
        let out = File::create(log).map_err(Error::file(log))?;
        let error = out.try_clone().map_err(Error::file(log))?;
        // Some end with their standard input, which lasts as long as this.
        let child = Self::start(command.stdin(Stdio::piped()).stdout(out).stderr(error))?;
        let mut child = child.asked_by(Signal::TERM, END_TIME_MAX);
        child.log = Some(log.to_owned());
        Ok(child)
    }

    /// The same child, which `signal` asks to end; it is killed `within` after that.
    pub fn asked_by(mut self, signal: Signal, within: Duration) -> Self {
        self.asked_by = Some((signal, within));
        self
    }

    /// The number of the first process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The first process's standard input, if that is a pipe; it lasts as long as the child unless
    /// it is taken.
    pub fn take_input(&mut self) -> Option<ChildStdin> {
        self.process.stdin.take()
    }

    /// The first process's standard output, if that is a pipe.
    pub fn take_output(&mut self) -> Option<ChildStdout> {
        self.process.stdout.take()
    }

    /// The first process's standard error, if that is a pipe.
    pub fn take_errors(&mut self) -> Option<ChildStderr> {
        self.process.stderr.take()
    }

    /// Whether the first process still runs.
    pub fn runs(&self) -> bool {
        !self.is_waited_for && matches!(waitid(WaitId::Pid(self.pid), LOOK), Ok(None))
    }

    /// How the first process ended, once it has; what it left ends too: in its group, and, if this
    /// process adopts orphans as the lab's does, in others.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.runs() {
            return None;
        }
        let left = self.started();
        self.signal_group(Signal::KILL);
        for process in left {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        self.is_waited_for = true;
        self.process.wait().ok()
    }

    /// Waits for the end of the first process, for `time_max` at most.
    pub fn wait(&mut self, time_max: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + time_max;
        while self.runs() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        self.ended()
    }

    /// Sends `signal` to the first process, if that has not been waited for.
    ///
    /// # Errors
    /// [`Error::Io`] of the system.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        if self.is_waited_for {
            return Ok(());
        }
        let what = format!("signal process {}", self.id());
        kill_process(self.pid, signal).map_err(|error| Error::io(what)(error.into()))
    }

    /// Sends `signal` to the whole group, if nobody has waited for the first process: after that
    /// the group's number may be somebody else's.
    pub fn signal_group(&self, signal: Signal) {
        if self.is_there() {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Whether nobody has waited for the first process, which has its number until then.
    fn is_there(&self) -> bool {
        !self.is_waited_for && waitid(WaitId::Pid(self.pid), LOOK).is_ok()
    }

    /// Ends the first process and all that it started, asked before if it is to be.
    pub fn end(&mut self) -> Option<ExitStatus> {
        let mut started = self.started();
        if let Some((signal, within)) = self.asked_by.filter(|_| self.runs()) {
            let _ = self.signal(signal);
            let deadline = Instant::now() + within;
            while self.runs() && Instant::now() < deadline {
                thread::sleep(POLL);
            }
            started.extend(self.started());
        }
        self.signal_group(Signal::KILL);
        for process in started {
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        self.is_waited_for = true;
        self.process.wait().ok()
    }

    /// The last lines of the log.
    pub fn last_words(&self) -> String {
        let text = self.log.as_deref().map(fs::read_to_string);
        let text = text.and_then(Result::ok).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }

    /// The last line of the log that says something.
    pub fn last_line(&self) -> String {
        let words = self.last_words();
        let last = words.lines().map(str::trim).rfind(|line| !line.is_empty());
        last.unwrap_or("it ended without a word").to_owned()
    }

    /// The descendants, by what is not another process when they have ended. After the end of the
    /// first process they are orphans, which only the mark tells from those of another.
    fn started(&self) -> Vec<OwnedFd> {
        held(self.id(), || match (self.runs(), self.is_there()) {
            (true, _) => tree(self.id()).unwrap_or_default(),
            (false, true) => {
                let mut all = tree(process::id()).unwrap_or_default();
                all.retain(|id| is_marked(*id, &self.mark));
                all
            }
            (false, false) => Vec::new(),
        })
    }
}

fn is_marked(id: u32, mark: &str) -> bool {
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|it| it.strip_suffix(b"=1") == Some(mark.as_bytes()))
}

/// What `tree` tells, but for `first`. A number may have become another process's before it was
/// opened: what is not told once more afterwards is let go.
fn held(first: u32, tree: impl Fn() -> Vec<u32>) -> Vec<OwnedFd> {
    let others = tree().into_iter().filter(|id| *id != first);
    let open = |id| pidfd_open(Pid::from_raw(i32::try_from(id).ok()?)?, PidfdFlags::empty()).ok();
    let opened: Vec<(u32, OwnedFd)> = others.filter_map(|id| Some((id, open(id)?))).collect();
    let still = tree();
    opened.into_iter().filter(|(id, _)| still.contains(id)).map(|(_, process)| process).collect()
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a child writes to a pipe, read on a thread of its own, so that the child never waits for
/// its reader; the first `OUTPUT_BYTES_MAX` are kept.
pub struct Output {
    reader: JoinHandle<()>,
    kept: Arc<Mutex<Vec<u8>>>,
}

impl Output {
    /// Reads `pipe`; without one, nothing is said.
    pub fn of(pipe: Option<impl Read + Send + 'static>) -> Self {
        let kept = Arc::default();
        let text = Arc::clone(&kept);
        let reader = thread::spawn(move || {
            let mut buffer = vec![0; BUFFER_BYTES];
            let Some(mut pipe) = pipe else { return };
            while let Ok(some @ 1..) = pipe.read(&mut buffer) {
                let mut text = locked(&text);
                let free = OUTPUT_BYTES_MAX - text.len();
                text.extend_from_slice(&buffer[..some.min(free)]);
            }
        });
        Self { reader, kept }
    }

    /// Whether something has come.
    pub fn has_spoken(&self) -> bool {
        !locked(&self.kept).is_empty()
    }

    /// All that was kept until every process that could write has ended, or, if one that nobody
    /// found keeps the pipe, for `OUTPUT_TIME_MAX`.
    pub fn text(self) -> String {
        self.text_within(OUTPUT_TIME_MAX)
    }

    fn text_within(self, time_max: Duration) -> String {
        let deadline = Instant::now() + time_max;
        while !self.reader.is_finished() && Instant::now() < deadline {
            thread::sleep(POLL);
        }
        String::from_utf8_lossy(&locked(&self.kept)).into_owned()
    }
}

/// Nothing that holds it leaves it half changed.
fn locked(kept: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Children of this process so far.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// For a server to close its connections, and for a run of the lab to finish a round and write it.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// The bytes that a pipe holds.
const BUFFER_BYTES: usize = 64 << 10;
const LINES_SHOWN: usize = 8;
/// Tells whether a child has ended, and leaves it to be waited for.
const LOOK: WaitIdOptions =
    WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG).union(WaitIdOptions::NOWAIT);
const OUTPUT_BYTES_MAX: usize = 64 << 20;
/// For what is left in a pipe when its writers have ended, on a machine that does much else.
const OUTPUT_TIME_MAX: Duration = Duration::from_secs(10);
/// Small beside what children are started for.
const POLL: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        io::{self, BufRead, BufReader, Write},
        os::unix::process::ExitStatusExt,
    };

    use rustix::{
        event::{PollFd, PollFlags, Timespec, poll},
        io::retry_on_intr,
        process::{getpid, set_child_subreaper},
    };

    use super::*;

    #[test]
    fn all_of_its_group_ends_with_it() {
        let child = Child::start(&mut shell("sleep 1000 & wait")).unwrap();
        let sleep = sleep_of(&child);
        drop(child);
        wait_for_end_of(sleep);
    }

    #[test]
    fn what_a_deaf_one_started_in_another_group_ends_with_it() {
        let deaf = "trap '' TERM; setsid sleep 1000 & while :; do sleep 0.1; done";
        let child = Child::start(&mut shell(deaf)).unwrap();
        let child = child.asked_by(Signal::TERM, Duration::from_millis(50));
        let sleep = sleep_of(&child);
        drop(child);
        wait_for_end_of(sleep);
    }

    #[test]
    fn what_one_that_ends_when_asked_started_in_another_group_ends_with_it() {
        let child = Child::start(&mut shell("setsid sleep 1000 & wait")).unwrap();
        let mut child = child.asked_by(Signal::TERM, Duration::from_secs(60));
        let sleep = sleep_of(&child);
        assert_eq!(child.end().unwrap().signal(), Some(Signal::TERM.as_raw()));
        wait_for_end_of(sleep);
    }

    #[test]
    fn what_one_that_has_ended_left_in_its_group_ends() {
        let mut command = shell("sleep 1000 & echo $!; read line; exit 3");
        let mut child = Child::start(command.stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
        let sleep = sleep_told_by(&mut child);
        drop(child.take_input());
        let status = child.wait(Duration::from_secs(60)).unwrap();
        assert_eq!(status.code(), Some(3));
        wait_for_end_of(sleep);
        assert_eq!((child.runs(), child.ended(), child.end()), (false, Some(status), Some(status)));
    }

    #[test]
    fn what_one_that_died_left_in_another_group_ends_where_orphans_are_adopted() {
        set_child_subreaper(Some(getpid())).unwrap();
        let script = "setsid sleep 1000 & echo $!; read line; kill -KILL $$";
        for is_dropped in [false, true] {
            let mut command = shell(script);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = Child::start(&mut command).unwrap();
            let sleep = sleep_told_by(&mut child);
            drop(child.take_input());
            while child.runs() {
                thread::yield_now();
            }
            if is_dropped {
                drop(child);
            } else {
                assert_eq!(child.ended().unwrap().signal(), Some(Signal::KILL.as_raw()));
            }
            wait_for_end_of(sleep);
        }
    }

    #[test]
    fn what_it_prints_is_kept_up_to_the_limit_and_read_to_the_end() {
        let zeros = format!("head -c {} /dev/zero && exit 7", OUTPUT_BYTES_MAX + (1 << 20));
        let mut child = Child::start(shell(&zeros).stdout(Stdio::piped())).unwrap();
        let output = Output::of(child.take_output());
        assert_eq!(child.wait(Duration::from_secs(60)).unwrap().code(), Some(7));
        assert!(output.has_spoken());
        assert_eq!(output.text().len(), OUTPUT_BYTES_MAX);
    }

    #[test]
    fn a_writer_that_nobody_ends_is_not_waited_for() {
        let (pipe, mut writer) = io::pipe().unwrap();
        let output = Output::of(Some(pipe));
        writer.write_all(b"a word").unwrap();
        while !output.has_spoken() {
            thread::yield_now();
        }
        assert_eq!(output.text_within(Duration::from_millis(1)), "a word");
    }

    #[test]
    fn a_number_that_has_become_anothers_is_let_go() {
        let other = Child::start(&mut shell("read line")).unwrap();
        assert_eq!(held(1, || vec![1, other.id()]).len(), 1);
        let looks = Cell::new(0);
        let tree = || {
            looks.set(looks.get() + 1);
            if looks.get() == 1 { vec![1, other.id()] } else { vec![1] }
        };
        assert!(held(1, tree).is_empty());
    }

    #[test]
    fn a_group_whose_first_another_waited_for_is_not_signalled() {
        let mut command = shell("sleep 1000 & echo $!");
        let mut child = Child::start(command.stdout(Stdio::piped())).unwrap();
        let mut line = String::new();
        BufReader::new(child.take_output().unwrap()).read_line(&mut line).unwrap();
        let sleep = line.trim().parse().unwrap();
        let opened = pidfd_open(Pid::from_raw(sleep).unwrap(), PidfdFlags::empty()).unwrap();
        retry_on_intr(|| waitid(WaitId::Pid(child.pid), WaitIdOptions::EXITED)).unwrap();
        drop(child);
        pidfd_send_signal(&opened, Signal::CONT).expect("it still runs");
        let ends = PollFd::new(&opened, PollFlags::IN);
        let short = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
        // Another test of this process handles signals, and one may arrive here meanwhile.
        let ready = retry_on_intr(|| poll(&mut [ends.clone()], Some(&short))).unwrap();
        assert_eq!(ready, 0, "it was ended");
        pidfd_send_signal(&opened, Signal::KILL).unwrap();
    }

    #[test]
    fn its_last_words_are_the_end_of_its_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut child = Child::logged(&mut shell("seq 20; echo; exit 1"), &log).unwrap();
        assert_eq!(child.wait(Duration::from_secs(60)).unwrap().code(), Some(1));
        assert_eq!(child.last_words(), "14\n15\n16\n17\n18\n19\n20\n");
        assert_eq!(child.last_line(), "20");
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// The `sleep 1000` that `child` starts, once it runs.
    fn sleep_of(child: &Child) -> u32 {
        loop {
            let found = tree(child.id()).unwrap().into_iter().find(|id| sleeps(*id));
            if let Some(id) = found {
                return id;
            }
            thread::yield_now();
        }
    }

    /// The sleep that a shell says it has started, once it is one.
    fn sleep_told_by(child: &mut Child) -> u32 {
        let mut line = String::new();
        BufReader::new(child.take_output().unwrap()).read_line(&mut line).unwrap();
        let id = line.trim().parse().unwrap();
        while !sleeps(id) {
            thread::yield_now();
        }
        id
    }

    fn sleeps(id: u32) -> bool {
        let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        line == b"sleep\x001000\0"
    }

    /// The kernel takes a moment to end what it has killed.
    fn wait_for_end_of(id: u32) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while sleeps(id) {
            assert!(Instant::now() < deadline, "{id} still runs");
            thread::yield_now();
        }
    }
}
