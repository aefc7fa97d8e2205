//! System calls by `strace`, which stops the server at each of them, twice: only where the operator
//! allows that.

use sealane_lab_model::document::Unseen;

use crate::live::tool::{LONGER_SECONDS, Tool, find};

use super::{Asked, Counted, Total, WHAT};

pub(super) fn start(asked: &Asked) -> Result<Tool, Unseen> {
    find(STRACE.0, STRACE.1, WHAT)?;
    if !asked.allow_slow {
        return Err(Unseen {
            what: format!("{WHAT}, by strace"),
            why: "it would slow the server down by many times, and was not allowed to".into(),
            remedy: "add --allow-slow; better, make bpftrace or perf work as said above".into(),
        });
    }
    attach(&["-c".into(), "-w".into()], (&asked.pids, asked.seconds), WHAT)
}

/// Traces all threads of these processes, and what they start, until it is stopped. It ends by
/// itself somewhat later than after so many seconds. `options` say what it tells, and how.
///
/// # Errors
/// It is not installed or does not start; `what` is then not to be seen.
pub fn attach(
    options: &[String],
    (pids, seconds): (&[u32], u32),
    what: &str,
) -> Result<Tool, Unseen> {
    let strace = find(STRACE.0, STRACE.1, what)?;
    let pids = pids.iter().flat_map(|pid| ["-p".to_owned(), pid.to_string()]);
    let arguments = ["-f".to_owned()].into_iter().chain(options.iter().cloned()).chain(pids);
    if find(TIMEOUT.0, TIMEOUT.1, what).is_err() {
        return Tool::start(STRACE, arguments, what);
    }
    let seconds = seconds.saturating_add(LONGER_SECONDS).to_string();
    let limit = ["--signal=INT".to_owned(), seconds, strace.display().to_string()];
    Tool::start(TIMEOUT, limit.into_iter().chain(arguments), what)
}

/// From its summary; `None` if there is none.
pub(super) fn counted(said: &str) -> Option<Counted> {
    let mut counted = Counted::default();
    let mut lines = said.lines().skip_while(|line| !line.starts_with("% time"));
    lines.next()?;
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        // Share, seconds, microseconds per call, calls, errors if any, name.
        let [_, seconds, _, calls, .., name] = &words[..] else { continue };
        let (Ok(seconds), Ok(count)) = (seconds.parse::<f64>(), calls.parse()) else { continue };
        if *name == "total" || !(0.0..SECONDS_MAX).contains(&seconds) {
            continue;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let ns = (seconds * 1e9) as u64;
        counted.calls.insert((*name).to_owned(), Total { count, ns });
    }
    Some(counted)
}

/// What those who may not use it have to do.
pub const REMEDY: &str = "run this as root, or as the server's own user with \
    `sysctl kernel.yama.ptrace_scope=0`; in a container, with the capability SYS_PTRACE; nobody \
    else may trace the server";

/// More is nonsense.
const SECONDS_MAX: f64 = 1e9;
const STRACE: (&str, &str) = ("strace", "strace");
/// Ends it should nobody be left to: it would slow the server for ever.
const TIMEOUT: (&str, &str) = ("timeout", "coreutils");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_table_is_read() {
        let said = "strace: Process 7 attached\nstrace: Process 7 detached\n\
            % time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n \
            90.00    0.500000           0      2885       220 futex\n \
            10.00    0.000714           0         5           read\n\
            100.00    0.500714           0      2890       220 total\n";
        let counted = counted(said).unwrap();
        assert_eq!(counted.calls.len(), 2);
        assert_eq!(counted.calls["futex"], Total { count: 2_885, ns: 500_000_000 });
        assert_eq!(counted.calls["read"], Total { count: 5, ns: 714_000 });
        assert!(counted.accepts.is_none(), "it does not tell threads apart");
    }

    #[test]
    fn without_a_table_nothing_was_counted() {
        assert_eq!(counted("strace: attach: Operation not permitted"), None);
    }
}
