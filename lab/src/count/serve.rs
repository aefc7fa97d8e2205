//! Shared writes of the running terminator: `sealane serve` with two lanes under valgrind, driven
//! over loopback. The figure is the slope between N and 2N connections, after a warm-up, so that
//! what happens once, or by the clock, does not count.

use std::{
    collections::BTreeMap,
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, Stream,
    client::Resumption,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use crate::{
    count::{
        Tools,
        class::{self, ALLOCATOR},
        lines,
        run::{Program, Run},
        symbols::Symbols,
        trace::{Shared, Trace},
    },
    credentials::{Credentials, SERVER_NAME, Side},
    document::{BySide, CountResult, SharedWrites},
    error::Error,
    phase::Phase,
    scenario::{Group, Kind, Scenario, Version},
};

/// Counts the binary `sealane` in `scenario`: one connection is a handshake, a byte there and back
/// through the backend, and the end.
///
/// # Errors
/// What stopped it, or that `scenario` is none for a running server.
pub(super) fn count(
    sealane: &Path,
    scenario: &Scenario,
    tools: &Tools,
) -> Result<CountResult, Error> {
    let folder = tools.folder.path().join("serve");
    let credentials = Credentials::make(&folder, scenario.key)?;
    let client = client(scenario, &credentials)?;
    let backend = backend()?;
    let address = free_address()?;
    let program = program(sealane, &folder, &credentials, address, backend)?;
    let mut run = Run::start(&lines::lackey()?, &program, &tools.stop)?;
    tools.progress.step("sealane serve: two lanes under valgrind");
    let (done, rounds) = mpsc::channel();
    let (go, begin) = mpsc::channel();
    thread::spawn(move || {
        let result = drive(address, &client, &done, &begin);
        let _ = done.send(result);
    });
    let (writes, instructions) = follow(&mut run, &rounds, &go, tools)?;
    Ok(CountResult {
        stack: "sealane serve".into(),
        scenario: scenario.clone(),
        repeats: 1,
        instructions: Some(BySide { server: instructions, client: 0.0 }),
        shared_writes: Some(writes),
        ..CountResult::default()
    })
}

/// Reads the trace; whenever a round of connections is done and the server is quiet, the next one
/// may begin.
fn follow(
    run: &mut Run,
    rounds: &Receiver<Result<(), Error>>,
    go: &Sender<()>,
    tools: &Tools,
) -> Result<(SharedWrites, f64), Error> {
    let mut trace = Trace::without_marks();
    let mut buffer = vec![0; READ_BYTES];
    let (mut counted, mut instructions) = (Vec::new(), Vec::new());
    let mut is_done = false;
    while counted.len() < ROUNDS.len() {
        if run.wait_for_bytes(QUIET)? {
            match run.read(&mut buffer)? {
                0 => return Err(ended_early(&trace)),
                some => trace.feed(&buffer[..some])?,
            }
            tools.progress.trace(trace.read(), !counted.is_empty(), None);
        } else if is_done {
            counted.push(trace.take_shared());
            instructions.push(both_lanes(&trace.take_busiest())?);
            is_done = false;
            let _ = go.send(());
        }
        match rounds.try_recv() {
            Ok(result) => result.map(|()| is_done = true)?,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
        }
    }
    let symbols = Symbols::new(&run.maps().unwrap_or_default());
    run.terminate();
    let more = (ROUNDS[2] - ROUNDS[1]) as f64;
    let per_connection = (instructions[2] as f64 - instructions[1] as f64) / more;
    Ok((slope(&counted[1], &counted[2], &symbols), per_connection))
}

/// All threads' instructions, if two lanes did a good part of them: no line is shared if one lane
/// gets all connections.
fn both_lanes(busiest: &[u64]) -> Result<u64, Error> {
    if busiest[1] * LANE_SHARE_MAX < busiest[0] {
        return Err(Error::Check(
            "nearly all connections went to one of the two lanes, so that nothing can be told of \
             what they share; the kernel chooses, try again"
                .into(),
        ));
    }
    Ok(busiest.iter().sum())
}

fn ended_early(trace: &Trace) -> Error {
    Error::Check(format!("sealane ended under valgrind:\n{}", trace.words()))
}

/// By line: what N connections more wrote, by each of them.
fn slope(once: &[Shared], twice: &[Shared], symbols: &Symbols) -> SharedWrites {
    let written = |line: &Shared| line.writes_in(&[Phase::Server]) as f64;
    let before: BTreeMap<u64, f64> =
        once.iter().map(|line| (line.address, written(line))).collect();
    let more = (ROUNDS[2] - ROUNDS[1]) as f64;
    let mut writes = SharedWrites::default();
    for line in twice {
        let mut named = class::named(line, symbols, 1.0);
        let first = before.get(&line.address).copied().unwrap_or_default();
        named.writes.server = (written(line) - first) / more;
        if named.writes.server == 0.0 {
            continue;
        }
        let sum = if named.class == ALLOCATOR { &mut writes.allocator } else { &mut writes.total };
        sum.server += named.writes.server;
        writes.lines.push(named);
    }
    writes
}

fn program(
    sealane: &Path,
    folder: &Path,
    credentials: &Credentials,
    address: SocketAddr,
    backend: SocketAddr,
) -> Result<Program, Error> {
    let binary = sealane.canonicalize().map_err(|_| Error::Missing {
        program: format!("sealane ({})", sealane.display()),
        remedy: "lab/build-for-counting".into(),
    })?;
    let certificates = folder.join("certificates");
    fs::create_dir_all(&certificates).map_err(Error::file(&certificates))?;
    let mut pem = Vec::new();
    for file in [credentials.certificate(Side::Server), credentials.key(Side::Server)] {
        pem.extend(fs::read(&file).map_err(Error::file(file))?);
    }
    let file = certificates.join("server.pem");
    fs::write(&file, pem).map_err(Error::file(&file))?;
    let (address, backend) = (address.to_string(), backend.to_string());
    let mut arguments: Vec<_> = ["serve", "--lanes", "2", "--listen", &address, "--backend"]
        .map(Into::into)
        .into_iter()
        .collect();
    arguments.extend([backend.into(), "--certificates".into(), file.into()]);
    Ok(Program { binary, arguments, ..Program::default() })
}

/// Does the connections of each round, one after the other, as the other side says.
fn drive(
    address: SocketAddr,
    client: &Arc<ClientConfig>,
    done: &Sender<Result<(), Error>>,
    begin: &Receiver<()>,
) -> Result<(), Error> {
    let until = Instant::now() + START_TIME_MAX;
    while let Err(error) = TcpStream::connect(address) {
        if Instant::now() > until {
            let seconds = START_TIME_MAX.as_secs();
            return Err(Error::Check(format!(
                "sealane did not accept within {seconds} s under valgrind: {error}"
            )));
        }
        thread::sleep(START_STEP);
    }
    for connections in ROUNDS {
        for _ in 0..connections {
            exchange(address, client)?;
        }
        let _ = done.send(Ok(()));
        if begin.recv().is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// One connection.
fn exchange(address: SocketAddr, client: &Arc<ClientConfig>) -> Result<(), Error> {
    let failed = |what: &str| {
        Error::io(format!(
            "{what} sealane under valgrind (on a busy machine its own time limits end a connection \
             that valgrind slows down; try again on a quiet one)"
        ))
    };
    let mut tcp = TcpStream::connect(address).map_err(failed("connect to"))?;
    tcp.set_read_timeout(Some(ANSWER_TIME_MAX)).map_err(failed("set a time limit for"))?;
    let name = ServerName::try_from(SERVER_NAME)
        .map_err(|error| Error::Check(format!("server name: {error}")))?;
    let mut tls = ClientConnection::new(Arc::clone(client), name)
        .map_err(|error| Error::Check(error.to_string()))?;
    let mut stream = Stream::new(&mut tls, &mut tcp);
    stream.write_all(b"?").map_err(failed("send to"))?;
    let mut byte = [0];
    stream.read_exact(&mut byte).map_err(failed("read from"))?;
    if byte != *b"?" {
        return Err(Error::Check("sealane brought back another byte than was sent".into()));
    }
    tls.send_close_notify();
    let _ = tls.complete_io(&mut tcp);
    Ok(())
}

/// Sends back what it gets, for as long as this process lives.
fn backend() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("listen"))?;
    let address = listener.local_addr().map_err(Error::io("listen"))?;
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { continue };
            thread::spawn(move || {
                let mut bytes = [0; 16];
                loop {
                    match connection.read(&mut bytes) {
                        Ok(0) => break,
                        Ok(some) if connection.write_all(&bytes[..some]).is_ok() => {}
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        _ => break,
                    }
                }
            });
        }
    });
    Ok(address)
}

fn free_address() -> Result<SocketAddr, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::io("find a free port"))?;
    listener.local_addr().map_err(Error::io("find a free port"))
}

fn client(scenario: &Scenario, credentials: &Credentials) -> Result<Arc<ClientConfig>, Error> {
    if scenario.version != Version::Tls13 || scenario.kind == Kind::SessionId {
        return Err(Error::Unsupported("--serve counts TLS 1.3, full or with tickets".into()));
    }
    let group = match scenario.group {
        Group::P256 => aws_lc_rs::kx_group::SECP256R1,
        Group::P384 => aws_lc_rs::kx_group::SECP384R1,
        Group::X25519 => aws_lc_rs::kx_group::X25519,
        Group::X25519MlKem768 => aws_lc_rs::kx_group::X25519MLKEM768,
    };
    let provider = CryptoProvider { kx_groups: vec![group], ..aws_lc_rs::default_provider() };
    let wrong = |error: &dyn std::fmt::Display| Error::Check(error.to_string());
    let root = CertificateDer::from_pem_file(credentials.root()).map_err(|error| wrong(&error))?;
    let mut roots = RootCertStore::empty();
    roots.add(root).map_err(|error| wrong(&error))?;
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| wrong(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    if scenario.kind == Kind::Full {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// What the figures leave out.
pub(super) const NOTE: &str = "\
  per connection: handshake, one byte to the backend and back, end. The kernel's work, and what it
  shares, is not visible to valgrind.\n";
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);
/// How many times the work of the other one a lane may do.
const LANE_SHARE_MAX: u64 = 12;
/// No word of the trace for so long: the server waits for the next connection.
const QUIET: Duration = Duration::from_millis(150);
const READ_BYTES: usize = 256 * 1024;
/// Connections to warm up, N, and 2N.
const ROUNDS: [u64; 3] = [8, 8, 16];
const START_STEP: Duration = Duration::from_millis(100);
const START_TIME_MAX: Duration = Duration::from_secs(180);
