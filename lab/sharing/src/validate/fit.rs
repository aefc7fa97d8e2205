//! The transfer cost that makes one forecast agree best with its published curve: [`fit`].

use sealane_lab_model::error::Error;

use crate::{
    forecast::replays::Watch,
    validate::curve::{Subject, forecast},
};

/// In ns, with the root mean square of the logarithms that is left, as a factor.
///
/// # Errors
/// Ctrl-C.
pub(super) fn fit(
    subject: &Subject<'_>,
    points: &[(u32, f64)],
    watch: &Watch<'_>,
) -> Result<(f64, f64), Error> {
    let threads: Vec<u32> = points.iter().map(|point| point.0).collect();
    least(|transfer_ns| {
        let forecast = forecast(subject, transfer_ns, &threads, false, watch)?;
        let logs = forecast.efficiencies.iter().zip(points).map(|(is, (_, was))| (is / was).ln());
        Ok((logs.map(|log| log * log).sum::<f64>() / points.len() as f64).sqrt().exp())
    })
}

/// Costs that [`fit`] tries.
pub(super) const TRIES: u32 = GRID + 2 * REFINED;

/// Where `error` is least: on a coarse grid, then around its best place, on finer ones.
fn least(mut error: impl FnMut(f64) -> Result<f64, Error>) -> Result<(f64, f64), Error> {
    let mut step = (NS_MAX / NS_MIN).powf(1.0 / f64::from(GRID - 1));
    let mut best = (NS_MIN, f64::INFINITY);
    let mut trying = |ns: f64, best: &mut (f64, f64)| -> Result<(), Error> {
        let off = error(ns)?;
        if off < best.1 {
            *best = (ns, off);
        }
        Ok(())
    };
    for place in 0..GRID {
        trying(NS_MIN * step.powf(f64::from(place)), &mut best)?;
    }
    for _ in 0..REFINED {
        step = step.sqrt();
        let around = best.0;
        trying(around / step, &mut best)?;
        trying(around * step, &mut best)?;
    }
    Ok(best)
}

/// From a shared cache's neighbours to far beyond two sockets.
const NS_MIN: f64 = 20.0;
const NS_MAX: f64 = 500.0;
const GRID: u32 = 8;
/// The last step is 3%.
const REFINED: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_found() {
        for wanted in [22.0, 100.0, 145.0, 480.0_f64] {
            let (ns, _) = least(|ns| Ok((ns / wanted).ln().abs())).unwrap();
            assert!((ns / wanted).ln().abs() < 0.03, "{ns} for {wanted}");
        }
    }

    #[test]
    fn it_tries_no_more_than_it_says() {
        let mut tries = 0;
        let counted = least(|ns| {
            tries += 1;
            Ok(ns)
        });
        assert!(counted.is_ok() && tries == TRIES);
    }
}
