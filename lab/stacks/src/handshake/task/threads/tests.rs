//! When a rate stands still, and who works when in a trial of fixed length.

use std::{sync::Mutex, thread::ThreadId};

use sealane_lab_model::scenario::{Key, Scenario};

use super::*;
use crate::stack::{Endpoint, Session, Worker};

#[test]
fn a_rate_stands_still_after_three_equal_windows() {
    assert!(!stands_still(&[10.0, 10.0]));
    assert!(!stands_still(&[10.0, 10.3, 10.0]));
    assert!(stands_still(&[1.0, 10.0, 10.1, 10.2]));
}

/// Notes which thread makes a server.
struct Noted<T>(T, Arc<Mutex<Vec<ThreadId>>>);

impl Prepared for Noted<Box<dyn Prepared>> {
    fn worker(&self) -> Result<Box<dyn Worker>, Error> {
        Ok(Box::new(Noted(self.0.worker()?, Arc::clone(&self.1))))
    }
}

impl Worker for Noted<Box<dyn Worker>> {
    fn server(&mut self) -> Result<Box<dyn Endpoint>, Error> {
        self.1.lock().unwrap().push(thread::current().id());
        self.0.server()
    }

    fn client(&mut self, session: Option<Session>) -> Result<Box<dyn Endpoint>, Error> {
        self.0.client(session)
    }
}

#[test]
fn threads_of_a_fixed_trial_take_turns_handshake_by_handshake() {
    let (folder, scenario) = (tempfile::tempdir().unwrap(), Scenario::default());
    let credentials = Credentials::make(folder.path(), Key::P256).unwrap();
    let stack = stacks::load("rustls-ring").unwrap();
    let made = Arc::new(Mutex::new(Vec::new()));
    let prepared = Noted(stack.prepare(&scenario, &credentials).unwrap(), Arc::clone(&made));
    let task = Handshakes {
        stack: "rustls-ring".into(),
        scenario,
        credentials: folder.path().into(),
        threads: 2,
        pin: Vec::new(),
        window_ms: 0,
        fixed: Some(Fixed { warm_up: 5, count: 20 }),
        bulk: false,
        fault: None,
    };
    let (prepared, meeting) = (Arc::new(prepared), Arc::new(Meeting::new(2)));
    let (events, _told) = mpsc::channel();
    thread::scope(|scope| {
        for number in 0..2 {
            let (task, meeting) = (task.clone(), Arc::clone(&meeting));
            let prepared: Arc<dyn Prepared> = Arc::<Noted<_>>::clone(&prepared);
            let thread = Thread { number, task, prepared, meeting, events: events.clone() };
            scope.spawn(move || thread.work().unwrap());
        }
    });
    let made = made.lock().unwrap();
    assert_eq!(made.len(), 50);
    assert!(made.windows(2).all(|two| two[0] != two[1]), "{made:?}");
}
