//! The files that git tracks or would track, read into memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    history::{AddedLines, History, git},
    source::Source,
    subjects,
};

/// All text files of the project.
#[derive(Debug, Default)]
pub struct Repository {
    /// In the order of their paths.
    pub files: Vec<File>,
    /// All of its files, with or without text, and the folders above.
    paths: BTreeSet<String>,
    /// Rust files, and folders, that a `#[cfg(test)] mod name;` brings in; without `.rs`.
    test_modules: BTreeSet<PathBuf>,
    /// The parsed Rust files by their paths.
    sources: BTreeMap<String, Source>,
    history: History,
    /// None for a repository in memory.
    root: Option<PathBuf>,
}

impl Repository {
    /// Reads the files of the work tree at `root`, except those that git ignores.
    pub fn read(root: &Path) -> io::Result<Self> {
        let listing = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let paths = git(root, &listing)?;
        let paths: BTreeSet<&str> = paths.split('\0').filter(|path| !path.is_empty()).collect();
        let mut files = Vec::new();
        for path in &paths {
            files.extend(File::read(root, path)?);
        }
        let mut repository = Self::new(files);
        let there = paths.into_iter().filter(|path| root.join(path).exists());
        repository.paths.extend(there.flat_map(with_folders));
        repository.history = History::read(root, subjects::BASE);
        repository.root = Some(root.to_owned());
        Ok(repository)
    }

    /// A repository of just these files.
    pub fn new(files: Vec<File>) -> Self {
        let rust_files = files.iter().filter(|file| file.extension() == "rs");
        let sources: BTreeMap<_, _> =
            rust_files.map(|file| (file.path.clone(), Source::parse(&file.text))).collect();
        let modules = |(path, source): (&String, &Source)| test_modules(path, source);
        let test_modules = sources.iter().flat_map(modules).collect();
        let paths = files.iter().flat_map(|file| with_folders(&file.path)).collect();
        Self { files, paths, test_modules, sources, ..Self::default() }
    }

    /// The code of `file`, if that is a Rust file.
    pub(crate) fn source(&self, file: &File) -> Option<&Source> {
        self.sources.get(&file.path)
    }

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// The lines added after the last commit that changed `file`, if git knows them.
    pub(crate) fn added_since(&self, file: &str) -> Option<AddedLines> {
        AddedLines::since(self.root.as_deref()?, file)
    }

    /// Whether a file or folder is at `path`, which is relative to the root.
    pub fn has(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Whether a Rust file is compiled for tests, measurements and examples only.
    pub fn is_test(&self, file: &File) -> bool {
        let path = Path::new(&file.path);
        let in_folder = |name| path.components().any(|part| part.as_os_str() == name);
        in_folder("tests")
            || in_folder("benches")
            || in_folder("examples")
            || path.with_extension("").ancestors().any(|path| self.test_modules.contains(path))
    }
}

/// One text file.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the root of the repository, with forward slashes.
    pub path: String,
    /// All of it.
    pub text: String,
    /// Whether its owner may execute it.
    pub executable: bool,
}

impl File {
    /// `None` without text: binary data, folders of other repositories, and files that are
    /// tracked but deleted.
    fn read(root: &Path, path: &str) -> io::Result<Option<Self>> {
        let full = root.join(path);
        let Ok(metadata) = fs::symlink_metadata(&full) else { return Ok(None) };
        if !metadata.is_file() {
            return Ok(None);
        }
        let Ok(text) = String::from_utf8(fs::read(&full)?) else { return Ok(None) };
        let executable = metadata.permissions().mode() & 0o100 != 0;
        Ok(Some(Self { path: path.to_owned(), text, executable }))
    }

    /// Without its dot; empty if there is none.
    pub fn extension(&self) -> &str {
        Path::new(&self.path).extension().and_then(|extension| extension.to_str()).unwrap_or("")
    }

    /// The last part of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// The first folder of the path, which in this workspace is the crate.
    pub fn top(&self) -> &str {
        self.path.split('/').next().unwrap_or(&self.path)
    }
}

/// A path, and each folder that it lies in.
fn with_folders(path: &str) -> impl Iterator<Item = String> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.map(|end| path[..end].to_owned()).collect::<Vec<_>>().into_iter()
}

/// The modules that a file declares for tests only.
fn test_modules(path: &str, source: &Source) -> Vec<PathBuf> {
    let path = Path::new(path);
    let folder = match path.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "main.rs" | "mod.rs") => path.with_file_name(""),
        _ => path.with_extension(""),
    };
    source.test_modules().map(|name| folder.join(name)).collect()
}
