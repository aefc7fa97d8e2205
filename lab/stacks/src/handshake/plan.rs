//! What is measured: [`Settings`], out of the command line.

use sealane_lab_harness::machine;
use sealane_lab_model::{error::Error, scenario::Scenario};

use crate::stacks;

use super::{Arguments, task::fault::Fault};

/// Every stack in every scenario with every number of threads.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names or paths; the first is what the others are compared with.
    pub stacks: Vec<String>,
    /// Possible ones only.
    pub scenarios: Vec<Scenario>,
    /// Ascending.
    pub threads: Vec<usize>,
    /// Length of the window.
    pub window_ms: u64,
    /// The order in which threads take processors; empty: not pinned.
    pub pin_order: Vec<usize>,
    /// Committed by every trial, or by those of one stack: a test interface.
    pub fault: Option<(Fault, Option<String>)>,
}

impl Settings {
    pub(super) fn new(arguments: &Arguments) -> Result<Self, Error> {
        let machine = machine::describe();
        let scenarios = scenarios(arguments);
        if scenarios.is_empty() {
            let why = "session ids resume in TLS 1.2 only, x25519mlkem768 is TLS 1.3's, \
                       and tickets need --tickets 1 or more in TLS 1.3";
            return Err(Error::Unsupported(format!("nothing to measure: {why}")));
        }
        let stacks =
            if arguments.stack.is_empty() { default_stacks() } else { arguments.stack.clone() };
        if arguments.compat.is_some() && stacks.len() != 1 {
            return Err(Error::Unsupported("--compat needs exactly one --stack".into()));
        }
        let mut threads = arguments.threads.clone();
        if threads.is_empty() {
            threads = default_threads(machine.processors);
        }
        threads.sort_unstable();
        threads.dedup();
        Ok(Self {
            stacks,
            scenarios,
            threads,
            window_ms: arguments.window_ms,
            pin_order: if arguments.no_pin { Vec::new() } else { machine.pin_order },
            fault: arguments.fault.map(|fault| (fault, arguments.fault_of.clone())),
        })
    }

    /// What a trial of `stack` is to commit.
    pub(super) fn fault_of(&self, stack: &str) -> Option<Fault> {
        let (fault, only) = self.fault.as_ref()?;
        only.as_ref().is_none_or(|only| only == stack).then_some(*fault)
    }

    /// The processors of so many threads.
    #[must_use]
    pub fn pinned(&self, threads: usize) -> Vec<usize> {
        self.pin_order.iter().copied().cycle().take(threads).collect()
    }
}

/// All combinations, without those that no stack can do.
fn scenarios(arguments: &Arguments) -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for kind in &arguments.kind {
        for version in &arguments.tls {
            for key in &arguments.key {
                for cipher in &arguments.cipher {
                    for group in &arguments.group {
                        scenarios.push(Scenario {
                            kind: *kind,
                            version: *version,
                            cipher: *cipher,
                            group: *group,
                            key: *key,
                            client_certificate: arguments.client_certificate,
                            chain: 1,
                            tickets: arguments.tickets,
                            share: arguments.share,
                        });
                    }
                }
            }
        }
    }
    scenarios.retain(|scenario| scenario.exists().is_ok());
    scenarios.dedup();
    scenarios
}

/// Those that are linked, and the system's OpenSSL.
fn default_stacks() -> Vec<String> {
    let wanted = ["sealane", "rustls-aws-lc", "rustls-graviola", "rustls-ring", "openssl"];
    let known = stacks::known();
    wanted.into_iter().map(str::to_owned).filter(|name| known.contains(name)).collect()
}

/// From 1 to half as many more as there are processors, at most about [`POINTS`] of them.
fn default_threads(processors: usize) -> Vec<usize> {
    let most = processors.saturating_add(processors.div_ceil(2));
    let step = most.div_ceil(POINTS).max(1);
    let mut threads: Vec<usize> = (step..=most).step_by(step).collect();
    threads.extend([1, 2, processors, most]);
    threads.retain(|count| *count <= most);
    threads
}

const POINTS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_goes_beyond_the_processors_by_half() {
        let threads = |processors| {
            let mut threads = default_threads(processors);
            threads.sort_unstable();
            threads.dedup();
            threads
        };
        assert_eq!(threads(1), [1, 2]);
        assert_eq!(threads(2), [1, 2, 3]);
        assert_eq!(threads(4), [1, 2, 3, 4, 5, 6]);
        let many = threads(80);
        assert!(many.starts_with(&[1, 2, 8]) && many.ends_with(&[112, 120]), "{many:?}");
        assert!(many.contains(&80) && many.len() <= POINTS + 4, "{many:?}");
    }
}
