//! State that changes over the life of a server's lanes.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use sealane_engine::context::Context;
use sealane_lanes::counters::Counters;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::start::LaneHandle;

use super::{Order, Served, TicketKeys};
use crate::blocked::Blocked;
use crate::service::Parts;
use crate::settings::Settings;

pub(super) struct State {
    pub(super) stage: Stage,
    /// Parts of lanes that have not started.
    pub(super) parts: Vec<Parts>,
    pub(super) sockets: Vec<OwnedFd>,
    pub(super) ticket_keys: TicketKeys,
    /// The present default context.
    pub(super) context: Arc<Context>,
    pub(super) named: Vec<(String, Arc<Context>)>,
    /// Clients that are rejected now.
    pub(super) blocked: Arc<Blocked>,
    /// The number of the last generation.
    pub(super) number: u64,
    /// Orders for the lanes, kept until they run.
    pub(super) deferred: Vec<Order>,
    pub(super) lanes: Vec<LaneHandle<Settings>>,
    /// Still there when the lanes are gone.
    pub(super) counters: Vec<Arc<Counters>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    New,
    Starting,
    Running,
    Stopping,
    Stopped,
}

impl State {
    pub(super) fn new(context: Arc<Context>, ticket_keys: TicketKeys, parts: Vec<Parts>) -> Self {
        Self {
            stage: Stage::New,
            parts,
            sockets: Vec::new(),
            ticket_keys,
            context,
            named: Vec::new(),
            blocked: Arc::default(),
            number: 0,
            deferred: Vec::new(),
            lanes: Vec::new(),
            counters: Vec::new(),
        }
    }

    pub(super) fn serve(&mut self, served: Served) {
        self.context = served.context;
        self.named = served.named;
        self.blocked = Arc::new(served.blocked);
    }

    /// Sends mail to every lane; one that has ended does not read it.
    pub(super) fn tell_all(&self, mail: impl Fn() -> Option<Mail<Settings>>) {
        for (lane, mail) in self.lanes.iter().filter_map(|lane| Some((lane, mail()?))) {
            lane.post(mail);
        }
    }
}
