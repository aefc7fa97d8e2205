//! Trusted authorities with the limits that their certificates set, and how a chain is judged by
//! them: [`Anchors`].
//!
//! webpki takes of an authority its name, its key and its name constraints, and believes it for
//! ever. When it ends, and how many authorities may stand below it, is kept beside it here and
//! judged with each path, at the time of judging: an authority that has expired since it was read
//! vouches for nobody.

mod refusal;

use std::fmt;
use std::ptr;
use std::time::Duration;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, Der, TrustAnchor, UnixTime};
use rustls::{DistinguishedName, Error};
use webpki::{
    Cert, EndEntityCert, ExpirationPolicy, KeyUsage, RevocationOptionsBuilder, VerifiedPath,
    anchor_from_trusted_cert,
};

use crate::certificates::AuthorityLimits;
use crate::name_constraints::NameConstraints;
use crate::peer_chain::{KnownIssuer, PeerChain};
use crate::revocation::{ChainLists, RevocationLists};

pub(crate) use refusal::{refusal, spaced, unnamed, words};

/// Trusted authorities: immutable, shared by all lanes, and read-only for them.
#[derive(Default)]
pub(crate) struct Anchors {
    anchors: Vec<TrustAnchor<'static>>,
    /// Name constraints of each of the anchors that webpki does not judge.
    constraints: Vec<NameConstraints>,
    /// Limits of each of the anchors.
    limits: Vec<AuthorityLimits>,
    /// Issuers that are offered to every chain, and vouch for nobody by themselves.
    known: Vec<KnownIssuer>,
    /// Names of each of the anchors.
    names: Vec<DistinguishedName>,
}

impl Anchors {
    /// Adds an authority that is believed.
    pub(crate) fn trust(&mut self, der: &CertificateDer<'_>) -> Result<(), String> {
        let limits = AuthorityLimits::parse(der)?;
        let anchor = anchor_from_trusted_cert(der).map_err(|error| words(&error))?;
        self.names.push(DistinguishedName::in_sequence(&anchor.subject));
        let mut anchor = anchor.to_owned();
        let constraints = match anchor.name_constraints.take() {
            Some(written) => {
                let (judged, left) = NameConstraints::split(&written);
                anchor.name_constraints = left.map(Der::from);
                judged
            }
            None => NameConstraints::default(),
        };
        self.anchors.push(anchor);
        self.constraints.push(constraints);
        self.limits.push(limits);
        Ok(())
    }

    /// Adds one that is believed if one that is trusted issued it.
    pub(crate) fn know(&mut self, der: &[u8]) -> Result<(), String> {
        self.known.push(KnownIssuer::parse(der)?);
        Ok(())
    }

    /// How many are trusted.
    pub(crate) fn len(&self) -> usize {
        self.anchors.len()
    }

    /// Judges a peer's chain at a time; gives its own certificate back, to be looked at further.
    /// With `crls`, every certificate must be on the books of one.
    pub(crate) fn verify<'a>(
        &self,
        own: &'a CertificateDer<'_>,
        chain: &PeerChain<'_>,
        asked: &Asked<'_>,
    ) -> Result<EndEntityCert<'a>, Error> {
        let leaf = EndEntityCert::try_from(own).map_err(refusal)?;
        let mut line = chain.line(&self.known, |name| self.has_name(name), asked.now);
        let issuers: Vec<_> = line.iter().map(|each| CertificateDer::from(each.der)).collect();
        line.push(chain.own_linked());
        let lists = asked.crls.of_chain(&line, asked.now, asked.crl_expiration);
        let crls = lists.in_order();
        let revocation = RevocationOptionsBuilder::new(&crls).ok();
        let revocation =
            revocation.map(|options| options.with_expiration_policy(asked.crl_expiration).build());
        let judge = |path: &VerifiedPath<'_>| self.judge(path, asked.now, &lists);
        let verified = leaf.verify_for_usage(
            asked.algorithms.all,
            &self.anchors,
            &issuers,
            asked.now,
            asked.usage,
            revocation,
            Some(&judge),
        );
        verified.map(drop).map_err(refusal)?;
        Ok(leaf)
    }

    fn has_name(&self, name: &[u8]) -> bool {
        self.names.iter().any(|known| known.as_ref() == name)
    }

    /// Checks what webpki does not: the authority at the end of a path, and further lists.
    fn judge(
        &self,
        path: &VerifiedPath<'_>,
        time: UnixTime,
        lists: &ChainLists<'_>,
    ) -> Result<(), webpki::Error> {
        let found = self.anchors.iter().position(|anchor| ptr::eq(anchor, path.anchor()));
        let Some((limits, constraints)) =
            found.and_then(|index| Some((self.limits.get(index)?, self.constraints.get(index)?)))
        else {
            return Err(webpki::Error::UnknownIssuer);
        };
        let admits = |each: &Cert<'_>| constraints.admit(&each.der());
        if !admits(path.end_entity()) || !path.intermediate_certificates().all(admits) {
            return Err(webpki::Error::NameConstraintViolation);
        }
        let [not_before, not_after] = [limits.not_before_s, limits.not_after_s]
            .map(|unix_s| Duration::from_secs(u64::try_from(unix_s).unwrap_or(0)))
            .map(UnixTime::since_unix_epoch);
        if time < not_before {
            return Err(webpki::Error::CertNotValidYet { time, not_before });
        }
        if time > not_after {
            return Err(webpki::Error::CertExpired { time, not_after });
        }
        let is_revoked = |each: &Cert<'_>| lists.revoke(each.issuer(), each.serial());
        if is_revoked(path.end_entity()) || path.intermediate_certificates().any(is_revoked) {
            return Err(webpki::Error::CertRevoked);
        }
        // A certificate that an authority issued to itself does not count (RFC 5280 section 6.1.4).
        let below = path.intermediate_certificates().filter(|each| each.issuer() != each.subject());
        let path_len = limits.path_len.and_then(|len| usize::try_from(len).ok());
        match path_len {
            Some(path_len) if below.count() > path_len => {
                Err(webpki::Error::PathLenConstraintViolated)
            }
            _ => Ok(()),
        }
    }
}

/// What a chain is judged for.
pub(crate) struct Asked<'a> {
    pub(crate) algorithms: &'a WebPkiSupportedAlgorithms,
    /// Whether lists count on when they should have been renewed.
    pub(crate) crl_expiration: ExpirationPolicy,
    pub(crate) crls: &'a RevocationLists,
    pub(crate) now: UnixTime,
    pub(crate) usage: KeyUsage,
}

impl fmt::Debug for Anchors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Anchors")
            .field("trusted", &self.anchors.len())
            .field("known", &self.known.len())
            .finish()
    }
}
