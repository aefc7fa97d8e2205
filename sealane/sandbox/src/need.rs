//! How a path is needed, and the folders in which it is used so.
//!
//! Files are replaced by renaming, and links by relinking, so what is needed is folders: those of
//! all files, and where links lead from one to another what both have in common.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use landlock::{AccessFs, BitFlags, make_bitflags};
use sealane_operator::value::folder_of;

/// What something is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A folder of challenges, which comes and goes.
    Challenges,
    /// A file that is appended to, and made again when it was moved away.
    Log,
    /// A file or a folder that is read.
    Read,
    /// A socket that is made and removed.
    Socket,
    /// A folder with a certificate store, whose lock is written, and a socket made.
    Store,
    /// A file that is read, and replaced by renaming.
    TicketRoot,
}

impl Need {
    /// What is done in the folder.
    pub fn access(self) -> BitFlags<AccessFs> {
        match self {
            Self::Challenges | Self::Read => READ,
            Self::Log => make_bitflags!(AccessFs::{WriteFile | MakeReg}),
            Self::Socket => make_bitflags!(AccessFs::{MakeSock | RemoveFile}),
            Self::Store => STORE,
            Self::TicketRoot => KEPT,
        }
    }
}

/// What is reached at `path`: that itself, and of a folder what links in it lead to; by the path on
/// which it is reached, and the true one. What is not there is not.
pub(super) fn reached(path: &Path, need: Need) -> Vec<(PathBuf, PathBuf)> {
    let found = |path: &Path| Some((path.to_owned(), path.canonicalize().ok()?));
    let own = match need {
        Need::Challenges | Need::Read | Need::Store => found(path),
        Need::Log | Need::Socket | Need::TicketRoot => found(folder_of(path)),
    };
    let links = if need == Need::Read { links_in(path) } else { Vec::new() };
    own.into_iter().chain(links.iter().filter_map(|link| found(link))).collect()
}

/// The folders in which what stands at `path` is used.
pub fn folders(path: &Path, need: Need) -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    let is_read = need == Need::Read;
    let is_whole = need == Need::Store || is_read && path.is_dir();
    let mut around = path.ancestors().skip(usize::from(!is_whole)).map(|folder| {
        // The folder of a name without one.
        if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
    });
    let standing = around.find_map(|folder| folder.canonicalize().ok());
    // All of the machine is nobody's folder.
    let standing = standing.filter(|folder| !is_read || folder.parent().is_some());
    folders.insert(standing.unwrap_or_else(|| path.to_owned()));
    let links = path.ancestors().filter(|ancestor| ancestor.is_symlink()).map(Path::to_owned);
    let within = if is_read { links_in(path) } else { Vec::new() };
    for link in links.chain(within) {
        let target = link.canonicalize().ok();
        let from = folder_of(&link).canonicalize().ok();
        match from.zip(target) {
            Some((from, target)) => drop(folders.insert(common(&from, &target))),
            None if is_read => folders.extend(on_the_way(link)),
            None => {}
        }
    }
    if is_read {
        // A rule on a folder that something is mounted over later counts for nothing.
        let is_mount_point =
            |folder: &&PathBuf| fs::read_dir(folder).is_ok_and(|mut all| all.next().is_none());
        let around = folders.iter().filter(is_mount_point).filter_map(|folder| folder.parent());
        let around: Vec<_> = around.filter(|it| is_of_few(it)).map(Path::to_owned).collect();
        folders.extend(around);
    }
    folders
}

/// The folders that stand nearest to where a link leads that leads nowhere yet: what is there may
/// come late.
fn on_the_way(link: PathBuf) -> Vec<PathBuf> {
    let (mut link, mut found) = (link, Vec::new());
    for _ in 0..LINKS_MAX {
        let Some((to, folder)) = fs::read_link(&link).ok().zip(link.parent()) else { break };
        let to = folder.join(to);
        let standing = to.ancestors().skip(1).find_map(|folder| folder.canonicalize().ok());
        found.extend(standing.filter(|folder| is_of_few(folder)));
        let leads_nowhere = |at: &&Path| at.is_symlink() && at.canonicalize().is_err();
        let Some(next) = to.ancestors().find(leads_nowhere) else { break };
        link = next.to_owned();
    }
    found
}

/// Whether a folder is neither all of the machine nor one that belongs to every program.
pub(super) fn is_of_few(folder: &Path) -> bool {
    folder.parent().is_some() && !SHARED_BY_ALL.iter().any(|shared| folder == Path::new(shared))
}

/// The links in a folder.
fn links_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.map(|entry| entry.path()).collect()
}

/// The folder that has both the links in `from` and `target`, so that a link may lead to the next:
/// /etc/letsencrypt for what is in its `live` and its `archive`. What is as wide as /var/lib is not
/// meant, then it is the folder of the target alone.
fn common(from: &Path, target: &Path) -> PathBuf {
    let pairs = from.components().zip(target.components());
    let both: PathBuf = pairs.take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    let depth = both.components().filter(|part| matches!(part, Component::Normal(_))).count();
    if depth >= COMMON_DEPTH_MIN && is_of_few(&both) {
        return both;
    }
    let own = if target.is_dir() { Some(target) } else { target.parent() };
    own.filter(|folder| folder.parent().is_some()).unwrap_or(target).to_owned()
}

/// To read files and replace them by renaming.
pub const KEPT: BitFlags<AccessFs> =
    make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | MakeReg | RemoveFile | Truncate});
/// To read a file, and list a folder.
pub const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | ReadDir});
/// Parts that a path has at least that links and what they lead to have in common.
const COMMON_DEPTH_MIN: usize = 2;
/// Links that lead from one to the next; the kernel follows no more.
const LINKS_MAX: usize = 40;
/// Beside its files a store's folder has the socket where names on demand are told.
pub const STORE: BitFlags<AccessFs> = make_bitflags!(AccessFs::{
    ReadFile | ReadDir | WriteFile | MakeReg | MakeSock | RemoveFile | Truncate
});
/// Folders of two parts that belong to every program.
const SHARED_BY_ALL: [&str; 6] =
    ["/usr/local", "/usr/share", "/var/cache", "/var/lib", "/var/log", "/var/www"];

#[cfg(test)]
mod tests {
    use std::env;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_bare_name_is_in_the_current_folder() {
        let here = env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(folders(Path::new("absent.jsonl"), Need::Log), [here.clone()].into());
        let reached = reached(Path::new("absent.jsonl"), Need::Log);
        assert_eq!(reached, [(PathBuf::from("."), here)]);
    }

    #[test]
    fn what_a_link_leads_to_may_come_late_and_by_a_mount() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let at = |name: &str| folder.join(name);
        for name in ["mounted", "releases"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("releases/1"), "").unwrap();
        symlink("mounted/site/x.pem", at("x.pem")).unwrap();
        assert_eq!(on_the_way(at("x.pem")), [at("mounted")]);
        let read = folders(&at("mounted"), Need::Read);
        assert_eq!(read, [folder.clone(), at("mounted")].into());
        symlink("now/y.pem", at("y.pem")).unwrap();
        symlink("releases/2", at("now")).unwrap();
        assert_eq!(on_the_way(at("y.pem")), [folder.clone(), at("releases")]);
        assert!(!is_of_few(Path::new("/var/lib")) && !is_of_few(Path::new("/")));
        symlink("round.pem", at("round.pem")).unwrap();
        assert!(on_the_way(at("round.pem")).iter().all(|found| *found == folder));
    }
}
