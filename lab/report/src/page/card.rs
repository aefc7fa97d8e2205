//! One number to quote, with what stands behind it: [`Card`]

use crate::plot::{escape, palette};

use super::frame::Tag;

/// One of the first screen's cards.
pub(crate) struct Card {
    pub(crate) label: String,
    pub(crate) color: usize,
    /// What is quoted.
    pub(crate) figure: String,
    /// What the figure counts.
    pub(crate) words: String,
    pub(crate) tag: Tag,
    /// Smaller figures: value, what it counts.
    pub(crate) facts: Vec<(String, String)>,
    /// What all of it was measured in.
    pub(crate) context: String,
}

impl Card {
    pub(crate) fn html(&self) -> String {
        let Self { label, color, figure, words, tag, facts, context } = self;
        let facts: String = facts
            .iter()
            .map(|(value, what)| {
                format!("<div><dt>{}</dt><dd>{}</dd></div>", escape(what), escape(value))
            })
            .collect();
        let size = if figure.chars().count() > FIGURE_CHARS { "big long" } else { "big" };
        format!(
            "<article class=\"card stack\"><h3><span class=\"swatch {}\"></span>{}</h3>\
             <p class=\"{size}\">{}</p><p class=\"of\">{} {}</p><p class=\"context\">{}</p>\
             <dl>{facts}</dl></article>",
            palette::class(*color),
            escape(label),
            escape(figure),
            escape(words),
            tag.html(),
            escape(context)
        )
    }
}

/// More of them do not fit on a card's line in the large size.
const FIGURE_CHARS: usize = 8;
