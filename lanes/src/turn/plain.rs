//! What comes outside of TLS that ends here: preambles, connections in the clear, and TLS that is
//! passed on as it is.

use crate::cause::Cause;
use crate::connection::ClientTls;
use crate::connection::buffers::Buffers;
use crate::connection::phase::{Early, Phase};
use crate::kernel::Kernel;
use crate::service::{PREAMBLE_BYTES_MAX, Preamble, Service};
use crate::shared::generation::Speech;
use crate::turn::{Entry, Turn};

impl<S: Service, K: Kernel> Turn<'_, S, K> {
    /// Passes on what stands in the receive buffer as it is.
    pub(crate) fn take_plain(&mut self) -> Result<(), Cause> {
        self.entry.connection.times.active_ms = self.reactor.now_ms;
        let Buffers { received, plain, .. } = &mut *self.buffers;
        if plain.append(received.filled()) < received.len() {
            return Err(Cause::Internal);
        }
        let outcome = self.deliver();
        self.buffers.plain.clear();
        outcome
    }

    /// Lets the service read the preamble as far as it has come, and goes on behind it.
    pub(crate) fn pass_preamble(&mut self) -> Result<(), Cause> {
        while self.entry.connection.phase == Phase::Preamble {
            let Entry { connection, generation, listener, state } = &mut *self.entry;
            let settings = &generation.listener(*listener).settings;
            let bytes = self.buffers.received.filled();
            match self.service.preamble(&mut connection.address, state, bytes, settings) {
                Preamble::Clear => {
                    self.buffers.received.clear();
                    return self.hand_over();
                }
                Preamble::Read { len: 0, is_through: false, .. } => return Err(Cause::Internal),
                Preamble::Read { len, answer, is_through, is_probe } => {
                    self.buffers.received.consume(len);
                    connection.is_probe = is_probe;
                    if is_through {
                        connection.phase = Phase::Hello;
                    }
                    self.buffers.outbox.wire.append(&answer);
                    self.link().transmit()?;
                    if !is_through && self.buffers.received.is_empty() {
                        return Ok(());
                    }
                }
                Preamble::Refused { cause, answer } if answer.is_empty() => return Err(cause),
                Preamble::Refused { cause, answer } => {
                    self.buffers.outbox.wire.append(&answer);
                    return self.refuse(cause);
                }
                Preamble::Unfinished if bytes.len() >= PREAMBLE_BYTES_MAX => {
                    return Err(Cause::ProtocolError);
                }
                Preamble::Unfinished => {
                    connection.tls = ClientTls::Before(Early::whole(bytes));
                    return Ok(());
                }
            }
        }
        self.go_on_behind_preamble()
    }

    fn go_on_behind_preamble(&mut self) -> Result<(), Cause> {
        let Entry { generation, listener, .. } = &*self.entry;
        if matches!(generation.listener(*listener).speech, Speech::Plain) {
            self.hand_over()?;
        } else {
            let (due_ms, _) = self.own_deadline();
            self.link().arm(due_ms);
        }
        if self.buffers.received.is_empty() { Ok(()) } else { self.take_ciphertext() }
    }
}
