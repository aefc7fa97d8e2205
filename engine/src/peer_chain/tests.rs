//! Chains as peers send them: which are rejected, and which line is picked out.

use std::slice::from_ref;
use std::time::Duration;

use proptest::prelude::*;
use rcgen::{CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::*;

#[test]
fn more_than_the_limits_is_refused_unread() {
    let junk = CertificateDer::from(vec![0; 8]);
    let count = |others: usize| PeerChain::parse(&junk, &vec![junk.clone(); others]).err();
    assert_eq!(count(1_400), Some(ChainFault::TooManyCertificates { count: 1_401 }));
    assert_eq!(
        count(PEER_CERTIFICATES_MAX),
        Some(ChainFault::TooManyCertificates { count: PEER_CERTIFICATES_MAX + 1 })
    );
    let unreadable = |position| ChainFault::Unreadable { position, reason: "unreadable structure" };
    assert_eq!(count(PEER_CERTIFICATES_MAX - 1), Some(unreadable(1)));
    let large = CertificateDer::from(vec![0; PEER_CHAIN_BYTES_MAX]);
    assert_eq!(PeerChain::parse(&large, &[]).err(), Some(unreadable(1)));
    let bytes = PEER_CHAIN_BYTES_MAX + 8;
    let refused = PeerChain::parse(&large, from_ref(&junk)).err();
    assert_eq!(refused, Some(ChainFault::TooManyBytes { bytes }));
}

#[test]
fn each_certificate_has_to_be_one() {
    let root = authority("root", None);
    let leaf = leaf(&root);
    let behind = [root.der().clone(), CertificateDer::from(vec![7; 40])];
    let refused = PeerChain::parse(&leaf, &behind).err().unwrap();
    assert!(matches!(refused, ChainFault::Unreadable { position: 3, .. }), "{refused}");
    let alert = rustls::AlertDescription::from(certificate_error(refused));
    assert_eq!(alert, rustls::AlertDescription::BadCertificate);
    let mut longer = root.der().to_vec();
    longer.push(0);
    let behind = [CertificateDer::from(longer)];
    assert!(PeerChain::parse(&leaf, &behind).is_err(), "bytes behind a certificate");
}

#[test]
fn a_certificate_of_version_1_is_no_peers_own() {
    let pem = include_bytes!("../../../testdata/certificates/version1-p256.crt");
    let old = <CertificateDer<'_> as rustls::pki_types::pem::PemObject>::from_pem_slice(pem);
    let old = old.unwrap();
    assert_eq!(PeerChain::parse(&old, &[]).err(), Some(ChainFault::OldVersion));
    let root = authority("root", None);
    let leaf = leaf(&root);
    // A root that is not needed may be of any age.
    PeerChain::parse(&leaf, &[root.der().clone(), old]).unwrap();
}

#[test]
fn a_line_is_picked_out_of_whatever_order() {
    let root = authority("root", None);
    let upper = authority("upper", Some(&root));
    let lower = authority("lower", Some(&upper));
    let stray = authority("stray", None);
    let leaf = leaf(&lower);
    let [r, u, l, s] = [&root, &upper, &lower, &stray].map(|each| each.der().clone());
    for sent in [
        vec![l.clone(), u.clone(), r.clone()],
        vec![r.clone(), u.clone(), l.clone()],
        vec![s.clone(), u.clone(), l.clone(), r.clone()],
        vec![l.clone(), l.clone(), leaf.clone(), u.clone(), r.clone(), u.clone()],
    ] {
        assert_eq!(line(&leaf, &sent, &[], ""), [l.clone(), u.clone(), r.clone()]);
    }
    assert_eq!(line(&leaf, &[u.clone(), r.clone()], &[], ""), Vec::<CertificateDer<'_>>::new());
    let known = [KnownIssuer::parse(&l).unwrap()];
    assert_eq!(line(&leaf, &[u.clone(), l.clone()], &known, ""), [l, u]);
}

/// The reason why 17.5 KB cost seconds: each of them may have issued each other.
#[test]
fn no_name_comes_twice_in_a_line() {
    let same: Vec<_> = (0..6).map(|_| authority("same", None)).collect();
    let leaf = leaf(&same[3]);
    let sent: Vec<_> = same.iter().map(|each| each.der().clone()).collect();
    assert_eq!(line(&leaf, &sent, &[], ""), [sent[0].clone()]);
}

#[test]
fn of_two_issuers_of_one_name_the_identifier_the_date_and_the_anchor_decide() {
    let (old_root, new_root) = (authority("old root", None), authority("new root", None));
    let key = KeyPair::generate().unwrap();
    let cross = |root: &Authority| {
        let issuer = CertifiedIssuer::signed_by(params("cross"), copy(&key), root).unwrap();
        issuer.der().clone()
    };
    let (by_old, by_new) = (cross(&old_root), cross(&new_root));
    let issuer = CertifiedIssuer::signed_by(params("cross"), copy(&key), &new_root).unwrap();
    let own = leaf(&issuer);
    let sent = [by_old.clone(), by_new.clone()];
    assert_eq!(line(&own, &sent, &[], ""), from_ref(&by_old));
    assert_eq!(line(&own, &sent, &[], "new root"), from_ref(&by_new));
    assert_eq!(line(&own, &sent, &[], "old root"), from_ref(&by_old));

    let mut expired = params("cross");
    expired.not_after = rcgen::date_time_ymd(2026, 1, 1);
    let expired = CertifiedIssuer::signed_by(expired, copy(&key), &new_root).unwrap();
    let sent = [expired.der().clone(), by_old.clone()];
    assert_eq!(line(&own, &sent, &[], "new root"), from_ref(&by_old));

    let other_key = authority("cross", Some(&new_root));
    let mut identified = CertificateParams::new(["a.test".to_owned()]).unwrap();
    identified.use_authority_key_identifier_extension = true;
    let own = identified.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap().der().clone();
    assert_eq!(line(&own, &[other_key.der().clone(), by_old.clone()], &[], ""), [by_old]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Arbitrary names, issuers and order: path building gets a line without a choice.
    #[test]
    fn a_line_never_branches(drawn in proptest::collection::vec((0_u8..4, 0_u8..4), 0..7)) {
        let names: Vec<_> = (0..4).map(|name| authority(&format!("n{name}"), None)).collect();
        let sent: Vec<_> = drawn
            .iter()
            .map(|(subject, issuer)| {
                let issuer = &names[usize::from(*issuer)];
                authority(&format!("n{subject}"), Some(issuer)).der().clone()
            })
            .collect();
        let own = leaf(&names[0]);
        let others = &sent[..sent.len().min(PEER_CERTIFICATES_MAX - 1)];
        let line = line(&own, others, &[], "n3");
        let read = |der| Linked::parse(der).unwrap();
        let mut below = read(&own);
        let mut seen = Vec::new();
        for each in &line {
            prop_assert!(others.contains(each));
            let link = read(each);
            prop_assert_eq!(link.subject, below.issuer);
            prop_assert!(!seen.contains(&link.subject));
            seen.push(link.subject);
            below = link;
        }
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(name: &str, issuer: Option<&Authority>) -> Authority {
    let key = KeyPair::generate().unwrap();
    match issuer {
        Some(issuer) => CertifiedIssuer::signed_by(params(name), key, issuer).unwrap(),
        None => CertifiedIssuer::self_signed(params(name), key).unwrap(),
    }
}

fn leaf(issuer: &Authority) -> CertificateDer<'static> {
    let params = CertificateParams::new(["a.test".to_owned()]).unwrap();
    params.signed_by(&KeyPair::generate().unwrap(), issuer).unwrap().der().clone()
}

fn copy(key: &KeyPair) -> KeyPair {
    KeyPair::from_pem(&key.serialize_pem()).unwrap()
}

/// The line to an authority of the common name `anchor`, at the start of 2027.
fn line(
    own: &CertificateDer<'_>,
    others: &[CertificateDer<'_>],
    known: &[KnownIssuer],
    anchor: &str,
) -> Vec<CertificateDer<'static>> {
    let chain = PeerChain::parse(own, others).unwrap();
    let is_anchor = |name: &[u8]| {
        !anchor.is_empty() && name.windows(anchor.len()).any(|at| at == anchor.as_bytes())
    };
    let now = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));
    let line = chain.line(known, is_anchor, now);
    line.into_iter().map(|each| CertificateDer::from(each.der).into_owned()).collect()
}

fn certificate_error(fault: ChainFault) -> CertificateError {
    match Error::from(fault) {
        Error::InvalidCertificate(error) => error,
        other => panic!("{other}"),
    }
}
