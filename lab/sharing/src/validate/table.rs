//! The text of a validation, for people: [`text`].

use std::fmt::Write as _;

use sealane_lab_model::{
    document::{Knee, Score, ValidatedCurve, ValidatedPoint, Validation},
    verdict::{TWICE, off},
};

use crate::validate::{
    published::{Published, Ratios},
    score,
};

/// The error table, what it comes to, and where the figures come from.
pub(super) fn text(validation: &Validation, published: &Published, ratios: &Ratios) -> String {
    let mut out =
        String::from("\nFORECAST / published share of its per-thread speed, by threads\n");
    head(&mut out, validation);
    for curve in &validation.curves {
        row(&mut out, curve);
    }
    let _ = writeln!(out);
    for curve in &validation.curves {
        let recorded = if curve.recorded.is_empty() { "nothing" } else { &curve.recorded };
        let _ =
            writeln!(out, "  {:36} published {}; recorded {recorded}", curve.name, curve.version);
    }
    sums(&mut out, validation);
    held_out(&mut out, validation);
    revisions(&mut out, &validation.revisions);
    changes(&mut out, validation, published);
    let _ = writeln!(
        out,
        "\npublished: {}\nclient beside server: {}\nknees below 14 threads are told as \"few\": \
         forecasts of them come too early",
        published.source(),
        ratios.source()
    );
    out
}

fn head(out: &mut String, validation: &Validation) {
    let whole = validation.curves.iter().find(|curve| !curve.points.is_empty());
    let threads = whole.map(|curve| &curve.points[..]).unwrap_or_default();
    let _ = write!(out, "  {:36}", "curve");
    for point in threads {
        let _ = write!(out, "  {:>9}", point.threads);
    }
    let last = threads.last().map_or(0, |point| point.threads);
    let _ = writeln!(out, "  {:>8}  {:>15}", format!("off at {last}"), "70% at");
}

fn row(out: &mut String, curve: &ValidatedCurve) {
    let name = if curve.fitted { format!("{} (FIT)", curve.name) } else { curve.name.clone() };
    let _ = write!(out, "  {name:36}");
    if let Some(failure) = &curve.failure {
        let _ = writeln!(out, "  no forecast: {failure}");
        return;
    }
    for point in &curve.points {
        let pair = format!("{}/{}", short(point.forecast), short(point.published));
        let _ = write!(out, "  {pair:>9}");
    }
    let last = curve.points.last().map(|point| (point.forecast, point.published));
    let error = last.map(|(is, was)| format!("x{:.2}", is / was)).unwrap_or_default();
    let miss = missed(curve);
    let knees = format!("{}/{}", knee(&curve.knee[0]), knee(&curve.knee[1]));
    let _ = writeln!(out, "  {error:>8}  {knees:>15}{miss}");
}

fn missed(curve: &ValidatedCurve) -> &'static str {
    let last = curve.points.last().map(|point| (point.forecast, point.published));
    if last.is_some_and(|pair| off(pair) > TWICE) { " MISS" } else { "" }
}

fn sums(out: &mut String, validation: &Validation) {
    let (score, profile) = (&validation.score, &validation.profile);
    let _ = writeln!(
        out,
        "\ns = {:.0} ns, profile {}: {}\nunfitted curves within x2 at the most threads: {} of {}; \
         the bar is {}: {}\nbaseline, every thread keeps all: {} of the same {} curves within x2, \
         {} of {} points\nunfitted points within x2: {} of {}; median x{:.2}, nine in ten within \
         x{:.2}\nrank correlation at the most threads (Spearman): {:.2}",
        profile.transfer_ns,
        profile.name,
        profile.source,
        score.within_twice,
        score.unfitted,
        score.within_twice_min,
        match score.passed {
            Some(true) => "PASSED",
            Some(false) => "FAILED",
            None => "cannot be judged, recordings are missing",
        },
        score.baseline[0],
        score.unfitted,
        score.baseline[1],
        score.points[0],
        score.points[1],
        score.points[0],
        score.median_factor,
        score.p90_factor,
        score.rank_correlation,
    );
    // Of curves that stay high, x2 says little.
    let falling: Vec<ValidatedCurve> =
        validation.curves.iter().filter(|curve| is_falling(curve)).cloned().collect();
    let Score {
        unfitted, within_twice, points, median_factor, p90_factor, rank_correlation, ..
    } = score::score(&falling);
    let _ = writeln!(
        out,
        "of the {unfitted} unfitted curves that fall below a half: {within_twice} within x2 at the \
         most threads, {} of {} points, median x{median_factor:.2}, nine in ten within \
         x{p90_factor:.2}, rank correlation {rank_correlation:.2}",
        points[1], points[0],
    );
}

/// Curves that the model was never revised against, and their tally.
fn held_out(out: &mut String, validation: &Validation) {
    let Validation { held_out, held_out_score: score, .. } = validation;
    let Some(first) = held_out.first() else { return };
    let _ = writeln!(out, "\nHELD OUT: FORECAST / published share, by threads\n");
    for curve in held_out {
        let _ = write!(out, "  {:36}", curve.name);
        for ValidatedPoint { threads, forecast, published } in &curve.points {
            let pair = format!("{}/{}", short(*forecast), short(*published));
            let _ = write!(out, "  {threads}: {pair:>9}");
        }
        let failure = curve.failure.as_ref().map(|reason| format!("  no forecast: {reason}"));
        let _ = writeln!(out, "{}{}", failure.unwrap_or_default(), missed(curve));
    }
    let _ = writeln!(
        out,
        "\nheld out, never revised against: {} of {} curves within x2, {} of {} points\n\
         baseline of what is held out: {} of {} curves within x2, {} of {} points\n{}",
        score.within_twice,
        score.unfitted,
        score.points[1],
        score.points[0],
        score.baseline[0],
        score.unfitted,
        score.baseline[1],
        score.points[0],
        first.source
    );
}

/// What was changed while looking at the curves that forecasts are judged by.
fn revisions(out: &mut String, revisions: &[String]) {
    let _ = writeln!(
        out,
        "\nrevised {} times while looking at the curves that are judged, not at those held out:",
        revisions.len()
    );
    for (number, revision) in (1..).zip(revisions) {
        let _ = writeln!(out, "  {number}. {revision}");
    }
    let _ = writeln!(out);
}

/// Unfitted, and published with less than a half at the most threads.
fn is_falling(curve: &ValidatedCurve) -> bool {
    !curve.fitted && curve.points.last().is_some_and(|point| point.published < 0.5)
}

/// What changes bring at the most threads: the rate after it over the one before, each from its own
/// first published point.
fn changes(out: &mut String, validation: &Validation, published: &Published) {
    for (after, before) in published.changes() {
        let ends = [after, before].map(|of| {
            let validated = validation.curves.iter().find(|curve| curve.name == of.name)?;
            Some((*validated.points.last()?, of.first()?.1?))
        });
        let [Some((after_end, after_ns)), Some((before_end, before_ns))] = ends else { continue };
        let rates = before_ns / after_ns;
        let _ = writeln!(
            out,
            "{} over {} at {} threads: FORECAST x{:.2}, published x{:.2}",
            after.name,
            before.name,
            after_end.threads,
            rates * after_end.forecast / before_end.forecast,
            rates * after_end.published / before_end.published
        );
    }
}

/// `.92`, `1.0`.
fn short(share: f64) -> String {
    let decimals = if share < 0.0995 { 3 } else { 2 };
    let text = format!("{share:.decimals$}");
    text.strip_prefix('0').map_or_else(|| text.clone(), str::to_owned)
}

fn knee(knee: &Knee) -> String {
    match knee {
        Knee::At { threads } => threads.to_string(),
        Knee::FewCores => "few".into(),
        Knee::NoneBelow { .. } => "none".into(),
        Knee::Unknown => "?".into(),
    }
}
