//! The history of a work tree, as git has it.

use std::{io, path::Path, process::Command};

/// The commits that a rule judges.
#[derive(Debug, Default)]
pub(crate) enum History {
    /// A repository that exists in memory only.
    #[default]
    None,
    /// The reason why the commits are unknown.
    Unknown(&'static str),
    /// Those after a base, the newest first, without merges.
    Known(Vec<Commit>),
}

#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) id: String,
    pub(crate) subject: String,
}

impl History {
    pub(crate) fn read(root: &Path, base: &str) -> Self {
        if git(root, &["rev-parse", "--is-shallow-repository"]).is_ok_and(|is| is.trim() == "true")
        {
            return Self::Unknown("the clone is shallow");
        }
        if git(root, &["merge-base", "--is-ancestor", base, "HEAD"]).is_err() {
            return Self::Unknown("the base commit is unknown");
        }
        let range = format!("{base}..HEAD");
        let Ok(log) = git(root, &["log", "--no-merges", "--format=%h %s", &range]) else {
            return Self::Unknown("git lists no commits");
        };
        let commit = |line: &str| {
            let (id, subject) = line.split_once(' ')?;
            Some(Commit { id: id.to_owned(), subject: subject.to_owned() })
        };
        Self::Known(log.lines().filter_map(commit).collect())
    }
}

/// The output of git in `root`; an error if git reports one.
pub(crate) fn git(root: &Path, arguments: &[&str]) -> io::Result<String> {
    let output = Command::new("git")
        // A clone made by another user, as machines that run checks often have it.
        .args(["-c", "safe.directory=*"])
        .args(arguments)
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
