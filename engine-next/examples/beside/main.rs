//! Compares the session on rustls 0.23 with that on 0.24: CPU time, memory and allocations.
//!
//! `cargo run --release -p sealane-engine-next --example beside` prints microseconds of CPU time of
//! the measuring thread as median [least-most] over interleaved rounds, and counts that are the
//! same in each run, but for a few bytes by which certificates and signatures differ in length.
//! Both have AWS-LC for everything, TLS 1.3 with one suite, X25519, a certificate on P-256 and no
//! tickets; the clients are rustls 0.23 for both, and are not in the figures. What is not as asked
//! ends it with an error.

mod releases;
mod settings;
mod split;

use std::io::{self, Write};
use std::sync::Arc;

use allocation_counter::{AllocationInfo, measure};
use rustix::time::{ClockId, clock_gettime};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use sealane_libssl::heap;

use releases::{Release, Rustls23, Rustls24};
use settings::{NAME, Settings};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let settings = Settings::generate()?;
    let mut old = Bench::<Rustls23>::new(&settings)?;
    let mut new = Bench::<Rustls24>::new(&settings)?;
    let mut samples: [[Vec<f64>; 2]; 3] = Default::default();
    for number in 0..ROUNDS {
        // Neither is always the first.
        let (old_us, new_us) = if number % 2 == 0 {
            (old.round()?, new.round()?)
        } else {
            let new_us = new.round()?;
            (old.round()?, new_us)
        };
        for (samples, (old_us, new_us)) in samples.iter_mut().zip(old_us.into_iter().zip(new_us)) {
            samples[0].push(old_us);
            samples[1].push(new_us);
        }
    }
    let mut out = io::stdout().lock();
    for (samples, name) in samples.into_iter().zip(["handshake", "seal 16 KiB", "open 16 KiB"]) {
        let ratios = samples[0].iter().zip(&samples[1]).map(|(old, new)| new / old).collect();
        for (samples, release) in samples.into_iter().zip(["0.23", "0.24"]) {
            writeln!(out, "{name:<12} {release} us {}", spread(samples))?;
        }
        writeln!(out, "{name:<12} 0.24 of 0.23 in each round {}", spread(ratios))?;
    }
    old.count("0.23", &mut out)?;
    new.count("0.24", &mut out)?;
    let bytes = split::idle(&settings, &new.config)?;
    writeln!(out, "{:<12} 0.24 bytes {bytes} on the heap", "idle, split")?;
    Ok(())
}

/// One release with what a lane would lend its sessions.
struct Bench<'a, R: Release> {
    settings: &'a Settings,
    config: Arc<R::Config>,
    lane: R,
}

impl<'a, R: Release> Bench<'a, R> {
    fn new(settings: &'a Settings) -> Result<Self> {
        let mut bench = Self { settings, config: R::config(settings)?, lane: R::default() };
        for _ in 0..WARM_UP_HANDSHAKES {
            bench.shake(&mut Spent::default())?;
        }
        Ok(bench)
    }

    /// An established pair, and what of it the server took.
    fn shake(&mut self, spent: &mut Spent) -> Result<(R::Session, ClientConnection)> {
        let name = ServerName::try_from(NAME)?;
        let mut client = ClientConnection::new(Arc::clone(&self.settings.client), name)?;
        let mut session = spent.on(|| R::begin(&self.config))?;
        while client.is_handshaking() || !R::is_established(&session) {
            self.lane.receive(&mut session, &written(&mut client)?);
            spent.on(|| self.lane.feed(&mut session))?;
            read(&mut client, self.lane.sent())?;
            self.lane.clear();
        }
        let agreed = R::agreed(&session);
        if agreed != (Some("TLSv1.3"), Some("TLS_AES_128_GCM_SHA256"), Some("X25519")) {
            return Err(format!("{agreed:?}: not as asked").into());
        }
        Ok((session, client))
    }

    /// A request and its answer, both of one full record.
    fn exchange(
        &mut self,
        session: &mut R::Session,
        client: &mut ClientConnection,
        spent: &mut [Spent; 2],
    ) -> Result<()> {
        client.writer().write_all(&CONTENT)?;
        self.lane.receive(session, &written(client)?);
        spent[0].on(|| self.lane.feed(session))?;
        if self.lane.received() != CONTENT {
            return Err("a request came out different".into());
        }
        self.lane.clear();
        spent[1].on(|| self.lane.seal(session, &CONTENT))?;
        if read(client, self.lane.sent())? != CONTENT {
            return Err("an answer came out different".into());
        }
        self.lane.clear();
        Ok(())
    }

    /// Microseconds per handshake, per record sealed, and per record opened.
    fn round(&mut self) -> Result<[f64; 3]> {
        let (mut handshakes, mut records) =
            (Spent::default(), [Spent::default(), Spent::default()]);
        for _ in 0..HANDSHAKES_PER_ROUND {
            self.shake(&mut handshakes)?;
        }
        let (mut session, mut client) = self.shake(&mut Spent::default())?;
        for _ in 0..RECORDS_PER_ROUND {
            self.exchange(&mut session, &mut client, &mut records)?;
        }
        let [opened, sealed] = records.map(|spent| spent.ns / 1e3 / f64::from(RECORDS_PER_ROUND));
        Ok([handshakes.ns / 1e3 / f64::from(HANDSHAKES_PER_ROUND), sealed, opened])
    }

    /// Writes what no run measures differently.
    fn count(&mut self, release: &str, out: &mut impl Write) -> Result<()> {
        let mut handshake = Spent::counting();
        let (mut session, mut client) = self.shake(&mut handshake)?;
        self.exchange(&mut session, &mut client, &mut Default::default())?;
        let mut record = [Spent::counting(), Spent::counting()];
        self.exchange(&mut session, &mut client, &mut record)?;
        drop((session, client));
        let [opened, sealed] = record;
        for (what, spent) in [("handshake", handshake), ("open", opened), ("seal", sealed)] {
            let counts = spent.counts.unwrap_or_default();
            let (count, bytes) = (counts.count_total, counts.bytes_total);
            writeln!(out, "{what:<12} {release} allocations {count}, of {bytes} bytes in all")?;
        }
        let (bytes, rust_bytes, blocks) = self.idle()?;
        let inline = size_of::<R::Session>();
        writeln!(
            out,
            "idle         {release} bytes {bytes} on the heap, the session's {inline} in it"
        )?;
        writeln!(out, "idle         {release} of Rust's {rust_bytes} bytes in {blocks} blocks")?;
        Ok(())
    }

    /// Bytes that an idle session has on the heap after a request and its answer; of them Rust's,
    /// and in how many blocks those are.
    fn idle(&mut self) -> Result<(u64, i64, i64)> {
        let mut sessions = Vec::with_capacity(IDLE_SESSIONS);
        for _ in 0..IDLE_SESSIONS {
            let (mut session, mut client) = self.shake(&mut Spent::default())?;
            self.exchange(&mut session, &mut client, &mut Default::default())?;
            sessions.push(Box::new(session));
        }
        let before = heap::used_bytes();
        let freed = measure(|| sessions.clear());
        let count = IDLE_SESSIONS as i64;
        let bytes = (before - heap::used_bytes()) / IDLE_SESSIONS as u64;
        Ok((bytes, -freed.bytes_current / count, -freed.count_current / count))
    }
}

/// What a server took.
#[derive(Default)]
struct Spent {
    ns: f64,
    /// If allocations are counted, which takes time.
    counts: Option<AllocationInfo>,
}

impl Spent {
    fn counting() -> Self {
        Self { ns: 0.0, counts: Some(AllocationInfo::default()) }
    }

    fn on<T>(&mut self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut done = None;
        let before = clock_gettime(ClockId::ThreadCPUTime);
        match &mut self.counts {
            Some(counts) => *counts += measure(|| done = Some(work())),
            None => done = Some(work()),
        }
        let after = clock_gettime(ClockId::ThreadCPUTime);
        let seconds = (after.tv_sec - before.tv_sec) as f64;
        self.ns += seconds * 1e9 + (after.tv_nsec - before.tv_nsec) as f64;
        done.ok_or("nothing was done")?
    }
}

/// All that a client has to send.
fn written(client: &mut ClientConnection) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes)?;
    }
    Ok(bytes)
}

/// Hands bytes to a client, and returns what it makes of them.
fn read(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<Vec<u8>> {
    let mut plain = Vec::new();
    while !bytes.is_empty() {
        client.read_tls(&mut bytes)?;
        let mut waiting = client.process_new_packets()?.plaintext_bytes_to_read();
        while waiting > 0 {
            let start = plain.len();
            plain.resize(start + waiting, 0);
            io::Read::read_exact(&mut client.reader(), &mut plain[start..])?;
            waiting = client.process_new_packets()?.plaintext_bytes_to_read();
        }
    }
    Ok(plain)
}

fn spread(mut samples: Vec<f64>) -> String {
    samples.sort_by(f64::total_cmp);
    let (least, most) = (samples[0], samples[samples.len() - 1]);
    format!("{:7.3} [{least:.3}-{most:.3}]", samples[samples.len() / 2])
}

const ROUNDS: usize = 30;
const HANDSHAKES_PER_ROUND: u32 = 200;
const WARM_UP_HANDSHAKES: u32 = 20;
const RECORDS_PER_ROUND: u32 = 300;
const IDLE_SESSIONS: usize = 500;
/// One full record.
static CONTENT: [u8; 16_384] = [0x5a; 16_384];
