//! `sealane reload`: has a running Sealane reload, and says what came of it.

use std::io::{self, Write};

use sealane_control::state::Verdict;
use tracing::error;

use crate::args::ReloadArguments;
use crate::exit::Exit;

use super::counted;
use super::running::{Answered, Running, printable};

/// Orders a reload, waits, and prints the verdict.
///
/// # Errors
/// The writer's.
pub fn run(arguments: &ReloadArguments, out: &mut dyn Write) -> io::Result<Exit> {
    let running = Running { socket: &arguments.socket.socket };
    let answered = match running.order("/reload") {
        Ok(answered) => answered,
        Err(error) => {
            error!("{error}");
            return Ok(Exit::Failed);
        }
    };
    let Some(verdict) = verdict(&answered) else {
        error!("{}", answered.words());
        return Ok(Exit::Failed);
    };
    if arguments.json {
        out.write_all(&answered.body)?;
    } else {
        write!(out, "{}", text(&verdict))?;
    }
    Ok(match verdict {
        verdict if !verdict.is_accepted() => Exit::Invalid,
        verdict if verdict.faults.is_empty() => Exit::Ok,
        _ => Exit::Partly,
    })
}

fn verdict(answered: &Answered) -> Option<Verdict> {
    matches!(answered.status, 200 | 409).then(|| answered.read().ok()).flatten()
}

fn text(verdict: &Verdict) -> String {
    let Verdict { generation, took_ms, errors, faults, warnings } = verdict;
    let mut text = if verdict.is_accepted() {
        let with = match faults.len() as u64 {
            0 => String::new(),
            count => format!(", with {}", counted(count, "fault")),
        };
        format!("reloaded: generation {generation} in {took_ms} ms{with}\n")
    } else {
        format!("reload refused, generation {generation} goes on\n")
    };
    for (kind, findings) in [("error", errors), ("fault", faults), ("warning", warnings)] {
        for finding in findings {
            text += &format!("  {kind}: {}\n", printable(finding));
        }
    }
    text
}
