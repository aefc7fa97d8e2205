//! All threads of a load together, [`Crew`].

use std::{num::NonZeroUsize, thread, time::Duration};

use rustls::pki_types::CertificateDer;
use sealane_lab_model::error::Error;

use crate::load::{Expect, Load, Pace, Plan, Tally, Until, driver::Driver};

/// Threads with their connections; what is prepared in one run stands in the next.
pub struct Crew {
    drivers: Vec<Driver>,
}

impl Crew {
    /// Makes as many threads as asked for, each with settings and tickets of its own.
    pub fn new(plan: &Plan, threads: NonZeroUsize) -> Result<Self, Error> {
        let drivers = (0..threads.get() as u64)
            .map(|thread| Driver::new(plan.clone(), thread))
            .collect::<Result<_, _>>()?;
        Ok(Self { drivers })
    }

    /// Divides the load among the threads, waits for all and adds up.
    ///
    /// # Errors
    /// The first of any thread.
    pub fn run(&mut self, load: &Load) -> Result<Tally, Error> {
        let shares = load.shares(self.drivers.len());
        let mut sum = Tally::new()?;
        let run = |thread: usize, driver: &mut Driver| driver.run(shares[thread].clone());
        for tally in self.in_parallel(shares.len(), run) {
            sum.add(tally?);
        }
        Ok(sum)
    }

    /// Closes all connections that stand.
    pub fn close(&mut self) -> Result<(), Error> {
        self.in_parallel(self.drivers.len(), |_, driver| driver.close()).into_iter().collect()
    }

    /// What handshakes must come to from now on, and the share of them that is to resume.
    pub(crate) fn change(&mut self, expect: &Expect, resume: f64) {
        for driver in &mut self.drivers {
            driver.change(expect.clone(), resume);
        }
    }

    /// The certificate that the server showed the first thread last.
    pub fn leaf(&self) -> Option<&CertificateDer<'static>> {
        self.drivers.first()?.leaf()
    }

    /// On the first `threads`.
    fn in_parallel<T: Send>(
        &mut self,
        threads: usize,
        work: impl Fn(usize, &mut Driver) -> Result<T, Error> + Sync,
    ) -> Vec<Result<T, Error>> {
        let work = &work;
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .drivers
                .iter_mut()
                .take(threads)
                .enumerate()
                .map(|(number, driver)| scope.spawn(move || work(number, driver)))
                .collect();
            let panicked = |_| Err(Error::Check("a client thread panicked".into()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        })
    }
}

impl Load {
    /// A closed loop.
    pub fn closed(work: super::Work, in_flight: usize, until: Until) -> Self {
        Self { work, pace: Pace::Closed(in_flight), until }
    }

    /// An open loop of so many operations per second.
    pub fn open(work: super::Work, rate: f64, in_flight_max: usize, until: Until) -> Self {
        let interval = Duration::from_secs_f64(1.0 / rate.clamp(RATE_MIN, RATE_MAX));
        Self { work, pace: Pace::Open { interval, delay: Duration::ZERO, in_flight_max }, until }
    }

    /// What each of at most so many threads shall do. None is without a place: it would have
    /// requests, but no connection that stands.
    fn shares(&self, threads: usize) -> Vec<Self> {
        let (Pace::Closed(places) | Pace::Open { in_flight_max: places, .. }) = self.pace;
        let threads = threads.min(places).max(1);
        let share = |thread| {
            let mut share = self.clone();
            if let Until::Count(count) = &mut share.until {
                *count = part(*count, thread, threads);
            }
            match &mut share.pace {
                Pace::Closed(in_flight) => {
                    let places = part(*in_flight as u64, thread, threads);
                    *in_flight = usize::try_from(places).unwrap_or(1).max(1);
                }
                Pace::Open { interval, delay, in_flight_max } => {
                    *delay = *interval * u32::try_from(thread).unwrap_or(0);
                    *interval *= u32::try_from(threads).unwrap_or(1);
                    *in_flight_max = (*in_flight_max / threads).max(1);
                }
            }
            share
        };
        (0..threads).map(share).collect()
    }
}

fn part(whole: u64, thread: usize, threads: usize) -> u64 {
    let (thread, threads) = (thread as u64, threads as u64);
    whole / threads + u64::from(thread < whole % threads)
}

const RATE_MIN: f64 = 0.01;
const RATE_MAX: f64 = 10_000_000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Request, Work};

    #[test]
    fn a_thread_without_a_place_has_no_share() {
        let shares = |places, threads| {
            let load = Load::closed(Work::Requests(Request::Echo), places, Until::Count(7));
            let told = |share: Load| match (share.pace, share.until) {
                (Pace::Closed(places), Until::Count(count)) => (places, count),
                other => panic!("{other:?}"),
            };
            load.shares(threads).into_iter().map(told).collect::<Vec<_>>()
        };
        assert_eq!(shares(2, 4), [(1, 4), (1, 3)]);
        assert_eq!(shares(5, 2), [(3, 4), (2, 3)]);
        assert_eq!(shares(0, 4), [(1, 7)]);
    }

    /// Connections that stand were dealt to the threads of a closed loop.
    #[test]
    fn an_open_loop_on_standing_connections_is_of_the_threads_that_have_some() {
        let until = Until::Elapsed(Duration::from_secs(1));
        let load = Load::open(Work::Requests(Request::Echo), 100.0, 2, until);
        let told = |share: Load| match share.pace {
            Pace::Open { interval, delay, in_flight_max } => (interval, delay, in_flight_max),
            Pace::Closed(_) => panic!("{share:?}"),
        };
        let shares: Vec<_> = load.shares(4).into_iter().map(told).collect();
        let [each, whole] = [10, 20].map(Duration::from_millis);
        assert_eq!(shares, [(whole, Duration::ZERO, 1), (whole, each, 1)]);
    }
}
