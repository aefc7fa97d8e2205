//! The processes that descend from one, as `/proc` tells: [`tree`].

use std::{fs, path::Path};

use sealane_lab_model::error::Error;

/// The process `first` and all that descend from it.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn tree(first: u32) -> Result<Vec<u32>, Error> {
    let mut parents = Vec::new();
    for pid in numbers_in(Path::new("/proc"))? {
        // Others come and go while this reads.
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { continue };
        // A name may be no text.
        if let Some(parent) = parent_in(&String::from_utf8_lossy(&stat)) {
            parents.push((pid, parent));
        }
    }
    let mut tree = vec![first];
    let mut next = 0;
    while next < tree.len() {
        let parent = tree[next];
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    Ok(tree)
}

/// The entries of a folder of `/proc` that are numbers.
pub(crate) fn numbers_in(folder: &Path) -> Result<Vec<u32>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file(folder))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The parent in a `/proc/PID/stat`; the command before it may hold spaces and brackets.
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_behind_a_strange_command() {
        assert_eq!(parent_in("12 (a) b) c) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in("nonsense"), None);
    }
}
