//! The work that rustls-webpki does to find no path: the chains of
//! `engine/reports/rustls-webpki.md`, each verified once, with the processor's time for it. It uses
//! no code of Sealane.
//!
//! `cargo run --release -p sealane-engine --example webpki_paths`, half a minute.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "it shows one fault, and nobody else calls it"
)]

use std::time::Instant;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, anchor_from_trusted_cert};

fn main() {
    for (same, others) in [(10, 0), (8, 600), (10, 1_400)] {
        let (leaf, intermediates) = chain(same, others);
        let sent = leaf.len() + intermediates.iter().map(|der| der.len()).sum::<usize>();
        let another = issuer("another");
        let anchors = [anchor_from_trusted_cert(another.der()).unwrap()];
        let end_entity = EndEntityCert::try_from(&leaf).unwrap();
        let started = Instant::now();
        let verified = end_entity.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            &anchors,
            &intermediates,
            UnixTime::now(),
            KeyUsage::client_auth(),
            None,
            None,
        );
        let (seconds, error) = (started.elapsed().as_secs_f64(), verified.err().unwrap());
        println!("{same} of one name and {others} others, {sent} bytes: {seconds:.2} s, {error:?}");
    }
}

/// A client's certificate, and `same` that name each other as issuer before `others` that are none.
fn chain(same: usize, others: usize) -> (CertificateDer<'static>, Vec<CertificateDer<'static>>) {
    let issuers: Vec<_> = (0..same).map(|_| issuer("same")).collect();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(["a.test".into()]).unwrap().signed_by(&key, &issuers[0]);
    let mut intermediates: Vec<_> = issuers.iter().map(|each| each.der().clone()).collect();
    let other = CertificateDer::from([&[0x30, 27][..], &[0; 27]].concat());
    intermediates.extend(std::iter::repeat_n(other, others));
    (leaf.unwrap().der().clone(), intermediates)
}

fn issuer(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}
