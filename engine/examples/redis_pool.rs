//! Pings Redis over TLS through pools of connections, one on each thread, all with one context.
//!
//! `cargo run -p sealane-engine --example redis_pool -- localhost:6380 ca.pem 200` makes 200
//! clients. Each reads its own options from `ca.pem`, as applications do. Each pings twice: on a
//! connection that is opened for it, and on one that the pool has kept. The program ends with an
//! error if one answer is missing.
//!
//! The engine has no socket, no file and no clock. This program has them, and calls no other crate.

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, SystemTime};
use std::{env, fs, thread};

use sealane_engine::buffer::Buffer;
use sealane_engine::client::{
    ClientContextCounts, ClientContexts, ClientOptions, ContextSlot, LaneClient, Roots,
};
use sealane_engine::session::{
    ClientSession, FLIGHT_BYTES_MAX, PARTIAL_BYTES_MAX, RECORD_WIRE_MAX, Session,
};
use sealane_engine::tickets::{LaneClock, UnixSeconds};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [address, ca_file, clients] = arguments.as_slice() else {
        return Err("usage: redis_pool HOST:PORT CA_FILE CLIENTS".into());
    };
    let done = ping_all(address, ca_file, clients.parse()?)?;
    writeln!(
        io::stdout(),
        "pings good {}, connections {}, contexts built {}, certificates parsed {}",
        done.pings,
        done.connections,
        done.contexts.built,
        done.contexts.certificates_parsed
    )?;
    Ok(())
}

/// The work that was done, all of it verified.
#[derive(Debug)]
pub(crate) struct Done {
    /// Pings that Redis answered.
    pub(crate) pings: usize,
    /// Connections opened for them.
    pub(crate) connections: usize,
    /// Counts of the table that all clients asked.
    pub(crate) contexts: ClientContextCounts,
}

/// Lets `clients` clients ping Redis at `address` (HOST:PORT). Its certificate must be for HOST and
/// issued by one of the roots in `ca_file`.
pub(crate) fn ping_all(address: &str, ca_file: &str, clients: usize) -> Result<Done> {
    let (host, _) = address.rsplit_once(':').ok_or("the address is HOST:PORT")?;
    // The one table of this process. It is asked only when options are made, so a lock does no
    // harm.
    let contexts = Mutex::new(ClientContexts::new());
    let outcomes: Vec<Result<(usize, usize)>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                let mine = clients / THREADS + usize::from(index < clients % THREADS);
                let contexts = &contexts;
                scope.spawn(move || ping_on_one_thread(address, host, ca_file, mine, contexts))
            })
            .collect();
        let joined = threads.into_iter().map(ScopedJoinHandle::join);
        joined.map(|outcome| outcome.unwrap_or_else(|_| Err("a thread died".into()))).collect()
    });
    let mut done = Done { pings: 0, connections: 0, contexts: ClientContextCounts::default() };
    for outcome in outcomes {
        let (pings, connections) = outcome?;
        done.pings += pings;
        done.connections += connections;
    }
    done.contexts = contexts.lock().map_err(|_| "a thread died")?.counts();
    Ok(done)
}

/// The share of one thread: pings answered, and connections opened.
fn ping_on_one_thread(
    address: &str,
    host: &str,
    ca_file: &str,
    clients: usize,
    contexts: &Mutex<ClientContexts>,
) -> Result<(usize, usize)> {
    // Each client has separate options, and equal options lead to one context.
    let mut slots = Vec::with_capacity(clients);
    for _ in 0..clients {
        let roots = Roots::from_pem(ca_file, &fs::read(ca_file)?)?;
        let options = ClientOptions::trusting(roots);
        let context = contexts.lock().map_err(|_| "a thread died")?.context(&options)?;
        slots.push(ContextSlot::new(context));
    }
    let Some(slot) = slots.first() else { return Ok((0, 0)) };
    let mut pool = Pool::new(address, host, slot)?;
    let mut pings = 0;
    for _ in 0..2 {
        let mut taken = Vec::with_capacity(clients);
        for _ in &slots {
            taken.push(pool.take()?);
        }
        for mut connection in taken {
            connection.ping(&mut pool.buffers)?;
            pings += 1;
            pool.idle.push(connection);
        }
    }
    Ok((pings, pool.opened))
}

/// The connections of one thread to one server, and the buffers it lends them.
struct Pool<'a> {
    address: &'a str,
    host: &'a str,
    clock: Arc<LaneClock>,
    lane: LaneClient,
    buffers: Buffers,
    idle: Vec<Connection>,
    opened: usize,
}

impl<'a> Pool<'a> {
    fn new(address: &'a str, host: &'a str, slot: &ContextSlot) -> Result<Self> {
        let clock = Arc::new(LaneClock::new(now()?));
        let lane = LaneClient::new(slot, Arc::clone(&clock))?;
        let buffers = Buffers {
            received: Buffer::with_capacity(PARTIAL_BYTES_MAX + RECORD_WIRE_MAX),
            plain: Buffer::with_capacity(PARTIAL_BYTES_MAX + RECORD_WIRE_MAX),
            wire: Buffer::with_capacity(FLIGHT_BYTES_MAX + RECORD_WIRE_MAX),
        };
        Ok(Self { address, host, clock, lane, buffers, idle: Vec::new(), opened: 0 })
    }

    /// An idle connection, or a new one.
    fn take(&mut self) -> Result<Connection> {
        if let Some(idle) = self.idle.pop() {
            return Ok(idle);
        }
        self.clock.set(now()?);
        let address = self.address.to_socket_addrs()?.next().ok_or("the host has no address")?;
        let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let session = self.lane.connect(self.host.to_owned().try_into()?)?;
        let mut connection = Connection { socket, session };
        connection.shake_hands(&mut self.buffers)?;
        self.opened += 1;
        Ok(connection)
    }
}

/// Empty between two uses.
struct Buffers {
    received: Buffer,
    plain: Buffer,
    wire: Buffer,
}

struct Connection {
    socket: TcpStream,
    session: ClientSession,
}

impl Connection {
    fn shake_hands(&mut self, buffers: &mut Buffers) -> Result<()> {
        self.session.feed(&mut [], &mut buffers.plain, &mut buffers.wire)?;
        self.flush(&mut buffers.wire)?;
        while !self.session.is_established() {
            self.receive(buffers)?;
        }
        Ok(())
    }

    fn ping(&mut self, buffers: &mut Buffers) -> Result<()> {
        self.session.seal(b"PING\r\n", &mut buffers.wire)?;
        self.flush(&mut buffers.wire)?;
        while buffers.plain.len() < PONG.len() {
            self.receive(buffers)?;
        }
        let answered = buffers.plain.filled() == PONG;
        buffers.plain.clear();
        if answered { Ok(()) } else { Err("Redis answered something else than PONG".into()) }
    }

    fn receive(&mut self, buffers: &mut Buffers) -> Result<()> {
        let Buffers { received, plain, wire } = buffers;
        self.session.take_partial(received);
        let count = self.socket.read(received.spare_mut())?;
        if count == 0 {
            return Err("Redis closed the connection".into());
        }
        received.fill(count);
        let fed = self.session.feed(received.filled_mut(), plain, wire);
        received.clear();
        // Also the alert with the reason why the session failed.
        self.flush(wire)?;
        fed?;
        Ok(())
    }

    fn flush(&mut self, wire: &mut Buffer) -> Result<()> {
        self.socket.write_all(wire.filled())?;
        wire.clear();
        Ok(())
    }
}

fn now() -> Result<UnixSeconds> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(UnixSeconds(since.as_secs()))
}

/// Longest wait for the server.
const PATIENCE: Duration = Duration::from_secs(10);
const PONG: &[u8] = b"+PONG\r\n";
const THREADS: usize = 4;
