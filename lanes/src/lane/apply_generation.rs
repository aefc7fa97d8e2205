//! A generation that the control plane hands over: made the lane's own, its new listeners opened,
//! and those that it lacks closed.

use std::rc::Rc;

use sealane_engine::provider::SelfTests;

use crate::connection::token::Token;
use crate::kernel::{Address, Kernel};
use crate::lane::Lane;
use crate::lane::accept::LaneListener;
use crate::service::Service;
use crate::shared::generation::{LaneGeneration, Publication};

/// Connections that are taken from the queue of a listener that closes: its whole backlog.
const LAST_ACCEPTS_MAX: usize = 4096;

impl<S: Service, K: Kernel> Lane<S, K> {
    /// Serves what is published from now on; what cannot be made the lane's own changes nothing.
    pub(crate) fn publish(&mut self, publication: Publication<S::Settings>) {
        let Publication { generation, parcel } = publication;
        let mut sockets = self.inlet.open(parcel);
        let number = generation.number;
        let keys: Vec<(Address, usize)> = generation
            .listeners
            .iter()
            .enumerate()
            .flat_map(|(position, listener)| {
                listener.keys.iter().map(move |key| (key.clone(), position))
            })
            .collect();
        // The control plane has materialised it before, so this fails only for want of memory or
        // random bytes; the lane then goes on with what it has, and the gauge shows it.
        let replica = LaneGeneration::materialise(generation, &mut self.replicas, &self.resources);
        let Ok(replica) = replica else { return };
        let first = self.current.is_none();
        if first && !replica.warm_up(&mut SelfTests::default()) {
            return;
        }
        if !self.service.prepare(&replica.generation, &self.resources.clock) {
            return;
        }
        // What is bound anew takes the place of what was bound before.
        let is_new = |key: &Address| sockets.iter().any(|(new, _)| new == key);
        self.close_listeners(|key| is_new(key) || !keys.iter().any(|(kept, _)| kept == key));
        let replica = Rc::new(replica);
        self.current = Some(Rc::clone(&replica));
        self.settle_replicas();
        for (key, position) in keys {
            let wanted = replica.listener(position);
            let known = self.listeners.iter_mut().find(|(_, listener)| listener.key == key);
            match known {
                Some((_, listener)) => listener.keep(position, wanted),
                None => {
                    if let Some(at) = sockets.iter().position(|(socket, _)| *socket == key) {
                        let fd = sockets.swap_remove(at).1;
                        self.open_listener(LaneListener::new(fd, key, position, wanted));
                    }
                }
            }
        }
        self.reactor.counters.generation.set(number);
        self.begin_sweep();
    }

    fn open_listener(&mut self, listener: LaneListener) {
        let vacant = self.listeners.vacant_entry();
        let token = Token::listener(vacant.key()).bits();
        if self.reactor.watch_level(listener.fd(), token).is_err() {
            self.reactor.counters.accept_errors.add(1);
            return;
        }
        vacant.insert(listener);
    }

    /// Closes listeners, but first takes the connections that the kernel has completed for them.
    pub(crate) fn close_listeners(&mut self, closes: impl Fn(&Address) -> bool) {
        let closing: Vec<usize> = self
            .listeners
            .iter()
            .filter(|(_, listener)| closes(&listener.key))
            .map(|(index, _)| index)
            .collect();
        for index in closing {
            for _ in 0..LAST_ACCEPTS_MAX {
                let before = self.reactor.counters.accepted.value();
                self.accept(index, 1);
                if self.reactor.counters.accepted.value() == before {
                    break;
                }
            }
            // The queue of a unix socket is watched through a copy for as long as any lane has one.
            if let Some(listener) = self.listeners.try_remove(index) {
                self.reactor.unwatch(listener.fd());
            }
        }
    }
}
