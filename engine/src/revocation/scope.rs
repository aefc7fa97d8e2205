//! The certificates that a revocation list is for: [`Scope`].

use crate::certificates::Linked;
use crate::der::{Element, SEQUENCE, take, take_all};

/// The content of an extension issuingDistributionPoint; without one, a list is for all
/// certificates of its issuer.
#[derive(Default, PartialEq, Eq)]
pub(super) struct Scope {
    is_for_authorities_only: bool,
    is_for_others_only: bool,
    /// The names of the distribution point, each in DER. A list without a point is for all of them.
    point: Option<Vec<Box<[u8]>>>,
}

impl Scope {
    /// Reads the content of the extension; none if it has something that is not known here.
    pub(super) fn parse(mut extension: &[u8]) -> Option<Self> {
        let mut scope = Self::default();
        let fields = take(&mut extension).filter(|whole| whole.tag == SEQUENCE)?;
        for field in take_all(fields.content)? {
            match (field.tag, field.content) {
                (POINT, name) => scope.point = Some(full_name(name).unwrap_or_default()),
                (OTHERS_ONLY, flag) => scope.is_for_others_only = is_set(flag)?,
                (AUTHORITIES_ONLY, flag) => scope.is_for_authorities_only = is_set(flag)?,
                (INDIRECT | ATTRIBUTES_ONLY, flag) if !is_set(flag)? => {}
                _ => return None,
            }
        }
        Some(scope)
    }

    /// Whether it has a distribution point.
    pub(super) fn has_point(&self) -> bool {
        self.point.is_some()
    }

    /// Whether it has a certificate, which is a peer's own or an authority's.
    pub(super) fn covers(&self, certificate: &Linked<'_>, is_own: bool) -> bool {
        if is_own && self.is_for_authorities_only || !is_own && self.is_for_others_only {
            return false;
        }
        match (&self.point, certificate.crl_points) {
            (None, _) | (Some(_), None) => true,
            (Some(names), Some(points)) => has_point(points, names).unwrap_or(false),
        }
    }
}

/// Whether the extension cRLDistributionPoints of a certificate has a point of one of these names.
fn has_point(mut extension: &[u8], names: &[Box<[u8]>]) -> Option<bool> {
    let points = take(&mut extension)?;
    for point in take_all(points.content)? {
        // A point for some reasons, or for lists of another issuer, has further fields.
        let fields = take_all(point.content)?;
        let [Element { tag: POINT, content, .. }] = fields.as_slice() else { continue };
        let found = full_name(content).unwrap_or_default();
        if found.iter().any(|name| names.contains(name)) {
            return Some(true);
        }
    }
    Some(false)
}

/// The names of a DistributionPointName; none if it is relative to an issuer.
fn full_name(mut name: &[u8]) -> Option<Vec<Box<[u8]>>> {
    let full = take(&mut name).filter(|whole| whole.tag == FULL_NAME)?;
    Some(take_all(full.content)?.iter().map(|name| name.whole.into()).collect())
}

fn is_set(flag: &[u8]) -> Option<bool> {
    match flag {
        [0] => Some(false),
        [0xff] => Some(true),
        _ => None,
    }
}

/// Tags of IssuingDistributionPoint; the first is one of DistributionPoint too.
const POINT: u8 = 0xa0;
const OTHERS_ONLY: u8 = 0x81;
const AUTHORITIES_ONLY: u8 = 0x82;
const INDIRECT: u8 = 0x84;
const ATTRIBUTES_ONLY: u8 = 0x85;
/// A tag of DistributionPointName.
const FULL_NAME: u8 = 0xa0;
