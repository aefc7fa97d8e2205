//! Programs that announce their clients: HAProxy, hitch, nginx, and another Sealane.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use rustls::version::TLS13;
use sealane_reserved_port::ReservedPort;

use crate::harness::client::Connector;
use crate::harness::peers::{haproxy, hitch_arguments, listening, stream_module};
use crate::harness::sealane::{ListenerSettings, Sealane, Settings};
use crate::harness::tools::required;
use crate::harness::{PATIENCE, wait_for};

use super::{BELIEVES_LOOPBACK, NAME, Rig, logged};

/// A client from an address that no other test connects from, through the proxy at `address`.
fn greet(connector: &Connector, from: Ipv4Addr, address: SocketAddr) -> SocketAddr {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let own = socket.local_addr().unwrap();
    let mut client = connector.over(socket, b"").unwrap();
    client.echo(b"hello").unwrap();
    client.end(false).unwrap();
    client.read_rest().unwrap();
    own
}

#[test]
fn haproxy_announces_clients_in_each_of_its_ways() {
    let Some(program) = required("haproxy") else { return };
    let rig = Rig::start(BELIEVES_LOOPBACK);
    let connector = Connector::new(rig.authority.der(), &TLS13);
    let ways = ["send-proxy", "send-proxy-v2", "send-proxy-v2-ssl-cn"];
    let mut clients = Vec::new();
    for (way, from) in ways.into_iter().zip(31..) {
        let port = ReservedPort::on_loopback().unwrap();
        let text = format!(
            "defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
             listen l\n bind {}\n server s {} {way}\n",
            port.address(),
            rig.address
        );
        let config = rig.folder.path().join("haproxy.cfg");
        let _haproxy = haproxy(&program, &config, &text, &[&port]);
        clients.push(greet(&connector, Ipv4Addr::new(127, 0, 0, from), port.address()));
    }
    assert_announced(rig.folder.path(), &clients);
}

#[test]
fn nginx_announces_clients() {
    let Some(program) = required("nginx") else { return };
    let Some(module) = stream_module() else { return };
    let rig = Rig::start(BELIEVES_LOOPBACK);
    let connector = Connector::new(rig.authority.der(), &TLS13);
    let port = ReservedPort::on_loopback().unwrap();
    let folder = rig.folder.path();
    let text = format!(
        "{module}\ndaemon off;\nmaster_process off;\npid {}/nginx.pid;\nerror_log stderr;\n\
         events {{ worker_connections 64; }}\n\
         stream {{ server {{ listen {}; proxy_pass {}; proxy_protocol on; }} }}\n",
        folder.display(),
        port.address(),
        rig.address
    );
    let config = folder.join("nginx.conf");
    let _nginx = listening(&program, &["-e", "stderr", "-c"], &config, &text, &[&port]);
    let client = greet(&connector, Ipv4Addr::new(127, 0, 0, 34), port.address());
    assert_announced(rig.folder.path(), &[client]);
}

/// hitch ends TLS, a Sealane in client mode begins it again, and a second one learns of the client.
#[test]
fn hitch_announces_clients_to_client_mode() {
    let Some(program) = required("hitch") else { return };
    let behind = Rig::start(BELIEVES_LOOPBACK);
    let folder = tempfile::tempdir().unwrap();
    let certificate = behind.folder.path().join("site.pem");
    let keys = format!(
        "{BELIEVES_LOOPBACK}\nplain = \"relay\"\nproxy_header = \"pass\"\n\
         backend_tls = {{ roots = [{:?}], server_name = \"{NAME}\" }}",
        behind.authority.write(folder.path())
    );
    let target = format!("tls://{}", behind.address);
    let mut listener = ListenerSettings::new("front", &certificate, &target).with(&keys);
    listener.certificates = None;
    let own = listener.address.port();
    let mut settings = Settings::new(vec![listener]);
    settings.more = "access_log.path = \"access.log\"".into();
    let front = Sealane::start(folder.path(), &settings);
    let connector = Connector::new(behind.authority.der(), &TLS13);
    let mut clients = Vec::new();
    for (version, from) in [1, 2].into_iter().zip(36..) {
        let port = ReservedPort::on_loopback().unwrap();
        let text = format!(
            "frontend = \"[127.0.0.1]:{}\"\nbackend = \"[127.0.0.1]:{own}\"\n\
             pem-file = {certificate:?}\nwrite-proxy-v{version} = on\n",
            port.address().port()
        );
        let config = folder.path().join("hitch.conf");
        let _hitch = listening(&program, hitch_arguments(), &config, &text, &[&port]);
        clients.push(greet(&connector, Ipv4Addr::new(127, 0, 0, from), port.address()));
    }
    assert_announced(folder.path(), &clients);
    assert_announced(behind.folder.path(), &clients);
    // Version 1 has no room for the name.
    let names = logged(folder.path(), 2).into_iter().map(|line| line["authority"].clone());
    assert_eq!(names.filter(|name| name == NAME).count(), 1);
    assert_eq!(front.stop(), Some(0));
}

/// Two in a row: the first ends TLS and speaks TLS to the second, which learns of the client.
#[test]
fn sealane_announces_clients_to_sealane() {
    let behind = Rig::start(BELIEVES_LOOPBACK);
    let folder = tempfile::tempdir().unwrap();
    let certificate = behind.folder.path().join("site.pem");
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, behind.authority.pem()).unwrap();
    let settings =
        ListenerSettings::new("front", &certificate, &format!("tls://{}", behind.address)).with(
            &format!(
                "proxy_header = true\nbackend_tls = {{ roots = [{roots:?}], \
                 server_name = \"{NAME}\" }}"
            ),
        );
    let address = settings.address;
    let front = Sealane::start(folder.path(), &Settings::new(vec![settings]));
    let connector = Connector::new(behind.authority.der(), &TLS13);
    let client = greet(&connector, Ipv4Addr::new(127, 0, 0, 35), address);
    assert_eq!(behind.lines(1)[0]["authority"], NAME);
    assert_announced(behind.folder.path(), &[client]);
    assert_eq!(front.stop(), Some(0));
}

fn assert_announced(folder: &Path, clients: &[SocketAddr]) {
    // Whoever waited for the proxy to listen has reached the listener too, and said nothing.
    let mut announced: Vec<String> = wait_for("a line for each client", || {
        let lines = logged(folder, clients.len());
        let served = lines.iter().filter(|line| line["cause"] == "clean");
        let shown: Vec<_> =
            served.map(|line| line["client"].as_str().unwrap().to_owned()).collect();
        (shown.len() >= clients.len()).then_some(shown)
    });
    let mut expected: Vec<String> = clients.iter().map(ToString::to_string).collect();
    // Lines of two lanes may change places.
    announced.sort_unstable();
    expected.sort_unstable();
    assert_eq!(announced, expected);
}
