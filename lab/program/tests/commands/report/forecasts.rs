//! Made-up forecasts and a made-up validation: one stack that stops, one like it, one that goes
//! on, one of which too little was recorded.

use sealane_lab_model::{
    document::{
        Base, CauseWrites, Curve, CurvePoint, Forecast, Knee, LineCost, Profile, Run, Score,
        ValidatedCurve, ValidatedPoint, Validation, Verdict, VerdictKind,
    },
    scenario::{Kind, Scenario},
};

use super::sample;

/// A document of `why` on several stacks, beside a sweep of two of them.
pub(crate) fn why() -> Run {
    let names = ["openssl@3.0", "openssl@3.4", "rustls-aws-lc-rs", "s2n-tls"];
    let sample = sample::run();
    let mut handshakes = sample.handshakes;
    handshakes.retain(|series| {
        names.contains(&series.stack.as_str()) && series.scenario == Scenario::default()
    });
    let mut counts = sample.counts;
    counts.retain(|count| names.contains(&count.stack.as_str()));
    Run {
        handshakes,
        counts,
        forecasts: forecasts(),
        validation: Some(validation()),
        command: ["sealane-lab", "why", "openssl@3.0,..."].map(Into::into).to_vec(),
        ..alone()
    }
}

/// Forecasts and nothing else.
pub(crate) fn alone() -> Run {
    let nothing = Run { handshakes: vec![], bulk: vec![], memory: vec![], ..sample::run() };
    let nothing = Run { counts: vec![], servers: None, strategies: vec![], ..nothing };
    Run { comparisons: vec![], forecasts: forecasts(), ..nothing }
}

/// A validation and nothing else.
pub(crate) fn validated() -> Run {
    Run { forecasts: vec![], validation: Some(validation()), ..alone() }
}

fn forecasts() -> Vec<Forecast> {
    vec![
        Forecast {
            lines: vec![
                line("lock", "namemap lock", [670.0, 10_109.0, 21.0], 0.88, 0.61),
                line("reference-count", "EVP_MD fetched", [220.0, 440.0, 0.0], 0.09, 0.43),
                line("false-sharing", "err_string_lock + 8", [31.0, 12.0, 6.0], 0.02, 0.39),
                line("global", "ossl_rand_seeding", [4.0, 2.0, 40.0], 0.01, 0.38),
            ],
            writes: vec![
                causes("lock", [1_402.0, 20_110.0, 96.0]),
                causes("reference-count", [502.0, 1_260.0, 18.0]),
                causes("global", [44.0, 62.0, 6.0]),
                causes("false-sharing", [31.0, 12.0, 6.0]),
            ],
            verdict: verdict(
                VerdictKind::Stops,
                "MEASURED: writes 1,979 times per handshake to memory that other threads write; \
                 10,800 of its updates, server and client, go to one line: namemap lock.",
                "FORECAST (not measured): keeps about 38% (19-76%) of its per-thread speed at 80 \
                 threads; the first line that stops it is namemap lock, with 88% of the waiting.",
            ),
            ..forecast("openssl@3.0", "OpenSSL 3.0.8 7 Feb 2023", [49.0, 9.0, 12.0])
        },
        Forecast {
            lines: vec![
                line("reference-count", "EVP_MD fetched", [212.0, 220.0, 0.0], 0.71, 0.83),
                line("lock", "provider store lock", [124.0, 169.0, 3.0], 0.2, 0.62),
            ],
            writes: vec![
                causes("lock", [250.0, 340.0, 12.0]),
                causes("reference-count", [431.0, 465.0, 93.0]),
            ],
            verdict: verdict(
                VerdictKind::Stops,
                "MEASURED: writes 681 times per handshake to memory that other threads write.",
                "FORECAST (not measured): keeps about 57% (29-100%) of its per-thread speed at 80 \
                 threads.",
            ),
            ..forecast("openssl@3.4", "OpenSSL 3.4.1 11 Feb 2025", [105.0, 60.0, 80.0])
        },
        Forecast {
            lines: vec![line("lock", "aws-lc RNG fork lock", [50.0, 16.0, 0.0], 0.97, 1.0)],
            writes: vec![
                causes("lock", [56.0, 16.0, 0.0]),
                causes("reference-count", [12.0, 4.0, 2.0]),
            ],
            verdict: verdict(
                VerdictKind::NoKneeFound,
                "MEASURED: writes 68 times per handshake to memory that other threads write.",
                "FORECAST (not measured): no knee found below 80 threads.",
            ),
            ..forecast(
                "rustls-aws-lc-rs",
                "rustls 0.23.46, aws-lc-rs 1.19",
                [9_000.0, 7_000.0, 8_000.0],
            )
        },
        Forecast {
            server: Curve::default(),
            client: Curve::default(),
            whole: Curve::default(),
            verdict: verdict(
                VerdictKind::NotEnoughToSay,
                "MEASURED: nothing was recorded that threads share.",
                "",
            ),
            ..forecast("s2n-tls", "s2n-tls 1.5.9", [1.0, 1.0, 1.0])
        },
    ]
}

/// A forecast whose sides halve their speed at so many threads.
fn forecast(stack: &str, version: &str, halves: [f64; 3]) -> Forecast {
    let [server, client, whole] = halves.map(curve);
    Forecast {
        stack: stack.into(),
        version: version.into(),
        scenario: Scenario::default(),
        profile: Profile {
            name: "altra".into(),
            transfer_ns: 145.0,
            source: "sample data: fitted on one published curve".into(),
        },
        base: Base {
            server_ns: 381_000.0,
            client_ns: 702_000.0,
            untimed_ns: 21_000.0,
            source: "sample data: one thread on no machine".into(),
        },
        server,
        client,
        whole,
        ..Forecast::default()
    }
}

fn curve(half: f64) -> Curve {
    let at = |threads: u32| 1.0 / (1.0 + (f64::from(threads) - 1.0) / half);
    let points = [1, 2, 4, 8, 14, 20, 32, 48, 62, 80].map(|threads| {
        let efficiency = at(threads);
        let fast = 1.0 / (1.0 + (f64::from(threads) - 1.0) / (half * 2.0));
        let (low, high) = (efficiency / 2.0, (fast * 2.0).min(1.0));
        let low = if threads == 1 { 1.0 } else { low };
        CurvePoint { threads, efficiency, low, high }
    });
    let knee = match (1..=80).find(|threads| at(*threads) < 0.7) {
        None => Knee::NoneBelow { threads: 80 },
        Some(threads) if threads < 14 => Knee::FewCores,
        Some(threads) => Knee::At { threads },
    };
    Curve { points: points.into(), knee }
}

fn line(
    class: &str,
    symbol: &str,
    writes: [f64; 3],
    share_of_waiting: f64,
    without: f64,
) -> LineCost {
    let path = ["CRYPTO_THREAD_read_lock", "evp_generic_fetch", "EVP_MD_fetch", "SSL_do_handshake"];
    LineCost {
        class: class.into(),
        symbol: symbol.into(),
        owner: "libcrypto.so.3".into(),
        lock: (class == "lock").then(|| "rw-lock".into()),
        writes,
        path: path.map(|function| format!("{function} (libcrypto.so.3)")).into(),
        share_of_waiting,
        without,
        without_band: [without / 2.0, (without * 2.0).min(1.0)],
        knee_without: match without {
            _ if without > 0.7 => Knee::NoneBelow { threads: 80 },
            _ if without > 0.5 => Knee::At { threads: 55 },
            _ => Knee::FewCores,
        },
    }
}

fn causes(cause: &str, writes: [f64; 3]) -> CauseWrites {
    CauseWrites { cause: cause.into(), writes }
}

fn verdict(kind: VerdictKind, measured: &str, forecast: &str) -> Verdict {
    Verdict { kind, measured: measured.into(), forecast: forecast.into() }
}

fn curves() -> [ValidatedCurve; 5] {
    let full = Scenario::default();
    let ticket = Scenario { kind: Kind::Ticket, ..Scenario::default() };
    let curves = [
        (
            "OpenSSL 3.0 full 1.3",
            "openssl@3.0",
            Some(&full),
            [0.92, 0.84, 0.63, 0.44, 0.38],
            [0.97, 0.91, 0.69, 0.43, 0.35],
        ),
        (
            "OpenSSL 3.0 ticket 1.3",
            "openssl@3.0",
            Some(&ticket),
            [0.52, 0.34, 0.15, 0.08, 0.058],
            [0.82, 0.61, 0.21, 0.09, 0.065],
        ),
        (
            "OpenSSL 3.4 full 1.3",
            "openssl@3.4",
            Some(&full),
            [0.98, 0.97, 0.91, 0.69, 0.57],
            [0.99, 0.99, 0.83, 0.82, 0.89],
        ),
        (
            "OpenSSL 3.4 ticket 1.3",
            "openssl@3.4",
            Some(&ticket),
            [0.62, 0.42, 0.19, 0.1, 0.075],
            [0.91, 0.82, 0.45, 0.23, 0.185],
        ),
        (
            "rustls full 1.3",
            "rustls-aws-lc-rs",
            Some(&full),
            [1.0, 1.0, 1.0, 0.99, 0.99],
            [1.0, 1.0, 1.0, 1.0, 1.0],
        ),
    ];
    curves.map(|(name, stack, scenario, forecast, published)| {
        let points = [8, 14, 32, 62, 80].into_iter().zip(forecast.into_iter().zip(published));
        let points = points.map(|(threads, (forecast, published))| ValidatedPoint {
            threads,
            published,
            forecast,
        });
        let first = ValidatedPoint { threads: 2, published: 1.0, forecast: 1.0 };
        ValidatedCurve {
            name: name.into(),
            fitted: name == "OpenSSL 3.0 full 1.3",
            source: "a published report, sample data".into(),
            points: [first].into_iter().chain(points).collect(),
            knee: [Knee::FewCores, Knee::At { threads: 19 }],
            recorded: format!("{stack} 1.2.3"),
            stack: stack.into(),
            scenario: scenario.cloned(),
            ..ValidatedCurve::default()
        }
    })
}

fn validation() -> Validation {
    let curves = curves();
    Validation {
        profile: Profile {
            name: "altra".into(),
            transfer_ns: 145.0,
            source: "fitted on OpenSSL 3.0 full 1.3".into(),
        },
        held_out: vec![ValidatedCurve { name: "a curve held out".into(), ..curves[4].clone() }],
        held_out_score: Score {
            unfitted: 1,
            within_twice: 1,
            points: [6, 6],
            baseline: [1, 6],
            ..Score::default()
        },
        score: Score {
            unfitted: 4,
            within_twice: 3,
            points: [20, 12],
            baseline: [2, 11],
            ..Score::default()
        },
        revisions: vec!["a change & another".into()],
        curves: curves.into(),
    }
}
