//! A server that is traced while it works, in phases: [`Watch`]. After each connection it waits
//! until all of the server's threads sleep, so that what one connection costs is not mixed with
//! the next one's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::{descendants, interrupt::Interrupt};
use sealane_lab_model::{
    document::{KernelGrowth, KernelRow, Unseen},
    error::Error,
};
use sealane_lab_watch::live::{calls::strace, tool::Tool};

use crate::kernel_ledger::{
    account::{Account, PHASES},
    calls::{self, Object},
    owners::{Owners, threads_of},
    trace::Trace,
};

/// A server under strace.
pub(super) struct Watch {
    /// The server's first process.
    first: u32,
    /// That one and all that descend from it, as they were before the phase.
    processes: Vec<u32>,
    tool: Tool,
    trace: Trace,
    owners: Owners,
    account: Account,
    stop: Interrupt,
}

impl Watch {
    /// Begins to trace the process `first`, all that descend from it, and all that they start;
    /// what strace writes goes to `file`.
    ///
    /// # Errors
    /// The tool is not installed, or may not trace.
    pub(super) fn begin(first: u32, file: &Path, stop: &Interrupt) -> Result<Self, Error> {
        let processes = descendants::tree(first)?;
        let options = [
            // Paths of descriptors tell sockets apart; signals and the bytes of texts are nothing
            // to us.
            "-q",
            "-y",
            "-a",
            "1",
            "-s",
            "0",
            "-e",
            "signal=none",
            "-e",
        ];
        let mut options: Vec<String> = options.map(Into::into).to_vec();
        options.push(format!("trace={}", calls::traced()));
        options.extend(["-o".into(), file.display().to_string()]);
        let tool =
            strace::attach(&options, (&processes, TRACE_SECONDS_MAX), WHAT).map_err(missing)?;
        let mut watch = Self {
            first,
            processes,
            tool,
            trace: opened(file)?,
            owners: Owners::default(),
            account: Account::default(),
            stop: stop.clone(),
        };
        watch.wait_until_traced()?;
        watch.quiet()?;
        // What came before now is of the beginning; who is there from now on, the kernel tells.
        watch.trace.read()?;
        watch.owners = Owners::of(&descendants::tree(first)?)?;
        Ok(watch)
    }

    /// Does `work`, so many connections in that phase, each of them alone.
    ///
    /// # Errors
    /// What went wrong with one, or that the server does not come to rest.
    pub(super) fn phase(
        &mut self,
        phase: usize,
        connections: u64,
        work: &mut dyn FnMut(u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // All of `/proc` is read for it, which takes longer than a connection.
        self.processes = descendants::tree(self.first)?;
        for _ in 0..connections {
            work(1)?;
            self.quiet()?;
        }
        self.take(phase)
    }

    /// Does `work`, by which connections come and stay, and says how tables have grown in it.
    ///
    /// # Errors
    /// Those of [`Self::phase`].
    pub(super) fn growth(
        &mut self,
        held: u64,
        work: &mut dyn FnMut(u64) -> Result<(), Error>,
    ) -> Result<KernelGrowth, Error> {
        let before = self.sizes();
        work(held)?;
        self.quiet()?;
        let after = self.sizes();
        self.take(PHASES - 1)?;
        let mut growth = KernelGrowth { held, ..KernelGrowth::default() };
        for (table, size) in after {
            let Some(earlier) = before.get(&table) else { continue };
            let sum = match self.owners.of_table(table).len() {
                0 | 1 => &mut growth.apart,
                _ => &mut growth.shared,
            };
            *sum += doublings(*earlier, size);
        }
        Ok(growth)
    }

    /// What the phases 1 to 3 came to, of so many connections, twice and three times as many.
    pub(super) fn rows(&mut self, connections: u64) -> Vec<KernelRow> {
        self.find_same();
        self.find_waiters();
        self.account.rows(connections)
    }

    /// Leaves the server alone.
    pub(super) fn end(self) {
        self.tool.stop();
        self.tool.end(END_TIME_MAX, &self.stop);
    }

    fn take(&mut self, phase: usize) -> Result<(), Error> {
        let events = self.trace.read()?;
        self.account.add(&events, phase, &mut self.owners);
        Ok(())
    }

    /// Until strace has said of a thread that it does something, or all sleep under it.
    fn wait_until_traced(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + ATTACH_TIME_MAX;
        loop {
            let tracers = self.threads().into_iter().map(|(_, status)| status.tracer);
            if tracers.into_iter().all(|tracer| tracer != 0) {
                return Ok(());
            }
            self.checked(deadline, "strace did not come to trace all threads of it")?;
            thread::sleep(LOOK);
        }
    }

    /// Until all threads of the server sleep and nothing has been written for some looks.
    fn quiet(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + QUIET_TIME_MAX;
        let mut looks = 0;
        let mut counts = BTreeMap::new();
        while looks < QUIET_LOOKS {
            thread::sleep(LOOK);
            let now: BTreeMap<u32, (bool, u64)> = self
                .threads()
                .into_iter()
                .map(|(thread, status)| (thread, (status.sleeps, status.switches)))
                .collect();
            let rests = now.values().all(|(sleeps, _)| *sleeps) && now == counts;
            looks = if rests { looks + 1 } else { 0 };
            counts = now;
            self.checked(
                deadline,
                "it is never at rest, so that connections cannot be told apart",
            )?;
        }
        Ok(())
    }

    fn checked(&mut self, deadline: Instant, late: &str) -> Result<(), Error> {
        if self.stop.is_pressed() {
            return Err(Error::Interrupted);
        }
        if !self.tool.runs() {
            return Err(Error::Check(format!(
                "strace ended too early; {}. It may trace what this user may",
                strace::REMEDY
            )));
        }
        if Instant::now() > deadline {
            return Err(Error::Check(late.to_owned()));
        }
        Ok(())
    }

    fn threads(&self) -> Vec<(u32, Status)> {
        let threads = self.processes.iter().copied().flat_map(threads_of);
        threads.filter_map(|thread| Some((thread, Status::of(thread)?))).collect()
    }

    /// For how many descriptors each table has room.
    fn sizes(&self) -> BTreeMap<usize, u64> {
        let size = |(table, thread)| Some((table, Status::of(thread)?.table_size));
        self.owners.representatives().into_iter().filter_map(size).collect()
    }

    /// Descriptors of different tables that are of one open file, as processes inherit it.
    fn find_same(&mut self) {
        let threads = self.owners.representatives();
        let known = self.account.descriptors();
        for (at, (object, table, descriptor)) in known.iter().enumerate() {
            for (first, its_table, its_descriptor) in &known[..at] {
                let (Some(a), Some(b)) = (threads.get(its_table), threads.get(table)) else {
                    continue;
                };
                let same = sealane_file_table::same_file((*a, *its_descriptor), (*b, *descriptor));
                if table != its_table && same.unwrap_or(false) {
                    self.account.are_same(*first, *object);
                    break;
                }
            }
        }
    }

    /// Threads that wait at an epoll instance wait for the listening sockets in it.
    fn find_waiters(&mut self) {
        let threads = self.owners.representatives();
        for inode in self.account.listeners() {
            let mut waiters = BTreeSet::new();
            for (object, table, descriptor) in self.account.descriptors() {
                let Some(thread) = threads.get(&table) else { continue };
                let info = fs::read_to_string(format!("/proc/{thread}/fdinfo/{descriptor}"));
                if watches(&info.unwrap_or_default(), inode) {
                    waiters.extend(self.account.writers(object));
                }
            }
            self.account.waits(Object::Listener(inode), &waiters);
        }
    }
}

/// `tfd:  5 events: 19 data: 5  pos:0 ino:61af sdev:9` for each file that it watches.
fn watches(info: &str, inode: u64) -> bool {
    let fields = info.lines().filter(|line| line.starts_with("tfd:"));
    fields.flat_map(str::split_whitespace).any(|field| {
        field.strip_prefix("ino:").and_then(|it| u64::from_str_radix(it, 16).ok()) == Some(inode)
    })
}

/// A table grows to the next power of two.
fn doublings(before: u64, after: u64) -> u64 {
    let log = |size: u64| u64::from(size.max(1).ilog2());
    log(after).saturating_sub(log(before))
}

/// What `/proc` tells of one thread.
struct Status {
    sleeps: bool,
    tracer: u32,
    table_size: u64,
    /// Times that it went to sleep or was put aside.
    switches: u64,
}

impl Status {
    fn of(thread: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim_start_matches(':').split_whitespace().next())
        };
        let number = |name: &str| field(name).and_then(|it| it.parse::<u64>().ok());
        let switches = number("voluntary_ctxt_switches")? + number("nonvoluntary_ctxt_switches")?;
        Some(Self {
            sleeps: matches!(field("State"), Some("S" | "I" | "Z")),
            tracer: u32::try_from(number("TracerPid")?).ok()?,
            table_size: number("FDSize")?,
            switches,
        })
    }
}

/// The file, once strace has made it.
fn opened(file: &Path) -> Result<Trace, Error> {
    let deadline = Instant::now() + ATTACH_TIME_MAX;
    loop {
        match Trace::open(file) {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(LOOK),
            opened => return opened,
        }
    }
}

fn missing(unseen: Unseen) -> Error {
    Error::Missing {
        program: format!("strace, for {WHAT} ({})", unseen.why),
        remedy: unseen.remedy,
    }
}

const ATTACH_TIME_MAX: Duration = Duration::from_secs(30);
const END_TIME_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(4);
const QUIET_LOOKS: u32 = 4;
const QUIET_TIME_MAX: Duration = Duration::from_secs(30);
/// The tracer must not stay if nobody is left to end it.
const TRACE_SECONDS_MAX: u32 = 600;
const WHAT: &str = "system calls on what threads share in the kernel";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_grow_by_doubling() {
        assert_eq!(doublings(64, 64), 0);
        assert_eq!(doublings(64, 128), 1);
        assert_eq!(doublings(64, 1024), 4);
        assert_eq!(doublings(1024, 64), 0);
    }

    #[test]
    fn an_epoll_instance_tells_what_it_watches() {
        let info = "pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t61af\n\
                    tfd:        7 events: 80002019 data: 7  pos:0 ino:2a sdev:9\n";
        assert!(watches(info, 42) && !watches(info, 0x61af) && !watches("", 0));
    }
}
