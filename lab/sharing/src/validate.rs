//! The command `validate`: published curves beside forecasts that this lab makes from recordings
//! anyone can make again.
//!
//! ```text
//! published curve --its first point, its machine--+
//! recording ----------------------------------------> replay at the other points -> error table
//! ```
//! The cost of moving a line is fitted on one of the curves; no other figure is fitted on any.
//! Curves that the model was never revised against are held out, and have a tally of their own.

mod curve;
mod fit;
mod published;
mod score;
mod table;
#[cfg(test)]
mod tests;

use std::{
    env,
    num::NonZero,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use sealane_lab_harness::{
    interrupt::Interrupt,
    journal::Journal,
    options::{Json, Seed},
};
use sealane_lab_model::{
    document::{Knee, Profile, ValidatedCurve, ValidatedPoint, Validation},
    error::Error,
    recording::Recording,
};

use crate::{
    forecast::replays::{KNEE_STEPS_MAX, Watch, numbered},
    show, transfer,
};
use curve::{Subject, forecast};
use published::{Published, PublishedCurve, Ratios};

/// The arguments of `validate`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Recordings by the names that --commands prints
    #[arg(long, value_name = "FOLDER", default_value = "lab/recordings")]
    recordings: PathBuf,
    /// Fits the cost of a moved line again, on the one curve that it was fitted on
    #[arg(long)]
    refit: bool,
    /// Takes this for the cost of a moved line, in ns, instead of the fitted one
    #[arg(long, value_name = "NS", conflicts_with = "refit")]
    transfer_ns: Option<f64>,
    /// Prints the commands that make the recordings, and ends
    #[arg(long)]
    commands: bool,
    #[command(flatten)]
    seed: Seed,
    #[command(flatten)]
    json: Json,
}

/// `true` if the bar is reached.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let (published, ratios) = (Published::shipped()?, Ratios::shipped()?);
    let held_out = Published::held_out()?;
    if arguments.commands {
        return show(&commands(&arguments.recordings)?).map(|()| true);
    }
    let stop = Interrupt::catch()?;
    let mut journal = Journal::begin(env::args().collect(), arguments.json.path());
    let task = Task { published: &published, ratios: &ratios, seed: arguments.seed.seed };
    let found = task.recordings(&arguments.recordings);
    if found.iter().all(Result::is_err) {
        return Err(nothing_in(&arguments.recordings));
    }
    let mut profile = transfer::profile(PROFILE, &stop)?;
    if arguments.refit {
        profile = task.refitted(&found, &stop)?;
    }
    if let Some(transfer_ns) = arguments.transfer_ns {
        let source = "given on the command line".into();
        profile = Profile { name: "given".into(), transfer_ns, source };
    }
    let curves = task.validated(&found, profile.transfer_ns, &stop)?;
    let beside = Task { published: &held_out, ..task };
    let found = beside.recordings(&arguments.recordings);
    let held_out = beside.validated(&found, profile.transfer_ns, &stop)?;
    let validation = validation(profile, curves, held_out, published.revisions.clone());
    let mut text = table::text(&validation, &published, &ratios);
    text += &task.missing(&validation.curves, &arguments.recordings);
    text += &beside.missing(&validation.held_out, &arguments.recordings);
    let passed = validation.score.passed == Some(true);
    journal.run.validation = Some(validation);
    journal.save(true)?;
    show(&text)?;
    Ok(passed)
}

/// The commands that make all recordings, a line each.
///
/// # Errors
/// What is shipped cannot be read.
pub fn commands(recordings: &Path) -> Result<String, Error> {
    let mut commands = String::new();
    for published in [Published::shipped()?, Published::held_out()?] {
        for curve in &published.curves {
            commands += &(published.command(curve, recordings) + "\n");
        }
    }
    Ok(commands)
}

/// What curves come to: those that forecasts are judged by, and those that are held out.
fn validation(
    profile: Profile,
    curves: Vec<ValidatedCurve>,
    held_out: Vec<ValidatedCurve>,
    revisions: Vec<String>,
) -> Validation {
    let score = score::judged(&curves);
    let held_out_score = score::score(&held_out);
    Validation { profile, score, curves, held_out_score, held_out, revisions }
}

fn nothing_in(folder: &Path) -> Error {
    Error::Check(format!(
        "{} holds no recording that can be used: run this at the root of Sealane's repository, or \
         name a folder with --recordings; --commands prints what makes them",
        folder.display()
    ))
}

/// What is held against what.
#[derive(Clone, Copy)]
struct Task<'a> {
    published: &'a Published,
    ratios: &'a Ratios,
    seed: u64,
}

/// One recording per curve, or why there is none.
type Found = Vec<Result<Recording, String>>;

impl Task<'_> {
    /// Those in `folder`.
    fn recordings(&self, folder: &Path) -> Found {
        let read = |curve: &PublishedCurve| {
            let file = curve.file(folder);
            Recording::read(&file).map_err(|error| error.to_string()).and_then(|recording| {
                let same = recording.scenario == self.published.scenario(curve);
                let differs = || format!("{} is of another stack or scenario", file.display());
                (same && recording.stack.name == curve.stack)
                    .then_some(recording)
                    .ok_or_else(differs)
            })
        };
        self.published.curves.iter().map(read).collect()
    }

    /// What makes the recordings that `made` lacks.
    fn missing(&self, made: &[ValidatedCurve], folder: &Path) -> String {
        let missing = self.published.curves.iter().zip(made);
        let told = missing.filter(|(_, made)| made.failure.is_some()).map(|(curve, _)| {
            let command = self.published.command(curve, folder);
            format!("make the recording of {} with:\n  {command}\n", curve.name)
        });
        told.collect()
    }

    fn subject<'b>(&'b self, curve: &'b PublishedCurve, recording: &'b Recording) -> Subject<'b> {
        Subject { curve, recording, ratios: self.ratios, seed: self.seed }
    }

    /// The cost of a moved line that fits best on the curve that is marked for it.
    fn refitted(&self, found: &Found, stop: &Interrupt) -> Result<Profile, Error> {
        let marked = self.published.curves.iter().zip(found).find(|(curve, _)| curve.fitted);
        let Some((curve, Ok(recording))) = marked else {
            return Err(Error::Check(
                "the recording of the curve that the cost is fitted on is missing: --commands \
                 prints what makes it"
                    .into(),
            ));
        };
        let points = curve.points(self.published.cores);
        let each = points.len() as u64 + CALIBRATIONS;
        let watch = Watch::new(stop, u64::from(fit::TRIES) * each);
        let (transfer_ns, left) = fit::fit(&self.subject(curve, recording), &points, &watch)?;
        Ok(Profile {
            name: "refitted".into(),
            transfer_ns,
            source: format!("fitted now on {}, which is left x{left:.2} off", curve.name),
        })
    }

    /// All curves, several at a time.
    fn validated(
        &self,
        found: &Found,
        transfer_ns: f64,
        stop: &Interrupt,
    ) -> Result<Vec<ValidatedCurve>, Error> {
        let curves = &self.published.curves;
        let each = self.published.points_max() + CALIBRATIONS + u64::from(KNEE_STEPS_MAX);
        let watch = Watch::new(stop, curves.len() as u64 * each);
        let (next, made) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
        let work = || -> Result<(), Error> {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let (Some(curve), Some(found)) = (curves.get(at), found.get(at)) else {
                    return Ok(());
                };
                let validated = self.one(curve, found, transfer_ns, &watch)?;
                made.lock().unwrap_or_else(PoisonError::into_inner).push((at, validated));
            }
        };
        thread::scope(|scope| -> Result<(), Error> {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let lost = || Err(Error::Check("a thread of the replay ended: our fault".into()));
            workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|_| lost()))
        })?;
        let mut made = made.into_inner().unwrap_or_else(PoisonError::into_inner);
        made.sort_by_key(|(at, _)| *at);
        Ok(made.into_iter().map(|(_, curve)| curve).collect())
    }

    fn one(
        &self,
        curve: &PublishedCurve,
        found: &Result<Recording, String>,
        transfer_ns: f64,
        watch: &Watch<'_>,
    ) -> Result<ValidatedCurve, Error> {
        let mut validated = ValidatedCurve {
            name: curve.name.clone(),
            fitted: curve.fitted,
            source: self.published.source(),
            version: curve.published.clone(),
            stack: curve.stack.clone(),
            scenario: Some(self.published.scenario(curve)),
            ..ValidatedCurve::default()
        };
        let recording = match found {
            Ok(recording) => recording,
            Err(reason) => {
                validated.failure = Some(reason.clone());
                return Ok(validated);
            }
        };
        let points = curve.points(self.published.cores);
        let threads: Vec<u32> = points.iter().map(|point| point.0).collect();
        let subject = self.subject(curve, recording);
        validated.recorded = recording.stack.version.clone();
        let has_rates = curve.first().is_some_and(|(_, ns)| ns.is_some());
        match forecast(&subject, transfer_ns, &threads, has_rates, watch) {
            Ok(forecast) => {
                let pairs = points.into_iter().zip(forecast.efficiencies);
                validated.points = pairs
                    .map(|((threads, published), forecast)| ValidatedPoint {
                        threads,
                        published,
                        forecast,
                    })
                    .collect();
                validated.knee = [forecast.knee, self.published_knee(curve)];
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => validated.failure = Some(error.to_string()),
        }
        Ok(validated)
    }

    fn published_knee(&self, curve: &PublishedCurve) -> Knee {
        match (curve.knee, curve.first()) {
            (Some(threads), _) => numbered(threads),
            (None, Some((_, Some(_)))) => Knee::NoneBelow { threads: self.published.cores },
            // Beside rates alone it shows whether a curve falls from the speed of one thread.
            (None, _) => Knee::Unknown,
        }
    }
}

/// The machine that the published curves come from.
const PROFILE: &str = "altra";
/// Replays at the fewest threads, about.
const CALIBRATIONS: u64 = 3;
/// Curves at a time.
const THREADS_MAX: usize = 16;
