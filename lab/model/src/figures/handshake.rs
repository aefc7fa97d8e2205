//! The figures of handshakes: of a round, of a point, and of a series.

use super::{Figure, HINT, Shown};
use crate::{
    document::{HandshakePoint, HandshakeRound, HandshakeSeries},
    statistics::Spread,
};

/// Handshakes of a thread in a second; it works as both ends.
pub const RATE: Figure<HandshakeRound> = Figure {
    name: "rate per thread",
    head: "hs/s/thread",
    unit: "handshakes/s",
    of_round: |round| Some(1e9 / wall_ns(round)?),
};
/// What a handshake takes a thread, everything included.
pub const WALL: Figure<HandshakeRound> = Figure {
    name: "wall time per handshake",
    head: "wall us",
    unit: "us",
    of_round: |round| Some(wall_ns(round)? / 1e3),
};
/// CPU time of a handshake, both ends and the harness.
pub const CPU: Figure<HandshakeRound> =
    Figure { name: "CPU per handshake", head: "all CPU us", unit: "us", of_round: cpu_us };
/// Wall time in the server, its making and dropping included.
pub const SERVER_TIME: Figure<HandshakeRound> = Figure {
    name: "server time per handshake",
    head: "server us",
    unit: "us",
    of_round: |round| Some(times_us(round)?[0]),
};
/// Wall time in the client, its making and dropping included.
pub const CLIENT_TIME: Figure<HandshakeRound> = Figure {
    name: "client time per handshake",
    head: "client us",
    unit: "us",
    of_round: |round| Some(times_us(round)?[1]),
};
/// The server's part of the CPU time.
pub const SERVER_CPU: Figure<HandshakeRound> = Figure {
    name: "server CPU per handshake",
    head: "CPU us",
    unit: "us",
    of_round: |round| cpu_of_us(round, 0),
};
/// The client's part of the CPU time.
pub const CLIENT_CPU: Figure<HandshakeRound> = Figure {
    name: "client CPU per handshake",
    head: "CPU us",
    unit: "us",
    of_round: |round| cpu_of_us(round, 1),
};
/// What a thread would do if clients cost nothing.
pub const SERVER_ONLY: Figure<HandshakeRound> = Figure {
    name: "rate of a server alone",
    head: "server-only/s",
    unit: "handshakes/s",
    of_round: |round| times_us(round)?.first().filter(|us| **us > 0.0).map(|us| 1e6 / us),
};
/// What a table has in a row, after the rate.
pub const COSTS: [Figure<HandshakeRound>; 5] =
    [SERVER_TIME, SERVER_CPU, CLIENT_TIME, CLIENT_CPU, SERVER_ONLY];

/// How much of its speed per thread a stack keeps.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// At so many threads, the most that have a processor each.
    pub threads: usize,
    /// The spread of the rounds' ratios to the fewest threads.
    pub share: Spread,
    /// Whether it is a hint.
    pub is_hint: bool,
}

/// What `series` keeps of its speed while each thread has a processor, at each number of threads
/// beyond the fewest.
#[must_use]
pub fn kept_by_threads(series: &HandshakeSeries, processors: usize) -> Vec<Kept> {
    let Some(first) = first(series) else { return Vec::new() };
    let beyond = first.threads + 1..=processors.max(1);
    let points = series.points.iter().filter(|point| beyond.contains(&point.threads));
    let kept = points.filter_map(|point| {
        let Share { spread, is_hint } = kept_share(point, first)?;
        Some(Kept { threads: point.threads, share: spread, is_hint })
    });
    kept.collect()
}

/// What `series` keeps at the most threads that have a processor each.
#[must_use]
pub fn kept(series: &HandshakeSeries, processors: usize) -> Option<Kept> {
    kept_by_threads(series, processors).pop()
}

/// The fewest threads that have figures: what more threads are measured against.
#[must_use]
pub fn first(series: &HandshakeSeries) -> Option<&HandshakePoint> {
    series.points.iter().find(|point| has_figures(point))
}

/// Whether some round of a point can be shown.
#[must_use]
pub fn has_figures(point: &HandshakePoint) -> bool {
    !shown(point).is_empty()
}

/// The rounds that a point's figures are made of.
#[must_use]
pub fn shown(point: &HandshakePoint) -> Shown<'_, HandshakeRound> {
    Shown::of(&point.rounds)
}

/// One point beside another: ratios of their rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// The ratios' median with both ends.
    pub spread: Spread,
    /// Whether one of the two points is a hint, or no round shows both.
    pub is_hint: bool,
}

impl Share {
    /// What stands before it: [`HINT`], or nothing.
    #[must_use]
    pub fn mark(&self) -> &'static str {
        if self.is_hint { HINT } else { "" }
    }
}

/// What a point keeps of the speed per thread of `first`. Neighbours in time are compared: what
/// stands in the same round; without one that both show, all of `point` with the median of `first`,
/// as a hint.
#[must_use]
pub fn kept_share(point: &HandshakePoint, first: &HandshakePoint) -> Option<Share> {
    let (of, to) = (shown(point), shown(first));
    let (by_round, rates) = (of.by_round(&RATE), to.by_round(&RATE));
    let same = by_round.iter().filter_map(|(round, rate)| Some(rate / rates.get(round)?));
    match Spread::of(&same.collect::<Vec<_>>()) {
        Some(spread) => Some(Share { spread, is_hint: of.is_hint() || to.is_hint() }),
        None => {
            let spread = times(of.spread(&RATE)?, 1.0 / to.median(&RATE)?);
            Some(Share { spread, is_hint: true })
        }
    }
}

/// How many times the rate of `first` all threads of a point have together.
#[must_use]
pub fn speed_up(point: &HandshakePoint, first: &HandshakePoint) -> Option<Share> {
    let threads = point.threads as f64 / first.threads.max(1) as f64;
    let share = kept_share(point, first)?;
    Some(Share { spread: times(share.spread, threads), ..share })
}

/// Handshakes per second of all threads together.
#[must_use]
pub fn rate_of_all(point: &HandshakePoint) -> Option<f64> {
    Some(shown(point).median(&RATE)? * point.threads as f64)
}

/// Handshakes of each thread by the seconds that `time` picks out of its four spans, all rounds
/// together: the rates of other tools, whose clocks run in one end only. A thread without such time
/// has none.
#[must_use]
pub fn rates_in_spans(rounds: &[&HandshakeRound], time: impl Fn([u64; 4]) -> u64) -> Vec<f64> {
    let threads = rounds.iter().map(|round| round.per_thread_ns.len()).min().unwrap_or(0);
    let rate = |thread: usize| {
        let done = rounds.iter().map(|round| Some(*round.per_thread.get(thread)?));
        let count: u64 = done.sum::<Option<u64>>()?;
        let time_ns: u64 = rounds.iter().map(|round| time(round.per_thread_ns[thread])).sum();
        (time_ns > 0).then(|| count as f64 * 1e9 / time_ns as f64)
    };
    (0..threads).filter_map(rate).collect()
}

fn times(Spread { median, min, max }: Spread, factor: f64) -> Spread {
    Spread { median: median * factor, min: min * factor, max: max * factor }
}

fn wall_ns(round: &HandshakeRound) -> Option<f64> {
    let done = done(round)?;
    (round.window_ns > 0).then(|| round.window_ns as f64 * round.per_thread.len() as f64 / done)
}

fn cpu_us(round: &HandshakeRound) -> Option<f64> {
    let done = done(round)?;
    (round.cpu_ns > 0).then(|| round.cpu_ns as f64 / done / 1e3)
}

/// The CPU time, divided among server, client and harness as their times are.
fn cpu_of_us(round: &HandshakeRound, part: usize) -> Option<f64> {
    let times = times_us(round)?;
    let all: f64 = times.iter().sum();
    (all > 0.0).then_some(cpu_us(round)? * times[part] / all)
}

/// What server, client and harness take: the median of a round's handshakes, because a sum also
/// tells who ran when a thread was preempted; the mean in documents of before.
fn times_us(round: &HandshakeRound) -> Option<[f64; 3]> {
    let done = done(round)?;
    let sums_ns = [
        round.server_ns + round.server_setup_ns,
        round.client_ns + round.client_setup_ns,
        round.other_ns,
    ];
    Some(match round.median_ns {
        [0, ..] | [_, 0, _] => sums_ns.map(|ns| ns as f64 / done / 1e3),
        medians_ns => medians_ns.map(|ns| ns as f64 / 1e3),
    })
}

fn done(round: &HandshakeRound) -> Option<f64> {
    let done: u64 = round.per_thread.iter().sum();
    (done > 0).then_some(done as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Invalid;

    /// 10 handshakes of two threads in 1 ms.
    fn round() -> HandshakeRound {
        HandshakeRound {
            window_ns: 1_000_000,
            per_thread: vec![6, 4],
            server_ns: 500_000,
            server_setup_ns: 100_000,
            client_ns: 1_000_000,
            client_setup_ns: 200_000,
            other_ns: 200_000,
            cpu_ns: 1_800_000,
            median_ns: [50_000, 100_000, 30_000],
            ..HandshakeRound::default()
        }
    }

    fn all(round: &HandshakeRound) -> [Option<f64>; 8] {
        let [server, server_cpu, client, client_cpu, server_only] = COSTS;
        [RATE, WALL, CPU, server, server_cpu, client, client_cpu, server_only]
            .map(|figure| (figure.of_round)(round))
    }

    #[test]
    fn each_figure_is_what_its_name_says() {
        let expected = [5_000.0, 200.0, 180.0, 50.0, 50.0, 100.0, 100.0, 20_000.0];
        assert_eq!(all(&round()), expected.map(Some));
        // Without medians, the means: 60, 120 and 20 us.
        let before = HandshakeRound { median_ns: [0; 3], ..round() };
        let expected = [5_000.0, 200.0, 180.0, 60.0, 54.0, 120.0, 108.0, 1e6 / 60.0];
        assert_eq!(all(&before), expected.map(Some));
        assert_eq!(all(&HandshakeRound::default()), [None; 8]);
        // Counts without times, as no run writes them: no figure is infinite.
        let timeless = HandshakeRound { per_thread: vec![1], ..HandshakeRound::default() };
        assert_eq!(all(&timeless)[..3], [None; 3]);
        assert_eq!(all(&timeless)[4..], [None, Some(0.0), None, None]);
        let timeless = HandshakeRound { cpu_ns: 1, ..timeless };
        assert_eq!(all(&timeless)[4..], [None, Some(0.0), None, None]);
    }

    #[test]
    fn rates_of_a_damaged_document_are_those_of_whole_threads() {
        let round = |per_thread: &[u64], ns: &[u64]| HandshakeRound {
            per_thread: per_thread.into(),
            per_thread_ns: ns.iter().map(|ns| [*ns; 4]).collect(),
            ..HandshakeRound::default()
        };
        let rounds = [round(&[2, 3, 4], &[1_000, 0, 2_000]), round(&[2], &[1_000, 0, 2_000])];
        let rates = |rounds: &[HandshakeRound]| {
            rates_in_spans(&rounds.iter().collect::<Vec<_>>(), |[server, ..]| server)
        };
        assert_eq!(rates(&rounds[..1]), [2e6, 2e6]);
        assert_eq!(rates(&rounds), [2e6]);
    }

    #[test]
    fn rates_of_the_same_round_are_compared() {
        let rounds = |figures: &[(u64, Option<Invalid>)]| {
            let round = |(done, invalid): &(u64, Option<Invalid>)| HandshakeRound {
                per_thread: vec![*done],
                invalid: invalid.clone(),
                ..round()
            };
            let rounds = figures.iter().map(round).collect();
            HandshakePoint { threads: 1, pinned: Vec::new(), rounds }
        };
        let steal = || Some(Invalid::Steal);
        let first = rounds(&[(10, None), (20, None), (99, steal())]);
        let point = rounds(&[(99, steal()), (10, None), (30, None)]);
        let share = kept_share(&point, &first).unwrap();
        assert_eq!((share.spread.median, share.is_hint), (0.5, false));
        let apart = rounds(&[(99, steal()), (99, steal()), (30, None)]);
        let share = kept_share(&apart, &first).unwrap();
        assert!((share.spread.median - 2.0).abs() < 1e-9 && share.is_hint, "{share:?}");
    }

    /// Whatever disturbed which of two rounds of the fewest threads and of the others.
    #[test]
    fn a_share_is_a_hint_unless_a_round_of_both_counts() {
        let causes = [None, Some(Invalid::Accounting), Some(Invalid::Preempted)];
        let pairs: Vec<[Option<Invalid>; 2]> = causes
            .iter()
            .flat_map(|one| causes.iter().map(|other| [one.clone(), other.clone()]))
            .collect();
        let point = |causes: &[Option<Invalid>; 2]| {
            let round = |invalid| HandshakeRound { invalid, ..round() };
            let rounds = causes.iter().cloned().map(round).collect();
            HandshakePoint { threads: 1, pinned: Vec::new(), rounds }
        };
        for base in &pairs {
            for other in &pairs {
                let share = kept_share(&point(other), &point(base));
                let nothing = |it: &[Option<Invalid>; 2]| {
                    it.iter().all(|cause| *cause == Some(Invalid::Accounting))
                };
                let counts = (0..2).any(|round| base[round].is_none() && other[round].is_none());
                let wanted = (!nothing(base) && !nothing(other)).then_some(!counts);
                assert_eq!(share.map(|share| share.is_hint), wanted, "{base:?} {other:?}");
            }
        }
    }

    #[test]
    fn what_is_kept_is_a_hint_if_one_of_its_ends_is() {
        let point = |threads: usize, done: u64, invalid: Option<Invalid>| {
            let per_thread = vec![done; threads];
            let rounds = vec![HandshakeRound { per_thread, invalid, ..round() }];
            HandshakePoint { threads, pinned: Vec::new(), rounds }
        };
        let kept_of = |points| {
            let series = HandshakeSeries {
                stack: "x".into(),
                scenario: crate::scenario::Scenario::default(),
                negotiated: None,
                points,
                times: None,
                failure: None,
            };
            let kept = kept(&series, 4)?;
            Some((kept.threads, kept.share.median, kept.is_hint))
        };
        let (steal, broken) = (Some(Invalid::Steal), Some(Invalid::Accounting));
        let (one, four, eight) = (point(1, 10, None), point(4, 8, None), point(8, 1, None));
        assert_eq!(kept_of(vec![one.clone(), four, eight]), Some((4, 0.8, false)));
        assert_eq!(kept_of(vec![one.clone(), point(2, 5, steal)]), Some((2, 0.5, true)));
        assert_eq!(kept_of(vec![one, point(2, 5, broken)]), None);
        let up = speed_up(&point(4, 8, None), &point(2, 10, None)).unwrap();
        assert_eq!((up.spread.median, up.mark()), (1.6, ""));
        let steal = Some(Invalid::Steal);
        assert_eq!(speed_up(&point(4, 8, None), &point(2, 10, steal)).unwrap().mark(), HINT);
    }
}
