//! Both ends of one thread's connections, [`Pair`], and the [`Clock`] that divides its time among
//! them without a gap.

use std::time::Instant;

use sealane_lab_harness::phase::{self, Phase};
use sealane_lab_model::{
    error::Error,
    scenario::{Kind, Negotiated, Scenario, Share},
};

use super::fault::Fault;
use crate::stack::{Endpoint, Progress, Session, Worker};

/// One thread's connections, one after the other, in memory. Its buffers are used again and again
/// and never filled with zeros.
pub(super) struct Pair {
    worker: Box<dyn Worker>,
    scenario: Scenario,
    session: Option<Session>,
    /// From the second handshake on, in a kind that resumes.
    resumes: bool,
    /// See [`Self::was_of_its_kind`].
    of_its_kind: bool,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
    plaintext: Vec<u8>,
    /// Committed from now on.
    pub(super) fault: Option<Fault>,
}

impl Pair {
    /// The pair of the calling thread.
    pub(super) fn new(worker: Box<dyn Worker>, scenario: Scenario) -> Self {
        let buffer = || Vec::with_capacity(FLIGHT_BYTES);
        Self {
            worker,
            scenario,
            session: None,
            resumes: false,
            of_its_kind: false,
            to_server: buffer(),
            to_client: buffer(),
            plaintext: buffer(),
            fault: None,
        }
    }

    /// Whether the last handshake was of the kind asked for: the first of a kind that resumes is
    /// not, nor one that found nothing to resume in what all threads share.
    pub(super) fn was_of_its_kind(&self) -> bool {
        self.of_its_kind
    }

    /// One connection from its making to its dropping; the time of each part goes to `clock`.
    ///
    /// # Errors
    /// The stack's own, or what differs from what was asked.
    pub(super) fn handshake(&mut self, clock: &mut Clock) -> Result<Negotiated, Error> {
        let (Ends { mut client, server }, negotiated) = self.connected(clock)?;
        self.keep_session(&mut *client, clock)?;

        clock.begin(Phase::ClientSetup);
        phase::on_client(|| drop(client));
        clock.end(Part::ClientSetup);
        clock.begin(Phase::ServerSetup);
        phase::on_server(|| Fault::end(server, self.fault));
        clock.end(Part::ServerSetup);
        Ok(negotiated)
    }

    /// A MiB from the server to the client of one connection, in full records, compared.
    ///
    /// # Errors
    /// The stack's own, or bytes that did not arrive.
    pub(super) fn transfer(&mut self, ends: &mut Ends, clock: &mut Clock) -> Result<(), Error> {
        let piece = [0x5a; RECORD_PLAIN_BYTES];
        self.to_server.clear();
        for _ in 0..MIB_BYTES / RECORD_PLAIN_BYTES {
            self.to_client.clear();
            self.plaintext.clear();
            clock.begin(Phase::Server);
            phase::on_server(|| ends.server.send(&piece, &mut self.to_client))?;
            clock.end(Part::Server);
            clock.begin(Phase::Client);
            let ended = phase::on_client(|| {
                ends.client.receive(&self.to_client, &mut self.plaintext, &mut self.to_server)
            })?;
            clock.end(Part::Client);
            if ended || self.plaintext != piece || !self.to_server.is_empty() {
                return Err(Error::Check("other bytes arrived than were sent".into()));
            }
        }
        clock.begin(Phase::Server);
        phase::on_server(|| Fault::end((), self.fault));
        clock.end(Part::Server);
        Ok(())
    }

    /// A connection whose handshake is over.
    ///
    /// # Errors
    /// The stack's own, or what differs from what was asked.
    pub(super) fn connected(&mut self, clock: &mut Clock) -> Result<(Ends, Negotiated), Error> {
        let session = self.session.take().filter(|_| self.fault != Some(Fault::Full));

        clock.begin(Phase::ClientSetup);
        let mut client = phase::on_client(|| self.worker.client(session))?;
        clock.end(Part::ClientSetup);
        clock.begin(Phase::ServerSetup);
        let mut server = phase::on_server(|| self.worker.server())?;
        clock.end(Part::ServerSetup);

        self.to_client.clear();
        let (mut client_done, mut server_done) = (false, false);
        for _ in 0..FLIGHTS_MAX {
            self.to_server.clear();
            clock.begin(Phase::Client);
            if client_done {
                phase::on_client(|| {
                    client.receive(&self.to_client, &mut self.plaintext, &mut self.to_server)
                })?;
            } else {
                let progress =
                    phase::on_client(|| client.handshake(&self.to_client, &mut self.to_server))?;
                client_done = progress == Progress::Done;
            }
            clock.end(Part::Client);
            self.to_client.clear();
            if self.to_server.is_empty() {
                break;
            }
            clock.begin(Phase::Server);
            if server_done {
                phase::on_server(|| {
                    server.receive(&self.to_server, &mut self.plaintext, &mut self.to_client)
                })?;
            } else {
                let progress =
                    phase::on_server(|| server.handshake(&self.to_server, &mut self.to_client))?;
                server_done = progress == Progress::Done;
            }
            clock.end(Part::Server);
            if let Some(fault) = self.fault {
                fault.touch(&mut self.to_client);
            }
            if self.to_client.is_empty() {
                break;
            }
        }
        if !(client_done && server_done) {
            let stuck = if client_done { "server" } else { "client" };
            return Err(Error::Check(format!("the handshake ended before the {stuck} was done")));
        }
        if !self.plaintext.is_empty() {
            return Err(Error::Check("a handshake brought application data".into()));
        }
        let (at_server, at_client) = (server.negotiated()?, client.negotiated()?);
        self.judge(&at_server, &at_client)?;
        clock.end(Part::Other);
        let negotiated = Negotiated { group: at_client.group.or(at_server.group), ..at_client };
        Ok((Ends { client, server }, negotiated))
    }

    /// Whether both ends agreed on what was asked for, and on whether a session was resumed.
    fn judge(&mut self, at_server: &Negotiated, at_client: &Negotiated) -> Result<(), Error> {
        let Scenario { kind, share, .. } = self.scenario;
        let resumed = match (kind, share) {
            (Kind::Full, _) => false,
            // Whether there was one to be had, only its stack knows.
            (_, Share::Session) => at_client.resumed,
            _ => self.resumes,
        };
        self.scenario.check(at_server, at_client, resumed)?;
        self.resumes = kind != Kind::Full;
        self.of_its_kind = resumed == self.resumes;
        Ok(())
    }

    /// Takes what the next connection is to resume.
    fn keep_session(&mut self, client: &mut dyn Endpoint, clock: &mut Clock) -> Result<(), Error> {
        match (self.scenario.kind, self.scenario.share) {
            (Kind::Full, _) => {}
            (_, Share::Session) => {
                // Whoever has resumed leaves the shared session alone.
                if !self.of_its_kind {
                    self.session = client.session();
                }
                clock.end(Part::Other);
            }
            _ => {
                clock.begin(Phase::Client);
                self.session = phase::on_client(|| client.session());
                clock.end(Part::Client);
                if self.session.is_none() {
                    return Err(Error::Check(
                        "the server gave the client nothing to resume".into(),
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Both ends of a connection that stays.
pub(super) struct Ends {
    client: Box<dyn Endpoint>,
    server: Box<dyn Endpoint>,
}

/// What a thread's time goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Part {
    /// The client's end.
    Client = 0,
    /// Building and dropping it.
    ClientSetup = 1,
    /// The harness's own.
    Other = 2,
    /// The server's end.
    Server = 3,
    /// Building and dropping it.
    ServerSetup = 4,
}

/// Nanoseconds by [`Part`].
pub(super) type Spans = [u64; 5];

/// Divides time: each reading of the clock ends one span and begins the next.
pub(super) struct Clock {
    origin: Instant,
    /// The time of the last reading, nanoseconds after `origin`.
    pub(super) at_ns: u64,
    /// What lies beyond this is not added to `window`.
    pub(super) window_end_ns: u64,
    /// Sums inside the window.
    pub(super) window: Spans,
    /// Sums since they were last cleared.
    pub(super) lap: Spans,
    /// Whether instruments are to see the phases: not during warm-up, and not in a window, where
    /// the marks themselves would be lines that all threads write.
    pub(super) marks: bool,
}

impl Clock {
    /// A clock that counts nothing yet.
    pub(super) fn new(origin: Instant) -> Self {
        let (window, lap) = (Spans::default(), Spans::default());
        Self { origin, at_ns: 0, window_end_ns: 0, window, lap, marks: false }
    }

    /// The time without ending a span.
    pub(super) fn now_ns(&self) -> u64 {
        nanoseconds_since(self.origin)
    }

    /// The work of a side begins; the time since the last reading was its caller's, a few
    /// nanoseconds.
    fn begin(&self, side: Phase) {
        if self.marks {
            phase::enter(side);
        }
    }

    /// What was done since the last reading was `part`.
    pub(super) fn end(&mut self, part: Part) {
        let now_ns = self.now_ns();
        if self.marks {
            phase::enter(Phase::Outside);
        }
        self.lap[part as usize] += now_ns - self.at_ns;
        let end = self.window_end_ns;
        self.window[part as usize] += now_ns.min(end) - self.at_ns.min(end);
        self.at_ns = now_ns;
    }
}

/// Good for 584 years.
fn nanoseconds_since(origin: Instant) -> u64 {
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Room for any flight of a short chain; a buffer grows if one is longer.
const FLIGHT_BYTES: usize = 32 * 1024;
/// Round trips of any handshake, and the tickets behind it.
const FLIGHTS_MAX: usize = 8;
const MIB_BYTES: usize = 1 << 20;
/// Plaintext of a full record.
const RECORD_PLAIN_BYTES: usize = 16 * 1024;
