//! What findings say of servers, out of ledgers of `count --kernel`, for the page and for the text
//! alike: [`SharedObject`], one kind of object that threads share in the kernel.

use sealane_lab_model::{
    document::{FILE_TABLE, KernelLedger, KernelOrigin, KernelRow, Run},
    number::number,
    words::{
        self,
        kernel::{amount, amount_of_all, by_call, objects, sharers, titled},
    },
};

use super::notes::{KernelNote, Notes};

/// One kind of object that threads of a server share and write.
pub(crate) struct SharedObject<'a> {
    /// The object, as in [`KernelRow::object`].
    pub(crate) object: &'a str,
    /// By server.
    pub(crate) sharers: Vec<Sharer>,
    /// What would remove the sharing.
    pub(crate) removal: &'a str,
    pub(crate) note: Option<&'a KernelNote>,
}

impl SharedObject<'_> {
    /// The object's name, as people call it.
    pub(crate) fn name(&self) -> &str {
        self.note.map_or(self.object, |note| note.culprit.as_str())
    }
}

/// A server whose threads share it.
pub(crate) struct Sharer {
    /// The server's name, and its version.
    server: String,
    /// Who shares it.
    by: String,
    /// Writes per connection, and all of what is shared.
    writes: [String; 2],
    /// By system call.
    calls: String,
}

impl Sharer {
    /// Under [`SHARER_HEADS`].
    pub(crate) fn cells(&self) -> [String; 4] {
        let Self { server, by, writes: [some, all], calls } = self;
        [server.clone(), by.clone(), format!("{some} of {all}"), calls.clone()]
    }

    pub(crate) fn sentence(&self) -> String {
        let Self { server, by, writes: [some, all], calls } = self;
        format!("{server}: {some} of its {all} writes per connection, shared by {by}: {calls}")
    }
}

/// All kinds that any server's connections write, now and then at least.
pub(crate) fn shared<'a>(run: &'a Run, notes: &'a Notes) -> Vec<SharedObject<'a>> {
    let of_kind = |object: &'a str| {
        let rows = run.kernel_ledgers.iter().filter_map(|ledger| {
            let row = ledger.rows.iter().find(|row| row.object == object)?;
            (!row.calls.is_empty()).then_some((ledger, row))
        });
        let rows: Vec<(&KernelLedger, &KernelRow)> = rows.collect();
        let (_, first) = rows.first()?;
        Some(SharedObject {
            object,
            removal: &first.removal,
            sharers: rows.iter().map(|(ledger, row)| sharer(ledger, row, notes)).collect(),
            note: notes.object(object),
        })
    };
    objects(run.kernel_ledgers.iter()).into_iter().filter_map(of_kind).collect()
}

fn sharer(ledger: &KernelLedger, row: &KernelRow, notes: &Notes) -> Sharer {
    let mut calls = by_call(row);
    let growth = ledger.growth.as_ref().filter(|growth| growth.shared > 0);
    if let Some(growth) = growth.filter(|_| row.object == FILE_TABLE) {
        let times = words::count(usize::try_from(growth.shared).unwrap_or(usize::MAX), "time");
        let held = number(growth.held as f64);
        calls += &format!("; it grew {times} while {held} connections came and stayed");
    }
    let writes = [amount(row), amount_of_all(ledger)];
    Sharer { server: server(ledger, notes), by: sharers(row), writes, calls }
}

/// A server with its version, or with what is to be known of it.
fn server(ledger: &KernelLedger, notes: &Notes) -> String {
    match notes.server(&ledger.server) {
        Some(known) => format!("{} ({})", ledger.server, known.title),
        None => titled(ledger),
    }
}

/// The heads of the table of all servers; `#` marks numbers.
pub(crate) const HEADS: [&str; 5] = [
    "server",
    "#writes per connection of what is shared",
    "#of what one thread has alone",
    "#growths of a shared file table",
    "most written",
];

/// The heads of a table of those that share one kind.
pub(crate) const SHARER_HEADS: [&str; 4] =
    ["server", "shared by", "#writes per connection", "by call"];

/// The rows of that of all servers.
pub(crate) fn rows(run: &Run, notes: &Notes) -> Vec<[String; 5]> {
    let row = |ledger: &KernelLedger| {
        let apart: u64 = ledger.rows.iter().map(|row| row.apart).sum();
        let growths = ledger.growth.as_ref();
        [
            server(ledger, notes),
            amount_of_all(ledger),
            number(apart as f64),
            growths.map_or("-".into(), |growth| number(growth.shared as f64)),
            most_written(ledger, notes),
        ]
    };
    run.kernel_ledgers.iter().map(row).collect()
}

fn most_written(ledger: &KernelLedger, notes: &Notes) -> String {
    let rows = ledger.rows.iter().filter(|row| row.per_connection > 0);
    // Of two alike the first.
    let most = rows.reduce(|most, row| match row.per_connection > most.per_connection {
        true => row,
        false => most,
    });
    let Some(most) = most else { return "none".into() };
    let name = notes.object(&most.object).map_or(most.object.as_str(), |note| &note.culprit);
    format!("{name}: {} of {}", amount(most), amount_of_all(ledger))
}

/// When and where the ledgers were counted, each once.
pub(crate) fn origins(run: &Run) -> Vec<String> {
    let told = |origin: &KernelOrigin| {
        let date = origin.started.split('T').next().unwrap_or_default();
        let processors = usize::try_from(origin.processors).unwrap_or_default();
        format!("{date}, Linux {}, {}", origin.kernel, words::count(processors, "processor"))
    };
    each(run, told)
}

/// The command lines that make them again, each once.
pub(crate) fn commands(run: &Run) -> Vec<String> {
    each(run, |origin| words::shell(&origin.command))
}

fn each(run: &Run, told: fn(&KernelOrigin) -> String) -> Vec<String> {
    let origins = run.kernel_ledgers.iter().filter_map(|ledger| ledger.origin.as_ref());
    let mut all: Vec<String> = origins.map(told).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Over it.
pub(crate) const TITLE: &str = "What servers share in the kernel";
/// Under the title.
pub(crate) const LEAD: &str = "A server whose threads share no cache line of their own still \
    meets in the kernel: a process has one file table and one memory map for all its threads. \
    Counted are the calls of one connection (a full handshake, one request, the end) that write \
    what several threads or processes share; each connection comes alone. Where one of these \
    threads alone writes, it meets nobody. In the order of names. How long anybody waits is \
    another question, which `sealane-lab why PID` answers for a server that runs; KERNEL.md has \
    all tables.";

#[cfg(test)]
mod tests {
    use sealane_lab_model::document::{KernelCall, KernelGrowth};

    use super::*;

    fn row(object: &str, calls: &[(&str, u64)]) -> KernelRow {
        let call = |(call, per_connection): &(&str, u64)| KernelCall {
            call: (*call).into(),
            per_connection: *per_connection,
            ..KernelCall::default()
        };
        let shared = u64::from(!calls.is_empty());
        KernelRow {
            object: object.into(),
            shared,
            threads: 2 * shared,
            writers: 2 * shared,
            per_connection: calls.iter().map(|(_, times)| times).sum(),
            calls: calls.iter().map(call).collect(),
            exact: true,
            removal: format!("no {object}"),
            ..KernelRow::default()
        }
    }

    fn ledger(server: &str, table: &[(&str, u64)], epoll: &[(&str, u64)]) -> KernelLedger {
        KernelLedger {
            server: server.into(),
            version: format!("{server} 1.2"),
            rows: vec![row("file table", table), row("epoll instance", epoll)],
            growth: Some(KernelGrowth { held: 300, shared: 3, apart: 0 }),
            ..KernelLedger::default()
        }
    }

    fn sentences(shared: &SharedObject<'_>) -> Vec<String> {
        shared.sharers.iter().map(Sharer::sentence).collect()
    }

    #[test]
    fn a_server_that_shares_is_told_what_how_often_and_what_would_remove_it() {
        let notes = Notes::own().expect("valid");
        let threads = ledger("threads", &[("close", 2), ("accept4", 1)], &[("epoll_ctl", 4)]);
        let rare = ledger("rare", &[], &[("epoll_wait", 0)]);
        let processes = ledger("processes", &[], &[]);
        let run = Run { kernel_ledgers: vec![rare, threads, processes], ..Run::default() };
        let told = shared(&run, &notes);
        let names: Vec<&str> = told.iter().map(|shared| shared.object).collect();
        assert_eq!(names, ["file table", "epoll instance"], "in the order of the rows");
        assert_eq!(
            sentences(&told[0]),
            ["threads (threads 1.2): 3 of its 7 writes per connection, shared by 2 threads: \
                 close 2, accept4 1; it grew 3 times while 300 connections came and stayed"]
        );
        assert_eq!(told[0].removal, "no file table");
        let [rare, often] = &sentences(&told[1])[..] else { panic!("processes share none") };
        assert!(rare.ends_with("shared by 2 threads: now and then epoll_wait"), "{rare}");
        assert!(often.ends_with("shared by 2 threads: epoll_ctl 4"), "{often}");
        let most: Vec<String> = rows(&run, &notes).into_iter().map(|[.., most]| most).collect();
        let epoll = &notes.object("epoll instance").expect("known").culprit;
        assert_eq!(most, ["none".to_owned(), format!("{epoll}: 4 of 7"), "none".to_owned()]);
    }

    #[test]
    fn a_figure_that_was_not_the_same_each_time_is_a_least_one() {
        let mut ledger = ledger("server", &[("close", 2)], &[("epoll_ctl", 4)]);
        ledger.rows[0].exact = false;
        let run = Run { kernel_ledgers: vec![ledger], ..Run::default() };
        let notes = Notes::default();
        let told = shared(&run, &notes);
        let said: Vec<String> = told.iter().flat_map(sentences).collect();
        assert!(said[0].contains(": 2 or more of its 6 or more writes"), "{said:?}");
        assert!(said[1].contains(": 4 of its 6 or more writes"), "{said:?}");
    }
}
