//! The names that the client asks a counted server for, and their certificates.

use std::{fs, path::Path};

use rustls::pki_types::ServerName;
use sealane_lab_harness::{
    authority::Authority,
    credentials::{Credentials, SERVER_NAME},
};
use sealane_lab_model::{error::Error, scenario::Key};

/// Writes a certificate with its key for each of `count` names to [`FOLDER`] in `folder`, and adds
/// their authority to the roots of `credentials`. If `count` is 0, the only name is `localhost`.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write(
    folder: &Path,
    count: u64,
    credentials: &Credentials,
) -> Result<Vec<ServerName<'static>>, Error> {
    if count == 0 {
        return Ok(vec![server_name(SERVER_NAME.to_owned())?]);
    }
    let folder = folder.join(FOLDER);
    fs::create_dir(&folder).map_err(Error::file(&folder))?;
    let root = Authority::root("Sealane lab root of names", Key::P256)?;
    let roots_file = credentials.root();
    let roots = fs::read_to_string(&roots_file).map_err(Error::file(&roots_file))?;
    fs::write(&roots_file, roots + &root.pem()).map_err(Error::file(&roots_file))?;
    let write = |number: u64| {
        let name = format!("n{number}.{SERVER_NAME}");
        let file = folder.join(format!("{name}.pem"));
        fs::write(&file, root.leaf(&name)?).map_err(Error::file(&file))?;
        server_name(name)
    };
    (0..count).map(write).collect()
}

fn server_name(name: String) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(name).map_err(|error| Error::Check(format!("server name: {error}")))
}

/// The folder's name.
pub(super) const FOLDER: &str = "names";
