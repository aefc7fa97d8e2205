//! The command `connect`: the load client alone, against any TLS server, for people who want a
//! better `openssl s_time`.
//!
//! In a closed loop (`--concurrency`) an operation starts when another one ends: good for capacity,
//! and blind to the wait of those that would have come meanwhile. In an open loop (`--rate`) they
//! start by a schedule, and latency counts from there. Both are shown.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Write},
    net::{SocketAddr, ToSocketAddrs},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use rustls::pki_types::ServerName;
use sealane_lab_harness::{descriptors, interrupt::Interrupt, options::Json};
use sealane_lab_model::{
    document::Histogram,
    error::Error,
    histogram::Times,
    scenario::{Cipher, Group, Version},
};
use serde::Serialize;

use crate::load::{Crew, Expect, Load, Offer, Plan, Request, Roots, Tally, Tls, Until, Work};

/// The arguments of `connect`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The server
    #[arg(value_name = "HOST:PORT")]
    server: String,
    /// The name to ask for and to verify; HOST without it
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A file of root certificates, PEM
    #[arg(long, value_name = "FILE", default_value = SYSTEM_ROOTS, conflicts_with = "insecure")]
    roots: PathBuf,
    /// Believes every certificate
    #[arg(long)]
    insecure: bool,
    /// Offers this version only
    #[arg(long, value_name = "VERSION")]
    tls: Option<Version>,
    /// Offers this record protection only
    #[arg(long, value_name = "CIPHER")]
    cipher: Option<Cipher>,
    /// Offers this group only (in TLS 1.2, P-256 behind it)
    #[arg(long, value_name = "GROUP")]
    group: Option<Group>,
    /// Offers these application protocols
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    alpn: Vec<String>,
    /// For so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, conflicts_with = "count",
        value_parser = seconds)]
    duration: f64,
    /// So many operations
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Closed loop: so many operations under way at any time
    #[arg(long, value_name = "N", default_value_t = 16, conflicts_with = "rate",
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// Open loop: so many operations per second, by a schedule fixed in advance
    #[arg(long, value_name = "R", value_parser = rate)]
    rate: Option<f64>,
    /// Share of the connections that resume a session, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    resumed: f64,
    /// An operation is a GET of PATH on a connection that stays
    #[arg(long, value_name = "PATH", conflicts_with = "handshakes_only")]
    keep_alive: Option<String>,
    /// An operation is a connection without a request; else it has a GET of /
    #[arg(long)]
    handshakes_only: bool,
    /// Client threads; one per processor without it
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    #[command(flatten)]
    json: Json,
}

/// What came out.
#[derive(Debug, Serialize)]
struct Outcome {
    server: String,
    address: SocketAddr,
    operation: &'static str,
    /// `closed` or `open`.
    arrivals: &'static str,
    operations: u64,
    failed: u64,
    /// By kind: how many, and one of them in words.
    failures: BTreeMap<String, (u64, String)>,
    seconds: f64,
    /// Operations per second, of those that succeeded.
    per_second: f64,
    /// Operations in each second, from the first on.
    each_second: Vec<u64>,
    body_bytes: u64,
    /// What handshakes agreed on, with how many did.
    negotiated: BTreeMap<String, u64>,
    tickets_offered: u64,
    tickets_resumed: u64,
    /// Share of the client's processor time that was used.
    client_busy: f64,
    /// Whether the client itself was the limit, and the figures say little about the server.
    client_bound: bool,
    /// From the connect to the end of the handshake.
    handshake: Histogram,
    /// From the start of an operation to its end.
    service: Histogram,
    /// From the intended start of an operation to its end; the same in a closed loop.
    intended: Histogram,
    #[serde(skip)]
    shown: Vec<(&'static str, Vec<[f64; 2]>)>,
}

/// `true` if no operation failed.
///
/// # Errors
/// What kept the load from starting.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let interrupt = Interrupt::catch()?;
    descriptors::allow(u64::from(arguments.concurrency))?;
    let plan = plan(arguments, interrupt)?;
    let processors = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let mut crew = Crew::new(&plan, arguments.threads.unwrap_or(processors))?;
    let load = load(arguments);
    let tally = with_progress(arguments, &plan.progress, || crew.run(&load))?;
    // What a server makes of the close is not what was asked.
    let _ = crew.close();
    let outcome = Outcome::new(arguments, plan.address, &tally, processors.get())?;
    arguments.json.write(&outcome)?;
    io::stdout().write_all(outcome.text().as_bytes()).map_err(Error::io("standard output"))?;
    Ok(tally.failed() == 0 && tally.operations > 0)
}

fn plan(arguments: &Arguments, interrupted: Interrupt) -> Result<Plan, Error> {
    let server = &arguments.server;
    let wrong = |why: String| Error::Check(format!("{server}: {why}"));
    let mut addresses = server.to_socket_addrs().map_err(|error| wrong(error.to_string()))?;
    let address = addresses.next().ok_or_else(|| wrong("it has no address".into()))?;
    let host = server.rsplit_once(':').map_or(server.as_str(), |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    let name = arguments.name.clone().unwrap_or_else(|| host.into());
    let roots = match arguments.insecure {
        true => Roots::Anyone,
        false => Roots::read(&arguments.roots).map_err(|error| match error {
            Error::Io { what, source } if arguments.roots == Path::new(SYSTEM_ROOTS) => {
                let what = format!("{what} (install ca-certificates, or give --roots)");
                Error::Io { what, source }
            }
            error => error,
        })?,
    };
    let offer = Offer {
        version: arguments.tls,
        cipher: arguments.cipher,
        group: arguments.group,
        alpn: arguments.alpn.clone(),
        roots,
        hoards_tickets: false,
    };
    let names = vec![ServerName::try_from(name.clone()).map_err(|error| wrong(error.to_string()))?];
    Ok(Plan {
        address,
        host: name,
        tls: Some(Tls { offer, names, resume: arguments.resumed }),
        expect: Expect {
            version: arguments.tls,
            group: arguments.group,
            // Whether it resumed is counted, not demanded.
            ..Expect::default()
        },
        tolerant: true,
        interrupted,
        seconds_apart: 0,
        progress: Arc::new(AtomicU64::new(0)),
    })
}

fn load(arguments: &Arguments) -> Load {
    let work = match &arguments.keep_alive {
        Some(path) => Work::Requests(Request::Get(path.clone())),
        None if arguments.handshakes_only => Work::Connections(None),
        None => Work::Connections(Some(Request::Get("/".into()))),
    };
    let until = match arguments.count {
        Some(count) => Until::Count(count),
        None => Until::Elapsed(Duration::from_secs_f64(arguments.duration)),
    };
    match arguments.rate {
        Some(rate) => Load::open(work, rate, IN_FLIGHT_MAX, until),
        None => Load::closed(work, arguments.concurrency as usize, until),
    }
}

/// Runs the work, and says meanwhile on a terminal how far it is.
fn with_progress(
    arguments: &Arguments,
    done: &AtomicU64,
    work: impl FnOnce() -> Result<Tally, Error>,
) -> Result<Tally, Error> {
    let bar = arguments.count.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
    let whole = arguments.duration;
    let template = match arguments.count {
        Some(_) => "{wide_bar} {pos}/{len} operations, {per_sec}, {eta} left",
        None => &format!("{{spinner}} {{pos}} operations, {{per_sec}}, {{elapsed}} of {whole} s"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Relaxed) {
                bar.set_position(done.load(Relaxed));
                thread::sleep(Duration::from_millis(PROGRESS_INTERVAL_MS));
            }
            bar.finish_and_clear();
        });
        let result = work();
        ended.store(true, Relaxed);
        result
    })
}

impl Outcome {
    fn new(
        arguments: &Arguments,
        address: SocketAddr,
        tally: &Tally,
        processors: usize,
    ) -> Result<Self, Error> {
        let points = |times: &Times| -> Vec<[f64; 2]> {
            let at = |percentile| [percentile, times.percentile_ns(percentile) as f64];
            PERCENTILES_SHOWN.map(at).to_vec()
        };
        let mut shown = vec![("handshake", points(&tally.handshake))];
        shown.push(("operation, from its start", points(&tally.service)));
        if arguments.rate.is_some() {
            shown.push(("operation, from the intended start", points(&tally.intended)));
        }
        let client_busy = tally.client_busy(processors);
        let kinds = tally.failures.iter();
        let seen = tally.negotiations.iter();
        Ok(Self {
            server: arguments.server.clone(),
            address,
            operation: match (&arguments.keep_alive, arguments.handshakes_only) {
                (Some(_), _) => "request",
                (None, true) => "handshake",
                (None, false) => "connection with a request",
            },
            arrivals: if arguments.rate.is_some() { "open" } else { "closed" },
            operations: tally.operations,
            failed: tally.failed(),
            failures: kinds.map(|(kind, failure)| (kind.to_string(), failure.clone())).collect(),
            seconds: tally.elapsed.as_secs_f64(),
            per_second: tally.rate(),
            each_second: tally.per_second.clone(),
            body_bytes: tally.body_bytes,
            negotiated: seen.map(|(what, count)| (what.to_string(), *count)).collect(),
            tickets_offered: tally.tickets_offered,
            tickets_resumed: tally.tickets_resumed,
            client_busy,
            client_bound: client_busy > BUSY_MAX,
            handshake: tally.handshake.document()?,
            service: tally.service.document()?,
            intended: tally.intended.document()?,
            shown,
        })
    }

    fn text(&self) -> String {
        let Self { server, address, operation, arrivals, .. } = self;
        let mut text = format!(
            "{server} ({address}), {arrivals} loop; an operation is a {operation}\n\
             {} operations in {:.2} s: {:.1} per second; {} failed\n",
            self.operations, self.seconds, self.per_second, self.failed
        );
        for (kind, (count, example)) in &self.failures {
            let _ = writeln!(text, "  {count} x {kind}, such as: {example}");
        }
        for (negotiated, count) in &self.negotiated {
            let _ = writeln!(text, "{count} x {negotiated}");
        }
        if self.tickets_offered > 0 {
            let (offered, resumed) = (self.tickets_offered, self.tickets_resumed);
            let percent = resumed as f64 * 1e2 / offered as f64;
            let _ = writeln!(text, "{resumed} of {offered} tickets resumed ({percent:.1}%)");
        }
        if self.body_bytes > 0 {
            let rate = self.body_bytes as f64 / 1e6 / self.seconds.max(f64::EPSILON);
            let _ = writeln!(text, "{} bytes of answers, {rate:.1} MB/s", self.body_bytes);
        }
        if let [_, whole @ .., _] = self.each_second.as_slice()
            && let (Some(least), Some(most)) = (whole.iter().min(), whole.iter().max())
        {
            let _ = writeln!(text, "operations in a second: {least} to {most}");
        }
        if self.operations == 0 {
            text.push_str("nothing succeeded, so there are no figures\n");
            return text;
        }
        for (what, points) in &self.shown {
            let _ = write!(text, "{what}, ms:");
            for [percentile, ns] in points {
                let _ = match *percentile < 100.0 {
                    true => write!(text, "  p{percentile} {:.2}", ns / 1e6),
                    false => writeln!(text, "  max {:.2}", ns / 1e6),
                };
            }
        }
        let _ = writeln!(text, "client threads ran {:.0}% of the time", self.client_busy * 1e2);
        if self.client_bound {
            text.push_str("CLIENT-BOUND: this client was the limit; no verdict on the server\n");
        }
        text
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    between(text, 0.1, 86_400.0)
}

fn rate(text: &str) -> Result<f64, String> {
    between(text, 0.1, 10_000_000.0)
}

fn share(text: &str) -> Result<f64, String> {
    between(text, 0.0, 1.0)
}

fn between(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("want a number, {least} to {most}"))?;
    let fits = (least..=most).contains(&value);
    if fits { Ok(value) } else { Err(format!("want {least} to {most}")) }
}

/// Where Debian's package ca-certificates has them.
const SYSTEM_ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Beyond this share the client is the bottleneck.
const BUSY_MAX: f64 = 0.9;
/// Under way at once in an open loop; more wait for a place, and their latency counts that.
const IN_FLIGHT_MAX: usize = 10_000;
const PERCENTILES_SHOWN: [f64; 6] = [50.0, 90.0, 99.0, 99.9, 99.99, 100.0];
const PROGRESS_INTERVAL_MS: u64 = 100;
