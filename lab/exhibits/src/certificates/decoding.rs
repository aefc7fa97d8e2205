//! What a handshake takes of whoever decodes for it, alone and so often, for an instrument to
//! count: [`DecodingTask`].

use std::path::{Path, PathBuf};

use sealane_lab_harness::{
    interrupt::Interrupt,
    strategies::{named, word},
    trial::{Body, Reply, Task},
};
use sealane_lab_model::{
    document::{Strategies, StrategyRow},
    error::Error,
};
use sealane_lab_sharing::count;
use serde::{Deserialize, Serialize};

use crate::certificates::{Strategy, decode::Decoded, generation::Encoded, owner::Owner};

/// Decoding one chain again and again, in one thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecodingTask {
    /// Who decodes.
    strategy: Strategy,
    /// A certificate's file.
    file: PathBuf,
    /// How often.
    handshakes: u64,
}

impl Body for DecodingTask {
    const NAME: &'static str = "decoding";

    fn perform(&self) -> Result<Reply, Error> {
        let encoded = Encoded::read(&self.file)?;
        let decoded = match self.strategy {
            Strategy::Central => Owner::work(&encoded, self.handshakes)?,
            Strategy::PerConnection => {
                let decode = |_| Decoded::chain(&encoded.text).map(|chain| chain.len() as u64);
                (0..self.handshakes).map(decode).sum::<Result<_, _>>()?
            }
            Strategy::Lane => {
                return Err(Error::Unsupported("a lane does not decode for a handshake".into()));
            }
        };
        let figures = named([("decoded", decoded as f64)]);
        Ok(Reply::Figures { figures, times: [].into() })
    }
}

/// Counts what those allocate that decode for each handshake, and tells it in all of their rows.
/// The certificate in `file` stands for all: they have equal fields.
///
/// # Errors
/// If valgrind is missing or fails.
pub(super) fn count_allocations(
    strategies: &mut Strategies,
    file: &Path,
    interrupt: &Interrupt,
) -> Result<(), Error> {
    for strategy in [Strategy::Central, Strategy::PerConnection] {
        let name = word(&strategy);
        let of_strategy = |row: &&mut StrategyRow| row.strategy == name && row.failure.is_none();
        let mut rows = strategies.rows.iter_mut().filter(of_strategy).peekable();
        if rows.peek().is_none() {
            continue;
        }
        let task =
            |handshakes| Task::new(&DecodingTask { strategy, file: file.to_owned(), handshakes });
        let allocations = count::allocations(task, interrupt)?;
        rows.for_each(|row| {
            row.figures.insert(ALLOCATIONS.to_owned(), vec![allocations]);
        });
    }
    Ok(())
}

/// The figure's name.
pub(super) const ALLOCATIONS: &str = "allocations";
