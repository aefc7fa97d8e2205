//! The simulation: events in the order of their time, until the last day.

mod order;

use std::{cmp::Reverse, collections::BinaryHeap};

use fastrand::Rng;
use sealane_renewal::{
    Action, Authority as Settled, CertificateId, Held as Known, Limits, Outcome, Schedule,
    Settings, Ticket,
};

use crate::{
    authority::{Authority, Held, information},
    clock::{DAY, HOUR, START, Time, shown_at, skewed},
    load::Change,
    members::Members,
    plan::{BETWEEN_DEATHS, Breach, LIFE, LOOK, Plan, SKEW},
    store::{Holder, Session, Store},
    tally::Tally,
};

use order::Order;

/// Machines, their store and their authority.
pub(crate) struct World {
    plan: Plan,
    now: Time,
    random: Rng,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    events_pushed: u64,
    machines: Vec<Machine>,
    sessions: Vec<Session>,
    members: Members,
    authority: Authority,
    store: Store,
    /// When a name came that had no certificate at the beginning.
    came: Vec<Time>,
    pub(crate) tally: Tally,
}

struct Machine {
    schedule: Schedule,
    skew: i64,
    /// Grows with each process.
    process: u32,
    is_dead: bool,
    asleep_until: Option<Time>,
    /// The event that wakes its schedule.
    wake: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A name without a certificate comes.
    Come {
        name: u32,
    },
    Die {
        machine: u32,
    },
    /// An order goes to the authority.
    Begin(Order),
    /// An order ends at the authority.
    Finish(Order),
    /// The store counted a session down.
    Lapse {
        machine: u32,
        since: Time,
    },
    /// A machine that died is here again.
    Return {
        machine: u32,
    },
    /// The authority revokes.
    Revoke,
    /// A machine that stopped goes on.
    Rouse {
        machine: u32,
    },
    /// A schedule has something to do.
    Wake {
        machine: u32,
    },
    /// A certificate goes to the store.
    Write(Order),
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let mut random = Rng::with_seed(plan.seed);
        let skew_max = if plan.breach == Some(Breach::WildClocks) { DAY * 3 / 2 } else { SKEW };
        let skew_max = i64::try_from(skew_max).unwrap_or(0);
        let machine = |_| Machine {
            schedule: Schedule::new(settings(&plan), random.u64(..)),
            skew: random.i64(-skew_max..=skew_max),
            process: 0,
            is_dead: false,
            asleep_until: None,
            wake: None,
        };
        let machines: Vec<_> = (0..plan.machines).map(machine).collect();
        let session = Session { number: 0, silent_since: None };
        let mut world = Self {
            now: START,
            events: BinaryHeap::new(),
            events_pushed: 0,
            sessions: vec![session; machines.len()],
            machines,
            members: Members::new(plan.machines, plan.names),
            authority: Authority::new(&plan),
            store: Store::new(&plan),
            came: vec![START; plan.names as usize],
            tally: Tally::default(),
            random,
            plan,
        };
        world.populate();
        world
    }

    /// Runs to the end of a day; `false` after the last one.
    pub(crate) fn run_day(&mut self, day: u32) -> bool {
        let end = START + u64::from(day + 1) * DAY;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at >= end {
                self.push(at, event);
                break;
            }
            self.now = at;
            self.step(event);
        }
        self.now = end;
        if end < self.plan.end() {
            return true;
        }
        self.conclude();
        false
    }

    /// Clocks as they are, for the tickets.
    pub(crate) fn skews(&self) -> Vec<i64> {
        self.machines.iter().map(|machine| machine.skew).collect()
    }

    /// Names with certificates of any age, names that come later, and what goes wrong.
    fn populate(&mut self) {
        let new = self.plan.new_names();
        let days = u64::from(self.plan.days.saturating_sub(20).max(1));
        for name in 0..self.plan.names {
            if name < new / 2 {
                self.push(self.plan.import_at(), Event::Come { name });
            } else if name < new {
                let at = START + self.random.u64(0..days * DAY);
                self.push(at, Event::Come { name });
            } else {
                // One of a hundred is overdue.
                let is_late = self.random.u32(0..100) == 0;
                let age = if is_late { LIFE / 3 * 2..LIFE - DAY } else { 0..LIFE / 3 * 2 };
                let age = self.random.u64(age);
                self.store.certificates[name as usize] = self.authority.had(name, age);
                self.want(self.members.keeper(name), name);
            }
        }
        for machine in 0..self.plan.machines {
            self.plan_death(machine);
            self.set_wake(machine);
        }
        self.push(self.plan.revocation().to, Event::Revoke);
    }

    fn step(&mut self, event: Event) {
        match event {
            Event::Begin(order) => self.begin(order),
            Event::Come { name } => {
                self.came[name as usize] = self.now;
                self.want(self.members.keeper(name), name);
                self.set_wake(self.members.keeper(name));
            }
            Event::Die { machine } => {
                self.plan_death(machine);
                self.die(machine);
            }
            Event::Finish(order) => self.finish(order),
            Event::Lapse { machine, since } => self.lapse(machine, since),
            Event::Return { machine } => self.come_back(machine),
            Event::Revoke => self.revoke(),
            Event::Rouse { machine } => self.rouse(machine),
            Event::Wake { machine } => {
                let known = &mut self.machines[machine as usize];
                if known.wake == Some(self.now) && !known.is_dead && known.asleep_until.is_none() {
                    known.wake = None;
                    self.drive(machine);
                }
            }
            Event::Write(order) => self.write(order),
        }
    }

    /// Does what a machine's schedule says until it has nothing more.
    fn drive(&mut self, machine: u32) {
        loop {
            let known = &mut self.machines[machine as usize];
            let clock = skewed(self.now, known.skew);
            let Some(action) = known.schedule.next(clock) else { break };
            match action {
                Action::AskPermission { .. } => {}
                Action::AskRenewalInfo { ticket, id: CertificateId(id), .. } => {
                    self.tally.hour(self.now).asks += 1;
                    let name = u32::try_from(id).unwrap_or(0);
                    let number = self.store.certificates[name as usize].number;
                    let window = self.authority.window(name, number, self.now);
                    self.happened(machine, ticket, information(window));
                }
                Action::Order { ticket, id: CertificateId(id), replaces, .. } => {
                    let name = u32::try_from(id).unwrap_or(0);
                    self.acquire(machine, ticket, name, replaces);
                }
            }
            let known = &self.machines[machine as usize];
            if known.is_dead || known.asleep_until.is_some() {
                return;
            }
        }
        self.set_wake(machine);
    }

    fn happened(&mut self, machine: u32, ticket: Ticket, outcome: Outcome) {
        let known = &mut self.machines[machine as usize];
        known.schedule.happened(skewed(self.now, known.skew), ticket, outcome);
    }

    /// Pushes the event for what a schedule wants next, if there is none yet that is as early.
    fn set_wake(&mut self, machine: u32) {
        let known = &mut self.machines[machine as usize];
        let Some(at) = known.schedule.wake_at(skewed(self.now, known.skew)) else { return };
        let at = shown_at(at, known.skew).max(self.now);
        // An agent looks once in a while, each at seconds of its own.
        let own = u64::from(machine) % LOOK;
        let at = (at + own).next_multiple_of(LOOK) - own;
        if known.wake.is_none_or(|wake| at < wake || wake < self.now) {
            known.wake = Some(at);
            self.push(at, Event::Wake { machine });
        }
    }

    /// Tells a machine of a name that it keeps, with what the store has.
    fn want(&mut self, machine: u32, name: u32) {
        let known = &mut self.machines[machine as usize];
        if known.is_dead {
            return;
        }
        let held = known_of(self.store.certificates[name as usize]);
        let names = vec![name_text(name)];
        let clock = skewed(self.now, known.skew);
        known.schedule.want(clock, CertificateId(name.into()), names, held);
    }

    fn plan_death(&mut self, machine: u32) {
        let at = self.now + self.random.u64(DAY..2 * BETWEEN_DEATHS);
        self.push(at, Event::Die { machine });
    }

    fn die(&mut self, machine: u32) {
        let known = &mut self.machines[machine as usize];
        if std::mem::replace(&mut known.is_dead, true) {
            return;
        }
        self.tally.deaths += 1;
        known.process += 1;
        known.asleep_until = None;
        known.wake = None;
        known.schedule = Schedule::new(settings(&self.plan), self.random.u64(..));
        self.fall_silent(machine);
        let away = match self.random.u32(0..25) {
            // Somebody has to bring another.
            0 => 30 * DAY..60 * DAY,
            1..13 => 2 * HOUR..2 * DAY,
            _ => 600..2 * HOUR,
        };
        let away = self.random.u64(away);
        self.push(self.now + away, Event::Return { machine });
    }

    /// A machine stops for minutes, and does not know it.
    fn fall_asleep(&mut self, machine: u32) {
        let until = self.now + self.random.u64(90..900);
        self.machines[machine as usize].asleep_until = Some(until);
        self.fall_silent(machine);
        self.push(until, Event::Rouse { machine });
    }

    fn fall_silent(&mut self, machine: u32) {
        let session = &mut self.sessions[machine as usize];
        if session.silent_since.is_none() {
            session.silent_since = Some(self.now);
            let at = self.store.over_at(self.now);
            self.push(at, Event::Lapse { machine, since: self.now });
        }
    }

    /// Others look after what a machine did that the store no longer hears of.
    fn lapse(&mut self, machine: u32, since: Time) {
        if self.sessions[machine as usize].silent_since != Some(since) {
            return;
        }
        self.tally.note_change(self.now, Change::Member);
        if self.plan.breach == Some(Breach::NoTakeover) {
            return;
        }
        let moved = self.members.leave(machine);
        self.tally.moved += moved.len() as u64;
        for name in moved {
            let known = &mut self.machines[machine as usize];
            known.schedule.forget(CertificateId(name.into()));
            self.give(name);
        }
    }

    fn come_back(&mut self, machine: u32) {
        if self.store.is_away(self.now) {
            // It serves what its own store has, and looks after nothing.
            let at = self.store.back_at() + self.random.u64(1..300);
            return self.push(at, Event::Return { machine });
        }
        let known = &mut self.machines[machine as usize];
        known.is_dead = false;
        self.begin_session(machine);
        for name in 0..self.plan.names {
            if self.members.keeper(name) == machine && self.is_known(name) {
                self.want(machine, name);
            }
        }
        self.set_wake(machine);
    }

    fn rouse(&mut self, machine: u32) {
        let known = &mut self.machines[machine as usize];
        if known.is_dead || known.asleep_until != Some(self.now) {
            return;
        }
        known.asleep_until = None;
        let since = self.sessions[machine as usize].silent_since.take();
        if since.is_some_and(|since| self.now >= self.store.over_at(since)) {
            self.begin_session(machine);
        }
        self.drive(machine);
    }

    /// A machine is a member again: leases of its session before are over.
    fn begin_session(&mut self, machine: u32) {
        self.tally.note_change(self.now, Change::Member);
        let session = &mut self.sessions[machine as usize];
        session.number += 1;
        session.silent_since = None;
        for (name, before) in self.members.join(machine) {
            let other = &mut self.machines[before as usize];
            other.schedule.forget(CertificateId(name.into()));
            self.give(name);
        }
    }

    /// The keeper of a name learns of it, if it came already.
    fn give(&mut self, name: u32) {
        if self.is_known(name) {
            let keeper = self.members.keeper(name);
            self.want(keeper, name);
            let known = &self.machines[keeper as usize];
            if !known.is_dead && known.asleep_until.is_none() {
                self.set_wake(keeper);
            }
        }
    }

    /// A name that has a certificate, or came without one.
    fn is_known(&self, name: u32) -> bool {
        self.store.certificates[name as usize].number > 0 || self.came[name as usize] > START
    }

    /// The authority revokes what it said it would.
    fn revoke(&mut self) {
        let announced = self.plan.revocation();
        for name in 0..self.plan.names {
            let served = self.store.certificates[name as usize];
            let issued = self.authority.certificate(name);
            let is_served = served.number == issued.number
                && served.number > 0
                && self.authority.is_to_be_revoked(name, issued, announced.to);
            let is_broken = [announced.from, announced.to]
                .into_iter()
                .any(|at| self.authority.is_broken(name, at));
            self.tally.revoked_served += u64::from(is_served && !is_broken);
        }
        self.tally.revoked += u64::from(self.plan.names - self.plan.new_names()) / 20;
    }

    /// Counts what is served at the end.
    fn conclude(&mut self) {
        for name in 0..self.plan.names {
            let served = self.store.certificates[name as usize];
            if served.number == 0 {
                // Who came a day ago, and waits for no moment that the account's limit gave it.
                let came = self.came[name as usize];
                let is_waiting = self.store.slots.contains_key(&name);
                let is_missing = came > START && came + DAY < self.now && !is_waiting;
                self.tally.missing += u64::from(is_missing);
            } else if served.not_after < self.now {
                self.count_expired(served);
            }
        }
    }

    /// Counts a certificate that was served after its end.
    fn count_expired(&mut self, served: Held) {
        let absence = self.plan.authority_away();
        let due = served.not_after - LIFE / 3;
        let covers = absence.from < served.not_after && due < absence.to;
        self.tally.expired += 1;
        self.tally.expired_in_absence += u64::from(covers && absence.seconds() >= LIFE / 3);
    }

    fn holder(&self, machine: u32) -> Holder {
        Holder { machine, session: self.sessions[machine as usize].number }
    }

    fn push(&mut self, at: Time, event: Event) {
        if at < self.plan.end() + DAY {
            self.events_pushed += 1;
            self.events.push(Reverse((at, self.events_pushed, event)));
        }
    }
}

/// A name as it is written.
fn name_text(name: u32) -> String {
    format!("n{name}.example")
}

/// What a machine's schedule is told of the authority: the fleet keeps what machines share.
fn settings(plan: &Plan) -> Settings {
    let limits = Limits { orders: None, certificates_of_domain: None, ..Limits::lets_encrypt() };
    let has_renewal_info = plan.breach != Some(Breach::NoInformation);
    Settings::new(vec![Settled { has_renewal_info, limits }])
}

/// A certificate in the store, as a schedule is told of it.
fn known_of(held: Held) -> Option<Known> {
    use sealane_renewal::AuthorityId;

    use crate::clock::right;
    (held.number > 0).then(|| Known {
        not_before: right(held.not_after - LIFE),
        not_after: right(held.not_after),
        authority: Some(AuthorityId(0)),
    })
}
