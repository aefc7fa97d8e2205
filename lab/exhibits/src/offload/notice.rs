//! Who tells whom that a connection has work, and when that takes a wake-up: [`Jobs`] to a worker
//! and [`News`] back to the loop.
//!
//! ```text
//! loop    Jobs --------> Inbox    worker       a job: this connection has bytes, or room, for you
//!         NewsIn <------ News                  news: this connection has bytes, or room, for you
//! ```
//! In a *queue*, each event takes a lock and posts a semaphore, and the worker does one job per
//! post; news of each connection strikes the loop's bell. As a *ring*, events of one connection
//! fall together until the other side has looked, and a batch makes at most one system call, if
//! the other side sleeps.

use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::OwnedFd,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::AcqRel},
    },
    time::Duration,
};

use rustix::{
    event::epoll::{self, CreateFlags},
    time::Timespec,
};
use sealane_lab_model::error::Error;

use crate::offload::{account::Wakes, bell::Bell, worker::Opened};

/// Connections that the loop holds at most.
pub(super) const CONNECTIONS_MAX: usize = 4_096;
/// What a ring has room for: each connection has at most its opening and its work under way, and as
/// much may still be there of one that made room for it.
const NOTICES_MAX: usize = 4 * CONNECTIONS_MAX;

/// What a worker is told.
pub(super) enum Job {
    /// A new connection, its own from now on.
    Open(Box<Opened>),
    /// There is no more work, ever.
    Stop,
    /// This connection has work.
    Work(u64),
}

/// Whether a connection's notice is under way, each way; no second one is needed then.
#[derive(Default)]
pub(super) struct UnderWay {
    job: AtomicBool,
    news: AtomicBool,
}

impl UnderWay {
    /// The worker has the notice in hand and looks after it.
    pub(super) fn take_job(&self) {
        self.job.swap(false, AcqRel);
    }

    /// The loop has the notice in hand and looks after it.
    pub(super) fn take_news(&self) {
        self.news.swap(false, AcqRel);
    }
}

/// The two ways between the loop and one worker.
pub(super) struct Ways {
    pub(super) jobs: Jobs,
    pub(super) inbox: Inbox,
    pub(super) news: News,
    pub(super) news_in: NewsIn,
}

impl Ways {
    /// Those of TLSnappy; `bell` is the loop's.
    pub(super) fn queues(bell: &Arc<Bell>) -> Self {
        let jobs = Arc::new(JobQueue::default());
        let news = Arc::new(Mutex::new(VecDeque::new()));
        Self {
            jobs: Jobs::Queue(Arc::clone(&jobs)),
            inbox: Inbox::Queue(jobs),
            news: News::Queue(Arc::clone(&news), Arc::clone(bell)),
            news_in: NewsIn::Queue(news),
        }
    }

    /// Those without a lock; `bell` is the loop's.
    ///
    /// # Errors
    /// The system has no descriptor for the worker's bell.
    pub(super) fn rings(bell: &Arc<Bell>) -> io::Result<Self> {
        let (jobs, inbox) = rtrb::RingBuffer::new(NOTICES_MAX);
        let (news, news_in) = rtrb::RingBuffer::new(NOTICES_MAX);
        let worker = Arc::new(Bell::new()?);
        let poll = epoll::create(CreateFlags::CLOEXEC)?;
        worker.watch(&poll, 0)?;
        Ok(Self {
            jobs: Jobs::Ring { ring: jobs, bell: Arc::clone(&worker), unrung: false },
            inbox: Inbox::Ring { ring: inbox, bell: worker, poll },
            news: News::Ring(news, Arc::clone(bell)),
            news_in: NewsIn::Ring(news_in),
        })
    }
}

/// The loop's end of the way to a worker.
pub(super) enum Jobs {
    Queue(Arc<JobQueue>),
    Ring { ring: rtrb::Producer<Job>, bell: Arc<Bell>, unrung: bool },
}

impl Jobs {
    /// Hands over a job that comes once: an opening, or the end.
    ///
    /// # Errors
    /// The ring is full: a fault of ours.
    pub(super) fn send(&mut self, job: Job, wakes: &mut Wakes) -> Result<(), Error> {
        wakes.events += 1;
        match self {
            Self::Queue(queue) => queue.put(job, wakes),
            Self::Ring { ring, unrung, .. } => {
                ring.push(job).map_err(|_| full("worker"))?;
                *unrung = true;
            }
        }
        Ok(())
    }

    /// Says that a connection has work.
    ///
    /// # Errors
    /// The ring is full: a fault of ours.
    pub(super) fn work(
        &mut self,
        token: u64,
        under_way: &UnderWay,
        wakes: &mut Wakes,
    ) -> Result<(), Error> {
        if matches!(self, Self::Ring { .. }) && under_way.job.swap(true, AcqRel) {
            wakes.events += 1;
            return Ok(());
        }
        self.send(Job::Work(token), wakes)
    }

    /// The batch is whole: the worker is roused if it sleeps.
    pub(super) fn flush(&mut self, wakes: &mut Wakes) {
        if let Self::Ring { bell, unrung, .. } = self
            && std::mem::take(unrung)
        {
            wakes.batches += 1;
            wakes.calls += u64::from(bell.ring());
        }
    }
}

/// The worker's end of the way to it.
pub(super) enum Inbox {
    Queue(Arc<JobQueue>),
    Ring { ring: rtrb::Consumer<Job>, bell: Arc<Bell>, poll: OwnedFd },
}

impl Inbox {
    /// The next job; sleeps until there is one, at most [`SLEEP_TIME_MAX`].
    ///
    /// # Errors
    /// The system refuses to wait.
    pub(super) fn next(&mut self) -> Result<Option<Job>, Error> {
        match self {
            Self::Queue(queue) => Ok(queue.take(SLEEP_TIME_MAX)),
            Self::Ring { ring, bell, poll } => {
                if let Ok(job) = ring.pop() {
                    return Ok(Some(job));
                }
                bell.lie_down();
                if ring.is_empty() {
                    sleep(poll)?;
                }
                bell.rise();
                Ok(ring.pop().ok())
            }
        }
    }

    /// The next job, if there is one.
    pub(super) fn try_next(&mut self) -> Option<Job> {
        match self {
            Self::Queue(queue) => queue.take(Duration::ZERO),
            Self::Ring { ring, .. } => ring.pop().ok(),
        }
    }
}

/// A worker's end of the way to the loop.
pub(super) enum News {
    Queue(Arc<Mutex<VecDeque<u64>>>, Arc<Bell>),
    Ring(rtrb::Producer<u64>, Arc<Bell>),
}

impl News {
    /// Tells the loop to look after a connection. One that the loop has not looked after since is
    /// not told of twice.
    ///
    /// # Errors
    /// The ring is full: a fault of ours.
    pub(super) fn tell(
        &mut self,
        token: u64,
        under_way: &UnderWay,
        wakes: &mut Wakes,
    ) -> Result<(), Error> {
        wakes.events += 1;
        if under_way.news.swap(true, AcqRel) {
            return Ok(());
        }
        wakes.batches += 1;
        wakes.calls += match self {
            Self::Queue(news, bell) => {
                lock(news).push_back(token);
                bell.strike();
                1
            }
            Self::Ring(ring, bell) => {
                ring.push(token).map_err(|_| full("loop"))?;
                u64::from(bell.ring())
            }
        };
        Ok(())
    }
}

/// The loop's end of the way from a worker.
pub(super) enum NewsIn {
    Queue(Arc<Mutex<VecDeque<u64>>>),
    Ring(rtrb::Consumer<u64>),
}

impl NewsIn {
    /// The next connection to look after, without waiting.
    pub(super) fn next(&mut self) -> Option<u64> {
        match self {
            Self::Queue(news) => lock(news).pop_front(),
            Self::Ring(ring) => ring.pop().ok(),
        }
    }

    /// Whether the loop must not sleep now.
    pub(super) fn keeps_awake(&self) -> bool {
        match self {
            // The bell was struck for each.
            Self::Queue(_) => false,
            Self::Ring(ring) => !ring.is_empty(),
        }
    }

    /// How many there are, now.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Queue(news) => lock(news).len(),
            Self::Ring(ring) => ring.slots(),
        }
    }
}

/// Jobs behind a lock and a semaphore, as TLSnappy has them: a connection stands in it once, and is
/// taken as often as it was put.
#[derive(Default)]
pub(super) struct JobQueue {
    waiting: Mutex<Waiting>,
    posted: Condvar,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// How often each connection with work was put.
    times: HashMap<u64, u32>,
    /// Whether the worker sleeps.
    asleep: bool,
}

impl JobQueue {
    fn put(&self, job: Job, wakes: &mut Wakes) {
        let mut waiting = lock(&self.waiting);
        let stands = match &job {
            Job::Work(token) => {
                let times = waiting.times.entry(*token).or_default();
                *times += 1;
                *times > 1
            }
            Job::Open(_) | Job::Stop => false,
        };
        if !stands {
            waiting.jobs.push_back(job);
        }
        // A semaphore's post makes a system call if somebody waits.
        let rouses = std::mem::take(&mut waiting.asleep);
        drop(waiting);
        wakes.batches += 1;
        if rouses {
            wakes.calls += 1;
            self.posted.notify_one();
        }
    }

    fn take(&self, sleep_time_max: Duration) -> Option<Job> {
        let mut waiting = lock(&self.waiting);
        if waiting.jobs.is_empty() && !sleep_time_max.is_zero() {
            waiting.asleep = true;
            let waits = |waiting: &mut Waiting| waiting.jobs.is_empty();
            let waited = self.posted.wait_timeout_while(waiting, sleep_time_max, waits);
            (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
            waiting.asleep = false;
        }
        if let Some(Job::Work(token)) = waiting.jobs.front() {
            let token = *token;
            if let Some(times) = waiting.times.get_mut(&token).filter(|times| **times > 1) {
                *times -= 1;
                return Some(Job::Work(token));
            }
            waiting.times.remove(&token);
        }
        waiting.jobs.pop_front()
    }
}

fn sleep(poll: &OwnedFd) -> Result<(), Error> {
    let mut events = Vec::with_capacity(1);
    let longest = Timespec { tv_sec: SLEEP_TIME_MAX.as_secs().cast_signed(), tv_nsec: 0 };
    match epoll::wait(poll, rustix::buffer::spare_capacity(&mut events), Some(&longest)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Error::io("a worker's epoll")(error.into())),
    }
}

fn full(whose: &str) -> Error {
    Error::Check(format!("the {whose}'s notices are full: a fault of the lab"))
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A worker without work looks up that often.
const SLEEP_TIME_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_gives_a_connection_as_often_as_it_was_put() {
        let queue = JobQueue::default();
        let mut wakes = Wakes::default();
        for token in [1, 2, 1, 1] {
            queue.put(Job::Work(token), &mut wakes);
        }
        let mut taken = Vec::new();
        for _ in 0..4 {
            let Some(Job::Work(token)) = queue.take(SLEEP_TIME_MAX) else {
                panic!("a job is lost")
            };
            taken.push(token);
        }
        assert_eq!(taken, [1, 1, 1, 2], "at the head until it was taken as often as put");
        assert_eq!((wakes.batches, wakes.calls), (4, 0), "nobody slept");
        assert!(lock(&queue.waiting).jobs.is_empty() && lock(&queue.waiting).times.is_empty());
    }

    #[test]
    fn a_ring_lets_events_of_one_connection_fall_together() {
        let bell = Arc::new(Bell::new().unwrap());
        let mut ways = Ways::rings(&bell).unwrap();
        let (mut wakes, under_way) = (Wakes::default(), UnderWay::default());
        for _ in 0..5 {
            ways.jobs.work(7, &under_way, &mut wakes).unwrap();
        }
        ways.jobs.flush(&mut wakes);
        ways.jobs.flush(&mut wakes);
        assert_eq!((wakes.events, wakes.batches, wakes.calls), (5, 1, 0));
        assert!(matches!(ways.inbox.next().unwrap(), Some(Job::Work(7))));
        under_way.take_job();
        // What comes after it was taken is a notice of its own.
        ways.jobs.work(7, &under_way, &mut wakes).unwrap();
        assert!(matches!(ways.inbox.next().unwrap(), Some(Job::Work(7))));
        bell.lie_down();
        for _ in 0..3 {
            ways.news.tell(7, &under_way, &mut wakes).unwrap();
        }
        assert_eq!((wakes.calls, ways.news_in.len()), (1, 1), "one call rouses the loop");
    }
}
