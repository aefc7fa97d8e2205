//! The server as the trial has it: a child process that gives accounts, [`Running`].

use std::{
    env,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use sealane_lab_harness::{child::Child, strategies::word};
use sealane_lab_model::error::Error;

use crate::offload::{account::Account, task::OffloadTask};

/// A server that ends with this, whatever happens; with the trial's process too, because its input
/// does.
pub(super) struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Running {
    /// Starts the server and waits until it listens. The lab ends a trial that waits too long.
    ///
    /// # Errors
    /// The server does not start.
    pub(super) fn start(task: &OffloadTask) -> Result<Self, Error> {
        let program = env::current_exe().map_err(Error::io("find the lab's own binary"))?;
        let mut command = Command::new(program);
        command.arg("offload-server").arg("--credentials").arg(&task.credentials);
        command.arg(format!("--strategy={}", word(&task.strategy)));
        command.arg(format!("--key={}", word(&task.traffic.key())));
        command.arg(format!("--workers={}", task.workers.max(1)));
        command.arg(format!("--seconds-max={}", task.time_max().as_secs()));
        // What it has to say of its failure is the trial's last word.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Child::start(&mut command)?;
        let input = child.take_input();
        let output = child.take_output().ok_or_else(|| silent("it has no output"))?;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut running = Self { child, input, output: BufReader::new(output), address };
        let line = running.line()?;
        running.address = line.trim().parse().map_err(|_| silent(&line))?;
        Ok(running)
    }

    /// Where it listens.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What came since the account before.
    ///
    /// # Errors
    /// The server is gone.
    pub(super) fn account(&mut self) -> Result<Account, Error> {
        let input = self.input.as_mut().ok_or_else(|| silent("it was ended"))?;
        input.write_all(b"account\n").map_err(Error::io("ask the server"))?;
        let line = self.line()?;
        serde_json::from_str(&line).map_err(|_| silent(&line))
    }

    /// Ends it in order.
    ///
    /// # Errors
    /// The server did not end well.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        self.input = None;
        match self.child.wait(END_TIME_MAX) {
            None => Err(silent("it did not end")),
            Some(status) if !status.success() => Err(silent(&format!("it ended with {status}"))),
            Some(_) => Ok(()),
        }
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(Error::io("hear the server"))?;
        Ok(line)
    }
}

fn silent(said: &str) -> Error {
    Error::Check(format!("the server gives no account: {said:?}"))
}

/// For the workers to finish what they have.
const END_TIME_MAX: Duration = Duration::from_secs(60);
