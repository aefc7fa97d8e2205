//! Orders of JavaScript.

use std::time::Duration;

use sealane_engine::context::ContextId;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::Link;
use sealane_lanes::mailbox::Mail;
use sealane_lanes::orders::{Chosen, ConnectionId, Order};

use super::{Bridge, State};
use crate::bridged::{Bridged, Way};
use crate::message::{Broken, CHOICE_LISTENER, CHOICE_REFUSE, Command, SocketOption, Then};
use crate::settings::Settings;

/// A task for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// A command of JavaScript. The plaintext of a write is with the ring's end.
    Obey(Command),
    /// The connection waited for room, and there is some.
    Resume,
}

impl Bridge {
    /// The next thing to do, if there is one.
    pub(super) fn order(&mut self) -> Option<Order<Task>> {
        if self.state != State::Running {
            return None;
        }
        self.tell_late();
        if !self.stalled.is_empty() && self.parts.events.has_room_again() {
            let id = self.stalled.pop_front()?;
            return Some(Order::Command(id, Task::Resume));
        }
        self.unopened = if self.stalled.is_empty() { 0 } else { self.unopened };
        match self.parts.commands.take() {
            Ok(None) => None,
            Ok(Some((id, command))) => Some(self.order_of(ConnectionId::from_bits(id), command)),
            Err(Broken) => {
                self.break_off();
                None
            }
        }
    }

    fn order_of(&mut self, id: ConnectionId, command: Command) -> Order<Task> {
        match command {
            Command::Choose(context) => Order::Choose(
                id,
                match context {
                    CHOICE_LISTENER => Chosen::Listener,
                    CHOICE_REFUSE => Chosen::Refuse,
                    other => Chosen::Context(ContextId(other)),
                },
            ),
            Command::Taken(count) => {
                self.untaken = self.untaken.saturating_sub(count as usize);
                // It names no connection, so nothing follows.
                Order::Command(ConnectionId::from_bits(NOBODY), Task::Resume)
            }
            #[cfg(feature = "faults")]
            Command::Panic { outside: true } => fault(),
            command => Order::Command(id, Task::Obey(command)),
        }
    }

    pub(super) fn obey<K: Kernel>(
        &mut self,
        bridged: &mut Bridged,
        link: &mut Link<'_, K>,
        task: Task,
        settings: &Settings,
    ) -> Result<(), Cause> {
        let command = match task {
            Task::Resume => {
                self.resume(bridged, link);
                return Ok(());
            }
            Task::Obey(command) => command,
        };
        match command {
            Command::Credit(len) => bridged.note_consumed(len),
            Command::Destroy => return Err(Cause::ServiceClosed),
            Command::End(then) => return finish(bridged, link, &[], then, settings),
            Command::Option(option) => set(link, option),
            #[cfg(feature = "faults")]
            Command::Panic { .. } => fault(),
            Command::Reset => return Err(Cause::ServiceReset),
            Command::Write(then) => return self.write(bridged, link, then, settings),
            // These were dealt with before.
            Command::Choose(_) | Command::Taken(_) => {}
        }
        Ok(())
    }

    /// Stops the lane, because its ring is broken. False: its mailbox is not in place yet.
    pub(super) fn stop_lane(&mut self) -> bool {
        let told = self.parts.mailbox.get().map(|mailbox| mailbox.post(Mail::Stop));
        if told.is_some() {
            self.state = State::Stopping;
        }
        told.is_some()
    }

    fn break_off(&mut self) {
        self.tell_down(
            "the ring's memory was written over: a fault of Sealane, or of whoever else shares it",
        );
        self.state = State::Broken;
    }

    /// Sends the pending events of a connection, because there is room again.
    fn resume<K: Kernel>(&mut self, bridged: &mut Bridged, link: &mut Link<'_, K>) {
        bridged.is_stalled = false;
        if !bridged.is_open {
            self.unopened = self.unopened.saturating_sub(1);
            self.tell_open(bridged, link);
        }
        if bridged.end_due && bridged.is_open {
            self.tell_end(bridged);
        }
        self.tell_credit(bridged, link);
    }

    fn write<K: Kernel>(
        &mut self,
        bridged: &mut Bridged,
        link: &mut Link<'_, K>,
        then: Option<Then>,
        settings: &Settings,
    ) -> Result<(), Cause> {
        let plain = self.parts.commands.plain();
        if bridged.way == Way::Socket || bridged.finishing.is_some() {
            return Ok(());
        }
        bridged.note_write(plain.len())?;
        if let Some(then) = then {
            return finish(bridged, link, plain, then, settings);
        }
        link.send(plain)?;
        self.tell_credit(bridged, link);
        Ok(())
    }
}

/// Sends the last of the plaintext and the end.
fn finish<K: Kernel>(
    bridged: &mut Bridged,
    link: &mut Link<'_, K>,
    plain: &[u8],
    then: Then,
    settings: &Settings,
) -> Result<(), Cause> {
    if bridged.way == Way::Socket {
        return Ok(());
    }
    let was = bridged.finishing.replace(then);
    if was.is_none() {
        link.finish(plain)?;
    }
    if then == Then::Destroy {
        link.abandon_client();
    }
    bridged.has_moved(link);
    link.set_deadline(settings.shutdown_timeout);
    Ok(())
}

fn set<K: Kernel>(link: &mut Link<'_, K>, option: SocketOption) {
    // A unix socket has neither; for JavaScript that is no error.
    let _ = match option {
        SocketOption::KeepAlive(after) => {
            link.set_keep_alive(after.map(|seconds| Duration::from_secs(seconds.into())))
        }
        SocketOption::NoDelay(on) => link.set_no_delay(on),
    };
}

/// Was never given out.
const NOBODY: u64 = u64::MAX;

#[cfg(feature = "faults")]
#[expect(clippy::panic, reason = "it is what this feature is for")]
fn fault() -> ! {
    // node/pack looks for it in the files to be published.
    panic!("faults: a lane panics as it was told")
}
