//! The man pages and completion scripts.

use std::process::Command;

#[test]
fn every_command_has_a_man_page_and_is_completed() {
    let lab = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_sealane-lab")).args(arguments).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (is_well, completion) = lab(&["completions", "bash"]);
    assert!(is_well);
    let (_, help) = lab(&["--help"]);
    let commands = help.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let commands: Vec<&str> =
        commands.filter(|name| !name.is_empty() && !name.starts_with('-')).collect();
    assert!(commands.contains(&"handshake") && commands.contains(&"servers"), "{commands:?}");
    for command in commands.into_iter().filter(|name| *name != "help") {
        let (is_well, page) = lab(&["man", command]);
        assert!(is_well && page.contains(".SH OPTIONS"), "{command}: {page}");
        assert!(completion.contains(&format!("{command})")), "{command} is not completed");
    }
    assert!(!lab(&["man", "nonsense"]).0);
}
