//! Keys, requests for certificates, and what comes of them.

use std::sync::Arc;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use rcgen::{
    CertificateParams, CustomExtension, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, RsaKeySize,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use sealane_engine::certificates::{Certificate, DefaultCertificate, IndexBuilder};
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use zeroize::Zeroizing;

use crate::failure::{Failed, plain};
use crate::secret::Secret;
use crate::settings::KeyKind;
use crate::trust::our_provider;

/// Makes a key for one certificate.
pub(crate) fn new_key(kind: KeyKind) -> Result<Secret, Failed> {
    let made = match kind {
        KeyKind::P256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        KeyKind::P384 => KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384),
        KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
    };
    let made = made.map_err(|error| Failed::ours(format!("no key can be made: {error}")))?;
    let made = Zeroizing::new(made);
    Ok(Secret(made.serialize_der()))
}

/// The request for a certificate with these names and this key, in DER.
pub(crate) fn request(names: &[String], key: &Secret) -> Result<Vec<u8>, Failed> {
    let made = || {
        let pair = KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.0.as_slice()))?;
        let pair = Zeroizing::new(pair);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = DistinguishedName::new();
        Ok(params.serialize_request(&*pair)?.der().to_vec())
    };
    made().map_err(|error: rcgen::Error| Failed::ours(format!("no request can be made: {error}")))
}

/// The certificate for a handshake that shows that `name` is the operator's (RFC 8737), with its
/// key, in PEM.
pub(crate) fn challenge_pem(name: &str, digest: &[u8]) -> Result<Zeroizing<Vec<u8>>, Failed> {
    let made = || {
        let pair = Zeroizing::new(KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?);
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name = DistinguishedName::new();
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = Zeroizing::new(pair.serialize_pem());
        let certificate = params.self_signed(&*pair)?.pem();
        Ok(Zeroizing::new([certificate.as_bytes(), key.as_bytes()].concat()))
    };
    made().map_err(|error: rcgen::Error| {
        Failed::ours(format!("{name}: no challenge certificate can be made: {error}"))
    })
}

/// Joins the chain of an authority with the key that was made for it, and checks that they are what
/// was ordered.
pub(crate) fn join(
    chain: &str,
    key: &Secret,
    names: &[String],
    label: &str,
    now_s: i64,
) -> Result<Arc<Certificate>, Failed> {
    // The authority would hand out the same again: another is ordered.
    let refused = |what: String| {
        let failed = Failed::later(format!("{label}: the CA's certificate: {what}"));
        Failed { ends_order: true, ..failed }
    };
    let key = {
        let pair = KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.0.as_slice()));
        let pair = pair.map_err(|error| Failed::ours(format!("{label}: {error}")))?;
        let pair = Zeroizing::new(pair);
        Zeroizing::new(pair.serialize_pem())
    };
    let provider = our_provider().map_err(|error| Failed::ours(error.to_string()))?;
    let mut builder = IndexBuilder::new(&provider, now_s);
    builder.add_pair(label, chain.as_bytes(), label, key.as_bytes());
    let indexed = builder.finish(DefaultCertificate::Absent);
    if let Some(error) = indexed.errors.first() {
        return Err(refused(error.to_string()));
    }
    let Some(certificate) = indexed.index.iter().next() else {
        return Err(refused("it sent none".into()));
    };
    certificate.verify(&provider).map_err(|error| refused(error.to_string()))?;
    let has = |name: &&String| certificate.names().iter().any(|has| **has == ***name);
    if let Some(missing) = names.iter().find(|name| !has(name)) {
        return Err(refused(format!("{missing} is not in it")));
    }
    // It would replace a certificate that another table or another person has put there.
    let is_ordered = |has: &&Arc<str>| names.iter().any(|name| **name == ***has);
    if let Some(other) = certificate.names().iter().find(|has| !is_ordered(has)) {
        let other = plain(other);
        return Err(refused(format!("{other} is in it, which was not ordered; ask another CA")));
    }
    if certificate.not_after_s() <= now_s {
        return Err(refused("it has expired: is this machine's clock right?".into()));
    }
    Ok(Arc::clone(certificate))
}

/// By which an authority knows a certificate (RFC 9773, 4.1), in base64url.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownAs {
    /// The identifier of the authority's key.
    pub(crate) authority: String,
    /// The serial number.
    pub(crate) serial: String,
}

/// By which its authority knows a certificate in DER; none if it does not name that one's key.
pub(crate) fn known_as(leaf: &[u8]) -> Option<KnownAs> {
    let (_, parsed) = X509Certificate::from_der(leaf).ok()?;
    let mut extensions = parsed.iter_extensions();
    let authority = extensions.find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityKeyIdentifier(found) => found.key_identifier.as_ref(),
        _ => None,
    })?;
    let text = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let serial = text(parsed.tbs_certificate.raw_serial());
    Some(KnownAs { authority: text(authority.0), serial })
}
