//! The folders in which relative paths begin: [`Bases`].

use std::path::Path;

/// The folders that relative paths begin in.
#[derive(Default)]
pub(super) struct Bases {
    pub(super) authorities: Option<String>,
    pub(super) certificates: Option<String>,
}

impl Bases {
    /// The path of authorities, or Sealane's word for the system's.
    pub(super) fn authority(&self, path: &str) -> String {
        match path {
            "@system-ca" => "system".into(),
            path => based(path, self.authorities.as_deref()),
        }
    }

    /// The path of a certificate, or of a list of them.
    pub(super) fn certificate(&self, path: &str) -> String {
        based(path, self.certificates.as_deref())
    }
}

/// A path, below a folder if it is relative and there is one.
fn based(path: &str, base: Option<&str>) -> String {
    match base {
        Some(base) => Path::new(base).join(path).display().to_string(),
        None => path.to_owned(),
    }
}
