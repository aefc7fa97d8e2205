//! The terminator's service: plaintext goes to a backend over TCP or a unix socket, in the clear or
//! in TLS, and back.
#![forbid(unsafe_code)]

mod asked_names;
mod cancel;
mod clients;
mod orders;
mod postgres;
mod redirect;
mod relayed;
mod turn;

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use sealane_config::{AcceptProxy, Spoken, Tlv};
use sealane_engine::buffer::Buffer;
use sealane_engine::client_certificates::{ClientStanding, Distrust};
use sealane_engine::hello::Hello;
use sealane_engine::policy::ClientCertificates;
use sealane_engine::tickets::LaneClock;
use sealane_lanes::cause::Cause;
use sealane_lanes::generation::{Generation, Listener, Speech};
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::{Arrivals, Link, Received};
use sealane_lanes::orders::{Choice, ConnectionId, Order, Seen};
use sealane_lanes::service::{EndedConnection, Preamble, Service};
use sealane_traffic::access_log::{Ended, LaneLog};
use sealane_traffic::admission::{RefusedClients, Visitors};
use sealane_traffic::backends::RelaySettings;
use sealane_traffic::connection_events::{ConnectionEvent, LaneEvents};
use sealane_traffic::connection_number::NumberGiver;
use sealane_traffic::lane_orders::LaneParts;
use sealane_traffic::notices::Notices;
use sealane_traffic::proxy_header::{self, Malformed, Source, source};

use cancel::{CancelBudget, CancelRequest};
use clients::LaneClients;
use orders::Attendant;
use relayed::Stage;
use turn::RelayTurn;

pub use relayed::Relayed;

/// One lane's relay.
pub struct Relay {
    attendant: Attendant,
    cancels: CancelBudget,
    clients: LaneClients,
    events: Option<LaneEvents>,
    giver: NumberGiver,
    lane: usize,
    log: Option<LaneLog>,
    notices: Notices,
    refused: Arc<RefusedClients>,
    visitors: Visitors,
}

impl Relay {
    /// The relay of a lane with these parts.
    pub fn new(parts: LaneParts) -> Self {
        let LaneParts { giver, orders, log, events, notices, refused } = parts;
        let (lane, clients) = (giver.lane, LaneClients::default());
        let visitors = Visitors::of_lane(lane);
        let cancels = CancelBudget::default();
        let attendant = Attendant::new(giver, orders);
        Self { attendant, cancels, clients, events, giver, lane, log, notices, refused, visitors }
    }

    /// Reads the PROXY header of a connection, and lets the client in that it announces.
    fn proxy_header(
        &mut self,
        client: &mut Option<SocketAddr>,
        relayed: &mut Option<Relayed>,
        bytes: &[u8],
        settings: &RelaySettings,
        accepts: &AcceptProxy,
    ) -> Preamble {
        let header = match proxy_header::decode(bytes) {
            Ok(Some(header)) => header,
            Ok(None) => return Preamble::Unfinished,
            Err(error) => {
                self.notices.say(|| source::refused(&settings.listener, *client, error, bytes));
                return Preamble::refused(match error {
                    Malformed::NotProxy => Cause::ProxyMissing,
                    _ => Cause::ProxyMalformed,
                });
            }
        };
        let mut source =
            Source::of(&header, *client, settings.passes_all(), &accepts.passed_values);
        *client = header.client().or(*client);
        // Whose address nobody tells is not its balancer.
        let told = header.client().map(|client| client.ip());
        let admitted = settings.admission.admit(told, &mut self.visitors);
        source.is_admitted = admitted.is_ok();
        let is_probe = source.is_own;
        relayed.get_or_insert_default().announce(source);
        match admitted {
            Ok(()) => Preamble::Read {
                len: header.len,
                answer: Cow::default(),
                is_through: matches!(settings.spoken, Spoken::Relay | Spoken::Tls),
                is_probe,
            },
            Err(cause) => Preamble::refused(cause),
        }
    }

    fn turn<'a, 'l, K: Kernel>(
        &'a mut self,
        relayed: &'a mut Relayed,
        link: &'a mut Link<'l, K>,
        settings: &'a RelaySettings,
    ) -> RelayTurn<'a, 'l, K> {
        let destination = relayed.destination(settings);
        RelayTurn {
            clients: &mut self.clients,
            destination,
            events: self.events.as_mut(),
            giver: self.giver,
            lane: self.lane,
            link,
            relayed,
            settings,
        }
    }
}

impl Service for Relay {
    type Connection = Relayed;
    type Command = Infallible;
    type Settings = RelaySettings;

    fn prepare(&mut self, generation: &Generation<RelaySettings>, clock: &Arc<LaneClock>) -> bool {
        self.attendant.names.is_on = generation.listeners.iter().any(has_on_demand);
        self.visitors.prepare(generation.listeners.iter().map(|each| &*each.settings.admission));
        self.clients.prepare(generation, clock).is_ok()
    }

    fn admits(
        &mut self,
        client: Option<SocketAddr>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let address = client.map(|client| client.ip());
        let admitted = match &settings.accept_proxy {
            Some(accepts) if !accepts.believes(address) => {
                self.notices.say(|| source::untrusted(&settings.listener, client));
                Err(Cause::ProxyUntrusted)
            }
            // Who it is that comes, its header tells.
            Some(_) => Ok(()),
            None => settings.admission.admit(address, &mut self.visitors),
        };
        if let Some(counters) = settings.admission.counters(self.lane) {
            counters.accepted.add(1);
            if let Err(cause) = admitted {
                counters.note_ended(cause);
            }
        }
        admitted
    }

    fn rejected(&mut self, settings: &RelaySettings, end: &EndedConnection<'_>) {
        self.refused.note(end.client.map(|client| client.ip()), end.cause);
        if let Some(log) = &mut self.log {
            log.write_refused(&Ended {
                connection: self.giver.number(end.id),
                backend: None,
                doubted: None,
                end,
                listener: &settings.listener,
                source: None,
            });
        }
    }

    fn out_of_descriptors(&mut self) {
        self.notices.say(|| OUT_OF_DESCRIPTORS.to_owned());
    }

    fn preamble(
        &mut self,
        client: &mut Option<SocketAddr>,
        relayed: &mut Option<Relayed>,
        bytes: &[u8],
        settings: &RelaySettings,
    ) -> Preamble {
        let has_source = relayed.as_ref().is_some_and(|relayed| relayed.source().is_some());
        match (&settings.accept_proxy, settings.spoken) {
            (Some(accepts), _) if !has_source => {
                self.proxy_header(client, relayed, bytes, settings, accepts)
            }
            (_, Spoken::Postgres) => {
                let relayed = relayed.get_or_insert_default();
                let preamble = postgres::preamble(bytes, &mut relayed.asked_gss);
                if preamble == Preamble::Clear {
                    relayed.set_cancel(CancelRequest::new(bytes, true));
                }
                preamble
            }
            (_, Spoken::Redirect) => {
                let answers_challenges = settings.responder.is_some();
                redirect::preamble(bytes, relayed, settings.https_port, answers_challenges)
            }
            (_, Spoken::Relay | Spoken::Tls) => Preamble::through(0),
        }
    }

    fn accepted(&mut self, id: ConnectionId, client: Option<SocketAddr>, settings: &RelaySettings) {
        if let Some(events) = &mut self.events {
            let listener = &settings.listener;
            events.note(self.giver.number(id), ConnectionEvent::Accepted { listener, client });
        }
    }

    fn hello(&mut self, id: ConnectionId, hello: &Hello, _: &RelaySettings) -> Choice {
        if let Some(events) = &mut self.events {
            let server_name = hello.server_name.as_deref();
            events.note(self.giver.number(id), ConnectionEvent::Hello { server_name });
        }
        Choice::Listener
    }

    fn asked_for(&mut self, server_name: &str, has_own: bool, client: Option<SocketAddr>) {
        self.attendant.names.note(server_name, has_own, client.map(|client| client.ip()));
    }

    fn wants_ja4(&self) -> bool {
        self.log.as_ref().is_some_and(LaneLog::wants_ja4)
    }

    fn next_order(&mut self) -> Option<Order<Infallible>> {
        self.attendant.next()
    }

    fn seen(&mut self, relayed: Option<&Relayed>, settings: &RelaySettings, seen: &Seen<'_>) {
        self.attendant.note_seen(relayed, settings, seen);
    }

    fn visited(&mut self, next: Option<usize>) {
        self.attendant.note_visited(next);
    }

    fn established<K: Kernel>(
        &mut self,
        link: &mut Link<'_, K>,
        relayed: &mut Option<Relayed>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let relayed = relayed.get_or_insert_default();
        let session = link.session();
        if let Some((counters, session)) = settings.admission.counters(self.lane).zip(session) {
            counters.note_handshake(session);
        }
        let alpn = session.and_then(|session| session.alpn());
        relayed.destination = settings.destination_for(link.name_number(), alpn);
        // Once: every further backend that is tried, and the log, are told the same.
        let header = relayed.destination(settings).proxy_header;
        if header.tells(Tlv::Ssl) || self.log.is_some() {
            doubted(link).into_iter().for_each(|distrust| relayed.doubt(distrust));
        }
        if relayed.cancel().is_some() {
            link.abandon_client();
            if !self.cancels.take(link.now_ms()) {
                return link.finish(&[]);
            }
            return self.turn(relayed, link, settings).cancel_at_next();
        }
        let mut turn = self.turn(relayed, link, settings);
        turn.connect()?;
        if settings.spoken == Spoken::Redirect {
            // Its request has been read: whoever says more, or stays, holds nothing up.
            turn.link.abandon_client();
        }
        Ok(())
    }

    fn plaintext<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        plain: &mut Buffer,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        if settings.spoken == Spoken::Postgres
            && !std::mem::replace(&mut turn.relayed.has_spoken, true)
            && postgres::cancel_len(plain.filled()) == Some(plain.len())
        {
            turn.relayed.set_cancel(CancelRequest::new(plain.filled(), false));
            plain.clear();
            turn.link.abandon_client();
            if !self.cancels.take(link.now_ms()) {
                return link.finish(&[]);
            }
            return self.turn(relayed, link, settings).open().map(|_| ());
        }
        // On loopback, and wherever the backend is near, the connection is there already: trying
        // to send at once saves a wake-up.
        if turn.open()? {
            plain.consume(turn.send(plain.filled())?);
        }
        Ok(())
    }

    fn client_ended<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        turn.relayed.client_ended = true;
        if turn.relayed.stage == Stage::Connected && !turn.relayed.has_header() {
            return turn.end();
        }
        Ok(())
    }

    fn attached_writable<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        if turn.relayed.stage == Stage::Connecting {
            if turn.link.attached_status().is_err() {
                return turn.fail_over();
            }
            turn.note_reached()?;
        }
        if let Err(error) = turn.link.flush_attached()
            && !turn.relayed.outlives(&error, turn.link)
        {
            return turn.backend_failed();
        }
        turn.open().map(|_| ())
    }

    fn attached_readable<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        arrivals: &mut Arrivals<'_>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        let received = turn.link.receive_attached(arrivals);
        turn.note_secured()?;
        let is_cancel = turn.relayed.cancel().is_some();
        if is_cancel && turn.relayed.stage == Stage::Connected {
            turn.send_cancel()?;
        }
        match received {
            Ok(Received::Bytes { last: false })
                if turn.awaits_consent() && arrivals.filled() == postgres::YES =>
            {
                turn.relayed.has_consent = true;
                turn.open().map(|_| ())
            }
            // It speaks before TLS has begun, so anybody may be there.
            Ok(Received::Bytes { .. } | Received::End) if turn.is_unproven() => {
                turn.backend_failed()
            }
            // The backend's answer to a cancel request goes to no client.
            Ok(Received::Bytes { last: false }) if is_cancel => Ok(()),
            Ok(Received::Bytes { last: true } | Received::End) if is_cancel => {
                turn.cancel_at_next()
            }
            Ok(Received::Bytes { last: false }) => turn.link.send(arrivals.filled()),
            Ok(Received::Bytes { last: true }) => turn.link.finish(arrivals.filled()),
            Ok(Received::End) => turn.link.finish(&[]),
            Ok(Received::Nothing) => Ok(()),
            Err(_) => turn.backend_failed(),
        }
    }

    fn deadline<K: Kernel>(
        &mut self,
        relayed: &mut Relayed,
        link: &mut Link<'_, K>,
        settings: &RelaySettings,
    ) -> Result<(), Cause> {
        let mut turn = self.turn(relayed, link, settings);
        match turn.relayed.stage {
            Stage::Connected | Stage::Left if turn.relayed.cancel().is_some() => {
                turn.cancel_at_next()
            }
            Stage::Connected | Stage::Left => Ok(()),
            Stage::Connecting | Stage::Securing => turn.fail_over(),
        }
    }

    fn ended(
        &mut self,
        relayed: Option<Relayed>,
        settings: &RelaySettings,
        end: &EndedConnection<'_>,
    ) {
        self.attendant.note_ended(end.id);
        if let Some(events) = &mut self.events {
            events.note(self.giver.number(end.id), ConnectionEvent::Ended(end.cause));
        }
        self.refused.note(end.client.map(|client| client.ip()), end.cause);
        if end.cause == Cause::LimitDescriptors {
            self.out_of_descriptors();
        }
        let source = relayed.as_ref().and_then(Relayed::source);
        let (was_admitted, is_known) = match (&settings.accept_proxy, source) {
            (None, _) => (true, true),
            (Some(_), None) => (false, false),
            (Some(_), Some(source)) => (source.is_admitted, source.has_client()),
        };
        if was_admitted {
            let client = end.client.filter(|_| is_known).map(|client| client.ip());
            settings.admission.leave(client, &mut self.visitors);
        }
        if let Some(counters) = settings.admission.counters(self.lane) {
            counters.note_ended(end.cause);
            counters.received_bytes.add(end.received_bytes);
            counters.sent_bytes.add(end.sent_bytes);
        }
        let reached = relayed.as_ref().and_then(|relayed| {
            Some((relayed.destination(settings), usize::from(relayed.backend?)))
        });
        if let Some((destination, index)) = reached {
            destination.of_lane(index, self.lane).active.subtract(1);
        }
        if let Some(log) = &mut self.log {
            log.write(&Ended {
                connection: self.giver.number(end.id),
                backend: reached.map(|(to, index)| to.backends[index].label.as_str()),
                doubted: relayed.as_ref().and_then(Relayed::doubted),
                end,
                listener: &settings.listener,
                source,
            });
        }
    }
}

/// Why clients wait or are reset although no limit of the configuration is reached.
const OUT_OF_DESCRIPTORS: &str = "out of file descriptors: clients wait or are reset; raise \
    LimitNOFILE= of the unit or `ulimit -n`, or lower limits.connections";

fn has_on_demand(listener: &Listener<RelaySettings>) -> bool {
    let own = match &listener.speech {
        Speech::Plain | Speech::Sealed => None,
        Speech::Tls(context) => Some(context),
    };
    let named = listener.named.iter().filter_map(|named| named.context.as_ref());
    own.into_iter()
        .chain(named)
        .any(|context| context.store.as_ref().is_some_and(|store| store.on_demand))
}

/// Why a certificate that was only asked for is not believed; one that is required is.
fn doubted<K: Kernel>(link: &Link<'_, K>) -> Option<Distrust> {
    let clients = link.context().map(|context| &context.policy.clients);
    match clients {
        Some(ClientCertificates::Asked(_)) => match link.standing() {
            ClientStanding::Unverified(distrust) => Some(distrust),
            ClientStanding::Absent | ClientStanding::NotAsked | ClientStanding::Verified => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
