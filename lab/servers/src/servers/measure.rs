//! One server in one case: a [`Sample`] for each of its columns.

use std::{
    num::NonZeroUsize,
    sync::{Arc, atomic::AtomicU64},
    thread,
    time::Duration,
};

use rustls::pki_types::{CertificateDer, ServerName};
use sealane_lab_harness::{
    credentials::SERVER_NAME, interrupt::Interrupt, machine::Steal, process::Process,
};
use sealane_lab_model::{
    document::{Bottleneck, Histogram, NoVerdict},
    error::Error,
    figures::servers::percentile_ns,
    scenario::Cipher,
};
use serde::{Deserialize, Serialize};

use crate::{
    load::{Crew, Expect, Load, Offer, Pace, Plan, Request, Roots, Tally, Tls, Until, Work},
    servers::{
        case::{Amount, Case, Level, Profile},
        placement::Placement,
        running::Running,
    },
};

/// One figure of one round, with what it depends on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// `None` if the server does not offer what the case asks.
    pub(crate) figure: Option<f64>,
    /// Operations per second.
    pub(crate) rate: Option<f64>,
    pub(crate) latency: Option<Histogram>,
    /// From the actual start, where the latency counts from the intended one.
    pub(crate) service: Option<Histogram>,
    pub(crate) client_busy: Option<f64>,
    pub(crate) server_busy: Option<f64>,
    pub(crate) worker_cpu_ns: Vec<u64>,
    /// Why rate and latency say nothing about the server.
    pub(crate) bound: Option<NoVerdict>,
    /// Percent of the processors that the hypervisor took meanwhile.
    pub(crate) stolen_percent: f64,
    /// Why there is no figure: the server does not offer what the case asks.
    pub(crate) not_offered: Option<String>,
    /// Why there is no figure: the load was another than the column says.
    pub(crate) refused: Option<String>,
    /// What else is worth telling.
    pub note: Option<String>,
}

/// What all measurements have in common.
#[derive(Clone)]
pub struct Bench {
    /// How much is asked.
    pub amount: Amount,
    /// Those asked for.
    pub levels: Vec<Level>,
    /// Workers, threads or lanes of each server.
    pub workers: usize,
    /// Which processors are whose.
    pub placement: Placement,
    /// Threads of the load.
    pub client_threads: NonZeroUsize,
    /// Whose certificates clients believe.
    pub roots: Roots,
    /// The certificate that servers must show.
    pub leaf: Option<CertificateDer<'static>>,
    /// What servers offer.
    pub profile: Profile,
    /// Whether they speak TLS at all.
    pub has_tls: bool,
    /// Ctrl-C, which ends the measurement.
    pub interrupted: Interrupt,
}

impl Bench {
    /// Some full handshakes with a request each: the server has started when they succeed, and has
    /// done once whatever it does once.
    pub fn warm_up(&self, server: &Running) -> Result<(), Error> {
        let mut crew = self.crew(server, false)?;
        crew.run(&connections(4, self.amount.warm_up)).map(drop)
    }

    /// The samples of a case that one load can measure, in the order of its columns.
    pub fn measure(&self, case: Case, server: &Running) -> Result<Vec<Sample>, Error> {
        let amount = &self.amount;
        let levels = case.levels(&self.levels);
        match case {
            Case::Full | Case::FullRsa | Case::FullMlkem | Case::FullTls12 | Case::Resumed => {
                self.handshakes(server, case == Case::Resumed && self.has_tls, &levels)
            }
            Case::KeepAlive3k => {
                let count = (amount.requests_3k, amount.keep_alive_connections);
                self.requests(server, Request::Download(ANSWER_3K_BYTES), count, &levels)
            }
            Case::KeepAlive100k => {
                let count = (amount.requests_100k, amount.keep_alive_connections);
                self.requests(server, Request::Download(ANSWER_100K_BYTES), count, &levels)
            }
            Case::Down | Case::Up => {
                let bytes = amount.transfer_bytes;
                let request = if case == Case::Up {
                    Request::Upload(bytes)
                } else {
                    Request::Download(bytes)
                };
                let count = (amount.transfers, amount.transfer_connections);
                let mut samples = self.requests(server, request, count, &levels)?;
                for sample in &mut samples {
                    // Microseconds per transfer to seconds per 10^9 bytes.
                    let per_gb = 1e3 / bytes as f64;
                    sample.figure = sample.figure.map(|figure| figure * per_gb);
                    (sample.rate, sample.latency) = (None, None);
                }
                Ok(samples)
            }
            Case::Idle => self.idle(server).map(|sample| vec![sample]),
            Case::Names | Case::Storm | Case::StormEcdsa => {
                Err(Error::Unsupported(format!("{case:?} is measured on its own")))
            }
        }
    }

    fn handshakes(
        &self,
        server: &Running,
        resumed: bool,
        levels: &[Level],
    ) -> Result<Vec<Sample>, Error> {
        let mut crew = self.crew(server, resumed)?;
        let at_once = self.amount.handshakes_at_once;
        let mut at_once_max = OPEN_CONNECTIONS_MAX;
        if resumed {
            // Brings the first tickets, more than will be under way at once.
            // A late one of them may find the ticket of an early one.
            let first = Expect { resumed: None, ..self.expect(false) };
            crew.change(&first, 1.0);
            crew.run(&connections(at_once * 2, at_once as u64 * 2))?;
            crew.change(&self.expect(true), 1.0);
            // Some servers give one ticket for one: there are no more than those.
            at_once_max = at_once;
        }
        let closed = connections(at_once, self.amount.handshakes);
        self.at_levels(server, &mut crew, (&closed, at_once_max), levels)
    }

    /// So many requests, on so many connections.
    fn requests(
        &self,
        server: &Running,
        request: Request,
        (count, at_once): (u64, usize),
        levels: &[Level],
    ) -> Result<Vec<Sample>, Error> {
        let mut crew = self.crew(server, false)?;
        let first = Work::Establish(Some(Request::Echo));
        crew.run(&Load::closed(first, at_once, Until::Count(at_once as u64)))?;
        let closed = Load::closed(Work::Requests(request), at_once, Until::Count(count));
        let samples = self.at_levels(server, &mut crew, (&closed, at_once), levels)?;
        crew.close()?;
        Ok(samples)
    }

    /// The closed loop, and after it the same work in open ones, by what it brought, with at most
    /// so many operations under way.
    fn at_levels(
        &self,
        server: &Running,
        crew: &mut Crew,
        (closed, at_once_max): (&Load, usize),
        levels: &[Level],
    ) -> Result<Vec<Sample>, Error> {
        let full = self.measured(server, crew, closed)?;
        let mut samples = Vec::new();
        for level in levels {
            let Some(rate) = level.rate(full.rate.unwrap_or_default()) else {
                samples.push(full.clone());
                continue;
            };
            let until = Until::Elapsed(Duration::from_secs_f64(self.amount.open_seconds));
            let load = Load::open(closed.work.clone(), rate, at_once_max, until);
            let mut cost = self.measured(server, crew, &load)?;
            // A share of what was disturbed is a share of something else.
            cost.stolen_percent = cost.stolen_percent.max(full.stolen_percent);
            cost.note = Some(format!("{rate:.0} per second were due"));
            let latency = slowest(&cost);
            samples.extend([cost, latency]);
        }
        Ok(samples)
    }

    fn idle(&self, server: &Running) -> Result<Sample, Error> {
        let (count, at_once) = (self.amount.idle_connections, self.amount.handshakes_at_once);
        let mut crew = self.crew(server, false)?;
        let before = self.memory(&server.process)?;
        let work = Work::Establish(Some(Request::Echo));
        crew.run(&Load::closed(work, at_once, Until::Count(count)))?;
        let after = self.memory(&server.process)?;
        let each_kib = (after as f64 - before as f64) / 1024.0 / count as f64;
        Ok(Sample { figure: Some(each_kib), ..Sample::default() })
    }

    /// Runs the load between two readings of everybody's processor time. The figure is in
    /// microseconds of the server's per operation.
    pub(crate) fn measured(
        &self,
        server: &Running,
        crew: &mut Crew,
        load: &Load,
    ) -> Result<Sample, Error> {
        self.settle();
        let steal_before = Steal::so_far();
        let cpu_before = server.process.cpu()?;
        let tally = crew.run(load)?;
        self.settle();
        let cpu_after = server.process.cpu()?;
        let stolen_percent = Steal::percent(steal_before, Steal::so_far());
        let server_ns = cpu_after.since(&cpu_before);
        let figure = server_ns as f64 / 1e3 / tally.operations.max(1) as f64;
        let (bound, missed) = (self.bound(load, &tally, server_ns), missed(load, &tally));
        let refused = missed.map(|missed| match &bound {
            Some(bound) => format!("the client fell behind its schedule: {missed}; {bound}"),
            None => format!("the server did not keep up with the schedule: {missed}"),
        });
        let latency = tally.intended.document()?;
        let service = tally.service.document()?;
        Ok(Sample {
            figure: Some(figure).filter(|_| refused.is_none()),
            rate: Some(tally.rate()),
            service: (latency != service).then_some(service),
            latency: Some(latency),
            client_busy: Some(tally.client_busy(self.placement.client())),
            server_busy: Some(self.server_busy(&tally, server_ns)),
            worker_cpu_ns: cpu_after.by_thread(&cpu_before),
            bound,
            refused,
            stolen_percent,
            ..Sample::default()
        })
    }

    /// Whether something else than the server set rate and latency. Three rules, on the time from
    /// the first start to the last end:
    ///
    /// 1. The client's threads ran for more than 90% of the time of the processors that they can
    ///    fill: they were the limit, in a closed loop and in an open one.
    /// 2. In a closed loop the rate is a capacity only if the server was at its limit: if it used
    ///    less than 90% of the processors that its workers can fill, then client, backend or others
    ///    took them, or too little was asked of it.
    /// 3. In an open loop the client's threads waited for more than 10% of the time for a processor
    ///    that the server, the backend or others had: what latency counts is their turn too.
    ///
    /// CPU per operation is not touched by any of them. In an open loop it is refused by a fourth
    /// rule, [`missed`], because then it is that of another load.
    fn bound(&self, load: &Load, tally: &Tally, server_ns: u64) -> Option<NoVerdict> {
        let bound = |by, shown: String| Some(NoVerdict::new(by, &shown));
        let client = tally.client_busy(self.placement.client());
        if client > BUSY_MAX {
            let shown = format!("its threads ran {:.0}% of the time", client * 1e2);
            return bound(Bottleneck::Client, shown);
        }
        let waited = tally.client_waited();
        if matches!(load.pace, Pace::Open { .. }) && waited > WAITED_MAX {
            let waited = waited * 1e2;
            let shown = format!("its threads waited {waited:.0}% of the time for a processor");
            return bound(Bottleneck::Client, shown);
        }
        let server = self.server_busy(tally, server_ns);
        if !matches!(load.pace, Pace::Closed(_)) || server >= BUSY_MAX {
            return None;
        }
        let (server, client) = (server * 1e2, client * 1e2);
        let shown = format!("it ran {server:.0}% of the time, client {client:.0}%");
        bound(Bottleneck::Elsewhere, shown)
    }

    /// Share of the processors that its workers can fill, 0 to 1.
    fn server_busy(&self, tally: &Tally, server_ns: u64) -> f64 {
        let workers = self.workers.min(self.placement.server()) as f64;
        let wall_ns = tally.elapsed.as_nanos() as f64;
        server_ns as f64 / (wall_ns * workers).max(1.0)
    }

    fn crew(&self, server: &Running, resumed: bool) -> Result<Crew, Error> {
        Crew::new(&self.plan(server, resumed)?, self.client_threads)
    }

    /// For the names to ask for there is `names.rs`; here it is always the same.
    pub fn plan(&self, server: &Running, resumed: bool) -> Result<Plan, Error> {
        let name = ServerName::try_from(SERVER_NAME)
            .map_err(|error| Error::Check(format!("server name: {error}")))?;
        let Profile { version, group, .. } = self.profile;
        let offer = Offer {
            version: Some(version),
            cipher: Some(Cipher::Aes128Gcm),
            group: Some(group),
            alpn: Vec::new(),
            roots: self.roots.clone(),
            hoards_tickets: false,
        };
        let resume = if resumed { 1.0 } else { 0.0 };
        Ok(Plan {
            address: server.address,
            host: SERVER_NAME.into(),
            tls: self.has_tls.then(|| Tls { offer, names: vec![name], resume }),
            expect: self.expect(resumed),
            tolerant: false,
            interrupted: self.interrupted.clone(),
            seconds_apart: 0,
            progress: Arc::new(AtomicU64::new(0)),
        })
    }

    /// The proportional set size after the server had time to settle.
    pub fn memory(&self, process: &Process) -> Result<u64, Error> {
        self.settle();
        process.pss_bytes()
    }

    /// Lets the server finish what the last connections left it to do.
    pub(crate) fn settle(&self) {
        thread::sleep(Duration::from_millis(self.amount.settle_ms));
    }

    fn expect(&self, resumed: bool) -> Expect {
        Expect {
            version: Some(self.profile.version),
            group: Some(self.profile.group),
            suite: Some(self.profile.suite()),
            resumed: Some(resumed),
            leaf: self.leaf.clone(),
        }
    }
}

/// Whether an open loop was another load than it was to be: its last operation began so late that
/// the schedule took more than 5% longer than it should have. Whoever was slow, fewer operations
/// per second were asked of the server than the column says.
fn missed(load: &Load, tally: &Tally) -> Option<String> {
    let Pace::Open { .. } = load.pace else { return None };
    let (late_s, all_s) = (tally.late.as_secs_f64(), tally.elapsed.as_secs_f64());
    (late_s > all_s * LATE_MAX).then(|| {
        format!("its last operation began {:.0} ms of {:.0} late", late_s * 1e3, all_s * 1e3)
    })
}

/// The sample of the 99th percentile, of an open loop's.
fn slowest(cost: &Sample) -> Sample {
    let p99 = cost.latency.as_ref().and_then(|latency| percentile_ns(latency, 99.0));
    let (bound, stolen_percent) = (cost.bound.clone(), cost.stolen_percent);
    Sample { figure: p99.map(|ns| ns / 1e3), bound, stolen_percent, ..Sample::default() }
}

/// A request on a connection of its own.
fn connections(at_once: usize, count: u64) -> Load {
    Load::closed(Work::Connections(Some(Request::Echo)), at_once, Until::Count(count))
}

const ANSWER_3K_BYTES: u64 = 3_000;
const ANSWER_100K_BYTES: u64 = 100_000;
/// Beyond this share somebody is the bottleneck.
pub(crate) const BUSY_MAX: f64 = 0.9;
/// Share of its time by which an open loop's last operation may begin late.
const LATE_MAX: f64 = 0.05;
/// Under way at once in the open loop; more wait for a place, and their latency counts that.
pub(crate) const OPEN_CONNECTIONS_MAX: usize = 1_000;
/// Share of an open loop's time that the client may wait for a processor.
const WAITED_MAX: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    /// By its last start, so that one slow answer at its end is no other load.
    #[test]
    fn an_open_loop_that_began_late_was_another_load() {
        let until = Until::Elapsed(Duration::from_secs(2));
        let open = Load::open(Work::Requests(Request::Echo), 100.0, 8, until);
        let tally = |late_ms| Tally {
            elapsed: Duration::from_secs(2),
            late: Duration::from_millis(late_ms),
            ..Tally::new().unwrap()
        };
        assert_eq!(missed(&open, &tally(100)), None);
        let missed_by = missed(&open, &tally(130)).unwrap();
        assert!(missed_by.contains("130 ms of 2000 late"), "{missed_by}");
        assert_eq!(missed(&connections(8, 8), &tally(130)), None, "a closed loop has no schedule");
    }
}
