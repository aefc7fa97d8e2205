//! Lines over a common axis: rates by threads, distributions, percentile spectra. [`LinePlot`]

use std::fmt::Write;

use sealane_lab_model::number::number;
use serde_json::{Value, json};

use super::{
    Drawing, Key, View, WIDTH, csv_field, neat,
    palette::{class, dashes},
    scale::{Axis, Scale},
    svg::{Anchor, Svg, px},
};

/// Some lines; each ends where its measurement ended.
#[derive(Clone, Debug)]
pub(crate) struct LinePlot {
    /// What it shows, for those who do not see it.
    pub(crate) name: String,
    /// What the horizontal axis counts, with its unit.
    pub(crate) x: String,
    /// What the vertical axis counts, with its unit.
    pub(crate) y: String,
    pub(crate) x_scale: Scale,
    pub(crate) y_scale: Scale,
    /// The axis that has another view with the other scale.
    pub(crate) switch: Switch,
    pub(crate) ticks: Ticks,
    pub(crate) reading: Reading,
    pub(crate) series: Vec<Series>,
    /// Where the processors of a machine end; beyond the last, the ground is shaded.
    pub(crate) processors: Vec<f64>,
    pub(crate) diagonal: Option<Diagonal>,
    pub(crate) moments: Vec<Moment>,
}

/// One series.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) label: String,
    pub(crate) color: usize,
    /// Ascending in `x`.
    pub(crate) points: Vec<Point>,
    /// A level that it would keep if nothing were shared.
    pub(crate) ideal: Option<f64>,
}

/// One measured point, with the least and greatest of its rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) range: Option<[f64; 2]>,
    /// Whether the point was disturbed: drawn hollow.
    pub(crate) hint: bool,
}

/// `y = x / base` up to `bend`, then level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Diagonal {
    pub(crate) base: f64,
    pub(crate) bend: f64,
}

/// A place on the horizontal axis at which something happened.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) at: f64,
    pub(crate) label: String,
}

/// Which axis has both scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    Neither,
    Y,
}

/// Where the horizontal axis is labelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ticks {
    /// At each measured value: these are counts.
    Measured,
    /// The values are `1 / (1 - p)`: at 50%, 90%, 99% ...
    Percentiles,
    /// At round values.
    Round,
}

/// How a value is read off a line at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// At measured points alone; they are marked.
    Exact,
    /// From the point next to it.
    Nearest,
}

impl LinePlot {
    /// All views, with the figures.
    pub(crate) fn draw(&self) -> Drawing {
        let mut plots = vec![self.clone()];
        let mut other = self.clone();
        match self.switch {
            Switch::Neither => {}
            Switch::Y => other.y_scale = self.y_scale.other(),
        }
        if self.switch != Switch::Neither {
            plots.push(other);
        }
        let views = plots.iter().map(|p| View { name: p.y_scale.name(), svg: p.svg() }).collect();
        let keys = self.series.iter().map(Series::key);
        let scales: Vec<Value> = plots.iter().map(Self::scales).collect();
        Drawing { views, keys: keys.collect(), data: self.data(&scales), csv: self.csv() }
    }

    fn axes(&self) -> (Axis, Axis) {
        let xs: Vec<f64> = self.points().map(|p| p.x).collect();
        let mut ys: Vec<f64> = self
            .points()
            .flat_map(|p| [p.y].into_iter().chain(p.range.into_iter().flatten()))
            .collect();
        ys.extend(self.series.iter().filter_map(|line| line.ideal));
        let (start, end) = (LEFT, WIDTH - RIGHT);
        let x = if self.ticks == Ticks::Measured {
            let least = xs.iter().copied().fold(f64::INFINITY, f64::min).min(1.0);
            let most = xs.iter().copied().fold(1.0, f64::max);
            let room = ((most - least) * 0.05).max(0.25);
            let (min, max) = (least - room, most + room);
            Axis { scale: Scale::Linear, min, max, start, end }
        } else {
            Axis::around(self.x_scale, &xs, start, end)
        };
        if let Some(Diagonal { base, bend }) = self.diagonal {
            let most = xs.iter().copied().fold(base, f64::max);
            ys.push(most.min(bend) / base);
        }
        let y = Axis::around(self.y_scale, &ys, HEIGHT - BOTTOM, TOP);
        (x, y)
    }

    fn points(&self) -> impl Iterator<Item = &Point> {
        self.series.iter().flat_map(|line| &line.points)
    }

    /// The plot as one `svg` element.
    fn svg(&self) -> String {
        let (x, y) = self.axes();
        let mut svg = Svg::new(WIDTH, HEIGHT, &self.name);
        self.draw_ground(&mut svg, &x, &y);
        if let Some(Diagonal { base, bend }) = self.diagonal {
            let most = self.points().map(|p| p.x).fold(base, f64::max);
            let top = most.min(bend);
            let mut path = format!("M{} {}", px(x.at(base)), px(y.at(1.0)));
            let _ = write!(path, "L{} {}", px(x.at(top)), px(y.at(top / base)));
            if most > bend {
                let _ = write!(path, "H{}", px(x.at(most)));
            }
            svg.path("ideal neutral", &path);
        }
        for (index, line) in self.series.iter().enumerate() {
            self.draw_line(&mut svg, index, line, &x, &y);
        }
        svg.line("cross", [0.0, TOP], [0.0, HEIGHT - BOTTOM]);
        svg.finish()
    }

    fn draw_ground(&self, svg: &mut Svg, x: &Axis, y: &Axis) {
        let floor = HEIGHT - BOTTOM;
        svg.open("ground", None);
        let inside: Vec<f64> =
            self.processors.iter().copied().filter(|n| *n > x.min && *n < x.max).collect();
        if let Some(last) = inside.iter().copied().reduce(f64::max) {
            let from = x.at(last);
            svg.rect("shade", [from, TOP], [x.end - from, floor - TOP], "");
        }
        for (value, label) in y.ticks() {
            let at = y.at(value);
            svg.line("grid", [x.start, at], [x.end, at]);
            svg.text("tick", [x.start - 6.0, at + 4.0], Anchor::End, &label);
        }
        for (value, label) in self.x_ticks(x) {
            let at = x.at(value);
            svg.line("notch", [at, floor], [at, floor + 4.0]);
            svg.text("tick", [at, floor + 18.0], Anchor::Middle, &label);
        }
        svg.line("axis", [x.start, floor], [x.end, floor]);
        svg.text("label", [6.0, 15.0], Anchor::Start, &self.y);
        svg.text("label", [x.end, HEIGHT - 8.0], Anchor::End, &self.x);
        for processors in inside {
            let label = format!("{} processors", number(processors));
            upright(svg, "processors", x, processors, floor - 6.0, &label);
        }
        let mut written = Vec::new();
        for Moment { at, label } in &self.moments {
            let row = free_row(&mut written, label_span(x, *at, label));
            upright(svg, "level", x, *at, TOP + 12.0 + row as f64 * LABEL_ROW, label);
        }
        svg.close();
    }

    fn draw_line(&self, svg: &mut Svg, index: usize, line: &Series, x: &Axis, y: &Axis) {
        svg.open(&format!("series {}{}", class(line.color), dashes(line.color)), Some(index));
        let place = |p: &Point| [x.at(p.x), y.at(p.y)];
        if line.points.len() > 1 && line.points.iter().all(|p| p.range.is_some()) {
            svg.path("band", &band(&line.points, x, y));
        }
        if let (Some(level), [first, .., last]) = (line.ideal, &line.points[..]) {
            let level = y.at(level);
            svg.line("ideal", [x.at(first.x), level], [x.at(last.x), level]);
        }
        let mut path = String::new();
        for (at, point) in line.points.iter().enumerate() {
            let [across, down] = place(point).map(px);
            let command = if at == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{across} {down}");
        }
        svg.path("line", &path);
        if self.reading == Reading::Exact {
            for point in &line.points {
                let [across, down] = place(point);
                if let (Some([low, high]), 1) = (point.range, line.points.len()) {
                    svg.line("whisker", [across, y.at(low)], [across, y.at(high)]);
                }
                svg.sign(line.color, [across, down], point.hint);
            }
        }
        svg.close();
    }

    fn x_ticks(&self, x: &Axis) -> Vec<(f64, String)> {
        match self.ticks {
            Ticks::Measured => {
                let mut values: Vec<f64> = self.points().map(|p| p.x).collect();
                values.sort_by(f64::total_cmp);
                values.dedup();
                let every = values.len().div_ceil(MEASURED_TICKS_MAX);
                let kept = values.into_iter().step_by(every.max(1));
                kept.map(|value| (value, number(value))).collect()
            }
            Ticks::Percentiles => {
                let inside = PERCENTILES.iter().filter(|(p, _)| 1.0 / (1.0 - p) <= x.max);
                inside.map(|(p, label)| (1.0 / (1.0 - p), (*label).to_owned())).collect()
            }
            Ticks::Round => x.ticks(),
        }
    }

    fn scales(&self) -> Value {
        let (x, y) = self.axes();
        let axis = |axis: Axis| {
            let log = u8::from(axis.scale == Scale::Log);
            json!([log, neat(axis.min), neat(axis.max), axis.start, axis.end])
        };
        json!({ "x": axis(x), "y": axis(y) })
    }

    fn data(&self, scales: &[Value]) -> Value {
        // The points themselves are read from the CSV: they need not be in the page twice.
        let series = self
            .series
            .iter()
            .map(|line| json!({ "n": line.label, "k": class(line.color), "c": line.points.len() }));
        let series: Vec<Value> = series.collect();
        let reading = match self.reading {
            Reading::Exact => "exact",
            Reading::Nearest => "nearest",
        };
        let percent = self.ticks == Ticks::Percentiles;
        json!({
            "kind": "lines", "reading": reading, "percent": percent, "x": self.x, "y": self.y,
            "views": scales, "series": series,
        })
    }

    fn csv(&self) -> String {
        let mut csv = String::from("series,");
        let _ = writeln!(csv, "{},{},least,most", csv_field(&self.x), csv_field(&self.y));
        for line in &self.series {
            for Point { x, y, range, .. } in &line.points {
                let name = csv_field(&line.label);
                let _ = write!(csv, "{name},{},{}", neat(*x), neat(*y));
                let _ = match range {
                    Some([low, high]) => writeln!(csv, ",{},{}", neat(*low), neat(*high)),
                    None => writeln!(csv, ",,"),
                };
            }
        }
        csv
    }
}

impl Series {
    fn key(&self) -> Key {
        Key { label: self.label.clone(), color: self.color }
    }
}

/// The outline of what the rounds spanned, there and back.
fn band(points: &[Point], x: &Axis, y: &Axis) -> String {
    let mut path = String::new();
    let high = points.iter().map(|p| (p, 1));
    for (at, (point, side)) in high.chain(points.iter().rev().map(|p| (p, 0))).enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        let value = point.range.map_or(point.y, |range| range[side]);
        let _ = write!(path, "{command}{} {}", px(x.at(point.x)), px(y.at(value)));
    }
    path.push('Z');
    path
}

/// A line from top to bottom at `value`, with its label at the height `label_at`, towards the
/// middle.
/// The first row of labels in which nothing stands where this one does, which stands there then.
fn free_row(written: &mut Vec<(usize, [f64; 2])>, span: [f64; 2]) -> usize {
    let meets = |row: usize, [from, to]: [f64; 2]| {
        written.iter().any(|(other, [begin, end])| *other == row && from < *end && *begin < to)
    };
    let row = (0..=written.len()).find(|row| !meets(*row, span)).unwrap_or_default();
    written.push((row, span));
    row
}

/// From where to where the label of an upright line reaches.
fn label_span(x: &Axis, value: f64, label: &str) -> [f64; 2] {
    let wide = label.chars().count() as f64 * LABEL_LETTER;
    let at = x.at(value);
    match at > f64::midpoint(x.start, x.end) {
        true => [at - 5.0 - wide, at],
        false => [at, at + 5.0 + wide],
    }
}

fn upright(svg: &mut Svg, class: &str, x: &Axis, value: f64, label_at: f64, label: &str) {
    let at = x.at(value);
    svg.line(class, [at, TOP], [at, HEIGHT - BOTTOM]);
    let (at, anchor) = if at > f64::midpoint(x.start, x.end) {
        (at - 5.0, Anchor::End)
    } else {
        (at + 5.0, Anchor::Start)
    };
    svg.text("remark", [at, label_at], anchor, label);
}

const HEIGHT: f64 = 330.0;
/// How wide a letter of a label is taken for.
const LABEL_LETTER: f64 = 6.5;
/// From one row of labels to the next.
const LABEL_ROW: f64 = 14.0;
const LEFT: f64 = 66.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 52.0;
const MEASURED_TICKS_MAX: usize = 12;
const PERCENTILES: [(f64, &str); 7] = [
    (0.0, "0%"),
    (0.5, "50%"),
    (0.9, "90%"),
    (0.99, "99%"),
    (0.999, "99.9%"),
    (0.9999, "99.99%"),
    (0.99999, "99.999%"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> LinePlot {
        let point = |x, y: f64| {
            let hint = x > 2.5;
            Point { x, y, range: Some([y - 10.0, y + 20.0]), hint }
        };
        let points = vec![point(1.0, 100.0), point(2.0, 90.0), point(3.0, 55.0)];
        LinePlot {
            name: "Rate".into(),
            x: "threads".into(),
            y: "per second".into(),
            x_scale: Scale::Linear,
            y_scale: Scale::Linear,
            switch: Switch::Y,
            ticks: Ticks::Measured,
            reading: Reading::Exact,
            series: vec![Series { label: "a, b".into(), color: 9, points, ideal: Some(100.0) }],
            processors: vec![2.0],
            diagonal: None,
            moments: Vec::new(),
        }
    }

    #[test]
    fn a_line_ends_where_its_points_end() {
        let drawing = plot().draw();
        let svg = &drawing.views[0].svg;
        assert!(svg.contains("class=\"series k1 again\" data-s=\"0\""), "{svg}");
        assert_eq!(svg.matches("class=\"sign\"").count(), 2);
        assert_eq!(svg.matches("class=\"sign hollow\"").count(), 1, "the disturbed one");
        let line = svg.split("class=\"line\" d=\"").nth(1).unwrap().split('"').next().unwrap();
        assert_eq!(line.matches(['M', 'L']).count(), 3, "one corner per point: {line}");
        assert!(svg.contains(">2 processors<") && svg.contains("class=\"shade\""), "{svg}");
        assert_eq!(drawing.views.iter().map(|v| v.name).collect::<Vec<_>>(), ["linear", "log"]);
    }

    #[test]
    fn more_processors_than_threads_shade_nothing() {
        let svg = LinePlot { processors: vec![64.0], ..plot() }.draw().views.remove(0).svg;
        assert!(!svg.contains("shade") && !svg.contains("processors"), "{svg}");
    }

    #[test]
    fn a_moment_stands_at_its_place_with_its_name() {
        let moments = vec![Moment { at: 2.0, label: "deployment".into() }];
        let svg = LinePlot { moments, processors: vec![], ..plot() }.draw().views.remove(0).svg;
        // In the middle of 1 to 3.
        let middle = px(f64::midpoint(LEFT, WIDTH - RIGHT));
        let line = svg.split("class=\"level\"").nth(1).unwrap().split("/>").next().unwrap();
        assert!(line.contains(&format!("x1=\"{middle}\"")), "{line}, {middle}");
        assert!(svg.contains(">deployment<"), "{svg}");
    }

    #[test]
    fn labels_of_moments_that_are_near_stand_below_each_other() {
        let moment = |at, label: &str| Moment { at, label: label.into() };
        let moments =
            vec![moment(1.1, "names imported"), moment(1.2, "store away"), moment(2.9, "over")];
        let svg = LinePlot { moments, processors: vec![], ..plot() }.draw().views.remove(0).svg;
        let at = |label: &str| {
            let before = svg.split(&format!(">{label}<")).next().unwrap();
            before.rsplit(" y=\"").next().unwrap().split('"').next().unwrap().to_owned()
        };
        let first = at("names imported");
        assert_ne!(at("store away"), first);
        assert_eq!(at("over"), first, "there is room");
    }

    #[test]
    fn the_figures_can_be_copied() {
        assert_eq!(
            plot().draw().csv,
            "series,threads,per second,least,most\n\"a, b\",1,100,90,120\n\"a, b\",2,90,80,110\n\
             \"a, b\",3,55,45,75\n"
        );
    }
}
