//! The format of a file without a PEM section to use, and how to convert it.

use std::fmt;

/// The format of a file that has nothing to use, as far as its first bytes show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Nothing but space.
    Empty,
    /// A binary certificate.
    DerCertificate,
    /// A binary private key.
    DerKey,
    /// A binary revocation list.
    DerList,
    /// A page of a web server.
    Html,
    /// A keystore of Java.
    JavaKeystore,
    /// A file of PKCS#12, as Windows and Java export them.
    Pkcs12,
    /// A binary PKCS#7 message.
    Pkcs7,
    /// A certificate request.
    Request,
    /// Sections of other types.
    Sections,
    /// Any other text.
    Text,
}

impl Foreign {
    /// The format of `text`, which has no section to use.
    pub fn of(text: &[u8]) -> Self {
        let holds = |word: &[u8]| text.windows(word.len()).any(|window| window == word);
        let trimmed = text.trim_ascii();
        match trimmed {
            [] => Self::Empty,
            [b'<', ..] => Self::Html,
            [0xfe, 0xed, 0xfe, 0xed, ..] | [0xce, 0xce, 0xce, 0xce, ..] => Self::JavaKeystore,
            _ if holds(b"-----BEGIN CERTIFICATE REQUEST") => Self::Request,
            _ if holds(b"-----BEGIN NEW CERTIFICATE REQUEST") => Self::Request,
            _ if holds(b"-----BEGIN ") => Self::Sections,
            _ => Self::of_der(text).unwrap_or(Self::Text),
        }
    }

    /// The structure of a binary file.
    fn of_der(bytes: &[u8]) -> Option<Self> {
        let content = inside(bytes)?;
        Some(match content.first()? {
            // SignedData and the like: the type of the content.
            0x06 => Self::Pkcs7,
            // A version: 3 is that of PKCS#12, 0 and 1 those of keys.
            0x02 if content.starts_with(&[0x02, 0x01, 0x03]) => Self::Pkcs12,
            0x02 => Self::DerKey,
            0x30 => match inside(content)? {
                // An encrypted key begins with its algorithm.
                [0x06, ..] => Self::DerKey,
                // The version of a list, where a certificate has its number.
                [0x02, 0x01, 0x01, 0x30, ..] => Self::DerList,
                _ => Self::DerCertificate,
            },
            _ => return None,
        })
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the file is empty; copy it again",
            Self::DerCertificate => {
                "a binary (DER) certificate, not PEM; convert it: openssl x509 -inform der -in \
                 FILE -out FILE.pem"
            }
            Self::DerKey => {
                "a binary (DER) private key, not PEM; convert it: openssl pkey -inform der -in \
                 FILE -out FILE.pem"
            }
            Self::DerList => {
                "a binary (DER) revocation list, not PEM; convert it: openssl crl -inform der -in \
                 FILE -out FILE.pem"
            }
            Self::Html => "an HTML page, not PEM; download the file again",
            Self::JavaKeystore => {
                "a Java keystore, not PEM; convert it: keytool -importkeystore -srckeystore FILE \
                 -destkeystore FILE.p12 -deststoretype pkcs12, then openssl pkcs12 -in FILE.p12 \
                 -nodes -out FILE.pem"
            }
            Self::Pkcs12 => {
                "a PKCS#12 file (.p12, .pfx), not PEM; convert it: openssl pkcs12 -in FILE -nodes \
                 -out FILE.pem"
            }
            Self::Pkcs7 => {
                "a binary PKCS#7 file (.p7b), not PEM; convert it: openssl pkcs7 -inform der -in \
                 FILE -print_certs -out FILE.pem"
            }
            Self::Request => {
                "a certificate request; name the certificate that the authority issued for it"
            }
            Self::Sections => "its PEM sections are of other types",
            Self::Text => "no PEM section in it; check that it is the right file",
        })
    }
}

/// The content of the SEQUENCE that `bytes` begin with, which may be cut.
fn inside(bytes: &[u8]) -> Option<&[u8]> {
    let [0x30, length, rest @ ..] = bytes else { return None };
    // In the long form the low bits count the bytes of the length; 0x80 is BER without one.
    let skipped = if *length < 0x80 { 0 } else { usize::from(*length & 0x7f) };
    if skipped > LENGTH_BYTES_MAX { None } else { rest.get(skipped..) }
}

/// Bytes that a length of a file has at most.
const LENGTH_BYTES_MAX: usize = 4;
