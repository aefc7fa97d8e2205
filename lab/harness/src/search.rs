//! The highest value that keeps a promise, found by bisection: [`highest`].

use sealane_lab_model::error::Error;

/// The highest value up to `most` of which `keeps` says yes, from at most `steps_max` answers: with
/// each after the first, the place where it may lie is half as large. Whatever is above a value
/// that breaks the promise is taken to break it too. `None` if none of those asked for keeps it.
///
/// # Errors
/// The first of `keeps`.
pub fn highest(
    most: f64,
    steps_max: u32,
    mut keeps: impl FnMut(f64) -> Result<bool, Error>,
) -> Result<Option<f64>, Error> {
    let (mut kept, mut broken, mut next) = (None, most, most);
    for _ in 0..steps_max {
        match keeps(next)? {
            true if next >= most => return Ok(Some(most)),
            true => kept = Some(next),
            false => broken = next,
        }
        next = f64::midpoint(kept.unwrap_or(0.0), broken);
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found below 64 if all up to `limit` keep the promise, and what was asked for.
    fn searched(limit: f64, steps_max: u32) -> (Option<f64>, Vec<f64>) {
        let mut asked = Vec::new();
        let found = highest(64.0, steps_max, |value| {
            asked.push(value);
            Ok(value <= limit)
        });
        (found.unwrap(), asked)
    }

    #[test]
    fn each_step_halves_what_is_left() {
        let (found, asked) = searched(41.0, 7);
        assert_eq!(found, Some(41.0));
        assert_eq!(asked, [64.0, 32.0, 48.0, 40.0, 44.0, 42.0, 41.0]);
        assert_eq!(searched(41.0, 4).0, Some(40.0));
    }

    #[test]
    fn what_all_keep_or_none_takes_no_more_than_its_steps() {
        assert_eq!(searched(64.0, 7), (Some(64.0), vec![64.0]));
        let (found, asked) = searched(0.5, 7);
        assert_eq!((found, asked.len()), (None, 7));
        assert_eq!(asked.last(), Some(&1.0));
        assert_eq!(searched(64.0, 0), (None, vec![]));
    }

    #[test]
    fn a_failure_ends_it() {
        let mut asked = 0;
        let failed = highest(64.0, 7, |_| {
            asked += 1;
            Err(Error::Interrupted)
        });
        assert!(matches!(failed, Err(Error::Interrupted)) && asked == 1);
    }
}
