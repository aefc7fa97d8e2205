//! Keys that change under load, [`run`]: every thread issues and resumes without a pause, keeps
//! samples of what another thread issued, and opens them again and again until they are old.
//!
//! The clock is the trial's own: one lifetime of the real clock, a second say, is one lifetime of
//! [`LIFETIME_S_MIN`] seconds, the shortest that the engine takes. It is read for every ticket, as
//! rustls does.

use std::{
    collections::BTreeMap,
    iter,
    sync::{
        Mutex,
        mpsc::{self, Receiver, SyncSender},
    },
    time::{Duration, Instant},
};

use sealane_engine::tickets::{LIFETIME_S_MIN, UnixSeconds};
use sealane_lab_harness::trial::Reply;
use sealane_lab_model::error::Error;

use super::{
    strategy::{Issuer, SharedKeys},
    task::{SESSION_BYTES, START, Start, TicketsTask, on_all_threads},
};

/// Works for `lifetimes`, each of which takes `lifetime_ms`.
///
/// # Errors
/// A ticket was not issued, or opened to something else.
pub(super) fn run(
    task: &TicketsTask,
    shared: &SharedKeys,
    lifetime_ms: u64,
    lifetimes: u64,
) -> Result<Reply, Error> {
    let start = Start::new(task.threads);
    // Samples of a thread go to the one after it.
    let (senders, receivers): (Vec<_>, Vec<_>) =
        iter::repeat_with(|| mpsc::sync_channel(SAMPLES_WAITING_MAX)).take(task.threads).unzip();
    let receivers = receivers.into_iter().map(|receiver| Mutex::new(Some(receiver)));
    let receivers: Vec<_> = receivers.collect();
    let counts = on_all_threads(task, |number| {
        let received = receivers[number].lock().ok().and_then(|mut receiver| receiver.take());
        let begin = start.together();
        let mut thread = Thread {
            issuer: shared.issuer(START),
            session: vec![0x5e; SESSION_BYTES],
            sender: senders[(number + 1) % task.threads].clone(),
            received: received.ok_or_else(|| Error::Check("a thread has no tickets".into()))?,
            samples: Vec::new(),
            counts: Counts::default(),
        };
        thread.work(&Clock { begin, lifetime_ms }, lifetimes)?;
        Ok(thread.counts())
    })?;
    let mut sums = BTreeMap::new();
    let counts = counts.into_iter().flatten().filter(|(name, _)| task.strategy.tells(name));
    for (name, value) in counts {
        *sums.entry(name.to_owned()).or_insert(0.0) += value as f64;
    }
    Ok(Reply::Figures { figures: sums, times: BTreeMap::new() })
}

/// The trial's clock.
struct Clock {
    begin: Instant,
    lifetime_ms: u64,
}

impl Clock {
    fn now(&self) -> UnixSeconds {
        let real_us = u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        UnixSeconds(START.0 + real_us.saturating_mul(LIFETIME_S) / (self.lifetime_ms * 1_000))
    }
}

/// One thread of the trial.
struct Thread<'a> {
    issuer: Issuer<'a>,
    session: Vec<u8>,
    sender: SyncSender<Sample>,
    received: Receiver<Sample>,
    samples: Vec<Sample>,
    counts: Counts,
}

/// A ticket and when it was issued.
struct Sample {
    issued: UnixSeconds,
    ticket: Vec<u8>,
}

/// What became of tickets, by their age.
#[derive(Default)]
struct Counts {
    young_opened: u64,
    young_refused: u64,
    old_opened: u64,
    old_refused: u64,
}

impl Thread<'_> {
    fn work(&mut self, clock: &Clock, lifetimes: u64) -> Result<(), Error> {
        let end = Duration::from_millis(clock.lifetime_ms.saturating_mul(lifetimes));
        let mut sample_at = START.0;
        while clock.begin.elapsed() < end {
            let sample = self.issue(clock)?;
            self.open(clock, &sample)?;
            if sample.issued.0 >= sample_at {
                sample_at = sample.issued.0 + SAMPLE_EVERY_S;
                // A thread that is slow, or at its end, misses it.
                let _ = self.sender.try_send(sample);
                self.open_samples(clock)?;
            }
        }
        Ok(())
    }

    fn issue(&mut self, clock: &Clock) -> Result<Sample, Error> {
        let issued = clock.now();
        self.issuer.set(issued)?;
        Ok(Sample { issued, ticket: self.issuer.issue(&self.session)? })
    }

    /// All that are held, until nobody should open them for a whole lifetime more.
    fn open_samples(&mut self, clock: &Clock) -> Result<(), Error> {
        let mut samples = std::mem::take(&mut self.samples);
        samples.extend(self.received.try_iter());
        for sample in samples {
            if self.open(clock, &sample)? < HELD_LIFETIMES * LIFETIME_S {
                self.samples.push(sample);
            }
        }
        Ok(())
    }

    /// How old the ticket is, in clock seconds.
    fn open(&mut self, clock: &Clock, sample: &Sample) -> Result<u64, Error> {
        let now = clock.now();
        self.issuer.set(now)?;
        // Another thread's clock may be ahead.
        let age_s = now.0.saturating_sub(sample.issued.0);
        let opened = match self.issuer.resume(&sample.ticket) {
            Some(session) if session != self.session => {
                return Err(Error::Check("a ticket opened to another session".into()));
            }
            opened => opened.is_some(),
        };
        let counts = &mut self.counts;
        let count = match (age_s, opened) {
            (0..LIFETIME_S, true) => &mut counts.young_opened,
            (0..LIFETIME_S, false) => &mut counts.young_refused,
            // Between one lifetime and two, either is right.
            (LIFETIME_S..=OLD_S, _) => return Ok(age_s),
            (_, true) => &mut counts.old_opened,
            (_, false) => &mut counts.old_refused,
        };
        *count += 1;
        Ok(age_s)
    }

    fn counts(&self) -> [(&'static str, u64); 7] {
        let Counts { young_opened, young_refused, old_opened, old_refused } = self.counts;
        let tally = &self.issuer.tally;
        [
            ("young_opened", young_opened),
            ("young_refused", young_refused),
            ("old_opened", old_opened),
            ("old_refused", old_refused),
            ("keys_generated", tally.generated.get()),
            ("keys_generated_locked", tally.generated_locked.get()),
            ("lock_waits", tally.waits.get()),
        ]
    }
}

/// A sample is held until it is this many lifetimes old.
const HELD_LIFETIMES: u64 = 3;
const LIFETIME_S: u64 = LIFETIME_S_MIN as u64;
/// Nobody may open what is older.
const OLD_S: u64 = 2 * LIFETIME_S;
/// Those of more than a lifetime.
const SAMPLES_WAITING_MAX: usize = 32;
const SAMPLE_EVERY_S: u64 = LIFETIME_S / 20;
