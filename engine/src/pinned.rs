//! Certificates that are trusted themselves: [`Pinned`].

use std::sync::Arc;

use rustls::pki_types::{ServerName, UnixTime};
use rustls::{CertificateError, Error};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::session::is_authority_as_leaf;

/// Roots that a peer may show as its own certificate.
///
/// `openssl req -x509` makes a self-signed certificate an authority, and webpki takes no authority
/// for a peer's own. But a certificate that is itself a root needs no other to vouch for it.
#[derive(Clone, Debug)]
pub(crate) struct Pinned {
    hashes: Arc<[[u8; 32]]>,
    /// Whether there are revocation lists: none of them is asked for a certificate without an
    /// issuer.
    has_crls: bool,
    purpose: Purpose,
}

/// The purpose for which a certificate is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Client,
    Server,
}

impl Pinned {
    /// Pins all of `trusted`.
    pub(crate) fn all<'a>(
        trusted: impl Iterator<Item = &'a [u8]>,
        purpose: Purpose,
        has_crls: bool,
    ) -> Self {
        let mut hashes: Vec<[u8; 32]> = trusted.map(|der| Sha256::digest(der).into()).collect();
        hashes.sort_unstable();
        Self { hashes: hashes.into(), has_crls, purpose }
    }

    /// Judges a certificate after its chain was refused with `error`.
    ///
    /// # Errors
    /// It is not pinned, or its dates or purposes are wrong.
    pub(crate) fn admit(&self, der: &[u8], error: Error, now: UnixTime) -> Result<(), Error> {
        let is_for_issuer = matches!(&error, Error::InvalidCertificate(refusal)
            if matches!(refusal, CertificateError::BadSignature | CertificateError::UnknownIssuer)
                || is_authority_as_leaf(refusal));
        if !is_for_issuer || self.hashes.binary_search(&Sha256::digest(der).into()).is_err() {
            return Err(error);
        }
        self.judge(der, now).map_err(Error::InvalidCertificate)
    }

    fn judge(&self, der: &[u8], now: UnixTime) -> Result<(), CertificateError> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|_| CertificateError::BadEncoding)?;
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now_s < certificate.validity.not_before.timestamp() {
            return Err(CertificateError::NotValidYet);
        }
        if certificate.validity.not_after.timestamp() < now_s {
            return Err(CertificateError::Expired);
        }
        let purposes = certificate.extended_key_usage();
        let is_for_purpose = match purposes.map_err(|_| CertificateError::BadEncoding)? {
            None => true,
            Some(purposes) if self.purpose == Purpose::Client => purposes.value.client_auth,
            Some(purposes) => purposes.value.server_auth,
        };
        match (is_for_purpose, self.has_crls) {
            (false, _) => Err(CertificateError::InvalidPurpose),
            (true, true) => Err(CertificateError::UnknownRevocationStatus),
            (true, false) => Ok(()),
        }
    }
}

/// Whether the common name of a certificate without alternative names is the name of a server, as
/// `openssl req -x509 -subj /CN=NAME` makes it. Only a pinned certificate may be named in this way.
pub(crate) fn is_common_name(der: &[u8], name: &ServerName<'_>) -> bool {
    let (ServerName::DnsName(wanted), Ok((_, certificate))) =
        (name, X509Certificate::from_der(der))
    else {
        return false;
    };
    if !matches!(certificate.subject_alternative_name(), Ok(None)) {
        return false;
    }
    let mut names = certificate.subject.iter_common_name().filter_map(|name| name.as_str().ok());
    names.any(|name| name.eq_ignore_ascii_case(wanted.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// webpki looks at the dates before it finds an authority; nothing here relies on that.
    #[test]
    fn pinned_certificate_keeps_to_its_dates() {
        let mut params = rcgen::CertificateParams::new(["client".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 2);
        let own = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let pinned = Pinned::all([own.der().as_ref()].into_iter(), Purpose::Client, false);
        let judge = |der: &[u8], unix_s| {
            let unknown = Error::InvalidCertificate(CertificateError::UnknownIssuer);
            pinned.admit(der, unknown, UnixTime::since_unix_epoch(Duration::from_secs(unix_s)))
        };
        let refused = |error| Err(Error::InvalidCertificate(error));
        let from_s = 1_767_225_600;
        let to_s = from_s + 86_400;
        assert_eq!(judge(own.der(), from_s - 1), refused(CertificateError::NotValidYet));
        assert_eq!(judge(own.der(), from_s), Ok(()));
        assert_eq!(judge(own.der(), to_s), Ok(()));
        assert_eq!(judge(own.der(), to_s + 1), refused(CertificateError::Expired));
        assert_eq!(judge(b"another", from_s), refused(CertificateError::UnknownIssuer));
    }
}
