//! What `fleet` simulated: [`Fleet`].

use serde::{Deserialize, Serialize};

use super::StrategyCheck;

/// A fleet that renews its certificates, simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// How many machines.
    pub machines: u32,
    /// How many names, each with a certificate.
    pub names: u32,
    /// How many days.
    pub days: u32,
    /// What chance went by.
    pub seed: u64,
    /// New orders that the authority gave the account in three hours.
    pub orders_in_3_h: u32,
    /// One hour after the other.
    pub hours: Vec<FleetHour>,
    /// What went wrong when.
    pub moments: Vec<FleetMoment>,
    /// Counts by name, in the order in which they are told.
    pub figures: Vec<FleetFigure>,
    /// What had to hold, and whether it did.
    pub checks: Vec<StrategyCheck>,
}

/// What the authority saw in an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetHour {
    /// Orders that it took.
    pub orders: u32,
    /// Certificates that it issued.
    pub issued: u32,
    /// Questions for renewal information.
    pub asks: u32,
}

/// Something that went wrong, from a day up to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetMoment {
    /// What.
    pub name: String,
    /// When it began, in days.
    pub from_day: f64,
    /// When it was over, in days.
    pub to_day: f64,
}

/// One count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetFigure {
    /// What was counted.
    pub name: String,
    /// How much.
    pub value: f64,
}
