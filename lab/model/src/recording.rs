//! What one thread does between the moments at which it touches what other threads touch too: a
//! [`Recording`], made by `count --record` and replayed by `replay`.
//!
//! ```text
//! Enter(Server) --812 instructions--> Update(line 3) --40--> ReadLock(lock 0, line 7) --...-->
//! ```
//! A file is this type as JSON, compressed with gzip.

mod check;

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read, Write},
    iter::successors,
    path::Path,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize};

use crate::{error::Error, library::Identity, scenario::Scenario};

/// One thread's operations, and all that is known of the lines and locks they touch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// [`SCHEMA`].
    pub schema: String,
    /// When it was made, RFC 3339 in UTC.
    pub started: String,
    /// The command line that makes it again.
    pub command: Vec<String>,
    /// The processor it was made on: instructions differ by machine.
    pub processor: String,
    /// What was recorded.
    pub stack: Identity,
    /// What was asked of it.
    pub scenario: Scenario,
    /// Operations (handshakes) in `steps`.
    pub operations: u64,
    /// Instructions per operation.
    pub instructions: ByPart<f64>,
    /// Time of one operation of a single thread on the machine it was made on, without any
    /// instrument; absent if it was not measured.
    pub native_ns: Option<ByPart<f64>>,
    /// Lines that are replayed.
    pub lines: Vec<RecordedLine>,
    /// Locks that are replayed.
    pub locks: Vec<Lock>,
    /// Call paths: each node is a function and its caller's node.
    pub paths: Vec<PathNode>,
    /// In order, from the first operation's first instruction to the last one's end.
    pub steps: Vec<Step>,
    /// Lines that threads shared and that are not replayed, summed by reason.
    pub left_out: Vec<LeftOut>,
}

/// Whose work it is. Making and dropping a connection is told apart, because some benchmarks time
/// it and some do not; what the harness itself does is `outside`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The client's handshake.
    Client,
    /// Making and dropping its end.
    ClientSetup,
    /// The harness.
    #[default]
    Outside,
    /// The server's handshake.
    Server,
    /// Making and dropping its end.
    ServerSetup,
}

/// A figure for each [`Part`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ByPart<T> {
    /// See [`Part::Client`].
    pub client: T,
    /// See [`Part::ClientSetup`].
    pub client_setup: T,
    /// See [`Part::Outside`].
    pub outside: T,
    /// See [`Part::Server`].
    pub server: T,
    /// See [`Part::ServerSetup`].
    pub server_setup: T,
}

/// A cache line that at least two threads touched, and at least one wrote.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedLine {
    /// `lock`, `reference-count`, `global`, `false-sharing` or `read-shared` (one thread writes,
    /// others read).
    pub class: String,
    /// The variable, or for heap memory who writes it.
    pub symbol: String,
    /// The library or binary that owns it.
    pub owner: String,
    /// The functions that write, most writes first.
    pub writers: Vec<String>,
    /// Atomic read-modify-writes per operation.
    pub updates: ByPart<f64>,
    /// Plain stores per operation.
    pub stores: ByPart<f64>,
    /// Loads per operation.
    pub loads: ByPart<f64>,
}

/// A lock, which lies in one of the lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// How it waits.
    pub class: LockClass,
    /// Index into [`Recording::lines`].
    pub line: u32,
    /// The variable, or who takes it.
    pub symbol: String,
    /// How long it is held, by the native clock; absent where no clock could be read there, and the
    /// replay then takes what its instructions take.
    pub holds: Vec<Hold>,
}

/// How a lock waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockClass {
    /// Rust's mutex: spins while nobody sleeps, then sleeps.
    FutexMutex,
    /// Rust's read-write lock: as the mutex.
    FutexRwLock,
    /// A spin lock of the kernel, which a system call holds: first come, first served.
    KernelSpin,
    /// `pthread_mutex_t` and spin locks of user space.
    #[default]
    Mutex,
    /// `pthread_rwlock_t`.
    RwLock,
}

/// The time between taking a lock and giving it back, in one part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// Where it is taken.
    pub part: Part,
    /// `true`: taken to read.
    pub read: bool,
    /// How often, per operation.
    pub calls: f64,
    /// The mean, uncontended, measured without valgrind.
    pub ns: f64,
}

/// One function on a call path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PathNode {
    /// The node of who called it; `None` at a thread's first known function.
    pub caller: Option<u32>,
    /// The function's name, with what was inlined into it where the access stands.
    pub function: String,
    /// The file it belongs to.
    pub owner: String,
}

/// One event of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, Event, u32, u32)", into = "(u32, Event, u32, u32)")]
pub struct Step {
    /// Instructions since the step before, of the part that was in force.
    pub gap: u32,
    /// What happens.
    pub event: Event,
    /// Index into [`Recording::lines`]; of an event on a lock, into [`Recording::locks`]; of
    /// [`Event::Enter`], the [`Part`] as a number, in the order of its declaration.
    pub place: u32,
    /// Index into [`Recording::paths`]; 0 (a node without a name) if not known.
    pub path: u32,
}

/// What a step does. An event on a lock is at the same time an atomic update of the lock's line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// Another part begins.
    #[default]
    #[serde(rename = "e")]
    Enter,
    /// Reads a line.
    #[serde(rename = "l")]
    Load,
    /// Takes a mutex.
    #[serde(rename = "m")]
    MutexLock,
    /// Gives it back.
    #[serde(rename = "n")]
    MutexUnlock,
    /// Takes a read-write lock to read.
    #[serde(rename = "r")]
    ReadLock,
    /// Gives it back.
    #[serde(rename = "q")]
    ReadUnlock,
    /// Writes a line, not atomically.
    #[serde(rename = "s")]
    Store,
    /// Reads and writes a line in one atomic instruction.
    #[serde(rename = "u")]
    Update,
    /// Takes a read-write lock to write.
    #[serde(rename = "w")]
    WriteLock,
    /// Gives it back.
    #[serde(rename = "v")]
    WriteUnlock,
}

/// Shared lines that the replay does not know of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// `allocator`, `recycled` (data under a lock, or in a program with a heap of its own what one
    /// thread freed and another got: plain stores only, of several threads to the same bytes,
    /// without a variable's name), `stack` (of another thread).
    pub reason: String,
    /// How many lines.
    pub lines: u64,
    /// Writes per operation.
    pub writes: ByPart<f64>,
}

impl Part {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Client, Self::ClientSetup, Self::Outside, Self::Server, Self::ServerSetup];
}

impl<T> ByPart<T> {
    /// The figure of `part`.
    #[must_use]
    pub fn of(&self, part: Part) -> &T {
        match part {
            Part::Client => &self.client,
            Part::ClientSetup => &self.client_setup,
            Part::Outside => &self.outside,
            Part::Server => &self.server,
            Part::ServerSetup => &self.server_setup,
        }
    }

    /// The same, to change it.
    pub fn of_mut(&mut self, part: Part) -> &mut T {
        match part {
            Part::Client => &mut self.client,
            Part::ClientSetup => &mut self.client_setup,
            Part::Outside => &mut self.outside,
            Part::Server => &mut self.server,
            Part::ServerSetup => &mut self.server_setup,
        }
    }
}

impl Recording {
    /// Reads `file`, which may come from anybody.
    ///
    /// # Errors
    /// It cannot be read, or is no recording of this version.
    pub fn read(file: &Path) -> Result<Self, Error> {
        let bytes = BufReader::new(File::open(file).map_err(Error::file(file))?);
        Self::unpacked(BufReader::new(GzDecoder::new(bytes)))
            .map_err(|reason| Error::Document { file: file.display().to_string(), reason })
    }

    /// From its JSON.
    ///
    /// # Errors
    /// What is wrong with it, and the remedy.
    pub fn unpacked(json: impl Read) -> Result<Self, String> {
        let mut limited = json.take(JSON_BYTES_MAX);
        let parsed: Result<Self, _> = serde_json::from_reader(&mut limited);
        if limited.limit() == 0 {
            return Err(format!("it has {JSON_BYTES_MAX} bytes of JSON or more: no recording has"));
        }
        let recording = parsed.map_err(|error| format!("it is no recording: {error}"))?;
        check::texts(&recording)?;
        if recording.schema != SCHEMA {
            return Err(format!(
                "it is a recording of version {:?}, and this lab reads {SCHEMA:?}; make it again \
                 with: {}",
                recording.schema,
                recording.command.join(" ")
            ));
        }
        check::figures(&recording)?;
        check::paths(&recording)?;
        Ok(recording)
    }

    /// The place, in `lines`, of what `step` writes; taking a lock, or giving it back, is a write.
    pub fn written_line(&self, step: &Step) -> Option<u32> {
        match step.event {
            Event::Enter | Event::Load => None,
            Event::Store | Event::Update => Some(step.place),
            _ => self.locks.get(step.place as usize).map(|lock| lock.line),
        }
    }

    /// The functions of a call path, innermost first.
    pub fn callers(&self, path: u32) -> impl Iterator<Item = &PathNode> {
        let node = |number: u32| self.paths.get(number as usize);
        successors(node(path), move |inner| node(inner.caller?))
    }

    /// Writes `file`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, file: &Path) -> Result<(), Error> {
        let bytes = BufWriter::new(File::create(file).map_err(Error::file(file))?);
        let mut packed = GzEncoder::new(bytes, Compression::best());
        serde_json::to_writer(&mut packed, self)
            .map_err(|error| Error::Check(format!("{}: {error}", file.display())))?;
        let mut bytes = packed.finish().map_err(Error::file(file))?;
        bytes.flush().map_err(Error::file(file))
    }
}

impl From<(u32, Event, u32, u32)> for Step {
    fn from((gap, event, place, path): (u32, Event, u32, u32)) -> Self {
        Self { gap, event, place, path }
    }
}

impl From<Step> for (u32, Event, u32, u32) {
    fn from(step: Step) -> Self {
        (step.gap, step.event, step.place, step.path)
    }
}

/// A hundred times the largest known; as structs in memory it is at most eight times as much.
const JSON_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// The name and version of the format.
pub const SCHEMA: &str = "sealane-lab-recording/1";
/// The word for lines of the allocator, which are summed apart.
pub const ALLOCATOR: &str = "allocator";
/// How the name of a line on the heap begins.
pub const NAMELESS_MEMORY: &str = "memory written by ";
/// How the name of a lock on the heap begins.
pub const TAKEN_BY: &str = "lock taken by ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_comes_back_from_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.json.gz");
        let recording = Recording {
            schema: SCHEMA.into(),
            operations: 3,
            paths: vec![PathNode::default()],
            steps: vec![Step { gap: 7, event: Event::Update, place: 1, path: 0 }],
            ..Recording::default()
        };
        recording.write(&file).expect("written");
        assert_eq!(Recording::read(&file).expect("read"), recording);
    }

    #[test]
    fn another_version_is_refused_with_the_command_that_makes_it_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.json.gz");
        let command = vec!["sealane-lab".into(), "count".into()];
        let old = Recording { schema: "old".into(), command, ..Recording::default() };
        old.write(&file).expect("written");
        let error = Recording::read(&file).expect_err("another version").to_string();
        assert!(error.contains("sealane-lab count"), "{error}");
    }

    #[test]
    fn a_file_that_unpacks_to_more_than_the_limit_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.json.gz");
        let mut packed = GzEncoder::new(File::create(&file).expect("a file"), Compression::fast());
        packed.write_all(br#"{"schema":""#).expect("written");
        let many = vec![b'x'; 1 << 20];
        for _ in 0..JSON_BYTES_MAX >> 20 {
            packed.write_all(&many).expect("written");
        }
        packed.write_all(br#""}"#).expect("written");
        packed.finish().expect("written");
        let error = Recording::read(&file).expect_err("too long").to_string();
        assert!(error.contains("x.json.gz") && error.contains("bytes of JSON"), "{error}");
    }

    #[test]
    fn what_no_recorder_writes_is_refused_with_its_field() {
        let node = |caller| PathNode { caller, ..PathNode::default() };
        let whole = || Recording {
            schema: SCHEMA.into(),
            operations: 1,
            lines: vec![RecordedLine::default()],
            locks: vec![Lock { holds: vec![Hold::default()], ..Lock::default() }],
            paths: vec![PathNode::default(), node(Some(0))],
            steps: vec![Step::default()],
            left_out: vec![LeftOut::default()],
            ..Recording::default()
        };
        type Break = fn(&mut Recording);
        let broken: [(&str, Break); 12] = [
            ("operations", |it| it.operations = 0),
            ("operations", |it| it.operations = u64::MAX),
            ("instructions", |it| it.instructions.server = -1.0),
            ("native_ns", |it| it.native_ns = Some(ByPart { client: 1e300, ..ByPart::default() })),
            ("updates", |it| it.lines[0].updates.outside = -0.5),
            ("holds", |it| it.locks[0].holds[0].ns = 1e18),
            ("holds", |it| it.locks[0].holds[0].calls = -1.0),
            ("left_out", |it| it.left_out[0].writes.client = f64::MAX),
            ("paths", |it| it.paths[1].caller = Some(1)),
            ("paths", |it| it.steps[0].path = 2),
            ("symbol", |it| it.lines[0].symbol = "\u{1b}[2J".into()),
            ("command", |it| it.command = vec!["a\nb".into()]),
        ];
        let read = |recording: &Recording| {
            Recording::unpacked(&serde_json::to_vec(recording).expect("JSON")[..])
        };
        assert_eq!(read(&whole()), Ok(whole()));
        for (field, break_it) in broken {
            let mut recording = whole();
            break_it(&mut recording);
            let error = read(&recording).expect_err(field);
            assert!(error.contains(field), "{field}: {error}");
        }
    }
}
