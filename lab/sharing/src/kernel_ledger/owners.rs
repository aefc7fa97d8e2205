//! Which thread has which file table and which memory map: [`Owners`]. Of those that live when the
//! trace begins the kernel tells it; of those that are born in it, how they are born.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    io::ErrorKind,
};

use sealane_lab_model::error::Error;

use crate::kernel_ledger::trace::{Call, Event};

/// All threads of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners {
    threads: BTreeMap<u32, Thread>,
    tables: usize,
    maps: usize,
}

/// What one thread has, by numbers that are given here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Thread {
    pub(super) table: usize,
    pub(super) map: usize,
}

impl Owners {
    /// The owners of these processes' objects, as they are.
    ///
    /// # Errors
    /// The kernel does not tell it to this user, or to nobody.
    pub(super) fn of(processes: &[u32]) -> Result<Self, Error> {
        let mut owners = Self::default();
        for thread in processes.iter().flat_map(|process| threads_of(*process)) {
            let table = owners.known(thread, sealane_file_table::same_table, |it| it.table);
            let map = owners.known(thread, sealane_file_table::same_map, |it| it.map);
            let (table, map) = match (table, map) {
                (Ok(table), Ok(map)) => (table, map),
                (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::NotFound => {
                    continue;
                }
                // It ended meanwhile.
                (Err(error), _) | (_, Err(error)) if error.raw_os_error() == Some(ESRCH) => {
                    continue;
                }
                (Err(error), _) | (_, Err(error)) => return Err(refused(error)),
            };
            let table = table.unwrap_or_else(|| owners.new_table());
            let map = map.unwrap_or_else(|| owners.new_map());
            owners.threads.insert(thread, Thread { table, map });
        }
        Ok(owners)
    }

    /// The number of what `thread` has, if another one has it too.
    fn known(
        &self,
        thread: u32,
        same: impl Fn(u32, u32) -> std::io::Result<bool>,
        number: impl Fn(&Thread) -> usize,
    ) -> std::io::Result<Option<usize>> {
        // It must be asked once, so that a refusal shows.
        same(thread, thread)?;
        let mut asked = HashSet::new();
        for (other, its) in &self.threads {
            let number = number(its);
            if asked.insert(number) && same(thread, *other).unwrap_or(false) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// What `thread` has, if it is known.
    pub(super) fn of_thread(&self, thread: u32) -> Option<Thread> {
        self.threads.get(&thread).copied()
    }

    /// Threads that have that table.
    pub(super) fn of_table(&self, table: usize) -> Vec<u32> {
        let holds = |(thread, its): (&u32, &Thread)| (its.table == table).then_some(*thread);
        self.threads.iter().filter_map(holds).collect()
    }

    /// Threads that have that map.
    pub(super) fn of_map(&self, map: usize) -> Vec<u32> {
        let holds = |(thread, its): (&u32, &Thread)| (its.map == map).then_some(*thread);
        self.threads.iter().filter_map(holds).collect()
    }

    /// One living thread of each table.
    pub(super) fn representatives(&self) -> BTreeMap<usize, u32> {
        self.threads.iter().rev().map(|(thread, its)| (its.table, *thread)).collect()
    }

    /// Follows one event: births, ends, and tables that a thread copies for itself. `births` are
    /// those of [`births`], for a child's first line may come before the end of the call that made
    /// it.
    pub(super) fn follow(&mut self, event: &Event, births: &HashMap<u32, Birth>) {
        let thread = match event {
            Event::Ended(thread) => {
                self.threads.remove(thread);
                return;
            }
            Event::Call(call) => {
                self.born(call.thread, births);
                if let Some(child) = child(call) {
                    self.born(child, births);
                }
                call
            }
        };
        if copies_table(thread) {
            let table = self.new_table();
            if let Some(its) = self.threads.get_mut(&thread.thread) {
                its.table = table;
            }
        }
    }

    fn born(&mut self, thread: u32, births: &HashMap<u32, Birth>) {
        if self.threads.contains_key(&thread) {
            return;
        }
        let birth = births.get(&thread).copied();
        let parent = birth.and_then(|birth| self.of_thread(birth.parent));
        let table = match (birth, parent) {
            (Some(Birth { shares_table: true, .. }), Some(parent)) => parent.table,
            _ => self.new_table(),
        };
        let map = match (birth, parent) {
            (Some(Birth { shares_map: true, .. }), Some(parent)) => parent.map,
            _ => self.new_map(),
        };
        self.threads.insert(thread, Thread { table, map });
    }

    fn new_table(&mut self) -> usize {
        self.tables += 1;
        self.tables
    }

    fn new_map(&mut self) -> usize {
        self.maps += 1;
        self.maps
    }
}

/// How a thread came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Birth {
    parent: u32,
    shares_table: bool,
    shares_map: bool,
}

/// The threads that are born in these events.
pub(super) fn births(events: &[Event]) -> HashMap<u32, Birth> {
    let calls = events.iter().filter_map(|event| match event {
        Event::Call(call) => Some((child(call)?, call)),
        Event::Ended(_) => None,
    });
    let birth = |call: &Call| Birth {
        parent: call.thread,
        shares_table: call.arguments.contains("CLONE_FILES"),
        shares_map: call.arguments.contains("CLONE_VM") || call.name == "vfork",
    };
    calls.map(|(child, call)| (child, birth(call))).collect()
}

fn child(call: &Call) -> Option<u32> {
    let is_birth = matches!(call.name.as_str(), "clone" | "clone3" | "fork" | "vfork");
    if is_birth && call.result > 0 { u32::try_from(call.result).ok() } else { None }
}

fn copies_table(call: &Call) -> bool {
    !call.has_failed()
        && match call.name.as_str() {
            "execve" | "execveat" => true,
            "unshare" => call.arguments.contains("CLONE_FILES"),
            "close_range" => call.arguments.contains("CLOSE_RANGE_UNSHARE"),
            _ => false,
        }
}

/// The threads of a process, if it lives.
pub(super) fn threads_of(process: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    threads.sort_unstable();
    threads
}

fn refused(error: std::io::Error) -> Error {
    let what = "ask by kcmp(2) who shares a file table (it takes a kernel with CONFIG_KCMP, and \
                root or the server's own user; in a container, the capability SYS_PTRACE)";
    Error::io(what)(error)
}

const ESRCH: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{process::Command, thread, time::Duration};

    fn call(thread: u32, name: &str, arguments: &str, result: i64) -> Event {
        let (name, arguments, error) = (name.into(), arguments.into(), String::new());
        Event::Call(Call { thread, name, arguments, result, error })
    }

    #[test]
    fn the_kernel_tells_who_shares() {
        let own = std::process::id();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let owners = Owners::of(&[own, child.id()]).unwrap();
        let [first, other] = [own, child.id()].map(|thread| owners.of_thread(thread).unwrap());
        assert!(first.table != other.table && first.map != other.map);
        assert_eq!(owners.of_table(other.table), [child.id()]);
        assert!(owners.of_map(first.map).contains(&own));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_birth_tells_what_is_shared() {
        let own = std::process::id();
        let mut owners = Owners::of(&[own]).unwrap();
        let (thread, process, early) = (4_000_001, 4_000_002, 4_000_003);
        let own_table = owners.of_thread(own).unwrap();
        let events = [
            // Its first line comes before its parent's.
            call(early, "close", "3", 0),
            call(own, "clone3", "{flags=CLONE_VM|CLONE_FILES|CLONE_THREAD}", i64::from(early)),
            call(own, "clone", "flags=CLONE_VM|CLONE_FS|CLONE_FILES", i64::from(thread)),
            call(own, "clone", "flags=CLONE_CHILD_SETTID|SIGCHLD", i64::from(process)),
            call(thread, "close_range", "3, 4294967295, CLOSE_RANGE_UNSHARE", 0),
        ];
        let births = births(&events);
        for event in &events {
            owners.follow(event, &births);
        }
        assert_eq!(owners.of_thread(early), Some(own_table));
        let thread_s = owners.of_thread(thread).unwrap();
        assert!(thread_s.table != own_table.table && thread_s.map == own_table.map);
        let process_s = owners.of_thread(process).unwrap();
        assert!(process_s.table != own_table.table && process_s.map != own_table.map);
        let holders = owners.of_table(own_table.table).len();
        owners.follow(&Event::Ended(early), &births);
        assert_eq!(owners.of_table(own_table.table).len(), holders - 1);
    }

    #[test]
    fn what_ended_is_no_refusal() {
        let mut child = Command::new("true").spawn().unwrap();
        thread::sleep(Duration::from_millis(50));
        let owners = Owners::of(&[child.id()]);
        child.wait().unwrap();
        assert!(owners.is_ok(), "{owners:?}");
        assert_eq!(Owners::of(&[child.id()]).unwrap().threads.len(), 0);
    }
}
