//! Tests of the metrics, read as strictly as Prometheus reads them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::SystemTime;

use sealane_config::ClientDemand;
use sealane_engine::certificates::{Inventory, InventoryEntry, KeyType};
use sealane_engine::client_certificates::RevocationList;
use sealane_listeners::{ClientsSummary, Expiry, RootFile, Summary, Usage};
use sealane_traffic::access_log::{LaneLogCounters, WriterCounters};
use sealane_traffic::admission::ListenerCounters;
use sealane_traffic::backends::HANDSHAKE_FAILURES;

use super::*;
use crate::state::{BackendSummary, Verdict, plain_listener};

#[test]
fn every_line_is_what_prometheus_reads_and_no_series_comes_twice() {
    let generation = Arc::new(());
    let mut state = busy();
    state.generations.publish(2, &Arc::new(()));
    state.generations.publish(3, &generation);
    let series = parse(&render(&state));
    for lane in ["0", "1"] {
        assert_eq!(series[&format!("sealane_lane_generation{{lane=\"{lane}\"}}")], 3.0);
    }
    let of = |prefix: &str| series.keys().filter(|key| key.starts_with(prefix)).count();
    assert_eq!(of("sealane_handshakes_total{"), 2 * 20);
    assert_eq!(of("sealane_connections_ended_total{"), 2 * Cause::ALL.len());
    assert_eq!(of("sealane_handshake_duration_seconds_bucket{"), 2 * 15);
    assert_eq!(of("sealane_crl_expires_seconds{"), 2, "of two lists of an issuer the first to end");
    assert_eq!(of("sealane_client_roots_not_after_seconds{"), 1);
    let idle = "sealane_connections_ended_total{lane=\"1\",cause=\"idle\",blame=\"nobody\"}";
    assert_eq!(series[idle], 5.0);
    let received = "sealane_plaintext_bytes_total{lane=\"0\",direction=\"received\"}";
    assert_eq!(series[received], 1e6);
    assert_eq!(series["sealane_reloads_total{outcome=\"refused\"}"], 1.0);
    assert_eq!(series["sealane_reload_last_accepted"], 0.0);
    assert_eq!(series["sealane_generations_live"], 1.0);
    assert_eq!(series["sealane_phase{phase=\"serving\"}"], 1.0);
    assert_eq!(series["sealane_phase{phase=\"draining\"}"], 0.0);
    assert_eq!(series["sealane_access_log_dropped_total{lane=\"0\"}"], 9.0);
    let accepted = "sealane_listener_connections_accepted_total{listener=\"a\\\"b\\\\c\\nd\",";
    assert_eq!(series[&format!("{accepted}lane=\"1\"}}")], 7.0);
    for (name, samples) in [
        ("connections", 1),
        ("connections_accepted_total", 1),
        ("connections_ended_total", 5),
        ("handshakes_total", 2),
        ("plaintext_bytes_total", 2),
    ] {
        assert_eq!(of(&format!("sealane_listener_{name}{{")), 2 * samples, "{name}");
    }
    assert_eq!(of("sealane_backend_connected_total{"), 3);
    assert_eq!(series["sealane_backend_up{backend=\"a:1\",address=\"192.0.2.2:1\"}"], 0.0);
    let backend = "backend=\"tls://a:2\",address=\"192.0.2.1:2\",lane=\"0\"";
    let resumed = format!("sealane_backend_handshakes_total{{{backend},resumed=\"true\"}}");
    assert_eq!((series[&resumed], of("sealane_backend_handshakes_total{")), (1.0, 2));
    assert_eq!(of("sealane_backend_handshakes_failed_total{"), HANDSHAKE_FAILURES.len());
    assert_eq!(of("sealane_backend_certificate_not_after_seconds{"), 1);
}

#[test]
fn a_certificate_that_differs_in_no_label_is_shown_once_and_names_are_escaped() {
    let text = render(&busy());
    let expiry: Vec<_> =
        text.lines().filter(|line| line.starts_with("sealane_certificate_not_after")).collect();
    let of = |key, at| {
        let labels = format!("listener=\"a\\\"b\\\\c\\nd\",name=\"a.example\",key=\"{key}\"");
        format!("sealane_certificate_not_after_seconds{{{labels}}} {at}")
    };
    assert_eq!(expiry, [of("RSA", 100), of("Ed25519", 101)]);
    assert!(text.contains("sealane_certificates{listener=\"a\\\"b\\\\c\\nd\"} 70000\n"));
}

#[test]
fn a_histogram_grows_up_to_its_count() {
    let mut exposition = Exposition::default();
    let mut family = exposition.family("t_seconds", Kind::Histogram, "T.");
    let cumulative = std::array::from_fn(|bucket| bucket as u64 * 2);
    histogram_of_lane(&mut family, 3, cumulative, 1_500_000);
    let series = parse(&exposition.into_text());
    assert_eq!(series["t_seconds_bucket{lane=\"3\",le=\"0.0002\"}"], 2.0);
    assert_eq!(series["t_seconds_bucket{lane=\"3\",le=\"5\"}"], 26.0);
    assert_eq!(series["t_seconds_bucket{lane=\"3\",le=\"+Inf\"}"], 28.0);
    assert_eq!(series["t_seconds_count{lane=\"3\"}"], 28.0);
    assert_eq!(series["t_seconds_sum{lane=\"3\"}"], 1.5);
}

fn list((next_update_s, issuer): (i64, &str)) -> RevocationList {
    RevocationList {
        issuer: Box::default(),
        issuer_text: issuer.into(),
        label: String::new(),
        next_update_s,
        this_update_s: 0,
    }
}

fn busy() -> ControlState {
    let lanes = [Arc::new(Counters::default()), Arc::new(Counters::default())];
    lanes.iter().for_each(|lane| lane.generation.set(3));
    lanes[0].received_bytes.add(1_000_000);
    lanes[1].ended(Cause::Idle).add(5);
    let listener = "a\"b\\c\nd".to_owned();
    let certificate =
        |key_type, not_after_s| InventoryEntry::new("a.pem", key_type, &["a.example"], not_after_s);
    let log = LaneLogCounters::default();
    log.dropped.add(9);
    let backend = Arc::new(BackendCounters::default());
    backend.note_handshake(true);
    backend.note_handshake_failure(Cause::BackendCertificateName);
    let counted = ListenerCounters::new(1, 2);
    counted.lanes[1].accepted.add(7);
    let summary = |label: &str, address: &str, lane| BackendSummary {
        address: address.into(),
        other_labels: Vec::new(),
        checked: Some(Err("it is away".into())),
        label: label.into(),
        lanes: vec![lane],
        tls: false,
    };
    let mut state = ControlState {
        phase: Phase::Serving,
        lanes: lanes.to_vec(),
        backends: vec![
            summary("a:1", "192.0.2.1:1", Arc::default()),
            summary("a:1", "192.0.2.2:1", Arc::default()),
            BackendSummary { tls: true, ..summary("tls://a:2", "192.0.2.1:2", backend) },
        ],
        listeners_counted: vec![(listener.clone(), counted)],
        listeners: vec![Summary {
            certificates: Inventory {
                certificates: 70_000,
                names: 80_000,
                soonest: vec![
                    certificate(KeyType::Rsa { bits: 2048 }, 100),
                    certificate(KeyType::Ed25519, 101),
                    certificate(KeyType::Rsa { bits: 4096 }, 102),
                ],
            },
            clients: Some(ClientsSummary {
                demand: Some(ClientDemand::Required),
                lists: [(103, "CN=a"), (102, "CN=a"), (104, "CN=b")].map(list).into(),
                roots: vec![RootFile {
                    not_after_s: 105,
                    source: "clients.pem".into(),
                    unjudged: BTreeSet::new(),
                }],
            }),
            expiries: vec![Expiry { not_after_s: 99, source: "ca.pem".into(), usage: Usage::Root }],
            ..plain_listener(&listener)
        }],
        access_log: Some(AccessLogCounters {
            lanes: vec![Arc::new(log)],
            writer: Arc::new(WriterCounters::default()),
        }),
        ..ControlState::default()
    };
    let errors = vec!["no".to_owned()];
    state.reloads.count(SystemTime::now(), Verdict { errors, ..Verdict::default() });
    state
}

/// Values by series; panics at whatever Prometheus would refuse, and at a series that comes twice.
fn parse(text: &str) -> HashMap<String, f64> {
    assert!(text.ends_with('\n'));
    let mut series = HashMap::new();
    let mut families = HashSet::new();
    let (mut family, mut kind) = ("", "");
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').unwrap().0;
            assert!(is_name(family) && families.insert(family), "{line}");
            let line = lines.next().unwrap();
            let (named, of_kind) = line.strip_prefix("# TYPE ").unwrap().split_once(' ').unwrap();
            assert_eq!(named, family);
            kind = of_kind;
            assert_eq!(kind == "counter", family.ends_with("_total"), "{line}");
            continue;
        }
        let (key, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
        let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("strayed: {line}"));
        match kind {
            "histogram" => assert!(["_bucket", "_sum", "_count"].contains(&suffix), "{line}"),
            "counter" | "gauge" => assert_eq!(suffix, "", "{line}"),
            _ => panic!("no kind: {line}"),
        }
        check_labels(labels);
        assert!(series.insert(key.to_owned(), value.parse().unwrap()).is_none(), "twice: {line}");
    }
    series
}

/// `name="value",...}` with nothing unescaped in a value, and no name twice.
fn check_labels(labels: &str) {
    let mut rest = labels;
    let mut names = HashSet::new();
    while rest != "}" {
        let (name, value) = rest.split_once("=\"").unwrap();
        assert!(is_name(name) && names.insert(name), "{labels}");
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => assert!(matches!(chars.next(), Some((_, '\\' | '"' | 'n')))),
                _ => {}
            }
        };
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    chars.next().is_some_and(|c| word(c) && !c.is_ascii_digit()) && chars.all(word)
}
