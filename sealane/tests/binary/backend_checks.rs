//! Checks of backends while nobody uses them: who is away, stopped, silent or somebody else.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use sealane_reserved_port::ReservedPort;

use crate::backends::{Lettered, Site, start};
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::peers::quiet;
use crate::harness::secured::SecuredBackend;
use crate::harness::tools::required;
use crate::harness::wait_for;

fn up(site: &Site, address: SocketAddr) -> u64 {
    let address = address.to_string();
    site.sealane.metrics().sum("sealane_backend_up", &[("address", &address)])
}

fn failed(site: &Site) -> u64 {
    site.sealane.metrics().sum("sealane_backend_failed_total", &[])
}

#[test]
fn who_is_away_is_found_before_a_client_is_sent_there() {
    let [mut a, b] = [b'a', b'b'].map(Lettered::start);
    let mut site = start(&format!(
        "backends = [\"{}\", \"{}\"]\n[listener.check]\nevery = \"100ms\"\nfall = 2\nrise = 1",
        a.address(),
        b.address(),
    ));
    a.leave();
    let address = a.address();
    let line = |what: &str| format!("backend {address} at {address} is {what}");
    site.sealane.wait_until_said(&line("down: it cannot be connected to: Connection refused"));
    assert_eq!(up(&site, a.address()), 0);
    assert!(site.sealane.admin("/state").contains("\"state\": \"down\""));
    // A lane has the news a moment later. From then on nothing is tried in vain.
    wait_for("all are sent to the other", || {
        let before = failed(&site);
        let all_to_b = site.letters(4) == BTreeMap::from([('b', 4)]);
        (all_to_b && failed(&site) == before).then_some(())
    });
    let up_again = site.sealane.count_said(&line("up")) + 1;
    a.come_back();
    site.sealane.wait_until_said_times(&line("up"), up_again);
    wait_for("it has its share again", || {
        (site.letters(4) == BTreeMap::from([('a', 2), ('b', 2)])).then_some(())
    });
    assert_eq!(up(&site, a.address()), 1);
    assert_eq!(site.sealane.stop(), Some(0));
}

#[test]
fn what_was_found_of_a_backend_holds_over_a_reload_and_so_does_its_slow_start() {
    let [mut a, mut b] = [b'a', b'b'].map(Lettered::start);
    a.leave();
    let lines = |check: &str| {
        let [a, b] = [&a, &b].map(Lettered::address);
        format!("backends = [\"{a}\", \"{b}\"]\n[listener.check]\n{check}")
    };
    const QUICK: &str = "every = \"100ms\"\nrise = 1\nfall = 1";
    // In all likelihood none is made while this runs.
    const NEVER: &str = "every = \"1h\"\nfall = 100";
    let [quick, never, slow] = [QUICK, NEVER, &format!("{QUICK}\nslow_start = \"1h\"")].map(lines);
    let mut site = start(&quick);
    let line =
        |backend: &Lettered, what: &str| format!("backend {0} at {0} is {what}", backend.address());
    site.sealane.wait_until_said(&line(&a, "down"));
    site.sealane.wait_until_said(&line(&b, "up"));
    let all_to_b = BTreeMap::from([('b', 4)]);

    site.reload(&never);
    assert_eq!([up(&site, a.address()), up(&site, b.address())], [0, 1]);
    assert!(site.sealane.admin("/state").contains("\"state\": \"down\""));
    a.come_back();
    assert_eq!(site.letters(4), all_to_b, "until a check has said something else");
    assert_eq!(failed(&site), 0, "nobody was sent to who is down");

    site.reload(&slow);
    site.sealane.wait_until_said(&line(&a, "up"));
    // That a lane has heard of it shows in nothing at once: it has hardly a share yet.
    assert_eq!(site.letters(4), all_to_b);
    site.reload(&slow.replace("fall = 1", "fall = 2"));
    assert_eq!(site.letters(8), BTreeMap::from([('b', 8)]), "it goes on coming back");
    site.reload(&quick);
    assert_eq!(site.letters(8), BTreeMap::from([('a', 4), ('b', 4)]));
    assert_eq!(site.sealane.count_said(&line(&b, "up")), 1, "what is known is no news");
    b.leave();
    site.sealane.wait_until_said(&line(&b, "down"));
    assert_eq!(site.sealane.stop(), Some(0));
}

#[test]
fn a_server_that_stands_still_is_down_and_so_is_one_that_nobody_gets_through_to() {
    let Some(server) = required("redis-server") else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = ReservedPort::on_loopback().unwrap();
    let number = port.address().port().to_string();
    let mut command = Command::new(server);
    command.args(["--port", &number, "--bind", "127.0.0.1", "--save", "", "--dir"]);
    let redis = quiet(command.arg(folder.path()));
    wait_for("Redis listens", || TcpStream::connect(port.address()).ok());
    let hole = ReservedPort::on_loopback().unwrap();
    let full = full_queue(hole.address());
    let mut site = start(&format!(
        "backends = [\"{}\", \"{}\"]\n[listener.check]\nevery = \"100ms\"\ntimeout = \"900ms\"\n\
         fall = 1\nrise = 1\nkind = {{ send = \"PING\\r\\n\", expect = \"+PONG\" }}",
        port.address(),
        hole.address(),
    ));
    let line =
        |address: SocketAddr, what: &str| format!("backend {address} at {address} is {what}");
    site.sealane.wait_until_said(&line(port.address(), "up"));
    let silent = "down: it does not answer within 900ms";
    site.sealane.wait_until_said(&line(hole.address(), silent));
    redis.signal(Signal::STOP);
    site.sealane.wait_until_said(&line(port.address(), silent));
    redis.signal(Signal::CONT);
    site.sealane.wait_until_said_times(&line(port.address(), "up"), 2);
    drop(full);
    assert_eq!(site.sealane.stop(), Some(0));
}

/// A listener whose queue has no room, so that the kernel answers nobody who connects.
fn full_queue(address: SocketAddr) -> (socket2::Socket, Vec<TcpStream>) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(0).unwrap();
    let mut clients = Vec::new();
    while let Ok(client) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        clients.push(client);
    }
    (socket, clients)
}

#[test]
fn who_answers_something_else_or_cannot_prove_its_name_is_down() {
    let [a, mut b] = [b'a', b'b'].map(Lettered::start);
    let mut site = start(&format!(
        "backends = [\"{}\", \"{}\"]\n[listener.check]\nevery = \"100ms\"\ntimeout = \"900ms\"\n\
         kind = {{ send = \"?\", expect = \"b\" }}",
        a.address(),
        b.address(),
    ));
    site.sealane.wait_until_said("is down: it said \"a\" and no more, instead of \"b\"");
    wait_for("nobody is sent to who is down, although it takes connections", || {
        (site.letters(4) == BTreeMap::from([('b', 4)])).then_some(())
    });
    b.leave();
    site.sealane.wait_until_said("is down: it cannot be connected to");
    assert_eq!(site.visit().unwrap().1, 'a', "when all are down, one is tried all the same");
    assert_eq!(site.sealane.stop(), Some(0));

    let inner = Authority::named("Inner");
    let folder = tempfile::tempdir().unwrap();
    let roots = inner.write(folder.path());
    let backend = SecuredBackend::echo(&inner.leaf(KeyKind::P256, &["other.test"]), None);
    let mut site = start(&format!(
        "backends = [\"{}\"]\nbackend_tls = {{ roots = [{roots:?}], server_name = {:?} }}\n\
         [listener.check]\nevery = \"100ms\"\nkind = \"tls\"\nrise = 1",
        backend.written(),
        NAMES[0],
    ));
    site.sealane.wait_until_said("is down: TLS: the peer's certificate is refused: it is not for");
    backend.show(&inner.leaf(KeyKind::P256, &NAMES));
    site.sealane.wait_until_said("is up");
    assert_eq!(site.sealane.stop(), Some(0));
}

#[test]
fn a_check_says_that_it_is_one_where_backends_expect_a_header() {
    let (heard, told) = std::sync::mpsc::channel();
    let backend = crate::harness::backend::Backend::start(move |mut stream| {
        use std::io::{Read as _, Write as _};
        let mut bytes = [0; 16];
        if stream.read_exact(&mut bytes).is_ok() {
            let _ = heard.send(bytes);
            let _ = stream.write_all(b"220 hello\r\n");
        }
    });
    let mut site = start(&format!(
        "backends = [\"{}\"]\nproxy_header = true\n\
         [listener.check]\nevery = \"100ms\"\nkind = \"proxy\"",
        backend.address,
    ));
    site.sealane.wait_until_said("is up");
    assert_eq!(&told.recv().unwrap(), b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
    assert_eq!(site.sealane.stop(), Some(0));
}
