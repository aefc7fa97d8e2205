//! One published curve, forecast: [`forecast`] takes the published time at the fewest threads, if
//! there is one, and nothing else of the curve.

use sealane_lab_model::{
    document::Knee,
    error::Error,
    recording::{ByPart, Part, Recording},
};

use crate::{
    forecast::{
        dealt, measured, of_instructions,
        replays::{self, Replays, Speed, Watch, time},
    },
    validate::published::{PublishedCurve, Ratios},
};

/// What is forecast of one curve.
pub(super) struct Forecast {
    /// In the order of the threads asked for.
    pub(super) efficiencies: Vec<f64>,
    /// Up to the most threads.
    pub(super) knee: Knee,
}

/// A curve and all that a forecast of it takes.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    /// The curve.
    pub(super) curve: &'a PublishedCurve,
    /// What one thread does.
    pub(super) recording: &'a Recording,
    /// Time in the client over time in the server.
    pub(super) ratios: &'a Ratios,
    /// The seed of the places at which threads begin.
    pub(super) seed: u64,
}

/// `subject` at each of `threads`, ascending, on a machine that moves a line in `transfer_ns`.
///
/// # Errors
/// Ctrl-C; published figures that lack what is needed.
pub(super) fn forecast(
    subject: &Subject<'_>,
    transfer_ns: f64,
    threads: &[u32],
    with_knee: bool,
    watch: &Watch<'_>,
) -> Result<Forecast, Error> {
    let (fewest, published_ns) = subject.curve.first().ok_or_else(|| lacks(subject, "rates"))?;
    let timed = &subject.curve.timed;
    let replays = match published_ns {
        Some(ns) => calibrated(subject, transfer_ns, (fewest, ns), watch)?,
        None => {
            let (base_ns, _) = measured(subject.recording);
            Replays::new(subject.recording, base_ns, transfer_ns, subject.seed, watch)
        }
    };
    let first_ns = time(&replays.at(fewest, Speed::Given)?.ns, timed);
    let efficiency = |threads| Ok(first_ns / time(&replays.at(threads, Speed::Given)?.ns, timed));
    let efficiencies: Result<Vec<f64>, Error> = threads.iter().copied().map(efficiency).collect();
    let knee = if with_knee { replays::knee(threads, efficiency)? } else { Knee::Unknown };
    Ok(Forecast { efficiencies: efficiencies?, knee })
}

/// Replays whose timed parts come to `published_ns` at `fewest` threads: the time of a thread
/// alone is what is looked for.
fn calibrated<'a>(
    subject: &Subject<'a>,
    transfer_ns: f64,
    (fewest, published_ns): (u32, f64),
    watch: &'a Watch<'_>,
) -> Result<Replays<'a>, Error> {
    let mut server_ns = published_ns;
    let mut tries = 0;
    loop {
        let base_ns = base(subject, server_ns)?;
        let replays = Replays::new(subject.recording, base_ns, transfer_ns, subject.seed, watch);
        let excess =
            time(&replays.at(fewest, Speed::Given)?.ns, &subject.curve.timed) - published_ns;
        tries += 1;
        if excess.abs() <= published_ns * CALIBRATED || tries == TRIES_MAX {
            return Ok(replays);
        }
        // What two threads wait hardly depends on what each does between: no more steps needed.
        server_ns = (server_ns - excess).max(published_ns * ALONE_MIN);
    }
}

/// Uncontended time by part, if the timed parts take `server_ns`.
fn base(subject: &Subject<'_>, server_ns: f64) -> Result<ByPart<f64>, Error> {
    let PublishedCurve { client, client_extra_ns, timed, .. } = subject.curve;
    let ratio = subject.ratios.client_over_server.get(client);
    let ratio = ratio.ok_or_else(|| lacks(subject, "the ratio of client to server"))?;
    let mut ns = of_instructions(subject.recording);
    dealt(subject.recording, server_ns, timed, &mut ns);
    // The client's clock saw what the server's did.
    let setup = timed.contains(&Part::ServerSetup);
    let parts: &[Part] = if setup { &[Part::Client, Part::ClientSetup] } else { &[Part::Client] };
    dealt(subject.recording, server_ns * ratio + client_extra_ns, parts, &mut ns);
    Ok(ns)
}

fn lacks(subject: &Subject<'_>, what: &str) -> Error {
    Error::Check(format!("the published data of {} lacks {what}", subject.curve.name))
}

/// Near enough to the published point.
const CALIBRATED: f64 = 0.002;
/// Then it is as near as it gets: replays of two threads differ by chance.
const TRIES_MAX: u32 = 4;
/// The share of two threads' time that is at least not waiting.
const ALONE_MIN: f64 = 0.1;
