//! From figures to places: an [`Axis`] with ticks at round values.

use sealane_lab_model::number::{number, with_decimals};

/// How values are spread along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Equal steps.
    Linear,
    /// Equal factors; values must be above 0.
    Log,
}

impl Scale {
    /// In words.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Log => "log",
        }
    }

    /// The other one.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Linear => Self::Log,
            Self::Log => Self::Linear,
        }
    }
}

/// The values from `min` to `max` on the pixels from `start` to `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) start: f64,
    pub(super) end: f64,
}

impl Axis {
    /// Holds all `values`, widened to round ends; a linear axis of amounts begins at 0.
    pub(super) fn around(scale: Scale, values: &[f64], start: f64, end: f64) -> Self {
        let usable = |v: &&f64| v.is_finite() && (scale == Scale::Linear || **v > 0.0);
        let least = values.iter().filter(usable).copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().filter(usable).copied().fold(f64::NEG_INFINITY, f64::max);
        let (min, max) = match scale {
            _ if least > most => (0.1, 1.0),
            Scale::Linear => {
                let most = if most > 0.0 { most } else { 1.0 };
                let step = nice_step(most / TICKS);
                (least.min(0.0), (most / step).ceil() * step)
            }
            Scale::Log => {
                let (below, above) = (round_below(least), -round_below(-1.0 / most));
                let above = if above > 0.0 { above } else { round_above(most) };
                (below, if above > below { above } else { below * 10.0 })
            }
        };
        Self { scale, min, max, start, end }
    }

    /// Where `value` lies; outside values are put at the end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => (value - self.min) / (self.max - self.min),
            Scale::Log => {
                let value = value.max(self.min);
                (value / self.min).ln() / (self.max / self.min).ln()
            }
        };
        self.start + share.clamp(0.0, 1.0) * (self.end - self.start)
    }

    /// Round values on the axis, with their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => self.linear_ticks(),
            Scale::Log => self.log_ticks(),
        }
    }

    fn linear_ticks(&self) -> Vec<(f64, String)> {
        let step = nice_step((self.max - self.min) / TICKS);
        let decimals = (0..6).find(|d| is_whole(step * 10_f64.powi(*d))).unwrap_or(6);
        let decimals = usize::try_from(decimals).unwrap_or(0);
        let first = (self.min / step).ceil();
        (0..TICKS_MAX)
            .map(|n| (first + f64::from(n)) * step)
            .take_while(|value| *value <= self.max + step * EPSILON)
            .map(|value| (value, with_decimals(value, decimals)))
            .collect()
    }

    fn log_ticks(&self) -> Vec<(f64, String)> {
        let decades = (self.max / self.min).log10();
        let factors: &[f64] = match decades {
            _ if decades <= 2.05 => &[1.0, 2.0, 5.0],
            _ if decades <= 3.05 => &[1.0, 3.0],
            _ => &[1.0],
        };
        let mut ticks = Vec::new();
        let mut power = 10_f64.powf(self.min.log10().floor());
        while power <= self.max * (1.0 + EPSILON) && ticks.len() < TICKS_MAX as usize {
            for value in factors.iter().map(|factor| factor * power) {
                let inside = self.min * (1.0 - EPSILON)..=self.max * (1.0 + EPSILON);
                if inside.contains(&value) {
                    ticks.push((value, number(value)));
                }
            }
            power *= 10.0;
        }
        ticks
    }
}

/// The round step (1, 2 or 5 times a power of ten) that is not below `rough`.
fn nice_step(rough: f64) -> f64 {
    if !(rough.is_finite() && rough > 0.0) {
        return 1.0;
    }
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * power >= rough * (1.0 - EPSILON));
    factor.unwrap_or(10.0) * power
}

/// The greatest 1, 2 or 5 times a power of ten that is not above `value`.
fn round_below(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let fits = |f: &f64| f * power <= value * (1.0 + EPSILON);
    [5.0, 2.0, 1.0].into_iter().find(fits).unwrap_or(1.0) * power
}

/// The least 1, 2 or 5 times a power of ten that is not below `value`.
fn round_above(value: f64) -> f64 {
    nice_step(value)
}

fn is_whole(value: f64) -> bool {
    (value - value.round()).abs() < EPSILON
}

const EPSILON: f64 = 1e-9;
/// About so many ticks on an axis.
const TICKS: f64 = 5.0;
const TICKS_MAX: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, values: &[f64]) -> Vec<String> {
        let axis = Axis::around(scale, values, 0.0, 100.0);
        axis.ticks().into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_stand_at_round_values_and_hold_the_data() {
        assert_eq!(
            labels(Scale::Linear, &[3.0, 9_700.0]),
            ["0", "2,000", "4,000", "6,000", "8,000", "10,000"]
        );
        assert_eq!(labels(Scale::Linear, &[0.13]), ["0.00", "0.05", "0.10", "0.15"]);
        assert_eq!(labels(Scale::Log, &[60.0, 900.0]), ["50", "100", "200", "500", "1,000"]);
        assert_eq!(
            labels(Scale::Log, &[1.0, 90_000.0]),
            ["1", "10", "100", "1,000", "10,000", "100,000"]
        );
    }

    #[test]
    fn nothing_to_show_is_still_an_axis() {
        for scale in [Scale::Linear, Scale::Log] {
            for values in [&[][..], &[0.0], &[f64::NAN], &[7.0, 7.0]] {
                let axis = Axis::around(scale, values, 0.0, 100.0);
                assert!(axis.max > axis.min, "{scale:?} {values:?} {axis:?}");
                assert!(axis.ticks().len() >= 2, "{scale:?} {values:?} {axis:?}");
                assert!(axis.at(7.0).is_finite());
            }
        }
    }

    #[test]
    fn a_log_axis_puts_equal_factors_at_equal_distances() {
        let axis = Axis::around(Scale::Log, &[1.0, 100.0], 0.0, 100.0);
        assert!((axis.at(10.0) - 50.0).abs() < 1e-6);
        assert!((axis.at(0.0) - 0.0).abs() < 1e-6, "what has no logarithm lies at the end");
    }
}
