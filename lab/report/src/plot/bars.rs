//! Bars that lie, each under its name: amounts beside or on top of each other. [`BarPlot`]

use std::fmt::Write;

use sealane_lab_model::number::number;
use serde_json::{Value, json};

use super::{
    Drawing, Key, View, WIDTH, csv_field, neat,
    palette::class,
    scale::{Axis, Scale},
    svg::{Anchor, Svg},
};

/// Rows of bars with one axis, which begins at 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct BarPlot {
    /// What it shows, for those who do not see it.
    pub(crate) name: String,
    /// What the bars count, with its unit.
    pub(crate) unit: String,
    /// What a row is divided into; one alone needs no legend.
    pub(crate) segments: Vec<Segment>,
    pub(crate) rows: Vec<Row>,
    /// Whether segments lie one behind the other, with their sum, or each on its own line.
    pub(crate) stacked: bool,
    pub(crate) floor: Option<Floor>,
}

/// One part of every row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) label: String,
    pub(crate) color: usize,
}

/// What one thing amounts to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub(crate) label: String,
    /// Said after the figure.
    pub(crate) remark: String,
    /// Said in place of the sum.
    pub(crate) sum: Option<String>,
    /// In place of the only segment's.
    pub(crate) color: Option<usize>,
    /// One per segment; none where there is no figure.
    pub(crate) bars: Vec<Option<Bar>>,
}

/// A figure, with the least and greatest of its rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bar {
    pub(crate) value: f64,
    pub(crate) range: Option<[f64; 2]>,
}

/// What no bar can go below, in two parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Floor {
    pub(crate) label: String,
    pub(crate) value: f64,
}

impl BarPlot {
    /// The picture, with the figures.
    pub(crate) fn draw(&self) -> Drawing {
        let keys = match &self.segments[..] {
            [_] => Vec::new(),
            many => {
                let key = |s: &Segment| Key { label: s.label.clone(), color: s.color };
                many.iter().map(key).collect()
            }
        };
        let views = vec![View { name: "linear", svg: self.svg() }];
        Drawing { views, keys, data: self.data(), csv: self.csv() }
    }

    /// Height in user units.
    pub(crate) fn height(&self) -> f64 {
        let rows: f64 = self.rows.iter().map(|row| self.row_height(row)).sum();
        self.top() + rows + BOTTOM
    }

    fn top(&self) -> f64 {
        if self.floor.is_some() { TOP_WITH_FLOOR } else { TOP }
    }

    fn row_height(&self, row: &Row) -> f64 {
        let lines = if self.stacked { 1 } else { row.bars.len().max(1) };
        NAME + f64::from(u16::try_from(lines).unwrap_or(1)) * THICK + GAP
    }

    fn axis(&self) -> Axis {
        let mut values = Vec::new();
        for row in &self.rows {
            let bars = row.bars.iter().flatten();
            if self.stacked {
                values.push(bars.map(|bar| bar.value).sum());
            } else {
                values.extend(
                    bars.map(|bar| bar.range.map_or(bar.value, |range| range[1].max(bar.value))),
                );
            }
        }
        values.extend(self.floor.as_ref().map(|floor| floor.value));
        let most = values.iter().copied().fold(0.0, f64::max);
        // The axis ends with the longest bar: what is beside it is for figures.
        let max = if most > 0.0 { most } else { 1.0 };
        Axis { scale: Scale::Linear, min: 0.0, max, start: LEFT, end: WIDTH - RIGHT }
    }

    fn svg(&self) -> String {
        let axis = self.axis();
        let height = self.height();
        let (top, floor) = (self.top(), height - BOTTOM);
        let mut svg = Svg::new(WIDTH, height, &self.name);
        svg.open("ground", None);
        for (value, label) in axis.ticks() {
            let at = axis.at(value);
            // The bars' own ends draw the line at 0; the names stand on it.
            if value > 0.0 {
                svg.line("grid", [at, top], [at, floor]);
            }
            svg.text("tick", [at.max(LEFT + 4.0), floor + 16.0], Anchor::Middle, &label);
        }
        svg.text("label", [WIDTH - 6.0, height - 6.0], Anchor::End, &self.unit);
        svg.close();
        let mut down = top;
        for row in &self.rows {
            self.draw_row(&mut svg, row, down, &axis);
            down += self.row_height(row);
        }
        if let Some(Floor { label, value }) = &self.floor {
            let at = axis.at(*value);
            svg.line("floor", [at, top - 6.0], [at, floor]);
            let label = format!("{label} {}", number(*value));
            let (at, anchor) = match at {
                _ if at > WIDTH * 0.6 => (at + 4.0, Anchor::End),
                _ => (at - 4.0, Anchor::Start),
            };
            svg.text("remark strong", [at.max(LEFT), top - 11.0], anchor, &label);
        }
        svg.finish()
    }

    fn draw_row(&self, svg: &mut Svg, row: &Row, top: f64, axis: &Axis) {
        svg.open("row", None);
        svg.text("name", [LEFT, top + 15.0], Anchor::Start, &row.label);
        let (mut across, mut down) = (LEFT, top + NAME);
        let mut sum = 0.0;
        for (index, bar) in row.bars.iter().enumerate() {
            let Some(segment) = self.segments.get(index) else { continue };
            let Some(bar) = bar else {
                if !self.stacked {
                    svg.text("value", [LEFT + 5.0, down + 11.0], Anchor::Start, "no figure");
                    down += THICK;
                }
                continue;
            };
            let color = row.color.filter(|_| self.segments.len() == 1).unwrap_or(segment.color);
            let length = axis.at(bar.value) - LEFT;
            let title =
                format!("{}: {} {} {}", row.label, segment.label, number(bar.value), self.unit);
            svg.open(&format!("series {}", class(color)), Some(index));
            if length > 0.0 {
                svg.rect("bar", [across, down], [length.max(HAIR), THICK - 3.0], &title);
            }
            if let Some([low, high]) = bar.range.filter(|[low, high]| !self.stacked && high > low) {
                let middle = down + (THICK - 3.0) / 2.0;
                svg.line("range", [axis.at(low), middle], [axis.at(high), middle]);
            }
            if !self.stacked {
                let end = bar.range.map_or(bar.value, |range| range[1].max(bar.value));
                self.draw_figure(svg, [axis.at(end), down], bar.value, &row.remark);
                down += THICK;
            }
            svg.close();
            if self.stacked {
                across += length;
            }
            sum += bar.value;
        }
        if self.stacked {
            let said = row.sum.clone().unwrap_or_else(|| number(sum));
            svg.text("value", [axis.at(sum) + 5.0, down + 11.0], Anchor::Start, &said);
        }
        svg.close();
    }

    fn draw_figure(&self, svg: &mut Svg, [across, down]: [f64; 2], value: f64, remark: &str) {
        let text = match remark {
            "" => number(value),
            _ => format!("{} {remark}", number(value)),
        };
        svg.text("value", [across + 5.0, down + 11.0], Anchor::Start, &text);
    }

    fn data(&self) -> Value {
        let mut down = self.top();
        let mut rows = Vec::new();
        for row in &self.rows {
            let bars: Vec<Value> = row
                .bars
                .iter()
                .map(|bar| match bar {
                    Some(Bar { value, range: Some([low, high]) }) => {
                        json!([neat(*value), neat(*low), neat(*high)])
                    }
                    Some(Bar { value, range: None }) => json!([neat(*value)]),
                    None => Value::Null,
                })
                .collect();
            let end = down + self.row_height(row);
            rows.push(json!({ "n": row.label, "from": down, "to": end, "v": bars }));
            down = end;
        }
        let segments: Vec<Value> =
            self.segments.iter().map(|s| json!({ "n": s.label, "k": class(s.color) })).collect();
        json!({
            "kind": "bars", "y": self.unit, "series": segments, "rows": rows,
            "floor": self.floor.as_ref().map(|f| json!([f.label, neat(f.value)])),
        })
    }

    fn csv(&self) -> String {
        let mut csv = String::from("name,part,");
        let _ = writeln!(csv, "{},least,most", csv_field(&self.unit));
        for row in &self.rows {
            for (segment, bar) in self.segments.iter().zip(&row.bars) {
                let Some(Bar { value, range }) = bar else { continue };
                let (name, part) = (csv_field(&row.label), csv_field(&segment.label));
                let _ = write!(csv, "{name},{part},{}", neat(*value));
                let _ = match range {
                    Some([low, high]) => writeln!(csv, ",{},{}", neat(*low), neat(*high)),
                    None => writeln!(csv, ",,"),
                };
            }
        }
        if let Some(Floor { label, value }) = &self.floor {
            let _ = writeln!(csv, "{},,{},,", csv_field(label), neat(*value));
        }
        csv
    }
}

const LEFT: f64 = 8.0;
/// Room for the figure beside the longest bar.
const RIGHT: f64 = 152.0;
const TOP: f64 = 6.0;
const TOP_WITH_FLOOR: f64 = 30.0;
const BOTTOM: f64 = 44.0;
const NAME: f64 = 21.0;
const THICK: f64 = 17.0;
const GAP: f64 = 9.0;
/// The least that can be seen.
const HAIR: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> BarPlot {
        let segment = |label: &str, color| Segment { label: label.into(), color };
        let bar = |value| Some(Bar { value, range: None });
        let row = |label: &str, bars| Row { label: label.into(), bars, ..Row::default() };
        BarPlot {
            name: "Writes".into(),
            unit: "writes per handshake".into(),
            segments: vec![segment("lock", 0), segment("global", 1)],
            rows: vec![row("big", vec![bar(30.0), bar(10.0)]), row("none", vec![bar(0.0), None])],
            stacked: true,
            floor: None,
        }
    }

    #[test]
    fn stacked_bars_follow_each_other_and_say_their_sum() {
        let svg = plot().svg();
        assert_eq!(svg.matches("class=\"bar\"").count(), 2, "nothing has no bar: {svg}");
        let axis = plot().axis();
        let second = format!("x=\"{}\"", super::super::svg::px(axis.at(30.0)));
        assert!(svg.contains(&second), "{second} in {svg}");
        assert!(svg.contains(">40</text>") && svg.contains(">0</text>"), "{svg}");
    }

    #[test]
    fn the_floor_is_drawn_even_beyond_every_bar() {
        let floor = Some(Floor { label: "floor".into(), value: 80.0 });
        let plot = BarPlot { floor, ..plot() };
        assert!(plot.svg().contains(">floor 80<"));
        assert!((plot.axis().max - 80.0).abs() < f64::EPSILON);
        assert!(plot.csv().ends_with("floor,,80,,\n"), "{}", plot.csv());
    }
}
