//! Which processors the servers run on, and which the client and the backend: [`Placement`].

use sealane_lab_harness::processor::confine;
use sealane_lab_model::error::Error;

/// All on all processors, or each side on its own.
#[derive(Clone, Debug)]
pub struct Placement {
    server: Vec<usize>,
    client: Vec<usize>,
    is_apart: bool,
}

impl Placement {
    /// Everybody on all of these processors.
    pub fn together(processors: &[usize]) -> Self {
        Self { server: processors.to_vec(), client: processors.to_vec(), is_apart: false }
    }

    /// Servers on the first half of these, client and backend on the rest. From now on, the calling
    /// thread and what it starts belong to the latter.
    pub fn apart(processors: &[usize]) -> Result<Self, Error> {
        Self::divided(processors, processors.len() / 2)
    }

    /// The same with so many processors for servers.
    pub(crate) fn divided(processors: &[usize], servers: usize) -> Result<Self, Error> {
        if processors.len() < 2 {
            return Err(Error::Unsupported("--apart and storms take two processors".into()));
        }
        let (server, client) = processors.split_at(servers);
        let placement = Self { server: server.to_vec(), client: client.to_vec(), is_apart: true };
        confine(&placement.client)?;
        Ok(placement)
    }

    /// Starts a server where servers belong.
    pub fn start<T>(&self, start: impl FnOnce() -> T) -> Result<T, Error> {
        if !self.is_apart {
            return Ok(start());
        }
        // What is started inherits it.
        confine(&self.server)?;
        let started = start();
        confine(&self.client)?;
        Ok(started)
    }

    /// Processors of the server.
    pub fn server(&self) -> usize {
        self.server.len()
    }

    /// Processors of the client and the backend.
    pub(crate) fn client(&self) -> usize {
        self.client.len()
    }

    /// In words.
    pub fn text(&self) -> String {
        match self.is_apart {
            true => format!(
                "servers on processors {:?}, client and backend on {:?}",
                self.server, self.client
            ),
            false => "client and backend on the same processors".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, process::Command, thread};

    use super::*;

    #[test]
    fn what_a_placement_starts_runs_where_it_says() {
        let processors = sealane_lab_harness::machine::describe().pin_order;
        if processors.len() < 2 {
            return; // There is nothing to divide.
        }
        // A thread of its own, which takes its confinement with it.
        let check = move || {
            let placement = Placement::apart(&processors).unwrap();
            let mut child =
                placement.start(|| Command::new("sleep").arg("10").spawn()).unwrap().unwrap();
            let allowed = |pid: &str| {
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list"));
                line.unwrap().to_owned()
            };
            let (server, client) = (allowed(&child.id().to_string()), allowed("thread-self"));
            child.kill().unwrap();
            child.wait().unwrap();
            assert_ne!(server, client);
            assert_eq!(placement.server() + placement.client(), processors.len());
        };
        thread::spawn(check).join().unwrap();
    }
}
