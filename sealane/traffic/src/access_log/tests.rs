//! Tests of the access log, with real files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

use sealane_config::AccessLogDestination;
use sealane_engine::buffer::Buffer;
use sealane_engine::client_certificates::Distrust;
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::session::{FLIGHT_BYTES_MAX, ServerSession, Session};
use sealane_lanes::cause::Cause;
use sealane_lanes::orders::ConnectionId;
use serde_json::{Value, json};

use super::*;
use crate::connection_number::NumberGiver;
use crate::proxy_header;

#[test]
fn lanes_write_at_once_and_every_line_stays_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (logs, writer) = open(&to_file(&path, 1 << 20), 4, no_report).unwrap();
    let lanes: Vec<_> = logs
        .into_iter()
        .enumerate()
        .map(|(lane, mut log)| {
            thread::spawn(move || {
                for number in 0..LINES {
                    let end = EndedConnection { lane, received_bytes: number, ..end() };
                    log.write(&Ended { backend: Some("10.0.0.1:80"), ..ended(&end, "main") });
                }
            })
        })
        .collect();
    lanes.into_iter().for_each(|lane| lane.join().unwrap());
    let counters = writer.lane_counters().to_vec();
    let written = Arc::clone(writer.counters());
    assert!(writer.stop());

    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(written.bytes.value(), text.len() as u64);
    for (lane, counters) in counters.iter().enumerate() {
        let numbers: Vec<_> = lines(&text)
            .into_iter()
            .filter(|line| line["lane"] == lane)
            .map(|line| line["received_bytes"].as_u64().unwrap())
            .collect();
        assert!(numbers.is_sorted(), "a lane's lines keep their order");
        assert_eq!(numbers.len() as u64, counters.lines.value());
        assert_eq!(counters.lines.value() + counters.dropped.value(), LINES);
    }
}

#[test]
fn refused_clients_get_ten_lines_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let (mut logs, writer) = open(&to_file(&path, 1 << 20), 1, no_report).unwrap();
    let end = EndedConnection { cause: Cause::Denied, ..end() };
    for second in [7, 8] {
        for _ in 0..50 {
            logs[0].write_refused_at(Timestamp::from_unix_s(second), &ended(&end, "main"));
        }
        logs[0].write_at(Timestamp::from_unix_s(second), &ended(&end, "other"));
    }
    drop(logs);
    assert!(writer.stop());
    let text = fs::read_to_string(&path).unwrap();
    let count = |listener| lines(&text).iter().filter(|line| line["listener"] == listener).count();
    assert_eq!((count("main"), count("other")), (20, 2));
}

#[test]
fn a_full_ring_drops_whole_lines_and_counts_them() {
    let (producer, mut consumer) = RingBuffer::new(1_000);
    let counters = Arc::new(LaneLogCounters::default());
    let mut log = LaneLog {
        ring: producer,
        entry: Vec::new(),
        health_checks: false,
        ja4: false,
        only: LoggedEnds::All,
        refusals: (0, 0),
        counters: Arc::clone(&counters),
    };
    for _ in 0..10 {
        log.write(&ended(&end(), "main"));
    }
    let chunk = consumer.read_chunk(consumer.slots()).unwrap();
    let (front, back) = chunk.as_slices();
    let text = String::from_utf8([front, back].concat()).unwrap();
    assert_eq!(lines(&text).len() as u64, counters.lines.value());
    assert!((1..10).contains(&counters.lines.value()));
    assert_eq!(counters.lines.value() + counters.dropped.value(), 10);
    chunk.commit_all();
    log.write(&ended(&end(), "main"));
    assert!(consumer.slots() > 0, "room again, and a line again");
}

#[test]
fn who_only_looks_whether_somebody_answers_has_a_line_if_that_is_wanted() {
    let own = announced("192.0.2.1:9", LOCAL);
    let others = announced("192.0.2.1:9", UNSPECIFIED);
    let clean = EndedConnection { received_bytes: 0, sent_bytes: 0, ..end() };
    let gone = EndedConnection { cause: Cause::ClientGone, ..end() };
    for (source, end, health_checks, expected) in [
        (&own, &clean, false, 0),
        (&own, &clean, true, 1),
        (&own, &end(), false, 1),
        (&own, &gone, false, 1),
        (&others, &clean, false, 1),
    ] {
        let (producer, _consumer) = RingBuffer::new(1_000);
        let counters = Arc::new(LaneLogCounters::default());
        let (entry, counted) = (Vec::new(), Arc::clone(&counters));
        let mut log = LaneLog {
            ring: producer,
            entry,
            health_checks,
            ja4: false,
            only: LoggedEnds::All,
            refusals: (0, 0),
            counters: counted,
        };
        log.write(&Ended { source: Some(source), ..ended(end, "main") });
        assert_eq!(counters.lines.value(), expected, "{source:?} {:?}", end.cause);
    }
}

#[test]
fn a_line_says_everything_about_a_connection() {
    let session = established(b"h2\xff\x1b[2J\"\n");
    let end = EndedConnection {
        client: Some("[2001:db8::1]:5000".parse().unwrap()),
        server_name: Some("a\"\n\u{9b}\u{7f}\u{202e}b\\"),
        session: Some(&session),
        handshake_us: Some(1_234),
        cause: Cause::BackendReset,
        ..end()
    };
    let mut text = Vec::new();
    let now = Timestamp::from_unix_s(951_782_400);
    let source = announced("192.0.2.1:9", UNSPECIFIED);
    let ended =
        Ended { backend: Some("unix:/run/b"), source: Some(&source), ..ended(&end, "main") };
    entry::format(&mut text, now, &ended).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.matches('\n').count(), 1);
    assert!(!text.trim_end().contains(char::is_control), "{text}");
    let expected = serde_json::json!({
        "time": "2000-02-29T00:00:00.000Z",
        "connection": ended.connection.to_string(),
        "client": "[2001:db8::1]:5000",
        "peer": "192.0.2.1:9",
        "listener": "main",
        "lane": 0,
        "generation": 7,
        "authority": "balancer.test",
        "unique_id": "id\u{fffd}",
        "server_name": "a\"\u{fffd}\u{fffd}\u{fffd}\u{fffd}b\\",
        "tls_version": "TLSv1.3",
        "extended_master_secret": null,
        "suite": "TLS_AES_128_GCM_SHA256",
        "group": "X25519",
        "alpn": "h2\u{fffd}\u{fffd}[2J\"\u{fffd}",
        "resumed": false,
        "handshake_ms": 1.234,
        "duration_ms": 20,
        "received_bytes": 30,
        "sent_bytes": 40,
        "backend": "unix:/run/b",
        "cause": "backend_reset",
        "blame": "backend",
        "reason": null,
        "alert": null,
        "alert_from": null,
        "offered_versions": null,
        "offered_suites": null,
        "ja4": null,
        "client_subject": null,
        "client_issuer": null,
        "client_serial": null,
        "client_names": null,
        "client_distrust": null,
    });
    assert_eq!(lines(&text), [expected]);
}

#[test]
fn what_is_not_known_is_null() {
    let mut text = Vec::new();
    entry::format(&mut text, Timestamp::now(), &ended(&end(), "main")).unwrap();
    let line = lines(std::str::from_utf8(&text).unwrap()).remove(0);
    for field in [
        "client",
        "peer",
        "authority",
        "unique_id",
        "server_name",
        "tls_version",
        "resumed",
        "handshake_ms",
        "backend",
    ] {
        assert!(line.as_object().unwrap()[field].is_null(), "{field}");
    }
}

#[test]
fn a_file_that_was_moved_away_is_opened_anew_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let (mut logs, writer) = open(&to_file(&path, 1 << 16), 1, no_report).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o007, 0);
    logs[0].write(&ended(&end(), "before"));
    wait_for(|| writer.counters().bytes.value() > 0);
    fs::rename(&path, &old).unwrap();
    writer.reopen();
    wait_for(|| path.exists());
    logs[0].write(&ended(&end(), "after"));
    assert!(writer.stop());
    let listeners = |path| lines(&fs::read_to_string(path).unwrap())[0]["listener"].clone();
    assert_eq!((listeners(&old), listeners(&path)), ("before".into(), "after".into()));
}

#[test]
fn full_disk_is_a_fault_until_a_line_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    symlink("/dev/full", &path).unwrap();
    let (tell, told) = channel();
    let report = move |error: &AccessLogError| tell.send(error.to_string()).unwrap();
    let (mut logs, writer) = open(&to_file(&path, 1 << 16), 1, report).unwrap();
    for count in 1..=3 {
        logs[0].write(&ended(&end(), "lost"));
        wait_for(|| writer.counters().lost.value() == count);
    }
    wait_for(|| writer.counters().fault().is_some());
    writer.reopen();
    assert_eq!(writer.counters().fault().unwrap().without, "its lines are lost, and counted");
    fs::remove_file(&path).unwrap();
    writer.reopen();
    assert_eq!(writer.counters().fault(), None);
    logs[0].write(&ended(&end(), "kept"));
    let counters = Arc::clone(writer.counters());
    assert!(writer.stop());
    assert_eq!(lines(&fs::read_to_string(&path).unwrap()).len(), 1);
    assert_eq!((counters.lost.value(), counters.errors.value()), (3, 3));
    let told: Vec<_> = told.iter().collect();
    assert!(
        told.len() == 1 && told[0].contains("access.log cannot be written: No space left"),
        "{told:?}"
    );
}

#[test]
fn a_line_says_who_came_and_why_nobody_believes_it() {
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let logged = |end: &EndedConnection<'_>, doubted: Option<&Distrust>| {
        let mut text = Vec::new();
        let ended = Ended { doubted, ..ended(end, "main") };
        entry::format(&mut text, Timestamp::now(), &ended).unwrap();
        serde_json::from_slice::<Value>(&text).unwrap()
    };
    let missing = logged(&EndedConnection { cause: Cause::ClientCertificate, ..end() }, None);
    assert_eq!(
        (&missing["client_distrust"], &missing["client_subject"]),
        (&json!("missing"), &Value::Null)
    );
    let refused = EndedConnection {
        cause: Cause::ClientCertificate,
        distrust: Some(&Distrust::Revoked),
        refused_certificate: Some(made.cert.der()),
        ..end()
    };
    let line = logged(&refused, None);
    assert_eq!(line["client_distrust"], "revoked");
    assert_eq!(line["client_subject"], "CN=rcgen self signed cert");
    assert_eq!(line["client_names"], "DNS:a.test");
    assert_eq!(logged(&end(), Some(&Distrust::UnknownIssuer))["client_distrust"], "unknown_ca");
}

#[test]
fn missing_folder_is_reported_and_may_come_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs/access.log");
    let (sender, reports) = channel();
    let report = move |error: &AccessLogError| sender.send(error.to_string()).unwrap();
    let (mut logs, writer) = open(&to_file(&path, 1_000), 1, report).unwrap();
    let error = reports.recv().unwrap();
    assert!(error.contains("/logs/access.log cannot be opened: No such file"), "{error}");
    assert!(writer.counters().fault().is_some());
    fs::create_dir(folder.path().join("logs")).unwrap();
    wait_for(|| writer.counters().fault().is_none());
    logs[0].write(&ended(&end(), "late"));
    drop(logs);
    assert!(writer.stop());
    assert_eq!(lines(&fs::read_to_string(path).unwrap()).len(), 1);
}

/// To open a pipe would wait for its reader, and nothing would be written or reported any more.
#[test]
fn pipe_without_a_reader_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
    let (mut logs, writer) = open(&to_file(&path, 1_000), 1, |_| ()).unwrap();
    let fault = writer.counters().fault().unwrap();
    assert_eq!(fault.destination, path);
    assert!(fault.text.contains("/log cannot be opened: no process reads this pipe"), "{fault:?}");
    let mut reader = std::io::BufReader::new(fs::File::open(&path).unwrap());
    wait_for(|| writer.counters().fault().is_none());
    logs[0].write(&ended(&end(), "read"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert!(line.contains("\"read\""), "{line}");
    // Another reader has nothing to do with lines that the first one lost.
    drop(reader);
    logs[0].write(&ended(&end(), "lost"));
    wait_for(|| writer.counters().fault().is_some());
    let reader = fs::File::open(&path).unwrap();
    writer.reopen();
    assert_eq!(writer.counters().fault(), None);
    // At a reload, without a reader: the pipe that is open goes on.
    drop(reader);
    writer.reopen();
    assert_eq!(
        writer.counters().fault().unwrap().without,
        "lines go into the file that was open before"
    );
    drop(logs);
    assert!(writer.stop(), "it does not hang");
}

#[test]
fn failed_reopen_is_a_fault_until_it_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let logs = |name: &str| folder.path().join(name);
    fs::create_dir(logs("logs")).unwrap();
    let path = logs("logs").join("log");
    let (_lanes, writer) = open(&to_file(&path, 1_000), 1, |_| ()).unwrap();
    writer.reopen();
    assert_eq!(writer.counters().fault(), None);
    fs::rename(logs("logs"), logs("away")).unwrap();
    writer.reopen();
    let fault = writer.counters().fault().unwrap();
    assert!(fault.text.contains("cannot be opened: No such file"), "{fault:?}");
    fs::create_dir(logs("logs")).unwrap();
    wait_for(|| writer.counters().fault().is_none());
    assert!(path.exists());
}

fn end() -> EndedConnection<'static> {
    EndedConnection {
        id: ConnectionId::from_bits(1),
        cause: Cause::Clean,
        client: None,
        listener: 0,
        generation: 7,
        lane: 0,
        server_name: None,
        session: None,
        distrust: None,
        refused_certificate: None,
        offered: None,
        ja4: None,
        failure: None,
        handshake_us: None,
        duration_ms: 20,
        received_bytes: 30,
        sent_bytes: 40,
    }
}

fn ended<'a>(end: &'a EndedConnection<'a>, listener: &'a str) -> Ended<'a> {
    let giver = NumberGiver { process: 0x19a, lane: end.lane };
    let connection = giver.number(end.id);
    Ended { backend: None, connection, doubted: None, end, listener, source: None }
}

/// What a header with `command` and family announces of a connection from `peer`.
fn announced(peer: &str, command: [u8; 2]) -> Source {
    let values = [&b"\x02\0\x0dbalancer.test"[..], b"\x05\0\x03id\x1b"].concat();
    let len = u16::try_from(values.len()).unwrap().to_be_bytes();
    let bytes = [&proxy_header::SIGNATURE[..], &command, &len, &values].concat();
    let header = proxy_header::decode(&bytes).unwrap().unwrap();
    Source::of(&header, peer.parse().ok(), false, &[])
}

/// A connection that tells no addresses.
const UNSPECIFIED: [u8; 2] = [0x21, 0];
/// A connection of the sender's own.
const LOCAL: [u8; 2] = [0x20, 0];

fn to_file(path: &Path, buffer_bytes: usize) -> AccessLog {
    let destination = AccessLogDestination::File(path.to_owned());
    let only = LoggedEnds::All;
    AccessLog { destination, buffer_bytes, health_checks: false, ja4: false, only }
}

fn no_report(error: &AccessLogError) {
    panic!("{error}");
}

/// Every line must be whole, or it would not parse.
fn lines(text: &str) -> Vec<Value> {
    assert!(text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The writer has a thread of its own; the test ends when this holds, or hangs.
fn wait_for(happened: impl Fn() -> bool) {
    while !happened() {
        thread::yield_now();
    }
}

/// A session after a handshake in memory that agreed on `alpn`.
fn established(alpn: &[u8]) -> ServerSession {
    let crypto = lane_provider(ProviderChoice::AwsLc, &[Group::X25519]).unwrap().crypto;
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let chain = vec![params.self_signed(&key).unwrap().der().clone()];
    let mut roots = rustls::RootCertStore::empty();
    roots.add(chain[0].clone()).unwrap();
    let crypto = Arc::new(crypto);
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&crypto))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key.into())
        .unwrap();
    server.alpn_protocols = vec![alpn.to_vec()];
    let mut client = rustls::ClientConfig::builder_with_provider(crypto)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![alpn.to_vec()];
    let name = "localhost".try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
    let mut session = ServerSession::new(Arc::new(server)).unwrap();
    let mut plain = Buffer::with_capacity(FLIGHT_BYTES_MAX);
    let mut wire = Buffer::with_capacity(FLIGHT_BYTES_MAX);
    while !session.is_established() {
        let mut sent = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut sent).unwrap();
        }
        session.feed(&mut sent, &mut plain, &mut wire).unwrap();
        let mut received = wire.filled();
        while !received.is_empty() {
            client.read_tls(&mut received).unwrap();
            client.process_new_packets().unwrap();
        }
        wire.clear();
    }
    session
}

const LINES: u64 = 5_000;
