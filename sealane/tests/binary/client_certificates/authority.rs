//! Authorities of clients: what they issue, and the revocation lists that `openssl ca` makes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SerialNumber,
};

use crate::harness::tools::output;

/// An authority with a folder of its own for `openssl`.
pub(crate) struct ClientAuthority {
    folder: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A client's chain, its own certificate first, and its key; all in PEM.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) chain: Vec<String>,
    pub(crate) key: String,
}

impl Shown {
    /// With the certificates of more issuers behind it.
    pub(crate) fn with(mut self, issuers: &[&ClientAuthority]) -> Self {
        self.chain.extend(issuers.iter().map(|each| each.pem()));
        self
    }

    /// Writes the own certificate, the others and the key beside each other.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> [PathBuf; 3] {
        let files = ["crt", "chain", "key"].map(|ending| folder.join(format!("{name}.{ending}")));
        std::fs::write(&files[0], &self.chain[0]).unwrap();
        std::fs::write(&files[1], self.chain[1..].concat()).unwrap();
        std::fs::write(&files[2], &self.key).unwrap();
        files
    }

    pub(crate) fn pem(&self) -> String {
        self.chain.concat() + &self.key
    }
}

impl ClientAuthority {
    pub(crate) fn root(folder: &Path, name: &str) -> Self {
        let (params, key) = (params_of(name), KeyPair::generate().unwrap());
        Self::kept(folder, CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// An authority below this one, after `change`.
    pub(crate) fn below(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut params = params_of(name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::signed_by(params, key, &self.issuer).unwrap();
        Self::kept(self.folder.parent().unwrap(), issuer)
    }

    fn kept(folder: &Path, issuer: CertifiedIssuer<'static, KeyPair>) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = folder.join(format!("authority-{number}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        std::fs::write(folder.join("ca.key"), issuer.key().serialize_pem()).unwrap();
        Self { folder, issuer }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A client's certificate with the common name and number of `serial`, after `change`.
    pub(crate) fn issue(&self, serial: u64, change: impl FnOnce(&mut CertificateParams)) -> Shown {
        self.issue_for(serial, &KeyPair::generate().unwrap(), change)
    }

    pub(crate) fn issue_for(
        &self,
        serial: u64,
        key: &KeyPair,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Shown {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("client {serial}"));
        params.serial_number = Some(SerialNumber::from(serial));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let leaf = params.signed_by(key, &self.issuer).unwrap();
        Shown { chain: vec![leaf.pem()], key: key.serialize_pem() }
    }

    /// A certificate of X.509 version 1, which `openssl x509` makes of a request.
    pub(crate) fn issue_version_1(&self) -> Shown {
        let (request, key) = (self.folder.join("v1.csr"), self.folder.join("v1.key"));
        output(
            Command::new("openssl")
                .args(["req", "-new", "-nodes", "-newkey", "ec"])
                .args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=v1", "-keyout"])
                .arg(&key)
                .arg("-out")
                .arg(&request),
        );
        let leaf = output(
            Command::new("openssl")
                .args(["x509", "-req", "-set_serial", "7", "-in"])
                .arg(&request)
                .arg("-CA")
                .arg(self.folder.join("ca.pem"))
                .arg("-CAkey")
                .arg(self.folder.join("ca.key")),
        );
        Shown { chain: vec![leaf], key: std::fs::read_to_string(key).unwrap() }
    }

    /// A list that has these numbers, and is in date.
    pub(crate) fn list(&self, revoked: &[u64]) -> String {
        self.list_until(revoked, "20991231235959Z")
    }

    /// A list whose next update is due at a time.
    pub(crate) fn list_until(&self, revoked: &[u64], next_update: &str) -> String {
        self.list_between(revoked, "20200101000000Z", next_update)
    }

    /// The same with a first date.
    pub(crate) fn list_between(&self, revoked: &[u64], from: &str, next_update: &str) -> String {
        let mut index = String::new();
        for serial in revoked {
            let serial = format!("{serial:04X}");
            writeln!(index, "R\t991231235959Z\t240101000000Z\t{serial}\tunknown\t/CN=x").unwrap();
        }
        std::fs::write(self.folder.join("index.txt"), index).unwrap();
        // Each list is newer than those before.
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        std::fs::write(self.folder.join("number"), format!("{number:04X}\n")).unwrap();
        let at = self.folder.display();
        let config = format!(
            "[ca]\ndefault_ca = own\n[own]\ndatabase = {at}/index.txt\ncrlnumber = {at}/number\n\
             default_md = sha256\ncrl_extensions = crl\n[crl]\nauthorityKeyIdentifier = keyid\n"
        );
        std::fs::write(self.folder.join("ca.cnf"), config).unwrap();
        output(
            Command::new("openssl")
                .args(["ca", "-gencrl", "-crl_lastupdate", from])
                .args(["-crl_nextupdate", next_update, "-config"])
                .arg(self.folder.join("ca.cnf"))
                .arg("-keyfile")
                .arg(self.folder.join("ca.key"))
                .arg("-cert")
                .arg(self.folder.join("ca.pem")),
        )
    }
}

fn params_of(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}
