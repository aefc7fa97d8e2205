//! The parts of a server's own certificate that the index needs.

use rustls::pki_types::DnsName;
use x509_parser::asn1_rs::{FromDer, Oid};
use x509_parser::certificate::{X509Certificate, X509CertificateParser};
use x509_parser::extensions::{
    AuthorityInfoAccess, AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, GeneralName,
    KeyIdentifier, KeyUsage, SubjectAlternativeName,
};
use x509_parser::nom::Parser;
use x509_parser::oid_registry::{
    OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS, OID_PKIX_AUTHORITY_INFO_ACCESS,
    OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_BASIC_CONSTRAINTS,
    OID_X509_EXT_CRL_DISTRIBUTION_POINTS, OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_KEY_USAGE,
    OID_X509_EXT_NAME_CONSTRAINTS, OID_X509_EXT_SUBJECT_ALT_NAME,
    OID_X509_EXT_SUBJECT_KEY_IDENTIFIER,
};
use x509_parser::x509::{X509Name, X509Version};

use super::key::PublicHalf;
use super::{KeyType, NAME_BYTES_MAX};
use crate::der::take;

/// The few facts taken out of a certificate.
#[derive(Debug)]
pub(super) struct Leaf {
    /// Whether its names are those of the common name, because it has no subjectAltName.
    pub(super) has_common_name_only: bool,
    /// Names no client can ask for.
    pub(super) ignored_names: Vec<String>,
    /// The kind of key; `None` for one that is not served.
    pub(super) key_type: Option<KeyType>,
    /// Host names and wildcards, lower-cased, without repeats, in their order.
    pub(super) names: Vec<String>,
    /// The issuer, and the end of validity.
    pub(super) link: Link,
    /// Whether it names a place where its issuer's certificate is published, as those of public
    /// authorities do.
    pub(super) is_issuer_published: bool,
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
            has_common_name_only: false,
            ignored_names: Vec::new(),
            // A server's own certificate issues none.
            link: Link::of(&certificate, false),
            is_issuer_published: is_issuer_published(&certificate),
            key_type: half.as_ref().map(|half| half.key_type),
            names: Vec::new(),
            not_before_s: certificate.validity.not_before.timestamp(),
            public_key: half.and_then(|half| half.bytes).unwrap_or_default().to_vec(),
        };
        leaf.take_names(&certificate)?;
        Ok(leaf)
    }

    /// Takes the DNS names of the extension subjectAltName. The common name counts only if there is
    /// none: RFC 9525 ignores it, but old private authorities issue nothing else.
    fn take_names(&mut self, certificate: &X509Certificate<'_>) -> Result<(), &'static str> {
        let mut extensions = certificate
            .extensions()
            .iter()
            .filter(|extension| extension.oid == OID_X509_EXT_SUBJECT_ALT_NAME);
        let Some(extension) = extensions.next() else {
            let common_name = certificate.subject.iter_common_name().last();
            if let Some(name) = common_name.and_then(|name| name.as_str().ok()) {
                self.take_name(name);
                self.has_common_name_only = !self.names.is_empty();
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

/// The place of a certificate in a chain.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) is_authority: bool,
    /// Whether its extension extendedKeyUsage, if it has one, is for servers.
    pub(super) is_for_servers: bool,
    /// The name of its issuer, in DER.
    pub(super) issuer: Box<[u8]>,
    /// Last second of validity, in Unix time.
    pub(super) not_after_s: i64,
    /// First second of validity, in Unix time.
    pub(super) not_before_s: i64,
    /// The most authorities between it and a server's own certificate.
    pub(super) path_len: Option<u32>,
    /// The SubjectPublicKeyInfo without its header.
    pub(super) public_key: Box<[u8]>,
    /// The certificate's own name, in DER.
    pub(super) subject: Box<[u8]>,
}

impl Link {
    /// Reads any certificate; no signature is checked.
    pub(super) fn parse(der: &[u8]) -> Result<Self, &'static str> {
        parse(der).map(|certificate| Self::of(&certificate, is_authority(der)))
    }

    fn of(certificate: &X509Certificate<'_>, is_authority: bool) -> Self {
        let mut extensions = certificate.extensions().iter();
        let usage = extensions.find(|extension| extension.oid == OID_X509_EXT_EXTENDED_KEY_USAGE);
        let is_for_servers = usage.is_none_or(|extension| {
            ExtendedKeyUsage::from_der(extension.value)
                .is_ok_and(|(_, usage)| usage.server_auth || usage.any)
        });
        let public_key = take(&mut { certificate.subject_pki.raw });
        Self {
            is_authority,
            is_for_servers,
            issuer: certificate.issuer.as_raw().into(),
            not_after_s: certificate.validity.not_after.timestamp(),
            not_before_s: certificate.validity.not_before.timestamp(),
            path_len: AuthorityLimits::of(certificate).ok().and_then(|limits| limits.path_len),
            public_key: public_key.map(|key| key.content.into()).unwrap_or_default(),
            subject: certificate.subject.as_raw().into(),
        }
    }

    /// The name of the issuer, as people write names.
    pub(super) fn issuer_text(&self) -> String {
        X509Name::from_der(&self.issuer).map_or_else(|_| String::new(), |(_, n)| n.to_string())
    }
}

/// The dates of a certificate, in Unix time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validity {
    not_after_s: i64,
    not_before_s: i64,
}

impl Validity {
    /// Reads a certificate; no signature is checked.
    pub(super) fn parse(der: &[u8]) -> Option<Self> {
        let certificate = parse(der).ok()?;
        let (not_after, not_before) =
            (certificate.validity.not_after, certificate.validity.not_before);
        Some(Self { not_after_s: not_after.timestamp(), not_before_s: not_before.timestamp() })
    }

    /// Whether a time lies between them.
    pub(super) fn contains(self, now_s: i64) -> bool {
        (self.not_before_s..=self.not_after_s).contains(&now_s)
    }
}

/// The fields that decide the place of a certificate among others of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linked<'a> {
    /// The content of its extension cRLDistributionPoints.
    pub(crate) crl_points: Option<&'a [u8]>,
    pub(crate) der: &'a [u8],
    /// Only this version has extensions.
    pub(crate) has_version_3: bool,
    pub(crate) issuer: &'a [u8],
    /// The identifier of its issuer's key, if it names one.
    pub(crate) issuer_key_id: Option<&'a [u8]>,
    pub(crate) key_id: Option<&'a [u8]>,
    /// Whether its key may sign revocation lists: its extension keyUsage does not deny it.
    pub(crate) may_sign_lists: bool,
    /// The content of its extension nameConstraints.
    pub(crate) name_constraints: Option<&'a [u8]>,
    pub(crate) not_after_s: i64,
    pub(crate) not_before_s: i64,
    /// The SubjectPublicKeyInfo without its header, as anchors have it.
    pub(crate) public_key: &'a [u8],
    pub(crate) serial: &'a [u8],
    pub(crate) subject: &'a [u8],
}

impl<'a> Linked<'a> {
    /// Reads a certificate; no signature is checked.
    pub(crate) fn parse(der: &'a [u8]) -> Result<Self, &'static str> {
        let certificate = parse(der)?;
        let extension = |oid: Oid<'_>| {
            let mut all = certificate.extensions().iter();
            all.find(|extension| extension.oid == oid).map(|extension| extension.value)
        };
        let own = extension(OID_X509_EXT_SUBJECT_KEY_IDENTIFIER);
        let own = own.and_then(|value| KeyIdentifier::from_der(value).ok());
        let issuer = extension(OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER);
        let issuer = issuer.and_then(|value| AuthorityKeyIdentifier::from_der(value).ok());
        let may_sign_lists = match extension(OID_X509_EXT_KEY_USAGE) {
            Some(value) => KeyUsage::from_der(value).is_ok_and(|(_, usage)| usage.crl_sign()),
            None => true,
        };
        let public_key = take(&mut { certificate.subject_pki.raw });
        Ok(Self {
            crl_points: extension(OID_X509_EXT_CRL_DISTRIBUTION_POINTS),
            der,
            has_version_3: certificate.version() == X509Version::V3,
            issuer: certificate.issuer.as_raw(),
            issuer_key_id: issuer.and_then(|(_, id)| id.key_identifier.map(|id| id.0)),
            key_id: own.map(|(_, id)| id.0),
            may_sign_lists,
            name_constraints: extension(OID_X509_EXT_NAME_CONSTRAINTS),
            not_after_s: certificate.validity.not_after.timestamp(),
            not_before_s: certificate.validity.not_before.timestamp(),
            public_key: public_key.ok_or("unreadable public key")?.content,
            serial: certificate.tbs_certificate.raw_serial(),
            subject: certificate.subject.as_raw(),
        })
    }

    /// Whether, by the names, it may have issued `other`, and the keys' identifiers do not deny it.
    pub(crate) fn may_have_issued(&self, other: &Linked<'_>) -> bool {
        let is_meant = match (self.key_id, other.issuer_key_id) {
            (Some(own), Some(wanted)) => own == wanted,
            _ => true,
        };
        self.subject == other.issuer && is_meant
    }

    /// Whether a time lies between its dates.
    pub(crate) fn is_valid_at(&self, now_s: i64) -> bool {
        (self.not_before_s..=self.not_after_s).contains(&now_s)
    }
}

/// The limits that an authority's certificate sets to itself.
pub(crate) struct AuthorityLimits {
    /// Last second of validity, in Unix time.
    pub(crate) not_after_s: i64,
    /// First second of validity, in Unix time.
    pub(crate) not_before_s: i64,
    /// The most authorities between it and a peer's own certificate.
    pub(crate) path_len: Option<u32>,
}

impl AuthorityLimits {
    /// Reads a certificate; no signature is checked.
    pub(crate) fn parse(der: &[u8]) -> Result<Self, &'static str> {
        Self::of(&parse(der)?)
    }

    fn of(certificate: &X509Certificate<'_>) -> Result<Self, &'static str> {
        let mut all = certificate.extensions().iter();
        let constraints = all.find(|extension| extension.oid == OID_X509_EXT_BASIC_CONSTRAINTS);
        let constraints = match constraints {
            Some(extension) => BasicConstraints::from_der(extension.value)
                .map(|(_, constraints)| Some(constraints))
                .map_err(|_| "unreadable extension basicConstraints")?,
            None => None,
        };
        Ok(Self {
            not_after_s: certificate.validity.not_after.timestamp(),
            not_before_s: certificate.validity.not_before.timestamp(),
            path_len: constraints.and_then(|constraints| constraints.path_len_constraint),
        })
    }
}

/// Whether the extension authorityInfoAccess names the issuer's certificate (RFC 5280 section
/// 4.2.2.1); one that cannot be read does not.
fn is_issuer_published(certificate: &X509Certificate<'_>) -> bool {
    let mut all = certificate.extensions().iter();
    let extension = all.find(|extension| extension.oid == OID_PKIX_AUTHORITY_INFO_ACCESS);
    let Some(extension) = extension else { return false };
    AuthorityInfoAccess::from_der(extension.value).is_ok_and(|(_, access)| {
        let mut places = access.iter();
        places.any(|place| place.access_method == OID_PKIX_ACCESS_DESCRIPTOR_CA_ISSUERS)
    })
}

/// The public key of a certificate, as it is encoded there (SubjectPublicKeyInfo).
pub(super) fn public_key_info(der: &[u8]) -> Result<&[u8], &'static str> {
    parse(der).map(|certificate| certificate.subject_pki.raw)
}

/// Last second of validity of any certificate, in Unix time.
pub(crate) fn not_after_s(der: &[u8]) -> Result<i64, &'static str> {
    parse(der).map(|certificate| certificate.validity.not_after.timestamp())
}

/// Whether a certificate names itself as its issuer. False if it cannot be read.
pub(crate) fn is_self_issued(der: &[u8]) -> bool {
    parse(der).is_ok_and(|certificate| certificate.issuer.as_raw() == certificate.subject.as_raw())
}

/// Whether a certificate may issue others, by OpenSSL's rules. Without basicConstraints, one of
/// version 1 has to be its own issuer, and a later one needs the key usage for it. False if it
/// cannot be read.
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
pub(super) fn parse(der: &[u8]) -> Result<X509Certificate<'_>, &'static str> {
    #[cfg(test)]
    PARSED.set(PARSED.get() + 1);
    let mut parser = X509CertificateParser::new().with_deep_parse_extensions(false);
    match parser.parse(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err("bytes follow its end"),
        Err(_) => Err("unreadable structure"),
    }
}

#[cfg(test)]
thread_local! {
    /// The count of certificates that were read on this thread. Work that a stranger can cause has
    /// a budget.
    pub(crate) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
