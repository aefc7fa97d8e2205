//! The runtime `lanes`: Sealane's own event loops drive both ends, as many threads as lanes.
//!
//! ```text
//! main thread --control connection, TLS--> lane's listener for control
//!                                            |  attached socket: the client's end
//!                                            v
//!                                          lane's listener for data: the server's end
//! ```
//! A lane can attach a socket to a connection that it serves; the terminator uses that for
//! backends. Here each data connection's client is such a socket, attached to a control connection
//! that carries nothing but the word to start. So both ends of a connection are on one lane, and
//! no other thread moves a byte.

mod ends;

use std::{
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    sync::{Arc, mpsc},
    time::Duration,
};

use sealane_engine::{
    buffer::Buffer, context::Context, session::ServerSession, tickets::TicketRoot,
};
use sealane_lab_harness::{
    credentials::{Credentials, Side},
    descriptors,
};
use sealane_lab_model::{
    document::BulkRound,
    error::Error,
    scenario::{Negotiated, Version},
};
use sealane_lanes::{
    cause::Cause,
    generation::{Generation, Listener, Speech},
    kernel::{Address, Kernel, Linux},
    limits::Limits,
    link::{Arrivals, Link},
    listener,
    liveness::Liveness,
    mailbox::Mail,
    service::{EndedConnection, Service},
    start::{LaneHandle, LaneSetup, Own, start},
    steer::Steer,
    thread::LaneThread,
    timeouts::Timeouts,
};

use crate::{
    bulk::{
        content::{Content, Sink, Source},
        control::Control,
        on_lanes::ends::{Client, Server, Stage},
        sockets::{Event, Judge, Threads, of_connection},
        task::BulkTask,
    },
    stack::{Prepared, Worker},
    stacks::sealane as stack,
};

/// Carries everything once.
pub(crate) fn run(
    task: &BulkTask,
    prepared: Arc<dyn Prepared>,
) -> Result<(Negotiated, BulkRound), Error> {
    // Four sockets per connection: two of its own, two of its control connection.
    descriptors::allow(4 * task.connections as u64)?;
    let (mut judge, events, content) = Judge::new(task);
    let (context, root) = stack::for_lanes(&task.scenario, &Credentials::at(&task.credentials))?;
    let mut worker = prepared.worker()?;
    let common = Arc::new(Common { task: task.clone(), content, prepared });
    let mut lanes = Vec::new();
    for number in 0..task.threads {
        lanes.push(open(number, &common, &context, &root, events.clone())?);
    }
    let mut controls = Vec::new();
    for connection in 0..task.connections {
        let (_, address) = &lanes[connection % lanes.len()];
        controls.push(Control::connect(*address, worker.as_mut())?);
        // One by one, so that both ends know their number by the order in which they come.
        judge.await_handshakes(2)?;
    }
    judge.start();
    for control in &mut controls {
        control.say(START)?;
    }
    let result = judge.await_transfer();
    for (lane, _) in lanes {
        lane.post(Mail::Stop);
        let ended = lane.join();
        if result.is_ok() {
            ended.map_err(Error::io("a lane"))?;
        }
    }
    result
}

/// The word to start.
const START: &[u8] = b"go";

/// What lanes have in common.
struct Common {
    task: BulkTask,
    content: Arc<Content>,
    prepared: Arc<dyn Prepared>,
}

/// Starts a lane with two listeners of its own; returns where it takes control connections.
fn open(
    number: usize,
    common: &Arc<Common>,
    context: &Arc<Context>,
    root: &str,
    events: mpsc::Sender<Event>,
) -> Result<(LaneHandle<Role>, SocketAddr), Error> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (mut sockets, mut listeners, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
    for role in [Role::Control, Role::Data] {
        let (fds, address) = listener::bind(any, 1).map_err(Error::io("listen"))?;
        let key = Address::Tcp(address);
        sockets.extend(fds.into_iter().map(|fd| (key.clone(), fd)));
        listeners.push(Listener {
            number: 0,
            keys: vec![key],
            preamble: None,
            speech: Speech::Tls(Arc::clone(context)),
            named: Vec::new(),
            liveness: Liveness::default(),
            steer: Steer::Connection,
            timeouts: Timeouts { idle: IDLE_TIMEOUT, ..Timeouts::default() },
            settings: Arc::new(role),
        });
        addresses.push(address);
    }
    let generation = Arc::new(Generation { number: 1, limits: Limits::default(), listeners });
    let processors = &common.task.processors;
    let setup = LaneSetup {
        thread: LaneThread::start(number, 0).map_err(Error::io("start a lane"))?,
        pin_to_cpu: (!processors.is_empty()).then(|| processors[number % processors.len()]),
        tickets: TicketRoot::from_text(root).map_err(|error| Error::Check(error.to_string()))?,
        decoded_keys_max: NonZeroUsize::MIN,
        first: generation,
        sockets,
        own: Own::default(),
        kernel: Linux,
    };
    let common = Arc::clone(common);
    let (control, data) = (addresses[0], addresses[1]);
    let lane = start(setup, move |_| {
        let worker = common.prepared.worker();
        Carrier { number, common, worker, events, data, clients: 0, servers: 0 }
    })
    .map_err(Error::io("start a lane"))?;
    Ok((lane, control))
}

/// A control connection says nothing from its start to its end.
const IDLE_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);

/// What a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Control,
    Data,
}

/// One lane's service.
struct Carrier {
    number: usize,
    common: Arc<Common>,
    worker: Result<Box<dyn Worker>, Error>,
    events: mpsc::Sender<Event>,
    /// Where this lane takes data connections.
    data: SocketAddr,
    clients: usize,
    servers: usize,
}

/// What the service keeps for a connection.
enum Held {
    Client(Box<Client>),
    Server(Box<Server>),
}

impl Carrier {
    /// Connections are dealt out in turn.
    fn connection(&self, count: usize) -> usize {
        self.number + count * self.common.task.threads
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more once another connection has failed.
        let _ = self.events.send(event);
    }

    /// Tells of an error, which ends the connection.
    fn fail(&self, error: Error) -> Cause {
        self.tell(Event::Failed(error));
        Cause::Internal
    }

    fn client<K: Kernel>(&mut self, link: &mut Link<'_, K>) -> Result<Client, Error> {
        let connection = self.connection(self.clients);
        self.clients += 1;
        let mut endpoint = match &mut self.worker {
            Ok(worker) => worker.client(None)?,
            Err(error) => return Err(Error::Check(error.to_string())),
        };
        let mut outgoing = Vec::new();
        endpoint.handshake(&[], &mut outgoing)?;
        link.attach(&Address::Tcp(self.data)).map_err(Error::io("connect"))?;
        let Common { task, content, .. } = self.common.as_ref();
        Ok(Client {
            connection,
            endpoint,
            outgoing,
            sent: 0,
            source: Source::new(content, connection, task.fault),
            stage: Stage::Handshake,
            threads: Threads::default(),
        })
    }
}

impl Service for Carrier {
    type Connection = Held;
    type Command = Infallible;
    type Settings = Role;

    fn established<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        held: &mut Option<Held>,
        role: &Role,
    ) -> Result<(), Cause> {
        if *role == Role::Control {
            let client = self.client(link).map_err(|error| self.fail(error))?;
            *held = Some(Held::Client(Box::new(client)));
            return Ok(());
        }
        let connection = self.connection(self.servers);
        self.servers += 1;
        let negotiated = link.session().and_then(negotiated).ok_or(Cause::Internal)?;
        self.tell(Event::Shaken(Side::Server, negotiated));
        let Common { task, content, .. } = self.common.as_ref();
        let sink = Sink::new(content, connection, task.verify);
        *held = Some(Held::Server(Box::new(Server {
            connection,
            sink: Some(sink),
            threads: Threads::default(),
        })));
        Ok(())
    }

    fn plaintext<K: Kernel>(
        &mut self,
        held: &mut Held,
        link: &mut Link<'_, K>,
        plain: &mut Buffer,
        _role: &Role,
    ) -> Result<(), Cause> {
        let outcome = match held {
            Held::Client(client) => client.begin(link, &self.events),
            Held::Server(server) => server.take(plain.filled(), &self.events),
        };
        plain.clear();
        outcome.map_err(|error| self.fail(error))
    }

    fn client_ended<K: Kernel>(
        &mut self,
        held: &mut Held,
        _link: &mut Link<'_, K>,
        _role: &Role,
    ) -> Result<(), Cause> {
        match held {
            Held::Client(_) => Ok(()),
            Held::Server(server) => {
                let early = of_connection(server.connection, "the server");
                Err(self.fail(early(&"the client said that it sends no more")))
            }
        }
    }

    fn attached_writable<K: Kernel>(
        &mut self,
        held: &mut Held,
        link: &mut Link<'_, K>,
        _role: &Role,
    ) -> Result<(), Cause> {
        let Held::Client(client) = held else { return Ok(()) };
        client.transmit(link, &self.events).map_err(|error| self.fail(error))
    }

    fn attached_readable<K: Kernel>(
        &mut self,
        held: &mut Held,
        link: &mut Link<'_, K>,
        arrivals: &mut Arrivals<'_>,
        _role: &Role,
    ) -> Result<(), Cause> {
        let Held::Client(client) = held else { return Ok(()) };
        let outcome = client.receive(link, arrivals, &self.events);
        outcome.map_err(|error| self.fail(error))
    }

    fn deadline<K: Kernel>(
        &mut self,
        _held: &mut Held,
        _link: &mut Link<'_, K>,
        _role: &Role,
    ) -> Result<(), Cause> {
        Ok(())
    }

    fn ended(&mut self, held: Option<Held>, _role: &Role, end: &EndedConnection<'_>) {
        let unfinished = match &held {
            Some(Held::Server(server)) => server.sink.as_ref().map(|_| server.connection),
            Some(Held::Client(client)) => {
                (client.stage != Stage::Left).then_some(client.connection)
            }
            None => Some(self.connection(self.servers)),
        };
        // After the end of the transfer nobody listens.
        if let Some(connection) = unfinished {
            let failed = of_connection(connection, "the lane ended it");
            self.tell(Event::Failed(failed(&end.cause.label())));
        }
    }
}

fn negotiated(session: &ServerSession) -> Option<Negotiated> {
    Some(Negotiated {
        version: match session.version()? {
            "TLSv1.3" => Version::Tls13,
            _ => Version::Tls12,
        },
        suite: session.suite()?.to_owned(),
        group: session.group().and_then(stack::named),
        resumed: session.resumed(),
        peer_certificate: false,
    })
}
