//! The limit for writes of this process: [`close`] makes the kernel refuse all writes outside of
//! the store (Landlock).
//!
//! The unit in packaging does more. This is for an agent that runs outside of it. Programs inherit
//! the rules, and those that an operator names may have to write anywhere: if there are any,
//! nothing is refused (docs/limits.md).

use std::path::Path;

use landlock::{
    ABI, AccessFs, PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus,
};
use rustix::thread::set_no_new_privs;
use tracing::warn;

use crate::settings::Settings;

/// Has the kernel refuse to this process, and to all programs that it starts, rights of other users
/// and writes outside of the store. Returns whether it refuses the writes. It must be called while
/// there is no other thread.
pub(crate) fn close(settings: &Settings) -> bool {
    if let Err(error) = set_no_new_privs(true) {
        let text = format!("programs of other users keep their rights here: {error}");
        warn!("{text}");
    }
    if settings.starts_programs() {
        return false;
    }
    // Kernels without Landlock are no reason for a word at each start: the unit does the same.
    writes_only(&settings.store).is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
}

fn writes_only(store: &Path) -> Result<RestrictionStatus, RulesetError> {
    let writes = AccessFs::from_write(ABI::V5);
    let mut rules = Ruleset::default().handle_access(writes)?.create()?;
    if let Ok(store) = PathFd::new(store) {
        rules = rules.add_rule(PathBeneath::new(store, writes))?;
    }
    // Our own programs print into it, such as the one that examines a store.
    if let Ok(nothing) = PathFd::new("/dev/null") {
        rules = rules.add_rule(PathBeneath::new(nothing, AccessFs::WriteFile))?;
    }
    rules.restrict_self()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::thread;

    use super::*;

    /// The rules hold for the thread that made them.
    #[test]
    fn closed_thread_writes_to_the_store_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        fs::create_dir(&store).unwrap();
        let text = "store = \"store\"\nstore_key = { file = \"key\" }\n[push]\n\
                    address = \"127.0.0.1:1\"\ncertificate = \"a\"\nkey = \"a\"\n\
                    client_roots = [\"a\"]\n[[push.role]]\nclient = \"a\"\nnames = [\"*\"]\n";
        let settings = Settings::parse(&folder.path().join("agent.toml"), text).unwrap();
        let (inside, outside) = (store.join("file"), folder.path().join("file"));
        let closed = thread::spawn(move || {
            let is_closed = close(&settings);
            (is_closed, fs::write(inside, "a"), fs::write(outside, "a").map_err(|e| e.kind()))
        });
        let (is_closed, inside, outside) = closed.join().unwrap();
        inside.unwrap();
        // A kernel may have no Landlock.
        if is_closed {
            assert_eq!(outside, Err(ErrorKind::PermissionDenied));
        }
    }
}
