//! The client of the load, which holds every handshake against the one certificate that it must
//! show: the [`Examiner`], and the [`Plan`] around it.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use sealane_lab_harness::interrupt::Interrupt;
use sealane_lab_model::{
    error::Error,
    scenario::{Cipher, Group, Version},
};
use sealane_lab_servers::load::{Expect, Offer, Plan, Roots, Tls};

use crate::certificates::generation::Generation;

/// Believes a server if its chain ends in the lab's root, its certificate names the server that was
/// asked for, and it is the very one that was made for this name.
#[derive(Debug)]
pub(super) struct Examiner {
    chains: Arc<WebPkiServerVerifier>,
    /// By name, one of each generation.
    leaves: HashMap<String, Vec<CertificateDer<'static>>>,
}

impl Examiner {
    /// Takes the certificates of any of `generations`.
    ///
    /// # Errors
    /// The root is none.
    pub(super) fn new(
        root: Arc<RootCertStore>,
        generations: &[&Generation],
    ) -> Result<Arc<Self>, Error> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chains = WebPkiServerVerifier::builder_with_provider(root, provider)
            .build()
            .map_err(|error| Error::Check(format!("the lab's root: {error}")))?;
        let mut leaves: HashMap<String, Vec<_>> = HashMap::new();
        for generation in generations {
            for name in generation.names() {
                let chain = generation.find(name).map(|encoded| encoded.chain.as_slice());
                let leaf = chain.and_then(<[_]>::first);
                leaves.entry(name.clone()).or_default().extend(leaf.cloned());
            }
        }
        Ok(Arc::new(Self { chains, leaves }))
    }

    fn is_right(&self, leaf: &CertificateDer<'_>, name: &ServerName<'_>) -> bool {
        let ServerName::DnsName(name) = name else { return false };
        self.leaves.get(name.as_ref()).is_some_and(|leaves| leaves.iter().any(|one| one == leaf))
    }
}

impl ServerCertVerifier for Examiner {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if !self.is_right(leaf, name) {
            return Err(CertificateError::NotValidForName.into());
        }
        self.chains.verify_server_cert(leaf, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Connections to `address`, one for each of `names` in turn; without an examiner, no TLS.
///
/// # Errors
/// A name is none.
pub(super) fn plan(
    address: SocketAddr,
    examiner: Option<Arc<Examiner>>,
    names: &[&str],
) -> Result<Plan, Error> {
    let tls = examiner.map(|examiner| {
        let named = |name: &&str| ServerName::try_from((*name).to_owned());
        let names: Result<Vec<_>, _> = names.iter().map(named).collect();
        let names = names.map_err(|error| Error::Check(format!("server name: {error}")))?;
        let offer = Offer {
            version: Some(Version::Tls13),
            cipher: Some(Cipher::Aes128Gcm),
            group: Some(Group::X25519),
            alpn: Vec::new(),
            roots: Roots::Examined(examiner),
            hoards_tickets: false,
        };
        Ok(Tls { offer, names, resume: 0.0 })
    });
    let tls = tls.transpose()?;
    let expect = match &tls {
        None => Expect::default(),
        Some(_) => Expect {
            version: Some(Version::Tls13),
            group: Some(Group::X25519),
            resumed: Some(false),
            ..Expect::default()
        },
    };
    Ok(Plan {
        address,
        host: "lab.test".into(),
        tls,
        expect,
        // Failures are what some of the checks count.
        tolerant: true,
        interrupted: Interrupt::default(),
        seconds_apart: 0,
        progress: Arc::default(),
    })
}
