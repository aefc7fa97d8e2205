//! What a listener limits for itself, through the real binary: from where clients may come, how
//! many, and how long anybody may be silent. Who suffers is who should, and it is counted.

use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::thread;

use rustix::process::Signal;
use rustls::version::TLS13;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::harness::backend::Backend;
use crate::harness::certificates::{Authority, KeyKind, NAMES};
use crate::harness::client::{Client, Connector};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings, replace};
use crate::harness::{PATIENCE, wait_for};

/// Listeners on one lane in front of an echo, each with lines of its own.
struct Site {
    sealane: Sealane,
    settings: Settings,
    connector: Connector,
    folder: TempDir,
}

impl Site {
    fn start(listeners: &[&str]) -> Self {
        Self::before(&Backend::echo(), 1, |_| listeners.iter().map(ToString::to_string).collect())
    }

    fn before(backend: &Backend, lanes: usize, lines: impl Fn(&TempDir) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        let certificate = folder.path().join("site.pem");
        std::fs::write(&certificate, authority.leaf(KeyKind::P256, &NAMES)).unwrap();
        let listeners = lines(&folder).into_iter().enumerate().map(|(number, more)| {
            let name = format!("site-{number}");
            ListenerSettings::new(&name, &certificate, &backend.address).with(&more)
        });
        let settings = Settings { lanes, ..Settings::new(listeners.collect()) };
        let sealane = Sealane::start(folder.path(), &settings);
        let connector = Connector::new(authority.der(), &TLS13);
        Self { sealane, settings, connector, folder }
    }

    fn address(&self, listener: usize) -> SocketAddr {
        self.settings.listeners[listener].address
    }

    fn connect(&self, listener: usize) -> Client {
        self.connector.connect(self.address(listener)).unwrap()
    }

    /// A client of the first listener that comes from another address of this machine.
    fn connect_from(&self, last: u8) -> std::io::Result<Client> {
        self.connector.over(from(last, self.address(0))?, b"")
    }

    /// Reloads by signal, with these lines for the first listener, and waits until that is decided.
    fn reload(&mut self, more: &str) {
        let reloads = |m: &crate::harness::sealane::Metrics| m.sum("sealane_reloads_total", &[]);
        let before = reloads(&self.sealane.metrics());
        self.settings.listeners[0].more = more.into();
        self.settings.write(self.folder.path());
        self.sealane.signal(Signal::HUP);
        self.sealane.wait_for_metrics("the reload", |m| reloads(m) > before);
        self.sealane.wait_until_lanes_serve();
    }

    fn wait_until_ended(&self, cause: &str, count: u64) {
        let what = format!("{count} ended by {cause}");
        self.sealane.wait_for_metrics(&what, |metrics| metrics.ended(cause) == count);
    }
}

/// A connection from 127.0.0.`last`.
fn from(last: u8, address: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let own = IpAddr::from(Ipv4Addr::new(127, 0, 0, last));
    socket.bind(&SocketAddr::from((own, 0)).into())?;
    socket.connect(&address.into())?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket.into())
}

/// Whether it is reset without a word.
fn is_turned_away(stream: std::io::Result<TcpStream>) -> bool {
    let read = stream.and_then(|mut stream| stream.read(&mut [0]));
    read.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn lists_say_who_may_come_and_a_file_of_them_is_followed() {
    let lists = |folder: &TempDir| {
        let file = folder.path().join("deny.txt");
        std::fs::write(&file, "# nobody yet\n").unwrap();
        vec![format!(
            "allow = [\"127.0.0.0/28\"]\ndeny = [\"127.0.0.9\", \"file:{}\"]",
            file.display()
        )]
    };
    let mut site = Site::before(&Backend::echo(), 1, lists);
    let mut kept = site.connect_from(8).unwrap();
    kept.echo(b"allowed").unwrap();
    assert!(is_turned_away(from(9, site.address(0))), "denied, though allowed");
    assert!(is_turned_away(from(16, site.address(0))), "not among the allowed");
    site.wait_until_ended("denied", 2);

    let file = site.folder.path().join("deny.txt");
    replace(&file, "127.0.0.8/31 # both\n");
    site.sealane.wait_until_said("reloaded: generation 2");
    wait_for("the lane serves it", || is_turned_away(from(8, site.address(0))).then_some(()));
    kept.echo(b"who is in stays").unwrap();
    site.connect_from(7).unwrap().echo(b"not denied").unwrap();

    replace(&file, "127.0.0.8\n127.0.0.1/8\n");
    site.sealane.wait_until_said("with 1 fault");
    let said = format!("listener site-0: deny: {}:2: not a network; write ", file.display());
    site.sealane.wait_until_said(&said);
    assert!(is_turned_away(from(9, site.address(0))));
    kept.echo(b"the last good list holds").unwrap();
}

#[test]
fn each_silence_ends_by_its_own_name() {
    // Hears its client out, and then neither says nor ends anything.
    let backend = Backend::start(|mut stream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
        loop {
            thread::park();
        }
    });
    let keys = ["client_timeout", "backend_timeout", "half_closed_timeout", "idle_timeout"];
    let lines = keys.iter().chain(&["handshake_timeout"]);
    let lines: Vec<String> = lines.map(|key| format!("{key} = \"1s\"")).collect();
    let site = Site::before(&backend, 1, |_| lines.clone());
    let mut clients: Vec<Client> = (0..keys.len()).map(|listener| site.connect(listener)).collect();
    clients[2].end(true).unwrap();
    let mut silent = TcpStream::connect(site.address(4)).unwrap();
    for client in &mut clients {
        assert!(client.read_rest().is_err(), "silence is no clean end");
    }
    assert!(silent.read(&mut [0]).is_err());
    for cause in
        ["client_timeout", "backend_timeout", "half_closed_timeout", "idle", "handshake_timeout"]
    {
        site.wait_until_ended(cause, 1);
    }
}

#[test]
fn a_listener_has_no_more_connections_than_it_may() {
    let mut site = Site::start(&["connections = 2", ""]);
    let mut clients = [site.connect(0), site.connect(0)];
    assert!(is_turned_away(TcpStream::connect(site.address(0))));
    site.wait_until_ended("limit_listener_connections", 1);
    site.connect(1).echo(b"the other has room").unwrap();
    // What is open counts on after a reload, and what ends makes room.
    site.reload("connections = 3");
    let mut third = site.connect(0);
    assert!(is_turned_away(TcpStream::connect(site.address(0))));
    site.wait_until_ended("limit_listener_connections", 2);
    for client in clients.iter_mut().chain([&mut third]) {
        client.echo(b"still here").unwrap();
    }
    third.end(true).unwrap();
    third.read_rest().unwrap();
    site.wait_until_ended("clean", 1);
    wait_for("room again", || site.connector.connect(site.address(0)).ok());
}

#[test]
fn lanes_together_have_no_more_connections_than_their_listener() {
    let site = Site::before(&Backend::echo(), 4, |_| vec!["connections = 10".into()]);
    let come = |_| site.connector.connect(site.address(0)).ok();
    let mut clients: Vec<Client> = (0..100).filter_map(come).collect();
    // Two on each lane; what cannot be divided is nobody's.
    assert_eq!(clients.len(), 8);
    site.wait_until_ended("limit_listener_connections", 92);
    clients.iter_mut().for_each(|client| client.echo(b"all of them").unwrap());
}

#[test]
fn a_client_has_no_more_connections_than_it_may() {
    let mut site = Site::start(&["connections_per_client = 2"]);
    let mut clients = [site.connect(0), site.connect(0)];
    assert!(is_turned_away(TcpStream::connect(site.address(0))));
    site.wait_until_ended("limit_client_connections", 1);
    site.connect_from(9).unwrap().echo(b"somebody else").unwrap();
    clients[0].end(true).unwrap();
    clients[0].read_rest().unwrap();
    wait_for("room again", || site.connector.connect(site.address(0)).ok());
    site.reload("connections_per_client = 0");
    let more: Vec<Client> = (0..4).map(|_| site.connect(0)).collect();
    clients[1].echo(b"still here").unwrap();
    drop(more);
}

#[test]
fn a_client_begins_no_more_handshakes_than_it_may() {
    let site = Site::start(&["handshakes_per_client = \"1/s\""]);
    let mut first = site.connect(0);
    let crowd: Vec<_> = (0..40).map(|_| TcpStream::connect(site.address(0)).unwrap()).collect();
    let refused = site
        .sealane
        .wait_for_metrics("it is counted", |metrics| metrics.ended("limit_client_handshakes") > 0);
    assert_eq!(refused.ended("limit_client_connections"), 0);
    site.connect_from(9).unwrap().echo(b"somebody else").unwrap();
    first.echo(b"still here").unwrap();
    drop(crowd);
    wait_for("a second later", || site.connector.connect(site.address(0)).ok());
}

#[test]
fn steered_by_client_the_limits_of_a_client_are_exact() {
    const ASKED: &str = "steer = \"client\"\nconnections_per_client = 3";
    let mut site = Site::before(&Backend::echo(), 4, |_| vec![ASKED.into()]);
    assert_eq!(site.sealane.count_said("_per_client"), 0, "{:?}", site.sealane.said());
    for (before, last) in (1..=8).enumerate() {
        let mut clients: Vec<Client> = (0..3).map(|_| site.connect_from(last).unwrap()).collect();
        assert!(is_turned_away(from(last, site.address(0))));
        site.wait_until_ended("limit_client_connections", before as u64 + 1);
        clients.iter_mut().for_each(|client| client.echo(b"all three").unwrap());
    }
    // Without it the lanes count for themselves.
    site.reload("connections_per_client = 3");
    site.sealane.wait_until_said("a client can have 1 on each, 4 in all");
}

#[test]
fn limits_that_lanes_cannot_share_are_told() {
    let lines = "connections_per_client = 3\nhandshakes_per_client = \"2/s\"\nconnections = 4";
    let mut site = Site::before(&Backend::echo(), 4, |_| vec![lines.into()]);
    for said in [
        "connections_per_client: 3 is less than the 4 lanes, each of which counts for itself: a \
         client can have 1 on each, 4 in all",
        "handshakes_per_client: 2 is less than the 4 lanes, each of which counts for itself: a \
         client can have 1 a second on each, 4 a second in all",
    ] {
        assert_eq!(site.sealane.count_said(said), 1, "{:?}", site.sealane.said());
    }
    let few = "listener[0].connections: 3 in all is less than the 4 lanes that share it; each \
               needs one: raise it, or lower lanes";
    site.reload("connections = 3");
    site.sealane.wait_until_said(few);
    // No reload changes how many lanes there are.
    site.settings.lanes = 2;
    site.reload("connections = 3");
    site.sealane.wait_until_said(
        "listener[0].connections: 3 in all is less than the 4 lanes that run; each needs one: \
         raise it, or restart, which changes the lanes",
    );
    site.settings.lanes = 4;
    site.reload("steer = \"core\"");
    site.sealane
        .wait_until_said("listener site-0: steer: \"core\" needs lanes that are tied to one;");
    std::fs::write(site.folder.path().join("none"), "").unwrap();
    site.reload("allow = [\"file:none\"]");
    site.sealane.wait_until_said("/none: has no network, so no client could come");
    site.connect(0).echo(b"nothing has changed").unwrap();
    site.reload("deny = [\"file:none\"]");
    site.sealane.wait_until_said("deny: its files have no network, so it denies no client");
    site.connect(0).echo(b"and is served").unwrap();
}

/// What the kernel will do next about each open TCP connection of this machine from `own` to
/// `peer`, in the numbers of proc(5): 2 is to ask for a sign of life.
fn timers(own: Option<SocketAddr>, peer: SocketAddr) -> Vec<u8> {
    let hex = |address: SocketAddr| {
        let IpAddr::V4(v4) = address.ip() else { panic!("{address}") };
        format!("{:08X}:{:04X}", u32::from_ne_bytes(v4.octets()), address.port())
    };
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines
        .filter(|line| line[3] == "01")
        .filter(|line| line[2] == hex(peer) && own.is_none_or(|own| line[1] == hex(own)))
        .map(|line| line[5].split(':').next().unwrap().parse().unwrap())
        .collect()
}

#[test]
fn silent_peers_are_asked_for_a_sign_of_life_and_a_reload_changes_kept_sockets() {
    const ON: &str = "keepalive = { idle = \"60s\" }\nuser_timeout = \"20s\"";
    const CLIENTS: usize = 8;
    let backend = Backend::echo();
    let mut site = Site::before(&backend, 2, |_| vec![ON.into()]);
    let peer: SocketAddr = backend.address.to_string().parse().unwrap();
    for (timer, next) in [(2, ""), (0, ON), (2, "keepalive = \"off\""), (0, "")] {
        // Enough that both lanes have some.
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| site.connect(0)).collect();
        for client in &mut clients {
            client.echo(b"a word").unwrap();
            let address = client.stream.local_addr().unwrap();
            // Until all is acknowledged there is another timer.
            wait_for("the client's timer", || {
                (timers(Some(site.address(0)), address) == [timer]).then_some(())
            });
        }
        wait_for("the backend's timers", || (timers(None, peer) == [timer; CLIENTS]).then_some(()));
        for client in &mut clients {
            client.end(true).unwrap();
            client.read_rest().unwrap();
        }
        wait_for("the backend's end", || timers(None, peer).is_empty().then_some(()));
        site.reload(next);
    }
}
