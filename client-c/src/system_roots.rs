//! The authorities that this system believes.

use std::fs;
use std::io::Read;
use std::path::Path;

use sealane_engine::client::{ROOTS_BYTES_MAX, Roots};

use crate::failure::{Failure, Status};

/// The first bundle that is there.
pub(crate) fn read() -> Result<Roots, Failure> {
    let Some(path) = BUNDLES.iter().find(|path| Path::new(path).is_file()) else {
        let text = "roots_system: no bundle of authorities is where systems have it; install \
                    ca-certificates, or give roots_pem";
        return Err(Failure::new(Status::Options, text));
    };
    let mut text = Vec::new();
    let file = fs::File::open(path);
    file.and_then(|file| file.take(ROOTS_BYTES_MAX as u64 + 1).read_to_end(&mut text))
        .map_err(|error| Failure::new(Status::Options, format!("roots_system: {path}: {error}")))?;
    Ok(Roots::from_pem(path, &text)?)
}

/// Places of the bundles on systems: Debian and Alpine, Fedora, openSUSE, BSD.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
