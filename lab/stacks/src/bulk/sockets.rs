//! What all runtimes of the lab have in common when bytes go over loopback sockets: the events that
//! both ends report, and the judgement of them all, [`Judge`].

use std::{
    sync::{Arc, mpsc},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use sealane_lab_harness::{credentials::Side, processor::process_cpu_ns};
use sealane_lab_model::{
    document::BulkRound,
    error::Error,
    scenario::{Negotiated, Scenario},
};

use crate::bulk::{
    content::{Content, Sink},
    task::{BulkTask, Loops, Verify},
};

/// The threads that handled one end's records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads(Vec<ThreadId>);

impl Threads {
    /// The calling thread handles records now.
    pub(crate) fn note(&mut self) {
        let here = thread::current().id();
        if self.0.last() != Some(&here) && !self.0.contains(&here) {
            self.0.push(here);
        }
    }

    fn add(&mut self, other: &Self) {
        for thread in &other.0 {
            if !self.0.contains(thread) {
                self.0.push(*thread);
            }
        }
    }
}

/// What an end of a connection tells the thread that waits for all of them.
pub(crate) enum Event {
    /// The end cannot go on.
    Failed(Error),
    /// The end's handshake is over.
    Shaken(Side, Negotiated),
    /// The server has received all there was to come.
    Received { connection: usize, sink: Sink, threads: Threads, at: Instant },
    /// The client has sent all it had.
    Sent { connection: usize, bytes: u64, threads: Threads, first: Instant },
}

/// Says of which connection an error is.
pub(crate) fn of_connection(
    connection: usize,
    what: &str,
) -> impl Fn(&dyn std::fmt::Display) -> Error {
    move |error| Error::Check(format!("connection {connection}: {what}: {error}"))
}

/// Waits for the events of a trial and makes a round of them, or finds what is wrong.
pub(crate) struct Judge<'a> {
    task: &'a BulkTask,
    events: mpsc::Receiver<Event>,
    until: Instant,
    digests: Vec<[u8; 32]>,
    content: Arc<Content>,
    threads: Vec<Threads>,
    negotiated: [Option<Negotiated>; 2],
    cpu_before_ns: u64,
}

impl<'a> Judge<'a> {
    /// Computes what is to come; that takes its time, outside any clock.
    pub(crate) fn new(task: &'a BulkTask) -> (Self, mpsc::Sender<Event>, Arc<Content>) {
        let (sender, events) = mpsc::channel();
        let content = Content::new(task.message_bytes, task.messages);
        let digests = match task.verify {
            Verify::Compare => Vec::new(),
            Verify::Sha256 => content.digests(task.connections, task.threads),
        };
        let judge = Self {
            task,
            events,
            until: Instant::now() + Duration::from_secs(task.seconds_max()),
            digests,
            content: Arc::clone(&content),
            threads: vec![Threads::default(); task.connections],
            negotiated: [None, None],
            cpu_before_ns: 0,
        };
        (judge, sender, content)
    }

    /// Waits for `handshakes` ends to be through, and checks what they agreed on.
    pub(crate) fn await_handshakes(&mut self, handshakes: usize) -> Result<(), Error> {
        for _ in 0..handshakes {
            match self.event("the handshakes")? {
                Event::Shaken(end, negotiated) => {
                    let first = &mut self.negotiated[usize::from(end == Side::Server)];
                    match first {
                        Some(first) if *first != negotiated => {
                            let text =
                                format!("connections agreed on {first:?} and {negotiated:?}");
                            return Err(Error::Check(text));
                        }
                        _ => *first = Some(negotiated),
                    }
                }
                Event::Failed(error) => return Err(error),
                Event::Received { .. } | Event::Sent { .. } => return Err(too_early()),
            }
        }
        Ok(())
    }

    /// The clock starts: to be called right before the first byte may leave.
    pub(crate) fn start(&mut self) {
        self.cpu_before_ns = process_cpu_ns();
    }

    /// Waits for all bytes.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn await_transfer(mut self) -> Result<(Negotiated, BulkRound), Error> {
        let mut round = BulkRound::default();
        let (mut first, mut last) = (None::<Instant>, None::<Instant>);
        let mut sent_bytes = 0;
        for _ in 0..2 * self.task.connections {
            match self.event("the transfer")? {
                Event::Failed(error) => return Err(error),
                Event::Shaken(..) => return Err(too_early()),
                Event::Received { connection, sink, threads, at } => {
                    self.threads[connection].add(&threads);
                    self.compare(connection, &sink)?;
                    round.bytes += sink.received_bytes();
                    round.check_ns += sink.check_ns();
                    last = last.max(Some(at));
                }
                Event::Sent { connection, bytes, threads, first: at } => {
                    self.threads[connection].add(&threads);
                    sent_bytes += bytes;
                    first = Some(first.map_or(at, |first| first.min(at)));
                }
            }
        }
        round.cpu_ns = process_cpu_ns().saturating_sub(self.cpu_before_ns);
        let wall = last.zip(first).map_or(Duration::ZERO, |(last, first)| last - first);
        round.wall_ns = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        round.migrated = self.threads.iter().filter(|threads| threads.0.len() > 1).count() as u64;
        let mut all = Threads::default();
        self.threads.iter().for_each(|threads| all.add(threads));
        round.threads = all.0.len() as u64;
        let wanted = self.task.bytes();
        if sent_bytes != wanted {
            let text = format!("{sent_bytes} bytes were sent, wanted {wanted}");
            return Err(Error::Check(text));
        }
        let [Some(client), Some(server)] = &self.negotiated else {
            return Err(Error::Check("an end never said what it negotiated".into()));
        };
        judge(self.task, &round, server, client)?;
        Ok((server.clone(), round))
    }

    fn compare(&self, connection: usize, sink: &Sink) -> Result<(), Error> {
        let wanted = self.content.bytes();
        if sink.received_bytes() != wanted {
            let text = format!(
                "connection {connection}: {} bytes arrived, wanted {wanted}",
                sink.received_bytes()
            );
            return Err(Error::Check(text));
        }
        match (sink.digest(), self.digests.get(connection)) {
            (Some(came), Some(wanted)) if came != *wanted => Err(Error::Check(format!(
                "connection {connection}: the SHA-256 of what arrived is not that of what was sent"
            ))),
            _ => Ok(()),
        }
    }

    fn event(&self, what: &str) -> Result<Event, Error> {
        let left = self.until.saturating_duration_since(Instant::now());
        self.events.recv_timeout(left).map_err(|_| {
            let seconds = self.task.seconds_max();
            Error::Check(format!("{what} did not end within {seconds} s"))
        })
    }
}

fn too_early() -> Error {
    Error::Check("a connection moved bytes before its handshake was over".into())
}

/// What every runtime's round must hold, the lab's own and Asio's.
///
/// # Errors
/// The first thing that does not.
pub(crate) fn judge(
    task: &BulkTask,
    round: &BulkRound,
    server: &Negotiated,
    client: &Negotiated,
) -> Result<(), Error> {
    let scenario: &Scenario = &task.scenario;
    scenario.check(server, client, false)?;
    if round.bytes != task.bytes() {
        let text = format!("{} bytes arrived, wanted {}", round.bytes, task.bytes());
        return Err(Error::Check(text));
    }
    if round.wall_ns == 0 {
        return Err(Error::Check("the transfer took no time at all".into()));
    }
    let working = task.threads.min(task.connections) as u64;
    let all_work = match task.loops {
        Some(Loops::PerLane) => round.threads == working,
        // Who works in a shared loop is a matter of chance.
        _ => (1..=task.threads as u64).contains(&round.threads),
    };
    if !all_work {
        let text = format!("{} threads handled records, wanted {working}", round.threads);
        return Err(Error::Check(text));
    }
    if task.loops == Some(Loops::PerLane) && round.migrated > 0 {
        let text = format!(
            "{} connections were handled by more than one thread, with a loop per lane",
            round.migrated
        );
        return Err(Error::Check(text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sealane_lab_model::scenario::{Group, Version};

    use super::*;
    use crate::bulk::task::{Emulation, Runtime};

    fn task() -> BulkTask {
        BulkTask {
            stack: "openssl".into(),
            runtime: Runtime::Asio,
            loops: Some(Loops::PerLane),
            emulate: Emulation::None,
            scenario: Scenario::default(),
            threads: 2,
            connections: 4,
            messages: 25,
            message_bytes: 1 << 20,
            verify: Verify::Sha256,
            fault: None,
            processors: Vec::new(),
            credentials: PathBuf::new(),
            include: None,
        }
    }

    fn agreed(peer_certificate: bool) -> Negotiated {
        Negotiated {
            version: Version::Tls13,
            suite: "TLS_AES_128_GCM_SHA256".into(),
            group: Some(Group::X25519),
            resumed: false,
            peer_certificate,
        }
    }

    #[test]
    fn a_round_is_judged_by_bytes_threads_and_what_was_agreed_on() {
        let right =
            BulkRound { bytes: 104_857_600, wall_ns: 1, threads: 2, ..BulkRound::default() };
        let (server, client) = (agreed(false), agreed(true));
        let task = task();
        assert!(judge(&task, &right, &server, &client).is_ok());

        let short = BulkRound { bytes: right.bytes - 1, ..right.clone() };
        assert!(judge(&task, &short, &server, &client).is_err());
        let timeless = BulkRound { wall_ns: 0, ..right.clone() };
        assert!(judge(&task, &timeless, &server, &client).is_err());
        let missing_thread = BulkRound { threads: 1, ..right.clone() };
        assert!(judge(&task, &missing_thread, &server, &client).is_err());
        let wandering = BulkRound { migrated: 1, ..right.clone() };
        assert!(judge(&task, &wandering, &server, &client).is_err());
        let shared = BulkTask { loops: Some(Loops::Shared), ..task.clone() };
        assert!(judge(&shared, &wandering, &server, &client).is_ok());
        assert!(judge(&shared, &missing_thread, &server, &client).is_ok());
        let other_group = Negotiated { group: Some(Group::P256), ..client.clone() };
        assert!(judge(&task, &right, &server, &other_group).is_err());
        assert!(judge(&task, &right, &server, &server).is_err(), "nobody verified the server");
    }

    #[test]
    fn threads_are_told_apart() {
        let mut threads = Threads::default();
        threads.note();
        threads.note();
        assert_eq!(threads.0.len(), 1);
        let mut other = threads.clone();
        thread::scope(|scope| {
            scope.spawn(|| other.note());
        });
        threads.add(&other);
        assert_eq!(threads.0.len(), 2);
    }

    #[test]
    fn limits_have_names() {
        assert!(task().check().is_ok());
        for (wrong, wanted) in [
            (BulkTask { threads: 0, ..task() }, "threads"),
            (BulkTask { connections: 4_097, ..task() }, "connections"),
            (BulkTask { messages: 0, ..task() }, "messages"),
            (BulkTask { message_bytes: (64 << 20) + 1, ..task() }, "bytes per message"),
            (BulkTask { connections: 4_000, ..task() }, "bytes of buffers"),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
