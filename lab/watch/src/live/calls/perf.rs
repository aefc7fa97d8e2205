//! System calls by `perf trace`: every call is an event that leaves the kernel, and is summed
//! outside.

use std::collections::BTreeMap;

use sealane_lab_model::document::Unseen;

use crate::live::{
    profile::PERF,
    tool::{Tool, for_at_most},
};

use super::{ACCEPTS, Asked, Counted, Total, WHAT};

pub(super) fn start(asked: &Asked) -> Result<Tool, Unseen> {
    let pids: Vec<String> = asked.pids.iter().map(ToString::to_string).collect();
    let arguments = ["trace", "-s", "-p", &pids.join(",")].map(Into::into);
    Tool::start(PERF, arguments.into_iter().chain(for_at_most(asked.seconds)), WHAT)
}

/// From its summary, a table for each thread; `None` if there is none.
pub(super) fn counted(said: &str) -> Option<Counted> {
    said.contains("Summary of events").then_some(())?;
    let mut counted = Counted::default();
    let (mut accepts, mut waits) = (BTreeMap::new(), BTreeMap::new());
    let mut thread = None;
    let mut columns = Columns::default();
    for line in said.lines() {
        if let Some(tid) = thread_of(line) {
            thread = Some(tid);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"syscall") {
            columns = Columns::of(&words);
            continue;
        }
        let (Some(tid), Some(row)) = (thread, columns.row(&words)) else { continue };
        let sum = counted.calls.entry(row.call.to_owned()).or_default();
        sum.count += row.total.count;
        sum.ns += row.total.ns;
        if ACCEPTS.contains(&row.call) {
            *accepts.entry(tid).or_default() += row.total.count - row.errors;
        }
        // It does not tell a wait from a call that wakes, which takes no time to speak of.
        if row.call == "futex" {
            waits.insert(tid, row.total);
        }
    }
    counted.accepts = Some(accepts);
    counted.waits = Some(waits);
    Some(counted)
}

/// The thread of a table's title: ` name (13), 5735 events, 22.0%`.
fn thread_of(line: &str) -> Option<u32> {
    let (before, _) = line.split_once(" events, ")?;
    let (before, _) = before.rsplit_once("), ")?;
    before.rsplit_once('(')?.1.parse().ok()
}

/// Where figures stand, which depends on its version.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    calls: Option<usize>,
    errors: Option<usize>,
    total: Option<usize>,
}

struct Row<'a> {
    call: &'a str,
    errors: u64,
    total: Total,
}

impl Columns {
    fn of(heads: &[&str]) -> Self {
        let at = |name: &str| heads.iter().position(|head| *head == name);
        Self { calls: at("calls"), errors: at("errors"), total: at("total") }
    }

    fn row<'a>(&self, words: &[&'a str]) -> Option<Row<'a>> {
        let word = |at: Option<usize>| words.get(at?).copied();
        let count: u64 = word(self.calls)?.parse().ok()?;
        let ms: f64 = word(self.total)?.parse().ok()?;
        let errors: u64 = word(self.errors).and_then(|word| word.parse().ok()).unwrap_or_default();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        let ns = if (0.0..MS_MAX).contains(&ms) { (ms * 1e6) as u64 } else { return None };
        let total = Total { count, ns };
        Some(Row { call: words.first()?, errors: errors.min(count), total })
    }
}

/// More is nonsense: years.
const MS_MAX: f64 = 1e12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_for_each_thread_is_read() {
        let said = "\n Summary of events:\n\n a (b) server (13), 5735 events, 22.0%\n\n\
            syscall            calls  errors  total       min\n\
            \x20                               (msec)    (msec)\n\
            --------------- --------  ------ -------- ---------\n\
            futex               2867    873   304.493     0.013\naccept4  50  8  1.5  0.1\n\n\
            other (14), 10 events, 0.1%\n\n\
            syscall            calls  errors  total       min\nfutex  1  0  0.5  0.5\n";
        let counted = counted(said).unwrap();
        assert_eq!(counted.calls["futex"], Total { count: 2_868, ns: 304_993_000 });
        assert_eq!(counted.accepts.unwrap(), BTreeMap::from([(13, 42)]));
        assert_eq!(counted.waits.unwrap()[&14], Total { count: 1, ns: 500_000 });
    }

    #[test]
    fn an_older_table_has_no_errors() {
        let said = " Summary of events:\n s (13), 2 events, 1.0%\n   syscall   calls    total\n   \
            read   7    2.000\n";
        assert_eq!(counted(said).unwrap().calls["read"], Total { count: 7, ns: 2_000_000 });
        assert_eq!(counted("Error: no permission"), None);
    }
}
