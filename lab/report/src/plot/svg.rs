//! SVG text, element by element: [`Svg`].

use std::fmt::Write;

/// An `svg` element that grows.
pub(crate) struct Svg {
    text: String,
}

/// Where a text stands to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// The text ends there.
    End,
    /// The text is centred there.
    Middle,
    /// The text begins there.
    Start,
}

impl Svg {
    /// A picture of `width` x `height` user units, scaled by the page; `name` is what it shows.
    pub(crate) fn new(width: f64, height: f64, name: &str) -> Self {
        let (width, height, name) = (px(width), px(height), escape(name));
        let text = format!(
            "<svg class=\"view\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{name}\" preserveAspectRatio=\"xMidYMid meet\"><title>{name}</title>"
        );
        Self { text }
    }

    pub(crate) fn open(&mut self, class: &str, series: Option<usize>) {
        let _ = match series {
            Some(series) => write!(self.text, "<g class=\"{class}\" data-s=\"{series}\">"),
            None => write!(self.text, "<g class=\"{class}\">"),
        };
    }

    pub(crate) fn close(&mut self) {
        self.text.push_str("</g>");
    }

    pub(crate) fn line(&mut self, class: &str, from: [f64; 2], to: [f64; 2]) {
        let [x1, y1] = from.map(px);
        let [x2, y2] = to.map(px);
        let _ = write!(
            self.text,
            "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>"
        );
    }

    /// A rectangle, with what it shows for readers without a script.
    pub(crate) fn rect(&mut self, class: &str, at: [f64; 2], size: [f64; 2], title: &str) {
        let ([x, y], [width, height]) = (at.map(px), size.map(px));
        let _ = write!(
            self.text,
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\""
        );
        let _ = match title {
            "" => write!(self.text, "/>"),
            _ => write!(self.text, "><title>{}</title></rect>", escape(title)),
        };
    }

    pub(crate) fn path(&mut self, class: &str, path: &str) {
        let _ = write!(self.text, "<path class=\"{class}\" d=\"{path}\"/>");
    }

    pub(crate) fn text(&mut self, class: &str, at: [f64; 2], anchor: Anchor, text: &str) {
        let [x, y] = at.map(px);
        let anchor = match anchor {
            Anchor::End => " text-anchor=\"end\"",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::Start => "",
        };
        let text = escape(text);
        let _ =
            write!(self.text, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\"{anchor}>{text}</text>");
    }

    /// A sign for a measured point; its shape goes with the colour, so that either suffices.
    pub(crate) fn sign(&mut self, shape: usize, [x, y]: [f64; 2], hollow: bool) {
        let place = |dx: f64, dy: f64| format!("{} {}", px(x + dx), px(y + dy));
        let path = match shape % 4 {
            0 => format!("M{} a4 4 0 1 0 8 0 a4 4 0 1 0 -8 0Z", place(-4.0, 0.0)),
            1 => format!("M{} h7 v7 h-7Z", place(-3.5, -3.5)),
            2 => format!("M{} l5 5 l-5 5 l-5 -5Z", place(0.0, -5.0)),
            _ => format!("M{} l5 8.5 h-10Z", place(0.0, -5.0)),
        };
        self.path(if hollow { "sign hollow" } else { "sign" }, &path);
    }

    /// The whole element.
    pub(crate) fn finish(mut self) -> String {
        self.text.push_str("</svg>");
        self.text
    }
}

/// A length with at most one decimal.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.into() }
}

/// Any text as HTML or XML text or attribute. Characters that XML forbids, and those that turn the
/// direction of writing, become a sign that something was there.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(c),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push('\u{fffd}');
            }
            _ if c.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element_or_attribute() {
        let hostile = "</title><script>alert('1')</script>\" onload=\"x\u{0}\u{202e}";
        let svg = Svg::new(10.0, 10.0, hostile).finish();
        assert!(!svg.contains("<script"), "{svg}");
        assert_eq!(svg.matches('"').count() % 2, 0);
        assert!(svg.contains("&quot; onload=&quot;x\u{fffd}\u{fffd}"), "{svg}");
    }

    #[test]
    fn lengths_are_short() {
        assert_eq!([px(1.0), px(-0.01), px(12.345)], ["1", "0", "12.3"]);
    }
}
