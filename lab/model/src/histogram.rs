//! Durations as an HdrHistogram: 3 significant digits from 1 ns to 60 s, merged, never averaged.

use base64::{Engine, engine::general_purpose::STANDARD};
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::{document::Histogram, error::Error};

/// Durations of one thread, or of many.
pub struct Times(hdrhistogram::Histogram<u64>);

impl Times {
    /// No time yet.
    ///
    /// # Errors
    /// Never with these bounds.
    pub fn new() -> Result<Self, Error> {
        hdrhistogram::Histogram::new_with_bounds(LEAST_NS, MOST_NS, SIGNIFICANT_DIGITS)
            .map(Self)
            .map_err(|error| broken(&error))
    }

    /// Those of a document.
    ///
    /// # Errors
    /// It is not what [`document`](Self::document) wrote.
    pub fn read(histogram: &Histogram) -> Result<Self, Error> {
        let bytes = STANDARD.decode(&histogram.hdr).map_err(|error| broken(&error))?;
        let read = Deserializer::new().deserialize(&mut bytes.as_slice());
        read.map(Self).map_err(|error| broken(&error))
    }

    /// One more, in nanoseconds; what lies beyond the bounds counts as the bound.
    pub fn record(&mut self, time_ns: u64) {
        self.0.saturating_record(time_ns.max(LEAST_NS));
    }

    /// All of `other` too.
    ///
    /// # Errors
    /// Never between two of these.
    pub fn add(&mut self, other: &Self) -> Result<(), Error> {
        self.0.add(&other.0).map_err(|error| broken(&error))
    }

    /// How many were recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The value in nanoseconds that `percentile` of them, 0 to 100, do not exceed.
    #[must_use]
    pub fn percentile_ns(&self, percentile: f64) -> u64 {
        self.0.value_at_percentile(percentile)
    }

    /// In a document's form.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn document(&self) -> Result<Histogram, Error> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .map_err(|error| broken(&error))?;
        let percentiles = if self.0.is_empty() { Vec::new() } else { self.percentiles() };
        Ok(Histogram { count: self.0.len(), hdr: STANDARD.encode(bytes), percentiles })
    }

    /// Dense where a distribution's tail is: each further step is half as far from 100.
    fn percentiles(&self) -> Vec<[f64; 2]> {
        let at = |percentile: f64| [percentile, self.percentile_ns(percentile) as f64];
        let mut points: Vec<_> = (0..100).step_by(STEP_PERCENT).map(f64::from).map(at).collect();
        let mut left = TAIL_FROM_PERCENT;
        // Beyond one value in all, there is nothing more to tell apart.
        while left / 100.0 * self.0.len() as f64 > 1.0 && points.len() < PERCENTILES_MAX - 1 {
            points.push(at(100.0 - left));
            left /= 2.0;
        }
        points.push(at(100.0));
        points
    }
}

fn broken(error: &dyn std::fmt::Display) -> Error {
    Error::Check(format!("a histogram: {error}"))
}

const LEAST_NS: u64 = 1;
const MOST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;
const PERCENTILES_MAX: usize = 100;
const STEP_PERCENT: usize = 2;
const TAIL_FROM_PERCENT: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_and_merged() {
        let mut first = Times::new().unwrap();
        (1..=1_000).for_each(|value| first.record(value * 1_000));
        let document = first.document().unwrap();
        assert_eq!(document.count, 1_000);
        assert!(document.percentiles.len() <= 100);
        assert!(document.percentiles.is_sorted_by(|a, b| a[0] < b[0] && a[1] <= b[1]));
        let mut read = Times::read(&document).unwrap();
        read.add(&first).unwrap();
        assert_eq!(read.count(), 2_000);
        let middle = read.percentile_ns(50.0);
        assert!(middle.abs_diff(500_000) <= 500, "{middle}");
    }

    #[test]
    fn a_value_beyond_the_bounds_is_kept_at_the_bound() {
        let mut times = Times::new().unwrap();
        times.record(0);
        times.record(u64::MAX);
        assert_eq!(times.count(), 2);
        assert!(times.percentile_ns(100.0) >= MOST_NS);
    }

    #[test]
    fn without_values_there_are_no_percentiles() {
        assert!(Times::new().unwrap().document().unwrap().percentiles.is_empty());
    }
}
