//! A fleet that was simulated: what its authority saw by the hour, all counts, and the checks.

use sealane_lab_model::{
    document::{Fleet, FleetHour, FleetMoment},
    number::number,
};

use crate::plot::{LinePlot, Moment, Point, Reading, Scale, Series, Switch, Ticks, escape};

use super::{
    frame::{Cell, Figure, Section, Tag, table},
    sources::Sources,
    spectrum::spectrum,
    strategies::checks_list,
};

/// The section, if a fleet was simulated.
pub(super) fn section(sources: &Sources) -> Option<Section> {
    let fleets: Vec<&Fleet> = fleets(sources).collect();
    let body: String = fleets.iter().map(|fleet| one(fleet)).collect();
    let lead = "Every machine runs the core of the agent, by a clock of its own; machines, store \
        and authority fail as the lines say. Nothing here was measured."
        .into();
    let title = "A fleet that renews its certificates, simulated";
    (!fleets.is_empty()).then_some(Section { id: "fleet", short: "Fleet", title, lead, body })
}

/// What was simulated and what came of it, for a page of nothing else.
pub(super) fn sentence(sources: &Sources) -> Option<String> {
    let Fleet { machines, names, days, checks, .. } = fleets(sources).next()?;
    let held = checks.iter().filter(|check| check.holds == Some(true)).count();
    let [machines, names] = [machines, names].map(|count| number(f64::from(*count)));
    Some(format!(
        "{machines} machines renew {names} certificates for {days} days: {held} of {} checks hold.",
        checks.len()
    ))
}

/// The plots of all fleets, under their titles.
pub(super) fn plots(sources: &Sources) -> Vec<(String, LinePlot)> {
    fleets(sources).flat_map(plots_of).collect()
}

fn fleets(sources: &Sources) -> impl Iterator<Item = &Fleet> {
    sources.runs.iter().filter_map(|source| source.run.fleet.as_ref())
}

fn one(fleet: &Fleet) -> String {
    let Fleet { machines, names, days, seed, figures, checks, .. } = fleet;
    let [machines, names] = [machines, names].map(|count| number(f64::from(*count)));
    let title = format!("{machines} machines, {names} names, {days} days, by the seed {seed}");
    let look = "The most in an hour, for each quarter of a day.";
    let figure = |(title, plot): &(String, LinePlot)| {
        Figure { title, tag: Tag::Counted, look, drawing: &plot.draw() }.html()
    };
    let pictures: String = plots_of(fleet).iter().map(figure).collect();
    let rows = figures
        .iter()
        .map(|figure| vec![Cell::Text(figure.name.clone()), Cell::Number(number(figure.value))]);
    let counts = table(&title, &["what", "#count"], &rows.collect::<Vec<_>>());
    format!(
        "<h3 class=\"group\">{}</h3><div class=\"grid\">{pictures}</div>{}{counts}",
        escape(&title),
        checks_list(checks)
    )
}

fn plots_of(fleet: &Fleet) -> Vec<(String, LinePlot)> {
    let orders: [Line; 2] = [("orders", |hour| hour.orders), ("issued", |hour| hour.issued)];
    let asks: [Line; 1] = [("questions", |hour| hour.asks)];
    vec![
        plot(fleet, "Orders in an hour", &orders),
        plot(fleet, "Questions for renewal information in an hour", &asks),
    ]
}

fn plot(fleet: &Fleet, title: &str, lines: &[Line]) -> (String, LinePlot) {
    let series = lines.iter().enumerate().map(|(color, (label, of))| {
        let most = fleet.hours.chunks(HOURS).map(|hours| hours.iter().map(of).max().unwrap_or(0));
        let points = most.enumerate().map(|(at, most)| Point {
            x: at as f64 * HOURS as f64 / 24.0,
            y: most.into(),
            ..Point::default()
        });
        Series { label: (*label).to_owned(), color, points: points.collect(), ..Series::default() }
    });
    let moment = |moment: &FleetMoment| Moment { at: moment.from_day, label: moment.name.clone() };
    let plot = LinePlot {
        name: title.to_owned(),
        x: "days from the beginning".into(),
        y: "in an hour".into(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        switch: Switch::Y,
        ticks: Ticks::Round,
        reading: Reading::Nearest,
        moments: fleet.moments.iter().map(moment).collect(),
        ..spectrum("", series.collect())
    };
    (title.to_owned(), plot)
}

/// A line's name, and what it counts of an hour.
type Line = (&'static str, fn(&FleetHour) -> u32);

/// Hours of a point: what a screen can tell apart in a hundred days.
const HOURS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_the_most_of_six_hours_and_every_moment_has_its_line() {
        let hour = |orders| FleetHour { orders, issued: orders, asks: 9 };
        let moment = |name: &str, from_day| FleetMoment {
            name: name.to_owned(),
            from_day,
            to_day: from_day,
        };
        let fleet = Fleet {
            hours: [1, 7, 2, 0, 0, 3, 5].map(hour).to_vec(),
            moments: vec![moment("store away", 0.1), moment("revocation", 0.2)],
            ..Fleet::default()
        };
        let [(_, orders), (_, asks)] = &plots_of(&fleet)[..] else { panic!() };
        let points: Vec<_> = orders.series[0].points.iter().map(|at| (at.x, at.y)).collect();
        assert_eq!(points, [(0.0, 7.0), (0.25, 5.0)]);
        assert_eq!(asks.series[0].points.len(), 2);
        let svg = &orders.draw().views[0].svg;
        assert!(svg.contains(">store away<") && svg.contains(">revocation<"), "{svg}");
    }
}
