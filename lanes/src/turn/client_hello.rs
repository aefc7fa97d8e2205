//! From the first bytes of a client to its session: which context admits it, and who decides that.

use std::rc::Rc;

use sealane_engine::alert::{self, AlertDescription};
use sealane_engine::context::{LaneContext, Refusal};
use sealane_engine::hello::{self, Fault, Gathering, Hello, Peek};
use sealane_engine::session::{Awaited, ServerSession};

use crate::cause::Cause;
use crate::connection::ClientTls;
use crate::connection::phase::{Early, Phase};
use crate::connection::token::ConnectionId;
use crate::failure::Failure;
use crate::kernel::Kernel;
use crate::service::Service;
use crate::shared::orders::Choice;
use crate::turn::Turn;

/// What was decided about a hello that waited.
pub(crate) enum Decision {
    Context(Rc<LaneContext>),
    Listener,
    Refuse,
    /// A context that nobody has provided.
    Unknown,
}

/// Bytes that may wait together with a hello, beyond as many as a hello may have: its records'
/// headers, and a change_cipher_spec.
const WAITING_BYTES_MAX: usize = 64;
/// The answer to a plain HTTP request on the TLS port.
const PLAIN_HTTP_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\
Content-Type: text/plain\r\nContent-Length: 61\r\nConnection: close\r\n\r\n\
This port speaks TLS: use https:// instead of http:// for it.";

impl<S: Service, K: Kernel> Turn<'_, S, K> {
    /// Creates the session once the whole ClientHello is there; returns whether it did.
    pub(crate) fn begin_session(&mut self) -> Result<bool, Cause> {
        let hello_bytes_max = self.entry.generation.generation.limits.hello_bytes_max;
        match self.gather(hello_bytes_max) {
            Peek::Hello(hello) => match self.introduce(&hello, hello_bytes_max) {
                Choice::Listener => self.admit_hello(hello, Decision::Listener),
                Choice::Wait
                    if self.buffers.received.len() > hello_bytes_max + WAITING_BYTES_MAX =>
                {
                    self.refuse_hello(Fault::TooLong)
                }
                Choice::Wait => {
                    self.entry.connection.hello.server_name = hello.server_name;
                    let early = Early::whole(self.buffers.received.filled());
                    self.entry.connection.tls = ClientTls::Before(early);
                    self.entry.connection.phase = Phase::Waiting;
                    Ok(false)
                }
            },
            Peek::NeedMore => Ok(false),
            Peek::PlainHttp => {
                self.buffers.outbox.wire.append(PLAIN_HTTP_ANSWER);
                self.refuse(Cause::PlainHttp).map(|()| false)
            }
            Peek::Refused(fault) => self.refuse_hello(fault),
        }
    }

    /// Looks at what has just been received. A hello in one record stays where it is; another is
    /// kept with the connection as it comes, and put in front of what follows it when it is whole.
    fn gather(&mut self, hello_bytes_max: usize) -> Peek {
        let received = &mut self.buffers.received;
        let carried_len = self.entry.connection.carried_len();
        let ClientTls::Before(kept) = &mut self.entry.connection.tls else {
            return Peek::Refused(Fault::Unexpected);
        };
        if kept.is_none() {
            match hello::peek_record(received.filled(), hello_bytes_max) {
                Peek::NeedMore => {}
                decided => return decided,
            }
        }
        let mut gathering = match kept.take().map(|early| *early) {
            Some(Early::Gathering(gathering)) => gathering,
            Some(Early::Whole(_)) | None => Gathering::default(),
        };
        let (taken, peeked) = gathering.take(&received.filled()[carried_len..], hello_bytes_max);
        match peeked {
            Peek::Hello(_) => {
                let framed_len = gathering.framed_len();
                received.consume((carried_len + taken).saturating_sub(framed_len));
                gathering.frame(received.filled_mut());
            }
            Peek::NeedMore => *kept = Some(Box::new(Early::Gathering(gathering))),
            Peek::PlainHttp | Peek::Refused(_) => {}
        }
        peeked
    }

    fn refuse_hello(&mut self, fault: Fault) -> Result<bool, Cause> {
        self.buffers.outbox.wire.append(&fault.alert());
        self.entry.connection.failed.failure = Some(Box::new(Failure::of_fault(fault)));
        let cause = match fault {
            Fault::NotTls | Fault::OldVersion => Cause::NotTls,
            Fault::Fallback
            | Fault::IllegalLimit
            | Fault::RecordTooLong
            | Fault::Undecodable
            | Fault::Unexpected => Cause::HandshakeFailed,
            Fault::TooLong => Cause::HelloTooLong,
        };
        self.refuse(cause).map(|()| false)
    }

    /// Keeps what a log may want to know of the hello, and asks who decides about it.
    fn introduce(&mut self, hello: &Hello, hello_bytes_max: usize) -> Choice {
        self.entry.connection.hello.offered = Some(hello.offered);
        if self.service.wants_ja4() {
            let received = self.buffers.received.filled();
            self.entry.connection.hello.ja4 = hello::ja4(received, hello_bytes_max);
        }
        let settings = &self.entry.generation.listener(self.entry.listener).settings;
        self.service.hello(ConnectionId::from_bits(self.entry.connection.token), hello, settings)
    }

    /// Goes on with a hello that has waited.
    pub(crate) fn answer_hello(&mut self, decision: Decision) -> Result<(), Cause> {
        let hello_bytes_max = self.entry.generation.generation.limits.hello_bytes_max;
        let received = &mut self.buffers.received;
        received.clear();
        self.entry.connection.take_carried(received);
        match hello::peek(received.filled(), hello_bytes_max) {
            Peek::Hello(hello) => {
                if self.admit_hello(hello, decision)? {
                    self.feed()?;
                }
                Ok(())
            }
            // The same bytes were a hello before.
            _ => Err(Cause::Internal),
        }
    }

    fn admit_hello(&mut self, hello: Hello, decision: Decision) -> Result<bool, Cause> {
        let context = match decision {
            Decision::Context(context) => Ok(context),
            Decision::Listener => {
                let contexts = self.entry.generation.contexts(self.entry.listener);
                let replica = contexts.for_name(hello.server_name.as_deref());
                self.entry.connection.hello.name_number = replica.number;
                let Some(context) = &replica.context else {
                    self.entry.connection.hello.server_name = hello.server_name;
                    return self.hand_over().and_then(|()| self.take_plain()).map(|()| false);
                };
                Ok(Rc::clone(context))
            }
            Decision::Refuse => Err((Refusal::UnknownName.alert(), Cause::UnknownName)),
            Decision::Unknown => {
                Err((alert::fatal(AlertDescription::InternalError), Cause::Internal))
            }
        };
        // FIN or a reset has come: no handshake can end, and a signature would be for nothing.
        if context.is_ok() && self.entry.connection.socket.hangup {
            self.entry.connection.hello.server_name = hello.server_name;
            return Err(Cause::ClientGone);
        }
        let admitted = context.and_then(|context| match context.challenge(&hello) {
            Some(config) => Ok((config, context, true)),
            None => {
                let admitted = context.admit(&hello);
                if let (Some(has_own), Some(name)) = (context.has_own(), &hello.server_name) {
                    let client = self.entry.connection.address;
                    self.service.asked_for(name, has_own, client);
                }
                match admitted {
                    Ok(config) => Ok((config, context, false)),
                    Err(refusal) => Err((refusal.alert(), Cause::of_refusal(refusal))),
                }
            }
        });
        let connection = &mut self.entry.connection;
        match admitted {
            Ok((config, context, is_challenge)) => {
                let asks = context.asks_certificates() && !is_challenge;
                let awaited = Awaited::new(asks, hello.offers_early_data);
                connection.is_challenge = is_challenge;
                let session = ServerSession::new(config).map_err(|_| Cause::Internal)?;
                connection.hello.server_name = hello.server_name;
                let session = session
                    .awaiting(awaited)
                    .noting_extended_master_secret(hello.lacks_extended_master_secret);
                connection.tls = ClientTls::Begun { session: Box::new(session), context };
                connection.phase = Phase::Handshake;
                Ok(true)
            }
            Err((alert, cause)) => {
                connection.hello.server_name = hello.server_name;
                connection.failed.failure = Some(Box::new(Failure::by_alert(&alert)));
                self.buffers.outbox.wire.append(&alert);
                self.refuse(cause).map(|()| false)
            }
        }
    }
}
