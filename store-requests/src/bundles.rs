//! A stream of PEM, taken apart into chains with their keys: [`Bundles`].

use std::ops::Range;

use sealane_engine::certificates::PEM_BYTES_MAX;
use sealane_engine::pem;
use zeroize::Zeroizing;

/// A stream of PEM that has arrived in part.
///
/// The order of sections groups them: from a certificate to the next key, or from a key to the next
/// one. So files with both may be written one after the other, in either order, if all have the
/// same one.
pub struct Bundles {
    /// One byte longer than a text may be: a text that fills it is rejected when it is parsed. It
    /// never moves, and is zeroed at the end, because it has held keys.
    held: Zeroizing<Vec<u8>>,
    /// Bytes that came, and were not given away.
    unread: Range<usize>,
    /// The part of them that was looked at.
    scan: Scan,
    is_at_end: bool,
    /// The number of the line that `unread` begins with.
    line: u64,
}

/// A chain with its key, or other text in their place.
#[derive(Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    /// The number of its first line.
    pub line: u64,
    /// The lines.
    pub text: &'a [u8],
}

impl Default for Bundles {
    fn default() -> Self {
        let held = Zeroizing::new(vec![0; PEM_BYTES_MAX + 1]);
        Self { held, unread: 0..0, scan: Scan::default(), is_at_end: false, line: 1 }
    }
}

impl Bundles {
    /// Room for the next bytes. It is not empty after [`Self::next`] returned none.
    pub fn space(&mut self) -> &mut [u8] {
        let Range { start, end } = self.unread;
        self.held.copy_within(start..end, 0);
        self.unread = 0..end - start;
        &mut self.held[end - start..]
    }

    /// Notes that `count` bytes have come into the space.
    pub fn filled(&mut self, count: usize) {
        self.unread.end = (self.unread.end + count).min(self.held.len());
    }

    /// The stream has ended.
    pub fn end(&mut self) {
        self.is_at_end = true;
    }

    /// Whether the stream has ended.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// The next one; none if more has to come, or at the end of the stream.
    #[allow(clippy::should_implement_trait, reason = "what it gives borrows from it")]
    pub fn next(&mut self) -> Option<Bundle<'_>> {
        let Range { start, end } = self.unread;
        let is_full = end - start == self.held.len();
        let whole = self.scan.whole(&self.held[start..end], self.is_at_end);
        let len = whole.or(is_full.then_some(end - start))?;
        let (text, line) = (&self.held[start..start + len], self.line);
        self.unread.start += len;
        let scan = std::mem::take(&mut self.scan);
        // As in a file, text after the last section is skipped. One without sections is refused.
        let is_rest = self.is_at_end && line > 1 && !scan.has_chain && !scan.has_key;
        if is_rest && has_nothing_to_store(text) {
            return None;
        }
        self.line += text.iter().filter(|byte| **byte == b'\n').count() as u64;
        Some(Bundle { line, text })
    }
}

/// The part of a text that was looked at, so that each byte of it is looked at once, however few
/// come at a time.
#[derive(Debug, Default)]
struct Scan {
    has_chain: bool,
    has_key: bool,
    /// The start of a line that has not arrived to its end.
    line_start: usize,
    /// Up to where that end was looked for.
    searched: usize,
}

impl Scan {
    /// The length of the first bundle in `text`. `None` if more has to come, or nothing is left.
    fn whole(&mut self, text: &[u8], is_at_end: bool) -> Option<usize> {
        while self.line_start < text.len() {
            let end = text[self.searched..].iter().position(|byte| *byte == b'\n');
            let end = match end {
                Some(at) => self.searched + at + 1,
                // The last line of a stream may have no line feed.
                None if is_at_end => text.len(),
                None => break,
            };
            let start = std::mem::replace(&mut self.line_start, end);
            self.searched = end;
            match Mark::of(&text[start..end]) {
                Some(Mark::KeyBegins) if self.has_key => return Some(start),
                Some(Mark::KeyBegins) => self.has_key = true,
                Some(Mark::KeyEnds) if self.has_chain => return Some(end),
                Some(Mark::CertificateBegins) => self.has_chain = true,
                Some(Mark::KeyEnds) | None => {}
            }
        }
        self.searched = text.len();
        // Any other text there becomes a bundle, which is then reported as none.
        (is_at_end && !text.trim_ascii().is_empty()).then_some(text.len())
    }
}

/// Whether nothing in `text` is damaged, a certificate or a key.
fn has_nothing_to_store(text: &[u8]) -> bool {
    let is_list = |section: &pem::Section| section.kind == pem::SectionKind::RevocationList;
    pem::sections(text).is_ok_and(|sections| sections.iter().all(is_list))
}

/// A line that begins or ends a section.
enum Mark {
    CertificateBegins,
    KeyBegins,
    KeyEnds,
}

impl Mark {
    fn of(line: &[u8]) -> Option<Self> {
        // A damaged line is rejected when its bundle is read.
        match pem::Mark::of(line).ok()?? {
            pem::Mark::Begin(b"CERTIFICATE" | b"X509 CERTIFICATE") => Some(Self::CertificateBegins),
            pem::Mark::Begin(label) if label.ends_with(b"PRIVATE KEY") => Some(Self::KeyBegins),
            pem::Mark::End(label) if label.ends_with(b"PRIVATE KEY") => Some(Self::KeyEnds),
            pem::Mark::Begin(_) | pem::Mark::End(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHAIN: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    const LIST: &str = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
    const EC_KEY: &str = "-----BEGIN EC PARAMETERS-----\nAA\n-----END EC PARAMETERS-----\n\
        -----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n";

    /// The bundles of a text that comes in parts of `at_once` bytes, each with its first line.
    fn bundles_by(text: &[u8], at_once: usize) -> Vec<(u64, Vec<u8>)> {
        let (mut bundles, mut found, mut left) = (Bundles::default(), Vec::new(), text);
        loop {
            while let Some(Bundle { line, text }) = bundles.next() {
                found.push((line, text.to_vec()));
            }
            if bundles.is_at_end() {
                return found;
            }
            let space = bundles.space();
            let count = at_once.min(left.len()).min(space.len());
            assert!(!space.is_empty(), "there is room for more");
            space[..count].copy_from_slice(&left[..count]);
            bundles.filled(count);
            left = &left[count..];
            if left.is_empty() {
                bundles.end();
            }
        }
    }

    /// The bundles of `text`, however much comes at once.
    fn bundles(text: &str) -> Vec<(u64, String)> {
        let found = [1, 7, 4096].map(|at_once| bundles_by(text.as_bytes(), at_once));
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
        let [found, ..] = found;
        found.into_iter().map(|(line, text)| (line, String::from_utf8(text).unwrap())).collect()
    }

    #[test]
    fn chains_and_keys_in_either_order_are_told_apart() {
        for one in [
            [CHAIN, KEY].concat(),
            [CHAIN, CHAIN, EC_KEY].concat(),
            [KEY, CHAIN, CHAIN].concat(),
            ["a comment\n", CHAIN, "another\n", KEY].concat(),
            ["\u{feff}", CHAIN, KEY].concat(),
            [CHAIN, KEY].concat().replace("CERT", "X509 CERT"),
            [CHAIN, KEY].concat().replace('\n', "\r\n"),
        ] {
            let lines = one.lines().count() as u64;
            let found = bundles(&one.repeat(3));
            let expected = [1, 1 + lines, 1 + 2 * lines].map(|line| (line, one.clone()));
            assert_eq!(found, expected);
        }
        // Without the last end of line, and with empty lines behind it.
        assert_eq!(bundles([CHAIN, KEY].concat().trim_end()).len(), 1);
        assert_eq!(bundles(&[CHAIN, KEY, "\n \n"].concat()).len(), 1);
        assert_eq!(bundles("\n"), []);
    }

    #[test]
    fn what_is_cut_or_none_or_too_long_is_given_away_to_be_refused() {
        for rest in [CHAIN, &CHAIN[..40], &KEY[..10], &["no end ", CHAIN].concat()] {
            let text = [CHAIN, KEY, rest].concat();
            assert_eq!(bundles(&text)[1], (7, rest.to_owned()));
        }
        for rest in ["{}\n", "# a comment", "\r\nBag Attributes\n", LIST] {
            assert_eq!(bundles(&[CHAIN, KEY, rest].concat()).len(), 1, "{rest}");
        }
        assert_eq!(bundles("a comment\n"), [(1, "a comment\n".to_owned())]);
        let long = CHAIN.repeat(PEM_BYTES_MAX / CHAIN.len() + 2);
        let found = bundles_by(long.as_bytes(), 1 << 20);
        assert_eq!(found[0].1.len(), PEM_BYTES_MAX + 1);
    }

    fn part() -> impl Strategy<Value = Vec<u8>> {
        let text = |text: &str| Just(text.as_bytes().to_vec());
        prop_oneof![
            text(CHAIN),
            text(KEY),
            text(EC_KEY),
            text("\r\n"),
            (0..KEY.len()).prop_map(|at| KEY.as_bytes()[at..].to_vec()),
            proptest::collection::vec(any::<u8>(), 0..60),
        ]
    }

    proptest! {
        #[test]
        fn whatever_comes_is_given_away_once_and_the_same_however_it_comes(
            parts in proptest::collection::vec(part(), 0..12),
            at_once in 1_usize..200,
        ) {
            let text = parts.concat();
            let whole = bundles_by(&text, text.len().max(1));
            prop_assert_eq!(&bundles_by(&text, at_once), &whole);
            let given: Vec<u8> = whole.iter().flat_map(|(_, text)| text.clone()).collect();
            prop_assert!(text.starts_with(&given));
            prop_assert!(has_nothing_to_store(&text[given.len()..]), "only nothing is left");
        }
    }
}
