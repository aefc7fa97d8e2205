//! Percentile spectra: times spread out towards the slowest.

use sealane_lab_model::document::Histogram;

use crate::plot::{LinePlot, Point, Reading, Scale, Series, Switch, Ticks};

use super::threads::whole;

/// A percentile spectrum of anything that takes microseconds.
pub(crate) fn spectrum(of: &str, series: Vec<Series>) -> LinePlot {
    LinePlot {
        name: format!("Percentiles: {of}"),
        x: "share of operations that took less".into(),
        y: of.to_owned(),
        x_scale: Scale::Log,
        y_scale: Scale::Log,
        switch: Switch::Y,
        ticks: Ticks::Percentiles,
        reading: Reading::Nearest,
        series,
        processors: Vec::new(),
        diagonal: None,
        moments: Vec::new(),
    }
}

/// The points of a spectrum: `1 / (1 - p)` against microseconds, as far as values reach.
pub(crate) fn tail(histogram: &Histogram) -> Vec<Point> {
    let most = whole(histogram.count).max(1.0);
    let inside = histogram.percentiles.iter().filter(|[percentile, _]| *percentile < 100.0);
    inside
        .map(|[percentile, ns]| Point {
            x: 100.0 / (100.0 - percentile),
            y: ns / 1e3,
            range: None,
            hint: false,
        })
        .filter(|point| point.x <= most && point.y > 0.0)
        .collect()
}
