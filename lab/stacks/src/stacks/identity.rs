//! Which library a stack is, as a process of its own tells: [`identity`].

use std::time::Duration;

use sealane_lab_harness::trial::{Body, Reply, Task, launch};
use sealane_lab_model::{error::Error, library::Identity};
use serde::{Deserialize, Serialize};

use super::load;

/// Which library `stack` is, as a process tells that loads it.
///
/// # Errors
/// What [`launch::run`] says.
pub fn identity(stack: &str) -> Result<Identity, Error> {
    match launch::run(&Task::new(&Asked { stack: stack.to_owned() })?, IDENTITY_TIME_MAX)? {
        Reply::Identity(identity) => Ok(identity),
        _ => Err(Error::Check("the trial told something else than an identity".into())),
    }
}

/// Whether `stacks`, which a run began with, are still the files that they were: rounds of two
/// libraries must not stand under one name.
///
/// # Errors
/// The first that is another one now, or that cannot be loaded any more.
pub fn unchanged(stacks: &[Identity]) -> Result<(), Error> {
    for before in stacks {
        let Identity { name, sha256, .. } = identity(&before.name)?;
        // Asio's driver may be linked with another file of that name.
        if !stacks.iter().any(|known| known.name == name && known.sha256 == sha256) {
            let what = "the run cannot be resumed: since it began,";
            return Err(Error::Check(format!("{what} {name} has become another file")));
        }
    }
    Ok(())
}

/// The question to such a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The stack's name or path.
    stack: String,
}

impl Body for Asked {
    const NAME: &'static str = "identity";

    fn perform(&self) -> Result<Reply, Error> {
        load(&self.stack).map(|stack| Reply::Identity(stack.identity()))
    }
}

const IDENTITY_TIME_MAX: Duration = Duration::from_secs(60);
