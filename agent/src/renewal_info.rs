//! When an authority would like a certificate renewed (ARI, RFC 9773).

use std::borrow::Cow;

use instant_acme::{CertificateIdentifier, Error};
use sealane_renewal::{Failure, Outcome, UnixSeconds};

use crate::account::Opened;
use crate::certificate::KnownAs;
use crate::failure::Failed;

/// Asks for the window of the certificate that the authority knows by these.
pub(crate) async fn ask(opened: &Opened, known_as: &KnownAs, now: UnixSeconds) -> Outcome {
    match opened.account.renewal_info(&identifier(known_as)).await {
        Ok((info, retry_after)) => {
            let seconds = |time: i64| UnixSeconds(u64::try_from(time).unwrap_or(0));
            Outcome::RenewalInfo {
                start: seconds(info.suggested_window.start.unix_timestamp()),
                end: seconds(info.suggested_window.end.unix_timestamp()),
                retry_after_s: Some(retry_after.as_secs()),
            }
        }
        // The schedule asks again, more and more seldom.
        Err(Error::Unsupported(_)) => Outcome::Failed(Failure::TryLater),
        Err(error) => {
            Failed::of_answer("renewal information", &error, opened.https.told_until(), now)
                .outcome()
        }
    }
}

/// A certificate, as an authority knows it.
pub(crate) fn identifier(known_as: &KnownAs) -> CertificateIdentifier<'_> {
    CertificateIdentifier {
        authority_key_identifier: Cow::Borrowed(&*known_as.authority),
        serial: Cow::Borrowed(&*known_as.serial),
    }
}
