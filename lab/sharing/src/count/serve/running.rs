//! A server while it runs, [`Running`]: started, loaded in rounds and ended, each within a limit,
//! and whatever stops it told with its last words.

use std::{
    ffi::OsString,
    fs,
    io::{self, ErrorKind},
    net::TcpStream,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use sealane_lab_harness::{descendants, process};
use sealane_lab_model::error::Error;
use sealane_reserved_port::ReservedPort;

use crate::count::{
    Tools,
    run::{Program, Run},
    serve::load::Client,
};

/// What an instrument has written meanwhile: how many bytes were read.
pub(super) type Look<'a> = &'a mut dyn FnMut() -> Result<u64, Error>;

/// How it is started, and who connects.
pub(super) struct Placed {
    pub(super) name: String,
    pub(super) program: Program,
    /// Where it listens.
    pub(super) reserved: ReservedPort,
    pub(super) client: Arc<Client>,
    /// The folder of its files, and of nobody else's.
    pub(super) folder: PathBuf,
}

/// A server that runs and accepts.
pub(super) struct Running<'a> {
    placed: Placed,
    run: Run,
    tools: &'a Tools,
    /// What it printed, the last of it.
    words: Vec<u8>,
    is_silent: bool,
    /// Bytes that the instrument wrote.
    traced: u64,
    start_time_max: Duration,
    /// How it is counted, in the line that shows the progress.
    how: String,
}

impl<'a> Running<'a> {
    /// Starts it and waits until it accepts.
    ///
    /// # Errors
    /// That it ended, or did not accept in time.
    pub(super) fn start(
        placed: Placed,
        (instrument, how): (&[OsString], &str),
        tools: &'a Tools,
        look: Look<'_>,
    ) -> Result<Self, Error> {
        // Whoever leaves its group, as daemons do, is our child then.
        let own = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(own))
            .map_err(|error| Error::io("adopt processes that a server leaves")(error.into()))?;
        let run = Run::start(instrument, &placed.program, &tools.stop)?;
        let (how, words) = (how.to_owned(), Vec::new());
        let start_time_max = match instrument.is_empty() {
            true => START_TIME_MAX,
            false => START_TIME_TRACED_MAX,
        };
        let mut running =
            Self { placed, run, tools, words, is_silent: false, traced: 0, start_time_max, how };
        let begun = Instant::now();
        for left in (0..FIRST_TRIES_MAX).rev() {
            running.wait_for_port(begun, look)?;
            match running.connect((1, "starting"), look)? {
                Ok(()) => return running.settle(look).map(|()| running),
                // Some listen, and begin anew to listen before they accept.
                Err(Error::Io { source, .. }) if left > 0 && !is_of_tls(&source) => {
                    thread::sleep(FIRST_PAUSE);
                }
                Err(error) => return Err(running.refused(error, look)),
            }
        }
        Err(running.never_accepted())
    }

    /// The number of its first process.
    pub(super) fn id(&self) -> u32 {
        self.run.id()
    }

    /// So many connections, until the server is done with them.
    ///
    /// # Errors
    /// What went wrong with one, or that the server has ended.
    pub(super) fn round(
        &mut self,
        (connections, which): (u64, &str),
        look: Look<'_>,
    ) -> Result<(), Error> {
        match self.connect((connections, which), look)? {
            Ok(()) => self.settle(look),
            Err(error) => Err(self.refused(error, look)),
        }
    }

    /// Ends the connections that stay, so that the next ones may go to other threads.
    ///
    /// # Errors
    /// What went wrong with one.
    pub(super) fn begin_anew(&mut self) -> Result<(), Error> {
        self.placed.client.begin_anew()
    }

    /// Asks it to end and waits until its last process has.
    ///
    /// # Errors
    /// That it does not.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        self.show("ending");
        self.run.terminate();
        let begun = Instant::now();
        while !self.run.has_ended() || !self.others().is_empty() {
            self.hear()?;
            if begun.elapsed() > END_TIME_MAX {
                let (name, seconds) = (&self.placed.name, END_TIME_MAX.as_secs());
                return Err(self.with_words(&format!(
                    "{name} did not end within {seconds} s of SIGTERM, as a server must"
                )));
            }
            thread::sleep(STEP);
        }
        Ok(())
    }

    /// `error`, and what the server said last.
    pub(super) fn with_words(&self, error: &str) -> Error {
        let words = String::from_utf8_lossy(&self.words);
        let lines: Vec<&str> = words.lines().collect();
        let last = lines[lines.len().saturating_sub(WORDS_SHOWN)..].join("\n");
        match last.is_empty() {
            true => Error::Check(format!("{error}; it said nothing")),
            false => Error::Check(format!("{error}; its last words:\n{last}")),
        }
    }

    fn wait_for_port(&mut self, begun: Instant, look: Look<'_>) -> Result<(), Error> {
        while TcpStream::connect_timeout(&self.placed.reserved.address(), CONNECT_TIME_MAX).is_err()
        {
            let read = self.look(look)?;
            if begun.elapsed() > self.start_time_max {
                return Err(self.never_accepted());
            }
            self.show(&format!("starting, {} s", begun.elapsed().as_secs()));
            if read == 0 {
                thread::sleep(STEP);
            }
        }
        Ok(())
    }

    /// How so many connections went.
    fn connect(
        &mut self,
        (connections, which): (u64, &str),
        look: Look<'_>,
    ) -> Result<Result<(), Error>, Error> {
        let (done, ended) = mpsc::channel();
        let client = Arc::clone(&self.placed.client);
        thread::spawn(move || done.send(client.work(connections)));
        loop {
            let read = self.look(look)?;
            match ended.try_recv() {
                Ok(result) => return Ok(result),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err(Error::Check("the thread of the client panicked".into()));
                }
            }
            let so_far = self.placed.client.finished();
            self.show(&format!("{which}, {so_far} of {connections}"));
            if read == 0 {
                thread::sleep(STEP);
            }
        }
    }

    /// Why a connection failed: by itself, or because the server ended.
    fn refused(&mut self, error: Error, look: Look<'_>) -> Error {
        thread::sleep(FIRST_PAUSE);
        if let Err(ended) = self.look(look) {
            return ended;
        }
        let reason = match error {
            Error::Check(reason) => reason,
            other => other.to_string(),
        };
        self.with_words(&reason)
    }

    /// Until nothing is written and no time is used any more.
    fn settle(&mut self, look: Look<'_>) -> Result<(), Error> {
        let begun = Instant::now();
        let (mut quiet_since, mut used) = (begun, self.ticks()?);
        while quiet_since.elapsed() < QUIET && begun.elapsed() < SETTLE_TIME_MAX {
            let read = self.look(look)?;
            let now = self.ticks()?;
            if read > 0 || now != used {
                (quiet_since, used) = (Instant::now(), now);
            }
            if read == 0 {
                thread::sleep(STEP);
            }
        }
        Ok(())
    }

    fn ticks(&self) -> Result<u64, Error> {
        process::ticks(self.run.id())
    }

    fn look(&mut self, look: Look<'_>) -> Result<u64, Error> {
        self.hear()?;
        // First: what was written before the end is read.
        let has_ended = self.run.has_ended();
        let read = look()?;
        self.traced += read;
        if has_ended && read == 0 {
            self.hear()?;
            return Err(self.ended());
        }
        Ok(read)
    }

    /// Takes what the server prints, lest it wait for that.
    fn hear(&mut self) -> Result<(), Error> {
        let mut buffer = [0; 4096];
        while self.run.wait_for_bytes(Duration::ZERO)? && !self.is_silent {
            match self.run.read_now(&mut buffer)? {
                0 => self.is_silent = true,
                some => self.words.extend_from_slice(&buffer[..some]),
            }
            self.words.drain(..self.words.len().saturating_sub(WORDS_BYTES_MAX));
        }
        Ok(())
    }

    fn show(&self, what: &str) {
        let trace = match self.traced {
            0 => String::new(),
            bytes => format!(", {} MB of trace", bytes / 1_000_000),
        };
        self.tools.progress.step(format!("{}, {}: {what}{trace}", self.placed.name, self.how));
    }

    fn ended(&mut self) -> Error {
        let name = &self.placed.name;
        // Asked before its end is taken, with which what is left of its group ends.
        let has_others = !self.others().is_empty();
        let how = self.run.how_it_ended();
        if has_others {
            return self.with_words(&format!(
                "{name} went to the background: keep it in the foreground (nginx: daemon off; \
                 hitch: daemon = off; stunnel: foreground = quiet; haproxy -db)"
            ));
        }
        let hint = match how.contains("SIGILL") {
            true => {
                ": valgrind does not know an instruction that this program uses. Build it for a \
                 plainer processor; Sealane itself with lab/build-for-counting"
            }
            false => "",
        };
        self.with_words(&format!("{name} ended too early, with {how}{hint}"))
    }

    fn never_accepted(&self) -> Error {
        let (name, address) = (&self.placed.name, self.placed.reserved.address());
        let seconds = self.start_time_max.as_secs();
        let used = self.ticks().unwrap_or_default() / TICKS_PER_SECOND;
        let why = match used * 4 > seconds {
            true => {
                "it was busy all the time: it does too much at its start to be traced (certificate \
                 authorities, large tables: leave them out), or the machine is too busy"
            }
            false => "does it listen at the port that {port} stands for, at 127.0.0.1?",
        };
        self.with_words(&format!(
            "{name} did not accept at {address} within {seconds} s, of which it used {used} s of \
             processor time; {why}"
        ))
    }

    /// Processes of this server that have not ended, but its first one.
    fn others(&self) -> Vec<u32> {
        let (own, first) = (std::process::id(), self.run.id());
        let lives = |id: &u32| {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, after)| !after.starts_with(['Z', 'X']))
        };
        let tree = descendants::tree(own).unwrap_or_default();
        tree.into_iter().filter(|id| ![own, first].contains(id) && lives(id)).collect()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Its group ends with `run`; whoever left that was adopted.
        for id in self.others() {
            if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
                let _ = kill_process(id, Signal::KILL);
            }
        }
        // The next server's are told from these by their being there.
        let deadline = Instant::now() + END_TIME_MAX;
        while !self.others().is_empty() && Instant::now() < deadline {
            thread::sleep(STEP);
        }
    }
}

/// Whether the server answered, with what is not TLS 1.3 as it was asked for.
fn is_of_tls(error: &io::Error) -> bool {
    error.kind() == ErrorKind::InvalidData
}

const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
const END_TIME_MAX: Duration = Duration::from_secs(60);
const FIRST_PAUSE: Duration = Duration::from_millis(300);
/// Connections that may fail before the first one that does not.
const FIRST_TRIES_MAX: u32 = 10;
/// For so long nothing happens: the server waits for the next connection.
const QUIET: Duration = Duration::from_millis(150);
/// A server that is never quiet for so long works by the clock, which all lengths have alike.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(60);
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// Valgrind makes it some hundred times slower.
const START_TIME_TRACED_MAX: Duration = Duration::from_secs(20 * 60);
const STEP: Duration = Duration::from_millis(10);
const TICKS_PER_SECOND: u64 = 100;
const WORDS_BYTES_MAX: usize = 64 * 1024;
const WORDS_SHOWN: usize = 12;
