//! The lock of OpenSSL 1.0 around its error queues, brought back: an [`ErrorLocked`] endpoint takes
//! it as often as Asio made OpenSSL take it.
//!
//! OpenSSL 1.0 kept the error queues of all threads in one hash table behind one lock. Asio clears
//! the calling thread's queue before each operation of its TLS engine and reads it afterwards: two
//! acquisitions per operation, which is at most one record. OpenSSL has kept the queues per thread
//! since 1.1.0, so no supported version shows the fault. The lock is handed to whoever waits
//! longest, as on the write-up's machine (OS X of 2015), so that every meeting of two threads costs
//! a switch between them.

use std::{
    collections::HashMap,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use sealane_lab_model::{error::Error, scenario::Negotiated};

use crate::stack::{Endpoint, Progress, Session};

/// An endpoint whose every operation takes the process-wide lock twice.
pub(crate) struct ErrorLocked(pub(crate) Box<dyn Endpoint>);

impl Endpoint for ErrorLocked {
    fn handshake(&mut self, incoming: &[u8], outgoing: &mut Vec<u8>) -> Result<Progress, Error> {
        self.0.handshake(incoming, outgoing)
    }

    fn send(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        for record in plaintext.chunks(RECORD_PLAIN_BYTES) {
            LOCK.look_up();
            let sent = self.0.send(record, outgoing);
            LOCK.look_up();
            sent?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        incoming: &[u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let mut ended = false;
        for record in incoming.chunks(ENGINE_BUFFER_BYTES) {
            LOCK.look_up();
            let received = self.0.receive(record, plaintext, outgoing);
            LOCK.look_up();
            ended |= received?;
        }
        Ok(ended)
    }

    fn negotiated(&self) -> Result<Negotiated, Error> {
        self.0.negotiated()
    }

    fn session(&mut self) -> Option<Session> {
        self.0.session()
    }
}

/// How often the lock was taken in this process.
pub(crate) fn calls() -> u64 {
    locked(&LOCK.table).as_ref().map_or(0, |table| table.values().sum())
}

/// Plaintext of a full record.
const RECORD_PLAIN_BYTES: usize = 16 * 1024;
/// What Asio's engine takes in at a time.
const ENGINE_BUFFER_BYTES: usize = 17 * 1024;

static LOCK: ErrorLock = ErrorLock {
    turns: Mutex::new(Turns { next: 0, serving: 0 }),
    turn: Condvar::new(),
    table: Mutex::new(None),
};

struct ErrorLock {
    turns: Mutex<Turns>,
    turn: Condvar,
    /// Touched only by the thread whose turn it is, so this lock is never waited for.
    table: Mutex<Option<HashMap<ThreadId, u64>>>,
}

struct Turns {
    next: u64,
    serving: u64,
}

impl ErrorLock {
    fn look_up(&self) {
        let mut turns = locked(&self.turns);
        let mine = turns.next;
        turns.next += 1;
        while turns.serving != mine {
            turns = self.turn.wait(turns).unwrap_or_else(PoisonError::into_inner);
        }
        drop(turns);
        let mut table = locked(&self.table);
        *table.get_or_insert_default().entry(thread::current().id()).or_default() += 1;
        drop(table);
        locked(&self.turns).serving += 1;
        self.turn.notify_all();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
