//! Trusted authorities with the limits that their certificates set, and how a chain is judged by
//! them: [`Anchors`].
//!
//! webpki takes the name, the key and the name constraints of an authority, and trusts it for ever.
//! It also trusts each certificate that the key signed, whether or not the authority may issue any.
//! So its dates, its path length and its right to issue are kept and judged here, at the time of
//! each path. Constraints on mail addresses and directory names, and revocation, are judged here
//! too, for the path that webpki found.

mod refusal;

use std::fmt;
use std::ptr;
use std::time::Duration;

use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, Der, TrustAnchor, UnixTime};
use rustls::{DistinguishedName, Error};
use webpki::{EndEntityCert, ExpirationPolicy, KeyUsage, VerifiedPath, anchor_from_trusted_cert};

use crate::certificates::{AuthorityLimits, Linked, is_authority};
use crate::name_constraints::NameConstraints;
use crate::peer_chain::{KnownIssuer, PeerChain};
use crate::revocation::{Examined, RevocationLists};

pub(crate) use refusal::{refusal, spaced, unnamed, words};

/// Trusted authorities: immutable, shared by all lanes, and read-only for them.
#[derive(Default)]
pub(crate) struct Anchors {
    anchors: Vec<TrustAnchor<'static>>,
    /// Name constraints of each of the anchors that webpki does not judge.
    constraints: Vec<NameConstraints>,
    /// Limits of each of the anchors.
    limits: Vec<AuthorityLimits>,
    /// Issuers that are offered to every chain. They are not trusted by themselves.
    known: Vec<KnownIssuer>,
    /// Names of each of the anchors.
    names: Vec<DistinguishedName>,
}

impl Anchors {
    /// Adds a certificate that is trusted. One that may not issue certificates is only checked: a
    /// peer may show it as its own (see `Pinned`), and nothing that its key signed is trusted.
    pub(crate) fn trust(&mut self, der: &CertificateDer<'_>) -> Result<(), String> {
        let limits = AuthorityLimits::parse(der)?;
        let anchor = anchor_from_trusted_cert(der).map_err(|error| words(&error))?;
        let mut anchor = anchor.to_owned();
        let constraints = match anchor.name_constraints.take() {
            Some(written) => {
                let (judged, left) = NameConstraints::split(&written)
                    .ok_or("its name constraints cannot be read")?;
                anchor.name_constraints = left.map(Der::from);
                judged
            }
            None => NameConstraints::default(),
        };
        if is_authority(der) {
            self.names.push(DistinguishedName::in_sequence(&anchor.subject));
            self.anchors.push(anchor);
            self.constraints.push(constraints);
            self.limits.push(limits);
        }
        Ok(())
    }

    /// Adds an authority that is trusted if one that is trusted issued it.
    pub(crate) fn know(&mut self, der: &[u8]) -> Result<(), String> {
        self.known.push(KnownIssuer::parse(der)?);
        Ok(())
    }

    /// The count of trusted authorities.
    pub(crate) fn len(&self) -> usize {
        self.anchors.len()
    }

    /// Judges a peer's chain at a time; gives its own certificate back, to be looked at further.
    /// With `crls`, one of them must cover each certificate.
    pub(crate) fn verify<'a>(
        &self,
        own: &'a CertificateDer<'_>,
        chain: &PeerChain<'_>,
        asked: &Asked<'_>,
    ) -> Result<EndEntityCert<'a>, Error> {
        let leaf = EndEntityCert::try_from(own).map_err(refusal)?;
        let line = chain.line(&self.known, |name| self.has_name(name), asked.now);
        let issuers: Vec<_> = line.iter().map(|each| CertificateDer::from(each.der)).collect();
        let own_linked = chain.own_linked();
        let judge = |path: &VerifiedPath<'_>| self.judge(path, &own_linked, &line, asked);
        let verified = leaf.verify_for_usage(
            asked.algorithms.all,
            &self.anchors,
            &issuers,
            asked.now,
            asked.usage,
            None,
            Some(&judge),
        );
        verified.map(drop).map_err(refusal)?;
        Ok(leaf)
    }

    fn has_name(&self, name: &[u8]) -> bool {
        self.names.iter().any(|known| known.as_ref() == name)
    }

    /// Judges a path by the rules that webpki does not have. `line` has its issuers.
    fn judge(
        &self,
        path: &VerifiedPath<'_>,
        own: &Linked<'_>,
        line: &[Linked<'_>],
        asked: &Asked<'_>,
    ) -> Result<(), webpki::Error> {
        let found = self.anchors.iter().position(|anchor| ptr::eq(anchor, path.anchor()));
        let Some((limits, constraints)) =
            found.and_then(|index| Some((self.limits.get(index)?, self.constraints.get(index)?)))
        else {
            return Err(webpki::Error::UnknownIssuer);
        };
        let mut certificates = vec![*own];
        for each in path.intermediate_certificates() {
            let linked = line.iter().find(|linked| *linked.der == *each.der());
            certificates.push(*linked.ok_or(webpki::Error::UnknownIssuer)?);
        }
        judge_names(&certificates, constraints)?;
        judge_limits(&certificates, limits, asked.now)?;
        if asked.crls.is_empty() {
            return Ok(());
        }
        let anchor_key = path.anchor().subject_public_key_info.as_ref();
        for (position, certificate) in certificates.iter().enumerate() {
            let issuer = certificates.get(position + 1);
            asked.crls.judge(
                &Examined {
                    certificate,
                    expiration: asked.crl_expiration,
                    is_own: position == 0,
                    issuer_key: issuer.map_or(anchor_key, |issuer| issuer.public_key),
                    // webpki keeps no key usage of an anchor.
                    may_issuer_sign: issuer.is_none_or(|issuer| issuer.may_sign_lists),
                    now: asked.now,
                },
                asked.algorithms.all,
            )?;
        }
        Ok(())
    }
}

/// Judges a path, the peer's own certificate first, by the name constraints of its anchor and of
/// each intermediate, which hold for all certificates below.
fn judge_names(
    certificates: &[Linked<'_>],
    of_anchor: &NameConstraints,
) -> Result<(), webpki::Error> {
    let refused = webpki::Error::NameConstraintViolation;
    if !certificates.iter().all(|each| of_anchor.admit(each.der)) {
        return Err(refused);
    }
    for (position, issuer) in certificates.iter().enumerate().skip(1) {
        let Some(written) = issuer.name_constraints else { continue };
        let Some(constraints) = NameConstraints::of_intermediate(written) else {
            return Err(refused);
        };
        if !certificates.iter().take(position).all(|each| constraints.admit(each.der)) {
            return Err(refused);
        }
    }
    Ok(())
}

/// Judges a path by the dates and the path length of its anchor.
fn judge_limits(
    certificates: &[Linked<'_>],
    limits: &AuthorityLimits,
    time: UnixTime,
) -> Result<(), webpki::Error> {
    let [not_before, not_after] = [limits.not_before_s, limits.not_after_s]
        .map(|unix_s| Duration::from_secs(u64::try_from(unix_s).unwrap_or(0)))
        .map(UnixTime::since_unix_epoch);
    if time < not_before {
        return Err(webpki::Error::CertNotValidYet { time, not_before });
    }
    if time > not_after {
        return Err(webpki::Error::CertExpired { time, not_after });
    }
    // A certificate that an authority issued to itself does not count (RFC 5280 section 6.1.4).
    let below = certificates.iter().skip(1).filter(|each| each.issuer != each.subject);
    let path_len = limits.path_len.and_then(|len| usize::try_from(len).ok());
    match path_len {
        Some(path_len) if below.count() > path_len => Err(webpki::Error::PathLenConstraintViolated),
        _ => Ok(()),
    }
}

/// The rules by which a chain is judged: purpose, time, algorithms and revocation lists.
pub(crate) struct Asked<'a> {
    pub(crate) algorithms: &'a WebPkiSupportedAlgorithms,
    /// Whether lists still count after their next update was due.
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
