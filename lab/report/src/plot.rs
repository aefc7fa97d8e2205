//! Plots as SVG text: [`LinePlot`], [`BarPlot`], [`Icicle`], each drawn into
//! a [`Drawing`].
//!
//! Nothing here knows where figures come from. The same input gives the same bytes. Colours are
//! custom properties of CSS, so that the page decides between light and dark.

mod bars;
mod icicle;
mod lines;
pub(crate) mod palette;
mod scale;
mod svg;

pub(crate) use bars::{Bar, BarPlot, Floor, Row, Segment};
pub(crate) use icicle::{Icicle, Path, Step};
pub(crate) use lines::{Diagonal, LinePlot, Moment, Point, Reading, Series, Switch, Ticks};
pub(crate) use scale::Scale;
pub(crate) use svg::escape;

/// A plot, ready for a page.
pub(crate) struct Drawing {
    /// At least one; the first is shown until the reader asks for another.
    pub(crate) views: Vec<View>,
    /// The legend, by index of the series; empty if there is nothing to tell apart.
    pub(crate) keys: Vec<Key>,
    /// What the page's script reads, as JSON.
    pub(crate) data: serde_json::Value,
    /// The figures behind the picture.
    pub(crate) csv: String,
}

/// One way to draw the same figures.
pub(crate) struct View {
    /// The scale: `linear` or `log`.
    pub(crate) name: &'static str,
    /// A whole `svg` element.
    pub(crate) svg: String,
}

/// One entry of a legend.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    /// Not yet escaped.
    pub(crate) label: String,
    /// An index into [`palette::COLORS`], taken round.
    pub(crate) color: usize,
}

/// Width of every plot in user units; its font is about 12 of them.
pub(crate) const WIDTH: f64 = 560.0;

/// A field of CSV, quoted if it must be.
fn csv_field(text: &str) -> String {
    // A spreadsheet takes a cell that begins so for a formula, some of them after blanks too.
    let text = match text.trim_start().chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{text}"),
        _ => text.to_owned(),
    };
    // One line per row, whatever a name holds: the page's script counts them.
    let text = text.replace(['\n', '\r'], " ");
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

/// Six significant digits: enough to copy, and the file stays small.
fn neat(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_a_comma_a_quote_or_a_formula_stays_one_cell_of_text() {
        assert_eq!(csv_field("openssl@3.0"), "openssl@3.0");
        assert_eq!(csv_field("a, \"b\""), "\"a, \"\"b\"\"\"");
        assert_eq!(csv_field("=1+1"), "'=1+1");
        assert_eq!(csv_field("\r=1+1"), "' =1+1");
        assert_eq!(csv_field("\t@SUM(1)"), "'\t@SUM(1)");
    }

    #[test]
    fn six_digits_are_kept() {
        assert!((neat(1_234_567.89) - 1_234_570.0).abs() < f64::EPSILON);
        assert!((neat(0.0) - 0.0).abs() < f64::EPSILON);
    }
}
