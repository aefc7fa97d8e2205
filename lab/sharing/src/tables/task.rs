//! The trial of `tables`, in a process of its own, or in one for each thread: [`TablesTask`].

use std::{
    collections::BTreeMap,
    fs,
    io::{self, ErrorKind},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use sealane_lab_harness::{
    descriptors, processor,
    trial::{Body, Reply, THREADS_MAX, Task, launch},
};
use sealane_lab_model::error::Error;
use serde::{Deserialize, Serialize};

use crate::tables::{CPU_NS, GROWTHS, SHARERS, Strategy, TIME_BESIDE};

/// Threads that change their file table, under one strategy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablesTask {
    /// Whose the table is.
    pub strategy: Strategy,
    /// What threads do.
    pub work: Work,
    /// How many.
    pub threads: usize,
    /// The processor of each thread, in order; empty: not pinned.
    #[serde(default)]
    pub pin: Vec<usize>,
    /// How long.
    pub window_ms: u64,
}

/// One operation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// A socket is made and closed
    Socket,
    /// A connection is made, accepted, and closed at both ends
    Accept,
    /// A descriptor is duplicated and closed: little beside the table
    Duplicate,
    /// Flags of a descriptor are read, twice: no table is written
    Flags,
}

impl Work {
    /// The word on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Accept => "accept",
            Self::Duplicate => "duplicate",
            Self::Flags => "flags",
        }
    }
}

impl Body for TablesTask {
    const NAME: &'static str = "tables";

    fn perform(&self) -> Result<Reply, Error> {
        run(self)
    }
}

/// Does the task; the line is its result.
///
/// # Errors
/// The first thread's that failed.
fn run(task: &TablesTask) -> Result<Reply, Error> {
    if task.threads == 0 || task.threads > THREADS_MAX {
        return Err(Error::Unsupported(format!("1 to {THREADS_MAX} threads")));
    }
    if task.strategy == Strategy::Process {
        return processes(task);
    }
    descriptors::allow(2 * HELD * task.threads as u64)?;
    let start = Barrier::new(task.threads);
    let one = |number| processor::pin(&task.pin, number).and_then(|()| thread_of(task, &start));
    let one = &one;
    let done: Vec<Result<Done, Error>> = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..task.threads).map(|number| scope.spawn(move || one(number))).collect();
        let panicked = || Err(Error::Check("a thread of the trial panicked".into()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let done: Vec<Done> = done.into_iter().collect::<Result<_, _>>()?;
    let sharers = done.iter().map(|one| one.sharers).max().unwrap_or(0);
    // Of one table, all its threads see the same growths.
    let growths = match sharers {
        0 | 1 => 0,
        _ => done.iter().map(|one| one.growths).max().unwrap_or(0),
    };
    let seconds = task.window_ms as f64 / 1e3;
    let operations: u64 = done.iter().map(|one| one.operations).sum();
    let cpu_ns: u64 = done.iter().map(|one| one.cpu_ns).sum();
    Ok(line([
        ("operations_per_s", operations as f64 / seconds / task.threads as f64),
        (CPU_NS, cpu_ns as f64 / operations.max(1) as f64),
        (SHARERS, sharers as f64),
        (GROWTHS, growths as f64),
    ]))
}

fn line(figures: [(&str, f64); 4]) -> Reply {
    let figures = figures.map(|(name, figure)| (name.to_owned(), figure));
    Reply::Figures { figures: figures.into(), times: BTreeMap::new() }
}

/// The same in so many processes of one thread each, at the same time: means of their figures.
fn processes(task: &TablesTask) -> Result<Reply, Error> {
    let each = (0..task.threads).map(|number| {
        let pin = task.pin.get(number).copied().into_iter().collect();
        let strategy = Strategy::ThreadTable;
        Task::new(&TablesTask { strategy, threads: 1, pin, ..task.clone() })
    });
    let each: Vec<Task> = each.collect::<Result<_, _>>()?;
    let time_max = Duration::from_millis(task.window_ms) + TIME_BESIDE;
    let lines: Vec<Result<Reply, Error>> = thread::scope(|scope| {
        let threads: Vec<_> =
            each.iter().map(|task| scope.spawn(move || launch::run(task, time_max))).collect();
        let panicked = || Err(Error::Check("a thread of the trial panicked".into()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut sharers: f64 = 0.0;
    for line in lines {
        let Reply::Figures { figures, .. } = line? else {
            return Err(Error::Check("a process of the trial told no figures".into()));
        };
        sharers = sharers.max(figures.get(SHARERS).copied().unwrap_or_default());
        for (name, figure) in figures {
            *sums.entry(name).or_default() += figure;
        }
    }
    sums.values_mut().for_each(|sum| *sum /= task.threads as f64);
    sums.insert(SHARERS.into(), sharers);
    Ok(Reply::Figures { figures: sums, times: BTreeMap::new() })
}

/// What one thread did.
struct Done {
    operations: u64,
    cpu_ns: u64,
    /// Threads of the trial that have its table.
    sharers: usize,
    /// Times that its table has grown meanwhile.
    growths: u64,
}

fn thread_of(task: &TablesTask, start: &Barrier) -> Result<Done, Error> {
    // Nothing that may fail stands between two meetings: others would wait for ever.
    let own = match task.strategy {
        Strategy::OwnTable => sealane_file_table::own_copy(),
        Strategy::Process | Strategy::ThreadTable => Ok(()),
    };
    let mut workplace = Workplace::new(task.work);
    start.wait();
    let (begun, cpu) = (Instant::now(), processor::thread_cpu_ns());
    let window = Duration::from_millis(task.window_ms);
    let mut operations = 0;
    let mut failure = None;
    while begun.elapsed() < window && failure.is_none() {
        match workplace.as_mut().map(Workplace::operate) {
            Ok(Ok(())) => operations += 1,
            Ok(Err(error)) => failure = Some(error),
            Err(_) => break,
        }
    }
    let cpu_ns = processor::thread_cpu_ns() - cpu;
    let sharers = sharers();
    start.wait();
    let before = table_size();
    start.wait();
    let held: Result<Vec<UdpSocket>, io::Error> = (0..HELD).map(|_| socket()).collect();
    start.wait();
    let after = table_size();
    start.wait();
    own.map_err(Error::io("have a file table of the thread's own (Linux 5.9)"))?;
    workplace.map_err(Error::io("listen"))?;
    held.map_err(Error::io("open sockets that stay"))?;
    failure.map_or(Ok(()), |error| Err(Error::io("work")(error)))?;
    let growths = u64::from(after?.max(1).ilog2().saturating_sub(before?.max(1).ilog2()));
    Ok(Done { operations, cpu_ns, sharers: sharers?, growths })
}

/// Where a thread works.
enum Workplace {
    Duplicating(UdpSocket),
    Listening(TcpListener, SocketAddr),
    Looking(UdpSocket),
    Nowhere,
}

impl Workplace {
    fn new(work: Work) -> io::Result<Self> {
        match work {
            Work::Socket => Ok(Self::Nowhere),
            Work::Duplicate => socket().map(Self::Duplicating),
            Work::Flags => socket().map(Self::Looking),
            Work::Accept => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                let address = listener.local_addr()?;
                Ok(Self::Listening(listener, address))
            }
        }
    }

    fn operate(&mut self) -> io::Result<()> {
        match self {
            Self::Nowhere => socket().map(drop),
            Self::Duplicating(socket) => Ok(rustix::io::fcntl_dupfd_cloexec(socket, 0).map(drop)?),
            Self::Looking(socket) => {
                rustix::io::fcntl_getfd(&*socket)?;
                Ok(rustix::io::fcntl_getfd(socket).map(drop)?)
            }
            Self::Listening(listener, address) => {
                let client = match TcpStream::connect(*address) {
                    // Ports are short where many connections are closed from this side.
                    Err(error) if error.kind() == ErrorKind::AddrNotAvailable => return Ok(()),
                    client => client?,
                };
                // Without it every connection would keep its port for a minute.
                rustix::net::sockopt::set_socket_linger(&client, Some(Duration::ZERO))?;
                let (server, _) = listener.accept()?;
                drop(client);
                drop(server);
                Ok(())
            }
        }
    }
}

/// Any socket; UDP's costs least beside the table.
fn socket() -> io::Result<UdpSocket> {
    let kind = rustix::net::SocketType::DGRAM;
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, kind, None)?;
    Ok(UdpSocket::from(socket))
}

/// Threads of this process that have the caller's table.
fn sharers() -> Result<usize, Error> {
    let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let tasks = fs::read_dir("/proc/self/task").map_err(Error::io("list threads"))?;
    let tasks = tasks.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // The one that waits for the others is no thread of the trial.
    let others = tasks.filter(|thread| *thread != own && *thread != std::process::id());
    let mut sharers = 1;
    for thread in others {
        match sealane_file_table::same_table(own, thread) {
            Ok(same) => sharers += usize::from(same),
            Err(error) => return Err(Error::io("ask by kcmp(2) who shares a table")(error)),
        }
    }
    Ok(sharers)
}

/// For how many descriptors this thread's table has room.
fn table_size() -> Result<u64, Error> {
    let path = "/proc/thread-self/status";
    let text = fs::read_to_string(path).map_err(Error::file(path))?;
    let size = text.lines().find_map(|line| line.strip_prefix("FDSize:")?.trim().parse().ok());
    size.ok_or_else(|| Error::Check(format!("{path} has no FDSize")))
}

/// Sockets of each thread that stay, so that its table grows.
pub(super) const HELD: u64 = 600;
