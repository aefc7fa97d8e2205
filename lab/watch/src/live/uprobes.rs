//! Calls of lock functions, by probes that `bpftrace` puts into the server's C library for a
//! moment. Every call then enters the kernel: a server that takes many locks becomes slower by up
//! to a hundred times meanwhile, so that this is done only when asked for, and last.

use std::{fs, path::PathBuf, time::Duration};

use object::{Object, ObjectSymbol};
use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::document::{LiveLockCalls, LiveLockSite, LiveProcess, Unseen};

use super::{
    calls::bpftrace::{REMEDY, filter, maps, own_namespace, run},
    target::{printable, text_of},
};

/// Counts for [`PROBE_SECONDS`].
///
/// # Errors
/// Nothing can be probed, or nobody may.
pub(super) fn count(processes: &[LiveProcess], stop: &Interrupt) -> Result<LiveLockCalls, Unseen> {
    let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    let (file, functions) = pids.iter().find_map(|pid| probed(*pid)).ok_or_else(|| Unseen {
        what: WHAT.into(),
        why:
            "neither a C library that it loads nor its own file has lock functions by name: it is \
              static and stripped, or locks by code of its own, and nothing can be probed"
                .into(),
        remedy: "watch a build with symbols, or count with `sealane-lab count --lines`, which \
                 needs none"
            .into(),
    })?;
    own_namespace(WHAT)?;
    let program = program(&pids, &file.display().to_string(), &functions);
    let tool = run(&program, WHAT)?;
    let ended = tool.end(Duration::from_secs(PROBE_SECONDS) + LOAD_TIME_MAX, stop);
    if stop.is_pressed() {
        return Err(Unseen {
            what: WHAT.into(),
            why: "interrupted".into(),
            remedy: format!("let it count for {PROBE_SECONDS} seconds"),
        });
    }
    if !ended.is_well() || !ended.output.contains("\"attached_probes\"") {
        return Err(Unseen {
            what: WHAT.into(),
            why: format!("bpftrace probed nothing: {}", ended.words()),
            remedy: format!("{REMEDY}; for this, CONFIG_UPROBE_EVENTS too"),
        });
    }
    Ok(LiveLockCalls { counted_seconds: PROBE_SECONDS as f64, sites: sites(&ended.output) })
}

/// The file of a process that has lock functions: its C library, or the program itself.
fn probed(pid: u32) -> Option<(PathBuf, Vec<&'static str>)> {
    let maps = text_of(&format!("/proc/{pid}/maps"))?;
    let mut paths: Vec<&str> = maps
        .lines()
        .filter(|line| line.contains(" r-xp "))
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        // They stand in a program, between quotes, and who is watched chose them.
        .filter(|path| !path.contains(['"', '\\']))
        .collect();
    // The C library defines them; others only call them.
    paths.sort_by_key(|path| !path.contains("/libc.so") && !path.contains("/libpthread"));
    paths.dedup();
    paths.into_iter().take(FILES_MAX).find_map(|path| {
        // As the server sees it, be it in a container.
        let file = PathBuf::from(format!("/proc/{pid}/root{path}"));
        let small = fs::metadata(&file).is_ok_and(|it| it.len() <= BYTES_MAX);
        let bytes = if small { fs::read(&file).ok()? } else { return None };
        let parsed = object::File::parse(&*bytes).ok()?;
        let defined: Vec<&'static str> = FUNCTIONS
            .into_iter()
            .filter(|function| {
                parsed.dynamic_symbols().chain(parsed.symbols()).any(|symbol| {
                    symbol.is_definition() && symbol.name().is_ok_and(|name| name == *function)
                })
            })
            .collect();
        (!defined.is_empty()).then_some((file, defined))
    })
}

fn program(pids: &[u32], file: &str, functions: &[&str]) -> String {
    let filter = filter(pids);
    // One probe for each, so that its own name is the key: a library has several for one place.
    let probes: String = functions
        .iter()
        .map(|function| {
            format!(
                "uprobe:\"{file}\":{function} /{filter}/ {{ \
                 @sites[\"{function}\", arg0, usym({RETURNS_TO})] = count(); }}\n"
            )
        })
        .collect();
    format!("{probes}interval:s:{PROBE_SECONDS} {{ exit(); }}\n")
}

/// Keys are `function,address,caller`; a caller's name may hold commas.
fn sites(output: &str) -> Vec<LiveLockSite> {
    let maps = maps(output);
    let entries = maps.get("@sites").and_then(serde_json::Value::as_object).into_iter().flatten();
    let mut sites: Vec<LiveLockSite> = entries
        .filter_map(|(key, count)| {
            let mut fields = key.splitn(3, ',');
            let function = fields.next()?.to_owned();
            let address: u64 = fields.next()?.parse().ok()?;
            let caller = printable(fields.next()?.split('+').next()?);
            let address = format!("{address:#x}");
            Some(LiveLockSite { function, address, caller, count: count.as_u64()? })
        })
        .collect();
    sites.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.address.cmp(&b.address)));
    sites.truncate(SITES_MAX);
    sites
}

/// So long the server is slowed.
pub(super) const PROBE_SECONDS: u64 = 2;

const BYTES_MAX: u64 = 256 * 1024 * 1024;
const FILES_MAX: usize = 32;
/// Not `pthread_spin_lock`: it begins with an instruction that no probe can stand in for.
const FUNCTIONS: [&str; 3] =
    ["pthread_mutex_lock", "pthread_rwlock_rdlock", "pthread_rwlock_wrlock"];
const LOAD_TIME_MAX: Duration = Duration::from_secs(20);
/// Where the caller's address is when a function begins.
#[cfg(target_arch = "x86_64")]
const RETURNS_TO: &str = "*(uint64*)reg(\"sp\")";
#[cfg(not(target_arch = "x86_64"))]
const RETURNS_TO: &str = "reg(\"lr\")";
const SITES_MAX: usize = 60;
const WHAT: &str = "calls of lock functions";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_c_library_to_probe() {
        let (file, functions) = probed(std::process::id()).unwrap();
        assert!(file.to_string_lossy().contains("libc"), "{file:?}");
        assert!(functions.contains(&"pthread_mutex_lock"));
    }

    #[test]
    fn sites_are_read_with_a_caller_that_has_commas() {
        let output = r#"{"data": {"@sites": {
            "pthread_mutex_lock,4096,f<a, b>+12": 7, "pthread_mutex_lock,17,x": 9}}}"#
            .replace('\n', "");
        let sites = sites(&output);
        assert_eq!((sites[0].count, sites[1].count), (9, 7));
        assert_eq!((sites[1].caller.as_str(), sites[1].address.as_str()), ("f<a, b>", "0x1000"));
    }
}
