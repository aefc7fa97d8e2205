//! Fixtures shared by the tests of the certificate store.

mod find;
mod keys;
mod lane;
mod store;

use std::sync::Arc;

use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, SignatureAlgorithm, date_time_ymd,
};
use rustls::crypto::CryptoProvider;

use super::*;
use crate::policy::Group;
use crate::provider::{ProviderChoice, lane_provider};
use crate::tickets::{LaneClock, UnixSeconds};

const NOW_S: i64 = 1_800_000_000;

fn providers() -> [CryptoProvider; 2] {
    [ProviderChoice::AwsLc, ProviderChoice::Graviola]
        .map(|choice| lane_provider(choice, &Group::ALL).unwrap().crypto)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// A lane's clock at [`NOW_S`].
fn clock() -> Arc<LaneClock> {
    Arc::new(LaneClock::new(UnixSeconds(NOW_S.unsigned_abs())))
}

/// A self-signed certificate with its key, as PEM.
fn pem(algorithm: &'static SignatureAlgorithm, names: &[&str]) -> String {
    pem_for(&KeyPair::generate_for(algorithm).unwrap(), names)
}

fn pem_p256(names: &[&str]) -> String {
    pem(&PKCS_ECDSA_P256_SHA256, names)
}

fn pem_for(key: &KeyPair, names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names).unwrap().self_signed(key).unwrap();
    certificate.pem() + &key.serialize_pem()
}

/// A certificate that is valid from one year to another; [`NOW_S`] is in January 2027.
fn pem_dated(algorithm: &'static SignatureAlgorithm, name: &str, years: (i32, i32)) -> String {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.not_before = date_time_ymd(years.0, 1, 1);
    params.not_after = date_time_ymd(years.1, 1, 1);
    params.self_signed(&key).unwrap().pem() + &key.serialize_pem()
}

/// Indexes texts labelled a, b, c ...
fn indexed(texts: &[&str]) -> Indexed {
    let provider = provider();
    let mut builder = IndexBuilder::new(&provider, NOW_S);
    for (label, text) in ('a'..='z').zip(texts) {
        builder.add(&label.to_string(), text.as_bytes());
    }
    builder.finish(DefaultCertificate::First)
}

/// Indexes texts that must all be in order.
fn index(texts: &[&str]) -> CertificateIndex {
    let Indexed { errors, index, .. } = indexed(texts);
    assert_eq!(errors, []);
    index
}

fn labels(found: &[Arc<Certificate>]) -> String {
    found.iter().map(|certificate| certificate.label()).collect()
}

/// A file of the directory testdata/certificates.
macro_rules! testdata {
    ($file:literal) => {
        include_str!(concat!("../../../../testdata/certificates/", $file))
    };
}
use testdata;
