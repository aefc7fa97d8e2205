//! One thread of the load, [`Driver`]: one epoll, and when to start what on which connection.

use std::{
    collections::VecDeque,
    fs,
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    time::Timespec,
};
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
};
use sealane_lab_harness::{interrupt::Interrupt, processor::thread_cpu_ns};
use sealane_lab_model::{error::Error, histogram::Times};
use slab::Slab;

use crate::load::{
    Expect, Offer, Request, Tally,
    offer::Configs,
    slot::{Failure, Kind, Scratch, Slot, Timing, Turn},
};

/// Whom the load is for, and what every connection of it has in common.
#[derive(Clone)]
pub struct Plan {
    /// The server's address.
    pub address: SocketAddr,
    /// The `Host` of requests.
    pub host: String,
    /// `None`: no TLS.
    pub tls: Option<Tls>,
    /// What every handshake must come to.
    pub expect: Expect,
    /// Failures are counted and the load goes on; else the first one ends it.
    pub tolerant: bool,
    /// Ctrl-C, which ends the load.
    pub interrupted: Interrupt,
    /// Seconds from the load's beginning of which each has its times apart too.
    pub seconds_apart: usize,
    /// Operations that ended, for whoever shows the progress.
    pub progress: Arc<AtomicU64>,
}

/// The TLS part of a plan.
#[derive(Clone)]
pub struct Tls {
    /// What every hello holds.
    pub offer: Offer,
    /// Asked for in turn, one per connection.
    pub names: Vec<ServerName<'static>>,
    /// Share of the connections that are to resume, if a ticket is there; 0 to 1.
    pub resume: f64,
}

impl Plan {
    /// The settings of a connection that is not to resume.
    pub(crate) fn fresh(&self) -> Result<Arc<ClientConfig>, Error> {
        let tls = self.tls.as_ref();
        let configs = tls.map(|tls| tls.offer.configs()).transpose()?;
        let none = || Error::Unsupported("without TLS there is no handshake".into());
        configs.map(|configs| configs.fresh).ok_or_else(none)
    }
}

/// What one thread shall do.
#[derive(Clone, Debug)]
pub struct Load {
    /// What an operation is.
    pub work: Work,
    /// When operations begin.
    pub pace: Pace,
    /// When the load ends.
    pub until: Until,
}

/// What an operation is.
#[derive(Clone, Debug)]
pub enum Work {
    /// A connection, with a request on it or none, and its close.
    Connections(Option<Request>),
    /// A connection that has answered one request and stays.
    Establish(Option<Request>),
    /// A request on one of the connections that stand.
    Requests(Request),
}

/// When operations start.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// So many are under way at any time: an open place is taken at once.
    Closed(usize),
    /// At fixed times, whatever became of those before, as long as so many are not under way.
    Open {
        /// The time from one start to the next.
        interval: Duration,
        /// The time from the load's beginning to the first.
        delay: Duration,
        /// Most operations that are under way.
        in_flight_max: usize,
    },
}

/// When no more start.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So many have started.
    Count(u64),
    /// So much time has passed.
    Elapsed(Duration),
}

/// One thread's connections and what they came to.
pub(crate) struct Driver {
    plan: Plan,
    configs: Option<Configs>,
    epoll: OwnedFd,
    slots: Slab<Slot>,
    /// Connections that stand with nothing under way; the one that has rested longest is next, so
    /// that as many requests as connections are one for each.
    ready: VecDeque<usize>,
    again: Vec<usize>,
    scratch: Scratch,
    tally: Tally,
    nonce: u64,
    connections: u64,
    /// Fraction of a connection that is owed to resumption.
    resume_owed: f64,
    /// The certificate of the connection that was established last.
    leaf: Option<CertificateDer<'static>>,
}

/// One load on its way.
struct Course {
    load: Load,
    began: Instant,
    started: u64,
}

impl Driver {
    /// A driver whose requests are numbered apart from those of other threads.
    pub(crate) fn new(plan: Plan, thread: u64) -> Result<Self, Error> {
        let configs = plan.tls.as_ref().map(|tls| tls.offer.configs()).transpose()?;
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(system("epoll"))?;
        Ok(Self {
            plan,
            configs,
            epoll,
            slots: Slab::new(),
            ready: VecDeque::new(),
            again: Vec::new(),
            scratch: Scratch::new(),
            tally: Tally::new()?,
            nonce: thread << NONCE_BITS,
            connections: 0,
            resume_owed: 0.0,
            leaf: None,
        })
    }

    /// Does it and tells what came out, and nothing of what was before.
    pub(crate) fn run(&mut self, load: Load) -> Result<Tally, Error> {
        self.tally = Tally::new()?;
        let apart = (0..self.plan.seconds_apart).map(|_| Times::new());
        self.tally.by_second = apart.collect::<Result<_, _>>()?;
        let (cpu_before, waited_before) = (thread_cpu_ns(), waited_ns());
        let course = Course { load, began: Instant::now(), started: 0 };
        if let Err(error) = self.follow(course) {
            // A server that serves one after the other must not wait for those that nobody needs.
            self.slots.clear();
            self.ready.clear();
            return Err(error);
        }
        let mut tally = std::mem::replace(&mut self.tally, Tally::new()?);
        tally.cpu_ns.push(thread_cpu_ns().saturating_sub(cpu_before));
        tally.waited_ns = waited_ns().saturating_sub(waited_before);
        Ok(tally)
    }

    /// Until all that was to be done is done.
    fn follow(&mut self, mut course: Course) -> Result<(), Error> {
        // A short load is over before the first look.
        self.look_at_the_clock(&mut course, Instant::now())?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let mut looked = Instant::now();
        loop {
            let now = Instant::now();
            self.start_due(&mut course, now)?;
            if self.slots.len() == self.ready.len() && !course.wants_more(now) {
                break;
            }
            self.wait(&course, &mut events)?;
            for event in events.drain(..) {
                let Event { data, .. } = event;
                self.turn(usize::try_from(data.u64()).unwrap_or(usize::MAX), &course)?;
            }
            for key in std::mem::take(&mut self.again) {
                self.turn(key, &course)?;
            }
            if looked.elapsed() > Duration::from_millis(LOOK_INTERVAL_MS) {
                looked = Instant::now();
                self.look_at_the_clock(&mut course, looked)?;
            }
        }
        Ok(())
    }

    /// Closes what stands.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        let nothing =
            Load { work: Work::Connections(None), pace: Pace::Closed(0), until: Until::Count(0) };
        for key in std::mem::take(&mut self.ready) {
            if let Some(slot) = self.slots.get_mut(key) {
                slot.timing = timing(Instant::now(), Instant::now());
                slot.close();
                self.again.push(key);
            }
        }
        self.run(nothing).map(drop)
    }

    /// The certificate that the server showed last.
    pub(crate) fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.leaf.as_ref()
    }

    /// Changes what handshakes must come to from now on, and the share that is to resume.
    pub(crate) fn change(&mut self, expect: Expect, resume: f64) {
        self.plan.expect = expect;
        if let Some(tls) = &mut self.plan.tls {
            tls.resume = resume;
        }
    }

    fn start_due(&mut self, course: &mut Course, now: Instant) -> Result<(), Error> {
        for _ in 0..STARTS_MAX {
            let under_way = self.slots.len() - self.ready.len();
            let Some(intended) = course.due(now, under_way) else { break };
            let timing = timing(intended, now);
            let late = now.saturating_duration_since(intended);
            let begun = match &course.load.work {
                Work::Requests(request) => match self.ready.pop_front() {
                    Some(key) => {
                        self.nonce += 1;
                        if let Some(slot) = self.slots.get_mut(key) {
                            slot.timing = timing;
                            slot.ask(request, &self.plan.host, self.nonce);
                        }
                        Ok(key)
                    }
                    // In the place of one that the server closed.
                    None if self.plan.tolerant => self.connect(timing),
                    // It would wait for ever.
                    None if self.slots.is_empty() => {
                        return Err(Error::Check("no connection stands for a request".into()));
                    }
                    None => break,
                },
                _ => self.connect(timing),
            };
            course.started += 1;
            self.tally.late = late;
            match begun {
                Ok(key) => self.turn(key, course)?,
                Err(failure) => self.fail(failure)?,
            }
        }
        Ok(())
    }

    fn connect(&mut self, timing: Timing) -> Result<usize, Failure> {
        let mut offers_ticket = false;
        let tls = match (&self.plan.tls, &self.configs) {
            (Some(tls), Some(configs)) => {
                self.resume_owed += tls.resume;
                let resumes = self.resume_owed >= 1.0;
                self.resume_owed -= f64::from(u8::from(resumes));
                offers_ticket = resumes && configs.tickets.len() > 0;
                let name = usize::try_from(self.connections).unwrap_or(0) % tls.names.len().max(1);
                let config = if resumes { &configs.resuming } else { &configs.fresh };
                tls.names.get(name).map(|name| (config, name))
            }
            _ => None,
        };
        self.connections += 1;
        let mut slot = Slot::connect(self.plan.address, tls, timing)?;
        slot.offers_ticket = offers_ticket;
        self.tally.tickets_offered += u64::from(offers_ticket);
        let key = self.slots.insert(slot);
        // Edge-triggered: one system call for all of a connection's life.
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
        let data = EventData::new_u64(key as u64);
        let tcp = self.slots[key].tcp();
        if let Err(error) = epoll::add(&self.epoll, tcp, data, interest) {
            self.slots.remove(key);
            return Err(Failure::system("epoll", &error.into()));
        }
        Ok(key)
    }

    /// One connection goes on, as far as it can.
    fn turn(&mut self, key: usize, course: &Course) -> Result<(), Error> {
        for _ in 0..MILESTONES_MAX {
            let Some(slot) = self.slots.get_mut(key) else { return Ok(()) };
            match slot.advance(&self.plan.expect, &mut self.scratch) {
                Ok(Turn::Waits) => return Ok(()),
                Ok(Turn::Again) => break,
                Ok(Turn::Closed) => {
                    self.slots.remove(key);
                    return Ok(());
                }
                Ok(turn) => self.reached(key, turn, course),
                Err(failure) => {
                    let was_ready = slot.is_ready();
                    self.slots.remove(key);
                    self.ready.retain(|ready| *ready != key);
                    // Between two requests a server may close; the next one finds another way.
                    if was_ready && self.plan.tolerant && failure.kind == Kind::Closed {
                        return Ok(());
                    }
                    return self.fail(failure);
                }
            }
        }
        self.again.push(key);
        Ok(())
    }

    fn reached(&mut self, key: usize, turn: Turn, course: &Course) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        let now = Instant::now();
        let over = match turn {
            Turn::Established(negotiation) => {
                record(&mut self.tally.handshake, now - slot.timing.started);
                if let Some(negotiation) = negotiation {
                    self.leaf = slot.leaf().cloned();
                    self.tally.tickets_resumed +=
                        u64::from(slot.offers_ticket && negotiation.resumed);
                    *self.tally.negotiations.entry(negotiation).or_default() += 1;
                }
                match &course.load.work {
                    Work::Connections(Some(request))
                    | Work::Establish(Some(request))
                    | Work::Requests(request) => {
                        self.nonce += 1;
                        slot.ask(request, &self.plan.host, self.nonce);
                        false
                    }
                    _ => true,
                }
            }
            Turn::Answered(body_bytes) => {
                self.tally.body_bytes += body_bytes;
                true
            }
            _ => false,
        };
        if !over {
            return;
        }
        let took = now - slot.timing.intended;
        record(&mut self.tally.service, now - slot.timing.started);
        record(&mut self.tally.intended, took);
        match course.load.work {
            Work::Connections(_) => slot.close(),
            _ => self.ready.push_back(key),
        }
        self.tally.operations += 1;
        self.tally.elapsed = now - course.began;
        let second = usize::try_from(self.tally.elapsed.as_secs()).unwrap_or(0);
        if second < SECONDS_MAX {
            let seconds = self.tally.per_second.len().max(second + 1);
            self.tally.per_second.resize(seconds, 0);
            self.tally.per_second[second] += 1;
        }
        if let Some(times) = self.tally.by_second.get_mut(second) {
            record(times, took);
        }
        self.plan.progress.fetch_add(1, Relaxed);
    }

    fn wait(&mut self, course: &Course, events: &mut Vec<Event>) -> Result<(), Error> {
        let longest = Duration::from_millis(LOOK_INTERVAL_MS);
        let now = Instant::now();
        let timeout = match self.wakes_for(course, now) {
            _ if !self.again.is_empty() => Duration::ZERO,
            Some(next) => next.saturating_duration_since(now).min(longest),
            None => longest,
        };
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let spare = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, spare, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(system("epoll")(error)),
        }
    }

    /// When to look without an event: at the next start of the schedule, if there is room for it.
    /// Else only an event can make some, and looking at once, again and again, would take the
    /// processor from the server.
    fn wakes_for(&self, course: &Course, now: Instant) -> Option<Instant> {
        let lacks_connection = matches!(course.load.work, Work::Requests(_))
            && self.ready.is_empty()
            && !self.plan.tolerant;
        course.wakes(now, self.slots.len() - self.ready.len()).filter(|_| !lacks_connection)
    }

    /// Ends what takes too long, and everything if the operator wants it.
    fn look_at_the_clock(&mut self, course: &mut Course, now: Instant) -> Result<(), Error> {
        if self.plan.interrupted.is_pressed() {
            if !self.plan.tolerant {
                return Err(Error::Interrupted);
            }
            // What is done is kept; what is under way is neither good nor bad.
            course.load.until = Until::Count(0);
            self.slots.clear();
            self.ready.clear();
            self.again.clear();
        }
        let is_late = |slot: &Slot| !slot.is_ready() && slot.timing.deadline < now;
        let late: Vec<usize> =
            self.slots.iter().filter(|(_, slot)| is_late(slot)).map(|(key, _)| key).collect();
        for key in late {
            self.slots.remove(key);
            let text = format!("no end after {WAIT_SECONDS_MAX} s");
            self.fail(Failure::new(Kind::TimedOut, text))?;
        }
        Ok(())
    }

    fn fail(&mut self, failure: Failure) -> Result<(), Error> {
        if !self.plan.tolerant {
            return Err(Error::Check(failure.text));
        }
        self.plan.progress.fetch_add(1, Relaxed);
        self.tally.fail(failure);
        Ok(())
    }
}

impl Course {
    /// When the next operation was to start, if it may start now.
    fn due(&self, now: Instant, under_way: usize) -> Option<Instant> {
        if !self.wants_more(now) {
            return None;
        }
        match self.load.pace {
            Pace::Closed(in_flight) => (under_way < in_flight).then_some(now),
            Pace::Open { in_flight_max, .. } => {
                self.next_start().filter(|next| *next <= now && under_way < in_flight_max)
            }
        }
    }

    /// The next start of an open loop, if one is still to come and has room.
    fn wakes(&self, now: Instant, under_way: usize) -> Option<Instant> {
        match self.load.pace {
            Pace::Open { in_flight_max, .. }
                if under_way < in_flight_max && self.wants_more(now) =>
            {
                self.next_start()
            }
            Pace::Open { .. } | Pace::Closed(_) => None,
        }
    }

    fn wants_more(&self, now: Instant) -> bool {
        match (self.load.until, self.load.pace) {
            (Until::Count(count), _) => self.started < count,
            // Those that are late for want of room are still owed.
            (Until::Elapsed(time), Pace::Open { .. }) => {
                self.next_start().is_some_and(|next| next < self.began + time)
            }
            (Until::Elapsed(time), Pace::Closed(_)) => now < self.began + time,
        }
    }

    /// By the schedule of an open loop.
    fn next_start(&self) -> Option<Instant> {
        match self.load.pace {
            Pace::Closed(_) => None,
            Pace::Open { interval, delay, .. } => {
                let number = u32::try_from(self.started).unwrap_or(u32::MAX);
                Some(self.began + delay + interval.saturating_mul(number))
            }
        }
    }
}

fn timing(intended: Instant, started: Instant) -> Timing {
    Timing { intended, started, deadline: started + Duration::from_secs(WAIT_SECONDS_MAX) }
}

fn record(times: &mut Times, time: Duration) {
    times.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

/// What the calling thread has waited for a processor so far; 0 where the kernel does not tell.
fn waited_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn system(what: &'static str) -> impl FnOnce(rustix::io::Errno) -> Error {
    move |error| Error::io(what)(error.into())
}

/// A wait longer than this is a failure of the server: the machine may be busy, but not so busy.
pub(crate) const WAIT_SECONDS_MAX: u64 = 20;
const EVENTS_MAX: usize = 256;
const LOOK_INTERVAL_MS: u64 = 100;
const MILESTONES_MAX: usize = 8;
const NONCE_BITS: u32 = 48;
/// Seconds whose operations are counted apart.
const SECONDS_MAX: usize = 3_600;
const STARTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_shares_its_processor_has_waited() {
        let one = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| one.is_set(*cpu)).unwrap();
        let spin = move || {
            sealane_lab_harness::processor::confine(&[first]).unwrap();
            let before = waited_ns();
            // Two that never rest cannot both run all the time.
            while waited_ns() == before {}
        };
        let both = [std::thread::spawn(spin), std::thread::spawn(spin)];
        both.into_iter().for_each(|thread| thread.join().unwrap());
    }

    #[test]
    fn requests_without_a_connection_are_an_error_and_no_wait() {
        let load = Load::closed(Work::Requests(Request::Echo), 1, Until::Count(1));
        let error = Driver::new(plan(), 0).unwrap().run(load).err().unwrap().to_string();
        assert!(error.contains("no connection stands"), "{error}");
    }

    #[test]
    fn an_open_loop_without_room_waits_for_events_alone() {
        let began = Instant::now();
        let (interval, delay) = (Duration::from_millis(10), Duration::ZERO);
        let pace = Pace::Open { interval, delay, in_flight_max: 2 };
        let until = Until::Elapsed(Duration::from_millis(100));
        let load = Load { work: Work::Connections(None), pace, until };
        let mut course = Course { load, began, started: 2 };
        // The third start is long due.
        let now = began + Duration::from_millis(90);
        assert_eq!(course.wakes(now, 1), Some(began + 2 * interval));
        assert_eq!(course.wakes(now, 2), None, "its place is taken");
        course.started = 10;
        assert_eq!(course.wakes(now, 0), None, "all have started");
        course.load.pace = Pace::Closed(2);
        assert_eq!(course.wakes(now, 0), None, "it has no schedule");
    }

    /// Due a tenth of a microsecond after each other, and each waits for the end of the one before.
    #[test]
    fn an_open_loop_tells_how_late_its_last_operation_began() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for _ in 0..2 * TIMES {
                let mut tcp = listener.accept().unwrap().0;
                std::io::copy(&mut tcp, &mut std::io::sink()).unwrap();
            }
        });
        let mut driver = Driver::new(Plan { address, ..plan() }, 0).unwrap();
        let work = Work::Connections(None);
        let closed = Load::closed(work.clone(), 1, Until::Count(TIMES));
        assert_eq!(driver.run(closed).unwrap().late, Duration::ZERO);
        let open = Load::open(work, 1e7, 1, Until::Count(TIMES));
        assert!(driver.run(open).unwrap().late > Duration::ZERO);
        server.join().unwrap();
    }

    fn plan() -> Plan {
        Plan {
            address: SocketAddr::from(([127, 0, 0, 1], 1)),
            host: "nobody".into(),
            tls: None,
            expect: Expect::default(),
            tolerant: false,
            interrupted: Interrupt::default(),
            seconds_apart: 0,
            progress: Arc::default(),
        }
    }

    const TIMES: u64 = 8;
}
