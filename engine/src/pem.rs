//! PEM (RFC 7468): the one reader of certificates, private keys and revocation lists.
//!
//! Every PEM text that Sealane takes goes through [`sections`]. Each section of it is used, skipped
//! by a rule of this table, or rejected with the number of a line. Nothing is dropped in silence,
//! and no error quotes the text, which may hold a key.
//!
//! | in the text | result |
//! |---|---|
//! | `CERTIFICATE`, `X509 CERTIFICATE` | a certificate |
//! | `X509 CRL` | a revocation list |
//! | `PRIVATE KEY`, `RSA PRIVATE KEY`, `EC PRIVATE KEY` | a private key |
//! | `ENCRYPTED PRIVATE KEY`, a key with the header `Proc-Type: 4,ENCRYPTED` | an encrypted key |
//! | parameters, public keys, certificate requests | skipped: they are not used in TLS |
//! | any other section, such as `TRUSTED CERTIFICATE` or `PKCS7` | rejected |
//! | lines around sections, lines that begin with `#` | skipped |
//! | a line outside sections that looks like a damaged BEGIN or END line | rejected |
//! | a section that is cut, not base64, or has another header | rejected |
//! | a byte order mark of UTF-8 before a section, CRLF, space behind a line | skipped |
//! | UTF-16 | rejected |
//!
//! Further rules are the caller's: a reader of certificates skips lists, for example. A text that
//! is accepted has the sections that OpenSSL reads from it.

mod base64;
mod foreign;
#[cfg(test)]
mod tests;

use zeroize::Zeroizing;

use crate::certificates::KeyEncoding;

pub use foreign::Foreign;

/// One section of a PEM text.
#[derive(Debug)]
pub struct Section {
    /// The content; empty for an encrypted key. It is zeroed when it is dropped.
    pub der: Zeroizing<Vec<u8>>,
    /// The type of the content.
    pub kind: SectionKind,
    /// The number of its BEGIN line, counted from 1.
    pub line: usize,
}

impl Section {
    /// The content without its protection, for a section that is no secret.
    pub fn into_public(mut self) -> Vec<u8> {
        std::mem::take(&mut *self.der)
    }
}

/// The types of section that something is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    /// A certificate.
    Certificate,
    /// A private key under a passphrase.
    EncryptedKey,
    /// A private key.
    Key(KeyEncoding),
    /// A revocation list.
    RevocationList,
}

/// A reason to reject a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {damage}")]
pub struct PemError {
    /// The damage.
    pub damage: Damage,
    /// The number of the line, counted from 1.
    pub line: usize,
}

/// The fault at a line of a PEM text, and its remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// A line that is nearly a BEGIN or an END line.
    #[error(
        "a damaged BEGIN or END line; it is -----BEGIN TYPE----- or -----END TYPE-----, on a line \
         of its own"
    )]
    BadMark,
    /// An empty line among base64.
    #[error("an empty line within a section; remove it or copy the file again")]
    BlankLine,
    /// A section without content.
    #[error("an empty section; remove it or copy the file again")]
    Empty,
    /// An END line of another type.
    #[error("this END line does not match the BEGIN line before it; copy the file again")]
    EndDiffers,
    /// The text ends, or another section begins, within a section.
    #[error("the section that begins here has no END line; copy the file again")]
    EndMissing,
    /// A header that is not that of an encrypted key.
    #[error("a header in this section; remove it, up to and with the empty line behind it")]
    Header,
    /// Base64 that cannot be decoded.
    #[error("damaged base64; copy the file again")]
    NotBase64,
    /// A line that goes on behind an END line.
    #[error("text follows on the same line; begin a new line behind -----END TYPE-----")]
    NewlineMissing,
    /// A key of a kind that is not used in TLS here.
    #[error(
        "a kind of private key that is not used in TLS here; export it as PKCS#8 (openssl pkey)"
    )]
    OtherKey,
    /// Certificates within a signed message.
    #[error("a PKCS7 section; convert it: openssl pkcs7 -in FILE -print_certs -out FILE.pem")]
    Pkcs7,
    /// A certificate with trust settings of OpenSSL's own.
    #[error(
        "a TRUSTED CERTIFICATE section of OpenSSL; convert it: openssl x509 -in FILE -out FILE.pem"
    )]
    Trusted,
    /// An END line without a section.
    #[error("an END line without a BEGIN line; copy the file again")]
    UnexpectedEnd,
    /// A section of a type that has no rule.
    #[error("a section of an unknown type; remove it, or correct its BEGIN and END lines")]
    UnknownType,
    /// A text in UTF-16.
    #[error("UTF-16 text; save the file as UTF-8 or ASCII")]
    Utf16,
}

/// The certificates, keys and lists of `text`, in its order.
///
/// # Errors
/// A section cannot be read, or its type is neither used nor skipped.
pub fn sections(text: &[u8]) -> Result<Vec<Section>, PemError> {
    if is_utf16(text) {
        return Err(PemError { damage: Damage::Utf16, line: 1 });
    }
    let mut sections = Vec::new();
    let mut open: Option<Open<'_>> = None;
    for (line, content) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let content = trim_end(content);
        let rejected = |damage| PemError { damage, line };
        match open.take() {
            None => match Mark::of(content).map_err(rejected)? {
                Some(Mark::Begin(label)) => open = Some(Open::new(label, line)?),
                Some(Mark::End(_)) => return Err(rejected(Damage::UnexpectedEnd)),
                None => {}
            },
            Some(section) if content.starts_with(BEGIN) => {
                let line = section.line;
                return Err(PemError { damage: Damage::EndMissing, line });
            }
            Some(section) if content.starts_with(END) => {
                let label = mark(content, END).map_err(rejected)?;
                if label != section.label {
                    return Err(rejected(Damage::EndDiffers));
                }
                sections.extend(section.close()?);
            }
            Some(mut section) => {
                section.add(content, line)?;
                open = Some(section);
            }
        }
    }
    match open {
        Some(section) => Err(PemError { damage: Damage::EndMissing, line: section.line }),
        None => Ok(sections),
    }
}

/// A BEGIN or END line, with its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark<'t> {
    /// The first line of a section.
    Begin(&'t [u8]),
    /// The last line of a section.
    End(&'t [u8]),
}

impl<'t> Mark<'t> {
    /// Reads a line outside sections; none for a line that is no mark.
    ///
    /// # Errors
    /// The line is a damaged mark.
    pub fn of(line: &'t [u8]) -> Result<Option<Self>, Damage> {
        let mut line = trim_end(line);
        while let Some(rest) = line.strip_prefix(UTF8_MARK) {
            line = rest;
        }
        if line.starts_with(BEGIN) {
            return mark(line, BEGIN).map(|label| Some(Mark::Begin(label)));
        }
        if line.starts_with(END) {
            return mark(line, END).map(|label| Some(Mark::End(label)));
        }
        if resembles_mark(line) { Err(Damage::BadMark) } else { Ok(None) }
    }
}

/// The type in a line that begins with `start`.
fn mark<'t>(line: &'t [u8], start: &[u8]) -> Result<&'t [u8], Damage> {
    let rest = line.strip_prefix(start).ok_or(Damage::BadMark)?;
    let dashes = rest.windows(DASHES.len()).position(|window| window == DASHES);
    let (label, behind) = rest.split_at(dashes.ok_or(Damage::BadMark)?);
    match behind.strip_prefix(DASHES) {
        Some([]) if !label.contains(&b'-') && !label.is_empty() => Ok(label),
        Some(rest) if rest.first().is_some_and(|next| *next != b'-') || rest.starts_with(BEGIN) => {
            Err(Damage::NewlineMissing)
        }
        _ => Err(Damage::BadMark),
    }
}

/// Whether a line that is no mark hides one: spaces before it, other dashes, a letter too few.
/// Operators comment sections out with `#`.
fn resembles_mark(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    // A comment. But a text with CR alone as its line end is one line.
    if line.first() == Some(&b'#') && !line.trim_ascii_end().contains(&b'\r') {
        return false;
    }
    let upper = line.to_ascii_uppercase();
    [b"BEGIN".as_slice(), b"END"].into_iter().any(|word| {
        let found = upper.windows(word.len()).enumerate().filter(|(_, window)| *window == word);
        found.map(|(at, _)| line.split_at(at)).any(|(before, rest)| {
            let after = &rest[word.len()..];
            let is_word = !after.first().is_some_and(u8::is_ascii_alphanumeric);
            let has_type = NAMED.iter().any(|name| after.starts_with(name));
            is_word && ends_in_dashes(before) || rest.starts_with(word) && has_type
        })
    })
}

/// Whether a text ends in at least two dashes, of ASCII or not, and spaces.
fn ends_in_dashes(text: &[u8]) -> bool {
    let is_dash = |byte: &&u8| **byte == b'-' || !byte.is_ascii();
    text.trim_ascii_end().iter().rev().take_while(is_dash).count() >= DASHES_OF_MARK_MIN
}

/// A section before its END line.
struct Open<'t> {
    base64: base64::Decoder,
    /// The number of its first empty line.
    blank: Option<usize>,
    is_encrypted: bool,
    label: &'t [u8],
    line: usize,
    rule: Rule,
}

impl<'t> Open<'t> {
    fn new(label: &'t [u8], line: usize) -> Result<Self, PemError> {
        let rule = Rule::of(label).map_err(|damage| PemError { damage, line })?;
        let is_encrypted = rule == Rule::Use(SectionKind::EncryptedKey);
        let base64 = base64::Decoder::default();
        Ok(Self { base64, blank: None, is_encrypted, label, line, rule })
    }

    /// Takes a line, without the space behind it.
    fn add(&mut self, content: &[u8], line: usize) -> Result<(), PemError> {
        let is_key = matches!(self.rule, Rule::Use(SectionKind::Key(_)));
        if is_key && content.starts_with(ENCRYPTED_HEADER) {
            self.rule = Rule::Use(SectionKind::EncryptedKey);
            self.is_encrypted = true;
        }
        // A key with a passphrase is not decoded.
        if self.is_encrypted {
            return Ok(());
        }
        // At the end of a text that is cut, empty lines are not the damage.
        if content.is_empty() {
            self.blank.get_or_insert(line);
            return Ok(());
        }
        self.check_blank()?;
        if content.contains(&b':') {
            return Err(PemError { damage: Damage::Header, line });
        }
        let added = self.base64.add(content);
        added.map_err(|base64::Invalid| PemError { damage: Damage::NotBase64, line })
    }

    fn check_blank(&self) -> Result<(), PemError> {
        match self.blank {
            Some(line) => Err(PemError { damage: Damage::BlankLine, line }),
            None => Ok(()),
        }
    }

    fn close(self) -> Result<Option<Section>, PemError> {
        self.check_blank()?;
        let Self { base64, is_encrypted, line, rule, .. } = self;
        let der = base64.finish().map_err(|base64::Invalid| Damage::NotBase64);
        let der = match der {
            Ok(der) if der.is_empty() && !is_encrypted => Err(Damage::Empty),
            der => der,
        };
        let der = der.map_err(|damage| PemError { damage, line })?;
        Ok(match rule {
            Rule::Use(kind) => Some(Section { der, kind, line }),
            Rule::Skip => None,
        })
    }
}

/// The rule for a type of section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    Skip,
    Use(SectionKind),
}

impl Rule {
    fn of(label: &[u8]) -> Result<Self, Damage> {
        Ok(Self::Use(match label {
            b"CERTIFICATE" | b"X509 CERTIFICATE" => SectionKind::Certificate,
            b"X509 CRL" => SectionKind::RevocationList,
            b"PRIVATE KEY" => SectionKind::Key(KeyEncoding::Pkcs8),
            b"RSA PRIVATE KEY" => SectionKind::Key(KeyEncoding::Pkcs1),
            b"EC PRIVATE KEY" => SectionKind::Key(KeyEncoding::Sec1),
            b"ENCRYPTED PRIVATE KEY" => SectionKind::EncryptedKey,
            b"TRUSTED CERTIFICATE" => return Err(Damage::Trusted),
            b"PKCS7" | b"PKCS #7 SIGNED DATA" | b"CMS" => return Err(Damage::Pkcs7),
            label if SKIPPED.contains(&label) => return Ok(Self::Skip),
            label if label.ends_with(b"PRIVATE KEY") => return Err(Damage::OtherKey),
            _ => return Err(Damage::UnknownType),
        }))
    }
}

fn is_utf16(text: &[u8]) -> bool {
    let begin = b"B\0E\0G\0I\0N\0";
    UTF16_MARKS.iter().any(|mark| text.starts_with(mark))
        || text.contains(&0) && text.windows(begin.len()).any(|window| window == begin)
}

/// The line without space and control characters behind it, as OpenSSL reads it.
fn trim_end(line: &[u8]) -> &[u8] {
    let len = line.iter().rposition(|byte| *byte > b' ').map_or(0, |last| last + 1);
    &line[..len]
}

const BEGIN: &[u8] = b"-----BEGIN ";
const DASHES: &[u8] = b"-----";
/// Dashes before a word that make a line look like a mark.
const DASHES_OF_MARK_MIN: usize = 2;
const ENCRYPTED_HEADER: &[u8] = b"Proc-Type: 4,ENCRYPTED";
const END: &[u8] = b"-----END ";
/// The beginnings of the section types that matter here.
const NAMED: [&[u8]; 7] = [
    b" CERTIFICATE",
    b" EC PRIVATE",
    b" ENCRYPTED",
    b" PRIVATE",
    b" RSA PRIVATE",
    b" TRUSTED",
    b" X509",
];
/// Sections that are not used in TLS, or that other files repeat: keys carry their parameters.
const SKIPPED: [&[u8]; 9] = [
    b"CERTIFICATE REQUEST",
    b"DH PARAMETERS",
    b"DSA PARAMETERS",
    b"EC PARAMETERS",
    b"NEW CERTIFICATE REQUEST",
    b"PARAMETERS",
    b"PUBLIC KEY",
    b"RSA PUBLIC KEY",
    b"X9.42 DH PARAMETERS",
];
/// Byte order marks of UTF-16, and with them those of UTF-32.
const UTF16_MARKS: [&[u8]; 2] = [b"\xff\xfe", b"\xfe\xff"];
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";
