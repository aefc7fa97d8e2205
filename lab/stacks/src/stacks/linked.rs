//! The identity of stacks that are linked into the lab's own binary.

use std::env;

use sealane_lab_model::library::Identity;

use super::cache;

/// The identity of a stack made of these `packages`, as Cargo calls them.
pub(super) fn identity(name: &str, packages: &[&str]) -> Identity {
    let versions: Vec<String> =
        packages.iter().map(|package| format!("{package} {}", version(package))).collect();
    let path = env::current_exe().unwrap_or_default();
    let sha256 = cache::sha256(&path).unwrap_or_default();
    let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
    Identity {
        name: name.to_owned(),
        version: versions.join(", "),
        path: path.display().to_string(),
        sha256,
        build: format!("{profile}, linked into the lab"),
    }
}

/// The version that the lock file of this build names.
fn version(package: &str) -> &'static str {
    let start = format!("name = \"{package}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != start).skip(1);
    lines
        .next()
        .and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
        .unwrap_or("unknown")
}

/// No library of these tells its version itself.
const LOCK: &str = include_str!("../../../Cargo.lock");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        assert!(version("rustls").starts_with("0.23."));
        assert_eq!(version("no such package"), "unknown");
    }
}
