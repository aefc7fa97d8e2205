//! What rows of [`Strategies`](super::Strategies) say: a figure's values, and their median.

use super::StrategyRow;
use crate::statistics::Spread;

impl StrategyRow {
    /// A figure's values, one per round; none if the row does not have it.
    #[must_use]
    pub fn values(&self, figure: &str) -> &[f64] {
        self.figures.get(figure).map_or(&[], Vec::as_slice)
    }

    /// Their median with both ends.
    #[must_use]
    pub fn spread(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.values(figure))
    }

    /// Their median.
    #[must_use]
    pub fn median(&self, figure: &str) -> Option<f64> {
        self.spread(figure).map(|spread| spread.median)
    }
}
