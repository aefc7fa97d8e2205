//! The figures of servers under load: what each is worth, and what it is compared with.

use super::Standing;
use crate::{
    document::{Bottleneck, Floor, Histogram, NoVerdict, ServerCase, ServerResult, Servers},
    statistics::{Spread, least_per_round},
};

/// What a case's figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The server's own processor time or memory.
    Cost,
    /// From the intended time on, in an open loop.
    Latency,
    /// A figure of a server, its clients or its work in a storm: more can be better.
    Storm,
}

impl Subject {
    /// The subject of a document's case.
    #[must_use]
    pub fn of(case: &ServerCase) -> Self {
        match &case.name {
            name if name.starts_with(STORM) => Self::Storm,
            name if name.ends_with(LATENCY) => Self::Latency,
            _ => Self::Cost,
        }
    }

    /// What a figure of it is worth. Whoever else set the rate spoils a latency and no cost; what
    /// the hypervisor took spoils both.
    #[must_use]
    pub fn standing(self, result: &ServerResult) -> Standing {
        let by = result.invalid.as_ref().map(NoVerdict::by);
        match (self, by) {
            _ if result.figure.is_empty() => Standing::Nothing,
            (_, None) | (Self::Cost, Some(Bottleneck::Client | Bottleneck::Elsewhere)) => {
                Standing::Counts
            }
            (_, Some(_)) => Standing::Hint,
        }
    }

    /// Whether a figure of it is compared with others of the same rounds. What disturbed a cost in
    /// every round disturbed the others' too; a latency that the client made is nobody's.
    #[must_use]
    pub fn is_compared(self, result: &ServerResult) -> bool {
        match self.standing(result) {
            _ if self == Self::Storm => false,
            Standing::Counts => true,
            Standing::Hint => self == Self::Cost,
            Standing::Nothing => false,
        }
    }

    /// What stands behind a figure of it: [`NO_VERDICT`], or nothing.
    #[must_use]
    pub fn mark(self, result: &ServerResult) -> &'static str {
        if self.standing(result) == Standing::Hint { NO_VERDICT } else { "" }
    }
}

/// Whether the server set its rate.
#[must_use]
pub fn rate_counts(result: &ServerResult) -> bool {
    result.invalid.is_none()
}

/// What a rate is worth, in words.
#[must_use]
pub fn rate_words(result: &ServerResult) -> String {
    result.invalid.as_ref().map_or_else(|| "counts".to_owned(), ToString::to_string)
}

/// The floor of each round: primitives and a proxy without TLS.
#[must_use]
pub fn total(floor: &Floor) -> Vec<f64> {
    floor.primitives.iter().zip(&floor.tcp).map(|(primitives, tcp)| primitives + tcp).collect()
}

/// How many times the floor a case's figure is, by round.
#[must_use]
pub fn times_the_floor(servers: &Servers, case: &ServerCase, figure: &[f64]) -> Option<Spread> {
    let floor = total(servers.floor.get(&case.name)?);
    let pairs = measurable(figure).into_iter().zip(measurable(&floor));
    let ratios: Vec<f64> = pairs.filter_map(|(of, to)| Some(of? / to?)).collect();
    Spread::of(&ratios)
}

/// The least figure of the other terminators in each round, of those that were measured in as many
/// rounds as `name`.
#[must_use]
pub fn best_other(servers: &Servers, case: &ServerCase, name: &str) -> Option<Vec<f64>> {
    let figure = |name: &str| {
        let server = servers.servers.iter().find(|server| server.name == name)?;
        let result = server.cases.get(&case.name)?;
        Subject::of(case).is_compared(result).then_some(result.figure.as_slice())
    };
    let rounds = figure(name)?.len();
    let others = servers.servers.iter().filter(|other| other.name != name);
    let others = others.filter_map(|other| figure(&other.name));
    let others: Vec<&[f64]> = others.filter(|other| other.len() == rounds).collect();
    (!others.is_empty()).then(|| least_per_round(&others))
}

/// Figures of rounds, without what is zero because it is below what can be measured: of that there
/// is no ratio.
#[must_use]
pub fn measurable(figures: &[f64]) -> Vec<Option<f64>> {
    figures.iter().map(|figure| Some(*figure).filter(|figure| *figure > 0.0)).collect()
}

/// The nanoseconds at a percentile that the document gives, or at the next one above.
#[must_use]
pub fn percentile_ns(histogram: &Histogram, percentile: f64) -> Option<f64> {
    let mut points = histogram.percentiles.iter();
    points.find(|[at, _]| *at >= percentile).map(|[_, ns]| *ns)
}

/// The prefix of the names of a storm's figures.
const STORM: &str = "storm";
/// How the name of a case ends whose figure is a latency.
pub const LATENCY: &str = "-p99";
/// The mark of a figure that is no verdict on the server.
pub const NO_VERDICT: &str = "*";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_set_the_rate_spoils_a_latency_and_the_hypervisor_all() {
        let [cost, latency] = ["full-half", "full-half-p99"]
            .map(|name| Subject::of(&ServerCase { name: name.into(), ..ServerCase::default() }));
        assert_eq!((cost, latency), (Subject::Cost, Subject::Latency));
        for (why, standings, compared) in [
            ("", [Standing::Counts; 2], [true; 2]),
            ("client-bound: x", [Standing::Counts, Standing::Hint], [true, false]),
            ("server not at its limit: x", [Standing::Counts, Standing::Hint], [true, false]),
            ("steal: x", [Standing::Hint; 2], [true, false]),
            ("backend-bound: x", [Standing::Hint; 2], [true, false]),
        ] {
            let invalid = (!why.is_empty()).then(|| NoVerdict::from(why.to_owned()));
            let result = ServerResult { figure: vec![1.0], invalid, ..ServerResult::default() };
            assert_eq!([cost, latency].map(|of| of.standing(&result)), standings, "{why}");
            assert_eq!([cost, latency].map(|of| of.is_compared(&result)), compared, "{why}");
            let refused = ServerResult { figure: Vec::new(), ..result };
            assert_eq!(cost.standing(&refused), Standing::Nothing, "{why}");
        }
    }
}
