//! Colours that people with any colour vision can tell apart, on white and on dark grey.

use std::fmt::Write;

/// One per series, in light and in dark; the order keeps neighbours far apart.
pub(crate) const COLORS: [[&str; 2]; 8] = [
    ["#0b6bb8", "#5aaef5"],
    ["#cc5200", "#ff9352"],
    ["#00796b", "#34c9a8"],
    ["#a8428c", "#ea93cc"],
    ["#9a7200", "#e8c04a"],
    ["#5b4bc4", "#b3a5ff"],
    ["#4d5866", "#b4bfcc"],
    ["#7a3b1f", "#d9a384"],
];

/// Everything else that has a colour: name, light, dark.
const ROLES: [[&str; 3]; 14] = [
    ["page", "#f6f7f9", "#0f1318"],
    ["card", "#ffffff", "#171d24"],
    ["sunk", "#eef1f4", "#1f2730"],
    ["ink", "#17202a", "#e8edf2"],
    ["soft", "#4f5c6a", "#a9b5c2"],
    ["edge", "#dde2e8", "#2b3540"],
    ["grid", "#e6eaee", "#26303a"],
    ["axis", "#9aa5b1", "#5d6b79"],
    ["accent", "#0b6bb8", "#6cb8f8"],
    ["ahead", "#6a3fb5", "#c3a6ff"],
    ["good", "#00796b", "#34c9a8"],
    ["warn-ink", "#6b4a00", "#f3d58a"],
    ["warn", "#fff4d6", "#332a12"],
    ["shade", "#8793a0", "#8793a0"],
];

/// The class of a series' colour.
pub(crate) fn class(color: usize) -> String {
    format!("k{}", color % COLORS.len())
}

/// What is added to that class past the last colour: dashes tell such series from the first ones.
pub(crate) fn dashes(color: usize) -> &'static str {
    if color >= COLORS.len() { " again" } else { "" }
}

/// The custom properties of one theme, as CSS declarations.
pub(crate) fn properties(dark: bool) -> String {
    let at = usize::from(dark);
    let mut css = String::from(if dark { "color-scheme:dark;" } else { "color-scheme:light;" });
    for [name, values @ ..] in ROLES {
        let _ = write!(css, "--{name}:{};", values[at]);
    }
    for (number, values) in COLORS.iter().enumerate() {
        let _ = write!(css, "--k{number}:{};", values[at]);
    }
    css
}

/// One class per colour.
pub(crate) fn classes() -> String {
    (0..COLORS.len()).fold(String::new(), |mut css, n| {
        let _ = write!(css, ".k{n}{{color:var(--k{n})}}");
        css
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of `#rrggbb`, as WCAG 2 has it.
    fn luminance(color: &str) -> f64 {
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        if a > b { a / b } else { b / a }
    }

    fn role(name: &str) -> [&'static str; 2] {
        let [_, light, dark] = ROLES.into_iter().find(|role| role[0] == name).unwrap();
        [light, dark]
    }

    #[test]
    fn every_colour_of_a_series_can_be_seen_and_all_text_read() {
        let card = role("card");
        for theme in [0, 1] {
            for color in COLORS {
                let contrast = contrast(color[theme], card[theme]);
                assert!(contrast >= 4.0, "{} has {contrast:.1}", color[theme]);
            }
            for ink in ["ink", "soft", "accent", "ahead", "good"] {
                for ground in ["card", "page", "sunk"] {
                    let contrast = contrast(role(ink)[theme], role(ground)[theme]);
                    assert!(contrast >= 4.5, "{ink} on {ground} has {contrast:.1}");
                }
            }
            assert!(contrast(role("warn-ink")[theme], role("warn")[theme]) >= 4.5);
        }
    }
}
