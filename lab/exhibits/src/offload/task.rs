//! What one trial does: it starts the server as a process of its own, loads it, checks every byte
//! that comes back, and asks the server what it took. [`OffloadTask`].

use std::{
    collections::BTreeMap,
    fs,
    num::NonZeroUsize,
    path::PathBuf,
    sync::{Arc, atomic::AtomicU64},
    thread,
    time::Duration,
};

use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use sealane_lab_harness::{
    credentials::{Credentials, SERVER_NAME, Side},
    interrupt::Interrupt,
    strategies::named,
    trial::{Body, Reply},
};
use sealane_lab_model::{
    error::Error,
    histogram::Times,
    scenario::{Key, Scenario},
};
use sealane_lab_servers::load::{
    Crew, Expect, Load, Offer, Pace, Plan, Request, Roots, Tally, Tls, Until, Work,
};
use serde::{Deserialize, Serialize};

use crate::offload::{
    Strategy,
    account::{Account, Sums},
    running::Running,
};

/// One row of `offload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffloadTask {
    /// Where TLS is done.
    pub strategy: Strategy,
    /// Threads for it.
    pub workers: u64,
    /// What clients do.
    pub traffic: Traffic,
    /// Bytes of each answer.
    pub body_bytes: u64,
    /// Requests under way at any time.
    pub concurrency: usize,
    /// How long they come.
    pub window_ms: u64,
    /// The folder of [`Credentials`], of the key type that the traffic asks for.
    pub credentials: PathBuf,
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffic {
    /// Requests on connections that stand, beside so many full handshakes under way.
    BesideHandshakes(usize),
    /// So many connections, each with a body that comes back as it went.
    Echo(u64),
    /// Requests on connections that stand.
    KeepAlive,
}

impl Traffic {
    /// The names, as they stand in a row's variant.
    pub(super) const BESIDE_HANDSHAKES: &str = "keep-alive beside RSA-4096 handshakes";
    pub(super) const ECHO: &str = "echo";
    pub(super) const KEEP_ALIVE: &str = "keep-alive";

    /// The name, as it stands in a row's variant.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BesideHandshakes(_) => Self::BESIDE_HANDSHAKES,
            Self::Echo(_) => Self::ECHO,
            Self::KeepAlive => Self::KEEP_ALIVE,
        }
    }

    /// The type of the server's key.
    pub(super) fn key(self) -> Key {
        match self {
            Self::BesideHandshakes(_) => Key::Rsa4096,
            Self::Echo(_) | Self::KeepAlive => Key::P256,
        }
    }
}

impl OffloadTask {
    /// A trial that takes longer hangs.
    pub(super) fn time_max(&self) -> Duration {
        let per_connection = match self.traffic {
            Traffic::Echo(connections) => {
                CONNECTION_TIME_MAX * u32::try_from(connections).unwrap_or(0)
            }
            _ => Duration::from_millis(self.window_ms),
        };
        per_connection + TIME_MAX
    }
}

/// What both ends of every connection are to agree on.
pub(super) fn scenario(key: Key) -> Scenario {
    // Tickets would be sends of their own, and nobody resumes.
    Scenario { key, tickets: 0, ..Scenario::default() }
}

impl Body for OffloadTask {
    const NAME: &'static str = "offload";

    fn perform(&self) -> Result<Reply, Error> {
        run(self)
    }
}

/// Runs one trial.
///
/// # Errors
/// Something differs from what was asked for, or the server fails.
fn run(task: &OffloadTask) -> Result<Reply, Error> {
    let mut server = Running::start(task)?;
    let client = Client { task, plan: plan(task, &server)? };
    let outcome = match task.traffic {
        Traffic::BesideHandshakes(in_flight) => client.beside_handshakes(&mut server, in_flight)?,
        Traffic::Echo(connections) => client.echo(&mut server, connections)?,
        Traffic::KeepAlive => client.keep_alive(&mut server)?,
    };
    server.end()?;
    outcome.check(task)?;
    outcome.line()
}

/// What a trial came to.
struct Outcome {
    /// The requests.
    tally: Tally,
    account: Account,
    /// The handshakes beside them: how many, and the server's processor time of one alone.
    handshakes: Option<(Tally, f64)>,
}

/// The load, on threads of this process.
struct Client<'a> {
    task: &'a OffloadTask,
    plan: Plan,
}

impl Client<'_> {
    fn keep_alive(&self, server: &mut Running) -> Result<Outcome, Error> {
        let mut crew = self.establish()?;
        server.account()?;
        let tally = crew.run(&self.requests())?;
        let account = server.account()?;
        crew.close()?;
        Ok(Outcome { tally, account, handshakes: None })
    }

    fn echo(&self, server: &mut Running, connections: u64) -> Result<Outcome, Error> {
        let mut crew = self.crew()?;
        server.account()?;
        let work = Work::Connections(Some(Request::Mirror(self.task.body_bytes)));
        let load = Load { work, until: Until::Count(connections), ..self.requests() };
        let tally = crew.run(&load)?;
        let account = server.account()?;
        let wanted = (connections, connections * self.task.body_bytes, connections);
        if (tally.operations, tally.body_bytes, account.sums.accepted) != wanted {
            let text = format!(
                "{} bodies, {} bytes on {} connections came back, wanted {wanted:?}",
                tally.operations, tally.body_bytes, account.sums.accepted
            );
            return Err(Error::Check(text));
        }
        Ok(Outcome { tally, account, handshakes: None })
    }

    fn beside_handshakes(&self, server: &mut Running, in_flight: usize) -> Result<Outcome, Error> {
        let mut others = self.crew()?;
        let alone = Load {
            work: Work::Connections(None),
            pace: Pace::Closed(1),
            until: Until::Count(HANDSHAKES_ALONE),
        };
        server.account()?;
        others.run(&alone)?;
        let account = server.account()?;
        let handshake_ns = account.sums.cpu_ns() as f64 / HANDSHAKES_ALONE as f64;
        let mut crew = self.establish()?;
        server.account()?;
        let requests = self.requests();
        let stream = Load {
            work: Work::Connections(None),
            pace: Pace::Closed(in_flight),
            ..requests.clone()
        };
        let (tally, handshakes) = thread::scope(|scope| {
            let handshakes = scope.spawn(|| others.run(&stream));
            (crew.run(&requests), handshakes.join())
        });
        let account = server.account()?;
        let ended = |_| Error::Check("a thread of the client panicked".into());
        let handshakes = handshakes.map_err(ended)??;
        let tally = tally?;
        crew.close()?;
        Ok(Outcome { tally, account, handshakes: Some((handshakes, handshake_ns)) })
    }

    /// One thread: it is not the client that is measured.
    fn crew(&self) -> Result<Crew, Error> {
        Crew::new(&self.plan, NonZeroUsize::MIN)
    }

    /// Connections that stand, each with one answer behind it.
    fn establish(&self) -> Result<Crew, Error> {
        let mut crew = self.crew()?;
        let count = self.task.concurrency;
        crew.run(&Load {
            work: Work::Establish(Some(self.request())),
            pace: Pace::Closed(count),
            until: Until::Count(count as u64),
        })?;
        Ok(crew)
    }

    fn request(&self) -> Request {
        Request::Download(self.task.body_bytes)
    }

    fn requests(&self) -> Load {
        Load {
            work: Work::Requests(self.request()),
            pace: Pace::Closed(self.task.concurrency),
            until: Until::Elapsed(Duration::from_millis(self.task.window_ms)),
        }
    }
}

impl Outcome {
    /// Nothing went wrong beside, and the work was done where it was to be done.
    fn check(&self, task: &OffloadTask) -> Result<(), Error> {
        let Sums { broken, wakes, workers_ns, .. } = self.account.sums;
        let failed = |text: String| Err(Error::Check(text));
        if broken > 0 {
            return failed(format!("{broken} connections broke at the server"));
        }
        if self.tally.operations == 0 {
            return failed("no request was answered in the window: give it more time".into());
        }
        if (wakes.events > 0) != (task.strategy != Strategy::Inline) {
            return failed(format!("{} events and {workers_ns} ns of workers", wakes.events));
        }
        Ok(())
    }

    fn line(&self) -> Result<Reply, Error> {
        let Self { tally, account, handshakes } = self;
        let operations = tally.operations as f64;
        let Sums { wakes, broken, loop_ns, workers_ns, .. } = account.sums;
        let mut figures = BTreeMap::new();
        let mut put = |name: &str, value: f64| {
            figures.insert(name.to_owned(), value);
        };
        put("operations", operations);
        put("body_bytes", tally.body_bytes as f64);
        put("broken", broken as f64);
        put("rate", tally.rate());
        for (name, percentile) in [("p50_us", 50.0), ("p99_us", 99.0), ("max_us", 100.0)] {
            put(name, tally.service.percentile_ns(percentile) as f64 / 1e3);
        }
        put("loop_us", loop_ns as f64 / 1e3 / operations);
        put("workers_us", workers_ns as f64 / 1e3 / operations);
        put("cpu_us", account.sums.cpu_ns() as f64 / 1e3 / operations);
        if wakes.events > 0 {
            put("events", wakes.events as f64);
            put("events_per_request", wakes.events as f64 / operations);
            put("calls_per_event", wakes.calls as f64 / wakes.events as f64);
            put("calls_per_batch", wakes.calls as f64 / wakes.batches as f64);
        }
        let (tick, tick_cpu) = (Times::read(&account.tick)?, Times::read(&account.tick_cpu)?);
        put("tick_p99_us", tick.percentile_ns(99.0) as f64 / 1e3);
        put("tick_cpu_p99_us", tick_cpu.percentile_ns(99.0) as f64 / 1e3);
        put("stall_us", tick.percentile_ns(100.0) as f64 / 1e3);
        if let Some((others, alone_ns)) = handshakes {
            put("handshakes", others.operations as f64);
            put("handshake_us", alone_ns / 1e3);
        }
        let times = [
            ("response", tally.service.document()?),
            ("tick", account.tick.clone()),
            ("tick_cpu", account.tick_cpu.clone()),
        ];
        Ok(Reply::Figures { figures, times: named(times) })
    }
}

/// Clients that believe the server's root, and see that they get what was asked for.
fn plan(task: &OffloadTask, server: &Running) -> Result<Plan, Error> {
    let scenario = scenario(task.traffic.key());
    let credentials = Credentials::at(&task.credentials);
    let path = credentials.certificate(Side::Server);
    let pem = fs::read(&path).map_err(Error::file(&path))?;
    let leaf = CertificateDer::from_pem_slice(&pem)
        .map_err(|error| Error::Check(format!("{}: {error}", path.display())))?;
    let name = ServerName::try_from(SERVER_NAME)
        .map_err(|error| Error::Check(format!("{SERVER_NAME}: {error}")))?;
    let offer = Offer {
        version: Some(scenario.version),
        cipher: Some(scenario.cipher),
        group: Some(scenario.group),
        alpn: Vec::new(),
        roots: Roots::read(&credentials.root())?,
        hoards_tickets: false,
    };
    let expect = Expect {
        version: Some(scenario.version),
        group: Some(scenario.group),
        suite: Some(scenario.suite()),
        resumed: Some(false),
        leaf: Some(leaf.into_owned()),
    };
    Ok(Plan {
        address: server.address(),
        host: SERVER_NAME.to_owned(),
        tls: Some(Tls { offer, names: vec![name], resume: 0.0 }),
        expect,
        tolerant: false,
        interrupted: Interrupt::default(),
        seconds_apart: 0,
        progress: Arc::new(AtomicU64::new(0)),
    })
}

/// Handshakes one after the other, by which the time of one is known.
const HANDSHAKES_ALONE: u64 = 8;
const CONNECTION_TIME_MAX: Duration = Duration::from_millis(50);
/// Beside what was asked for: starts, contexts, and a machine under load.
const TIME_MAX: Duration = Duration::from_secs(60);
