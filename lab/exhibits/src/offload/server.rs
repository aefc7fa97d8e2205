//! The hidden command `offload-server`: the server that `offload` measures, a process of its own.
//!
//! The server says on its first line where it listens. Each line on its standard input asks for an
//! [`Account`](super::account::Account) of what came since the last one, as a line of JSON. It ends
//! when its standard input does, and at the latest after `--seconds-max`.

use std::{
    io::{self, Write},
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::{credentials::Credentials, descriptors};
use sealane_lab_model::{error::Error, scenario::Key};
use sealane_lab_stacks::{stack::Prepared, stacks};

use crate::offload::{
    Strategy,
    account::Ledger,
    bell::Bell,
    front::{Desk, Executor, Front},
    notice::{CONNECTIONS_MAX, Ways},
    pipe::Carriage,
    task::scenario,
    worker::Worker,
};

/// The arguments of `offload-server`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Where TLS is done, and how bytes get there
    #[arg(long)]
    strategy: Strategy,
    /// Threads for TLS, unless it is done in the loop
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=64))]
    workers: u64,
    /// The folder of certificate and key
    #[arg(long, value_name = "FOLDER")]
    credentials: PathBuf,
    /// The type of that key
    #[arg(long, default_value = "p256")]
    key: Key,
    /// Ends by itself after so many seconds
    #[arg(long, default_value_t = 600)]
    seconds_max: u64,
}

/// Serves until standard input ends.
///
/// # Errors
/// The server cannot start, or standard input lasted too long.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let deadline = Instant::now() + Duration::from_secs(arguments.seconds_max);
    descriptors::allow(CONNECTIONS_MAX as u64)?;
    let stack = stacks::load(STACK)?;
    let credentials = Credentials::at(&arguments.credentials);
    let prepared = stack.prepare(&scenario(arguments.key), &credentials)?;
    let prepared: Arc<dyn Prepared> = Arc::from(prepared);
    let bell = Arc::new(Bell::new().map_err(Error::io("the loop's bell"))?);
    let place = match arguments.strategy {
        Strategy::Inline => Executor::Here(prepared.worker()?),
        Strategy::Queue | Strategy::Ring => {
            let carriage = match arguments.strategy {
                Strategy::Ring => Carriage::rings()?,
                _ => Carriage::Locked,
            };
            let start = |_| begin(carriage, &bell, &prepared);
            Executor::There(carriage, (0..arguments.workers).map(start).collect::<Result<_, _>>()?)
        }
    };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::io("listen"))?;
    let address = listener.local_addr().map_err(Error::io("listen"))?;
    let mut front = Front::new(listener, bell, place)?;
    writeln!(io::stdout(), "{address}").map_err(Error::io("standard output"))?;
    front.serve(deadline)
}

/// Starts a worker and waits until it is ready.
fn begin(
    carriage: Carriage,
    bell: &Arc<Bell>,
    prepared: &Arc<dyn Prepared>,
) -> Result<Desk, Error> {
    let Ways { jobs, inbox, news, news_in } = match carriage {
        Carriage::Locked => Ways::queues(bell),
        Carriage::Rings { .. } => Ways::rings(bell).map_err(Error::io("a worker's bell"))?,
    };
    let ledger = Arc::new(Ledger::default());
    let (prepared, own) = (Arc::clone(prepared), Arc::clone(&ledger));
    let (ready, starts) = mpsc::channel();
    let body = move || {
        // Contexts are made on the thread that uses them.
        let tls = prepared.worker()?;
        let mut worker = Worker::new(tls, inbox, news, own);
        let _ = ready.send(());
        worker.run()
    };
    let builder = thread::Builder::new().name("worker".into());
    let thread = builder.spawn(body).map_err(Error::io("start a worker"))?;
    match starts.recv_timeout(START_TIME_MAX) {
        Ok(()) => Ok(Desk { jobs, news: news_in, ledger, thread }),
        Err(RecvTimeoutError::Timeout) => Err(Error::Check("a worker does not start".into())),
        Err(RecvTimeoutError::Disconnected) => Err(match thread.join() {
            Ok(Err(error)) => error,
            _ => Error::Check("a worker panicked at its start".into()),
        }),
    }
}

/// Sealane's engine, as the terminator runs it.
const STACK: &str = "sealane";
/// Gathering entropy takes its time.
const START_TIME_MAX: Duration = Duration::from_secs(20);
