//! The rules of Landlock that hold for this process, set once, and what they refuse.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _,
};
use rustix::fs::{FileType, fstat};
use sealane_operator::Problem;

use super::need::{Need, is_of_few, reached};

/// Restricts this process to the files and folders in `open` (Landlock). Returns the reason if the
/// kernel refuses. It must be called while there is no other thread: the system changes a thread at
/// a time.
pub fn close_around(open: &BTreeMap<PathBuf, BitFlags<AccessFs>>) -> Option<String> {
    let closed = Closed::around(open);
    let refusal = closed.as_ref().err().cloned();
    // A process is closed once.
    let _ = CLOSED.set(closed);
    refusal
}

/// Limits nothing, and keeps the reason for [`version`].
pub fn leave_open(reason: &str) {
    let _ = CLOSED.set(Err(reason.to_owned()));
}

/// A look at the rules that hold, if any do.
pub fn look() -> Option<Look<'static>> {
    let closed = CLOSED.get()?.as_ref().ok()?;
    Some(Look { closed, reached: HashMap::new() })
}

/// The version of the kernel's Landlock that holds, or why none does.
///
/// # Errors
/// None does.
pub fn version() -> Result<i32, &'static str> {
    match CLOSED.get() {
        Some(Ok(closed)) => Ok(closed.version),
        Some(Err(why)) => Err(why),
        None => Err("it was not asked for"),
    }
}

/// Why `path` cannot be read, if it is the kernel's refusal.
pub fn outside(path: &Path) -> Option<Problem> {
    outside_for(path, Need::Read)
}

/// Why `path` cannot be used for `need`, if it is the kernel's refusal.
pub fn outside_for(path: &Path, need: Need) -> Option<Problem> {
    look()?.refused(path, need)
}

/// A process that may not open everything.
#[derive(Debug)]
struct Closed {
    /// What it may do with what, by device and inode, and beneath that.
    grants: HashMap<(u64, u64), BitFlags<AccessFs>>,
    version: i32,
}

impl Closed {
    fn around(open: &BTreeMap<PathBuf, BitFlags<AccessFs>>) -> Result<Self, String> {
        let refused = |error: landlock::RulesetError| format!("the system refuses that: {error}");
        let handled = AccessFs::from_all(ABI::V5);
        let rules = Ruleset::default().handle_access(handled).map_err(refused)?;
        let mut rules = rules.create().map_err(refused)?;
        let mut grants: HashMap<_, BitFlags<AccessFs>> = HashMap::new();
        for (path, access) in open {
            // What is not there any more, or may not be entered, is not missed.
            let Ok(opened) = PathFd::new(path) else { continue };
            let Ok(facts) = fstat(&opened) else { continue };
            let is_folder = FileType::from_raw_mode(facts.st_mode) == FileType::Directory;
            let of_files = AccessFs::from_file(ABI::V5);
            let access = if is_folder { *access } else { *access & of_files };
            rules = rules.add_rule(PathBeneath::new(opened, access)).map_err(refused)?;
            *grants.entry((facts.st_dev, facts.st_ino)).or_default() |= access;
        }
        let status = rules.restrict_self().map_err(refused)?;
        match status.landlock {
            LandlockStatus::Available { effective_abi, kernel_abi } => {
                Ok(Self { grants, version: kernel_abi.unwrap_or(effective_abi as i32) })
            }
            LandlockStatus::NotEnabled => Err(NOT_ENABLED.to_owned()),
            LandlockStatus::NotImplemented => Err(NOT_IMPLEMENTED.to_owned()),
        }
    }
}

/// A look at the rules, which remembers folders.
pub struct Look<'c> {
    closed: &'c Closed,
    /// What may be done in folders, by their true paths.
    reached: HashMap<PathBuf, BitFlags<AccessFs>>,
}

impl Look<'_> {
    /// Why the process may not use `path` for `need`, if it may not.
    pub fn refused(&mut self, path: &Path, need: Need) -> Option<Problem> {
        let found = reached(path, need);
        let (link, real) = found.into_iter().find(|(_, real)| !self.allows(real, need))?;
        let leads = if link == real { "" } else { &format!(" leads to {},", real.display()) };
        let which = if leads.is_empty() { "" } else { " which" };
        let (verb, remedy) = match need {
            Need::Read | Need::Challenges => ("read", read_remedy(&real)),
            Need::Log | Need::Socket | Need::Store | Need::TicketRoot => {
                ("write", "restart Sealane".to_owned())
            }
        };
        let what = format!(
            "{}{leads}{which} is outside of what this process may {verb} since its start \
             (Landlock)",
            link.display()
        );
        Some(Problem::new(what, remedy))
    }

    fn allows(&mut self, real: &Path, need: Need) -> bool {
        let wanted = match real.is_dir() {
            true => need.access(),
            false => need.access() & AccessFs::from_file(ABI::V5),
        };
        let own = self.granted(real);
        let around = real.parent().map(|folder| self.within(folder)).unwrap_or_default();
        (own | around).contains(wanted)
    }

    /// What may be done with what lies in the folder `real`.
    fn within(&mut self, real: &Path) -> BitFlags<AccessFs> {
        if let Some(known) = self.reached.get(real) {
            return *known;
        }
        let around = real.parent().map(|folder| self.within(folder)).unwrap_or_default();
        let all = around | self.granted(real);
        self.reached.insert(real.to_owned(), all);
        all
    }

    fn granted(&self, real: &Path) -> BitFlags<AccessFs> {
        let Ok(facts) = fs::symlink_metadata(real) else { return BitFlags::EMPTY };
        self.closed.grants.get(&(facts.dev(), facts.ino())).copied().unwrap_or_default()
    }
}

/// The remedy for a path `real` that cannot be read. A rule is for a folder and not for its path,
/// so only a rule for the folder around it also covers a replacement.
fn read_remedy(real: &Path) -> String {
    let folder = if real.is_dir() { real } else { real.parent().unwrap_or(real) };
    let around = folder.parent().filter(|around| is_of_few(around)).unwrap_or(folder);
    format!(
        "restart Sealane; if it will be replaced again, name the folder around it in \
         process.sandbox_read before that: {}",
        around.display()
    )
}

static CLOSED: OnceLock<Result<Closed, String>> = OnceLock::new();

const NOT_ENABLED: &str = "the kernel has Landlock turned off; add landlock to lsm= where it boots";
const NOT_IMPLEMENTED: &str = "the kernel has no Landlock, which came with Linux 5.13";
