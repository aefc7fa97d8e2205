//! A storm, `--cases storm`: more ClientHellos per second than the server can answer, in an open
//! loop, next to users that connect and to an established connection.
//!
//! ```text
//! capacity      calm            storm                      after
//! |-----------|---------------|--------------------------|----------------|
//! closed loop   users, stream   and a multiple of the       until users are served
//! of hellos                     capacity in ClientHellos    as in the calm, or 10 s
//! ```
//! Every client and every request has a scheduled start, and its time counts from that.

pub(crate) mod settings;
mod users;

use std::{
    net::Ipv4Addr,
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
    thread::{self, ScopedJoinHandle},
    time::{Duration, Instant},
};

use rustls::{ClientConnection, pki_types::ServerName};
use sealane_lab_harness::{credentials::SERVER_NAME, machine::Steal};
use sealane_lab_model::{
    document::{Bottleneck, NoVerdict},
    error::Error,
};

use crate::{
    load::flood::{Flood, FloodResult, PROMPT, Rhythm},
    servers::{
        measure::{BUSY_MAX, Bench, Sample},
        running::Running,
    },
};
use settings::{FIGURES, Storm, open_max};
use users::{Attempt, Door};

/// A storm as it was observed. Times count from the same origin.
struct Observation {
    capacity: Capacity,
    storm: Range<Duration>,
    flooded: FloodResult,
    /// Processor time of the server during the storm.
    cpu_ns: u64,
    attempts: Vec<Attempt>,
    stream: Result<Vec<(Duration, Duration)>, String>,
    memory_bytes: u64,
}

/// The work of a server that answers ClientHellos in a closed loop.
#[derive(Clone, Copy)]
struct Capacity {
    per_second: f64,
    /// Processor time of the server for each.
    each_ns: f64,
    /// Share of its processor's time that the server ran.
    busy: f64,
}

impl Bench {
    /// The samples of a storm, in the order of [`FIGURES`].
    pub(crate) fn storm(&self, storm: &Storm, server: &Running) -> Result<Vec<Sample>, Error> {
        let steal_before = Steal::so_far();
        let observed = self.observe(storm, server)?;
        let stolen_percent = Steal::percent(steal_before, Steal::so_far());
        let bound = observed.bound();
        let sample = |(name, figure): (&str, f64)| Sample {
            figure: Some(figure),
            bound: bound.clone(),
            stolen_percent,
            note: observed.note(name),
            ..Sample::default()
        };
        let names = FIGURES.iter().map(|(name, ..)| *name);
        let mut samples: Vec<Sample> = names.clone().zip(observed.figures()).map(sample).collect();
        for (name, sample) in names.zip(&mut samples) {
            match (name, &observed.stream) {
                ("stall", Err(why)) => {
                    let refused = format!("the established connection was lost: {why}");
                    (sample.figure, sample.refused) = (None, Some(refused));
                }
                ("answered", _) => {
                    sample.latency = Some(observed.flooded.answers.document()?);
                    sample.rate = Some(observed.flooded.prompt as f64 / observed.seconds());
                }
                _ => {}
            }
        }
        Ok(samples)
    }

    fn observe(&self, storm: &Storm, server: &Running) -> Result<Observation, Error> {
        let flood = self.flood(storm, server)?;
        let capacity = self.capacity(&flood, server)?;
        let interval = Duration::from_secs_f64(1.0 / (capacity.per_second * storm.storm_rate));
        let (config, name) = (self.plan(server, false)?.fresh()?, server_name()?);
        let door = Door::new(server.address, config, name);
        let (sender, attempts) = mpsc::channel();
        self.settle();
        thread::scope(|scope| {
            let door = &door;
            let _end = End(door);
            scope.spawn(move || door.users(USER_INTERVAL / USERS, PATIENCE, &sender));
            let stream = scope.spawn(move || door.stream(STREAM_INTERVAL));
            thread::sleep(CALM);
            let cpu_before = server.process.cpu()?;
            let start = door.origin.elapsed();
            let flooded = scope.spawn(|| flood.run(Rhythm::Open(interval)));
            thread::sleep(flood.lasts);
            let cpu_ns = server.process.cpu()?.since(&cpu_before);
            let storm = start..start + flood.lasts;
            let mut all = Vec::new();
            while !is_normal(&mut all, &attempts, &storm)
                && door.origin.elapsed() < storm.end + AFTER_MAX
            {
                thread::sleep(LOOK_INTERVAL);
            }
            let flooded = joined(flooded)??;
            door.is_over.store(true, Relaxed);
            let stream = joined(stream)?.map_err(|error| error.to_string());
            all.extend(attempts.iter());
            let memory_bytes = server.process.peak_bytes()?;
            let attempts = all;
            Ok(Observation { capacity, storm, flooded, cpu_ns, attempts, stream, memory_bytes })
        })
    }

    /// Measures the answers per second of clients that never give up.
    fn capacity(&self, flood: &Flood, server: &Running) -> Result<Capacity, Error> {
        let flood =
            Flood { lasts: CAPACITY_TIME, patience: PATIENCE, completing: 0, ..flood.clone() };
        let (cpu_before, began) = (server.process.cpu()?, Instant::now());
        let flooded = flood.run(Rhythm::Closed(CAPACITY_AT_ONCE))?;
        let seconds = began.elapsed().as_secs_f64();
        let cpu_ns = server.process.cpu()?.since(&cpu_before);
        let answers = flooded.answers.count() as f64;
        if answers == 0.0 {
            return Err(Error::Check("the server answers no ClientHello".into()));
        }
        let (per_second, busy) = (answers / seconds, cpu_ns as f64 / seconds / 1e9);
        Ok(Capacity { per_second, each_ns: cpu_ns as f64 / answers, busy })
    }

    fn flood(&self, storm: &Storm, server: &Running) -> Result<Flood, Error> {
        let (config, name) = (self.plan(server, false)?.fresh()?, server_name()?);
        let mut tls = ClientConnection::new(Arc::clone(&config), name.clone())
            .map_err(|error| Error::Check(format!("a ClientHello: {error}")))?;
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).map_err(Error::io("a ClientHello"))?;
        Ok(Flood {
            address: server.address,
            hello,
            sources: sources(storm.storm_prefixes),
            lasts: Duration::from_secs(storm.storm_seconds),
            patience: if storm.storm_waits { WAIT } else { PROMPT },
            open_max: usize::try_from(open_max()).unwrap_or(usize::MAX),
            completing: storm.storm_completes,
            config,
            name,
            interrupted: self.interrupted.clone(),
        })
    }
}

/// Ends users and stream, whatever happens.
struct End<'a>(&'a Door);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Relaxed);
    }
}

impl Observation {
    /// In the order of [`FIGURES`].
    fn figures(&self) -> [f64; FIGURES.len()] {
        let Self { capacity, flooded, storm, .. } = self;
        let [calm, stormy] = [Duration::ZERO..storm.start, storm.clone()].map(|range| {
            let its = self.attempts.iter().filter(|attempt| range.contains(&attempt.at));
            let mut ms: Vec<f64> = its.flat_map(|its| &its.took).map(milliseconds).collect();
            ms.sort_unstable_by(f64::total_cmp);
            ms
        });
        let users = self.attempts.iter().filter(|attempt| storm.contains(&attempt.at)).count();
        let useful = (flooded.prompt + stormy.len() as u64) as f64;
        let stream = self.stream.iter().flatten().filter(|(at, _)| storm.contains(at));
        [
            capacity.per_second,
            flooded.started as f64 / self.seconds(),
            flooded.prompt as f64 * 1e2 / flooded.started.max(1) as f64,
            useful / self.seconds() / capacity.per_second,
            stormy.len() as f64,
            (users - stormy.len()) as f64,
            percentile(&calm, 50),
            percentile(&calm, 99),
            percentile(&stormy, 50),
            percentile(&stormy, 99),
            stream.map(|(_, took)| milliseconds(took)).fold(0.0, f64::max),
            recovery(&self.attempts, storm).as_secs_f64(),
            self.cpu_ns as f64 / 1e9,
            self.cpu_ns as f64 / useful.max(1.0) / capacity.each_ns,
            self.memory_bytes as f64 / 1_048_576.0,
        ]
    }

    fn seconds(&self) -> f64 {
        (self.storm.end - self.storm.start).as_secs_f64()
    }

    /// The client set the rate if its starts were late; and if the server did not run all the time
    /// in the closed loop, others had its processor, or too little was asked of it.
    fn bound(&self) -> Option<NoVerdict> {
        let (late, busy) = (self.flooded.late, self.capacity.busy);
        if late > LATE_MAX {
            let words = format!("a ClientHello was sent {} ms late", late.as_millis());
            return Some(NoVerdict::new(Bottleneck::Client, &words));
        }
        let words = format!("it ran {:.0}% of the time in the closed loop", busy * 1e2);
        (busy < BUSY_MAX).then(|| NoVerdict::new(Bottleneck::Elsewhere, &words))
    }

    fn note(&self, name: &str) -> Option<String> {
        match name {
            "failed" => self
                .attempts
                .iter()
                .filter(|attempt| self.storm.contains(&attempt.at))
                .find_map(|attempt| attempt.took.clone().err()),
            "answered" if self.flooded.refused > 0 => {
                Some(format!("the server refused {}", self.flooded.refused))
            }
            _ => None,
        }
    }
}

/// Collects attempts; whether enough users in a row were served as before the storm.
fn is_normal(
    all: &mut Vec<Attempt>,
    attempts: &mpsc::Receiver<Attempt>,
    storm: &Range<Duration>,
) -> bool {
    all.extend(attempts.try_iter());
    all.sort_by_key(|attempt| attempt.at);
    let bound = bound(all, storm);
    let after = all.iter().rev().take_while(|attempt| attempt.at >= storm.end);
    let good = after.take_while(|attempt| attempt.took.as_ref().is_ok_and(|took| *took <= bound));
    good.count() >= NORMAL_ATTEMPTS
}

/// The time from the storm's end to the first user who is served as before the storm, as all users
/// after it.
fn recovery(attempts: &[Attempt], storm: &Range<Duration>) -> Duration {
    let bound = bound(attempts, storm);
    let slow = |attempt: &&Attempt| !attempt.took.as_ref().is_ok_and(|took| *took <= bound);
    let after = attempts.iter().filter(|attempt| attempt.at >= storm.end);
    let last = after.filter(slow).map(|attempt| attempt.at).max();
    last.map_or(Duration::ZERO, |last| last + USER_INTERVAL / USERS - storm.end)
}

/// The most that a user waits where all is normal.
fn bound(attempts: &[Attempt], storm: &Range<Duration>) -> Duration {
    let calm = attempts.iter().filter(|attempt| attempt.at < storm.start);
    let slowest = calm.flat_map(|attempt| &attempt.took).max();
    slowest.copied().unwrap_or_default() * 2 + NORMAL_SLACK
}

/// 250 addresses in so many networks.
fn sources(prefixes: u8) -> Vec<Ipv4Addr> {
    let host = |number: u8| Ipv4Addr::new(127, 1, number % prefixes, number / prefixes + 1);
    (0..SOURCES).map(host).collect()
}

/// A percentile of sorted values.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let place = (sorted.len() * percent).div_ceil(100);
    sorted.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

fn milliseconds(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> Result<T, Error> {
    thread.join().map_err(|_| Error::Check("a client thread panicked".into()))
}

fn server_name() -> Result<ServerName<'static>, Error> {
    ServerName::try_from(SERVER_NAME).map_err(|error| Error::Check(format!("server name: {error}")))
}

const USERS: u32 = 3;
const USER_INTERVAL: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(3);
const STREAM_INTERVAL: Duration = Duration::from_millis(20);
const CALM: Duration = Duration::from_secs(2);
/// After the storm.
const AFTER_MAX: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
const NORMAL_ATTEMPTS: usize = 10;
const NORMAL_SLACK: Duration = Duration::from_millis(20);
const CAPACITY_TIME: Duration = Duration::from_millis(1_500);
const CAPACITY_AT_ONCE: usize = 32;
/// Patience of clients that wait.
const WAIT: Duration = Duration::from_secs(10);
/// A client that starts later than this is no open loop.
const LATE_MAX: Duration = Duration::from_millis(50);
const SOURCES: u8 = 250;

#[cfg(test)]
mod tests {
    use sealane_lab_model::histogram::Times;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn attempt(at: u64, took: Option<u64>) -> Attempt {
        Attempt { at: ms(at), took: took.map(ms).ok_or_else(|| "reset".into()) }
    }

    fn observed() -> Observation {
        let flooded = FloodResult {
            started: 3_000,
            answers: Times::new().unwrap(),
            prompt: 398,
            refused: 0,
            late: ms(1),
            cpu_ns: 0,
        };
        Observation {
            capacity: Capacity { per_second: 1_000.0, each_ns: 1e6, busy: 1.0 },
            storm: ms(1_000)..ms(2_000),
            flooded,
            cpu_ns: 800_000_000,
            attempts: vec![
                attempt(0, Some(5)),
                attempt(500, Some(10)),
                attempt(1_000, Some(20)),
                attempt(1_500, Some(900)),
                attempt(1_900, None),
                attempt(2_000, Some(40)),
                attempt(2_100, Some(41)),
                attempt(2_200, Some(6)),
            ],
            stream: Ok(vec![(ms(900), ms(99)), (ms(1_020), ms(30)), (ms(2_020), ms(70))]),
            memory_bytes: 1_048_576,
        }
    }

    #[test]
    fn figures_are_of_the_storm() {
        let figures = FIGURES.iter().map(|(name, ..)| *name).zip(observed().figures());
        let figures: Vec<_> = figures.collect();
        let expected = [
            ("capacity", 1_000.0),
            ("offered", 3_000.0),
            ("answered", 398.0 * 1e2 / 3_000.0),
            ("useful", 0.4),
            ("users", 2.0),
            ("failed", 1.0),
            ("calm-p50", 5.0),
            ("calm-p99", 10.0),
            ("p50", 20.0),
            ("p99", 900.0),
            ("stall", 30.0),
            // The user at 2,100 ms waited longer than twice 10 ms and 20 ms.
            ("normal", (ms(100) + USER_INTERVAL / USERS).as_secs_f64()),
            ("cpu", 0.8),
            ("each", 2.0),
            ("memory", 1.0),
        ];
        assert_eq!(figures, expected);
    }

    #[test]
    fn late_clients_and_idle_server_give_no_verdict() {
        let mut observed = observed();
        assert_eq!(observed.bound(), None);
        observed.capacity.busy = 0.89;
        assert_eq!(observed.bound().unwrap().by(), Bottleneck::Elsewhere);
        observed.flooded.late = LATE_MAX + ms(1);
        assert_eq!(observed.bound().unwrap().by(), Bottleneck::Client);
    }

    #[test]
    fn sources_are_dealt_to_prefixes() {
        for prefixes in [1, 7, 250] {
            let all = sources(prefixes);
            let mut different = all.clone();
            different.sort_unstable();
            different.dedup();
            assert_eq!((all.len(), different.len()), (250, 250));
            let mut networks: Vec<u8> = all.iter().map(|source| source.octets()[2]).collect();
            networks.sort_unstable();
            networks.dedup();
            assert_eq!(networks.len(), usize::from(prefixes));
        }
    }
}
