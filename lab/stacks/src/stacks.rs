//! The stacks, one file each, and the list of them: [`load`] finds one by name.
//!
//! | what a scenario asks | what a stack does |
//! |---|---|
//! | `full`, TLS 1.2 | neither a session cache nor tickets, at either end |
//! | `session-id` | a cache in the server; the client asks for no ticket |
//! | `ticket`, TLS 1.2 | tickets and no cache |
//! | TLS 1.3, `tickets` > 0 | that many stateless tickets behind each handshake, full or resumed |
//! | `share = context` | one server context and one client context for all threads |
//! | `share = session` | the same, and clients share what they resume: one session, or a store |
//! | `share = thread` | each thread has both to itself, and resumes its own sessions |

/// What an end of every library behind the crate sealane-libssl does the same way.
macro_rules! carried {
    () => {
        fn handshake(
            &mut self,
            incoming: &[u8],
            outgoing: &mut Vec<u8>,
        ) -> Result<crate::stack::Progress, Error> {
            let step = self.0.handshake(incoming, outgoing);
            Ok(match step.map_err($crate::stacks::libssl::failed)? {
                sealane_libssl::Step::Done => crate::stack::Progress::Done,
                sealane_libssl::Step::Wants => crate::stack::Progress::Wants,
            })
        }

        fn send(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
            self.0.send(plaintext, outgoing).map_err($crate::stacks::libssl::failed)
        }

        fn receive(
            &mut self,
            incoming: &[u8],
            plaintext: &mut Vec<u8>,
            outgoing: &mut Vec<u8>,
        ) -> Result<bool, Error> {
            let received = self.0.receive(incoming, plaintext, outgoing);
            received.map_err($crate::stacks::libssl::failed)
        }

        fn session(&mut self) -> Option<Session> {
            Some(Session(Box::new(self.0.session()?)))
        }
    };
}

pub(crate) mod cache;
mod identity;
pub mod libssl;
mod linked;
mod rustls;
pub mod sealane;

use sealane_lab_model::error::Error;

pub use identity::{Asked, identity, unchanged};

use crate::stack::Stack;

/// Loads the stack `name`: one of [`known`], or the path of a libssl.
///
/// # Errors
/// [`Error::Unsupported`] if there is none of that name; what the library says if it cannot be
/// loaded.
pub fn load(name: &str) -> Loaded {
    FAMILIES
        .iter()
        .find_map(|family| (family.load)(name))
        .unwrap_or_else(|| Err(Error::Unsupported(unknown(name))))
}

/// The names of all stacks that this machine can load, without loading any.
#[must_use]
pub fn known() -> Vec<String> {
    FAMILIES.iter().flat_map(|family| (family.names)()).collect()
}

/// A stack, or why it is not to be had.
pub type Loaded = Result<Box<dyn Stack>, Error>;

/// Stacks that one file knows how to load.
struct Family {
    /// Those that are on this machine; nothing is loaded to find out.
    names: fn() -> Vec<String>,
    /// `None` if the name is another family's.
    load: fn(&str) -> Option<Loaded>,
}

/// A new stack is one line here; the first family that knows a name loads it.
const FAMILIES: [Family; 3] = [
    Family { names: sealane::names, load: sealane::load },
    Family { names: rustls::names, load: rustls::load },
    Family { names: libssl::names, load: libssl::load },
];

fn unknown(name: &str) -> String {
    format!("no stack is called {name}; those of this machine: {}", known().join(", "))
}

#[cfg(test)]
mod tests;
