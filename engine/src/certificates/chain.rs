//! Faults of a server's chain for which clients refuse it: [`ChainFault`].

use std::sync::Arc;

use rustls::crypto::WebPkiSupportedAlgorithms;

use super::leaf::Link;
use crate::days::days;
use crate::signed::is_signed_by;

/// Reasons for which clients reject a chain, or may reject it. Positions are counted from 1, the
/// server's own certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The issuer's name, and another key than the one that signed.
    #[error(
        "certificate {position} of the chain has the name of an issuer before it, but not its key; \
         clients will refuse it: take the chain from the authority again"
    )]
    BadSignature {
        /// The issuer.
        position: usize,
    },
    /// An issuer that may not issue.
    #[error(
        "certificate {position} of the chain issued the one before it and is no CA certificate; \
         clients will refuse it: use a certificate that a CA issued"
    )]
    NoAuthority {
        /// The issuer.
        position: usize,
    },
    /// Before its beginning.
    #[error(
        "certificate {position} of the chain is valid only in {}; clients refuse it until then",
        days(*valid_in_s)
    )]
    NotYetValid {
        /// The certificate.
        position: usize,
        /// Seconds until its beginning.
        valid_in_s: i64,
    },
    /// A purpose other than servers.
    #[error(
        "certificate {position} of the chain is not for servers (its extendedKeyUsage has no \
         serverAuth); clients will refuse it: issue it again"
    )]
    NotForServers {
        /// The certificate.
        position: usize,
    },
    /// Issuers that do not follow the certificates that they issued.
    #[error(
        "the chain is in the wrong order; some clients will refuse it: put each certificate before \
         that of its issuer"
    )]
    Order,
    /// More authorities than one allows below itself.
    #[error(
        "certificate {position} of the chain allows fewer CA certificates below itself than there \
         are (its path length); clients will refuse it: take the chain from the authority again"
    )]
    PathLength {
        /// The certificate.
        position: usize,
    },
    /// A certificate that issued none of the others.
    #[error("certificate {position} of the chain issued none of the others; remove it")]
    Unrelated {
        /// The certificate.
        position: usize,
    },
}

/// The faults of a chain of a server's own certificate and the `links` behind it. Signatures are
/// verified by `algorithms`, if there are any.
pub(super) fn faults(
    own: (&Link, &[u8]),
    links: &[(Arc<[u8]>, Arc<Link>)],
    algorithms: Option<&WebPkiSupportedAlgorithms>,
    now_s: i64,
) -> Vec<ChainFault> {
    let mut faults = Vec::new();
    if !own.0.is_for_servers {
        faults.push(ChainFault::NotForServers { position: 1 });
    }
    let (mut below, mut line) = (own, Vec::new());
    let mut authorities_below = 0;
    while below.0.issuer != below.0.subject {
        let Some(index) = issuer_of(below, links, &line, algorithms) else { break };
        let (position, (der, link)) = (index + 2, &links[index]);
        if algorithms.is_some_and(|known| !is_signed_by(below.1, &link.public_key, known.all)) {
            faults.push(ChainFault::BadSignature { position });
        }
        if !link.is_authority {
            faults.push(ChainFault::NoAuthority { position });
        }
        if !link.is_for_servers {
            faults.push(ChainFault::NotForServers { position });
        }
        let valid_in_s = link.not_before_s.saturating_sub(now_s);
        if valid_in_s > 0 {
            faults.push(ChainFault::NotYetValid { position, valid_in_s });
        }
        if link.path_len.is_some_and(|len| authorities_below > len) {
            faults.push(ChainFault::PathLength { position });
        }
        // A certificate that an authority issued to itself does not count (RFC 5280).
        authorities_below += u32::from(link.issuer != link.subject);
        line.push(index);
        below = (link, der);
    }
    if !line.is_sorted() {
        faults.push(ChainFault::Order);
    }
    let has_issued = |link: &Link| {
        let mut others = links.iter().map(|(_, other)| &**other).chain([own.0]);
        others.any(|other| other.issuer == link.subject && other.subject != link.subject)
    };
    let is_unrelated = |(der, link): &(Arc<[u8]>, Arc<Link>)| **der != *own.1 && !has_issued(link);
    let unrelated = (2..).zip(links).filter(|(_, each)| is_unrelated(each));
    faults.extend(unrelated.map(|(position, _)| ChainFault::Unrelated { position }));
    faults
}

/// The issuer of a certificate among `links` that are not yet in `line`: of several with its name,
/// the one with the key that signed it, else the first.
fn issuer_of(
    (below, der): (&Link, &[u8]),
    links: &[(Arc<[u8]>, Arc<Link>)],
    line: &[usize],
    algorithms: Option<&WebPkiSupportedAlgorithms>,
) -> Option<usize> {
    let named = || {
        let all = links.iter().enumerate();
        all.filter(|(index, (_, link))| link.subject == below.issuer && !line.contains(index))
    };
    let signed = named().find(|(_, (_, link))| {
        named().count() > 1
            && algorithms.is_some_and(|known| is_signed_by(der, &link.public_key, known.all))
    });
    signed.or_else(|| named().next()).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose,
        IsCa, KeyPair, date_time_ymd,
    };

    use super::super::{CertificateWarning, DefaultCertificate, IndexBuilder};
    use super::*;
    use crate::policy::Group;
    use crate::provider::{ProviderChoice, lane_provider};

    type Issuer = CertifiedIssuer<'static, KeyPair>;

    /// An authority that `issuer` issued, or a root.
    fn authority(
        name: &str,
        issuer: Option<&Issuer>,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Issuer {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        match issuer {
            Some(issuer) => CertifiedIssuer::signed_by(params, key, issuer).unwrap(),
            None => CertifiedIssuer::self_signed(params, key).unwrap(),
        }
    }

    /// The faults of a server's certificate by `issuer` with `behind` behind it.
    fn found(
        issuer: &Issuer,
        behind: &[&Issuer],
        change: impl FnOnce(&mut CertificateParams),
    ) -> Vec<ChainFault> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        change(&mut params);
        let own = params.signed_by(&key, issuer).unwrap();
        let behind: String = behind.iter().map(|each| each.pem()).collect();
        let text = [own.pem(), behind, key.serialize_pem()].concat();
        let provider = lane_provider(ProviderChoice::AwsLc, &Group::ALL).unwrap().crypto;
        let mut builder = IndexBuilder::new(&provider, 1_700_000_000);
        builder.add("a.pem", text.as_bytes());
        let warnings = builder.finish(DefaultCertificate::First).warnings.into_iter();
        let faults = warnings.filter_map(|warning| match warning {
            CertificateWarning::Chain { fault, .. } => Some(fault),
            _ => None,
        });
        faults.collect()
    }

    #[test]
    fn each_fault_of_a_chain_is_found() {
        let root = authority("root", None, |_| ());
        let one = authority("one", Some(&root), |_| ());
        let two = authority("two", Some(&one), |_| ());
        let forged = authority("one", Some(&root), |_| ());
        let no_authority = authority("none", Some(&root), |params| params.is_ca = IsCa::NoCa);
        let tomorrow =
            |params: &mut CertificateParams| params.not_before = date_time_ymd(2024, 1, 1);
        let early = authority("early", Some(&root), tomorrow);
        let constrained = |params: &mut CertificateParams| {
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        };
        let short = authority("short", Some(&root), constrained);
        let below = authority("below", Some(&short), |_| ());
        let is = |found: Vec<ChainFault>, expected: &[ChainFault]| assert_eq!(found, expected);
        is(found(&one, &[&one], |_| ()), &[]);
        is(found(&two, &[&two, &one, &root], |_| ()), &[]);
        is(found(&one, &[&forged], |_| ()), &[ChainFault::BadSignature { position: 2 }]);
        is(found(&one, &[&forged, &one], |_| ()), &[]);
        is(
            found(&no_authority, &[&no_authority], |_| ()),
            &[ChainFault::NoAuthority { position: 2 }],
        );
        let [early] = &found(&early, &[&early], |_| ())[..] else { panic!("one fault") };
        assert!(matches!(early, ChainFault::NotYetValid { position: 2, .. }), "{early}");
        is(found(&below, &[&below, &short], |_| ()), &[ChainFault::PathLength { position: 3 }]);
        is(found(&two, &[&one, &two], |_| ()), &[ChainFault::Order]);
        is(
            found(&one, &[&one, &authority("stranger", None, |_| ())], |_| ()),
            &[ChainFault::Unrelated { position: 3 }],
        );
        let for_clients = |params: &mut CertificateParams| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        };
        is(found(&one, &[&one], for_clients), &[ChainFault::NotForServers { position: 1 }]);
        let of_clients = authority("clients", Some(&root), for_clients);
        is(
            found(&of_clients, &[&of_clients], |_| ()),
            &[ChainFault::NotForServers { position: 2 }],
        );
    }
}
