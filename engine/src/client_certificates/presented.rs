//! Subject, issuer and other fields of a client's own certificate, as text: [`Presented`].

use core::net::{Ipv4Addr, Ipv6Addr};
use std::fmt::Write as _;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

use crate::text;

/// The fields of a client's own certificate, whether it is trusted or not. The text comes from the
/// client: it is made printable, and each part of it has at most [`PRESENTED_BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    /// The issuer, as RFC 4514 writes names.
    pub issuer: String,
    /// Alternative names, each behind its kind: `DNS:a.test, URI:spiffe://a/b`.
    pub names: String,
    /// The serial number that the issuer gave, in hexadecimal digits.
    pub serial: String,
    /// The subject, as RFC 4514 writes names.
    pub subject: String,
}

impl Presented {
    /// Reads a certificate; none if it cannot be read.
    pub fn of(der: &[u8]) -> Option<Self> {
        let certificate = read(der)?;
        let names: Vec<_> = alternative_names(&certificate).iter().filter_map(labelled).collect();
        Some(Self {
            issuer: cut(distinguished(&certificate.issuer)),
            names: cut(names.join(", ")),
            serial: cut(hex(certificate.raw_serial())),
            subject: cut(distinguished(&certificate.subject)),
        })
    }
}

/// A name as RFC 4514 writes it: the last part first.
pub(crate) fn distinguished(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> =
        name.iter().map(|part| part.iter().map(attribute).collect::<Vec<_>>().join("+")).collect();
    parts.reverse();
    parts.join(",")
}

pub(super) fn read(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate)
}

/// Alternative names of `certificate`; of two extensions with names neither counts.
pub(crate) fn alternative_names<'a>(certificate: &'a X509Certificate<'_>) -> Vec<GeneralName<'a>> {
    match certificate.subject_alternative_name() {
        Ok(Some(extension)) => extension.value.general_names.clone(),
        Ok(None) | Err(_) => Vec::new(),
    }
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> String {
    let kind = oid2abbrev(attribute.attr_type(), oid_registry());
    match (kind, attribute.as_str()) {
        (Ok(kind), Ok(value)) => format!("{kind}={}", escaped(value)),
        (Ok(kind), Err(_)) => format!("{kind}=#{}", hex(attribute.as_slice())),
        (Err(_), _) => format!("{}=#{}", attribute.attr_type(), hex(attribute.as_slice())),
    }
}

/// The value in the form of RFC 4514 section 2.4. Characters that steer a terminal are written by
/// their number.
fn escaped(value: &str) -> String {
    let last = value.chars().count().saturating_sub(1);
    let mut text = String::with_capacity(value.len());
    for (position, c) in value.chars().enumerate() {
        let is_special = matches!(c, '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=')
            || c == '#' && position == 0
            || c == ' ' && (position == 0 || position == last);
        match c {
            c if is_special => text.extend(['\\', c]),
            c => push_printable(&mut text, c),
        }
    }
    text
}

fn labelled(name: &GeneralName<'_>) -> Option<String> {
    let printable = |text: &str| {
        let mut written = String::with_capacity(text.len());
        // A comma separates names, so it cannot be part of one.
        text.chars().for_each(|c| match c {
            ',' => written.push_str("\\2c"),
            c => push_printable(&mut written, c),
        });
        written
    };
    match name {
        GeneralName::DNSName(name) => Some(format!("DNS:{}", printable(name))),
        GeneralName::IPAddress(bytes) => address(bytes).map(|address| format!("IP:{address}")),
        GeneralName::RFC822Name(name) => Some(format!("email:{}", printable(name))),
        GeneralName::URI(name) => Some(format!("URI:{}", printable(name))),
        _ => None,
    }
}

fn push_printable(text: &mut String, c: char) {
    if !text::steers(c) {
        return text.push(c);
    }
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        // A String takes all that is written.
        let _ = write!(text, "\\{byte:02x}");
    }
}

fn address(bytes: &[u8]) -> Option<String> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).to_string());
    let v6 = <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).to_string());
    v4.or(v6).ok()
}

fn hex(bytes: &[u8]) -> String {
    let shown = bytes.get(..PRESENTED_BYTES_MAX).unwrap_or(bytes);
    shown.iter().fold(String::with_capacity(2 * shown.len()), |mut text, byte| {
        // A String takes all that is written.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A long text loses its end, which shows.
fn cut(mut text: String) -> String {
    if text.len() > PRESENTED_BYTES_MAX {
        let end = text.floor_char_boundary(PRESENTED_BYTES_MAX - MORE.len());
        text.truncate(end);
        text.push_str(MORE);
    }
    text
}

/// The most bytes of each part of a [`Presented`].
pub const PRESENTED_BYTES_MAX: usize = 512;
const MORE: &str = "…";

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, SerialNumber};

    use super::*;

    fn presented(change: impl FnOnce(&mut CertificateParams)) -> Presented {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        change(&mut params);
        let made = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        Presented::of(made.der()).unwrap()
    }

    #[test]
    fn a_strangers_text_steers_no_terminal_and_forges_no_other_name() {
        let shown = presented(|params| {
            params.distinguished_name.push(DnType::OrganizationName, " a,CN=admin#");
            params.distinguished_name.push(DnType::CommonName, "#x\u{1b}[2J\n\u{202e}");
            params.serial_number = Some(SerialNumber::from(vec![0x0a, 0xff]));
            let uri = "spiffe://a/b,DNS:admin".try_into().unwrap();
            params.subject_alt_names = vec![
                SanType::DnsName("a.test".try_into().unwrap()),
                SanType::URI(uri),
                SanType::IpAddress("192.0.2.1".parse().unwrap()),
                SanType::IpAddress("2001:db8::1".parse().unwrap()),
            ];
        });
        assert_eq!(shown.subject, r"O=\ a\,CN\=admin#,CN=\#x\1b[2J\0a\e2\80\ae");
        assert_eq!(shown.issuer, shown.subject);
        assert_eq!(shown.serial, "0aff");
        let names = r"DNS:a.test, URI:spiffe://a/b\2cDNS:admin, IP:192.0.2.1, IP:2001:db8::1";
        assert_eq!(shown.names, names);
    }

    #[test]
    fn each_part_is_bounded() {
        let long = "é".repeat(PRESENTED_BYTES_MAX);
        let shown = presented(|params| {
            params.distinguished_name.push(DnType::CommonName, long);
            let names = (0..100).map(|n| format!("{n}.test").try_into().unwrap());
            params.subject_alt_names = names.map(SanType::DnsName).collect();
        });
        for part in [&shown.issuer, &shown.names, &shown.subject] {
            assert!(part.len() <= PRESENTED_BYTES_MAX && part.ends_with(MORE), "{part}");
        }
    }
}
