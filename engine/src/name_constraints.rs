//! Name constraints of an authority on mail addresses and directory names: [`NameConstraints`].
//!
//! webpki refuses every chain below an authority that has them: it judges host names and addresses
//! alone. Companies and states have such authorities for persons. So these constraints are taken
//! out of the copy of a root that webpki gets. They are judged here (RFC 5280 section 4.2.1.10) for
//! each certificate below the authority. An intermediate is signed, and webpki reads it whole: it
//! still refuses alternative names of these kinds below it. But webpki looks at alternative names
//! alone, so the mail addresses of a subject are judged here for intermediates too.

use std::collections::BTreeSet;

use icu_normalizer::ComposingNormalizerBorrowed;
use x509_parser::asn1_rs::Tag;
use x509_parser::extensions::GeneralName;
use x509_parser::oid_registry::{OID_PKCS9_EMAIL_ADDRESS, Oid};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::x509::X509Name;

use crate::client_certificates::alternative_names;
use crate::der::{SEQUENCE, take, take_all};

/// Constraints on mail addresses and directory names.
#[derive(Debug, Default)]
pub(crate) struct NameConstraints {
    excluded: Vec<Subtree>,
    permitted: Vec<Subtree>,
}

/// Comparisons of a certificate's names with subtrees. A certificate that needs more is refused: a
/// client can send it before it has proved that it has a key.
const COMPARISONS_MAX: usize = 10_000;

impl NameConstraints {
    /// The constraints of an intermediate certificate. `extension` is the content of its extension
    /// nameConstraints. None if they cannot be read.
    pub(crate) fn of_intermediate(mut extension: &[u8]) -> Option<Self> {
        let list = take(&mut extension).filter(|list| list.tag == SEQUENCE)?;
        Self::split(list.content).map(|(judged, _)| judged)
    }

    /// Takes the constraints that are judged here out of the content of an extension
    /// nameConstraints. Returns them and the rest, which is for webpki. None if they cannot be
    /// read: then no certificate may be accepted below the authority.
    pub(crate) fn split(extension: &[u8]) -> Option<(Self, Option<Vec<u8>>)> {
        let (mut taken, mut left) = (Self::default(), Vec::new());
        let lists = take_all(extension)?;
        // webpki ignores a list that is not in its place.
        if !lists.is_sorted_by(|one, next| one.tag < next.tag) {
            return None;
        }
        for list in lists {
            let into = match list.tag {
                PERMITTED => &mut taken.permitted,
                EXCLUDED => &mut taken.excluded,
                _ => return None,
            };
            let mut kept = Vec::new();
            for subtree in take_all(list.content)? {
                match take(&mut { subtree.content })?.tag {
                    DIRECTORY | MAIL => into.push(Subtree::parse(subtree.content)?),
                    _ => kept.extend_from_slice(subtree.whole),
                }
            }
            if !kept.is_empty() {
                left.extend(element(list.tag, &kept));
            }
        }
        Some((taken, (!left.is_empty()).then_some(left)))
    }

    /// Whether a certificate of a path below the authority keeps to them; one that cannot be read
    /// does not.
    pub(crate) fn admit(&self, der: &[u8]) -> bool {
        if self.permitted.is_empty() && self.excluded.is_empty() {
            return true;
        }
        let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
        let Some(names) = names_of(&certificate) else { return false };
        let comparisons = names.len().saturating_mul(self.permitted.len() + self.excluded.len());
        comparisons <= COMPARISONS_MAX && names.iter().all(|name| self.admits(name))
    }

    fn admits(&self, name: &Name) -> bool {
        let mut permitted = self.permitted.iter().filter(|subtree| subtree.is_for(name)).peekable();
        let is_permitted = permitted.peek().is_none() || permitted.any(|each| each.has(name));
        is_permitted && !self.excluded.iter().any(|subtree| subtree.has(name))
    }
}

/// The kinds of names in the constraints of an authority that nothing here judges, so that webpki
/// refuses certificates with such names below it.
pub(crate) fn unjudged(der: &[u8]) -> Vec<&'static str> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
    let is_root = certificate.issuer.as_raw() == certificate.subject.as_raw();
    let Ok(Some(constraints)) = certificate.name_constraints() else { return Vec::new() };
    let lists = [&constraints.value.permitted_subtrees, &constraints.value.excluded_subtrees];
    let subtrees = lists.into_iter().flatten().flatten();
    let kinds: BTreeSet<_> = subtrees
        .filter_map(|subtree| match &subtree.base {
            GeneralName::DNSName(_) | GeneralName::IPAddress(_) => None,
            GeneralName::DirectoryName(_) => (!is_root).then_some("directory names"),
            GeneralName::RFC822Name(_) => (!is_root).then_some("mail addresses"),
            GeneralName::URI(_) => Some("URIs"),
            _ => Some("names of other kinds"),
        })
        .collect();
    kinds.into_iter().collect()
}

/// Names that are permitted, or excluded.
#[derive(Debug)]
enum Subtree {
    /// Those that begin with these parts.
    Directory(Vec<Part>),
    /// A mail address, all of a host, or with a dot in front all of the hosts below it.
    Mail(String),
}

impl Subtree {
    /// Reads a GeneralSubtree of a kind that is judged here; none if it cannot be read.
    fn parse(mut content: &[u8]) -> Option<Self> {
        let base = take(&mut content)?;
        // Limits of the distance are not used (RFC 5280).
        match (base.tag, content) {
            // An address in other text is compared in no way that is known here.
            (MAIL, []) if !base.content.is_ascii() => None,
            (MAIL, []) => Some(Self::Mail(std::str::from_utf8(base.content).ok()?.to_owned())),
            (DIRECTORY, []) => {
                let (_, name) = X509Name::from_der(base.content).ok()?;
                parts(&name).map(Self::Directory)
            }
            _ => None,
        }
    }

    fn is_for(&self, name: &Name) -> bool {
        matches!(
            (self, name),
            (Self::Directory(_), Name::Directory(_)) | (Self::Mail(_), Name::Mail(_))
        )
    }

    fn has(&self, name: &Name) -> bool {
        match (self, name) {
            (Self::Directory(front), Name::Directory(name)) => name.starts_with(front),
            (Self::Mail(wanted), Name::Mail(address)) => has_address(wanted, address),
            _ => false,
        }
    }
}

/// A name that constraints are judged for.
#[derive(Debug)]
enum Name {
    Directory(Vec<Part>),
    Mail(String),
}

/// One part of a directory name: its attributes in order, each with its type and its value.
type Part = Vec<(Vec<u8>, Vec<u8>)>;

/// The names of a certificate; none if one of them cannot be judged.
fn names_of(certificate: &X509Certificate<'_>) -> Option<Vec<Name>> {
    if certificate.subject_alternative_name().is_err() {
        return None;
    }
    let mut names = Vec::new();
    let add_directory = |name: &X509Name<'_>, names: &mut Vec<Name>| {
        let parts = parts(name)?;
        if !parts.is_empty() {
            names.push(Name::Directory(parts));
        }
        Some(())
    };
    add_directory(&certificate.subject, &mut names)?;
    for attribute in certificate.subject.iter_attributes() {
        if *attribute.attr_type() == OID_PKCS9_EMAIL_ADDRESS {
            names.push(Name::Mail(attribute.as_str().ok()?.to_owned()));
        }
    }
    for name in alternative_names(certificate) {
        match name {
            GeneralName::DirectoryName(name) => add_directory(&name, &mut names)?,
            // Constraints on mail addresses hold for it too (RFC 9598), and it is in other words.
            GeneralName::OtherName(kind, _) if kind == SMTP_UTF8_MAILBOX => return None,
            GeneralName::Invalid(..) => return None,
            GeneralName::RFC822Name(address) => names.push(Name::Mail(address.to_owned())),
            _ => {}
        }
    }
    let is_judged = |name: &Name| match name {
        Name::Directory(_) => true,
        // Other text could be a spelling of an excluded host.
        Name::Mail(address) => is_plain(address),
    };
    names.iter().all(is_judged).then_some(names)
}

/// Whether an address has visible ASCII characters alone, and those of a host name after its `@`.
fn is_plain(address: &str) -> bool {
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    address.bytes().all(|byte| byte.is_ascii_graphic())
        && address.rsplit_once('@').is_some_and(|(_, host)| host.bytes().all(is_of_host))
}

/// The parts of a name; none if one of them is text that cannot be read.
fn parts(name: &X509Name<'_>) -> Option<Vec<Part>> {
    let part = |part: &x509_parser::x509::RelativeDistinguishedName<'_>| {
        let attribute = |each: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            let value = comparable(each.attr_value().tag(), each.as_slice())?;
            Some((each.attr_type().as_bytes().to_vec(), value))
        };
        let mut attributes = part.iter().map(attribute).collect::<Option<Part>>()?;
        attributes.sort();
        Some(attributes)
    };
    name.iter().map(part).collect()
}

/// A value as it is compared: text of any type as [`prepare`] makes it, and all else byte for byte.
/// None for text that cannot be read.
fn comparable(tag: Tag, value: &[u8]) -> Option<Vec<u8>> {
    let text: String = match tag {
        Tag::Ia5String | Tag::NumericString | Tag::PrintableString | Tag::Utf8String => {
            std::str::from_utf8(value).ok()?.to_owned()
        }
        // Authorities write Latin-1 where T.61 should be.
        Tag::TeletexString => value.iter().map(|byte| char::from(*byte)).collect(),
        Tag::BmpString => {
            let (units, []) = value.as_chunks() else { return None };
            let units: Vec<_> = units.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            String::from_utf16(&units).ok()?
        }
        Tag::UniversalString => {
            let (characters, []) = value.as_chunks() else { return None };
            let read = |bytes: &[u8; 4]| char::from_u32(u32::from_be_bytes(*bytes));
            characters.iter().map(read).collect::<Option<_>>()?
        }
        Tag::GeneralString | Tag::GraphicString | Tag::VideotexString | Tag::VisibleString => {
            return None;
        }
        _ => return Some(value.to_vec()),
    };
    prepare(&text).map(String::into_bytes)
}

/// Prepares text for a comparison (RFC 5280 section 7.1, RFC 4518): without its case, its spacing,
/// its invisible characters, and the form in which Unicode has its letters. None if a character is
/// prohibited (RFC 4518 section 2.4): then the comparison is undefined.
fn prepare(text: &str) -> Option<String> {
    const NFKC: ComposingNormalizerBorrowed<'static> = ComposingNormalizerBorrowed::new_nfkc();
    let visible: String = text.chars().filter(|letter| !is_invisible(*letter)).collect();
    let mut folded = String::with_capacity(text.len());
    for letter in NFKC.normalize(&visible).chars().filter(|letter| !is_invisible(*letter)) {
        if is_prohibited(letter) {
            return None;
        }
        // Its upper case is that of `i`, but RFC 4518 keeps the two apart.
        if letter == '\u{131}' {
            folded.push(letter);
            continue;
        }
        // Both ways: the lower case of `ß` is itself, and its upper case `SS`.
        let upper = letter.to_lowercase().flat_map(char::to_uppercase);
        folded.extend(upper.flat_map(char::to_lowercase));
    }
    let normal = NFKC.normalize(&folded);
    let words: Vec<_> = normal.split_whitespace().collect();
    Some(words.join(" "))
}

/// Whether a character is for private use, unassigned, or a replacement for one that cannot be
/// shown.
fn is_prohibited(letter: char) -> bool {
    let is_no_character = u32::from(letter) & 0xfffe == 0xfffe;
    is_no_character
        || matches!(
            letter,
            '\u{e000}'..='\u{f8ff}'
                | '\u{fdd0}'..='\u{fdef}'
                | '\u{fffd}'
                | '\u{f0000}'..='\u{10ffff}'
        )
}

/// Whether RFC 4518 section 2.2 leaves a character out, or Unicode has the property
/// Default_Ignorable_Code_Point for it.
fn is_invisible(letter: char) -> bool {
    letter.is_control() && !letter.is_whitespace()
        || matches!(
            letter,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{6dd}'
                | '\u{70f}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{1806}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffc}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

fn has_address(wanted: &str, address: &str) -> bool {
    let Some((local, host)) = address.rsplit_once('@') else { return false };
    let host = host.strip_suffix('.').unwrap_or(host);
    if let Some((wanted_local, wanted_host)) = wanted.rsplit_once('@') {
        return local == wanted_local && host.eq_ignore_ascii_case(wanted_host);
    }
    let (host, wanted) = (host.to_ascii_lowercase(), wanted.to_ascii_lowercase());
    match wanted.strip_prefix('.') {
        Some(_) => host.len() > wanted.len() && host.ends_with(&wanted),
        None => host == wanted,
    }
}

/// An element of DER.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut whole = vec![tag];
    let digits = content.len().to_be_bytes();
    let digits: Vec<u8> = digits.into_iter().skip_while(|digit| *digit == 0).collect();
    match *digits {
        [] => whole.push(0),
        [short @ 0..=0x7f] => whole.push(short),
        // A length has at most 8 digits.
        _ => whole.push(0x80 | u8::try_from(digits.len()).unwrap_or_default()),
    }
    if content.len() > 0x7f {
        whole.extend(digits);
    }
    whole.extend(content);
    whole
}

/// permittedSubtrees and excludedSubtrees.
const PERMITTED: u8 = 0xa0;
const EXCLUDED: u8 = 0xa1;
/// directoryName and rfc822Name of a GeneralName.
const DIRECTORY: u8 = 0xa4;
const MAIL: u8 = 0x81;
/// RFC 9598: 1.3.6.1.5.5.7.8.9.
const SMTP_UTF8_MAILBOX: Oid<'static> =
    Oid::new(std::borrow::Cow::Borrowed(&[0x2b, 6, 1, 5, 5, 7, 8, 9]));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_constraint_is_an_address_host_or_domain() {
        for (wanted, address, expected) in [
            ("a@b.test", "a@B.test", true),
            ("a@b.test", "A@b.test", false),
            ("b.test", "x@B.TEST", true),
            ("b.test", "x@c.b.test", false),
            (".b.test", "x@c.b.test", true),
            (".b.test", "x@b.test", false),
            (".b.test", "x@cb.test", false),
        ] {
            assert_eq!(has_address(wanted, address), expected, "{wanted} {address}");
        }
    }

    #[test]
    fn text_of_every_type_is_compared_alike() {
        let wide = |text: &str, bytes: usize| -> Vec<u8> {
            let wide = text.chars().flat_map(|c| u32::from(c).to_be_bytes()[4 - bytes..].to_vec());
            wide.collect()
        };
        for (tag, value) in [
            (Tag::Utf8String, "M\u{fc}ller  Ltd".into()),
            (Tag::TeletexString, b"M\xfcLLER Ltd".to_vec()),
            (Tag::BmpString, wide("M\u{dc}ller ltd", 2)),
            (Tag::UniversalString, wide(" m\u{fc}ller LTD", 4)),
        ] {
            let expected = "m\u{fc}ller ltd".as_bytes().to_vec();
            assert_eq!(comparable(tag, &value), Some(expected), "{tag:?}");
        }
        for (tag, value) in [
            (Tag::Utf8String, &b"\xff"[..]),
            (Tag::BmpString, b"\xd8\0"),
            (Tag::BmpString, b"\0A\0"),
            (Tag::UniversalString, b"\0\x11\0\0"),
        ] {
            assert_eq!(comparable(tag, value), None, "{tag:?} {value:?}");
        }
        assert_eq!(comparable(Tag::BitString, b"\xffA"), Some(b"\xffA".to_vec()));
    }

    #[test]
    fn spellings_of_one_text_compare_as_equal() {
        for (one, other) in [
            ("M\u{fc}ller", "Mu\u{308}LLER"),
            ("Acme Ltd", "\u{ff21}\u{ff43}\u{ff4d}\u{ff45}\u{3000}\u{ff2c}td"),
            ("Stra\u{df}e", "STRASSE"),
            ("Stra\u{1e9e}e", "strasse"),
            ("\u{3bf}\u{3b4}\u{3bf}\u{3c2}", "\u{39f}\u{394}\u{39f}\u{3a3}"),
            ("Acme", "A\u{ad}c\u{200b}m\u{feff}\u{0}e"),
            ("Acme", "Ac\u{61c}me\u{3164}\u{ffa0}"),
            ("of\u{fb01}ce", "OFFICE"),
            ("A\u{85}B", " a\tb\n"),
        ] {
            assert_eq!(prepare(one), prepare(other), "{one} {other}");
        }
        for (one, other) in [("M\u{fc}ller", "Muller"), ("\u{131}", "i"), ("AB", "a b")] {
            assert_ne!(prepare(one), prepare(other), "{one} {other}");
        }
        for prohibited in ["Acme\u{fffd}", "Acme\u{e000}", "Acme\u{ffff}"] {
            assert_eq!(prepare(prohibited), None, "{prohibited:?}");
        }
    }

    #[test]
    fn mail_address_with_other_characters_is_not_judged() {
        assert!(is_plain("a.b+c@mail-1.test") && is_plain("a@b@c.test"));
        for address in ["a@b.test ", "a@b.test\0", "a@\u{fc}.test", "b.test", "a@[192.0.2.1]"] {
            assert!(!is_plain(address), "{address:?}");
        }
    }

    #[test]
    fn other_constraints_are_left_as_they_are() {
        let host = element(0x30, &element(0x82, b"b.test"));
        let mail = element(0x30, &element(MAIL, b"b.test"));
        let both = element(PERMITTED, &[&host[..], &mail].concat());
        let excluded = element(EXCLUDED, &mail);
        let (taken, left) = NameConstraints::split(&[both, excluded].concat()).unwrap();
        assert_eq!((taken.permitted.len(), taken.excluded.len()), (1, 1));
        assert_eq!(left, Some(element(PERMITTED, &host)));
        let (taken, left) = NameConstraints::split(&element(PERMITTED, &mail)).unwrap();
        assert_eq!((taken.permitted.len(), left), (1, None));
    }

    #[test]
    fn unreadable_constraints_are_no_constraints() {
        let with_distance = [&element(MAIL, b"b.test")[..], &[0x80, 1, 1]].concat();
        let of_other_text = element(MAIL, "b\u{fc}.test".as_bytes());
        let unreadable = [element(MAIL, b"\xff"), element(DIRECTORY, b"\xff"), with_distance];
        let unreadable = unreadable.into_iter().chain([of_other_text]);
        let mut damaged = vec![vec![PERMITTED], vec![PERMITTED, 5, 0x30], vec![0xa2, 0]];
        damaged.push([element(EXCLUDED, b""), element(PERMITTED, b"")].concat());
        damaged.extend(unreadable.map(|base| element(EXCLUDED, &element(0x30, &base))));
        for damaged in damaged {
            assert!(NameConstraints::split(&damaged).is_none(), "{damaged:?}");
        }
    }

    #[test]
    fn long_element_keeps_its_length() {
        for len in [0, 0x7f, 0x80, 0xff, 0x100, 0x1_0000] {
            let whole = element(0x30, &vec![1; len]);
            let read = take(&mut &*whole).unwrap();
            assert_eq!((read.content.len(), read.whole.len()), (len, whole.len()));
        }
    }
}
