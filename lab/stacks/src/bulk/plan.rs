//! From the command line to the [`BulkTask`]s of a run, one for each cell.

use std::path::Path;

use sealane_lab_model::{error::Error, scenario::Scenario};

use crate::{
    bulk::{
        Arguments,
        task::{BulkTask, Emulation, Fault, FaultKind, Loops, Runtime},
    },
    stacks::{self, libssl},
};

/// A number of bytes with an optional K or M (1,024 and its square).
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    let number: usize = digits.parse().map_err(|_| format!("{text} is no number of bytes"))?;
    let bytes = number.checked_mul(factor).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("{text} is out of range"))
}

impl Arguments {
    /// How often everything is measured.
    pub(super) fn rounds(&self) -> u32 {
        match self.compat {
            Some(_) => self.shuffled.number_or(1),
            None => self.shuffled.number(),
        }
    }

    /// What both ends agree on.
    pub(super) fn scenario(&self) -> Scenario {
        Scenario {
            version: self.version,
            cipher: self.cipher,
            group: self.group,
            key: self.key,
            tickets: self.tickets,
            share: self.share,
            ..Scenario::default()
        }
    }

    /// The cells in the order of the table.
    ///
    /// # Errors
    /// A limit is passed, or nothing is left to do.
    pub(super) fn plan(
        &self,
        credentials: &Path,
        processors: &[usize],
    ) -> Result<Vec<BulkTask>, Error> {
        let tasks = self.tasks(credentials, processors);
        if tasks.is_empty() {
            return Err(Error::Unsupported(NO_DRIVER.into()));
        }
        if tasks.len() > CELLS_MAX {
            let text = format!("{} cells are more than {CELLS_MAX}", tasks.len());
            return Err(Error::Unsupported(text));
        }
        tasks.iter().try_for_each(BulkTask::check)?;
        Ok(tasks)
    }

    fn tasks(&self, credentials: &Path, processors: &[usize]) -> Vec<BulkTask> {
        let mut tasks = Vec::new();
        for (runtime, loops, stack) in self.drivers() {
            for emulate in &self.emulate {
                if !plays(runtime, &stack, *emulate) {
                    continue;
                }
                for size in &self.size {
                    for connections in &self.connections {
                        for threads in self.threads(processors) {
                            tasks.push(BulkTask {
                                loops: Some(loops),
                                emulate: *emulate,
                                threads,
                                connections: *connections,
                                message_bytes: *size,
                                ..self.cell(&stack, runtime, credentials, processors)
                            });
                        }
                    }
                }
            }
        }
        tasks
    }

    /// Runtime, loops and stack of those that go together.
    fn drivers(&self) -> Vec<(Runtime, Loops, String)> {
        let known = stacks::known();
        let usual = SOCKET_STACKS.iter().map(|name| (*name).to_owned());
        let usual: Vec<String> = usual.filter(|name| known.contains(name)).collect();
        let stacks = if self.stack.is_empty() { &usual } else { &self.stack };
        let mut drivers = Vec::new();
        for runtime in &self.runtime {
            for loops in &self.strategy {
                let Some(runtime) = runtime.with(*loops) else { continue };
                for stack in stacks.iter().filter(|stack| drives(runtime, stack)) {
                    let driver = (runtime, *loops, stack.clone());
                    if !drivers.contains(&driver) {
                        drivers.push(driver);
                    }
                }
            }
        }
        drivers
    }

    fn threads(&self, processors: &[usize]) -> Vec<usize> {
        if self.threads.is_empty() { vec![processors.len()] } else { self.threads.clone() }
    }

    fn cell(
        &self,
        stack: &str,
        runtime: Runtime,
        credentials: &Path,
        processors: &[usize],
    ) -> BulkTask {
        let fault = self.fault.map(|kind| self.fault_of(kind));
        BulkTask {
            stack: stack.to_owned(),
            runtime,
            loops: None,
            emulate: Emulation::None,
            scenario: self.scenario(),
            threads: 1,
            connections: 1,
            messages: self.messages,
            message_bytes: 1,
            verify: self.verify,
            fault,
            processors: if self.no_pin { Vec::new() } else { processors.to_vec() },
            credentials: credentials.to_owned(),
            include: self.include.clone(),
        }
    }

    fn fault_of(&self, kind: FaultKind) -> Fault {
        Fault { kind, connection: self.fault_connection, after_bytes: self.fault_after }
    }
}

/// Why nothing is left to do.
pub(super) const NO_DRIVER: &str = concat!(
    "no stack asked for goes with a runtime and strategy asked for: lanes drive sealane, one loop ",
    "per lane; Asio drives libssl, and alone emulates: fair locks in OpenSSL 1.0.2, the error ",
    "lock in others"
);

/// Whether `runtime` can drive `stack`, as far as the names tell.
pub(super) fn drives(runtime: Runtime, stack: &str) -> bool {
    match runtime {
        Runtime::Asio => {
            let file = stack.rsplit('/').next().unwrap_or(stack);
            !["rustls", "sealane"].iter().any(|name| file.starts_with(name))
        }
        Runtime::Lanes => stack == SEALANE,
    }
}

/// Whether `emulate` makes sense there: OpenSSL before 1.1.0 has the lock, others have none to hand
/// out.
fn plays(runtime: Runtime, stack: &str, emulate: Emulation) -> bool {
    let is_old = libssl::is_old(stack);
    match emulate {
        Emulation::None => true,
        Emulation::ErrorLock => runtime == Runtime::Asio && !is_old,
        Emulation::FairLocks => runtime == Runtime::Asio && is_old,
    }
}

const SEALANE: &str = "sealane";
/// Cells of one run.
const CELLS_MAX: usize = 4_096;
/// The stacks that are measured by default.
const SOCKET_STACKS: [&str; 2] = ["sealane", "openssl"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes("16384"), Ok(16_384));
        assert_eq!(bytes("16K"), Ok(16_384));
        assert_eq!(bytes("10m"), Ok(10 << 20));
        for wrong in ["", "K", "-1", "0", "1G", "99999999999999999999M"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_runtime_drives_its_stacks() {
        assert!(drives(Runtime::Asio, "openssl") && drives(Runtime::Asio, "/opt/x/libssl.so.3"));
        assert!(!drives(Runtime::Asio, "rustls-ring"));
        assert!(drives(Runtime::Lanes, "sealane") && !drives(Runtime::Lanes, "openssl"));
    }
}
