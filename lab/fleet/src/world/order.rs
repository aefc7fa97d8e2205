//! The steps of an order, between any two of which a machine may stop or die.

use sealane_renewal::{CertificateId, Failing, Failure, Outcome, Spent, Ticket, UnixSeconds};

use crate::{
    clock::{HOUR, Time, right, shown_at, skewed},
    load::Change,
    plan::Breach,
};

use super::{Event, World, name_text};

/// An order under way, as its machine knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    machine: u32,
    process: u32,
    name: u32,
    ticket: Ticket,
    /// What the lease's writes carry.
    token: u64,
    /// The number of the certificate that it replaces.
    replaces: Option<u32>,
    /// The authority's number of it; 0 is none yet.
    number: u64,
    moment: Moment,
}

/// Where its machine fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    /// Nowhere.
    None,
    /// The machine stops with the lease, before it orders.
    StopBeforeOrder,
    /// The machine dies with an order that the store does not know.
    DieAfterOrder,
    /// The machine stops with an order that the store knows.
    StopAfterOrder,
    /// The machine dies with a certificate that the store does not have.
    DieBeforeWrite,
}

/// What was noted by one clock, by another that is ahead of it by so many seconds.
fn told(failing: Failing, ahead: i64) -> Failing {
    let Failing { count, until, spent } = failing;
    Failing {
        count,
        until: UnixSeconds(until.0.saturating_add_signed(ahead)),
        spent: Spent { until_ms: spent.until_ms.saturating_add_signed(ahead * 1_000) },
    }
}

impl World {
    /// Takes the lease; the order goes out a moment later.
    pub(super) fn acquire(&mut self, machine: u32, ticket: Ticket, name: u32, replaces: bool) {
        if self.store.is_away(self.now) {
            return self.look_again(machine, ticket, self.now + HOUR / 4);
        }
        let by = self.holder(machine);
        let token = match self.store.acquire(name, by, self.now, &self.sessions) {
            Ok(token) => {
                self.tally.note_change(self.now, Change::Claim);
                token
            }
            Err(until) => {
                self.tally.conflicts += 1;
                return self.look_again(machine, ticket, until);
            }
        };
        if let Some((_, failing)) = self.store.waits.get(&name) {
            let known = &mut self.machines[machine as usize];
            known.schedule.learn_failing(&name_text(name), told(*failing, known.skew));
        }
        self.tally.in_flight_max = self.tally.in_flight_max.max(self.store.leases());
        let held = self.store.certificates[name as usize];
        let moment = self.draw_moment();
        let order = Order {
            machine,
            process: self.machines[machine as usize].process,
            name,
            ticket,
            token,
            replaces: (replaces && held.number > 0).then_some(held.number),
            number: 0,
            moment,
        };
        let at = self.now + self.random.u64(1..4);
        self.push(at, Event::Begin(order));
        if moment == Moment::StopBeforeOrder {
            self.fall_asleep(machine);
        }
    }

    /// Orders at the authority, or goes on with the order that the holder before made.
    pub(super) fn begin(&mut self, mut order: Order) {
        let Some(machine) = self.runs(order, Event::Begin(order)) else { return };
        let name = order.name;
        if self.store.is_away(self.now) {
            return self.give_up(order, self.now + HOUR / 4);
        }
        let is_read = self.plan.breach != Some(Breach::NoRecords);
        if let Some(number) = self.store.orders.get(&name).copied().filter(|_| is_read) {
            self.tally.resumed += 1;
            order.number = number;
        } else {
            let clock = skewed(self.now, self.machines[machine as usize].skew);
            let is_new = self.store.certificates[name as usize].number == 0;
            if is_new && self.plan.breach != Some(Breach::NoSharedLimit) {
                let slot = self.store.slot(name, clock);
                if slot > clock {
                    self.release(name, order.token);
                    return self.answer(order, Outcome::HeldByAnother { until: slot });
                }
            }
            let ordered = self.authority.order(name, order.replaces, self.now, &mut self.tally);
            match ordered {
                Err(failure) => return self.fail(order, failure),
                Ok(number) => {
                    order.number = number;
                    // It is used: one that fails takes the next.
                    self.store.slots.remove(&name);
                }
            }
            if order.moment == Moment::DieAfterOrder {
                return self.die(machine);
            }
        }
        if !self.may_write(order) {
            return self.give_up(order, self.now + HOUR / 60);
        }
        self.store.orders.insert(name, order.number);
        self.tally.note_change(self.now, Change::Order);
        let at = self.now + self.random.u64(20..90);
        self.push(at, Event::Finish(order));
        if order.moment == Moment::StopAfterOrder {
            self.fall_asleep(machine);
        } else {
            self.set_wake(machine);
        }
    }

    /// Gets the certificate.
    pub(super) fn finish(&mut self, order: Order) {
        let Some(machine) = self.runs(order, Event::Finish(order)) else { return };
        match self.authority.finish(order.number, self.now, &mut self.tally) {
            Err(failure) => {
                let is_over = failure != Failure::TryLater;
                if is_over && self.may_write(order) {
                    self.store.orders.remove(&order.name);
                    self.tally.note_change(self.now, Change::End);
                }
                self.fail(order, failure);
            }
            Ok(_) if order.moment == Moment::DieBeforeWrite => self.die(machine),
            Ok(_) => self.write(order),
        }
    }

    /// Puts the certificate into the store, and all machines have it.
    pub(super) fn write(&mut self, order: Order) {
        let Some(machine) = self.runs(order, Event::Write(order)) else { return };
        if self.store.is_away(self.now) {
            let at = self.store.back_at() + self.random.u64(1..120);
            return self.push(at, Event::Write(order));
        }
        let Ok(held) = self.authority.finish(order.number, self.now, &mut self.tally) else {
            return self.fail(order, Failure::TryLater);
        };
        if !self.may_write(order) {
            return self.give_up(order, self.now + HOUR / 60);
        }
        let name = order.name;
        let before = std::mem::replace(&mut self.store.certificates[name as usize], held);
        if before.number == 0 {
            self.tally.first_issues += 1;
            let waited = self.now - self.came[name as usize];
            self.tally.first_wait_max = self.tally.first_wait_max.max(waited);
        } else if before.not_after < self.now {
            self.count_expired(before);
        } else {
            let left = before.not_after - self.now;
            self.tally.least_left = Some(self.tally.least_left.unwrap_or(left).min(left));
        }
        self.store.orders.remove(&name);
        self.store.waits.remove(&name);
        self.tally.note_change(self.now, Change::End);
        self.release(name, order.token);
        self.authority.forget(order.number);
        let not_after = right(held.not_after);
        let not_before = right(held.not_after - crate::plan::LIFE);
        self.answer(order, Outcome::Issued { not_before, not_after });
        let keeper = self.members.keeper(name);
        if keeper != machine {
            self.give(name);
        }
    }

    /// The machine of an order, if it runs the process that made it; an event of one that stopped
    /// waits for it.
    fn runs(&mut self, order: Order, event: Event) -> Option<u32> {
        let machine = &self.machines[order.machine as usize];
        if machine.is_dead || machine.process != order.process {
            return None;
        }
        if let Some(until) = machine.asleep_until {
            self.push(until + 1, event);
            return None;
        }
        Some(order.machine)
    }

    /// A write that carries the order's token would succeed.
    fn may_write(&mut self, order: Order) -> bool {
        let admits = !self.store.is_away(self.now)
            && self.store.admits(order.name, order.token, self.now, &self.sessions);
        if admits {
            return true;
        }
        if self.plan.breach == Some(Breach::NoFence) {
            self.tally.written_late += 1;
            return true;
        }
        self.tally.fenced += 1;
        false
    }

    /// Gives a claim back.
    fn release(&mut self, name: u32, token: u64) {
        self.tally.note_change(self.now, Change::Claim);
        self.store.release(name, token);
    }

    fn fail(&mut self, order: Order, failure: Failure) {
        self.release(order.name, order.token);
        let is_of_the_name = matches!(failure, Failure::Validation { .. });
        self.answer(order, Outcome::Failed(failure));
        let machine = &self.machines[order.machine as usize];
        let due = machine.schedule.due(CertificateId(order.name.into()));
        if let (true, Some(due)) = (is_of_the_name, due) {
            // Who keeps the name next must know: the authority counts failures by the hour.
            let failing = machine.schedule.failing(&name_text(order.name)).unwrap_or_default();
            let right = told(failing, -machine.skew);
            self.store.waits.insert(order.name, (shown_at(due, machine.skew), right));
        }
    }

    fn give_up(&mut self, order: Order, until: Time) {
        self.release(order.name, order.token);
        let until = self.shown(order.machine, until);
        self.answer(order, Outcome::HeldByAnother { until });
    }

    fn look_again(&mut self, machine: u32, ticket: Ticket, until: Time) {
        let until = self.shown(machine, until);
        self.happened(machine, ticket, Outcome::HeldByAnother { until });
    }

    fn answer(&mut self, order: Order, outcome: Outcome) {
        self.happened(order.machine, order.ticket, outcome);
        self.set_wake(order.machine);
    }

    fn shown(&self, machine: u32, at: Time) -> UnixSeconds {
        skewed(at, self.machines[machine as usize].skew)
    }

    fn draw_moment(&mut self) -> Moment {
        let drawn = self.random.u32(0..self.plan.worst_moments());
        let moment = match drawn {
            0 => Moment::StopBeforeOrder,
            1 => Moment::DieAfterOrder,
            2 => Moment::StopAfterOrder,
            3 => Moment::DieBeforeWrite,
            _ => return Moment::None,
        };
        self.tally.worst_moments += 1;
        moment
    }
}
