//! A made-up run with something of everything, so that a page can be shown whole. It is marked as
//! sample data and says nothing about any stack.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hdrhistogram::{
    Histogram as Hdr,
    serialization::{Serializer, V2DeflateSerializer},
};
use sealane_lab_model::{
    document::{
        BulkRound, BulkSeries, BySide, Comparison, CountResult, Floor, HandshakePoint,
        HandshakeRound, HandshakeSeries, HandshakeTimes, Histogram, Invalid, KernelCall,
        KernelContention, KernelGrowth, KernelLedger, KernelRow, KernelWait, LockCounts, LockSite,
        Machine, MemoryResult, NoVerdict, Noise, Run, SCHEMA, Server, ServerCase, ServerResult,
        Servers, SharedLine, SharedWrites, Tool,
    },
    library::Identity,
    scenario::{Group, Kind, Negotiated, Scenario, Version},
};

use super::strategies;

/// The run.
pub(crate) fn run() -> Run {
    let mut chance = Chance(0x5ea1_a9e0);
    Run {
        schema: SCHEMA.into(),
        started: "2026-01-02T03:04:05Z".into(),
        seconds: 612.4,
        command: ["sealane-lab", "sample", "--not-a", "real run"].map(Into::into).to_vec(),
        complete: true,
        tool: Tool { version: "0.1.0".into(), profile: "release".into() },
        machine: Machine {
            processor: "Sample data, no machine".into(),
            processors: 8,
            threads_per_core: 2,
            pin_order: vec![0, 2, 4, 6, 1, 3, 5, 7],
            kernel: "6.1.0-sample".into(),
            memory_bytes: 32 << 30,
            virtualised: true,
            governor: Some("performance".into()),
        },
        noise: Noise { load_average: [0.21, 7.8], steal_percent: 0.2, spin_variation: 0.004 },
        stacks: STACKS.iter().map(identity).collect(),
        handshakes: handshakes(&mut chance),
        bulk: bulk(&mut chance),
        memory: memory(),
        counts: STACKS.iter().take(4).map(count).collect(),
        kernel_ledgers: vec![ledger()],
        findings: Vec::new(),
        forecasts: vec![],
        validation: None,
        live: vec![],
        forecast_comparisons: vec![],
        servers: Some(servers(&mut chance)),
        strategies: vec![strategies::tickets(&mut chance)],
        comparisons: comparisons(),
        ..Run::default()
    }
}

/// A server whose two threads share one file table.
fn ledger() -> KernelLedger {
    let call = |call: &str, per_connection| KernelCall {
        call: call.into(),
        per_connection,
        lengths: [8, 16, 24].map(|connections| connections * per_connection),
    };
    let table = KernelRow {
        object: "file table".into(),
        shared: 1,
        threads: 2,
        writers: 2,
        per_connection: 3,
        calls: vec![call("close", 2), call("accept4", 1), call("openat", 0)],
        apart: 0,
        exact: true,
        removal: "a table for each thread".into(),
    };
    let epoll = KernelRow {
        object: "epoll instance".into(),
        apart: 4,
        exact: true,
        ..KernelRow::default()
    };
    let (object, waited_ns) = ("file table".into(), 12_000);
    let waits = vec![KernelWait { object, waits: 7, waited_ns }];
    KernelLedger {
        server: "sample-server".into(),
        version: "sample-server 1.2".into(),
        command: ["sample-server", "--workers", "2"].map(Into::into).to_vec(),
        workers: 2,
        connections: 8,
        rows: vec![table, epoll],
        growth: Some(KernelGrowth { held: 300, shared: 3, apart: 0 }),
        repeats: 3,
        exact: true,
        contention: Some(KernelContention { connections: 2_000, at_once: 16, waits }),
        unseen: vec![],
        failure: None,
        origin: None,
    }
}

/// The documents that `writeups` draws, as one.
pub(crate) fn writeups() -> Run {
    let mut chance = Chance(0xf1fe_f1fe);
    let strategies = strategies::all(&mut chance);
    let (handshakes, memory, counts) = (vec![], vec![], vec![]);
    let (servers, comparisons) = (None, vec![]);
    // The remedy of the same stack: rates of two stacks are not compared.
    let per_lane = [1_usize, 2, 4, 8].map(|threads| {
        let driver = ("openssl@3.0", "asio", "per-lane", None);
        carried(driver, threads, 20, 1_020.0 * threads as f64, &mut chance)
    });
    let run = run();
    let bulk = [run.bulk, per_lane.into()].concat();
    Run { strategies, handshakes, memory, counts, servers, comparisons, bulk, ..run }
}

/// A document of `node`.
pub(crate) fn node() -> Run {
    let mut chance = Chance(0x0de0_0de0);
    let strategies = vec![strategies::node(&mut chance)];
    let (handshakes, memory, counts, bulk) = (vec![], vec![], vec![], vec![]);
    let (servers, comparisons) = (None, vec![]);
    Run { strategies, handshakes, memory, counts, servers, comparisons, bulk, ..run() }
}

/// Numbers that look random and are the same every time.
pub(crate) struct Chance(u64);

impl Chance {
    /// About 1, off by at most `spread`.
    pub(crate) fn around(&mut self, spread: f64) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let share = (self.0 >> 40) as f64 / (1u64 << 24) as f64;
        1.0 + spread * (2.0 * share - 1.0)
    }
}

/// A stack of the sample: what it does alone, and what each further thread costs it.
struct Made {
    name: &'static str,
    version: &'static str,
    server_us: f64,
    client_us: f64,
    /// Share of speed that each further thread takes.
    loss: f64,
    /// Shared writes by the server: lock, reference count, global.
    writes: [f64; 3],
    locks: f64,
}

const STACKS: [Made; 5] = [
    made("sealane", "0.1.0, rustls 0.23.46", [84.0, 171.0], 0.002, [0.0, 0.0, 0.0], 0.0),
    made(
        "rustls-aws-lc-rs",
        "0.23.46, aws-lc-rs 1.19.0",
        [86.0, 168.0],
        0.011,
        [76.0, 12.0, 0.0],
        72.0,
    ),
    made("rustls-ring", "0.23.46, ring 0.17.14", [101.0, 190.0], 0.007, [4.0, 8.0, 0.0], 0.0),
    made(
        "openssl@3.0",
        "OpenSSL 3.0.19 27 Jan 2026",
        [205.0, 345.0],
        0.16,
        [1438.0, 632.0, 16.0],
        719.0,
    ),
    made(
        "openssl@4.0",
        "OpenSSL 4.0.0 14 Apr 2026",
        [131.0, 240.0],
        0.05,
        [210.0, 190.0, 4.0],
        105.0,
    ),
];

const fn made(
    name: &'static str,
    version: &'static str,
    [server_us, client_us]: [f64; 2],
    loss: f64,
    writes: [f64; 3],
    locks: f64,
) -> Made {
    Made { name, version, server_us, client_us, loss, writes, locks }
}

fn identity(made: &Made) -> Identity {
    Identity {
        name: made.name.into(),
        version: made.version.into(),
        path: format!("/usr/lib/sample/{}.so", made.name),
        sha256: "5a".repeat(32),
        build: "-O2 -fPIC, sample".into(),
    }
}

fn handshakes(chance: &mut Chance) -> Vec<HandshakeSeries> {
    let resumed = Scenario { kind: Kind::Ticket, ..Scenario::default() };
    let mut series: Vec<HandshakeSeries> =
        STACKS.iter().map(|made| full(made, Scenario::default(), 1.0, chance)).collect();
    series.extend(STACKS.iter().take(2).map(|made| full(made, resumed.clone(), 0.45, chance)));
    series.push(HandshakeSeries {
        stack: "s2n-tls".into(),
        scenario: Scenario::default(),
        negotiated: None,
        points: Vec::new(),
        times: None,
        failure: Some("check failed: the server negotiated group P256, wanted X25519".into()),
    });
    series
}

fn full(made: &Made, scenario: Scenario, cost: f64, chance: &mut Chance) -> HandshakeSeries {
    let points = [1_usize, 2, 4, 6, 8, 12].map(|threads| {
        let rounds = (0..5).map(|round| trial(made, threads, round, cost, chance)).collect();
        let order = [0, 2, 4, 6, 1, 3, 5, 7];
        HandshakePoint { threads, pinned: order.into_iter().take(threads).collect(), rounds }
    });
    let resumed = scenario.kind != Kind::Full;
    let spread = 0.08 + made.loss;
    HandshakeSeries {
        stack: made.name.into(),
        negotiated: Some(Negotiated {
            version: Version::Tls13,
            suite: scenario.suite(),
            group: Some(Group::X25519),
            resumed,
            peer_certificate: !resumed,
        }),
        scenario,
        points: points.into(),
        times: Some(HandshakeTimes {
            threads: 12,
            server: histogram(made.server_us * cost * (1.0 + made.loss * 8.0), spread, chance),
            client: histogram(made.client_us * cost * (1.0 + made.loss * 8.0), spread, chance),
        }),
        failure: None,
    }
}

fn trial(
    made: &Made,
    threads: usize,
    round: u32,
    cost: f64,
    chance: &mut Chance,
) -> HandshakeRound {
    let window_ns = 1_000_000_000_u64;
    let contended = 1.0 + made.loss * (threads.min(8) - 1) as f64;
    let crowd = (8.0 / threads as f64).min(1.0);
    let busy_ns = (made.server_us + made.client_us) * 1e3 * cost * contended * chance.around(0.03);
    let each = (window_ns as f64 * crowd / (busy_ns * 1.03)) as u64;
    let done = each * threads as u64;
    let share = |us: f64| (us * 1e3 * cost * contended) as u64 * done;
    HandshakeRound {
        order: round * 36 + u32::try_from(threads).unwrap(),
        window_ns,
        per_thread: vec![each; threads],
        warm_up: each / 4,
        server_ns: share(made.server_us),
        client_ns: share(made.client_us),
        server_setup_ns: share(1.1),
        client_setup_ns: share(1.6),
        other_ns: share(0.9),
        cpu_ns: (busy_ns * 1.02) as u64 * done,
        start_spread_ns: 41_000,
        per_thread_ns: vec![[1, 2, 3, 4]; threads],
        invalid: (round == 3 && threads == 6 && made.loss < 0.005).then_some(Invalid::Steal),
        ..HandshakeRound::default()
    }
}

pub(crate) fn histogram(median_us: f64, spread: f64, chance: &mut Chance) -> Histogram {
    let mut hdr = Hdr::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
    for n in 0..2_500 {
        let tail = if n % 125 == 0 { 1.6 } else { 1.0 };
        let rare = if n % 625 == 7 { 6.0 } else { 1.0 };
        let value = median_us * 1e3 * chance.around(spread) * chance.around(spread) * tail * rare;
        hdr.record(value as u64).unwrap();
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&hdr, &mut bytes).unwrap();
    let steps = (0..=24).map(|n| f64::from(n) * 4.0);
    let tail = [99.0, 99.3, 99.5, 99.7, 99.8, 99.9, 99.95, 99.97, 99.98, 99.99, 100.0];
    let percentiles = steps.chain(tail).map(|p| [p, hdr.value_at_percentile(p) as f64]);
    Histogram { count: hdr.len(), hdr: STANDARD.encode(bytes), percentiles: percentiles.collect() }
}

fn bulk(chance: &mut Chance) -> Vec<BulkSeries> {
    let mut all = Vec::new();
    for (driver, rate) in [
        (("sealane", "lanes", "per-lane", None), 1_400.0),
        (("rustls-aws-lc-rs", "tokio", "shared", None), 1_150.0),
        (("openssl@3.0", "asio", "shared", None), 1_050.0),
        (("openssl@3.0", "asio", "shared", Some("error-lock")), 760.0),
    ] {
        for threads in [1_usize, 2, 4, 8] {
            let lost = if driver.3.is_some() { 0.9 } else { 0.03 };
            let factor = threads as f64 / (1.0 + lost * (threads - 1) as f64);
            all.push(carried(driver, threads, 20, rate * factor, chance));
        }
    }
    all
}

/// The matrix of two drivers, whose shared loops lose what their threads bring.
pub(crate) fn matrix() -> Run {
    let mut chance = Chance(4_656);
    let mut bulk = Vec::new();
    for (stack, runtime, per_lane) in
        [("openssl@3.0", "asio", "asio"), ("rustls-aws-lc-rs", "tokio", "tokio-per-core")]
    {
        for (runtime, loops, lost) in [(runtime, "shared", 0.45), (per_lane, "per-lane", 0.04)] {
            for connections in [1_usize, 4, 10, 20] {
                for threads in [1_usize, 2, 4, 8] {
                    // Each connection keeps two threads busy: its sender and its receiver.
                    let busy = threads.min(2 * connections) as f64;
                    let rate = 600.0 * busy / (1.0 + lost * (threads - 1) as f64);
                    let driver = (stack, runtime, loops, None);
                    bulk.push(carried(driver, threads, connections, rate, &mut chance));
                }
            }
        }
    }
    let nothing = Run { handshakes: vec![], memory: vec![], counts: vec![], ..run() };
    Run { bulk, servers: None, comparisons: vec![], ..nothing }
}

/// Stack, runtime, loops and emulation, and what they carried.
fn carried(
    (stack, runtime, loops, emulate): (&str, &str, &str, Option<&str>),
    threads: usize,
    connections: usize,
    rate: f64,
    chance: &mut Chance,
) -> BulkSeries {
    let bytes = 4_000 << 20;
    let rounds = (0..5).map(|order| BulkRound {
        order,
        bytes,
        wall_ns: (bytes as f64 * 1e3 / (rate * chance.around(0.05))) as u64,
        cpu_ns: 3_000_000_000,
        ..BulkRound::default()
    });
    let rounds: Vec<BulkRound> = rounds.collect();
    // As JSON, so that fields that are not known here take their defaults.
    let series = serde_json::json!({
        "stack": stack, "runtime": runtime, "loops": loops, "emulate": emulate,
        "scenario": Scenario::default(), "threads": threads, "connections": connections,
        "messages": 20, "message_bytes": 10 << 20, "negotiated": null, "rounds": rounds,
        "verify": "sha256", "driver": (runtime == "asio").then_some("Asio 1.22.1"),
        "failure": null,
    });
    serde_json::from_value(series).unwrap()
}

fn memory() -> Vec<MemoryResult> {
    let result = |made: &Made, sizes: [f64; 4]| MemoryResult {
        stack: made.name.into(),
        scenario: Scenario::default(),
        connections: 10_000,
        bytes: ["server_established", "server_idle", "client_established", "client_idle"]
            .into_iter()
            .map(str::to_owned)
            .zip(sizes)
            .collect::<BTreeMap<_, _>>(),
        failure: None,
    };
    vec![
        result(&STACKS[0], [7_100.0, 5_300.0, 9_900.0, 9_200.0]),
        result(&STACKS[2], [9_400.0, 9_400.0, 11_200.0, 11_200.0]),
        result(&STACKS[3], [48_300.0, 21_900.0, 57_000.0, 29_800.0]),
    ]
}

fn count(made: &Made) -> CountResult {
    let by = |server: f64| BySide { server, client: server * 3.2 };
    let line = |class: &str, symbol: &str, writes: f64, writers: &[&str]| SharedLine {
        class: class.into(),
        symbol: symbol.into(),
        owner: "libcrypto.so.3".into(),
        writes: by(writes),
        writers: writers.iter().map(|name| (*name).to_owned()).collect(),
    };
    let [lock, count, global] = made.writes;
    let locks = ["pthread_rwlock_rdlock", "pthread_rwlock_unlock"];
    let lines = [
        line("lock", "namemap lock", lock * 0.6, &locks),
        line("lock", "provider store lock", lock * 0.4, &locks),
        line("reference-count", "EVP_MD fetched", count, &["EVP_MD_up_ref", "EVP_MD_free"]),
        line("global", "tzset_lock", global, &["__tz_convert"]),
    ];
    CountResult {
        stack: made.name.into(),
        scenario: Scenario::default(),
        unit: None,
        instructions: Some(BySide {
            server: made.server_us * 13_500.0,
            client: made.client_us * 13_400.0,
        }),
        locks: (made.locks > 0.0).then(|| LockCounts {
            read: by(made.locks * 0.93),
            write: by(made.locks * 0.07),
            mutex: by(0.0),
            shared: 24,
            sites: vec![LockSite {
                lock: "namemap".into(),
                kind: "read".into(),
                calls: by(made.locks * 0.6),
                path: [
                    "ossl_namemap_name2num (libcrypto.so.3)",
                    "evp_generic_fetch (libcrypto.so.3)",
                    "EVP_MD_fetch (libcrypto.so.3)",
                    "SSL_do_handshake (libssl.so.3)",
                ]
                .map(Into::into)
                .to_vec(),
            }],
        }),
        shared_writes: Some(SharedWrites {
            total: by(lock + count + global),
            allocator: BySide { server: 18.5, client: 0.0 },
            lines: lines.into_iter().filter(|line| line.writes.server > 0.0).collect(),
        }),
        instructions_spread: Some(BySide { server: 0.000_01, client: 0.000_02 }),
        repeats: 3,
        exact: true,
        failure: None,
    }
}

fn servers(chance: &mut Chance) -> Servers {
    let cases = server_cases();
    let servers = [
        (
            "sealane",
            "sealane 0.1.0",
            "rustls 0.23.46",
            [104.0, 71.0, 0.62, 4.9, 126.0, 750.0, 115.0],
        ),
        ("haproxy", "HAProxy 3.4.0", "AWS-LC 1.62", [202.0, 133.0, 1.14, 8.2, 245.0, 990.0, 224.0]),
        (
            "nginx",
            "nginx/1.22.1",
            "OpenSSL 3.0.19",
            [381.0, 260.0, 1.31, 27.5, 420.0, 1900.0, 396.0],
        ),
        (
            "hitch",
            "hitch 1.7.3",
            "OpenSSL 3.0.19",
            [394.0, 255.0, 1.52, 31.0, 430.0, 2100.0, 417.0],
        ),
    ];
    let floor = |primitives: f64, tcp: f64| {
        let primitives = [0.99, 1.0, 1.02].map(|f| f * primitives).to_vec();
        let mut floor = Floor { primitives, ..Floor::default() };
        floor.proxy = "plain-relay".into();
        floor.tcp = [0.98, 1.0, 1.03].map(|f| f * tcp).to_vec();
        floor
    };
    let mut server = |(name, version, library, figures): (&str, &str, &str, [f64; 7])| {
        let cases = cases.iter().zip(figures);
        let cases =
            cases.map(|(case, figure)| (case.name.clone(), result(&case.name, figure, chance)));
        Server {
            name: name.into(),
            version: version.into(),
            tls_library: library.into(),
            command: [name, "--sample"].map(Into::into).to_vec(),
            settings: vec![format!("{name}.buffers 65536")],
            cases: cases.collect(),
            failure: None,
        }
    };
    let servers = servers.map(&mut server);
    let mut plain = server((
        "plain-haproxy",
        "HAProxy 3.4.0",
        "none",
        [45.0, 44.0, 0.4, 3.0, 51.0, 600.0, 48.0],
    ));
    plain.cases.retain(|name, _| ["full", "resumed", "download"].contains(&name.as_str()));
    let absent = Server {
        name: "stunnel".into(),
        failure: Some("stunnel is missing; run: apt-get install stunnel4".into()),
        ..Server::default()
    };
    Servers {
        servers: servers.into_iter().chain([absent]).collect(),
        plain: vec![plain],
        floor: BTreeMap::from([
            ("full".into(), floor(46.0, 43.0)),
            ("resumed".into(), floor(19.0, 43.0)),
            ("download".into(), floor(0.21, 0.34)),
        ]),
        placement: "client and backend on the same processors".into(),
        discarded: vec!["round 2, resumed: steal 1.4%".into()],
        cases,
    }
}

/// The columns of the servers' tables.
fn server_cases() -> Vec<ServerCase> {
    let case = |name: &str, title: &str, unit: &str, load: &str| {
        let mut case = ServerCase { name: name.into(), ..ServerCase::default() };
        (case.title, case.unit) = (title.into(), unit.into());
        case.load = Some(load.into()).filter(|load: &String| !load.is_empty());
        case
    };
    let us = "us CPU per handshake";
    vec![
        case("full", "full handshake, full load", us, "full"),
        case("resumed", "resumed handshake, full load", us, "full"),
        case("download", "bulk, down, full load", "s CPU per GB", "full"),
        case("idle", "idle connection", "KiB per connection", ""),
        case("full-half", "full handshake, half load", us, "half"),
        case("full-half-p99", "full handshake, half load", "us p99, intended", "half"),
        case("full-80%", "full handshake, 80% load", us, "80%"),
    ]
}

fn result(case: &str, figure: f64, chance: &mut Chance) -> ServerResult {
    let capacity = 1.6e6 / figure;
    let open = match case {
        "full-half" => Some(capacity * 0.5),
        "full-80%" => Some(capacity * 0.8),
        _ => None,
    };
    let rate = open.unwrap_or(capacity);
    let full = (figure * rate / 1.7e6).min(0.97);
    let is_busy = figure > 40.0 && case != "full-half-p99";
    let latency = open.map(|_| histogram(320.0 / (1.0 - full), 0.4, chance));
    let service = open.map(|_| histogram(290.0, 0.2, chance));
    let mut result = ServerResult {
        figure: (0..5).map(|_| figure * chance.around(0.04)).collect(),
        rate: if is_busy { (0..5).map(|_| rate * chance.around(0.01)).collect() } else { vec![] },
        latency,
        service,
        client_busy: if is_busy { vec![0.61, 0.64, 0.6] } else { vec![] },
        server_busy: if is_busy { vec![full; 3] } else { vec![] },
        worker_cpu_ns: if is_busy { vec![212_000_000, 188_000_000] } else { vec![] },
        note: open.map(|rate| format!("{rate:.0} per second were due")),
        ..ServerResult::default()
    };
    if case == "idle" && figure > 30.0 {
        result.figure.clear();
        result.not_offered = Some("it closes idle connections".into());
    }
    if case == "full-80%" && figure > 400.0 {
        result.figure.clear();
        result.invalid = Some(NoVerdict::from("client-bound".to_owned()));
        result.refused = Some("the client fell behind its schedule".into());
    }
    result
}

fn comparisons() -> Vec<Comparison> {
    let pair =
        |measure: &str, of: &str, to: &str, ratio: f64, interval: [f64; 2], verdict: &str| {
            let [measure, of, to, verdict] = [measure, of, to, verdict].map(Into::into);
            Comparison { measure, of, to, ratio, interval, verdict }
        };
    let cpu = "server CPU per handshake";
    vec![
        pair(cpu, "sealane", "haproxy", 0.515, [0.5, 0.53], "sealane takes 0.515 times as much"),
        pair(cpu, "nginx", "haproxy", 1.89, [1.84, 1.93], "nginx takes 1.89 times as much"),
        pair(cpu, "hitch", "nginx", 1.03, [0.98, 1.07], "no difference shown"),
        pair(
            "time per handshake, 1 thread",
            "sealane",
            "rustls-aws-lc-rs",
            0.99,
            [0.97, 1.02],
            "no difference shown",
        ),
    ]
}
