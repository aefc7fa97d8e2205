//! What this process may open: [`close`] lets the kernel refuse it everything that its
//! configuration does not need (Landlock), and [`mistakes`] says what another one wants of that.
//!
//! The rules hold from before the first thread on, for it and all programs that it starts, and
//! nothing takes them back: a start finds what a reload would find.

mod needs;

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

use crate::config::{Config, KeySource, Mistake, Place, Problem, written_at};
pub use needs::Need;

/// Has the kernel refuse this process everything that `config`, which was read from `file`, does
/// not need; returns the warning if that is wanted and cannot be done. It must be called while
/// there is no other thread: the system changes a thread at a time.
pub fn close(file: Option<&Path>, config: &Config) -> Option<String> {
    let closed = match &config.store_key {
        _ if !config.process.sandbox => Err(OFF.to_owned()),
        Some(KeySource::Command(_)) => Err(COMMAND.to_owned()),
        _ => Closed::around(&needs::all(file, config)),
    };
    let refused = closed.as_ref().err().filter(|_| config.process.sandbox);
    let warning = refused.map(|why| format!("what this process may open is not limited: {why}"));
    // A process is closed once.
    let _ = CLOSED.set(closed);
    warning
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

/// The paths of `config`, read from `file`, that the kernel refuses to open and that the `running`
/// one does not have: a line for each. A path of both that cannot be opened, such as a folder that
/// was removed and made again, is a fault of its material alone.
pub fn mistakes(
    file: Option<&Path>,
    config: &Config,
    running: &Config,
    is_new: impl Fn(&Path) -> bool,
) -> Vec<String> {
    let Some(Ok(closed)) = CLOSED.get() else { return Vec::new() };
    let mut wanted = Wanted { closed, reached: HashMap::new() };
    let mut mistakes = Vec::new();
    let is_material = |need| matches!(need, Need::Challenges | Need::Read | Need::Store);
    let needed = needs::of(file, running);
    let needs = needs::of(file, config).into_iter().filter(|each| !needed.contains(each));
    for (path, need) in needs.filter(|(path, need)| !is_material(*need) || is_new(path)) {
        let refused = wanted.refused(&path, need);
        mistakes.extend(refused.map(|problem| said_of(file, config, &path, problem)));
    }
    if let Some(KeySource::Command(words)) = &config.store_key {
        let base = file.and_then(Path::parent).unwrap_or(Path::new(""));
        let program = base.join(words.first().map_or("", |word| word));
        let what = "this process can start no other program since its start (Landlock)";
        mistakes.push(said_of(file, config, &program, Problem::new(what, "restart Sealane")));
    }
    mistakes
}

/// Why `path` cannot be read, if it is the kernel's refusal.
pub fn outside(path: &Path) -> Option<Problem> {
    outside_for(path, Need::Read)
}

/// Why `path` cannot be used for `need`, if it is the kernel's refusal.
pub fn outside_for(path: &Path, need: Need) -> Option<Problem> {
    let Some(Ok(closed)) = CLOSED.get() else { return None };
    Wanted { closed, reached: HashMap::new() }.refused(path, need)
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

/// A look at what a configuration wants.
struct Wanted<'c> {
    closed: &'c Closed,
    /// What may be done in folders, by their true paths.
    reached: HashMap<PathBuf, BitFlags<AccessFs>>,
}

impl Wanted<'_> {
    /// What of `path` the process would need and may not do.
    fn refused(&mut self, path: &Path, need: Need) -> Option<Problem> {
        let found = needs::reached(path, need);
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
    let around = folder.parent().filter(|around| needs::is_of_few(around)).unwrap_or(folder);
    format!(
        "restart Sealane; if it will be replaced again, name the folder around it in \
         process.sandbox_read before that: {}",
        around.display()
    )
}

/// The mistake at the place where `path` is written.
fn said_of(file: Option<&Path>, config: &Config, path: &Path, problem: Problem) -> String {
    let files = file.into_iter().chain(config.included.iter().map(|path| &**path));
    let (place, field) = match written_at(files, path) {
        Some((place, field)) => (Some(place), field),
        None => (file.map(Place::whole), String::new()),
    };
    Mistake { place, field, problem }.to_string()
}

static CLOSED: OnceLock<Result<Closed, String>> = OnceLock::new();

const COMMAND: &str = "store_key.command starts a program, and what that opens nobody can tell; \
                       name a file or a credential instead";
const NOT_ENABLED: &str = "the kernel has Landlock turned off; add landlock to lsm= where it boots";
const NOT_IMPLEMENTED: &str = "the kernel has no Landlock, which came with Linux 5.13";
const OFF: &str = "process.sandbox is false";
