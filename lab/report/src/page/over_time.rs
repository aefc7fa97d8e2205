//! Two runs over time in one picture, with the moment at which something happened in both: median,
//! 95th and 99th percentile of each.

use sealane_lab_model::document::{OverTime, Second, Strategies, StrategyRow};

use crate::plot::{LinePlot, Moment, Point, Reading, Scale, Series, Switch, Ticks};

use super::{
    frame::{Figure, Tag},
    spectrum::spectrum,
    strategies::varied,
};

/// Figures of the page, one for each of [`plots`].
pub(crate) fn pictures(strategies: &Strategies) -> String {
    let figure = |(title, plot): &(String, LinePlot)| {
        Figure { title, tag: Tag::Measured, look: LOOK, drawing: &plot.draw() }.html()
    };
    plots(strategies).iter().map(figure).collect()
}

/// A plot for each variant in which there are such runs, under its title: of its first row and its
/// last, which are the fault and the remedy.
pub(crate) fn plots(strategies: &Strategies) -> Vec<(String, LinePlot)> {
    let mut plots = Vec::new();
    let all = strategies.rows.iter().filter(|row| row.over_time.is_some());
    let differs = |(name, value): &(&String, &String)| {
        all.clone().any(|row| row.variant.get(*name) != Some(*value))
    };
    let mut rows = all.clone().peekable();
    while let Some(first) = rows.next() {
        let mut last = None;
        while let Some(row) = rows.next_if(|row| row.variant == first.variant) {
            last = Some(row);
        }
        let runs: Vec<&StrategyRow> = [Some(first), last].into_iter().flatten().collect();
        let apart = first.variant.iter().filter(differs);
        let apart = varied(&apart.map(|(name, value)| (name.clone(), value.clone())).collect());
        let title = ["Round trips over time", &apart].into_iter().filter(|it| !it.is_empty());
        let title = title.collect::<Vec<_>>().join(": ");
        plots.push((title.clone(), plot(&title, &runs)));
    }
    plots
}

fn plot(title: &str, runs: &[&StrategyRow]) -> LinePlot {
    let mut series = Vec::new();
    for row in runs {
        let Some(OverTime { seconds, .. }) = &row.over_time else { continue };
        for (at, name) in PERCENTILES.into_iter().enumerate() {
            let color = series.len();
            let point = |(place, second): (usize, &Second)| {
                let y = [second.p50_ns, second.p95_ns, second.p99_ns][at] as f64 / 1e6;
                // A second in which nothing ended has no times.
                (second.count > 0).then(|| Point { x: place as f64 + 0.5, y, ..Point::default() })
            };
            let points = seconds.iter().enumerate().filter_map(point).collect();
            let label = format!("{}, {name}", row.strategy);
            series.push(Series { label, color, points, ..Series::default() });
        }
    }
    let happened = runs.iter().find_map(|row| row.over_time.as_ref());
    LinePlot {
        name: title.to_owned(),
        x: "seconds from the beginning".into(),
        y: "ms, by the second in which it ended".into(),
        x_scale: Scale::Linear,
        y_scale: Scale::Linear,
        switch: Switch::Y,
        ticks: Ticks::Round,
        reading: Reading::Nearest,
        moments: happened
            .map(|OverTime { event, moment_s, .. }| Moment { at: *moment_s, label: event.clone() })
            .into_iter()
            .collect(),
        ..spectrum("", series)
    }
}

/// What is drawn of each run.
const PERCENTILES: [&str; 3] = ["median", "95%", "99%"];
const LOOK: &str = "Both runs begin alike; at the line, each gets what it is called after. Lower \
    is better.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_runs_of_a_variant_stand_in_one_picture_with_their_moment() {
        let row = |strategy: &str, deployed: &str| {
            let second = |count| Second { count, p50_ns: 1, p95_ns: 2_000_000, p99_ns: 3_000_000 };
            let seconds = [5, 0, 7].map(second).to_vec();
            let event = "deployment".to_owned();
            StrategyRow {
                strategy: strategy.into(),
                variant: [("deployed".to_owned(), deployed.to_owned())].into(),
                over_time: Some(OverTime { event, moment_s: 1.5, seconds }),
                ..StrategyRow::default()
            }
        };
        let mut rows = ["central", "per-connection", "lane"].map(|name| row(name, "a")).to_vec();
        rows.push(StrategyRow { strategy: "lane".into(), ..StrategyRow::default() });
        rows.push(row("central", "b"));
        let html = pictures(&Strategies { rows: rows.clone(), ..Strategies::default() });
        assert_eq!(html.matches("<figure").count(), 2, "{html}");
        assert!(html.contains("over time: deployed a") && html.contains("over time: deployed b"));

        let drawing = plot("two", &[&rows[0], &rows[2]]).draw();
        let labels: Vec<_> = drawing.keys.iter().map(|key| key.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "central, median",
                "central, 95%",
                "central, 99%",
                "lane, median",
                "lane, 95%",
                "lane, 99%"
            ]
        );
        assert!(drawing.views[0].svg.contains(">deployment<"));
        // The second in which nothing ended has no point.
        let of_lane = |line: &&str| line.starts_with("\"lane, 99%\"");
        let lines: Vec<_> = drawing.csv.lines().filter(of_lane).collect();
        assert_eq!(lines, ["\"lane, 99%\",0.5,3,,", "\"lane, 99%\",2.5,3,,"]);
    }
}
