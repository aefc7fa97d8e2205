//! Ratios with their intervals around the line at which nothing differs. [`IntervalPlot`]

use std::fmt::Write;

use sealane_lab_model::number::number;
use serde_json::json;

use super::{
    Drawing, View, WIDTH, csv_field, neat,
    palette::class,
    scale::{Axis, Scale},
    svg::{Anchor, Svg},
};

/// One row per ratio, on a logarithmic axis on which 1 is in the middle.
#[derive(Clone, Debug, Default)]
pub(crate) struct IntervalPlot {
    /// What it shows, for those who do not see it.
    pub(crate) name: String,
    /// What the ratio is of.
    pub(crate) unit: String,
    pub(crate) rows: Vec<Interval>,
}

/// A ratio and how far it may be off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interval {
    pub(crate) label: String,
    pub(crate) color: usize,
    pub(crate) ratio: f64,
    pub(crate) interval: [f64; 2],
}

impl IntervalPlot {
    /// The picture, with the figures.
    pub(crate) fn draw(&self) -> Drawing {
        let views = vec![View { name: "log", svg: self.svg() }];
        let rows = self.rows.iter().enumerate().map(|(at, row)| {
            let from = row_top(at);
            let [low, high] = row.interval.map(neat);
            let value = [neat(row.ratio), low, high];
            json!({ "n": row.label, "from": from, "to": from + ROW, "v": [value] })
        });
        let rows: Vec<_> = rows.collect();
        let series = [json!({ "n": "ratio", "k": class(0) })];
        let data = json!({ "kind": "bars", "y": self.unit, "series": series, "rows": rows });
        let mut csv = format!("name,{},low,high\n", csv_field(&self.unit));
        for row in &self.rows {
            let [low, high] = row.interval.map(neat);
            let _ = writeln!(csv, "{},{},{low},{high}", csv_field(&row.label), neat(row.ratio));
        }
        Drawing { views, keys: Vec::new(), data, csv }
    }

    fn axis(&self) -> Axis {
        let values = self.rows.iter().flat_map(|row| [row.ratio, row.interval[0], row.interval[1]]);
        let usable = values.filter(|v| v.is_finite() && *v > 0.0);
        let far = usable.map(|v| v.max(1.0 / v)).fold(LEAST_SPAN, f64::max) * 1.05;
        Axis { scale: Scale::Log, min: 1.0 / far, max: far, start: LEFT, end: WIDTH - RIGHT }
    }

    fn svg(&self) -> String {
        let axis = self.axis();
        let floor = row_top(self.rows.len());
        let mut svg = Svg::new(WIDTH, floor + BOTTOM, &self.name);
        svg.open("ground", None);
        for value in TICKS.into_iter().filter(|v| *v > axis.min && *v < axis.max) {
            let at = axis.at(value);
            let class = if (value - 1.0).abs() < f64::EPSILON { "processors" } else { "grid" };
            svg.line(class, [at, TOP], [at, floor]);
        }
        for value in self.labels(&axis) {
            let label = format!("\u{d7}{}", number(value));
            svg.text("tick", [axis.at(value), floor + 16.0], Anchor::Middle, &label);
        }
        svg.text("label", [WIDTH - 6.0, floor + BOTTOM - 6.0], Anchor::End, &self.unit);
        svg.close();
        for (at, row) in self.rows.iter().enumerate() {
            let (top, [low, high]) = (row_top(at), row.interval);
            let middle = top + NAME + 9.0;
            svg.open(&format!("row series {}", class(row.color)), Some(at));
            svg.text("name", [LEFT, top + 15.0], Anchor::Start, &row.label);
            svg.line("whisker", [axis.at(low), middle], [axis.at(high), middle]);
            for end in [low, high] {
                svg.line("whisker", [axis.at(end), middle - 4.0], [axis.at(end), middle + 4.0]);
            }
            svg.sign(row.color, [axis.at(row.ratio), middle], false);
            let text = format!("\u{d7}{}", number(row.ratio));
            svg.text("value", [WIDTH - RIGHT + 8.0, middle + 4.0], Anchor::Start, &text);
            svg.close();
        }
        svg.finish()
    }

    /// Those ticks that have room for a label.
    fn labels(&self, axis: &Axis) -> Vec<f64> {
        let mut kept: Vec<f64> = vec![1.0];
        let inside = TICKS.into_iter().filter(|v| *v > axis.min && *v < axis.max);
        for value in inside {
            if kept.iter().all(|other| (axis.at(*other) - axis.at(value)).abs() > LABEL) {
                kept.push(value);
            }
        }
        kept
    }
}

fn row_top(at: usize) -> f64 {
    TOP + f64::from(u16::try_from(at).unwrap_or(u16::MAX)) * ROW
}

const LEFT: f64 = 12.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 6.0;
const BOTTOM: f64 = 44.0;
const ROW: f64 = 44.0;
const NAME: f64 = 20.0;
const LABEL: f64 = 44.0;
/// The axis reaches at least so far from 1, so that noise looks small.
const LEAST_SPAN: f64 = 1.25;
const TICKS: [f64; 20] = [
    0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0,
    20.0, 50.0,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_in_the_middle_however_far_the_ratios_are() {
        for ratio in [0.04, 0.98, 30.0] {
            let row =
                Interval { ratio, interval: [ratio * 0.9, ratio * 1.1], ..Interval::default() };
            let axis = IntervalPlot { rows: vec![row], ..IntervalPlot::default() }.axis();
            let middle = f64::midpoint(axis.start, axis.end);
            assert!((axis.at(1.0) - middle).abs() < 1e-6, "{ratio}");
            assert!(axis.at(ratio * 0.9) < axis.at(ratio * 1.1), "{ratio}");
        }
    }
}
