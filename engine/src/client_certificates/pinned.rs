//! Clients' certificates that are trusted themselves.

use std::sync::Arc;

use rustls::pki_types::UnixTime;
use rustls::{CertificateError, Error};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::certificates::is_self_issued;

/// Those of the trusted certificates that issued themselves.
///
/// Tools make such a certificate an authority unless told otherwise, and webpki takes no authority
/// for a client. But who is trusted to issue any certificate may show its own. One that is no
/// authority's is trusted for itself alone.
#[derive(Clone, Debug)]
pub(super) struct Pinned {
    hashes: Arc<[[u8; 32]]>,
    /// Whether there are revocation lists: none of them is looked into for who issued itself.
    has_crls: bool,
}

impl Pinned {
    /// Those among `trusted`.
    pub(super) fn among<'a>(trusted: impl Iterator<Item = &'a [u8]>, has_crls: bool) -> Self {
        let own = trusted.filter(|der| is_self_issued(der));
        let mut hashes: Vec<[u8; 32]> = own.map(|der| Sha256::digest(der).into()).collect();
        hashes.sort_unstable();
        Self { hashes: hashes.into(), has_crls }
    }

    /// Whether a certificate is one of them; if so, whether it is valid at a time, for a client.
    pub(super) fn judge(&self, der: &[u8], now: UnixTime) -> Option<Result<(), Error>> {
        self.hashes.binary_search(&Sha256::digest(der).into()).ok()?;
        let judged = valid_for_client(der, now).and_then(|()| match self.has_crls {
            true => Err(CertificateError::UnknownRevocationStatus),
            false => Ok(()),
        });
        Some(judged.map_err(Error::InvalidCertificate))
    }
}

fn valid_for_client(der: &[u8], now: UnixTime) -> Result<(), CertificateError> {
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
    match purposes.map_err(|_| CertificateError::BadEncoding)? {
        Some(purposes) if !purposes.value.client_auth => Err(CertificateError::InvalidPurpose),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// webpki looks at the dates before it finds an authority; nothing here relies on that.
    #[test]
    fn dates_are_kept_to() {
        let mut params = rcgen::CertificateParams::new(["client".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 2);
        let own = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let pinned = Pinned::among([own.der().as_ref()].into_iter(), false);
        let judge = |der: &[u8], unix_s| {
            pinned.judge(der, UnixTime::since_unix_epoch(Duration::from_secs(unix_s)))
        };
        let refused = |error| Some(Err(Error::InvalidCertificate(error)));
        let from_s = 1_767_225_600;
        let to_s = from_s + 86_400;
        assert_eq!(judge(own.der(), from_s - 1), refused(CertificateError::NotValidYet));
        assert_eq!(judge(own.der(), from_s), Some(Ok(())));
        assert_eq!(judge(own.der(), to_s), Some(Ok(())));
        assert_eq!(judge(own.der(), to_s + 1), refused(CertificateError::Expired));
        assert_eq!(judge(b"another", from_s), None);
    }
}
