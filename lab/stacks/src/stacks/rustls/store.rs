//! Where a rustls client keeps the session that it resumes: in the thread, not in the config.
//!
//! rustls's own store is a map behind one lock, which all threads of a shared config would take;
//! the lab's client must not add a lock that belongs to nobody. [`ThreadStore`] holds the last
//! session that its thread was given, so that even a config that is shared by all threads writes
//! nothing for it that another thread writes.

use std::cell::RefCell;

use rustls::{
    NamedGroup,
    client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue},
    pki_types::ServerName,
};

use crate::stack::Session;

/// One session per thread.
#[derive(Debug)]
pub(super) struct ThreadStore;

/// A session of either version.
enum Held {
    Tls12(Tls12ClientSessionValue),
    Tls13(Tls13ClientSessionValue),
}

/// Makes the next connection of this thread offer `session`, or none.
pub(super) fn offer(session: Option<Session>) {
    let held = session.and_then(|Session(session)| session.downcast().ok());
    HELD.set(held.map(|held: Box<Held>| *held));
}

/// What a server gave this thread last.
pub(super) fn take() -> Option<Session> {
    HELD.take().map(|held| Session(Box::new(held)))
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

impl ClientSessionStore for ThreadStore {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        HELD.set(Some(Held::Tls12(session)));
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        HELD.with_borrow(|held| match held {
            Some(Held::Tls12(session)) => Some(session.clone()),
            _ => None,
        })
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        HELD.set(None);
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, session: Tls13ClientSessionValue) {
        HELD.set(Some(Held::Tls13(session)));
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        HELD.with_borrow_mut(|held| match held.take() {
            Some(Held::Tls13(session)) => Some(session),
            other => {
                *held = other;
                None
            }
        })
    }
}
