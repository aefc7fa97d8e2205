//! The life of connections in the operational log, at level debug.
//!
//! A lane writes an event whole into a bounded ring, or drops it and counts; a thread of its own
//! logs what comes out. Texts are cut to 255 bytes, so that a lane allocates nothing. At
//! other levels there is neither ring nor thread, and a lane has no [`LaneEvents`].

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rtrb::{Consumer, Producer, RingBuffer};
use sealane_lanes::cause::Cause;
use sealane_lanes::counters::Counter;
use sealane_operator::timestamp::Timestamp;
use tracing::{Level, debug, enabled};

use crate::connection_number::ConnectionNumber;

/// An event in the life of a connection.
#[derive(Clone, Copy)]
pub enum ConnectionEvent<'a> {
    /// The client is admitted; behind a balancer its address follows in a PROXY header.
    Accepted {
        /// The name of the listener.
        listener: &'a str,
        /// The address of the other end.
        peer: Option<SocketAddr>,
    },
    /// The ClientHello is complete.
    Hello {
        /// The server name in it.
        server_name: Option<&'a str>,
    },
    /// A backend is chosen.
    Routed {
        /// The backend as it is written in the configuration.
        backend: &'a str,
    },
    /// The backend is connected.
    Connected,
    /// The connection has ended.
    Ended(Cause),
}

/// A lane's end of the log of connections.
pub struct LaneEvents {
    ring: Producer<Entry>,
    second_began: Instant,
    in_second: u32,
    dropped: Arc<Dropped>,
}

/// Events of a lane that were dropped: written by the lane alone, on lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Dropped(Counter);

impl LaneEvents {
    /// Writes an event of a connection, unless there are too many.
    pub fn note(&mut self, connection: ConnectionNumber, event: ConnectionEvent<'_>) {
        let now = Instant::now();
        if now.duration_since(self.second_began) >= SECOND {
            (self.second_began, self.in_second) = (now, 0);
        }
        let is_in_rate = self.in_second < EVENTS_PER_SECOND_MAX;
        self.in_second = self.in_second.saturating_add(1);
        if !is_in_rate || self.ring.push(Entry::new(connection, event)).is_err() {
            self.dropped.0.add(1);
        }
    }
}

/// The thread that logs events.
pub struct EventLog(JoinHandle<()>);

impl EventLog {
    /// Waits until the events of lanes that have ended are logged, at most one second.
    pub fn stop(self) {
        let begun = Instant::now();
        while !self.0.is_finished() && begun.elapsed() < STOP_WAIT {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// The ends of `lanes` lanes, and the thread that logs their events; none if the log is at another
/// level.
///
/// # Errors
/// The thread cannot be started.
pub fn start(lanes: usize) -> io::Result<(Vec<LaneEvents>, Option<EventLog>)> {
    if !enabled!(target: TARGET, Level::DEBUG) {
        return Ok((Vec::new(), None));
    }
    let (mut ends, mut rings) = (Vec::new(), Vec::new());
    for _ in 0..lanes {
        let (ring, entries) = RingBuffer::new(EVENTS_OF_LANE_MAX);
        let dropped = Arc::<Dropped>::default();
        rings.push((entries, Arc::clone(&dropped)));
        ends.push(LaneEvents { ring, second_began: Instant::now(), in_second: 0, dropped });
    }
    let thread = thread::Builder::new().name("connections".into()).spawn(move || log(rings))?;
    Ok((ends, Some(EventLog(thread))))
}

/// Logs all events until the lanes have ended.
fn log(mut rings: Vec<(Consumer<Entry>, Arc<Dropped>)>) {
    let mut dropped_before = 0;
    loop {
        let has_ended = rings.iter().all(|(ring, _)| ring.is_abandoned());
        // After a relaxed load: all that a lane has written before its end is seen below.
        fence(Ordering::Acquire);
        for (ring, _) in &mut rings {
            while let Ok(entry) = ring.pop() {
                entry.log();
            }
        }
        let dropped: u64 = rings.iter().map(|(_, dropped)| dropped.0.value()).sum();
        if dropped > dropped_before {
            debug!(target: TARGET, dropped, "events of connections are dropped");
            dropped_before = dropped;
        }
        if has_ended {
            return;
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// An event with its texts in place.
struct Entry {
    at: Timestamp,
    connection: ConnectionNumber,
    kind: Kind,
}

enum Kind {
    Accepted { listener: Text, peer: Option<SocketAddr> },
    Hello { server_name: Option<Text> },
    Routed { backend: Text },
    Connected,
    Ended(Cause),
}

impl Entry {
    fn new(connection: ConnectionNumber, event: ConnectionEvent<'_>) -> Self {
        let kind = match event {
            ConnectionEvent::Accepted { listener, peer } => {
                Kind::Accepted { listener: Text::cut(listener), peer }
            }
            ConnectionEvent::Hello { server_name } => {
                Kind::Hello { server_name: server_name.map(Text::cut) }
            }
            ConnectionEvent::Routed { backend } => Kind::Routed { backend: Text::cut(backend) },
            ConnectionEvent::Connected => Kind::Connected,
            ConnectionEvent::Ended(cause) => Kind::Ended(cause),
        };
        Self { at: Timestamp::now(), connection, kind }
    }

    fn log(&self) {
        let (connection, at) = (self.connection.to_string(), self.at.to_string());
        let (connection, at) = (connection.as_str(), at.as_str());
        match &self.kind {
            Kind::Accepted { listener, peer } => {
                let peer = peer.map(|peer| peer.to_string());
                let (listener, peer) = (listener.as_str(), peer.as_deref().unwrap_or("unix"));
                debug!(target: TARGET, connection, at, listener, peer, "accepted");
            }
            Kind::Hello { server_name } => {
                let server_name = server_name.as_ref().map_or("", Text::as_str);
                debug!(target: TARGET, connection, at, server_name, "ClientHello received");
            }
            Kind::Routed { backend } => {
                let backend = backend.as_str();
                debug!(target: TARGET, connection, at, backend, "backend chosen");
            }
            Kind::Connected => debug!(target: TARGET, connection, at, "connected to backend"),
            Kind::Ended(cause) => {
                debug!(target: TARGET, connection, at, cause = cause.label(), "ended");
            }
        }
    }
}

/// A text of at most [`TEXT_BYTES_MAX`] bytes, without memory of its own.
struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    len: u8,
}

impl Text {
    fn cut(text: &str) -> Self {
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = [0; TEXT_BYTES_MAX];
        bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
        Self { bytes, len: u8::try_from(end).unwrap_or(u8::MAX) }
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

/// The target of these lines.
const TARGET: &str = "sealane::connection";
/// Bytes of a name that are logged: a host name has at most 253.
const TEXT_BYTES_MAX: usize = 255;
/// Events of a lane that wait for the thread.
const EVENTS_OF_LANE_MAX: usize = 2_048;
/// Events of a lane that are logged in a second.
const EVENTS_PER_SECOND_MAX: u32 = 5_000;
const SECOND: Duration = Duration::from_secs(1);
/// How long the end of the process waits for events to be logged.
const STOP_WAIT: Duration = Duration::from_secs(1);
/// How often the rings are emptied.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use sealane_lanes::orders::ConnectionId;

    use super::*;
    use crate::connection_number::NumberGiver;

    #[test]
    fn text_is_cut_at_a_character() {
        let long = format!("{}é", "a".repeat(TEXT_BYTES_MAX - 1));
        assert_eq!(Text::cut(&long).as_str(), &long[..TEXT_BYTES_MAX - 1]);
        assert_eq!(Text::cut("a.test").as_str(), "a.test");
    }

    #[test]
    fn events_beyond_rate_or_ring_are_counted() {
        let (ring, mut events) = RingBuffer::new(2);
        let dropped = Arc::<Dropped>::default();
        let count = Arc::clone(&dropped);
        let mut lane = LaneEvents { ring, second_began: Instant::now(), in_second: 0, dropped };
        let giver = NumberGiver { process: 1, lane: 0 };
        let connection = giver.number(ConnectionId::from_bits(1));
        for _ in 0..3 {
            lane.note(connection, ConnectionEvent::Connected);
        }
        assert_eq!(count.0.value(), 1, "the ring is full");
        while events.pop().is_ok() {}
        lane.in_second = EVENTS_PER_SECOND_MAX;
        lane.second_began = Instant::now() + SECOND;
        lane.note(connection, ConnectionEvent::Connected);
        assert_eq!(count.0.value(), 2, "the rate is exceeded");
    }
}
