//! What `quick` does, as a table of [`Step`]s.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use sealane_lab_harness::{machine, programs::on_path};

use crate::steps::Step;

/// All steps, most telling first. `binary` is this program.
pub(crate) fn steps(binary: &Path) -> Vec<Step> {
    let threads = threads(machine::describe().processors);
    let sealane = sealane(binary);
    let mut steps = vec![Step {
        name: "handshake",
        title: "handshakes by stack and threads",
        program: binary.to_owned(),
        arguments: words(&["handshake", "--rounds=5", "--window-ms=200", "--threads", &threads]),
        seconds: 45,
        lacks: None,
    }];
    let [locks, lines, own_lines] = counts(binary);
    steps.push(locks);
    steps.push(Step {
        name: "servers",
        title: "CPU of real servers per full handshake",
        program: binary.to_owned(),
        arguments: words(&[
            "servers",
            "--rounds=3",
            "--cases=full",
            "--sealane",
            &sealane.as_deref().unwrap_or(Path::new("sealane")).to_string_lossy(),
        ]),
        seconds: 50,
        lacks: sealane.is_none().then(|| {
            "the binary of sealane is not beside the lab's; run: cargo build --release".into()
        }),
    });
    // Slow where the machine is busy: what comes before must not wait for it.
    steps.extend([lines, own_lines]);
    steps
}

/// Locks; shared writes of OpenSSL; and of Sealane. The last two take valgrind, the last also a
/// build of the lab for it.
fn counts(binary: &Path) -> [Step; 3] {
    let step = |name, title, program: &Path, arguments: &[&str], seconds, lacks| {
        let (program, arguments) = (program.to_owned(), words(arguments));
        Step { name, title, program, arguments, seconds, lacks }
    };
    let locks = ["count", "--locks", "--stack=sealane,openssl"];
    let of_openssl = ["count", "--lines", "--handshakes=1", "--stack=openssl"];
    let of_sealane = ["count", "--lines", "--handshakes=1", "--stack=sealane"];
    let valgrind = on_path("valgrind").is_none().then(|| VALGRIND.to_owned());
    let counting = binary.ancestors().nth(2).map(|target| target.join(COUNTING_BUILD));
    let counting = counting.filter(|program| program.is_file());
    let own = counting.is_none().then(|| COUNTING.to_owned());
    let own_program = counting.as_deref().unwrap_or(binary);
    let own = valgrind.clone().or(own);
    [
        step("locks", "locks per handshake", binary, &locks, 8, None),
        step("lines", "shared writes of OpenSSL", binary, &of_openssl, 40, valgrind),
        step("own-lines", "shared writes of Sealane", own_program, &of_sealane, 27, own),
    ]
}

/// One, half and all processors, and half as many more.
fn threads(processors: usize) -> String {
    let processors = processors.max(1);
    let counts = [1, processors / 2, processors, processors + processors.div_ceil(2)];
    let counts: BTreeSet<usize> = counts.into_iter().filter(|count| *count > 0).collect();
    counts.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The terminator that was built with this lab.
fn sealane(binary: &Path) -> Option<PathBuf> {
    let beside = binary.with_file_name("sealane");
    beside.is_file().then_some(beside)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

const VALGRIND: &str = "valgrind is missing; run: apt-get install valgrind";
const COUNTING: &str = "it takes a build of the lab for valgrind; run: lab/build-for-counting";
/// What `lab/build-for-counting` makes, seen from the folder of builds.
const COUNTING_BUILD: &str = "count/count/sealane-lab";
/// All steps together; drawing the page takes no time to speak of.
pub(super) const BUDGET_SECONDS: u64 = 170;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_fit_into_three_minutes() {
        let steps = steps(Path::new("/nonexistent/sealane-lab"));
        let seconds: u64 = steps.iter().map(|step| step.seconds).sum();
        assert!(seconds <= BUDGET_SECONDS && BUDGET_SECONDS < 180, "{seconds} s");
        assert!(steps.len() >= 2, "{steps:?}");
    }

    #[test]
    fn a_large_machine_is_sampled_and_a_small_one_measured_whole() {
        assert_eq!(threads(1), "1,2");
        assert_eq!(threads(2), "1,2,3");
        assert_eq!(threads(64), "1,32,64,96");
    }
}
