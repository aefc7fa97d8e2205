//! System calls summed in the kernel by `bpftrace`: no event leaves it, so that it costs least.

use std::{collections::BTreeMap, fs};

use sealane_lab_model::document::{LiveAddress, Unseen};
use serde_json::Value;

use super::{ACCEPTS, Asked, Counted, Total, WHAT};
use crate::live::{
    names::{call_name, call_number},
    tool::{LONGER_SECONDS, Tool, find},
};

pub(super) fn start(asked: &Asked) -> Result<Tool, Unseen> {
    // What is missing is told first: the rest would be in vain.
    find(BPFTRACE.0, BPFTRACE.1, WHAT)?;
    own_namespace(WHAT)?;
    run(&program(asked), WHAT)
}

/// Starts `program`; what is printed first says that it counts from then on.
///
/// # Errors
/// There is no `bpftrace`; `what` is then not to be seen.
pub fn run(program: &str, what: &str) -> Result<Tool, Unseen> {
    Tool::start(BPFTRACE, ["-B", "line", "-f", "json", "-e", program], what)
}

/// Refuses where the kernel's process ids are not ours, as in most containers.
///
/// # Errors
/// `what` is then not to be seen.
pub fn own_namespace(what: &str) -> Result<(), Unseen> {
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    if namespace.to_str() == Some(FIRST_NAMESPACE) {
        return Ok(());
    }
    Err(Unseen {
        what: format!("{what}, by bpftrace"),
        why: "in a namespace of process ids, as in a container, bpftrace sees other ids".into(),
        remedy: "run this outside of the container, with the id that the server has there".into(),
    })
}

/// A condition of the process, for any probe.
pub fn filter(pids: &[u32]) -> String {
    let each: Vec<String> = pids.iter().map(|pid| format!("pid == {pid}")).collect();
    each.join(" || ")
}

/// The maps of a program's output, by name.
pub fn maps(output: &str) -> BTreeMap<String, Value> {
    let mut maps = BTreeMap::new();
    for line in output.lines() {
        let Ok(Value::Object(mut line)) = serde_json::from_str(line) else { continue };
        if let Some(Value::Object(data)) = line.remove("data") {
            maps.extend(data);
        }
    }
    maps
}

fn program(asked: &Asked) -> String {
    let filter = filter(&asked.pids);
    // We stop it; that it ends by itself is for the case that nobody can.
    let seconds = asked.seconds.saturating_add(LONGER_SECONDS);
    let accepts = ACCEPTS.iter().filter_map(|name| call_number(name));
    let accepts: Vec<String> = accepts.map(|number| format!("args->id == {number}")).collect();
    let accepts = accepts.join(" || ");
    format!(
        "tracepoint:raw_syscalls:sys_enter /{filter}/ {{ @at[tid] = nsecs; }}
tracepoint:raw_syscalls:sys_exit /({filter}) && @at[tid]/ {{
  @calls[args->id] = stats(nsecs - @at[tid]);
  if (({accepts}) && args->ret >= 0) {{ @accepts[tid] = count(); }}
  delete(@at[tid]);
}}
tracepoint:syscalls:sys_enter_futex
/({filter}) && ((args->op & 127) == 0 || (args->op & 127) == 9)/ {{
  @since[tid] = nsecs; @word[tid] = args->uaddr;
}}
tracepoint:syscalls:sys_exit_futex /({filter}) && @since[tid]/ {{
  @waits[pid, tid, @word[tid]] = stats(nsecs - @since[tid]);
  delete(@since[tid]); delete(@word[tid]);
}}
interval:s:{seconds} {{ exit(); }}
END {{ clear(@at); clear(@since); clear(@word); }}
"
    )
}

/// `None` if it never came to count.
pub(super) fn counted(output: &str) -> Option<Counted> {
    if !output.contains("\"attached_probes\"") {
        return None;
    }
    let maps = maps(output);
    let entries = |name: &str| maps.get(name).and_then(Value::as_object).into_iter().flatten();
    let mut counted = Counted { accepts: Some(BTreeMap::new()), ..Counted::default() };
    for (number, stats) in entries("@calls") {
        let (Ok(number), Some(total)) = (number.parse(), total(stats)) else { continue };
        counted.calls.insert(call_name(number), total);
    }
    let accepts = entries("@accepts");
    counted.accepts = Some(
        accepts.filter_map(|(tid, count)| Some((tid.parse().ok()?, count.as_u64()?))).collect(),
    );
    let mut waits: BTreeMap<u32, Total> = BTreeMap::new();
    let mut addresses: BTreeMap<(u32, String), LiveAddress> = BTreeMap::new();
    for (key, stats) in entries("@waits") {
        let fields: Vec<&str> = key.split(',').collect();
        let ([pid, tid, address], Some(total)) = (&fields[..], total(stats)) else { continue };
        let (Ok(pid), Ok(tid)) = (pid.parse(), tid.parse()) else { continue };
        let sum = waits.entry(tid).or_default();
        sum.count += total.count;
        sum.ns += total.ns;
        let address = (*address).to_owned();
        let of = addresses.entry((pid, address.clone())).or_insert(LiveAddress {
            pid,
            address,
            ..LiveAddress::default()
        });
        of.waits += total.count;
        of.waited_ns += total.ns;
        of.threads += 1;
    }
    counted.waits = Some(waits);
    counted.addresses = addresses.into_values().collect();
    counted.addresses.sort_by_key(|address| std::cmp::Reverse(address.waited_ns));
    counted.addresses.truncate(ADDRESSES_MAX);
    Some(counted)
}

fn total(stats: &Value) -> Option<Total> {
    Some(Total { count: stats.get("count")?.as_u64()?, ns: stats.get("total")?.as_u64()? })
}

/// The program and its package.
const BPFTRACE: (&str, &str) = ("bpftrace", "bpftrace");
/// What those who may not use it have to do.
pub const REMEDY: &str = "run this as root with tracefs mounted (`mount -t tracefs \
    none /sys/kernel/tracing`) on a kernel with CONFIG_BPF_SYSCALL, CONFIG_DEBUG_INFO_BTF and \
    CONFIG_FTRACE_SYSCALLS; in a container, with the capabilities BPF, \
    PERFMON and SYS_ADMIN and the host's process ids";

const ADDRESSES_MAX: usize = 20;
/// The kernel gives the first namespace of process ids this number, always.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = r#"{"type": "attached_probes", "data": {"probes": 5}}
{"type": "stats", "data": {"@calls": {"9999": {"count": 3, "average": 2, "total": 6}, "x": {}}}}
{"type": "map", "data": {"@accepts": {"13": 41, "14": 2}}}
{"type": "stats", "data": {"@waits": {"12,13,0x55ac": {"count": 2, "average": 5, "total": 10},
"#;

    #[test]
    fn sums_are_read_by_call_thread_and_address() {
        let [first, second, third] = [
            r#""12,13,0x55ac": {"count": 2, "total": 10}"#,
            r#""12,14,0x55ac": {"count": 1, "total": 9}"#,
            r#""12,14,0x1": {"count": 1, "total": 1}"#,
        ];
        let waits = format!("{{\"data\": {{\"@waits\": {{{first}, {second}, {third}}}}}}}");
        let counted = counted(&format!("{OUTPUT}\n{waits}\n")).unwrap();
        assert_eq!(counted.calls["call 9999"], Total { count: 3, ns: 6 });
        assert_eq!(counted.accepts.unwrap(), BTreeMap::from([(13, 41), (14, 2)]));
        assert_eq!(counted.waits.unwrap()[&14], Total { count: 2, ns: 10 });
        let first = &counted.addresses[0];
        assert_eq!((first.waits, first.waited_ns, first.threads), (3, 19, 2));
        assert_eq!((first.pid, first.address.as_str()), (12, "0x55ac"));
    }

    #[test]
    fn one_that_never_attached_counted_nothing() {
        assert_eq!(counted(""), None);
        assert_eq!(counted("{\"type\": \"map\", \"data\": {\"@calls\": {}}}"), None);
    }
}
