//! Round trips over time while a deployment passes: by second, and all rounds together.

use sealane_lab_model::{
    document::{OverTime, Second, Strategies, StrategyRow},
    error::Error,
    histogram::Times,
};

/// The name under which a trial tells the times of one of its seconds.
pub(super) fn name(second: usize) -> String {
    format!("{SECOND}{second:04}")
}

/// Gathers what the trials of each row told of their seconds.
///
/// # Errors
/// A row's times are no times.
pub(super) fn gather(strategies: &mut Strategies) -> Result<(), Error> {
    for row in &mut strategies.rows {
        let Some(moments) = row.figures.remove(MOMENT) else { continue };
        let of_seconds = |(name, _): &(&String, _)| name.starts_with(SECOND);
        // By name, and so in their order.
        let seconds = row.times.iter().filter(of_seconds).map(|(_, times)| {
            let times = Times::read(times)?;
            let [p50_ns, p95_ns, p99_ns] =
                [50.0, 95.0, 99.0].map(|percentile| times.percentile_ns(percentile));
            Ok(Second { count: times.count(), p50_ns, p95_ns, p99_ns })
        });
        let seconds = seconds.collect::<Result<_, Error>>()?;
        row.times.retain(|name, _| !name.starts_with(SECOND));
        let latest = moments.into_iter().fold(0.0, f64::max);
        row.over_time = Some(OverTime { event: EVENT.to_owned(), moment_s: latest, seconds });
    }
    Ok(())
}

/// How many connections came to their end before what happened, and how many certainly after it.
pub(super) fn both_sides(row: &StrategyRow) -> Option<[u64; 2]> {
    let OverTime { moment_s, seconds, .. } = row.over_time.as_ref()?;
    let counts = |is_side: &dyn Fn(f64) -> bool| {
        let of_side = seconds.iter().enumerate().filter(|(second, _)| is_side(*second as f64));
        of_side.map(|(_, second)| second.count).sum()
    };
    Some([counts(&|second| second + 1.0 <= *moment_s), counts(&|second| second >= *moment_s)])
}

/// What happens in the middle.
const EVENT: &str = "deployment";
/// The name under which a trial tells when that was, in seconds from the load's beginning.
pub(super) const MOMENT: &str = "deployed_after_s";
const SECOND: &str = "second ";
