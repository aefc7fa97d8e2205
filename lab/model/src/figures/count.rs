//! The figures of counts.

/// Writes of shared memory by the work that they come with, on which scaling depends; nothing where
/// no work was counted.
#[must_use]
pub fn per_million_instructions(writes: f64, instructions: f64) -> Option<f64> {
    (instructions > 0.0).then(|| writes / instructions * 1e6)
}
