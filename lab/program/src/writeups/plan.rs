//! What `writeups` does, as a table of [`Step`]s.

use std::path::Path;

use sealane_lab_harness::programs::on_path;
use sealane_lab_stacks::stacks::libssl;

use crate::steps::Step;

/// The commands in the order of the page, on so many processors. `binary` is this program.
pub(crate) fn steps(binary: &Path, processors: usize) -> Vec<Step> {
    let step = |name: &'static str, title, seconds, words: String| Step {
        name,
        title,
        program: binary.to_owned(),
        // One of them is a command of its own.
        arguments: ["writeups"]
            .into_iter()
            .filter(|_| name != BULK)
            .chain([name])
            .chain(words.split_whitespace())
            .map(str::to_owned)
            .collect(),
        seconds,
        lacks: None,
    };
    // One thread, as many as processors, and twice as many: where the fault must show.
    let processors = processors.max(2);
    let (threads, more) = (format!("1,{processors}"), 2 * processors);
    // Fewer do not show how dear a shared loop becomes.
    let many = more.max(8);
    let [writes, allocations] = match on_path("valgrind") {
        Some(_) => ["--shared-writes", "--allocations"],
        None => [""; 2],
    };
    let mut bulk = bulk(&step, &format!("{threads},{many}"), libssl::old_is_here());
    bulk.lacks = (!Path::new(ASIO).is_file()).then(|| NO_ASIO.to_owned());
    let mut contexts = step("contexts", "who builds contexts", 80, format!("--rounds=3 {writes}"));
    contexts.lacks = on_path("redis-server").is_none().then(|| REDIS.to_owned());
    vec![
        step(
            "offload",
            "work handed to other threads",
            70,
            "--rounds=5 --window-ms=300 --concurrency=4,64,184".into(),
        ),
        step("ring", "bytes handed to another thread", 20, "--rounds=5 --bytes=300000000".into()),
        step(
            "references",
            "who counts references",
            20,
            format!("--rounds=5 --window-ms=300 {writes}"),
        ),
        bulk,
        step("certificates", "who decodes certificates", 120, format!("--rounds=5 {allocations}")),
        contexts,
        step(
            "tables",
            "whose the file table is",
            40,
            format!("--threads={threads},{more} --rounds=3"),
        ),
        step(
            "tickets",
            "who holds the ticket keys",
            70,
            format!("--threads={threads} --rounds=5 --window-ms=300 {writes}"),
        ),
    ]
}

/// The write-up's own driver, under TLS 1.2 as it ran, in one round more than its checks take: with
/// its own library where that has been built, and with the lock put back into the system's where it
/// has not.
fn bulk(
    step: &impl Fn(&'static str, &'static str, u64, String) -> Step,
    threads: &str,
    has_library: bool,
) -> Step {
    let (stacks, emulate, seconds) = if has_library {
        (format!("openssl,{}", libssl::OLD.0), "none,fair-locks", 100)
    } else {
        ("openssl".to_owned(), "none,error-lock", 80)
    };
    step(
        BULK,
        "loops and locks",
        seconds,
        format!(
            "--runtime=asio --stack={stacks} --tls=1.2 --group=p256 \
             --strategy=shared,per-lane --emulate={emulate} --threads={threads} \
             --connections=20 --messages=20 --size=1M --rounds=6 --verify=compare"
        ),
    )
}

/// The command that also measures what no write-up has.
const BULK: &str = "bulk";
const ASIO: &str = "/usr/include/asio.hpp";
const NO_ASIO: &str = "Asio is missing; run: apt-get install g++ libasio-dev libssl-dev";
const REDIS: &str = "redis-server is missing; run: apt-get install redis-server";
/// All steps together; drawing the page takes no time to speak of.
pub(super) const BUDGET_SECONDS: u64 = 590;

#[cfg(test)]
mod tests {
    use sealane_lab_report::page::stories::STORIES;

    use super::*;

    #[test]
    fn every_story_of_the_page_has_its_command() {
        let steps = steps(Path::new("/nonexistent/sealane-lab"), 2);
        for story in &STORIES {
            assert!(steps.iter().any(|step| step.name == story.command), "{}", story.command);
        }
    }

    #[test]
    fn shared_writes_are_counted_wherever_they_can_be() {
        let steps = steps(Path::new("/nonexistent/sealane-lab"), 2);
        let counts = |name: &str| {
            let step = steps.iter().find(|step| step.name == name).expect("a step");
            step.arguments.iter().any(|word| word == "--shared-writes")
        };
        for name in ["contexts", "references", "tickets"] {
            assert_eq!(counts(name), on_path("valgrind").is_some(), "{name}");
        }
    }

    #[test]
    fn all_steps_fit_into_ten_minutes() {
        let steps = steps(Path::new("/nonexistent/sealane-lab"), 2);
        let seconds: u64 = steps.iter().map(|step| step.seconds).sum();
        assert!(seconds <= BUDGET_SECONDS && BUDGET_SECONDS < 600, "{seconds} s");
    }
}
