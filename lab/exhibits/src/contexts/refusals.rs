//! Trials of what must be refused, and must harm nobody else: a wrong name, and options that name
//! no usable file.

use std::{collections::BTreeMap, fs};

use sealane_lab_harness::{processor::thread_cpu_ns, trial::Reply};
use sealane_lab_model::error::Error;

use crate::contexts::{
    connection::Connection,
    library::{self, Census},
    pings::milliseconds,
    swaps::is_about_a_certificate,
    target::Peer,
    task::{ClientTask, Files, Names},
};

/// Connections of one context, to the right name and to a wrong one in turn.
///
/// # Errors
/// A right one was refused, a wrong one was not, or it was for another reason.
pub(super) fn names(task: &Names) -> Result<Reply, Error> {
    let library = library::load(&task.client.stack)?;
    let peer = Peer::find(&task.client.target)?;
    let context = library.build(&task.client.files)?;
    let mut lane = context.lane()?;
    for number in 0..task.connections {
        match Connection::open(lane.connect(WRONG_NAME)?, &peer) {
            Err(error) if is_about_a_certificate(&error) => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let text = format!("connection {number} took {} for {WRONG_NAME}", peer.name);
                return Err(Error::Check(text));
            }
        }
        Connection::open(lane.connect(&peer.name)?, &peer)
            .and_then(|mut connection| connection.ping())
            .map_err(|error| Error::Check(format!("connection {number}: {error}")))?;
    }
    drop((lane, context));
    let Census { built, .. } = library.end();
    let each = task.connections as f64;
    Ok(line([("refused", each), ("pings", each), ("contexts_built", built as f64)]))
}

/// Options that cannot be used, each given as a new context, by digest, and as a swap.
///
/// # Errors
/// One was taken, its message does not name the file, or it harmed the context that was there.
pub(super) fn bad_options(task: &ClientTask) -> Result<Reply, Error> {
    let library = library::load(&task.stack)?;
    let peer = Peer::find(&task.target)?;
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let (missing, empty) = (folder.path().join("missing.pem"), folder.path().join("empty.pem"));
    fs::write(&empty, "").map_err(Error::file(&empty))?;
    let broken = folder.path().join("broken.pem");
    let text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(&broken, text).map_err(Error::file(&broken))?;
    let slot = library.slot(&task.files)?;
    let mut lane = slot.lane()?;
    let (mut errors, mut slowest_ns) = (0_u64, 0);
    for file in [&missing, &empty, &broken] {
        let files = Files { ca: file.clone(), identification: None };
        let attempts: [&dyn Fn() -> Result<(), Error>; 3] = [
            &|| library.build(&files).map(drop),
            &|| library.options(&files)?.context().map(drop),
            &|| slot.swap(&files),
        ];
        for attempt in attempts {
            let before_ns = thread_cpu_ns();
            let refusal = attempt();
            slowest_ns = slowest_ns.max(thread_cpu_ns() - before_ns);
            let named = |error: &Error| error.to_string().contains(&file.display().to_string());
            match refusal {
                Err(error) if named(&error) => errors += 1,
                Err(error) => {
                    let text = format!("an error that does not name its file: {error}");
                    return Err(Error::Check(text));
                }
                Ok(()) => {
                    return Err(Error::Check(format!("{} was taken", file.display())));
                }
            }
            Connection::open(lane.connect(&peer.name)?, &peer)?.ping()?;
        }
    }
    Ok(line([
        ("errors", errors as f64),
        ("pings", errors as f64),
        ("slowest_cpu_ms", milliseconds(slowest_ns)),
    ]))
}

fn line<const N: usize>(figures: [(&str, f64); N]) -> Reply {
    let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Reply::Figures { figures, times: BTreeMap::new() }
}

/// No certificate is valid for it.
const WRONG_NAME: &str = "wrong-host.invalid";
