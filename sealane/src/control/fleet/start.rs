//! What a start does with the text of a fleet's by which a process has served before.

use std::path::Path;

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
}

impl From<Config> for Begun {
    fn from(config: Config) -> Self {
        Self { config, later: None }
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
    match Config::load_with(file, &FleetText::This(SETTLED, Some(settled))) {
        Ok(config) if is_anothers(&store) => {
            let text = "another process takes what the fleet gives; this one does after it";
            say(&format!("include: store:{}: {text}", store.display()));
            Begun { config: own, later: Some(config) }
        }
        Ok(config) => config.into(),
        Err(mistakes) => {
            say_refused(number, &mistakes.to_string());
            own.into()
        }
    }
}

/// Whether another process serves that takes what a fleet gives by this store.
pub(super) fn is_anothers(store: &Path) -> bool {
    // What else is wrong there is said once this one serves.
    matches!(Answerer::of(store), Ok(None))
}
