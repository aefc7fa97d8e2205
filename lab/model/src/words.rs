//! Units, shares, curves and states in words, the same on every page and in every table.

pub mod kernel;
pub mod scenario;

use crate::{document::LiveThread, number::number};

pub use scenario::{negotiated, short, whole};

/// A key of a map, such as `server_idle`, as words: `server, idle`.
pub fn spaced(key: &str) -> String {
    match key.split_once('_') {
        Some((side, state)) => format!("{side}, {}", state.replace('_', " ")),
        None => key.to_owned(),
    }
}

/// A unit from a document, with its sign for micro.
pub fn unit(text: &str) -> String {
    text.strip_prefix("us ").map_or_else(|| text.to_owned(), |rest| format!("\u{b5}s {rest}"))
}

/// `1 thread`, `2 threads`.
pub fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

/// A command line that a shell reads back as it was.
pub fn shell(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+%".contains(c);
    let quote = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// A share of 1 as percent: whole, or one digit where it is less than 1%.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let digit = if percent >= 0.95 { percent.round() } else { (percent * 10.0).round() / 10.0 };
    format!("{}%", number(digit))
}

/// What a thread did by state, the busiest states first.
pub fn states(thread: &LiveThread) -> String {
    let mut states: Vec<(&String, &f64)> = thread.states.iter().collect();
    states.sort_by(|a, b| b.1.total_cmp(a.1));
    let shown = states.iter().take(STATES_SHOWN).filter(|(_, share)| **share >= SHARE_SHOWN);
    let shown: Vec<String> = shown
        .map(|(state, share)| format!("{state} {}%", number((*share * 100.0).round())))
        .collect();
    shown.join(", ")
}

const SHARE_SHOWN: f64 = 0.005;
const STATES_SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_survives_a_shell() {
        let words = ["a", "it's", "", "b c", "x=1"].map(str::to_owned);
        assert_eq!(shell(&words), r"a 'it'\''s' '' 'b c' x=1");
    }
}
