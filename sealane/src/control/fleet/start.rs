//! What a start does with the text of a fleet's by which a process has served before.

use std::io;
use std::path::Path;
use std::time::Duration;

use sealane_store::{Answerer, Given, SETTLED};

use super::say_refused;
use crate::config::{Config, FleetText, FromFleet, Mistakes};
use crate::operator::{Priority, say, say_at};

/// The configuration of a file, without what a fleet gives to it.
///
/// # Errors
/// Everything that is wrong with it.
pub(crate) fn own_part(file: &Path) -> Result<Config, Mistakes> {
    Config::load_with(file, &FleetText::This(SETTLED, None))
}

/// A configuration for a start.
pub(crate) struct Begun {
    /// What is served.
    pub(crate) config: Config,
    /// What may be served later, without a start.
    pub(crate) later: Option<Config>,
    /// Whoever answers to the fleet, held from before anything is served by what it gives.
    pub(crate) answerer: Option<Answerer>,
}

impl From<Config> for Begun {
    fn from(config: Config) -> Self {
        Self { config, later: None, answerer: None }
    }
}

/// The configuration of a file that is in order by itself, `own`, with the text of a fleet by which
/// a process has served before: without it, if that is not in order any more, or if another process
/// serves by it.
pub(crate) fn with_fleets_part(file: &Path, own: Config) -> Begun {
    let Some(FromFleet { store, .. }) = own.fleet.clone() else { return own.into() };
    let settled = match Given::read(&store, SETTLED) {
        Ok(Some(settled)) => settled,
        Ok(None) => {
            let text =
                "nothing of a fleet's was served here before; it is once the agent brings it";
            say(&format!("include: store:{}: {text}", store.display()));
            return own.into();
        }
        Err(error) => {
            let path = store.join(SETTLED);
            let text = format!("{}: {error}; nothing of a fleet's is served yet", path.display());
            say_at(Priority::Error, &text);
            return own.into();
        }
    };
    let number = settled.number;
    let answerer = answerer_of(&store);
    match Config::load_with(file, &FleetText::This(SETTLED, Some(settled))) {
        Ok(config) if matches!(answerer, Ok(None)) => {
            let text = "another process takes what the fleet gives; this one does after it";
            say(&format!("include: store:{}: {text}", store.display()));
            Begun { config: own, later: Some(config), answerer: None }
        }
        // What is wrong with the folder is said once this one serves.
        Ok(config) => Begun { config, later: None, answerer: answerer.unwrap_or_default() },
        Err(mistakes) => {
            say_refused(number, &mistakes.to_string());
            Begun { config: own, later: None, answerer: answerer.unwrap_or_default() }
        }
    }
}

/// Becomes the one who answers; none while another process is it, which an agent that reads an
/// answer looks like for a moment.
fn answerer_of(store: &Path) -> io::Result<Option<Answerer>> {
    for _ in 1..ANSWERER_TRIES {
        match Answerer::of(store) {
            Ok(None) => std::thread::sleep(ANSWERER_PAUSE),
            other => return other,
        }
    }
    Answerer::of(store)
}

const ANSWERER_TRIES: usize = 5;
const ANSWERER_PAUSE: Duration = Duration::from_millis(10);
