//! Host names of backends, looked up with an end to the wait, and what is done while that fails.

use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// What names of backends lead to, kept from one reading to the next.
///
/// A name that cannot be looked up is no reason not to start, for the machine may have started with
/// its resolver missing; nor to give up an address that was good so far. In a later reading a name
/// that is new must lead somewhere.
#[derive(Clone, Default)]
pub struct Names {
    known: HashMap<(String, u16), Option<SocketAddr>>,
    /// Whether a reading has been served.
    has_started: bool,
}

/// Where a name leads.
pub enum Led {
    /// Here.
    Here(SocketAddr),
    /// Nowhere yet, and why.
    Nowhere(String),
    /// Here when it was last looked up, and why it cannot be now.
    Once(SocketAddr, String),
}

impl Names {
    /// Where `name` leads, as `resolve` says, or else as it was.
    ///
    /// # Errors
    /// It is new and cannot be looked up.
    pub fn look_up(
        &mut self,
        name: &str,
        port: u16,
        resolve: &dyn Fn(&str, u16) -> Result<SocketAddr, String>,
    ) -> Result<Led, String> {
        let key = (name.to_owned(), port);
        match (resolve(name, port), self.known.get(&key)) {
            (Ok(address), _) => {
                self.known.insert(key, Some(address));
                Ok(Led::Here(address))
            }
            (Err(why), Some(Some(last))) => Ok(Led::Once(*last, why)),
            (Err(why), None) if self.has_started => Err(why),
            (Err(why), Some(None) | None) => {
                self.known.insert(key, None);
                Ok(Led::Nowhere(why))
            }
        }
    }

    /// What is served from now on has these names, and no others.
    pub fn serve(&mut self, names: impl IntoIterator<Item = (String, u16)>) {
        let mut known = std::mem::take(&mut self.known);
        self.known = names.into_iter().filter_map(|key| known.remove_entry(&key)).collect();
        self.has_started = true;
    }

    /// Those that lead nowhere yet.
    pub fn nowhere(&self) -> Vec<(String, u16)> {
        let led_nowhere = self.known.iter().filter(|(_, led)| led.is_none());
        led_nowhere.map(|(key, _)| key.clone()).collect()
    }
}

/// Looks `name` up, on a thread of its own: a resolver that is silent must not hold up a signal.
///
/// # Errors
/// It has no address, or there was no answer in time.
pub fn resolve(name: &str, port: u16) -> Result<SocketAddr, String> {
    let (sender, found) = channel();
    let asked = name.to_owned();
    let look_up = move || {
        let first = (asked, port).to_socket_addrs().map(|mut addresses| addresses.next());
        // Whoever asked may have given up.
        let _ = sender.send(first);
    };
    let spawned = thread::Builder::new().name("resolver".into()).spawn(look_up);
    spawned.map_err(|error| error.to_string())?;
    match found.recv_timeout(RESOLVE_TIMEOUT) {
        Ok(Ok(Some(address))) => Ok(address),
        Ok(Ok(None)) => Err("the name has no address".into()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", RESOLVE_TIMEOUT.as_secs())),
    }
}

/// Looks `names` up until one leads somewhere, on a thread of its own, and tells whether one does.
///
/// # Errors
/// There is no thread to be had.
pub fn look_again(
    names: Vec<(String, u16)>,
    tell: impl FnOnce(bool) + Send + 'static,
) -> std::io::Result<()> {
    // In the time that a reading gives it, too: what takes longer would not be served.
    let leads = |(name, port): (String, u16)| resolve(&name, port).is_ok();
    let look_up = move || tell(names.into_iter().any(leads));
    thread::Builder::new().name("resolver".into()).spawn(look_up).map(drop)
}

/// One look-up; for as long a signal may have to wait.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(_: &str, _: u16) -> Result<SocketAddr, String> {
        Err("no such host".into())
    }

    #[test]
    fn a_name_that_leads_nowhere_is_borne_at_the_start_alone() {
        let mut names = Names::default();
        let early = ("early.test".to_owned(), 1);
        assert!(matches!(names.look_up("early.test", 1, &fails), Ok(Led::Nowhere(_))));
        assert!(matches!(names.look_up("gone.test", 1, &fails), Ok(Led::Nowhere(_))));
        names.serve([early.clone()]);
        assert_eq!(names.nowhere(), std::slice::from_ref(&early));
        assert!(matches!(names.look_up("early.test", 1, &fails), Ok(Led::Nowhere(_))));
        for new in ["late.test", "gone.test"] {
            assert_eq!(names.look_up(new, 1, &fails).err().as_deref(), Some("no such host"));
        }
        let here = SocketAddr::from(([127, 0, 0, 1], 1));
        let found = names.look_up("early.test", 1, &|_, _| Ok(here));
        assert!(matches!(found, Ok(Led::Here(at)) if at == here));
        assert!(names.nowhere().is_empty());
        let once = names.look_up("early.test", 1, &fails);
        assert!(matches!(once, Ok(Led::Once(at, _)) if at == here));
    }
}
