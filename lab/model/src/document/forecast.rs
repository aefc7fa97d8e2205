//! Results of `forecast` and `validate`: curves from counts. What was measured and what is forecast
//! stand apart, always.

use serde::{Deserialize, Serialize};

use super::Scenario;

/// One stack's forecast, from one recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// [`Identity::name`](crate::library::Identity::name).
    pub stack: String,
    /// The version, as the library tells it.
    pub version: String,
    /// What was asked of it.
    pub scenario: Scenario,
    /// The machine it is made for.
    pub profile: Profile,
    /// Uncontended time per operation that it starts from, and whose figure that is.
    pub base: Base,
    /// The curve of the server's work.
    pub server: Curve,
    /// The curve of the client's.
    pub client: Curve,
    /// The curve of the whole loop: both ends, making and dropping them.
    pub whole: Curve,
    /// The lines that threads wait for, the costliest first.
    pub lines: Vec<LineCost>,
    /// Shared writes per operation by cause: `lock`, `reference-count`, `global`, `false-sharing`.
    pub writes: Vec<CauseWrites>,
    /// In one sentence each.
    pub verdict: Verdict,
}

/// What is assumed of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// `measured`, or a name.
    pub name: String,
    /// The cost of moving a contended line from one core to another: the slow end of the band.
    pub transfer_ns: f64,
    /// Where the figure comes from.
    pub source: String,
}

/// Uncontended time per operation, of one thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Base {
    /// In the server.
    pub server_ns: f64,
    /// In the client.
    pub client_ns: f64,
    /// Making and dropping connections, where that is timed apart, and the harness.
    pub untimed_ns: f64,
    /// Where the figures come from.
    pub source: String,
}

/// What share of its per-thread speed a side keeps, by threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// By threads, fewest first.
    pub points: Vec<CurvePoint>,
    /// Where it falls below 70%.
    pub knee: Knee,
}

/// One number of threads. Efficiency: rate per thread over the rate of a single one, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// One per core.
    pub threads: u32,
    /// At the profile's transfer cost.
    pub efficiency: f64,
    /// The band's lower end.
    pub low: f64,
    /// The band's upper end.
    pub high: f64,
}

/// Where a curve falls below 70%.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "knee", rename_all = "kebab-case")]
pub enum Knee {
    /// Below 14 threads: too few for a number.
    FewCores,
    /// About there.
    At {
        /// The number of threads.
        threads: u32,
    },
    /// Not up to there.
    NoneBelow {
        /// The number of threads.
        threads: u32,
    },
    /// Nobody looked for it.
    #[default]
    Unknown,
}

/// What one line costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LineCost {
    /// The class, as in [`Recording::lines`](crate::recording::Recording::lines).
    pub class: String,
    /// The variable, or who writes it.
    pub symbol: String,
    /// Library or binary.
    pub owner: String,
    /// How its lock waits, if it holds one.
    pub lock: Option<String>,
    /// Writes per operation: server, client, setup of both and harness.
    pub writes: [f64; 3],
    /// The busiest call path that writes it, innermost function first.
    pub path: Vec<String>,
    /// How much of all waiting, at the most threads asked for, was for it: 0 to 1.
    pub share_of_waiting: f64,
    /// The server's efficiency at the most threads, had the line not been there.
    pub without: f64,
    /// The cost's band.
    #[serde(default)]
    pub without_band: [f64; 2],
    /// And where the server's knee would be.
    pub knee_without: Knee,
}

/// Shared writes per operation of one cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CauseWrites {
    /// A line's class.
    pub cause: String,
    /// Server, client, setup of both and harness.
    pub writes: [f64; 3],
}

/// A stack's verdict: what was measured and what is forecast, in a sentence each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// In short.
    pub kind: VerdictKind,
    /// From counts and times taken here; begins with `MEASURED`.
    pub measured: String,
    /// From the replay; begins with `FORECAST`. Empty where nothing can be said.
    pub forecast: String,
}

/// Two forecasts of the same scenario, side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ForecastComparison {
    /// The stack in question.
    pub of: String,
    /// The one it is compared with.
    pub to: String,
    /// At so many threads.
    pub threads: u32,
    /// Whether their bands lie apart.
    pub verdict: Verdict,
}

/// A verdict in short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VerdictKind {
    /// Two curves whose bands lie apart.
    Differs,
    /// Two curves whose bands overlap.
    NoDifferenceShown,
    /// The curve stays above 70%.
    NoKneeFound,
    /// Too little was recorded.
    #[default]
    NotEnoughToSay,
    /// A knee was found.
    Stops,
}

/// What `validate` found: published curves beside forecasts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// The transfer cost and where it was fitted.
    pub profile: Profile,
    /// One row per published curve.
    pub curves: Vec<ValidatedCurve>,
    /// How well they agree.
    #[serde(default)]
    pub score: Score,
    /// Curves that the model was never revised against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_out: Vec<ValidatedCurve>,
    /// How well those agree; they have no bar.
    #[serde(default)]
    pub held_out_score: Score,
    /// What was changed of the model while looking at the other curves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<String>,
}

/// How well forecasts agree with what was published. An error is forecast over published.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Curves on which nothing was fitted and of which there is a recording.
    pub unfitted: u32,
    /// How many of them are within a factor of two at the most threads compared.
    pub within_twice: u32,
    /// How many have to be.
    pub within_twice_min: u32,
    /// Curves and points that would be within a factor of two if every thread kept all.
    #[serde(default)]
    pub baseline: [u32; 2],
    /// Points of the unfitted curves, and how many of them are within a factor of two.
    pub points: [u32; 2],
    /// The median factor, 1 or more, by which those points are off either way.
    pub median_factor: f64,
    /// Nine in ten are off by no more.
    pub p90_factor: f64,
    /// Spearman's rank correlation of all efficiencies at the most threads compared.
    pub rank_correlation: f64,
    /// Whether the bar is reached; absent if recordings are missing.
    pub passed: Option<bool>,
}

/// One published curve.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValidatedCurve {
    /// The curve's name in the published source.
    pub name: String,
    /// Whether the transfer cost was fitted on it.
    pub fitted: bool,
    /// Where the points come from.
    pub source: String,
    /// The points.
    pub points: Vec<ValidatedPoint>,
    /// Where it falls below 70%, forecast and published.
    pub knee: [Knee; 2],
    /// What was recorded: stack and version, which is not always the published one.
    pub recorded: String,
    /// [`Identity::name`](crate::library::Identity::name) of what was recorded.
    #[serde(default)]
    pub stack: String,
    /// What was asked of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<Scenario>,
    /// The published version.
    #[serde(default)]
    pub version: String,
    /// Why there is no forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// One published point. Efficiency: rate per thread over the rate at the fewest threads published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ValidatedPoint {
    /// The number of threads.
    pub threads: u32,
    /// Published.
    pub published: f64,
    /// Forecast.
    pub forecast: f64,
}

/// What share of its speed a curve has to keep to be called level.
pub const KNEE: f64 = 0.7;
/// No knee below is given as a number.
pub const KNEE_THREADS_MIN: u32 = 14;
