//! Files that a conversion reads, and the work that it does, within limits.

use std::cell::Cell;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sealane_certificate_files::{TextError, open_regular, read_text};

/// The budget of files and steps that are left.
pub(super) struct Files {
    bytes_left: usize,
    files_left: usize,
    steps_left: Cell<usize>,
}

impl Files {
    /// The file that is named, and those that it includes.
    pub(super) fn of_the_system() -> Self {
        Self { bytes_left: BYTES_MAX, files_left: FILES_MAX, steps_left: Cell::new(STEPS_MAX) }
    }

    /// No file at all.
    pub(super) fn none() -> Self {
        Self { bytes_left: 0, files_left: 0, steps_left: Cell::new(STEPS_MAX) }
    }

    /// Counts work that a short text can ask for many times over. Returns whether more may be done.
    pub(super) fn spend(&self, steps: usize) -> bool {
        let left = self.steps_left.get().saturating_sub(steps);
        self.steps_left.set(left);
        left > 0
    }

    /// Counts copies of parts of the plan, which cost more than a look at a line.
    pub(super) fn spend_on_copies(&self, copies: usize) -> bool {
        self.spend(copies.saturating_mul(COPY_STEPS))
    }

    /// Whether the limit of work was reached, so that the plan is not complete.
    pub(super) fn are_spent(&self) -> bool {
        self.steps_left.get() == 0
    }

    /// The count of this text near a file's beginning, or `None` if the file is missing.
    pub(super) fn count_of(&self, path: &Path, text: &str) -> Option<usize> {
        if self.files_left == 0 || !path.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        open_regular(path).ok()?.take(KEY_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        self.spend(bytes.len() / BYTES_A_STEP);
        Some(bytes.windows(text.len()).filter(|part| *part == text.as_bytes()).count())
    }

    /// Whether a file is there, and may be looked for.
    pub(super) fn has_file(&self, path: &str) -> bool {
        self.files_left > 0 && Path::new(path).is_file()
    }

    /// The text of a file, or why there is none.
    pub(super) fn text(&mut self, path: &Path) -> Result<String, String> {
        if self.files_left == 0 {
            return Err(format!("more than {FILES_MAX} files are included"));
        }
        self.files_left -= 1;
        let text = read_text(path, self.bytes_left).map_err(|error| match error {
            TextError::TooLarge(_) => format!("has more than {BYTES_MAX} bytes in all"),
            error => error.to_string(),
        })?;
        self.bytes_left = self.bytes_left.saturating_sub(text.len());
        Ok(text)
    }

    /// The entries of a folder, by name, without hidden ones.
    pub(super) fn of_folder(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        if self.files_left == 0 {
            return Err(format!("more than {FILES_MAX} files are included"));
        }
        let entries =
            std::fs::read_dir(folder).map_err(|error| format!("cannot be read: {error}"))?;
        let mut paths: Vec<PathBuf> =
            entries.take(FOLDER_ENTRIES_MAX + 1).flatten().map(|entry| entry.path()).collect();
        if paths.len() > FOLDER_ENTRIES_MAX {
            return Err(format!("has more than {FOLDER_ENTRIES_MAX} entries"));
        }
        paths.retain(|path| path.is_file() && !name_of(path).starts_with('.'));
        paths.sort();
        Ok(paths)
    }

    /// The files that a pattern names, which may have `*` and `?` in its last part.
    pub(super) fn matching(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let name = name_of(pattern);
        if !name.contains(['*', '?']) {
            return Ok(vec![pattern.to_owned()]);
        }
        let folder = pattern.parent().unwrap_or(Path::new("."));
        let mut paths = self.of_folder(folder)?;
        paths.retain(|path| matches(name.as_bytes(), name_of(path).as_bytes()));
        Ok(paths)
    }
}

/// The last part of a path.
pub(super) fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Whether a name matches a pattern with `*` and `?`.
pub(super) fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // The position of the last star, and the end of its match so far.
    let mut star = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                at = star_at + 1;
                in_name = taken + 1;
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// Bytes of all files together.
const BYTES_MAX: usize = 4 << 20;
const BYTES_A_STEP: usize = 64;
const COPY_STEPS: usize = 16;
/// Bytes of a certificate file in which a key is looked for.
const KEY_BYTES_MAX: u64 = 256 << 10;
/// Lines, words and values that are looked at, again for each proxy or service that shares them.
pub(super) const STEPS_MAX: usize = 2_000_000;
/// Files, that which is named and those that it includes.
const FILES_MAX: usize = 1_000;
/// Entries of a folder that is included.
const FOLDER_ENTRIES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_a_shell_s_do() {
        for (pattern, name, is_match) in [
            ("*.pem", "a.pem", true),
            ("*.pem", "a.pem.bak", false),
            ("*", "", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("?.pem", "ab.pem", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), is_match, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_read_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("large");
        std::fs::write(&path, vec![b'#'; BYTES_MAX + 1]).unwrap();
        let mut files = Files::of_the_system();
        assert!(files.text(&path).unwrap_err().contains("more than 4194304 bytes"));
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert!(files.text(&pipe).unwrap_err().contains("it is a named pipe, not a file"));
        assert_eq!(files.count_of(&pipe, "x"), None);
        files.files_left = 0;
        assert!(files.text(&path).unwrap_err().contains("more than 1000 files"));
        assert!(Files::none().of_folder(folder.path()).is_err());
    }
}
