//! `sealane serve` beside an agent.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::agent::BINARY;
use super::process::Process;
use super::required;

/// Starts one in a folder, with this configuration; it says what it says in `serve.log`.
pub fn start(folder: &Path, text: &str) -> Option<Process> {
    start_with(folder, text, &[])
}

/// Starts one with more in its environment.
pub fn start_with(folder: &Path, text: &str, environment: &[(&str, String)]) -> Option<Process> {
    let mut command = Command::new(program()?);
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    Some(start_by(command, folder, text))
}

/// Starts one by a command, which its arguments are added to.
pub fn start_by(mut command: Command, folder: &Path, text: &str) -> Process {
    fs::write(folder.join("sealane.toml"), text).unwrap();
    let log = File::create(folder.join("serve.log")).unwrap();
    command.args(["serve", "--config"]).arg(folder.join("sealane.toml"));
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    Process::new(child.unwrap())
}

/// The program that serves, as it was built beside the agent.
pub fn program() -> Option<PathBuf> {
    required(Path::new(BINARY).with_file_name("sealane"))
}
