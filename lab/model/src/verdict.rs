//! A forecast in a sentence: [`of`] one stack, [`between`] two. What was counted and what is
//! forecast stand in sentences of their own, each with its word in front.

use crate::{
    document::{Curve, CurvePoint, Forecast, ForecastComparison, KNEE, Knee, Verdict, VerdictKind},
    recording::{Event, Part, Recording},
};

/// What can be said of one stack; `forecast` is whole but for its verdict.
#[must_use]
pub fn of(recording: &Recording, forecast: &Forecast) -> Verdict {
    if let Some(reason) = not_enough(recording) {
        return Verdict {
            kind: VerdictKind::NotEnoughToSay,
            measured: format!("MEASURED: not enough to say: {reason}."),
            forecast: String::new(),
        };
    }
    let measured = counted(recording);
    let Some(last) = forecast.server.points.last() else {
        return Verdict { kind: VerdictKind::NotEnoughToSay, measured, forecast: String::new() };
    };
    let fallen = fallen(&forecast.server);
    let point = fallen.unwrap_or(*last);
    let mut sentence = match forecast.server.knee {
        Knee::NoneBelow { threads } if fallen.is_none() => {
            format!("no knee found below {threads} threads")
        }
        Knee::At { threads } => format!(
            "{}; it falls below 70% at about {threads} threads",
            kept(&point, "its per-thread speed")
        ),
        Knee::FewCores => {
            format!("{}; few cores are enough to stop it", kept(&point, "its per-thread speed"))
        }
        Knee::NoneBelow { .. } | Knee::Unknown => kept(&point, "its per-thread speed"),
    };
    // What a line costs is told at the most threads.
    let at_last = fallen.is_some_and(|point| point.threads == last.threads);
    if let (true, Some(line)) = (at_last, forecast.lines.first()) {
        let [low, high] = line.without_band;
        let without = CurvePoint { efficiency: line.without, low, high, ..*last };
        sentence += &format!("; without {} it keeps {}", line.symbol, share(&without));
    }
    let profile = &forecast.profile;
    let constants = format!("s = {:.0} ns, profile {}", profile.transfer_ns, profile.name);
    let kind = if fallen.is_some() { VerdictKind::Stops } else { VerdictKind::NoKneeFound };
    Verdict { kind, measured, forecast: format!("{FORECAST}: {sentence}. {constants}.") }
}

/// Whether two stacks differ at the most threads that both were asked for.
#[must_use]
pub fn between(of: &Forecast, to: &Forecast) -> ForecastComparison {
    let mut comparison = ForecastComparison {
        of: of.stack.clone(),
        to: to.stack.clone(),
        threads: 0,
        verdict: Verdict::default(),
    };
    let silent = |one: &Forecast| one.verdict.kind == VerdictKind::NotEnoughToSay;
    let pair =
        of.server.points.iter().rev().find_map(|a| {
            to.server.points.iter().find(|b| b.threads == a.threads).map(|b| (*a, *b))
        });
    let Some((a, b)) = pair.filter(|_| !silent(of) && !silent(to)) else {
        let names: Vec<&str> =
            [of, to].into_iter().filter(|one| silent(one)).map(|one| one.stack.as_str()).collect();
        let whose = if names.is_empty() {
            "no number of threads in common".into()
        } else {
            format!("too little of {}", names.join(" and of "))
        };
        comparison.verdict.measured = format!("MEASURED: not enough to say: {whose}.");
        return comparison;
    };
    let apart = a.high < b.low || b.high < a.low;
    let words = |one: &Forecast, point: &CurvePoint| {
        let name = &one.stack;
        if point.efficiency >= KNEE && fallen(&one.server).is_none() {
            format!("no knee found for {name}")
        } else {
            format!("{name} keeps {}", share(point))
        }
    };
    let which = match (apart, a.efficiency > b.efficiency) {
        (false, _) => "no difference shown".to_owned(),
        (true, true) => format!("{} keeps more of its own per-thread speed", of.stack),
        (true, false) => format!("{} keeps more of its own per-thread speed", to.stack),
    };
    comparison.threads = a.threads;
    comparison.verdict = Verdict {
        kind: if apart { VerdictKind::Differs } else { VerdictKind::NoDifferenceShown },
        measured: format!("MEASURED: {}.", [of, to].map(writes_per_microsecond).join("; ")),
        forecast: format!(
            "{FORECAST}: {which} at {} threads: {}, {}. Bands that overlap show no difference, and \
             what a thread keeps says nothing of how fast it is alone.",
            a.threads,
            words(of, &a),
            words(to, &b)
        ),
    };
    comparison
}

/// Where a curve that falls below 70% is told: at its end, or at its lowest point if it ends above
/// again. The last 30% are beyond the model.
pub fn fallen(curve: &Curve) -> Option<CurvePoint> {
    let last = curve.points.last()?;
    let lowest = curve.points.iter().min_by(|a, b| a.efficiency.total_cmp(&b.efficiency))?;
    [last, lowest].into_iter().find(|point| point.efficiency < KNEE).copied()
}

/// By what factor a forecast is off, either way: 1 or more.
pub fn off((forecast, published): (f64, f64)) -> f64 {
    (forecast / published).max(published / forecast)
}

/// Why a recording says nothing, if so.
pub fn not_enough(recording: &Recording) -> Option<String> {
    let server = recording.steps.iter().any(|step| {
        step.event == Event::Enter && Part::ALL.get(step.place as usize) == Some(&Part::Server)
    });
    if recording.operations == 0 {
        Some("no whole operation was recorded".into())
    } else if !server || recording.instructions.server <= 0.0 {
        Some("no work of a server was recorded".into())
    } else {
        None
    }
}

/// `1,979 atomic writes per handshake ...`
fn counted(recording: &Recording) -> String {
    let server: Vec<_> = recording.lines.iter().filter(|line| line.updates.server > 0.0).collect();
    let most = server.iter().max_by(|a, b| a.updates.server.total_cmp(&b.updates.server));
    let Some(most) = most else {
        return "MEASURED: no atomic write per handshake on the server to a shared line, counted \
                exactly on 2 threads."
            .into();
    };
    let writes: f64 = server.iter().map(|line| line.updates.server).sum();
    let lines = server.len();
    format!(
        "MEASURED: {} atomic writes per handshake on the server to {lines} shared {}, most to {} \
         ({}), counted exactly on 2 threads.",
        thousands(writes),
        if lines == 1 { "line" } else { "lines" },
        most.symbol,
        most.class
    )
}

fn writes_per_microsecond(forecast: &Forecast) -> String {
    let writes: f64 = forecast.writes.iter().map(|cause| cause.writes[0]).sum();
    let per_us = writes / (forecast.base.server_ns / 1e3).max(f64::MIN_POSITIVE);
    format!(
        "{} writes shared lines {} times per handshake on the server, {per_us:.2} times per \
         microsecond of its work",
        forecast.stack,
        thousands(writes)
    )
}

/// `keeps about 6% (3-12%) of ... at 80 threads`
pub fn kept(point: &CurvePoint, what: &str) -> String {
    let CurvePoint { threads, .. } = point;
    format!("keeps about {} of {what} at {threads} threads", share(point))
}

/// `6% (3-12%)`; of a curve that stays above 70% no number is told.
pub fn share(point: &CurvePoint) -> String {
    if point.efficiency >= KNEE {
        return "more than 70%".into();
    }
    let percent = |share: f64| {
        let percent = share * 100.0;
        if percent < 1.0 { format!("{percent:.1}") } else { format!("{percent:.0}") }
    };
    let CurvePoint { efficiency, low, high, .. } = *point;
    format!("{}% ({}-{}%)", percent(efficiency), percent(low), percent(high))
}

/// `1,979`; with a decimal where it is no integer.
pub fn thousands(value: f64) -> String {
    let text = format!("{value:.1}");
    let (whole, decimal) = text.split_once('.').unwrap_or((&text, "0"));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if decimal == "0" { grouped } else { format!("{grouped}.{decimal}") }
}

const FORECAST: &str = "FORECAST (not measured)";

/// Within this factor, a forecast is called right.
pub const TWICE: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        document::{Base, CauseWrites, LineCost, Profile},
        recording::{ByPart, RecordedLine, Recording, Step},
    };

    fn recording() -> Recording {
        let server =
            u32::try_from(Part::ALL.iter().position(|part| *part == Part::Server).unwrap());
        let line = |class: &str, symbol: &str, server| RecordedLine {
            class: class.into(),
            symbol: symbol.into(),
            updates: ByPart { server, client: 9_999.0, ..ByPart::default() },
            ..RecordedLine::default()
        };
        Recording {
            operations: 2,
            instructions: ByPart { server: 1e6, ..ByPart::default() },
            lines: vec![
                line("reference-count", "EVP_MD", 800.0),
                line("lock", "namemap", 1_179.0),
                line("lock", "the client's alone", 0.0),
            ],
            steps: vec![Step { place: server.unwrap(), ..Step::default() }],
            ..Recording::default()
        }
    }

    fn forecast(stack: &str, efficiency: f64, [low, high]: [f64; 2], knee: Knee) -> Forecast {
        let points = vec![CurvePoint { threads: 80, efficiency, low, high }];
        let without = LineCost {
            symbol: "namemap".into(),
            without: 0.4,
            without_band: [0.2, 0.8],
            ..LineCost::default()
        };
        let writes = CauseWrites { cause: "lock".into(), writes: [1_979.0, 0.0, 0.0] };
        Forecast {
            stack: stack.into(),
            profile: Profile { name: "altra".into(), transfer_ns: 145.0, ..Profile::default() },
            base: Base { server_ns: 200_000.0, ..Base::default() },
            server: Curve { points, knee },
            lines: vec![without],
            writes: vec![writes],
            verdict: Verdict { kind: VerdictKind::Stops, ..Verdict::default() },
            ..Forecast::default()
        }
    }

    #[test]
    fn what_stops_is_said_in_two_sentences() {
        let verdict = of(&recording(), &forecast("x", 0.06, [0.03, 0.12], Knee::FewCores));
        assert_eq!(verdict.kind, VerdictKind::Stops);
        assert_eq!(
            verdict.measured,
            "MEASURED: 1,979 atomic writes per handshake on the server to 2 shared lines, most to \
             namemap (lock), counted exactly on 2 threads."
        );
        assert_eq!(
            verdict.forecast,
            "FORECAST (not measured): keeps about 6% (3-12%) of its per-thread speed at 80 \
             threads; few cores are enough to stop it; without namemap it keeps 40% (20-80%). s = \
             145 ns, profile altra."
        );
    }

    #[test]
    fn a_knee_has_its_number() {
        let verdict = of(&recording(), &forecast("x", 0.38, [0.2, 1.0], Knee::At { threads: 26 }));
        assert!(verdict.forecast.contains("it falls below 70% at about 26 threads"), "{verdict:?}");
    }

    #[test]
    fn above_seventy_percent_only_that_no_knee_was_found() {
        let none = Knee::NoneBelow { threads: 80 };
        let verdict = of(&recording(), &forecast("x", 0.72, [0.36, 1.0], none));
        assert_eq!(verdict.kind, VerdictKind::NoKneeFound);
        assert_eq!(
            verdict.forecast,
            "FORECAST (not measured): no knee found below 80 threads. s = 145 ns, profile altra."
        );
    }

    /// Waiting for a lock can keep threads from waiting for lines: a curve may rise again.
    #[test]
    fn a_knee_is_a_knee_though_the_curve_ends_above_it() {
        let mut dips = forecast("dips", 0.75, [0.37, 1.0], Knee::At { threads: 15 });
        let dip = CurvePoint { threads: 16, efficiency: 0.65, low: 0.32, high: 1.0 };
        dips.server.points.insert(0, dip);
        let verdict = of(&recording(), &dips);
        assert_eq!(verdict.kind, VerdictKind::Stops);
        assert_eq!(
            verdict.forecast,
            "FORECAST (not measured): keeps about 65% (32-100%) of its per-thread speed at 16 \
             threads; it falls below 70% at about 15 threads. s = 145 ns, profile altra."
        );
        let low = forecast("low", 0.06, [0.03, 0.12], Knee::FewCores);
        let said = between(&dips, &low).verdict.forecast;
        assert!(said.contains("dips keeps more than 70%, low keeps 6%"), "{said}");
    }

    #[test]
    fn too_little_is_not_enough_to_say() {
        let nothing = Recording::default();
        let verdict = of(&nothing, &forecast("x", 0.06, [0.03, 0.12], Knee::FewCores));
        assert_eq!(verdict.kind, VerdictKind::NotEnoughToSay);
        assert!(verdict.measured.starts_with("MEASURED: not enough to say"), "{verdict:?}");
        assert_eq!(verdict.forecast, "");
    }

    #[test]
    fn bands_that_overlap_show_no_difference() {
        let a = forecast("a", 0.06, [0.03, 0.12], Knee::FewCores);
        let b = forecast("b", 0.2, [0.1, 0.4], Knee::FewCores);
        let comparison = between(&a, &b);
        assert_eq!(comparison.verdict.kind, VerdictKind::NoDifferenceShown);
        let said = &comparison.verdict.forecast;
        assert!(said.contains("no difference shown at 80 threads"), "{said}");
        assert!(!said.contains("more"), "it ranks them: {said}");
    }

    #[test]
    fn bands_apart_differ() {
        let a = forecast("a", 0.06, [0.03, 0.12], Knee::FewCores);
        let b = forecast("b", 0.9, [0.45, 1.0], Knee::NoneBelow { threads: 80 });
        let said = between(&a, &b).verdict;
        assert_eq!(said.kind, VerdictKind::Differs);
        assert!(said.forecast.contains("b keeps more of its own per-thread speed"), "{said:?}");
        assert!(said.forecast.contains("a keeps 6% (3-12%), no knee found for b"), "{said:?}");
        assert!(said.measured.contains("9.89 times per microsecond"), "{said:?}");
    }

    #[test]
    fn with_one_of_them_silent_there_is_not_enough_to_say() {
        let mut a = forecast("a", 0.06, [0.03, 0.12], Knee::FewCores);
        a.verdict.kind = VerdictKind::NotEnoughToSay;
        let b = forecast("b", 0.9, [0.45, 1.0], Knee::NoneBelow { threads: 80 });
        let verdict = between(&a, &b).verdict;
        assert_eq!(verdict.kind, VerdictKind::NotEnoughToSay);
        assert_eq!(verdict.measured, "MEASURED: not enough to say: too little of a.");
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(
            ["0", "18.5", "999", "1,979", "22,500.3"],
            [
                thousands(0.0),
                thousands(18.5),
                thousands(999.0),
                thousands(1_979.0),
                thousands(22_500.3)
            ]
        );
    }
}
