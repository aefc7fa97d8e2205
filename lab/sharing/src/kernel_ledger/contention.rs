//! Waits for locks of the kernel while a server is under load, [`Contention`], by what they guard:
//! measured by bpftrace at `lock:contention_begin`, where that is allowed.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::{descendants, interrupt::Interrupt};
use sealane_lab_model::document::{FILE_TABLE, KernelContention, KernelWait, Unseen};
use sealane_lab_watch::live::{calls::bpftrace, tool::Tool};
use serde_json::Value;

/// Waits being counted.
pub(super) struct Contention {
    tool: Tool,
}

impl Contention {
    /// Begins, of the process `first` and all that descend from it.
    ///
    /// # Errors
    /// The tool is not installed or not allowed.
    pub(super) fn begin(first: u32) -> Result<Self, Unseen> {
        bpftrace::own_namespace(WHAT)?;
        let processes = descendants::tree(first).unwrap_or_default();
        let filter = bpftrace::filter(&processes);
        let program = format!(
            "tracepoint:lock:contention_begin /{filter}/ {{ @since[tid, args->lock_addr] = nsecs; }}
tracepoint:lock:contention_end /@since[tid, args->lock_addr]/ {{
  @waits[kstack({FRAMES})] = stats(nsecs - @since[tid, args->lock_addr]);
  delete(@since[tid, args->lock_addr]);
}}
interval:s:{SECONDS_MAX} {{ exit(); }}
END {{ clear(@since); }}
"
        );
        let tool = bpftrace::run(&program, WHAT)?;
        let deadline = Instant::now() + LOAD_TIME_MAX;
        while !tool.has_spoken() && tool.runs() && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
        if tool.runs() {
            return Ok(Self { tool });
        }
        let words = tool.end(Duration::ZERO, &Interrupt::default()).words();
        Err(Unseen {
            what: WHAT.into(),
            why: format!("bpftrace counted nothing: {words}"),
            remedy: bpftrace::REMEDY.into(),
        })
    }

    /// Ends, after so many connections with so many at once.
    pub(super) fn end(self, connections: u64, at_once: u64) -> KernelContention {
        self.tool.stop();
        let ended = self.tool.end(END_TIME_MAX, &Interrupt::default());
        KernelContention { connections, at_once, waits: waits(&ended.output) }
    }
}

fn waits(output: &str) -> Vec<KernelWait> {
    let maps = bpftrace::maps(output);
    let stacks = maps.get("@waits").and_then(Value::as_object).into_iter().flatten();
    let mut sums: BTreeMap<String, KernelWait> = BTreeMap::new();
    for (stack, stats) in stacks {
        let figure = |name: &str| stats.get(name).and_then(Value::as_u64).unwrap_or_default();
        let object = object(stack);
        let sum =
            sums.entry(object.clone()).or_insert(KernelWait { object, ..KernelWait::default() });
        sum.waits += figure("count");
        sum.waited_ns += figure("total");
    }
    let mut waits: Vec<KernelWait> = sums.into_values().collect();
    waits.sort_by_key(|wait| std::cmp::Reverse((wait.waited_ns, wait.waits)));
    waits.truncate(WAITS_MAX);
    waits
}

/// What the lock guards, by the innermost function that tells; else the function that waited.
fn object(stack: &str) -> String {
    let functions = stack.lines().map(|line| {
        let name = line.trim();
        name.split(['+', ' ']).next().unwrap_or(name)
    });
    let functions: Vec<&str> = functions.filter(|name| !name.is_empty()).collect();
    let known = functions.iter().find_map(|function| {
        GUARDS.iter().find(|(begin, _)| function.starts_with(begin)).map(|(_, object)| *object)
    });
    let waiting = functions.iter().find(|name| !name.contains("lock") && !name.contains("trace"));
    let waiting = waiting.or(functions.first()).copied().unwrap_or("unknown");
    known.unwrap_or(waiting).to_owned()
}

const WHAT: &str = "waits for locks of the kernel";
/// How functions begin that take a lock, with what it guards; the first that fits.
const GUARDS: [(&str, &str); 25] = [
    ("alloc_fd", FILE_TABLE),
    ("close_fd", FILE_TABLE),
    ("expand_f", FILE_TABLE),
    ("file_close_fd", FILE_TABLE),
    ("get_unused_fd", FILE_TABLE),
    ("put_unused_fd", FILE_TABLE),
    ("__close_range", FILE_TABLE),
    ("do_dup2", FILE_TABLE),
    ("set_close_on_exec", FILE_TABLE),
    ("do_madvise", MEMORY_MAP),
    ("do_mprotect", MEMORY_MAP),
    ("do_user_addr_fault", MEMORY_MAP),
    ("lock_mm_and_find_vma", MEMORY_MAP),
    ("mmap_", MEMORY_MAP),
    ("vm_mmap", MEMORY_MAP),
    ("__vm_munmap", MEMORY_MAP),
    ("__x64_sys_brk", MEMORY_MAP),
    ("futex_", "futex"),
    ("ep_", "epoll instance"),
    ("do_epoll_", "epoll instance"),
    ("__inet_hash_connect", "local ports"),
    ("__inet_check_established", "local ports"),
    ("inet_csk_get_port", "local ports"),
    ("inet_csk_accept", "listening socket"),
    // It has the lock's call in it, where the kernel was compiled so.
    ("__x64_sys_close", FILE_TABLE),
];
const MEMORY_MAP: &str = "memory map";
const END_TIME_MAX: Duration = Duration::from_secs(10);
const FRAMES: u32 = 10;
const LOAD_TIME_MAX: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);
const SECONDS_MAX: u32 = 300;
const WAITS_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_ledger::calls::Kind;

    #[test]
    fn a_wait_is_told_by_what_the_lock_guards() {
        let accept = "native_queued_spin_lock_slowpath+500\\n  alloc_fd+50\\n  __sys_accept4+90";
        let close = "_raw_spin_lock+20\\n  file_close_fd+9\\n  __x64_sys_close+9\\n";
        let other = "__traceiter_contention_end+70\\n  _raw_spin_lock_bh+4\\n  some_function+6\\n";
        let output = format!(
            "{{\"type\": \"attached_probes\", \"data\": {{\"probes\": 4}}}}\n\
             {{\"data\": {{\"@waits\": {{\"{accept}\": {{\"count\": 3, \"total\": 300}}, \
             \"{close}\": {{\"count\": 1, \"total\": 50}}, \
             \"{other}\": {{\"count\": 2, \"total\": 900}}}}}}}}\n"
        );
        let told =
            |object: &str, waits, waited_ns| KernelWait { object: object.into(), waits, waited_ns };
        assert_eq!(waits(&output), [told("some_function", 2, 900), told(FILE_TABLE, 4, 350)]);
        assert_eq!(waits(""), []);
    }

    #[test]
    fn objects_are_called_as_in_the_rows() {
        for name in [FILE_TABLE, MEMORY_MAP, "futex", "epoll instance", "listening socket"] {
            assert!(Kind::ALL.iter().any(|kind| kind.words() == name), "{name}");
        }
    }
}
