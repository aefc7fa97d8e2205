//! What `perf script` prints, folded: [`Samples`], call paths with how often each was seen.

use std::collections::{BTreeMap, HashMap};

use sealane_lab_model::document::{LiveFunction, LivePath, LiveProfile, LiveWork};

use crate::demangle;

use super::{
    code::{bare, is_lock, is_meeting, is_monitor, work},
    nameless::Nameless,
    target::printable,
};

/// One event's samples.
#[derive(Debug, Default)]
pub(super) struct Samples {
    frames: Vec<Frame>,
    numbers: HashMap<Frame, u32>,
    /// Innermost frame first.
    paths: HashMap<Vec<u32>, u64>,
    /// By thread: in a lock's function, in a wait for another thread, in anything else.
    pub(super) by_thread: BTreeMap<u32, ByKind>,
    pub(super) count: u64,
}

/// A thread's samples, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ByKind {
    pub(super) lock: u64,
    pub(super) thread: u64,
    pub(super) other: u64,
}

/// A function and its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Frame {
    function: String,
    owner: String,
}

/// By event's name.
pub(super) type Events = BTreeMap<String, Samples>;

/// Folds the text of `perf script -F comm,pid,tid,event,ip,sym,dso`.
pub(super) fn fold(text: &str, nameless: &mut Nameless) -> Events {
    let mut events = Events::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((tid, event)) = head(line) else { continue };
        let mut frames = Vec::new();
        for line in lines.by_ref().take_while(|line| !line.trim().is_empty()) {
            if frames.len() < DEPTH_MAX {
                frames.extend(frame(line, nameless));
            }
        }
        events.entry(event).or_default().add(tid, kernel_as_one(frames));
    }
    events
}

impl Samples {
    fn add(&mut self, tid: u32, frames: Vec<Frame>) {
        self.count += 1;
        let kind = match kind_of(frames.iter().map(|frame| frame.function.as_str())) {
            LOCK => &mut self.by_thread.entry(tid).or_default().lock,
            THREAD => &mut self.by_thread.entry(tid).or_default().thread,
            _ => &mut self.by_thread.entry(tid).or_default().other,
        };
        *kind += 1;
        let mut path = Vec::with_capacity(frames.len());
        for frame in frames {
            let next = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
            let number = *self.numbers.entry(frame.clone()).or_insert(next);
            if number == next {
                self.frames.push(frame);
            }
            path.push(number);
        }
        *self.paths.entry(path).or_default() += 1;
    }

    /// The busiest paths, those of locks before others that are as busy.
    pub(super) fn paths(&self, most: usize) -> Vec<LivePath> {
        let mut paths: Vec<LivePath> = self
            .paths
            .iter()
            .map(|(path, count)| LivePath {
                path: self.named(path).map(Frame::said).collect(),
                share: self.share(*count),
                kind: self.kind(path).to_owned(),
            })
            .collect();
        paths.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.path.cmp(&b.path)));
        paths.truncate(most);
        paths
    }

    /// The profile, as the document has it.
    pub(super) fn profile(&self, event: &str, hertz: u32) -> LiveProfile {
        let mut functions: BTreeMap<&Frame, u64> = BTreeMap::new();
        let mut done: BTreeMap<&str, u64> = BTreeMap::new();
        let mut locks = 0;
        for (path, count) in &self.paths {
            if let Some(frame) = self.named(path).next() {
                *functions.entry(frame).or_default() += count;
            }
            if self.kind(path) == LOCK {
                locks += count;
            }
            let names = self.named(path).map(|frame| frame.function.as_str());
            if let Some(work) = work(names) {
                *done.entry(work).or_default() += count;
            }
        }
        let mut functions: Vec<LiveFunction> = functions
            .into_iter()
            .map(|(frame, count)| LiveFunction {
                function: frame.function.clone(),
                owner: frame.owner.clone(),
                share: self.share(count),
            })
            .collect();
        functions.sort_by(|a, b| b.share.total_cmp(&a.share));
        functions.truncate(FUNCTIONS_MAX);
        let mut work: Vec<LiveWork> = done
            .into_iter()
            .map(|(work, count)| LiveWork { work: work.to_owned(), share: self.share(count) })
            .collect();
        work.sort_by(|a, b| b.share.total_cmp(&a.share));
        LiveProfile {
            event: event.to_owned(),
            hertz,
            samples: self.count,
            functions,
            paths: self.paths(PATHS_MAX),
            lock_share: self.share(locks),
            work,
        }
    }

    fn share(&self, count: u64) -> f64 {
        count as f64 / self.count.max(1) as f64
    }

    fn kind(&self, path: &[u32]) -> &'static str {
        kind_of(self.named(path).map(|frame| frame.function.as_str()))
    }

    fn named<'a>(&'a self, path: &'a [u32]) -> impl Iterator<Item = &'a Frame> {
        path.iter().filter_map(|number| self.frames.get(usize::try_from(*number).ok()?))
    }
}

impl PartialOrd for Frame {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Frame {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.owner, &self.function).cmp(&(&other.owner, &other.function))
    }
}

impl Frame {
    fn said(&self) -> String {
        format!("{} ({})", self.function, self.owner)
    }
}

/// Innermost first: what stands nearest to the end decides.
fn kind_of<'a>(functions: impl Iterator<Item = &'a str>) -> &'static str {
    let near: Vec<&str> = functions.take(KIND_DEPTH).collect();
    if near.iter().any(|function| is_monitor(function)) {
        return LOCK;
    }
    for function in near {
        if is_meeting(function) {
            return THREAD;
        }
        if is_lock(function) {
            return LOCK;
        }
    }
    ""
}

/// The thread and the event in the first line of a sample:
/// `name 12/13  5025125  task-clock: `. A name may hold blanks.
fn head(line: &str) -> Option<(u32, String)> {
    if line.starts_with(char::is_whitespace) && line.trim_start().starts_with(hex_digit) {
        return None;
    }
    let line = line.trim_end();
    let (before, event) = line.strip_suffix(':')?.rsplit_once(char::is_whitespace)?;
    let tid = before.split_whitespace().rev().find_map(|word| {
        let (pid, tid) = word.split_once('/')?;
        pid.parse::<u32>().ok().and(tid.parse().ok())
    })?;
    // `task-clock:u` where only the program itself may be seen, and other modifiers.
    let name = event.strip_prefix("syscalls:").unwrap_or(event);
    Some((tid, name.split(':').next().unwrap_or(name).to_owned()))
}

fn hex_digit(c: char) -> bool {
    c.is_ascii_hexdigit()
}

/// `    1175 inner (/path/of/file)`; a function's name may hold blanks and brackets.
fn frame(line: &str, nameless: &mut Nameless) -> Option<Frame> {
    let (address, rest) = line.trim().split_once(' ')?;
    let replaced = rest.strip_suffix(" (deleted))");
    let (function, path) = replaced.or(rest.strip_suffix(')'))?.rsplit_once(" (")?;
    let owner = match path.rsplit('/').next().unwrap_or(path) {
        _ if path.starts_with("[kernel") || path.ends_with(".ko") => KERNEL,
        "[unknown]" => "not known",
        name => name,
    };
    let function = match function {
        "[unknown]" if replaced.is_some() => nameless.replaced(path),
        "[unknown]" if owner != KERNEL => {
            nameless.name(path, u64::from_str_radix(address, 16).ok()?)
        }
        // Not every build of perf spells out names of C++ and of Rust.
        name => demangle::name(bare(name)),
    };
    Some(Frame { function: printable(&function), owner: printable(owner) })
}

/// What the kernel does in detail is not ours to tell: its frames become one, named by the system
/// call, or else by how it was entered. Before it stands a frame of those that wait for the lock of
/// their file table.
fn kernel_as_one(frames: Vec<Frame>) -> Vec<Frame> {
    let inside = frames.iter().take_while(|frame| frame.owner == KERNEL).count();
    let Some(inside) = inside.checked_sub(1) else { return frames };
    let calls = frames[..=inside].iter().rev().find_map(|frame| {
        let name = ["__x64_sys_", "__arm64_sys_", "__se_sys_"]
            .iter()
            .find_map(|start| frame.function.strip_prefix(start));
        name.map(|name| format!("{name} (system call)"))
    });
    let function = calls.unwrap_or_else(|| format!("kernel: {}", frames[0].function));
    let one = |function: String| Frame { function, owner: KERNEL.to_owned() };
    let spin = is_spin_for_table(&frames[..=inside]).then(|| one(TABLE_SPIN.to_owned()));
    let rest = frames.into_iter().skip(inside + 1);
    spin.into_iter().chain([one(function)]).chain(rest).collect()
}

/// Whether frames of the kernel wait on their processor for the lock of a file table.
fn is_spin_for_table(frames: &[Frame]) -> bool {
    let has = |names: &[&str]| {
        let of_it = |frame: &Frame| names.iter().any(|name| frame.function.starts_with(name));
        frames.iter().any(of_it)
    };
    has(&SPINS) && has(&TABLE_FUNCTIONS)
}

/// [`LivePath::kind`] of a lock's function.
pub(super) const LOCK: &str = "lock";
/// And of a wait for another thread.
pub(super) const THREAD: &str = "thread";

const DEPTH_MAX: usize = 64;
const FUNCTIONS_MAX: usize = 30;
const KERNEL: &str = "kernel";
/// A lock held by a caller is no lock's function: only so near to the innermost is looked.
const KIND_DEPTH: usize = 6;
pub(super) const PATHS_MAX: usize = 60;
/// Where a spin lock is waited for; one that is free is taken without them.
const SPINS: [&str; 3] =
    ["__pv_queued_spin_lock_slowpath", "native_queued_spin_lock_slowpath", "queued_spin_lock_slow"];
/// What takes the lock of a file table.
const TABLE_FUNCTIONS: [&str; 8] = [
    "__close_range",
    "alloc_fd",
    "close_fd",
    "do_dup2",
    "expand_files",
    "file_close_fd",
    "get_unused_fd",
    "put_unused_fd",
];
/// A frame of those that wait for the lock of their file table.
pub(super) const TABLE_SPIN: &str = "kernel: waits for the lock of the file table";

#[cfg(test)]
mod tests;
