//! How the control plane speaks to a lane: a queue and a wake-up, never the lane's memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use sealane_engine::context::{Context, ContextId};
use sealane_engine::tickets::TicketRoot;
use sealane_file_table::Descriptor;

use crate::shared::generation::Publication;

/// A message to a lane.
pub enum Mail<S> {
    /// Count [`answered`] up to this, as a sign that mail is read.
    ///
    /// [`answered`]: crate::shared::counters::Counters::answered
    Answer(u64),
    /// Close what was handed over and is not published.
    Discard,
    /// Stop accepting, let connections end, and stop after the given time at the latest.
    Drain(Duration),
    /// Be ready to admit connections under this context where [`Chosen::Context`] names it.
    ///
    /// [`Chosen::Context`]: crate::shared::orders::Chosen::Context
    Provide(Arc<Context>),
    /// Serve this from now on; connections that exist stay with what they have.
    Publish(Box<Publication<S>>),
    /// Do this on the lane's thread, at the lane's time in milliseconds: how a service is told what
    /// is about no connection of its own. It must neither wait nor panic.
    Run(Box<dyn FnOnce(u64) + Send>),
    /// Stop at once; what is still open is reset.
    Stop,
    /// Seal and open tickets with this root from now on, under every context.
    Tickets(TicketRoot),
    /// Admit no more connections under the context of this id.
    Withdraw(ContextId),
}

/// The control plane's end.
pub struct Mailbox<S> {
    sender: Sender<Mail<S>>,
    bell: Arc<OwnedFd>,
}

impl<S> Clone for Mailbox<S> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), bell: Arc::clone(&self.bell) }
    }
}

impl<S> Mailbox<S> {
    /// What the lane is woken with.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Puts `mail` into the lane's queue and wakes the lane.
    ///
    /// Returns whether the lane is still there to read it.
    pub fn post(&self, mail: Mail<S>) -> bool {
        let posted = self.sender.send(mail).is_ok();
        self.ring();
        posted
    }

    /// Wakes the lane, which asks its service for orders.
    pub fn ring(&self) {
        // Can only fail when the counter is full, and then the lane is being woken already.
        let _ = rustix::io::write(self.bell.as_fd(), &1u64.to_ne_bytes());
    }
}

/// The lane's end.
pub(crate) struct Inbox<S> {
    pub(crate) receiver: Receiver<Mail<S>>,
    pub(crate) bell: Descriptor,
}

impl<S> Inbox<S> {
    /// Takes the next message, if any, without waiting.
    pub(crate) fn take(&self) -> Option<Mail<S>> {
        self.receiver.try_recv().ok()
    }

    pub(crate) fn silence_bell(&self) {
        // Not blocking; there is nothing to read when the bell was rung twice for one wake-up.
        let _ = rustix::io::read(self.bell.as_fd(), &mut [0; 8][..]);
    }
}

/// The control plane's end, and the lane's, but for the bell: that has to be handed over.
pub(crate) fn mailbox<S>() -> io::Result<(Mailbox<S>, Receiver<Mail<S>>)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
    let (sender, receiver) = channel();
    Ok((Mailbox { sender, bell }, receiver))
}
