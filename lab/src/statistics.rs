//! Medians and ratios of rounds.

use serde::Serialize;

/// The middle and the ends of one figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle value.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Some(Self { median: f64::midpoint(sorted[lower], sorted[upper]), min, max })
    }

    /// Of the ratios `of[i] / to[i]`: neighbours in time are compared, so that a change of the
    /// machine's load between rounds falls out.
    #[must_use]
    pub fn of_ratios(of: &[f64], to: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| of / to).collect();
        Self::of(&ratios)
    }
}

/// The least value of each round.
pub fn least_per_round(servers: &[&[f64]]) -> Vec<f64> {
    let rounds = servers.iter().map(|values| values.len()).min().unwrap_or(0);
    (0..rounds)
        .map(|round| servers.iter().map(|values| values[round]).fold(f64::INFINITY, f64::min))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        let spread = Spread::of(&[4.0, 1.0, 3.0, 10.0]);
        assert_eq!(spread, Some(Spread { median: 3.5, min: 1.0, max: 10.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_pair_the_values_of_one_round() {
        let spread = Spread::of_ratios(&[1.0, 20.0, 3.0], &[2.0, 40.0, 3.0]);
        assert_eq!(spread, Some(Spread { median: 0.5, min: 0.5, max: 1.0 }));
    }

    #[test]
    fn the_best_peer_may_be_another_in_each_round() {
        assert_eq!(least_per_round(&[&[1.0, 5.0], &[2.0, 4.0]]), [1.0, 4.0]);
    }
}
