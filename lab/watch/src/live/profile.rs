//! Where CPU time goes and where threads begin to wait for each other: [`Profile`], by `perf`, with
//! the kernel's software clock, which needs no counter of the processor.

use std::{
    fs,
    time::{Duration, Instant},
};

use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::document::{LiveProcess, LiveProfile, Unseen};

use super::{
    nameless::Nameless,
    samples::{Events, Samples, fold},
    target::printable,
    tool::{Tool, for_at_most},
};

/// Samples being taken.
pub(super) struct Profile {
    tool: Tool,
    folder: tempfile::TempDir,
    pids: String,
    seconds: u32,
    hertz: u32,
    begun: Instant,
    /// Whether the begins of waits are sampled too.
    with_waits: bool,
    unseen: Vec<Unseen>,
}

/// What was sampled.
#[derive(Debug, Default)]
pub(super) struct Profiled {
    pub(super) profile: Option<LiveProfile>,
    pub(super) waits: Option<Samples>,
    pub(super) unseen: Vec<Unseen>,
}

impl Profile {
    /// Begins to sample `processes`, for about `seconds` on so many `processors`.
    ///
    /// # Errors
    /// There is no `perf`.
    pub(super) fn begin(
        processes: &[LiveProcess],
        seconds: u32,
        processors: usize,
    ) -> Result<Self, Unseen> {
        let pids: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
        let folder = tempfile::tempdir().map_err(|error| Unseen {
            what: WHAT.into(),
            why: format!("no temporary folder: {error}"),
            remedy: "make room in TMPDIR".into(),
        })?;
        let processors = u32::try_from(processors).unwrap_or(u32::MAX).max(1);
        let hertz = SAMPLES_MAX / seconds.max(1).saturating_mul(processors);
        let hertz = hertz.clamp(HERTZ_MIN, HERTZ_MAX);
        let pids = pids.join(",");
        let tool = record(&folder, &pids, hertz, seconds, true)?;
        let (begun, unseen) = (Instant::now(), Vec::new());
        Ok(Self { tool, folder, pids, seconds, hertz, begun, with_waits: true, unseen })
    }

    /// Whether it takes samples by now, or never will: it writes its file's head before them.
    pub(super) fn is_ready(&mut self) -> bool {
        has_bytes(&self.folder) || !self.tool.runs() || self.begun.elapsed() > READY_TIME_MAX
    }

    /// Sees to it that samples are taken: where waits may not be sampled, goes on without.
    pub(super) fn attend(&mut self) {
        let late = !self.with_waits || self.begun.elapsed() > REFUSAL_TIME_MAX;
        if late || self.tool.runs() || has_bytes(&self.folder) {
            return;
        }
        let Self { folder, pids, hertz, seconds, .. } = &*self;
        let Ok(again) = record(folder, pids, *hertz, *seconds, false) else { return };
        let refused = std::mem::replace(&mut self.tool, again);
        let ended = refused.end(Duration::ZERO, &Interrupt::default());
        self.with_waits = false;
        self.unseen.push(Unseen {
            what: "call paths of waits in futex".into(),
            why: format!("perf may not sample a tracepoint: {}", ended.words()),
            remedy: TRACEPOINT_REMEDY.into(),
        });
    }

    /// Stops, and folds what there is.
    pub(super) fn end(self, stop: &Interrupt) -> Profiled {
        let full = !self.tool.runs();
        self.tool.stop();
        // A second Ctrl-C must not be needed: it ends by itself, within a limit.
        let ended = self.tool.end(END_TIME_MAX, &Interrupt::default());
        let mut profiled = Profiled { unseen: self.unseen, ..Profiled::default() };
        if !has_bytes(&self.folder) {
            profiled.unseen.push(refused(&ended.words()));
            return profiled;
        }
        if full && ended.said.contains("size limit") {
            profiled.unseen.push(Unseen {
                what: "the last part of the profile".into(),
                why: format!("its file is limited to {DATA_MAX}"),
                remedy: "watch for fewer seconds".into(),
            });
        }
        let data = self.folder.path().join(DATA);
        let arguments = ["script", "--no-inline", "-F", "comm,pid,tid,event,ip,sym,dso", "-i"];
        let arguments = arguments.iter().map(AsRef::as_ref).chain([data.as_os_str()]);
        let script = match Tool::start(PERF, arguments, WHAT) {
            // Who has pressed Ctrl-C gets what there is, if that is soon read.
            Ok(script) if stop.is_pressed() => script.end(END_TIME_MAX, &Interrupt::default()),
            Ok(script) => script.end(SCRIPT_TIME_MAX, stop),
            Err(unseen) => {
                profiled.unseen.push(unseen);
                return profiled;
            }
        };
        let mut nameless = Nameless::default();
        let mut events: Events = fold(&script.output, &mut nameless);
        if events.is_empty() && script.is_well() {
            // Nothing ran, which was seen.
            events.insert(CLOCK.into(), Samples::default());
        }
        profiled.profile = events.get(CLOCK).map(|samples| samples.profile(CLOCK, self.hertz));
        profiled.waits = events.remove(FUTEX);
        profiled.unseen.extend(replaced(&nameless));
        if profiled.profile.is_none() && !script.is_well() {
            profiled.unseen.push(refused(&script.words()));
        } else if script.status.is_none() {
            profiled.unseen.push(Unseen {
                what: "a part of the profile".into(),
                why: "reading it took too long, or was interrupted".into(),
                remedy: "watch for fewer seconds".into(),
            });
        }
        profiled
    }
}

fn record(
    folder: &tempfile::TempDir,
    pids: &str,
    hertz: u32,
    seconds: u32,
    with_waits: bool,
) -> Result<Tool, Unseen> {
    let data = folder.path().join(DATA).display().to_string();
    let hertz = hertz.to_string();
    let mut arguments = vec!["record", "-e", CLOCK];
    if with_waits {
        arguments.extend(["-e", "syscalls:sys_enter_futex", "--filter", FUTEX_FILTER]);
    }
    // Debian's libraries have no frame pointers; their stacks are copied and unwound later.
    arguments.extend(["-F", &hertz, "--call-graph", STACK, "--max-size", DATA_MAX]);
    arguments.extend(["-o", &data, "-p", pids]);
    let limit = for_at_most(seconds);
    arguments.extend(limit.iter().map(String::as_str));
    Tool::start(PERF, arguments, WHAT)
}

/// What has no names because its file is not the one that runs.
fn replaced(nameless: &Nameless) -> Option<Unseen> {
    let paths = nameless.all_replaced();
    (!paths.is_empty()).then(|| Unseen {
        what: printable(&format!("names of functions of {}", paths.join(", "))),
        why: "the file was replaced after the server began, as an update does".into(),
        remedy: "restart the server, which then runs what is installed".into(),
    })
}

fn has_bytes(folder: &tempfile::TempDir) -> bool {
    fs::metadata(folder.path().join(DATA)).is_ok_and(|data| data.len() > 0)
}

fn refused(words: &str) -> Unseen {
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    Unseen {
        what: WHAT.into(),
        why: format!("perf took no samples: {words}"),
        remedy: format!(
            "run this as root, or `sysctl kernel.perf_event_paranoid=1` (it is {}) and run it as \
             the server's user; in a container, with the capability PERFMON",
            if level.trim().is_empty() {
                "not there: this kernel has no perf events"
            } else {
                level.trim()
            }
        ),
    }
}

/// The program and its package.
pub(super) const PERF: (&str, &str) = ("perf", "linux-perf");
/// What those who may not use tracepoints have to do.
pub(super) const TRACEPOINT_REMEDY: &str = "run this as root with tracefs mounted (`mount -t \
    tracefs none /sys/kernel/tracing`) on a kernel with CONFIG_FTRACE_SYSCALLS; in a container, \
    with the capabilities PERFMON and SYS_ADMIN";

const CLOCK: &str = "task-clock";
const DATA: &str = "perf.data";
const DATA_MAX: &str = "128M";
const END_TIME_MAX: Duration = Duration::from_secs(10);
const FUTEX: &str = "sys_enter_futex";
/// Waits only, private or not, by either clock; to wake others is none.
const FUTEX_FILTER: &str = "op == 0 || op == 128 || op == 9 || op == 137 || op == 265 || op == 393";
const HERTZ_MAX: u32 = 199;
const HERTZ_MIN: u32 = 9;
const READY_TIME_MAX: Duration = Duration::from_secs(10);
/// By then a refusal has been said.
const REFUSAL_TIME_MAX: Duration = Duration::from_secs(20);
/// Samples of each event, so that the file stays within its limit.
const SAMPLES_MAX: u32 = 3_500;
const SCRIPT_TIME_MAX: Duration = Duration::from_secs(60);
/// How to walk a stack, and how much of it is kept: RSA's tables alone fill 8 KiB.
const STACK: &str = "dwarf,16384";
const WHAT: &str = "where its CPU time goes";
