//! Names of the clients that are admitted, among those that the roots verify: [`ClientName`].

use rustls::{CertificateError, Error};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use super::presented::{alternative_names, read};

/// A name that a client's own certificate must have, among others that would do as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientName {
    /// The common name of its subject.
    CommonName(Box<str>),
    /// A host name among its alternative names, in lower case; behind `*.` any one label may stand
    /// in front of the rest.
    Dns(Box<str>),
    /// A URI among its alternative names; one that ends in `/*` is the front of any longer one.
    Uri(Box<str>),
}

impl ClientName {
    fn is_of(&self, certificate: &X509Certificate<'_>, alternatives: &[GeneralName<'_>]) -> bool {
        match self {
            Self::CommonName(wanted) => {
                let mut names = certificate.subject.iter_common_name();
                names.any(|name| name.as_str().is_ok_and(|name| name == &**wanted))
            }
            Self::Dns(wanted) => alternatives.iter().any(|name| match name {
                GeneralName::DNSName(name) => is_host(wanted, name),
                _ => false,
            }),
            Self::Uri(wanted) => alternatives.iter().any(|name| match name {
                GeneralName::URI(name) => is_uri(wanted, name),
                _ => false,
            }),
        }
    }
}

/// Whether a client's own certificate has one of the `wanted` names; with none, any will do.
pub(super) fn admit(wanted: &[ClientName], der: &[u8]) -> Result<(), Error> {
    if wanted.is_empty() {
        return Ok(());
    }
    let is_admitted = read(der).is_some_and(|certificate| {
        let alternatives = alternative_names(&certificate);
        wanted.iter().any(|name| name.is_of(&certificate, &alternatives))
    });
    // rustls sends access_denied for it (RFC 8446 section 6.2).
    let refused = Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure);
    if is_admitted { Ok(()) } else { Err(refused) }
}

fn is_host(wanted: &str, name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    match wanted.strip_prefix("*.") {
        Some(parent) => {
            name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent)
        }
        None => name == wanted,
    }
}

fn is_uri(wanted: &str, name: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(front) => name.strip_prefix(front).is_some_and(|rest| !rest.is_empty()),
        None => name == wanted,
    }
}

/// Names that one policy lists.
pub const CLIENT_NAMES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_one_label_of_a_host_and_for_the_rest_of_a_uri() {
        for (wanted, name, expected) in [
            ("a.test", "A.test.", true),
            ("a.test", "b.a.test", false),
            ("*.a.test", "b.a.test", true),
            ("*.a.test", "a.test", false),
            ("*.a.test", "c.b.a.test", false),
            ("*.a.test", ".a.test", false),
        ] {
            assert_eq!(is_host(wanted, name), expected, "{wanted} {name}");
        }
        for (wanted, name, expected) in [
            ("spiffe://prod/a", "spiffe://prod/a", true),
            ("spiffe://prod/a", "spiffe://prod/a/b", false),
            ("spiffe://prod/*", "spiffe://prod/a/b", true),
            ("spiffe://prod/*", "spiffe://prod/", false),
            ("spiffe://prod/*", "spiffe://prod.evil/a", false),
        ] {
            assert_eq!(is_uri(wanted, name), expected, "{wanted} {name}");
        }
    }
}
