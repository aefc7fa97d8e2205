//! What the index needs to know of a server's own certificate.

use rustls::pki_types::DnsName;
use x509_parser::asn1_rs::FromDer;
use x509_parser::certificate::{X509Certificate, X509CertificateParser};
use x509_parser::extensions::{GeneralName, SubjectAlternativeName};
use x509_parser::nom::Parser;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::x509::X509Version;

use super::key::PublicHalf;
use super::{KeyType, NAME_BYTES_MAX};

/// The few facts taken out of a certificate.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Names no client can ask for.
    pub(super) ignored_names: Vec<String>,
    /// The kind of key; `None` for one that is not served.
    pub(super) key_type: Option<KeyType>,
    /// Host names and wildcards, lower-cased, without repeats, in their order.
    pub(super) names: Vec<String>,
    /// Last second of validity, in Unix time.
    pub(super) not_after_s: i64,
    /// First second of validity, in Unix time.
    pub(super) not_before_s: i64,
    /// The public key's bytes, see [`PublicHalf::bytes`].
    pub(super) public_key: Vec<u8>,
}

impl Leaf {
    /// Reads a certificate; no signature is checked.
    pub(super) fn parse(der: &[u8]) -> Result<Self, &'static str> {
        let certificate = parse(der)?;
        let spki = &certificate.subject_pki;
        let half = PublicHalf::of_certificate(
            spki.algorithm.algorithm.as_bytes(),
            spki.algorithm.parameters.as_ref().map(|any| any.data),
            &spki.subject_public_key.data,
        );
        let mut leaf = Self {
            ignored_names: Vec::new(),
            key_type: half.as_ref().map(|half| half.key_type),
            names: Vec::new(),
            not_after_s: certificate.validity.not_after.timestamp(),
            not_before_s: certificate.validity.not_before.timestamp(),
            public_key: half.and_then(|half| half.bytes).unwrap_or_default().to_vec(),
        };
        leaf.take_names(&certificate)?;
        Ok(leaf)
    }

    /// Takes the DNS names of the extension subjectAltName; the common name only if there is none
    /// (RFC 9525 does without it, but old private authorities issue nothing else).
    fn take_names(&mut self, certificate: &X509Certificate<'_>) -> Result<(), &'static str> {
        let mut extensions = certificate
            .extensions()
            .iter()
            .filter(|extension| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME);
        let Some(extension) = extensions.next() else {
            let common_name = certificate.subject.iter_common_name().last();
            if let Some(name) = common_name.and_then(|name| name.as_str().ok()) {
                self.take_name(name);
            }
            return Ok(());
        };
        if extensions.next().is_some() {
            return Err("two extensions subjectAltName");
        }
        let (_, alternatives) = SubjectAlternativeName::from_der(extension.value)
            .map_err(|_| "unreadable extension subjectAltName")?;
        for alternative in &alternatives.general_names {
            if let GeneralName::DNSName(name) = alternative {
                self.take_name(name);
            }
        }
        Ok(())
    }

    fn take_name(&mut self, name: &str) {
        let lowered = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let host = lowered.strip_prefix("*.").unwrap_or(&lowered);
        if lowered.len() > NAME_BYTES_MAX || DnsName::try_from_str(host).is_err() {
            self.ignored_names.push(name.to_owned());
        } else {
            self.names.push(lowered);
        }
    }
}

/// Whether an intermediate is a certificate at all.
pub(super) fn check_intermediate(der: &[u8]) -> Result<(), &'static str> {
    parse(der).map(drop)
}

/// Last second of validity of any certificate, in Unix time.
pub(crate) fn not_after_s(der: &[u8]) -> Result<i64, &'static str> {
    parse(der).map(|certificate| certificate.validity.not_after.timestamp())
}

/// Whether a certificate names itself as its issuer; what cannot be read does not.
pub(crate) fn is_self_issued(der: &[u8]) -> bool {
    parse(der).is_ok_and(|certificate| certificate.issuer.as_raw() == certificate.subject.as_raw())
}

/// Whether a certificate may issue others, as OpenSSL sees it: it says so, or it is of a version
/// that cannot say, or it says nothing but what its key may sign. What cannot be read may not.
pub(crate) fn is_authority(der: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return false };
    let signs_certificates = match certificate.key_usage() {
        Ok(usage) => usage.map(|usage| usage.value.key_cert_sign()),
        Err(_) => return false,
    };
    match certificate.basic_constraints() {
        Ok(Some(constraints)) => constraints.value.ca && signs_certificates != Some(false),
        Ok(None) if certificate.version() == X509Version::V1 => {
            certificate.issuer.as_raw() == certificate.subject.as_raw()
        }
        Ok(None) => signs_certificates == Some(true),
        Err(_) => false,
    }
}

/// Leaves extensions undecoded: only one of them matters, and most of the time would go there.
fn parse(der: &[u8]) -> Result<X509Certificate<'_>, &'static str> {
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    match parser.parse(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err("bytes follow its end"),
        Err(_) => Err("unreadable structure"),
    }
}
