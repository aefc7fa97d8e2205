//! Errors of the authorities of clients and their revocation lists.

use std::path::PathBuf;

use sealane_certificate_files::CertificateFileError;
use sealane_engine::client_certificates::{CRLS_MAX, ClientRootsError, RevocationList};
use sealane_operator::timestamp::Timestamp;
use thiserror::Error;

/// Why clients cannot be asked for certificates as configured. The fault is the operator's.
#[derive(Debug, Error)]
pub(super) enum ClientTrustError {
    /// Authorities hand lists out in either form.
    #[error(
        "crls: {path} is in DER; write it in PEM: openssl crl -inform DER -in {path} -out FILE.pem"
    )]
    Der {
        /// The file.
        path: PathBuf,
    },
    /// A list that does not count any more.
    #[error("{0}; fetch a newer one, or say on_expired_crl = \"accept\"")]
    Ended(EndedList),
    /// A folder cannot be listed.
    #[error("crls: {folder}: {source}; let this user read it, or name another")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file with a list cannot be read.
    #[error("crls: {0}")]
    ListFile(CertificateFileError),
    /// A folder without a list.
    #[error(
        "crls: {folder} has no list (*.crl, *.pem); put those of your authorities there, or remove \
         it from crls if nothing is ever revoked"
    )]
    NoLists {
        /// The folder.
        folder: PathBuf,
    },
    /// A file without a certificate.
    #[error("roots: {label} has no certificate; put the authority's certificate in PEM there")]
    NoRoot {
        /// The file.
        label: String,
    },
    /// The files were read, but cannot be used.
    #[error("{}", with_key_of_listeners(.0))]
    Parsed(#[from] ClientRootsError),
    /// A file with authorities cannot be read.
    #[error("roots: {0}")]
    RootFile(CertificateFileError),
    /// A folder with more lists than are used.
    #[error("crls: {folder} has more than {CRLS_MAX} lists; remove those of others' authorities")]
    TooManyFiles {
        /// The folder.
        folder: PathBuf,
    },
    /// A list of an authority that did not sign it.
    #[error(
        "{label}: no certificate in roots has the key that signed its list of {issuer:?}, so it \
         does not count; fetch it again, or add the certificate of that key to roots"
    )]
    Unsigned {
        /// The name of the authority.
        issuer: String,
        /// The file.
        label: String,
    },
}

/// The text of an error, with the key `crls`, which programs that embed the engine call `crl`.
fn with_key_of_listeners(error: &ClientRootsError) -> String {
    let text = error.to_string();
    match text.strip_prefix("crl: ") {
        Some(what) => format!("crls: {what}"),
        None => text,
    }
}

/// A list with an overdue next update, as text.
#[derive(Debug)]
pub(super) struct EndedList {
    issuer: String,
    label: String,
    next_update_s: i64,
}

impl EndedList {
    pub(super) fn of(list: &RevocationList) -> Self {
        let (issuer, label) = (list.issuer_text.clone(), list.label.clone());
        Self { issuer, label, next_update_s: list.next_update_s }
    }
}

impl std::fmt::Display for EndedList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let day = day_of(self.next_update_s);
        write!(f, "{}: its list of {:?} ended on {day}", self.label, self.issuer)
    }
}

/// The day of a time in Unix seconds.
pub(super) fn day_of(unix_s: i64) -> String {
    let time = Timestamp::from_unix_s(unix_s).to_string();
    time.split('T').next().unwrap_or_default().to_owned()
}
