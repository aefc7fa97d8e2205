//! An [`Authority`] that makes certificates for many names, with P-256 keys: those are made
//! fastest. The authority's own may be of any type.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use sealane_lab_model::{error::Error, scenario::Key};

use crate::issuance::key_pair;

/// A key and a certificate that sign others.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// One that signs itself.
    pub fn root(common_name: &str, key: Key) -> Result<Self, Error> {
        let made = CertifiedIssuer::self_signed(params(common_name), key_pair(key)?);
        made.map(Self).map_err(|error| wrong(&error))
    }

    /// One that this one signs.
    pub fn below(&self, common_name: &str, key: Key) -> Result<Self, Error> {
        let made = CertifiedIssuer::signed_by(params(common_name), key_pair(key)?, &self.0);
        made.map(Self).map_err(|error| wrong(&error))
    }

    /// The authority's own certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server's certificate for `name`, and behind it its new key; PEM.
    pub fn leaf(&self, name: &str) -> Result<String, Error> {
        let made = || {
            let mut leaf = CertificateParams::new(vec![name.to_owned()])?;
            leaf.distinguished_name.push(DnType::CommonName, name);
            leaf.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)?;
            Ok(leaf.signed_by(&key, &self.0)?.pem() + &key.serialize_pem())
        };
        made().map_err(|error| wrong(&error))
    }
}

fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

fn wrong(error: &rcgen::Error) -> Error {
    Error::Check(format!("make a certificate: {error}"))
}
