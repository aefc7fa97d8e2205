//! The load of each [`Case`], in two halves: what is prepared before the server's CPU is read, and
//! what happens between the two readings.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use rustls::{ClientConfig, HandshakeKind, pki_types::CertificateDer};
use serde::Serialize;

use crate::{
    client::{self, Connection},
    error::Error,
    request::Pattern,
};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Case {
    /// A connection per request, full handshake.
    Full,
    /// A connection per request, resumed by ticket.
    Resumed,
    /// Large answers.
    Download,
    /// Large requests.
    Upload,
    /// Connections that have done one echo and stay.
    Idle,
}

/// How much of it. One round, one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Amount {
    pub(crate) handshakes: u64,
    pub(crate) handshake_threads: u64,
    pub(crate) transfers: u64,
    pub(crate) transfer_bytes: u64,
    pub(crate) transfer_threads: u64,
    pub(crate) idle_connections: u64,
}

/// Whom the load is for.
pub(crate) struct Target<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) authority: &'a CertificateDer<'static>,
    pub(crate) pattern: &'a Pattern,
    pub(crate) interrupted: &'a AtomicBool,
}

impl Case {
    /// In the order they are measured: idle memory last, from a server that has worked.
    pub(crate) const ALL: [Self; 5] =
        [Self::Full, Self::Resumed, Self::Download, Self::Upload, Self::Idle];

    /// The head of its column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Full => "full handshake, µs CPU",
            Self::Resumed => "resumed, µs CPU",
            Self::Download => "down, CPU s/GB",
            Self::Upload => "up, CPU s/GB",
            Self::Idle => "idle connection, KiB",
        }
    }

    /// What the raw difference, nanoseconds or bytes, comes to per unit of the title.
    pub(crate) fn per_unit(self, difference: f64, amount: &Amount) -> f64 {
        match self {
            Self::Full | Self::Resumed => difference / 1e3 / amount.handshakes as f64,
            // Nanoseconds per byte are seconds per 10^9 bytes.
            Self::Download | Self::Upload => {
                difference / (amount.transfers * amount.transfer_bytes) as f64
            }
            Self::Idle => difference / 1024.0 / amount.idle_connections as f64,
        }
    }

    /// Digits after the point that mean something.
    pub(crate) fn decimals(self) -> usize {
        match self {
            Self::Full | Self::Resumed => 0,
            Self::Download | Self::Upload => 3,
            Self::Idle => 1,
        }
    }
}

/// Some full handshakes with an echo each: the server has started when they succeed, and has
/// done once whatever it does once.
pub(crate) fn warm_up(target: &Target<'_>, connections: u64) -> Result<(), Error> {
    let worker = Worker::new(target, false)?;
    worker.handshakes(connections, HandshakeKind::Full)
}

/// A connection per request. `measure` runs the part that counts.
pub(crate) fn handshakes(
    target: &Target<'_>,
    amount: &Amount,
    resumed: bool,
    measure: impl FnOnce(&mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let mut workers = Vec::new();
    for _ in 0..amount.handshake_threads {
        let worker = Worker::new(target, resumed)?;
        if resumed {
            worker.handshakes(1, HandshakeKind::Full)?; // brings the first tickets
        }
        workers.push(worker);
    }
    let kind = if resumed { HandshakeKind::Resumed } else { HandshakeKind::Full };
    let (each, left) = (
        amount.handshakes / amount.handshake_threads,
        amount.handshakes % amount.handshake_threads,
    );
    measure(&mut || {
        in_parallel(&mut workers, |number, worker| {
            worker.handshakes(each + u64::from(number < left), kind)
        })
    })
}

/// Transfers over connections that stand before the measured part begins.
pub(crate) fn transfers(
    target: &Target<'_>,
    amount: &Amount,
    upload: bool,
    measure: impl FnOnce(&mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let mut open = Vec::new();
    let mut buffer = client::buffer();
    for nonce in 0..amount.transfer_threads {
        let worker = Worker::new(target, false)?;
        let connection = worker.echo(nonce, HandshakeKind::Full, &mut buffer)?;
        open.push((connection, client::buffer()));
    }
    let (each, left) =
        (amount.transfers / amount.transfer_threads, amount.transfers % amount.transfer_threads);
    let figure = measure(&mut || {
        in_parallel(&mut open, |number, (connection, buffer)| {
            for _ in 0..each + u64::from(number < left) {
                target.go_on()?;
                match upload {
                    true => connection.upload(amount.transfer_bytes, target.pattern, buffer)?,
                    false => connection.download(amount.transfer_bytes, target.pattern, buffer)?,
                }
            }
            Ok(())
        })
    })?;
    for (connection, mut buffer) in open {
        connection.close(&mut buffer)?;
    }
    Ok(figure)
}

/// Connections that stay open, each after one echo, until the measured part has ended.
pub(crate) fn idle(
    target: &Target<'_>,
    amount: &Amount,
    measure: impl FnOnce(&mut dyn FnMut() -> Result<(), Error>) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let mut workers = Vec::new();
    for _ in 0..amount.handshake_threads {
        workers.push((Worker::new(target, false)?, Vec::new()));
    }
    let (each, left) = (
        amount.idle_connections / amount.handshake_threads,
        amount.idle_connections % amount.handshake_threads,
    );
    measure(&mut || {
        in_parallel(&mut workers, |number, (worker, open)| {
            let mut buffer = client::buffer();
            for nonce in 0..each + u64::from(number < left) {
                open.push(worker.echo(nonce, HandshakeKind::Full, &mut buffer)?);
            }
            Ok(())
        })
    })
}

struct Worker<'a> {
    target: &'a Target<'a>,
    config: Arc<ClientConfig>,
}

impl<'a> Worker<'a> {
    fn new(target: &'a Target<'a>, resumes: bool) -> Result<Self, Error> {
        Ok(Self { target, config: client::config(target.authority, resumes)? })
    }

    fn handshakes(&self, count: u64, kind: HandshakeKind) -> Result<(), Error> {
        let mut buffer = client::buffer();
        for nonce in 0..count {
            self.echo(nonce, kind, &mut buffer)?.close(&mut buffer)?;
        }
        Ok(())
    }

    fn echo(
        &self,
        nonce: u64,
        kind: HandshakeKind,
        buffer: &mut [u8],
    ) -> Result<Connection, Error> {
        self.target.go_on()?;
        let mut connection = Connection::open(self.target.address, &self.config, kind, buffer)?;
        let local_port = u64::from(connection.local_port()?);
        connection.echo(local_port << 32 | nonce, buffer)?;
        Ok(connection)
    }
}

impl Target<'_> {
    fn go_on(&self) -> Result<(), Error> {
        if self.interrupted.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}

/// A thread for each item; the first error of any of them.
fn in_parallel<T: Send>(
    items: &mut [T],
    work: impl Fn(u64, &mut T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0_u64..)
            .zip(items)
            .map(|(number, item)| scope.spawn(move || work(number, item)))
            .collect();
        let results = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Error::Check("a client thread panicked".into())))
        });
        results.collect::<Vec<_>>().into_iter().collect()
    })
}
