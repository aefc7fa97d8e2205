//! What only one part of a configuration may have: addresses and names of listeners.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use sealane_lanes::kernel::Address;
use sealane_operator::mistake::{Place, Problem};
use sealane_operator::reader::Value;

/// Who has what already.
#[derive(Default)]
pub(crate) struct Claims {
    addresses: HashMap<Address, Owner>,
    names: HashMap<String, Place>,
    on_demand: Option<(PathBuf, Place)>,
}

/// What an address is taken by.
pub(crate) enum Owner {
    /// The admin interface.
    Admin,
    /// The listener that begins there.
    Listener(Place),
}

impl Claims {
    /// Takes an address, which is `written`, for its owner; that it is taken is a mistake.
    pub(crate) fn address(
        &mut self,
        address: &Address,
        owner: Owner,
        written: &Value<'_>,
    ) -> Option<()> {
        if let Some(first) = self.addresses.get(address) {
            let first = match first {
                Owner::Admin => "[admin]".to_owned(),
                Owner::Listener(at) => format!("the listener in {}", seen_from(at, written)),
            };
            let what = format!("{address} is already the address of {first}");
            written.wrong(Problem::new(what, "choose another or remove one of the two"));
            return None;
        }
        self.addresses.insert(address.clone(), owner);
        Some(())
    }

    /// Takes a name for a listener; that it is taken is a mistake.
    pub(crate) fn name(&mut self, name: &str, written: &Value<'_>) -> Option<()> {
        if let Some(at) = self.names.insert(name.to_owned(), written.place()) {
            let at = seen_from(&at, written);
            let what = format!("{at} has a listener of the name {name:?} already");
            written.wrong(Problem::new(what, "choose another name"));
            return None;
        }
        Some(())
    }

    /// Takes certificates on demand for the store that they come by; that another has them is a
    /// mistake.
    pub(crate) fn on_demand(&mut self, store: &Path, written: &Value<'_>) {
        let first = self.on_demand.get_or_insert_with(|| (store.to_owned(), written.place()));
        if first.0 != store {
            let at = seen_from(&first.1, written);
            let what = format!("{at} has it with another store, and the names of all go to one");
            written.wrong(Problem::new(what, "name the same store, or remove one of the two"));
        }
    }
}

/// A place in words, for a message about `written`: the file is told only if it is another.
fn seen_from(place: &Place, written: &Value<'_>) -> String {
    let line = format!("line {}", place.line.unwrap_or_default());
    match place.file == written.place().file {
        true => line,
        false => format!("{line} of {}", place.file.display()),
    }
}
