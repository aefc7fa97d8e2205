//! Connections that two threads begin and drop, from one context or from one each: an instrument
//! sees what they write to the same lines.

use std::{collections::BTreeMap, sync::Barrier, thread};

use sealane_lab_harness::{
    credentials::SERVER_NAME,
    phase::{self, Phase},
    trial::Reply,
};
use sealane_lab_model::error::Error;

use crate::contexts::{
    library::{self, Lane},
    task::{Connects, Fault},
};

/// Does the task; its figures are not those that the instrument counts.
///
/// # Errors
/// What the library says of the context, or of a connection.
pub(super) fn run(task: &Connects) -> Result<Reply, Error> {
    let library = library::load(&task.stack)?;
    let shares = task.shared || task.fault == Some(Fault::OneContext);
    let shared = shares.then(|| library.build(&task.files)).transpose()?;
    let meeting = Barrier::new(CONNECTING_THREADS);
    let one = |_| {
        let ready = match &shared {
            Some(context) => context.lane(),
            None => library.build(&task.files).and_then(|context| context.lane()),
        };
        let ready =
            ready.and_then(|mut lane| connects(&mut *lane, task.fixed.warm_up).map(|()| lane));
        meeting.wait();
        let done = ready.and_then(|mut lane| {
            for _ in 0..task.fixed.count {
                // The side that the instrument waits for; there is one side only.
                phase::enter(Phase::Server);
                let connected = connects(&mut *lane, 1);
                phase::enter(Phase::Outside);
                connected?;
            }
            Ok(lane)
        });
        // So that no thread's end is among what another one does.
        meeting.wait();
        done.map(drop)
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..CONNECTING_THREADS).map(|number| scope.spawn(move || one(number))).collect();
        let crashed = |_| Error::Check("a thread panicked while it connected".into());
        threads.into_iter().try_for_each(|thread| thread.join().map_err(crashed).flatten())
    })?;
    Ok(Reply::Figures { figures: BTreeMap::new(), times: BTreeMap::new() })
}

fn connects(lane: &mut dyn Lane, count: u64) -> Result<(), Error> {
    (0..count).try_for_each(|_| lane.connect(SERVER_NAME).map(drop))
}

/// Two are enough to share.
pub(super) const CONNECTING_THREADS: usize = 2;
