//! Both ends on one thread, a chunk in and the same chunk out: so that what each end does can be
//! counted, instruction by instruction, and comes out the same every time.

use std::collections::BTreeMap;

use sealane_lab_harness::{
    phase,
    trial::{Body, Reply},
};
use sealane_lab_model::error::Error;
use serde::{Deserialize, Serialize};

use crate::ring::{
    Strategy,
    ends::{CAP_BYTES, Locked, Receiver, Sender, limits},
    paged,
};

/// How much goes through which ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InTurn {
    /// The ring.
    pub strategy: Strategy,
    /// Bytes of a write and of a read, a multiple of eight.
    pub chunk_bytes: usize,
    /// How many.
    pub chunks: u64,
}

impl Body for InTurn {
    const NAME: &'static str = "in-turn";

    fn perform(&self) -> Result<Reply, Error> {
        run(self)
    }
}

/// Does the task.
///
/// # Errors
/// A byte was wrong, or missing.
fn run(task: &InTurn) -> Result<Reply, Error> {
    match task.strategy {
        Strategy::Bytering => {
            let limits = limits().map_err(|error| Error::Check(error.to_string()))?;
            carry(task, bytering::ring(limits))
        }
        Strategy::Mutex => carry(task, Locked::pair()),
        Strategy::Paged => carry(task, paged::pair()),
        Strategy::Rtrb => carry(task, rtrb::RingBuffer::new(CAP_BYTES)),
    }
}

/// The producer's work is the server's phase, the consumer's the client's.
fn carry(
    task: &InTurn,
    (mut sender, mut receiver): (impl Sender, impl Receiver),
) -> Result<Reply, Error> {
    let mut sent = vec![0; task.chunk_bytes];
    let mut received = vec![0; task.chunk_bytes];
    for number in 0..task.chunks {
        sent.fill(number.to_ne_bytes()[0]);
        let taken = phase::on_server(|| sender.write(&sent));
        let given = phase::on_client(|| receiver.read(&mut received));
        if (taken, given) != (sent.len(), sent.len()) || received != sent {
            return Err(Error::Check(format!("chunk {number} did not come back as it went in")));
        }
    }
    let figures = BTreeMap::from([("chunks".to_owned(), task.chunks as f64)]);
    Ok(Reply::Figures { figures, times: BTreeMap::new() })
}
