//! What a measurement says: which rounds count, are a hint or are nothing ([`Standing`],
//! [`Shown`]), and every [`Figure`] that is read in more than one place, once, with its name for
//! people.
//!
//! Tables, pages, other tools' lines and spreadsheets only show what is here.

pub mod bulk;
pub mod conduct;
pub mod count;
pub mod handshake;
pub mod rounds;
pub mod servers;

pub use rounds::{HINT, Round, Shown, Standing, Tally};

/// One figure of a round, the same wherever it is shown.
pub struct Figure<R> {
    /// What it is, for people: `server CPU per handshake`.
    pub name: &'static str,
    /// The head of its column where there is little room.
    pub head: &'static str,
    /// The unit of its values, such as `us`; empty for a plain count.
    pub unit: &'static str,
    /// The value in a round, if that tells it.
    pub of_round: fn(&R) -> Option<f64>,
}

impl<R> Figure<R> {
    /// Name and unit, for a heading.
    #[must_use]
    pub fn title(&self) -> String {
        match self.unit {
            "" => self.name.to_owned(),
            "us" => format!("{}, \u{b5}s", self.name),
            unit => format!("{}, {unit}", self.name),
        }
    }
}
