//! The history of a work tree, as git has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    process::Command,
};

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

/// Lines of a work tree that a commit has not.
pub(crate) struct AddedLines {
    lines: BTreeMap<String, BTreeSet<usize>>,
    /// Files that git does not track.
    whole: BTreeSet<String>,
}

impl AddedLines {
    /// The lines added after the last commit that changed `file`.
    pub(crate) fn since(root: &Path, file: &str) -> Option<Self> {
        let commit = git(root, &["log", "-1", "--format=%H", "--", file]).ok()?;
        let commit = Some(commit.trim()).filter(|commit| !commit.is_empty())?;
        let options = ["diff", "-U0", "--no-color", "--no-ext-diff", "--no-renames", commit];
        let diff = git(root, &options).ok()?;
        let others = git(root, &["ls-files", "-z", "--others", "--exclude-standard"]).ok()?;
        let whole = others.split('\0').map(str::to_owned).collect();
        Some(Self { lines: added_lines(&diff), whole })
    }

    pub(crate) fn contains(&self, path: &str, line: usize) -> bool {
        self.whole.contains(path) || self.lines.get(path).is_some_and(|lines| lines.contains(&line))
    }
}

/// The numbers of the added lines of each file in a diff without context.
fn added_lines(diff: &str) -> BTreeMap<String, BTreeSet<usize>> {
    let mut found: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    let mut path = "";
    for line in diff.lines() {
        if let Some(new) = line.strip_prefix("+++ b/") {
            path = new;
        } else if let Some(added) = line.strip_prefix("@@ ").and_then(|hunk| hunk.split('+').nth(1))
        {
            let range = added.split(' ').next().unwrap_or("");
            let (first, count) = range.split_once(',').unwrap_or((range, "1"));
            if let (Ok(first), Ok(count)) = (first.parse::<usize>(), count.parse::<usize>()) {
                found.entry(path.to_owned()).or_default().extend(first..first + count);
            }
        }
    }
    found
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_has_numbers_of_added_lines() {
        let diff = "+++ b/a.md\n@@ -1 +1,2 @@ head +9\n-a\n+b\n+c\n@@ -7,2 +8,0 @@\n-d\n\
                    --- /dev/null\n+++ b/b/c.rs\n@@ -0,0 +1 @@\n+e\n";
        let found = added_lines(diff);
        assert_eq!(found["a.md"], BTreeSet::from([1, 2]));
        assert_eq!(found["b/c.rs"], BTreeSet::from([1]));
    }
}
