//! What `writeups` does, as a table of [`Step`]s.

use std::path::Path;

use crate::{count, steps::Step};

/// The commands in the order of the page, on so many processors. `binary` is this program.
pub(super) fn steps(binary: &Path, processors: usize) -> Vec<Step> {
    let step = |name, title, seconds, arguments: &[&str]| Step {
        name,
        title,
        program: binary.to_owned(),
        arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
        seconds,
        lacks: None,
    };
    // One thread, and what all together keep of its rate.
    let threads = format!("--threads=1,{}", processors.max(2));
    let bulk = [
        "bulk",
        "--over=sockets",
        "--stack=sealane,openssl",
        "--emulate=none,error-lock",
        "--messages=30",
        "--rounds=5",
        &threads,
    ];
    let mut tickets = vec!["tickets", "--rounds=5"];
    // The page draws them; counting takes valgrind, and seconds.
    if count::needs_valgrind().is_ok() {
        tickets.push("--shared-writes");
    }
    vec![
        step("offload", "work handed to other threads", 90, &["offload", "--rounds=3"]),
        step("ring", "bytes handed to another thread", 60, &["ring", "--rounds=5"]),
        step("bulk", "loops and locks", 90, &bulk),
        step("certificates", "who decodes certificates", 60, &["certificates", "--rounds=3"]),
        step("contexts", "who builds contexts", 90, &["contexts", "--rounds=3"]),
        step("tickets", "who holds the ticket keys", 60, &tickets),
    ]
}

/// All steps together; drawing the page takes no time to speak of.
pub(super) const BUDGET_SECONDS: u64 = 570;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli;

    #[test]
    fn all_steps_fit_into_ten_minutes_and_are_commands_of_this_program() {
        let steps = steps(Path::new("/nonexistent/sealane-lab"), 2);
        let seconds: u64 = steps.iter().map(|step| step.seconds).sum();
        assert!(seconds <= BUDGET_SECONDS && BUDGET_SECONDS < 600, "{seconds} s");
        for step in &steps {
            let arguments = step.arguments.iter().cloned().chain(["--json".into(), "x".into()]);
            let parsed = cli::parses(arguments);
            assert!(parsed.is_ok(), "{step:?}: {parsed:?}");
        }
    }
}
