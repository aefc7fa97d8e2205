//! Events for JavaScript, sent now or as soon as there is room.

use std::os::fd::AsRawFd;

use sealane_engine::client_certificates::ClientStanding;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;
use sealane_lanes::service::EndedConnection;
use zeroize::Zeroizing;

use super::{Bridge, State};
use crate::authorization;
use crate::bridged::Bridged;
use crate::events::DOWN_TEXT_BYTES_MAX;
use crate::failure;
use crate::message::Event;
use crate::opened::{Address, Opened};

/// An event that found no room, and must not be lost.
pub(super) enum Late {
    Close {
        id: u64,
        /// The client's end comes before.
        end: bool,
        cause: Cause,
    },
    Hello {
        id: u64,
        name: Box<str>,
    },
}

/// Hellos that may wait for room; the handshakes of others time out.
pub(super) const HELLOS_MAX: usize = 4096;

/// The weight of a new connection: the lane has computed for a handshake since the one before.
const OPENED_EVENTS: usize = 3;

impl Bridge {
    /// Hands the connection over, or lets it wait for room.
    pub(super) fn tell_open<K: Kernel>(&mut self, bridged: &mut Bridged, link: &mut Link<'_, K>) {
        let Some(session) = link.session() else { return };
        let standing = link.standing();
        let chain_len = session.peer_certificates().len();
        let opened = Opened {
            session,
            server_name: link.server_name().unwrap_or_default(),
            remote: link.client_address(),
            local: link.local_address(),
            asked: standing != ClientStanding::NotAsked,
            authorization_error: authorization::code(&standing, chain_len),
            descriptor: bridged.theirs.as_ref().map(AsRawFd::as_raw_fd),
            context: link.context().map_or(0, |context| context.id.0),
        };
        opened.encode(&mut self.payload);
        // Its slot may be that of a connection with its end not sent yet: that goes first.
        self.tell_late();
        if !self.late.is_empty() || !self.parts.events.has_room_for(self.payload.len()) {
            return self.stall(bridged);
        }
        if let Some(theirs) = bridged.theirs.take() {
            // Before JavaScript asks for it. If JavaScript is gone, it is closed.
            let _ = self.parts.descriptors.send(theirs);
        }
        // There is room.
        self.parts.events.write(Event::Open, bridged.id, &self.payload);
        bridged.is_open = true;
        self.untaken += 1;
        self.parts.counts.opened.add(1);
        self.note_events(OPENED_EVENTS);
        let lines = Zeroizing::new(link.take_key_log());
        if !lines.is_empty() && !self.parts.events.write(Event::KeyLog, bridged.id, &lines) {
            self.parts.counts.dropped.add(1);
        }
    }

    pub(super) fn tell_hello(&mut self, id: u64, name: &str) {
        if self.parts.events.write(Event::Hello, id, name.as_bytes()) {
            return;
        }
        if self.late_hellos < HELLOS_MAX {
            self.late_hellos += 1;
            self.late.push_back(Late::Hello { id, name: name.into() });
        } else {
            self.parts.counts.dropped.add(1);
        }
    }

    pub(super) fn tell_close(&mut self, id: u64, end: bool, cause: Cause) {
        let close = Late::Close { id, end, cause };
        if let Some(late) = self.tell(close) {
            self.late.push_back(late);
        }
    }

    pub(super) fn tell_failed(&mut self, end: &EndedConnection<'_>) {
        if end.cause == Cause::LaneStopped {
            return;
        }
        let client = Address::of(end.client);
        // The client's other certificates are gone with its handshake.
        let distrust = end.distrust.map_or("", |distrust| authorization::code_of(distrust, 1));
        self.payload.clear();
        // A word of a few letters.
        let distrust_len = u32::try_from(distrust.len()).unwrap_or_default();
        for word in [end.cause as u32, client.family.into(), client.port.into(), distrust_len] {
            self.payload.extend_from_slice(&word.to_le_bytes());
        }
        self.payload.extend_from_slice(&client.bytes);
        self.payload.extend_from_slice(distrust.as_bytes());
        self.payload.extend_from_slice(failure::text(end.cause).as_bytes());
        if !self.parts.events.write(Event::Failed, end.id.bits(), &self.payload) {
            self.parts.counts.dropped.add(1);
        }
    }

    /// Sends the events that have found no room so far, as far as there is room now.
    pub(super) fn tell_late(&mut self) {
        while let Some(late) = self.late.pop_front() {
            let is_hello = matches!(late, Late::Hello { .. });
            match self.tell(late) {
                Some(late) => return self.late.push_front(late),
                None => self.late_hellos -= usize::from(is_hello),
            }
        }
    }

    /// The lane's last words; `why` is empty if it ends as it should.
    pub(super) fn tell_down(&mut self, why: &str) {
        if matches!(self.state, State::Broken | State::Stopping | State::Ended) {
            return;
        }
        self.state = State::Ended;
        let text = &why.as_bytes()[..why.len().min(DOWN_TEXT_BYTES_MAX)];
        // There is always room for it.
        self.parts.events.write(Event::Down, 0, text);
        if self.parts.events.wakes() {
            (self.parts.wake)();
        }
    }

    /// Sends an event, or returns it if there is no room.
    fn tell(&mut self, late: Late) -> Option<Late> {
        if self.state != State::Running {
            return None;
        }
        let events = &mut self.parts.events;
        let told = match &late {
            Late::Close { id, end, cause } => {
                if *end && !events.write(Event::End, *id, &[]) {
                    return Some(late);
                }
                if events.write(Event::Close, *id, &(*cause as u32).to_le_bytes()) {
                    return None;
                }
                return Some(Late::Close { id: *id, end: false, cause: *cause });
            }
            Late::Hello { id, name } => events.write(Event::Hello, *id, name.as_bytes()),
        };
        (!told).then_some(late)
    }
}
