//! The text format of Prometheus, version 0.0.4.

use std::fmt::{Display, Write};

/// Metrics as text. A family is begun with [`Exposition::family`] and lasts until the next one.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

impl Exposition {
    /// Begins a family: its samples must all follow here.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &'static str) -> Family<'_> {
        let kind = kind.name();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {name} ");
        escape(&mut self.text, help, false);
        let _ = writeln!(self.text, "\n# TYPE {name} {kind}");
        Family { name, text: &mut self.text }
    }

    /// All that has been written.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// What kind of number a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only ever grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts below bounds.
    Histogram,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric of one name.
#[derive(Debug)]
pub struct Family<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl Family<'_> {
    /// Adds a sample. Labels are pairs of a name and any value; the value is escaped.
    pub fn sample(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) -> &mut Self {
        self.suffixed("", labels, value)
    }

    /// Adds a sample whose name goes on with `suffix`, as those of histograms do.
    pub fn suffixed(
        &mut self,
        suffix: &str,
        labels: &[(&str, &dyn Display)],
        value: impl Display,
    ) -> &mut Self {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (position, (name, label)) in labels.iter().enumerate() {
            self.text.push(if position == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            escape(self.text, &label.to_string(), true);
            self.text.push('"');
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, " {value}");
        self
    }
}

/// Microseconds as the seconds that Prometheus wants, exactly.
pub struct Seconds(pub u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if rest == 0 {
            return write!(f, "{seconds}");
        }
        let fraction = format!("{rest:06}");
        write!(f, "{seconds}.{}", fraction.trim_end_matches('0'))
    }
}

fn escape(into: &mut String, text: &str, quoted: bool) {
    for c in text.chars() {
        match c {
            '\\' => into.push_str("\\\\"),
            '\n' => into.push_str("\\n"),
            '"' if quoted => into.push_str("\\\""),
            _ => into.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_written_as_prometheus_reads_it() {
        let mut exposition = Exposition::default();
        exposition
            .family("a_total", Kind::Counter, "With a \\ and\na \"line\".")
            .sample(&[("name", &"q\"b\\n\n"), ("lane", &1)], 2)
            .sample(&[], 3);
        assert_eq!(
            exposition.into_text(),
            "# HELP a_total With a \\\\ and\\na \"line\".\n# TYPE a_total counter\n\
             a_total{name=\"q\\\"b\\\\n\\n\",lane=\"1\"} 2\na_total 3\n"
        );
    }

    #[test]
    fn seconds_are_exact() {
        for (us, text) in
            [(0, "0"), (100, "0.0001"), (1, "0.000001"), (5_000_000, "5"), (9_000_201, "9.000201")]
        {
            assert_eq!(Seconds(us).to_string(), text);
        }
    }
}
