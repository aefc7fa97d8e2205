//! What one trial does: it starts the server, loads it, checks every answer, and tells what the
//! server took, by kind of thread. [`NodeTask`].

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
    descriptors,
    interrupt::Interrupt,
    process::Kind,
    trial::{Body, Reply},
};
use sealane_lab_model::error::Error;
use serde::{Deserialize, Serialize};

use crate::{
    load::{Crew, Expect, Load, Offer, Pace, Plan, Request, Roots, Tally, Tls, Until, Work},
    node::{
        Case, Mode,
        case::{self, Amount},
        h2, processors,
        running::{Running, scenario},
    },
};

/// One row of `node`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTask {
    /// Who does TLS.
    pub mode: Mode,
    /// What clients do.
    pub case: Case,
    /// How many bytes, and how much at a time.
    pub load: case::Load,
    /// For how long.
    pub amount: Amount,
    /// Node itself.
    pub node: PathBuf,
    /// The folder of the package.
    pub package: PathBuf,
    /// That serve.
    pub processes: u16,
    /// The lanes of each process of sealane.
    pub lanes: u16,
    /// The folder of the server's script and its bodies.
    pub files: PathBuf,
    /// The folder of [`Credentials`], of the key type that the case asks for.
    pub credentials: PathBuf,
}

impl NodeTask {
    /// The most that stand at a time.
    pub(super) fn connections_max(&self) -> u64 {
        self.load.concurrency as u64 + OPEN_CONNECTIONS_MAX as u64
    }
}

impl Body for NodeTask {
    const NAME: &'static str = "node";

    fn perform(&self) -> Result<Reply, Error> {
        run(self)
    }
}

/// Runs one trial.
///
/// # Errors
/// Something differs from what was asked for, or the server fails.
fn run(task: &NodeTask) -> Result<Reply, Error> {
    descriptors::allow(2 * task.connections_max())?;
    let folder = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let server = Running::start(task, folder.path())?;
    let mut trial = Trial { task, plan: plan(task, &server)?, server, figures: BTreeMap::new() };
    let mut times = BTreeMap::new();
    match task.case {
        Case::Full | Case::FullRsa | Case::Sweep => trial.full()?,
        Case::Resumed | Case::ResumedRsa => trial.resumed()?,
        Case::KeepAlive | Case::KeepAliveSweep => trial.keep_alive()?,
        Case::Idle => trial.idle()?,
        Case::Blocked => {
            let tally = trial.blocked()?;
            times.insert("handshake".to_owned(), tally.handshake.document()?);
        }
        Case::H2 => trial.h2()?,
    }
    if !trial.server.process.runs() {
        let log = trial.server.process.last_words();
        return Err(Error::Check(format!("the server ended under load: {log}")));
    }
    Ok(Reply::Figures { figures: trial.figures, times })
}

struct Trial<'a> {
    task: &'a NodeTask,
    plan: Plan,
    server: Running,
    figures: BTreeMap<String, f64>,
}

impl Trial<'_> {
    fn full(&mut self) -> Result<(), Error> {
        let mut crew = self.crew()?;
        let connections = Work::Connections(Some(self.request()));
        crew.run(&self.closed(connections.clone(), self.warm_up()))?;
        self.measured(&mut crew, &self.closed(connections, self.window())).map(drop)
    }

    /// A fixed number: node gives no ticket to a connection that resumed, so that each has one of
    /// those that full handshakes brought before.
    fn resumed(&mut self) -> Result<(), Error> {
        let mut crew = self.crew()?;
        let connections = Work::Connections(Some(self.request()));
        let count = (self.task.amount.window_ms * RESUMPTIONS_PER_MS).min(RESUMPTIONS_MAX);
        let load = self.closed(connections, Until::Count(count));
        let wanted = self.plan.expect.clone();
        crew.change(&Expect { resumed: Some(false), ..wanted.clone() }, 0.0);
        crew.run(&load)?;
        crew.change(&wanted, 1.0);
        self.measured(&mut crew, &load).map(drop)
    }

    fn keep_alive(&mut self) -> Result<(), Error> {
        let mut crew = self.crew()?;
        let count = self.task.load.concurrency as u64;
        crew.run(&self.closed(Work::Establish(Some(self.request())), Until::Count(count)))?;
        let requests = Work::Requests(self.request());
        crew.run(&self.closed(requests.clone(), self.warm_up()))?;
        self.measured(&mut crew, &self.closed(requests, self.window()))?;
        crew.close()
    }

    /// The proportional set size with the connections and without, garbage collected.
    fn idle(&mut self) -> Result<(), Error> {
        let mut crew = self.crew()?;
        let work = Work::Connections(Some(self.request()));
        crew.run(&load(work, IDLE_AT_ONCE, Until::Count(IDLE_WARM_UP)))?;
        let before = self.memory()?;
        let count = self.task.load.concurrency as u64;
        let work = Work::Establish(Some(self.request()));
        let tally = crew.run(&load(work, IDLE_AT_ONCE, Until::Count(count)))?;
        let after = self.memory()?;
        let each = (after as f64 - before as f64) / count as f64;
        self.check(&tally)?;
        if tally.operations != count {
            let stand = tally.operations;
            return Err(Error::Check(format!("{stand} connections stand, wanted {count}")));
        }
        // All of them stand still: a second answer comes on each.
        let second = Work::Requests(self.request());
        crew.run(&load(second, IDLE_AT_ONCE, Until::Count(count)))?;
        self.put("memory_kb", each / 1e3);
        self.put("operations", count as f64);
        crew.close()
    }

    fn blocked(&mut self) -> Result<Tally, Error> {
        let mut crew = self.crew()?;
        let rate = self.task.load.concurrency as f64;
        let load = |until| {
            let work = Work::Connections(Some(self.request()));
            Load::open(work, rate, OPEN_CONNECTIONS_MAX, until)
        };
        let (warm_up, window) = (load(self.warm_up()), load(self.window()));
        crew.run(&warm_up)?;
        let tally = crew.run(&window)?;
        self.check(&tally)?;
        settle();
        self.check_resumed(&tally)?;
        for (name, percentile) in [("handshake_p50_ms", 50.0), ("handshake_p95_ms", 95.0)] {
            self.put(name, tally.handshake.percentile_ns(percentile) as f64 / 1e6);
        }
        self.put("operations", tally.operations as f64);
        Ok(tally)
    }

    fn h2(&mut self) -> Result<(), Error> {
        let client = h2::Client {
            address: self.server.address,
            suite: scenario(self.task.case).suite(),
            body_bytes: self.task.load.body_bytes,
            connections: self.task.load.concurrency,
        };
        let requests = self.task.amount.window_ms * H2_REQUESTS_PER_MS;
        client.run(requests / 2)?;
        settle();
        let before = self.server.process.cpu()?;
        let rate = client.run(requests)?;
        settle();
        let after = self.server.process.cpu()?;
        self.put("rate", rate);
        self.put_cpu(requests, [&before, &after]);
        Ok(())
    }

    /// Runs the load between two readings of the server's processor time.
    fn measured(&mut self, crew: &mut Crew, load: &Load) -> Result<Tally, Error> {
        settle();
        let before = self.server.process.cpu()?;
        let tally = crew.run(load)?;
        settle();
        let after = self.server.process.cpu()?;
        self.check(&tally)?;
        self.check_resumed(&tally)?;
        self.put("rate", tally.rate());
        for (name, percentile) in [("p50_ms", 50.0), ("p95_ms", 95.0)] {
            self.put(name, tally.service.percentile_ns(percentile) as f64 / 1e6);
        }
        self.put("client_percent", 100.0 * tally.client_busy(processors()));
        self.put_cpu(tally.operations, [&before, &after]);
        Ok(tally)
    }

    fn put_cpu(
        &mut self,
        operations: u64,
        [before, after]: [&sealane_lab_harness::process::Cpu; 2],
    ) {
        let each_us = |ns: u64| ns as f64 / 1e3 / operations.max(1) as f64;
        let all = after.since(before);
        let [main, lanes] = [Kind::Main, Kind::Lane].map(|kind| after.of_kind(kind, before));
        self.put("cpu_us", each_us(all));
        self.put("main_us", each_us(main));
        if self.task.mode.is_sealane() {
            self.put("lanes_us", each_us(lanes));
        }
        self.put("other_us", each_us(all.saturating_sub(main + lanes)));
        self.put("operations", operations as f64);
    }

    /// The client found each answer and each handshake to be what was asked for, or there would be
    /// no tally; here, that none is missing.
    fn check(&self, tally: &Tally) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Check(text));
        let Tally { operations, body_bytes, .. } = tally;
        if *operations == 0 {
            return wrong("no request was answered in the window: give it more time".into());
        }
        let wanted = operations * self.task.load.body_bytes;
        if *body_bytes != wanted || tally.failed() > 0 {
            let failed = tally.failed();
            return wrong(format!("{body_bytes} bytes came, wanted {wanted}; {failed} failed"));
        }
        let handshakes: u64 = tally.negotiations.values().sum();
        let is_one_each = !matches!(self.task.case, Case::KeepAlive | Case::KeepAliveSweep);
        if self.plan.tls.is_some() && is_one_each && handshakes != *operations {
            return wrong(format!("{handshakes} handshakes for {operations} answers"));
        }
        if tally.negotiations.len() > 1 {
            let agreed: Vec<_> = tally.negotiations.keys().map(ToString::to_string).collect();
            return wrong(format!("handshakes agreed on different things: {agreed:?}"));
        }
        Ok(())
    }

    /// Both sides must count as many resumed sessions: none in full handshakes. The warm-up of a
    /// server resumes none.
    fn check_resumed(&mut self, tally: &Tally) -> Result<(), Error> {
        let resumed = tally.negotiations.iter().filter(|(negotiation, _)| negotiation.resumed);
        let by_client: u64 = resumed.map(|(_, count)| count).sum();
        self.put("resumed", by_client as f64);
        match self.server.resumed()? {
            Some(by_server) if by_server != by_client => Err(Error::Check(format!(
                "the server resumed {by_server} sessions, and the client {by_client}"
            ))),
            _ => Ok(()),
        }
    }

    fn memory(&mut self) -> Result<u64, Error> {
        settle();
        self.server.collect()?;
        settle();
        self.server.process.pss_bytes()
    }

    fn put(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }

    fn crew(&self) -> Result<Crew, Error> {
        Crew::new(&self.plan, NonZeroUsize::new(processors()).unwrap_or(NonZeroUsize::MIN))
    }

    fn request(&self) -> Request {
        Request::Download(self.task.load.body_bytes)
    }

    fn closed(&self, work: Work, until: Until) -> Load {
        load(work, self.task.load.concurrency, until)
    }

    fn warm_up(&self) -> Until {
        Until::Elapsed(self.task.amount.warm_up())
    }

    fn window(&self) -> Until {
        Until::Elapsed(self.task.amount.window())
    }
}

/// Clients that offer one version, suite and group, and see that they get them, and the server's
/// certificate byte for byte: whom it chains up to tells nothing more, and would cost the client.
fn plan(task: &NodeTask, server: &Running) -> Result<Plan, Error> {
    let scenario = scenario(task.case);
    let path = Credentials::at(&task.credentials).certificate(Side::Server);
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
        roots: Roots::Anyone,
        hoards_tickets: task.case.resumes(),
    };
    let expect = Expect {
        version: Some(scenario.version),
        group: Some(scenario.group),
        suite: Some(scenario.suite()),
        resumed: Some(task.case.resumes()),
        leaf: Some(leaf.into_owned()),
    };
    let tls = Tls { offer, names: vec![name], resume: 0.0 };
    Ok(Plan {
        address: server.address,
        host: SERVER_NAME.to_owned(),
        tls: (task.mode != Mode::Http).then_some(tls),
        expect,
        tolerant: false,
        interrupted: Interrupt::default(),
        seconds_apart: 0,
        progress: Arc::new(AtomicU64::new(0)),
    })
}

fn load(work: Work, in_flight: usize, until: Until) -> Load {
    Load { work, pace: Pace::Closed(in_flight), until }
}

/// Lets the server finish what the last connections left it to do.
fn settle() {
    thread::sleep(SETTLE);
}

const SETTLE: Duration = Duration::from_millis(150);
const OPEN_CONNECTIONS_MAX: usize = 1_000;
/// Handshakes under way while connections are made that stay.
const IDLE_AT_ONCE: usize = 32;
const IDLE_WARM_UP: u64 = 200;
/// About as many as node's https does.
const RESUMPTIONS_PER_MS: u64 = 2;
/// What a thread of the client keeps of tickets, less those that are under way.
const RESUMPTIONS_MAX: u64 = 3_000;
/// About as many as the fastest answers.
const H2_REQUESTS_PER_MS: u64 = 20;
