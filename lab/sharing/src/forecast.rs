//! The command `forecast`: from what one thread was recorded to do, what many threads would come
//! to on many cores, with a band, and which line they would wait for.
//!
//! ```text
//! recordings --replayed at each number of threads--> curves, knees
//!            --again without each of the top lines--> what it costs
//! ```
//! With `--kernel`, what many threads come to that share a file table.

mod base;
pub(crate) mod kernel;
mod lines;
pub mod replays;
pub mod table;
#[cfg(test)]
mod tests;

use std::{env, path::PathBuf};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal::Journal,
    options::{Json, SEED_DEFAULT, Seed},
};
use sealane_lab_model::{
    document::{Curve, Forecast, Profile},
    error::Error,
    recording::{Part, Recording},
    verdict,
};

pub(crate) use base::{dealt, measured, of_instructions};

use crate::{replay, show, transfer};
use replays::{KNEE_STEPS_MAX, Replays, Watch};

/// The arguments of `forecast`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Recordings, as `count --record` writes them
    #[arg(value_name = "RECORDING", required = true)]
    recordings: Vec<PathBuf>,
    /// Forecasts the file table that threads of this ledger's servers share, as `count --kernel`
    /// keeps it, with the server's handshakes of the recordings between
    #[arg(long, value_name = "LEDGER.json")]
    kernel: Option<PathBuf>,
    /// Numbers of threads, one per core, separated by commas
    #[arg(long, value_delimiter = ',', default_value = "16,64,80,128",
        value_parser = clap::value_parser!(u32).range(2..=i64::from(replay::THREADS_MAX)))]
    cores: Vec<u32>,
    /// What a moved cache line costs: `measured` here, or of a machine by its name
    #[arg(long, default_value = "measured")]
    profile: String,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    json: Json,
}

/// What a forecast is made for.
pub struct Target {
    /// What a moved line costs.
    pub profile: Profile,
    /// Ascending, each once.
    pub cores: Vec<u32>,
    /// The seed of the places at which threads begin.
    pub(crate) seed: u64,
}

impl Target {
    /// With the usual seed.
    pub fn new(profile: Profile, cores: &[u32]) -> Self {
        Self { profile, cores: ascending(cores), seed: SEED_DEFAULT }
    }
}

/// The server's handshake.
pub(crate) const SERVER: &[Part] = &[Part::Server];
/// The client's.
const CLIENT: &[Part] = &[Part::Client];

/// `true` if every recording has a forecast.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let stop = Interrupt::catch()?;
    let mut journal = Journal::begin(env::args().collect(), arguments.json.path());
    let profile = transfer::profile(&arguments.profile, &stop)?;
    let target = Target { seed: arguments.seed.seed, ..Target::new(profile, &arguments.cores) };
    let recordings: Result<Vec<Recording>, Error> =
        arguments.recordings.iter().map(|file| Recording::read(file)).collect();
    let recordings = recordings?;
    if let Some(ledger) = &arguments.kernel {
        return kernel::run(ledger, &recordings, &target, &mut journal, &stop);
    }
    let each_max = replays_max(&target);
    let watch = Watch::new(&stop, recordings.len() as u64 * each_max);
    let mut texts = String::new();
    for (at, recording) in recordings.iter().enumerate() {
        let forecast = of(recording, &target, &watch)?;
        watch.skip_to((at as u64 + 1) * each_max);
        texts += &table::text(&forecast);
        journal.run.stacks.push(recording.stack.clone());
        journal.run.forecasts.push(forecast);
        journal.save(false)?;
    }
    drop(watch);
    journal.run.forecast_comparisons = comparisons(&journal.run.forecasts);
    texts += &table::comparisons(&journal.run.forecast_comparisons);
    journal.save(true)?;
    show(&texts)?;
    Ok(journal.run.forecasts.iter().all(|forecast| !forecast.verdict.forecast.is_empty()))
}

/// The forecast of one recording.
///
/// # Errors
/// Ctrl-C; a recording that no thread can have made.
pub fn of(recording: &Recording, target: &Target, watch: &Watch<'_>) -> Result<Forecast, Error> {
    let (base_ns, base) = measured(recording);
    let mut forecast = Forecast {
        stack: recording.stack.name.clone(),
        version: recording.stack.version.clone(),
        scenario: recording.scenario.clone(),
        profile: target.profile.clone(),
        base,
        writes: lines::causes(recording),
        ..Forecast::default()
    };
    if verdict::not_enough(recording).is_none() {
        let (transfer_ns, seed) = (target.profile.transfer_ns, target.seed);
        let replays = Replays::new(recording, base_ns, transfer_ns, seed, watch);
        forecast.server = replays.curve(SERVER, &target.cores)?;
        forecast.client = replays.curve(CLIENT, &target.cores)?;
        forecast.whole = replays.curve(&Part::ALL, &target.cores)?;
        forecast.lines = lines::costs(&replays, &target.cores)?;
    }
    forecast.verdict = verdict::of(recording, &forecast);
    Ok(forecast)
}

/// The server's part of it alone.
///
/// # Errors
/// Those of [`of`].
pub fn curve(recording: &Recording, target: &Target, watch: &Watch<'_>) -> Result<Curve, Error> {
    let (base_ns, _) = measured(recording);
    let (transfer_ns, seed) = (target.profile.transfer_ns, target.seed);
    Replays::new(recording, base_ns, transfer_ns, seed, watch).curve(SERVER, &target.cores)
}

/// Replays that [`curve`] makes at most.
pub fn curve_replays_max(target: &Target) -> u64 {
    2 * target.cores.len() as u64 + u64::from(KNEE_STEPS_MAX)
}

/// Replays that [`of`] makes at most: curves at both ends of the band, three knees, and the lines.
pub fn replays_max(target: &Target) -> u64 {
    let (cores, knee) = (target.cores.len() as u64, u64::from(KNEE_STEPS_MAX));
    2 * cores + 3 * knee + lines::LINES_MAX as u64 * (cores + 1 + knee)
}

/// Every forecast beside the first one of the same scenario.
pub fn comparisons(forecasts: &[Forecast]) -> Vec<sealane_lab_model::document::ForecastComparison> {
    let mut comparisons = Vec::new();
    for (at, forecast) in forecasts.iter().enumerate() {
        let first = forecasts.iter().position(|first| first.scenario == forecast.scenario);
        if let Some(first) = first.filter(|first| *first < at) {
            comparisons.push(verdict::between(forecast, &forecasts[first]));
        }
    }
    comparisons
}

fn ascending(cores: &[u32]) -> Vec<u32> {
    let mut cores = cores.to_vec();
    cores.sort_unstable();
    cores.dedup();
    cores
}
