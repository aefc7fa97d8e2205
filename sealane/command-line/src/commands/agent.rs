//! `sealane agent`: becomes the agent, a program of its own that this one links nothing of.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tracing::error;

use crate::exit::Exit;

/// Becomes the agent; returns only if that cannot be.
pub(super) fn run(arguments: &[OsString]) -> Exit {
    let own = std::env::current_exe();
    let error = match own.as_deref().map(Path::parent) {
        Ok(Some(folder)) => start(folder, arguments),
        Ok(None) => "this program has no folder".into(),
        Err(error) => format!("where this program is cannot be found out: {error}"),
    };
    error!("{error}");
    Exit::Failed
}

/// Why the agent cannot be started that lies beside a program in `folder`.
fn start(folder: &Path, arguments: &[OsString]) -> String {
    let places = [folder.join(PROGRAM), folder.join("../libexec").join(PROGRAM)];
    for place in &places {
        let error = Command::new(place).args(arguments).exec();
        if error.kind() != io::ErrorKind::NotFound {
            return format!("{}: cannot be started: {error}", place.display());
        }
    }
    let [beside, apart]: [String; 2] = places.map(|place: PathBuf| place.display().to_string());
    format!(
        "the agent is not installed: there is neither {beside} nor {apart}; install {PROGRAM} \
         there (cargo build --release -p sealane-agent)"
    )
}

const PROGRAM: &str = "sealane-agent";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_is_not_there_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let said = start(folder.path(), &[]);
        assert!(said.starts_with("the agent is not installed: there is neither "), "{said}");
        std::fs::write(folder.path().join(PROGRAM), "not for execution").unwrap();
        let said = start(folder.path(), &[]);
        assert!(said.contains("sealane-agent: cannot be started: Permission denied"), "{said}");
    }
}
