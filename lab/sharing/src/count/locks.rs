//! Lock acquisitions per handshake by lock and call path: the program runs at its own speed with
//! the interposer of `native/locks.c` loaded into it, once to count and once for the paths.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use sealane_lab_harness::{
    interrupt::Interrupt,
    phase::{CLIENT_SIDE, Phase, SERVER_SIDE},
};
use sealane_lab_model::{
    document::{BySide, LockCounts, LockSite},
    error::Error,
};

use crate::count::{
    class::is_lock_name,
    run::{Program, Run},
    slope::{self, LENGTHS},
    symbols::{Symbols, is_nameless},
};

/// Counts in `program`, which marks the phases of `handshakes` handshakes, all threads together.
///
/// # Errors
/// If a limit of the interposer is met, or what stopped the program.
pub(super) fn count(
    program: &Program,
    handshakes: u64,
    folder: &Path,
    stop: &Interrupt,
) -> Result<LockCounts, Error> {
    let rows = rows(program, Notes::Nothing, folder, stop)?;
    let per_handshake = 1.0 / handshakes as f64;
    let sum = |kinds: &[&str]| {
        let of = |phases: &[Phase]| -> f64 {
            let wanted = rows.rows.iter().filter(|row| row.is(kinds) && row.is_in(phases));
            wanted.map(|row| row.calls).sum::<u64>() as f64 * per_handshake
        };
        BySide { server: of(&SERVER_SIDE), client: of(&CLIENT_SIDE) }
    };
    Ok(LockCounts {
        read: sum(&["read"]),
        write: sum(&["write"]),
        mutex: sum(&["mutex", "spin"]),
        shared: rows.shared(),
        sites: Vec::new(),
    })
}

/// The busiest locks and where they are taken, from a slower run; at most [`SITES_MAX`].
///
/// # Errors
/// Those of [`count`].
pub(super) fn sites(
    program: &Program,
    handshakes: u64,
    folder: &Path,
    stop: &Interrupt,
) -> Result<Vec<LockSite>, Error> {
    let sites = rows(program, Notes::Paths, folder, stop)?.by_site();
    let per_handshake = |calls: u64| calls as f64 / handshakes as f64;
    let sites = sites.into_iter().map(|((lock, kind, path), calls)| LockSite {
        lock,
        kind,
        calls: BySide { server: per_handshake(calls.server), client: per_handshake(calls.client) },
        path,
    });
    Ok(busiest(sites.collect()))
}

/// What grew over three lengths of a program without marks, per operation, of which each did `step`
/// more than the one before; all of it counts as the server's. `shared` locks are taken by two
/// threads.
pub(super) fn slope(lengths: &[Sites; LENGTHS], shared: u64, step: f64) -> LockCounts {
    // The sums first: between two paths to a lock chance may move calls, which each step of a path
    // would then leave out.
    let sum = |kinds: &[&str]| -> BySide<f64> {
        let of = |sites: &Sites| -> u64 {
            let wanted = sites.iter().filter(|((_, kind, _), _)| kinds.contains(&kind.as_str()));
            wanted.map(|(_, calls)| calls.server).sum()
        };
        let calls = slope::smaller_step(lengths.each_ref().map(of));
        BySide { server: calls as f64 / step, client: 0.0 }
    };
    let [read, write, mutex] = [&["read"][..], &["write"], &["mutex", "spin"]].map(sum);
    let mut counts = LockCounts { read, write, mutex, shared, sites: Vec::new() };
    let [short, middle, long] = lengths;
    for (site, calls) in long {
        let of = |sites: &Sites| sites.get(site).map_or(0, |it| it.server);
        let calls = slope::smaller_step([of(short), of(middle), calls.server]) as f64 / step;
        if calls > 0.0 {
            let (lock, kind, path) = site.clone();
            let calls = BySide { server: calls, client: 0.0 };
            counts.sites.push(LockSite { lock, kind, calls, path });
        }
    }
    counts.sites = busiest(counts.sites);
    counts
}

fn busiest(mut sites: Vec<LockSite>) -> Vec<LockSite> {
    sites.sort_by(|a, b| {
        let total = |site: &LockSite| site.calls.server + site.calls.client;
        total(b).total_cmp(&total(a))
    });
    sites.truncate(SITES_MAX);
    sites
}

/// What the interposer notes beside the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notes {
    Nothing,
    Paths,
}

/// What the interposer wrote.
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    pub(super) maps: String,
}

/// A lock, how it is taken, and by which functions, innermost first.
pub(super) type Site = (String, String, Vec<String>);

/// Calls by site.
pub(super) type Sites = BTreeMap<Site, BySide<u64>>;

impl Rows {
    /// The functions on the paths, and the locks' names.
    fn named(&self) -> (BTreeMap<u64, Frame>, BTreeMap<u64, String>) {
        let symbols = Symbols::new(&self.maps);
        let mut frames: BTreeMap<u64, Frame> = BTreeMap::new();
        for pc in self.rows.iter().flat_map(|row| &row.path) {
            frames.entry(*pc).or_insert_with(|| Frame::at(*pc, &symbols));
        }
        let names = names(&self.rows, &frames, &symbols);
        (frames, names)
    }

    /// Calls by site.
    pub(super) fn by_site(&self) -> Sites {
        let mut sites = Sites::new();
        for (row, site) in self.rows.iter().zip(self.sites()) {
            let calls = sites.entry(site).or_default();
            if row.is_in(&SERVER_SIDE) {
                calls.server += row.calls;
            } else {
                calls.client += row.calls;
            }
        }
        sites
    }

    /// The site of each row.
    pub(super) fn sites(&self) -> impl Iterator<Item = Site> {
        let (paths, names) = self.named();
        self.rows.iter().map(move |row| {
            let lock = names.get(&row.lock).cloned().unwrap_or_default();
            (lock, row.kind.clone(), told(row, &paths))
        })
    }

    /// Locks that at least two threads took.
    pub(super) fn shared(&self) -> u64 {
        let mut threads: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
        for row in &self.rows {
            threads.entry(row.lock).or_default().insert(row.thread);
        }
        threads.values().filter(|threads| threads.len() > 1).count() as u64
    }

    /// # Errors
    /// If it met one of its limits, or did not end.
    fn parse(text: &str) -> Result<Self, Error> {
        let (mut rows, mut maps): (Vec<Row>, _) = (Vec::new(), String::new());
        let mut ended = false;
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("row", fields)) => {
                    let row = Row::parse(fields).ok_or_else(|| {
                        Error::Check(format!("the interposer wrote what is no row: {line}"))
                    })?;
                    rows.push(row);
                }
                Some(("map", map)) => {
                    maps.push_str(map);
                    maps.push('\n');
                }
                Some(("lost", what)) if !what.starts_with(NOTHING_LOST.0) => {
                    return Err(lost(what));
                }
                Some(("lost", what)) if !what.contains(NOTHING_LOST.1) => return Err(lost(what)),
                _ => ended |= line == "end",
            }
        }
        if ended {
            return Ok(Self { rows, maps });
        }
        Err(Error::Check(
            "the interposer wrote no counts: is the program linked statically, or did it end \
             without its exit handlers?"
                .into(),
        ))
    }
}

fn lost(what: &str) -> Error {
    Error::Check(format!(
        "the interposer met a limit (native/locks.c): {what}; count fewer threads"
    ))
}

/// Acquisitions of one lock, by one thread, in one phase, on one path.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) thread: usize,
    pub(super) kind: String,
    pub(super) phase: usize,
    pub(super) lock: u64,
    pub(super) calls: u64,
    /// Innermost first.
    pub(super) path: Vec<u64>,
}

impl Row {
    fn parse(fields: &str) -> Option<Self> {
        let mut fields = fields.split(' ');
        let (thread, kind) = (fields.next()?.parse().ok()?, fields.next()?.to_owned());
        let phase = fields.next()?.parse().ok()?;
        let lock = u64::from_str_radix(fields.next()?, 16).ok()?;
        let calls = fields.next()?.parse().ok()?;
        let path = fields.map(|pc| u64::from_str_radix(pc, 16).ok()).collect::<Option<_>>()?;
        Some(Self { thread, kind, phase, lock, calls, path })
    }

    fn is(&self, kinds: &[&str]) -> bool {
        kinds.contains(&self.kind.as_str())
    }

    fn is_in(&self, phases: &[Phase]) -> bool {
        phases.iter().any(|phase| *phase as usize == self.phase)
    }
}

/// One function on a path.
struct Frame {
    owner: String,
    function: String,
}

impl Frame {
    /// `pc` is where the call returns to, so that the call stands before it.
    fn at(pc: u64, symbols: &Symbols) -> Self {
        let code = symbols.code(pc.saturating_sub(1));
        let function = code.functions.into_iter().next_back().unwrap_or_default().name;
        Self { owner: code.owner, function }
    }

    fn is_named(&self) -> bool {
        !self.function.is_empty() && !is_nameless(&self.function)
    }

    fn is_wrapper(&self) -> bool {
        is_lock_name(&self.function)
    }
}

/// A name for each lock, the same in every run: its variable, or the function that takes it most.
fn names(rows: &[Row], frames: &BTreeMap<u64, Frame>, symbols: &Symbols) -> BTreeMap<u64, String> {
    let mut takers: BTreeMap<u64, BTreeMap<&str, u64>> = BTreeMap::new();
    for row in rows {
        let mut path = row.path.iter().filter_map(|pc| frames.get(pc));
        let taker = path.find(|frame| frame.is_named() && !frame.is_wrapper());
        let taker = taker.map_or("?", |frame| frame.function.as_str());
        *takers.entry(row.lock).or_default().entry(taker).or_default() += row.calls;
    }
    let mut names = BTreeMap::new();
    for (lock, takers) in takers {
        let most = takers.iter().max_by_key(|(name, calls)| (**calls, std::cmp::Reverse(**name)));
        let name = match (symbols.variable(lock), most) {
            (Some((owner, variable)), _) => format!("{variable} ({owner})"),
            (None, Some((taker, _))) => format!("taken by {taker}"),
            (None, None) => continue,
        };
        names.insert(lock, name);
    }
    names
}

/// The named functions of a path up to where the lab's own begin.
fn told(row: &Row, frames: &BTreeMap<u64, Frame>) -> Vec<String> {
    let frames = row.path.iter().filter_map(|pc| frames.get(pc));
    let library = frames.take_while(|frame| !frame.function.contains(LAB));
    let named = library.filter(|frame| frame.is_named() && !frame.is_wrapper());
    named.map(|frame| format!("{} ({})", frame.function, frame.owner)).take(PATH_MAX).collect()
}

fn rows(program: &Program, notes: Notes, folder: &Path, stop: &Interrupt) -> Result<Rows, Error> {
    let interposer = Interposer::new(folder)?;
    let mut program = program.clone();
    program.environment.extend(interposer.environment());
    let noted = match notes {
        Notes::Nothing => None,
        Notes::Paths => Some(PATHS),
    };
    program.environment.extend(noted.map(|name| (name.into(), "1".into())));
    let mut run = Run::start(&[], &program, stop)?;
    let words = run.words()?;
    run.end(&words)?;
    Rows::parse(&fs::read_to_string(&interposer.written).unwrap_or_default())
}

/// The library that is loaded into a program, and the file that it writes at the program's end.
pub(super) struct Interposer {
    library: PathBuf,
    written: PathBuf,
}

impl Interposer {
    /// Both lie in `folder`.
    ///
    /// # Errors
    /// The library cannot be written there.
    pub(super) fn new(folder: &Path) -> Result<Self, Error> {
        let (library, written) = (folder.join("locks.so"), folder.join("locks.txt"));
        fs::write(&library, INTERPOSER).map_err(Error::file(&library))?;
        let _ = fs::remove_file(&written);
        Ok(Self { library, written })
    }

    /// `program`, of which every call counts, with its path, whether it marks phases or not.
    pub(super) fn in_all_of(&self, mut program: Program) -> Program {
        program.environment.extend(self.environment());
        program.environment.extend([PATHS, ALL].map(|name| (name.into(), "1".into())));
        program
    }

    /// `program`, of which every call counts, with its path, in tables that lie in `tables` and can
    /// be read while it runs.
    pub(super) fn with_tables(&self, mut program: Program, tables: &Path) -> Program {
        program.environment.extend([
            ("LD_PRELOAD".into(), self.library.clone().into()),
            (PATHS.into(), "1".into()),
            (TABLES.into(), tables.into()),
        ]);
        program
    }

    /// What the process with that number wrote.
    ///
    /// # Errors
    /// Those of [`Rows::parse`].
    pub(super) fn rows_of(&self, process: u32) -> Result<Rows, Error> {
        let mut file = self.written.clone().into_os_string();
        file.push(format!(".{process}"));
        Rows::parse(&fs::read_to_string(file).unwrap_or_default())
    }

    fn environment(&self) -> [(OsString, OsString); 2] {
        [
            ("LD_PRELOAD".into(), self.library.clone().into()),
            ("SEALANE_LAB_LOCKS".into(), self.written.clone().into()),
        ]
    }
}

const ALL: &str = "SEALANE_LAB_LOCKS_ALL";
/// Built by `build.rs` from `native/locks.c`.
const INTERPOSER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/locks.so"));
const LAB: &str = "sealane_lab";
const NOTHING_LOST: (&str, &str) = ("threads 0 ", " calls 0 ");
const PATHS: &str = "SEALANE_LAB_LOCKS_PATHS";
const PATH_MAX: usize = 8;
const SITES_MAX: usize = 40;
const TABLES: &str = "SEALANE_LAB_LOCKS_TABLES";

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: &str = "row 0 read 1 7f00 12 aa bb\nrow 1 write 2 7f00 3\nmap 0-1 r 0 0 0 /x\n\
                           lost threads 0 of 64 calls 0 rows 16384\nend\n";

    #[test]
    fn rows_are_read() {
        let rows = Rows::parse(WRITTEN).expect("rows");
        assert_eq!((rows.rows.len(), rows.shared()), (2, 1));
        assert!(rows.rows[0].is(&["read"]) && rows.rows[0].is_in(&SERVER_SIDE));
        assert_eq!(rows.rows[0].path, [0xaa, 0xbb]);
        assert_eq!(rows.maps, "0-1 r 0 0 0 /x\n");
    }

    #[test]
    fn a_limit_or_a_missing_end_is_an_error() {
        for broken in [
            WRITTEN.replace("calls 0 ", "calls 7 "),
            WRITTEN.replace("threads 0 ", "threads 1 "),
            WRITTEN.replace("end\n", ""),
            String::new(),
        ] {
            assert!(Rows::parse(&broken).is_err(), "{broken}");
        }
    }
}
