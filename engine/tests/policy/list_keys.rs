//! Revocation lists of several keys, scopes and dates: which of them counts for a certificate.

use std::cell::Cell;
use std::sync::Arc;

use base64::Engine as _;
use rcgen::{
    CertificateParams, CertificateRevocationListParams, CertifiedIssuer, CrlDistributionPoint,
    CrlIssuingDistributionPoint, CrlScope, DnType, IsCa, KeyIdMethod, KeyPair, RevokedCertParams,
    SerialNumber, SigningKey as _, date_time_ymd,
};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{
    AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, UnixTime, alg_id,
};
use rustls::version::TLS13;
use rustls::{CertificateError, Error};
use sealane_engine::client_certificates::{ClientRoots, Distrust};
use sealane_engine::policy::ClientCertificates;
use sealane_engine::provider::ProviderChoice;
use x509_parser::prelude::{CertificateRevocationList, FromDer as _};

use crate::ED25519;
use crate::clients::{Authority, Identity, REVOKED, asking, revoked, unverified};
use crate::rig::{Client, NOW, Server};

/// The params of a list of 2025 that revokes [`REVOKED`], or nothing.
fn list(number: u64, revokes: bool) -> CertificateRevocationListParams {
    let this_update = date_time_ymd(2025, 1, 1);
    let entry = RevokedCertParams {
        serial_number: SerialNumber::from(REVOKED),
        revocation_time: this_update,
        reason_code: None,
        invalidity_date: None,
    };
    CertificateRevocationListParams {
        this_update,
        next_update: date_time_ymd(2030, 1, 1),
        crl_number: SerialNumber::from(number),
        issuing_distribution_point: None,
        revoked_certs: if revokes { vec![entry] } else { Vec::new() },
        // The same for all keys, so that it identifies none.
        key_identifier_method: KeyIdMethod::PreSpecified(vec![1]),
    }
}

fn pem(params: &CertificateRevocationListParams, issuer: &Authority) -> String {
    params.signed_by(&issuer.0).unwrap().pem().unwrap()
}

/// The verdict on a client with the serial number [`REVOKED`], or another one.
fn verdict(roots: &ClientRoots, identity: &Identity, now_s: u64) -> Result<(), CertificateError> {
    verdict_by(&aws_lc_rs::default_provider(), roots, identity, now_s)
}

fn verdict_by(
    provider: &CryptoProvider,
    roots: &ClientRoots,
    identity: &Identity,
    now_s: u64,
) -> Result<(), CertificateError> {
    let (own, others) = identity.chain.split_first().unwrap();
    let verifier = roots.verifier(provider);
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now_s));
    match verifier.verify_client_cert(own, others, now) {
        Ok(_) => Ok(()),
        Err(Error::InvalidCertificate(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

fn read(ca: &[&Authority], crls: &[&str]) -> ClientRoots {
    let ca: Vec<_> = ca.iter().map(|authority| authority.pem()).collect();
    let ca: Vec<_> = ca.iter().map(String::as_bytes).collect();
    let crls: Vec<_> = crls.iter().map(|crl| crl.as_bytes()).collect();
    ClientRoots::from_pem(&ca, &crls).unwrap()
}

#[test]
fn crl_of_another_key_hides_none() {
    let [old, new] = Authority::with_one_name();
    let lists = [pem(&list(1, true), &old), pem(&list(9, false), &new)];
    let clients = [old.issue(revoked), old.issue(|_| ()), new.issue(revoked)];
    for lists in [[&*lists[0], &*lists[1]], [&*lists[1], &*lists[0]]] {
        let roots = read(&[&old, &new], &lists);
        let found = clients.each_ref().map(|client| verdict(&roots, client, NOW.0));
        assert_eq!(found, [Err(CertificateError::Revoked), Ok(()), Ok(())]);
        assert!(roots.superseded(NOW.0.cast_signed()).is_empty());
        assert_eq!(roots.lists(NOW.0.cast_signed()).len(), 2);
    }
}

/// The issuer's key comes with the chain: which list it signed is found out in the handshake.
#[test]
fn crl_of_a_sent_issuer_is_found_by_its_key() {
    let root = Authority::new();
    let between = || {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "between");
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::signed_by(params, key, &root.0).unwrap())
    };
    let [old, new] = [between(), between()];
    let lists =
        [pem(&list(1, true), &old), pem(&list(9, false), &new), pem(&list(1, false), &root)];
    let roots = read(&[&root], &lists.each_ref().map(String::as_str));
    let found = [(&old, true), (&old, false), (&new, true)].map(|(issuer, is_revoked)| {
        let mut client = issuer.issue(|leaf| {
            if is_revoked {
                revoked(leaf);
            }
        });
        client.chain.push(issuer.0.der().clone());
        verdict(&roots, &client, NOW.0)
    });
    assert_eq!(found, [Err(CertificateError::Revoked), Ok(()), Ok(())]);
}

#[test]
fn crl_with_a_wrong_signature_hides_none() {
    let [ours, stranger] = Authority::with_one_name();
    let (good, forged) = (pem(&list(1, true), &ours), pem(&list(9, false), &stranger));
    let roots = read(&[&ours], &[&good, &forged]);
    assert_eq!(verdict(&roots, &ours.issue(revoked), NOW.0), Err(CertificateError::Revoked));
    assert_eq!(verdict(&roots, &ours.issue(|_| ()), NOW.0), Ok(()));
    let labels = |lists: Vec<sealane_engine::client_certificates::RevocationList>| {
        lists.into_iter().map(|list| list.label).collect::<Vec<_>>()
    };
    assert_eq!(labels(roots.unsigned()), ["crl[1]"]);
    assert_eq!(labels(roots.lists(NOW.0.cast_signed())), ["crl[0]"]);
    assert_eq!(labels(roots.superseded(NOW.0.cast_signed())), [""; 0]);
    let roots = Arc::new(read(&[&ours], &[&forged]));
    let server =
        Server::new(ProviderChoice::Auto, asking(ClientCertificates::Asked(roots)), &ED25519);
    let client = Client { identity: Some(ours.issue(|_| ()).resolver()), ..Client::default() };
    let session = server.accept(&client, "a.test", &TLS13).unwrap();
    assert_eq!(server.context.standing(&session), unverified(Distrust::BadCrlSignature));
}

/// ECDSA with P-256 and SHA-256 that counts the signatures of each thread.
#[derive(Debug)]
struct Counted;

thread_local!(static VERIFIED: Cell<usize> = const { Cell::new(0) });

impl SignatureVerificationAlgorithm for Counted {
    fn verify_signature(
        &self,
        key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        VERIFIED.set(VERIFIED.get() + 1);
        let all = aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let mut fitting = all.iter().filter(|each| {
            each.public_key_alg_id() == self.public_key_alg_id()
                && each.signature_alg_id() == self.signature_alg_id()
        });
        fitting.next().unwrap().verify_signature(key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_P256
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::ECDSA_SHA256
    }
}

/// A handshake verifies a list only with a key that was not there when the list was read.
#[test]
fn crl_is_tried_with_configured_keys_once() {
    let [ours, stranger] = Authority::with_one_name();
    let [good, forged] = [&ours, &stranger].map(|issuer| pem(&list(1, false), issuer));
    let roots = read(&[&ours], &[&good, &forged]);
    let mut provider = aws_lc_rs::default_provider();
    provider.signature_verification_algorithms =
        WebPkiSupportedAlgorithms { all: &[&Counted], mapping: &[] };
    let client = ours.issue(|_| ());
    assert_eq!(verdict_by(&provider, &roots, &client, NOW.0), Ok(()));
    assert_eq!(VERIFIED.get(), 1, "the certificate alone");
}

#[test]
fn crl_of_the_future_counts_from_its_date() {
    let ours = Authority::new();
    let mut of_tomorrow = list(9, false);
    of_tomorrow.this_update = date_time_ymd(2028, 1, 1);
    let roots = read(&[&ours], &[&pem(&list(1, true), &ours), &pem(&of_tomorrow, &ours)]);
    let client = ours.issue(revoked);
    let (before, after) = (NOW.0, NOW.0 + 366 * 86_400);
    assert_eq!(verdict(&roots, &client, before), Err(CertificateError::Revoked));
    assert_eq!(verdict(&roots, &client, after), Ok(()));
    let superseded = [before, after].map(|now_s| roots.superseded(now_s.cast_signed()).len());
    assert_eq!(superseded, [0, 1]);
    let alone = read(&[&ours], &[&pem(&of_tomorrow, &ours)]);
    let unknown = Err(CertificateError::UnknownRevocationStatus);
    assert_eq!(verdict(&alone, &client, before), unknown);
}

/// A list without a distribution point, for certificates of users or of authorities alone.
fn scoped(number: u64, revokes: bool, scope: CrlScope, issuer: &Authority) -> String {
    let mut params = list(number, revokes);
    let distribution_point = CrlDistributionPoint { uris: vec![String::new()] };
    let flag = match scope {
        CrlScope::UserCertsOnly => 0x81,
        CrlScope::CaCertsOnly => 0x82,
    };
    params.issuing_distribution_point =
        Some(CrlIssuingDistributionPoint { distribution_point, scope: Some(scope) });
    let mut der = params.signed_by(&issuer.0).unwrap().der().to_vec();
    // A point with an empty name becomes two flags that are not set, of the same length.
    let with_point = [0xa0, 4, 0xa0, 2, 0x86, 0, flag, 1, 0xff];
    let without: Vec<u8> = match flag {
        0x81 => vec![flag, 1, 0xff, 0x84, 1, 0, 0x85, 1, 0],
        _ => vec![0x81, 1, 0, flag, 1, 0xff, 0x84, 1, 0],
    };
    let at = der.windows(9).position(|bytes| bytes == with_point).unwrap();
    der[at..at + 9].copy_from_slice(&without);
    let (_, parsed) = CertificateRevocationList::from_der(&der).unwrap();
    let message = parsed.tbs_cert_list.as_ref();
    let signature = issuer.0.key().sign(message).unwrap();
    // ecdsa-with-SHA256.
    let algorithm = [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let mut content = [message, &algorithm].concat();
    content.extend([3, u8::try_from(signature.len() + 1).unwrap(), 0]);
    content.extend(signature);
    let header = match u16::try_from(content.len()).unwrap().to_be_bytes() {
        [0, len] => vec![0x30, 0x81, len],
        [high, low] => vec![0x30, 0x82, high, low],
    };
    let der = [header, content].concat();
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<_> = body.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN X509 CRL-----\n{}\n-----END X509 CRL-----\n", lines.join("\n"))
}

#[test]
fn crl_counts_for_its_scope_alone() {
    let root = Authority::new();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "between");
    revoked(&mut params);
    let key = KeyPair::generate().unwrap();
    let between = Authority(CertifiedIssuer::signed_by(params, key, &root.0).unwrap());
    let mut below = between.issue(|_| ());
    below.chain.push(between.0.der().clone());
    let of_between = pem(&list(1, false), &between);
    let users = |revokes| scoped(1, revokes, CrlScope::UserCertsOnly, &root);
    let authorities = |number, revokes| scoped(number, revokes, CrlScope::CaCertsOnly, &root);
    let unknown = || Err(CertificateError::UnknownRevocationStatus);
    let own = root.issue(revoked);
    for (lists, of_own, of_below) in [
        (vec![users(true)], Err(CertificateError::Revoked), unknown()),
        (vec![authorities(1, true)], unknown(), Err(CertificateError::Revoked)),
        (vec![users(false), authorities(9, true)], Ok(()), Err(CertificateError::Revoked)),
        (vec![users(true), authorities(9, false)], Err(CertificateError::Revoked), Ok(())),
    ] {
        let lists: Vec<_> = lists.iter().chain([&of_between]).map(String::as_str).collect();
        let roots = read(&[&root], &lists);
        let found = [&own, &below].map(|client| verdict(&roots, client, NOW.0));
        assert_eq!(found, [of_own, of_below], "{lists:?}");
    }
}
