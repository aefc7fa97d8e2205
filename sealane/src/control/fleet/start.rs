//! What a start does with the text of a fleet's by which a process has served before.

use std::path::Path;

use sealane_store::{Given, SETTLED};

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

/// The configuration of a file that is in order by itself, `own`, with the text of a fleet by which
/// a process has served before: without it, if that is not in order any more.
pub(crate) fn with_fleets_part(file: &Path, own: Config) -> Config {
    let Some(FromFleet { store, .. }) = &own.fleet else { return own };
    let settled = match Given::read(store, SETTLED) {
        Ok(Some(settled)) => settled,
        Ok(None) => {
            let text =
                "nothing of a fleet's was served here before; it is once the agent brings it";
            say(&format!("include: store:{}: {text}", store.display()));
            return own;
        }
        Err(error) => {
            let path = store.join(SETTLED);
            let text = format!("{}: {error}; nothing of a fleet's is served yet", path.display());
            say_at(Priority::Error, &text);
            return own;
        }
    };
    let number = settled.number;
    Config::load_with(file, &FleetText::This(SETTLED, Some(settled))).unwrap_or_else(|mistakes| {
        say_refused(number, &mistakes.to_string());
        own
    })
}
