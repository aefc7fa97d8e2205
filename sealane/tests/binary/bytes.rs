//! Bytes and ends: what one side sends the other gets, whole, in TLS 1.2 and 1.3, and every end
//! arrives as what it was.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use tempfile::TempDir;

use crate::harness::backend::{Backend, reset};
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::{PATIENCE, noise, sha256};

/// Sealane in front of a backend that a test wrote, and what that backend reports.
struct Relay<R> {
    sealane: Sealane,
    address: SocketAddr,
    connectors: [Connector; 2],
    reports: Receiver<R>,
    _folder: TempDir,
}

impl<R: Send + 'static> Relay<R> {
    fn start(serve: impl Fn(TcpStream) -> R + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let (report, reports) = channel();
        let report = Mutex::new(report);
        let backend = Backend::start(move |stream| {
            let seen = serve(stream);
            // A test may have seen enough.
            let _ = report.lock().unwrap().send(seen);
        });
        let listener = ListenerSettings::new("relay", &certificate, &backend.address);
        let address = listener.address;
        let sealane = Sealane::start(folder.path(), &Settings::new(vec![listener]));
        let connectors = VERSIONS.map(|version| Connector::new(authority.der(), version));
        Self { sealane, address, connectors, reports, _folder: folder }
    }

    fn connect(&self, connector: &Connector) -> Client {
        connector.connect(self.address).unwrap()
    }

    fn report(&self) -> R {
        self.reports.recv_timeout(PATIENCE).expect("the backend reports nothing")
    }
}

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

/// Reads a length and a direction; then takes that many bytes and answers with their hash, or sends
/// that many.
fn transfer(mut stream: TcpStream) -> io::Result<()> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let len = usize::try_from(u64::from_be_bytes(head[1..].try_into().unwrap())).unwrap();
    match head[0] {
        DOWN => stream.write_all(&noise(len, len as u64)),
        UP => {
            let mut bytes = Vec::with_capacity(len);
            stream.read_to_end(&mut bytes)?;
            stream.write_all(sha256(&bytes).as_bytes())
        }
        other => panic!("direction {other}"),
    }
}

const DOWN: u8 = 0;
const UP: u8 = 1;

fn head(direction: u8, len: usize) -> [u8; 9] {
    let mut head = [direction; 9];
    head[1..].copy_from_slice(&(len as u64).to_be_bytes());
    head
}

/// Has `len` bytes sent by the backend, to its clean end.
fn download(mut client: Client, len: usize) {
    client.write_all(&head(DOWN, len)).unwrap();
    let bytes = client.read_rest().unwrap();
    assert_eq!(bytes.len(), len);
    assert_eq!(sha256(&bytes), sha256(&noise(len, len as u64)));
    client.end(true).unwrap();
}

/// Sends `len` bytes, ends its direction, and then reads the answer: half-closed.
fn upload(mut client: Client, len: usize, fin: bool) {
    let bytes = noise(len, 7);
    client.write_all(&head(UP, len)).unwrap();
    client.write_all(&bytes).unwrap();
    client.end(fin).unwrap();
    let answer = client.read_rest().unwrap();
    assert_eq!(String::from_utf8(answer).unwrap(), sha256(&bytes));
}

#[test]
fn a_byte_to_100_megabytes_each_way() {
    let relay = Relay::start(transfer);
    for connector in &relay.connectors {
        for len in [1, 16_383, 16_384, 16_385, 1_000_000, 100_000_000] {
            download(relay.connect(connector), len);
            upload(relay.connect(connector), len, len % 2 == 0);
        }
    }
    let metrics = relay.sealane.wait_for_metrics("all have ended", |m| m.open() == 0);
    assert_eq!(metrics.ended("clean"), 24, "{}", metrics.ends());
    assert_eq!(relay.sealane.stop(), Some(0));
}

#[test]
fn several_at_once_each_way() {
    let relay = Relay::start(transfer);
    thread::scope(|scope| {
        for (index, connector) in (0..12).zip(relay.connectors.iter().cycle()) {
            let address = relay.address;
            scope.spawn(move || {
                for len in [1, 40_000, 3_000_000 + index] {
                    download(connector.connect(address).unwrap(), len);
                    upload(connector.connect(address).unwrap(), len, index % 2 == 0);
                }
            });
        }
    });
    let metrics = relay.sealane.wait_for_metrics("all have ended", |m| m.open() == 0);
    assert_eq!(metrics.ended("clean"), 72, "{}", metrics.ends());
}

#[test]
fn both_ways_at_once_on_one_connection() {
    let len = 20_000_000;
    let relay = Relay::start(move |mut stream| {
        let mut receiving = stream.try_clone().unwrap();
        let receiver = thread::spawn(move || {
            let mut bytes = Vec::new();
            receiving.read_to_end(&mut bytes).map(|_| sha256(&bytes))
        });
        stream.write_all(&noise(len, 1)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        receiver.join().unwrap()
    });
    for connector in &relay.connectors {
        let client = relay.connect(connector);
        let got = send_while_receiving(client, &noise(len, 2)).unwrap();
        assert_eq!(sha256(&got), sha256(&noise(len, 1)));
        assert_eq!(relay.report().unwrap(), sha256(&noise(len, 2)));
    }
}

/// Sends `bytes` and the end on one thread while another receives to the clean end.
fn send_while_receiving(client: Client, bytes: &[u8]) -> io::Result<Vec<u8>> {
    let Client { tls, mut stream } = client;
    let tls = Arc::new(Mutex::new(tls));
    let (receiving, mut raw) = (Arc::clone(&tls), stream.try_clone()?);
    let receiver = thread::spawn(move || -> io::Result<Vec<u8>> {
        let (mut got, mut wire) = (Vec::new(), vec![0; 64 << 10]);
        loop {
            let len = raw.read(&mut wire)?;
            let mut tls = receiving.lock().unwrap();
            let mut rest = &wire[..len];
            loop {
                tls.read_tls(&mut rest)?;
                tls.process_new_packets().map_err(io::Error::other)?;
                match tls.reader().read_to_end(&mut got) {
                    Ok(_) => return Ok(got),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                if rest.is_empty() {
                    break;
                }
            }
        }
    });
    // Only this thread writes to the socket, so records leave in the order they were made.
    let mut wire = Vec::new();
    for chunk in bytes.chunks(32 << 10) {
        seal(&mut tls.lock().unwrap(), &mut wire, |tls| tls.writer().write_all(chunk))?;
        stream.write_all(&wire)?;
    }
    seal(&mut tls.lock().unwrap(), &mut wire, |tls| {
        tls.send_close_notify();
        Ok(())
    })?;
    stream.write_all(&wire)?;
    receiver.join().unwrap()
}

fn seal(
    tls: &mut rustls::ClientConnection,
    wire: &mut Vec<u8>,
    change: impl FnOnce(&mut rustls::ClientConnection) -> io::Result<()>,
) -> io::Result<()> {
    wire.clear();
    change(tls)?;
    while tls.wants_write() {
        tls.write_tls(wire)?;
    }
    Ok(())
}

#[test]
fn a_client_that_ends_first_still_gets_its_answer() {
    // The answer is longer than all buffers on the way, and starts only after the end.
    let len = 8_000_000;
    let relay = Relay::start(move |mut stream| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(&noise(len, bytes.len() as u64)).unwrap();
    });
    for connector in &relay.connectors {
        for fin in [false, true] {
            let mut client = relay.connect(connector);
            client.write_all(&[1; 1_000]).unwrap();
            client.end(fin).unwrap();
            assert_eq!(sha256(&client.read_rest().unwrap()), sha256(&noise(len, 1_000)));
        }
    }
    let metrics = relay.sealane.wait_for_metrics("all have ended", |m| m.open() == 0);
    assert_eq!(metrics.ended("clean"), 4);
}

#[test]
fn a_client_may_end_before_it_says_anything() {
    let relay = Relay::start(|mut stream| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        stream.write_all(b"nothing was said").unwrap();
        bytes.len()
    });
    for connector in &relay.connectors {
        let mut client = relay.connect(connector);
        client.end(true).unwrap();
        assert_eq!(client.read_rest().unwrap(), b"nothing was said");
        assert_eq!(relay.report(), 0);
    }
}

#[test]
fn a_client_may_go_on_sending_after_the_backend_has_ended() {
    let len = 5_000_000;
    let relay = Relay::start(|mut stream| {
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(b"enough").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| sha256(&bytes))
    });
    for connector in &relay.connectors {
        let mut client = relay.connect(connector);
        client.write_all(b"hello").unwrap();
        assert_eq!(client.read_rest().unwrap(), b"enough");
        // The end that came must not have ended our own direction.
        let bytes = noise(len, 3);
        client.write_all(&bytes).unwrap();
        client.end(true).unwrap();
        assert_eq!(relay.report().unwrap(), sha256(&bytes));
    }
    let metrics = relay.sealane.wait_for_metrics("all have ended", |m| m.open() == 0);
    assert_eq!(metrics.ended("clean"), 2);
}

#[test]
fn a_backend_may_speak_first() {
    let relay = Relay::start(|mut stream| {
        stream.write_all(b"220 ready\r\n").unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes.len())
    });
    for connector in &relay.connectors {
        let mut client = relay.connect(connector);
        let mut banner = [0; 11];
        client.read_exact(&mut banner).unwrap();
        assert_eq!(&banner, b"220 ready\r\n");
        client.end(true).unwrap();
        assert_eq!(relay.report().unwrap(), 0);
        assert_eq!(client.read_rest().unwrap(), b"");
    }
}

#[test]
fn an_answer_that_its_backend_cuts_never_looks_whole() {
    for sent in [0, 1_000, 300_000] {
        let relay = Relay::start(move |mut stream| {
            let mut request = [0; 4];
            stream.read_exact(&mut request).unwrap();
            stream.write_all(&noise(sent, 1)).unwrap();
            reset(stream);
        });
        for connector in &relay.connectors {
            for ends_first in [false, true] {
                let mut client = relay.connect(connector);
                client.write_all(b"half").unwrap();
                if ends_first {
                    client.end(false).unwrap();
                }
                let error = client.read_rest().expect_err("a cut answer looks whole");
                assert!(is_cut(error.kind()), "{error:?}");
            }
        }
        let metrics = relay.sealane.wait_for_metrics("all have ended", |m| m.open() == 0);
        assert_eq!(metrics.ended("backend_reset"), 4, "{}", metrics.ends());
        assert_eq!(metrics.ended("clean"), 0);
    }
}

/// Without close_notify, and mostly with RST.
fn is_cut(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}

#[test]
fn a_client_that_vanishes_or_is_cut_never_looks_finished() {
    let relay = Relay::start(|mut stream| {
        let mut bytes = vec![0; 1 << 16];
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(len) => stream.write_all(&bytes[..len]).unwrap(),
                Err(error) => return Some(error.kind()),
            }
        }
    });
    for connector in &relay.connectors {
        let mut vanishes = relay.connect(connector);
        vanishes.echo(b"here").unwrap();
        reset(vanishes.stream);
        assert_eq!(relay.report(), Some(ErrorKind::ConnectionReset), "the client sent RST");

        let mut truncated = relay.connect(connector);
        truncated.echo(b"here").unwrap();
        truncated.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(relay.report(), Some(ErrorKind::ConnectionReset), "FIN without close_notify");

        // In the middle of a record, whose first half must not reach the backend.
        let mut cut = relay.connect(connector);
        cut.echo(b"here").unwrap();
        cut.tls.writer().write_all(&[b'x'; 10_000]).unwrap();
        let mut wire = Vec::new();
        cut.tls.write_tls(&mut wire).unwrap();
        cut.stream.write_all(&wire[..wire.len() / 2]).unwrap();
        cut.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(relay.report(), Some(ErrorKind::ConnectionReset), "half a record");
    }
    let metrics = relay.sealane.wait_for_metrics("all have ended", |m| m.open() == 0);
    assert_eq!(metrics.ended("client_reset"), 2, "{}", metrics.ends());
    assert_eq!(metrics.ended("client_truncated"), 4, "{}", metrics.ends());
    assert_eq!(metrics.ended("clean"), 0);
}

#[test]
fn a_backend_that_does_not_read_stops_its_client_and_no_other() {
    let go = Arc::new(Barrier::new(2));
    let told = Arc::clone(&go);
    let relay = Relay::start(move |mut stream| {
        let mut kind = [0];
        stream.read_exact(&mut kind).unwrap();
        stream.write_all(&kind).unwrap();
        if kind[0] == b'e' {
            return 1;
        }
        told.wait();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        bytes.len()
    });
    let connector = &relay.connectors[1];
    let mut stuck = relay.connect(connector);
    stuck.write_all(b"s").unwrap();
    let mut answer = [0];
    stuck.read_exact(&mut answer).unwrap();
    let sender = thread::spawn(move || {
        stuck.write_all(&vec![0; 30_000_000]).unwrap();
        stuck.end(true).unwrap();
        stuck
    });
    for _ in 0..20 {
        relay.connect(connector).echo(b"e").unwrap();
    }
    go.wait();
    sender.join().unwrap();
    let mut seen: Vec<usize> = (0..21).map(|_| relay.report()).collect();
    seen.sort_unstable();
    assert_eq!((seen[0], seen[19], seen[20]), (1, 1, 30_000_000));
}

#[test]
fn a_backend_that_answered_whole_and_left_does_not_cut_its_answer() {
    let answer = noise(1_000_000, 9);
    let sent = answer.clone();
    let (tell, told) = channel();
    let told = Mutex::new(told);
    let site = Relay::start(move |mut stream| {
        stream.read_exact(&mut [0]).unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        // Until then Sealane's kernel has taken all of it.
        told.lock().unwrap().recv().unwrap();
    });
    for connector in &site.connectors {
        let mut client = site.connect(connector);
        client.write_all(b"?").unwrap();
        thread::sleep(Duration::from_millis(300));
        tell.send(()).unwrap();
        site.report();
        // The backend answers the first of these with a reset, and the second cannot be sent.
        for _ in 0..3 {
            client.write_all(b"more").unwrap();
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(sha256(&client.read_rest().unwrap()), sha256(&answer));
        client.end(true).unwrap();
    }
    site.sealane.wait_for_metrics("clean ends", |metrics| metrics.ended("clean") == 2);
}
