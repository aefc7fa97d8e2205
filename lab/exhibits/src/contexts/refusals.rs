//! Trials of what must be refused, and must harm nobody else: a wrong name, and options that name
//! no usable file.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use sealane_lab_harness::{processor::thread_cpu_ns, trial::Reply};
use sealane_lab_model::error::Error;

use crate::contexts::{
    connection::Connection,
    counted::{Counted, Watch},
    library::{self, Census, Lane},
    pings::milliseconds,
    swaps::is_about_a_certificate,
    target::Peer,
    task::{Fault, Files, Refusals},
};

/// Connections of one context, to the right name and to a wrong one in turn.
///
/// # Errors
/// A right one was refused, a wrong one was not, or it was for another reason.
pub(super) fn names(task: &Refusals) -> Result<Reply, Error> {
    let library = library::load(&task.client.stack)?;
    let peer = Peer::find(&task.client.target)?;
    let context = library.build(&task.client.files)?;
    let mut lane = context.lane()?;
    let watch = Watch::begin(Connection::open(lane.connect(&peer.name)?, &peer)?)?;
    let mut refused = 0_u64;
    for number in 0..task.rounds {
        match Connection::open(lane.connect(WRONG_NAME)?, &peer) {
            Err(error) if is_about_a_certificate(&error) => refused += 1,
            Err(error) => return Err(error),
            Ok(_) => {
                let text = format!("connection {number} took {} for {WRONG_NAME}", peer.name);
                return Err(Error::Check(text));
            }
        }
        served(task, &mut *lane, &peer)
            .map_err(|error| Error::Check(format!("connection {number}: {error}")))?;
    }
    let Counted { connections, pings } = watch.end()?;
    drop((lane, context));
    let Census { built, .. } = library.end();
    Ok(line([
        ("refused", refused as f64),
        ("connections", connections as f64),
        ("pings", pings as f64),
        ("contexts_built", built as f64),
    ]))
}

/// Options that cannot be used, each given as a new context, by digest, and as a swap.
///
/// # Errors
/// One was taken, its message does not name the file, or it harmed the context that was there.
pub(super) fn bad_options(task: &Refusals) -> Result<Reply, Error> {
    let library = library::load(&task.client.stack)?;
    let peer = Peer::find(&task.client.target)?;
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let slot = library.slot(&task.client.files)?;
    let mut lane = slot.lane()?;
    let watch = Watch::begin(Connection::open(lane.connect(&peer.name)?, &peer)?)?;
    let (mut errors, mut slowest_ns) = (0_u64, 0);
    for file in unusable(folder.path())? {
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
            served(task, &mut *lane, &peer)?;
        }
    }
    let Counted { pings, .. } = watch.end()?;
    Ok(line([
        ("errors", errors as f64),
        ("pings", pings as f64),
        ("live", library.census().live() as f64),
        ("slowest_cpu_ms", milliseconds(slowest_ns)),
    ]))
}

/// A client that nothing is wrong with.
fn served(task: &Refusals, lane: &mut dyn Lane, peer: &Peer) -> Result<(), Error> {
    let mut connection = Connection::open(lane.connect(&peer.name)?, peer)?;
    if task.fault == Some(Fault::Silent) { Ok(()) } else { connection.ping() }
}

/// A file that is not there, one without a certificate, and one whose certificate is none.
fn unusable(folder: &Path) -> Result<[PathBuf; 3], Error> {
    let files = ["missing.pem", "empty.pem", "broken.pem"].map(|name| folder.join(name));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (file, text) in files[1..].iter().zip(["", broken]) {
        fs::write(file, text).map_err(Error::file(file))?;
    }
    Ok(files)
}

fn line<const N: usize>(figures: [(&str, f64); N]) -> Reply {
    let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Reply::Figures { figures, times: BTreeMap::new() }
}

/// No certificate is valid for it.
const WRONG_NAME: &str = "wrong-host.invalid";
