//! Sessions that resume on whichever machine they come to, while the root of all ticket keys is
//! replaced again and again: agents, servers of etcd, `sealane serve` and a balancer, all real.
//!
//! A key lives for ten minutes at least. Here it lives for seconds, because the wall clock of
//! agents and servers goes faster, as in `sealane/tests/binary/resumption_fleet.rs`.

#[path = "../../../sealane/tests/binary/resumption_fleet/tally.rs"]
mod tally;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SupportedProtocolVersion,
};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_engine::tickets::TicketRoot;
use sealane_reserved_port::ReservedPort;
use sealane_store::TICKET_ROOTS;

use super::harness::agent::{Agent, BINARY, Home};
use super::harness::process::Process;
use super::harness::{required, serve, wait_for};
use super::machines::Machines;
use tally::Tally;

#[test]
fn two_machines_resume_as_one_does_while_etcd_brings_another_root_twice() {
    hold(&[2], Duration::from_secs(3), 2);
}

#[test]
#[ignore = "three minutes"]
fn one_two_and_five_machines_resume_as_one_does_with_a_new_root_every_ten_seconds() {
    hold(&[1, 2, 5], Duration::from_secs(10), 4);
}

/// Fails unless all that are offered a ticket within its lifetime resume, and nobody fails, while a
/// new root is asked for so many times, once in a lifetime, and until the last one holds.
fn hold(sizes: &[usize], lifetime: Duration, rotations: u32) {
    let haproxy = required("/usr/sbin/haproxy".into());
    let (Some(haproxy), Some(cc)) = (haproxy, required("/usr/bin/cc".into())) else { return };
    for count in sizes {
        let Some(machines) = Machines::new(*count, &[]) else { return };
        let Some(fleet) = Fleet::start(&machines, &haproxy, &cc, lifetime) else { return };
        let first = fleet.shared();
        let all = thread::scope(|scope| {
            // The last one is announced for the third epoch after that.
            let (clients, long) = (&fleet.clients, lifetime * (rotations + 5));
            let load = scope.spawn(move || clients.load(lifetime, long));
            for number in 1..=rotations {
                let begun = Instant::now();
                fleet.rotate(usize::try_from(number).unwrap() % *count);
                thread::sleep(lifetime.saturating_sub(begun.elapsed()));
            }
            load.join().unwrap()
        });
        println!("{count} machines, a new root every {lifetime:?}: {all:?}");
        all.hold(*count);
        let last = fleet.shared();
        assert!(last.epoch() > first.epoch() && !last.agrees_with(&first), "it was replaced");
        fleet.stop();
    }
}

/// Machines with an agent and a server each, behind a balancer.
struct Fleet<'m> {
    agents: Vec<Agent>,
    clients: Clients,
    clock: Vec<(&'static str, String)>,
    haproxy: Process,
    machines: &'m Machines,
    servers: Vec<Process>,
    _port: ReservedPort,
}

impl<'m> Fleet<'m> {
    fn start(
        machines: &'m Machines,
        haproxy: &Path,
        cc: &Path,
        lifetime: Duration,
    ) -> Option<Self> {
        let homes = &machines.homes;
        let rate = KEY_LIFETIME_S / lifetime.as_secs();
        let clock = fast_clock(cc, homes[0].folder.path(), rate);
        let agents = homes.iter().enumerate().map(|(number, home)| {
            home.configure(&[
                home.authority(machines.authority.address, ""),
                home.by_dns(&["blocked.test"]),
                machines.cluster.table(&format!("m{number}")),
                format!("ticket_lifetime = {KEY_LIFETIME:?}\n"),
            ]);
            home.start_with(&clock)
        });
        let agents: Vec<_> = agents.collect();
        let (pem, roots) = certificate();
        homes[0].import(&[NAME], &pem);
        let (mut servers, mut addresses) = (Vec::new(), Vec::new());
        for (home, number) in homes.iter().zip(0..) {
            home.wait_until_held(NAME);
            let tls = ReservedPort::on_loopback().unwrap();
            let text = configuration(home, tls.address(), says_which(number));
            servers.push(serve::start_with(home.folder.path(), &text, &clock)?);
            addresses.push(tls.address());
        }
        for home in homes {
            let log = home.path("serve.log");
            wait_for("the root of the fleet in use", || {
                let said = std::fs::read_to_string(&log).unwrap();
                said.contains("tickets: the root is that of store:").then_some(())
            });
        }
        let balancer = ReservedPort::on_loopback().unwrap();
        let haproxy = balance(haproxy, &homes[0].path("haproxy.cfg"), &addresses, &balancer);
        let clients = Clients { balancer: balancer.address(), roots };
        Some(Self { agents, clients, clock, haproxy, machines, servers, _port: balancer })
    }

    /// The roots that all of them have.
    fn shared(&self) -> TicketRoot {
        wait_for("the same roots", || {
            let texts: Option<Vec<_>> = self
                .machines
                .homes
                .iter()
                .map(|home| home.store()?.kept(TICKET_ROOTS).unwrap())
                .collect();
            let texts = texts?;
            let is_same = texts.iter().all(|text| *text == texts[0]);
            is_same.then(|| TicketRoot::from_text(str::from_utf8(&texts[0]).unwrap()).unwrap())
        })
    }

    fn rotate(&self, machine: usize) {
        let mut command = Command::new(BINARY);
        command.args(["fleet", "rotate-tickets", "--config", "agent.toml"]);
        command.current_dir(self.machines.homes[machine].folder.path());
        command.envs(self.clock.iter().map(|(name, value)| (name, value)));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn stop(self) {
        drop(self.haproxy);
        for mut server in self.servers {
            server.signal(rustix::process::Signal::TERM);
            assert!(server.end().success());
        }
        for agent in self.agents {
            assert!(agent.stop().success());
        }
    }
}

/// Who comes to the balancer.
struct Clients {
    balancer: SocketAddr,
    roots: RootCertStore,
}

impl Clients {
    /// Clients that come for so long, one connection after the other, with what tickets they have.
    fn load(&self, lifetime: Duration, long: Duration) -> Tally {
        let until = Instant::now() + long;
        let often = Duration::from_millis(10);
        // Not a multiple of the machines: in step, each client would always get the same one.
        let clients =
            [(&TLS13, often), (&TLS12, often), (&TLS13, often), (&TLS13, lifetime.mul_f64(0.7))];
        thread::scope(|scope| {
            let clients = clients.map(|(version, pause)| {
                let config = self.client(version);
                scope.spawn(move || self.visits(&config, lifetime, pause, until))
            });
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        })
    }

    fn client(&self, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let provider = lane_provider(ProviderChoice::Auto, &Group::ALL).unwrap().crypto;
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        config.resumption = Resumption::in_memory_sessions(8);
        Arc::new(config)
    }

    fn visits(
        &self,
        config: &Arc<ClientConfig>,
        lifetime: Duration,
        pause: Duration,
        until: Instant,
    ) -> Tally {
        Tally::of_visits(lifetime, pause, until, || visit(self.balancer, config))
    }
}

/// Whether a session was resumed, and by which machine.
fn visit(to: SocketAddr, config: &Arc<ClientConfig>) -> (bool, u8) {
    let name = ServerName::try_from(NAME).unwrap();
    let mut session = ClientConnection::new(Arc::clone(config), name).unwrap();
    let mut socket = TcpStream::connect(to).unwrap();
    let mut machine = [0];
    let mut stream = rustls::Stream::new(&mut session, &mut socket);
    stream.read_exact(&mut machine).unwrap();
    let resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
    (resumed, machine[0])
}

/// A backend that says to each client which machine it is of.
fn says_which(number: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that does not want to know fails by itself.
            let _ = stream.and_then(|mut stream| stream.write_all(&[number]));
        }
    });
    address
}

fn configuration(home: &Home, tls: SocketAddr, backend: SocketAddr) -> String {
    let store = home.path("store");
    format!(
        "lanes = 1\nstore_key = {{ file = {:?} }}\n\
         tickets = {{ root = \"store:{}\", lifetime = {KEY_LIFETIME:?} }}\n\
         [[listener]]\naddress = \"{tls}\"\nbackends = [\"{backend}\"]\n\
         certificates = [\"store:{}\"]\n",
        home.path("key"),
        store.display(),
        store.display(),
    )
}

/// HAProxy, which passes on connection by connection to one machine after the other.
fn balance(program: &Path, file: &Path, to: &[SocketAddr], port: &ReservedPort) -> Process {
    let mut text = format!(
        "defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
         listen fleet\n bind {}\n balance roundrobin\n",
        port.address()
    );
    for (number, address) in to.iter().enumerate() {
        text += &format!(" server m{number} {address}\n");
    }
    std::fs::write(file, text).unwrap();
    let mut command = Command::new(program);
    command.args(["-db", "-f"]).arg(file).stdin(Stdio::null());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    wait_for("the balancer", || TcpStream::connect(port.address()).ok());
    Process::new(child.unwrap())
}

/// A chain with its key, and who vouches for it.
fn certificate() -> (String, RootCertStore) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new([NAME.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(root.der().clone()).unwrap();
    (leaf.pem() + &key.serialize_pem(), roots)
}

/// What makes the wall clock go so many times as fast for whoever has it in its environment.
pub fn fast_clock(cc: &Path, folder: &Path, rate: u64) -> Vec<(&'static str, String)> {
    let library: PathBuf = folder.join("fast_clock.so");
    let source = "../sealane/tests/binary/resumption_fleet/fast_clock.c";
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut command = Command::new(cc);
    command.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    assert!(command.status().unwrap().success());
    let from_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    vec![
        ("LD_PRELOAD", library.to_str().unwrap().to_owned()),
        ("FAST_CLOCK_RATE", rate.to_string()),
        ("FAST_CLOCK_FROM", from_s.to_string()),
    ]
}

/// The shortest that there is.
const KEY_LIFETIME: &str = "10m";
const KEY_LIFETIME_S: u64 = 600;
const NAME: &str = "site.test";
