//! Text of strangers: which characters of it may be shown, by [`steers`].

/// Whether a character changes the text around it or its display: a control character, one that
/// ends a line, or one that turns the direction of text.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_is_no_letter_of_any_language() {
        for c in
            "\0\n\u{1b}\u{7f}\u{9b}\u{61c}\u{200e}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}"
                .chars()
        {
            assert!(steers(c), "{c:?}");
        }
        // Joiners are part of words in some.
        for c in "a é\u{200c}\u{200d}שלום\u{2027}\u{202f}\u{2065}\u{206a}".chars() {
            assert!(!steers(c), "{c:?}");
        }
    }
}
