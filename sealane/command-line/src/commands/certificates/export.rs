//! `sealane certificates export`: chains, and on demand their private keys, back into PEM.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use sealane_engine::certificates::CertificateStore as _;
use sealane_store::{KeyedStore, Listed, pem_text};
use tracing::info;

use super::place::{Scratch, at, rename, sync_folder};
use super::{Place, Progress, Refusal, each_by_expiry};
use crate::args::ExportArguments;
use crate::commands::counted;
use crate::exit::Exit;

pub(super) fn export(arguments: &ExportArguments, out: &mut dyn Write) -> Result<Exit, Refusal> {
    let store = Place::of_key(&arguments.key)?.keyed()?;
    let Some(folder) = &arguments.to else {
        let export = Export { arguments, store: &store };
        return export.each(|_, text| Ok(out.write_all(text)?));
    };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(at(folder, &error));
        }
        _ => {}
    }
    let scratch = Scratch::beside(&folder.join("export"))?;
    let beside = scratch.path().join("certificate.pem");
    let (mut count, mut unnamed) = (0, 0);
    let exit = Export { arguments, store: &store }.each(|listed, text| {
        match file_name(listed) {
            Ok(name) => {
                write_new(&beside, text).map_err(|error| at(&beside, &error))?;
                rename(&beside, &folder.join(name), arguments.replace)?;
                count += 1;
            }
            Err(why) => {
                info!("{why}");
                unnamed += 1;
            }
        }
        Ok(())
    })?;
    sync_folder(folder).map_err(|error| at(folder, &error))?;
    writeln!(out, "{} in {}", counted(count, "file"), folder.display())?;
    Ok(if unnamed > 0 { Exit::Failed } else { exit })
}

/// What is exported, and from where.
struct Export<'a> {
    arguments: &'a ExportArguments,
    store: &'a KeyedStore,
}

impl Export<'_> {
    /// Gives each certificate that is asked for to `take`, as PEM. One that does not open is said,
    /// and does not end the export.
    fn each(
        &self,
        mut take: impl FnMut(&Listed, &[u8]) -> Result<(), Refusal>,
    ) -> Result<Exit, Refusal> {
        let store = self.store.store();
        let total = store.summary()?.certificates;
        let mut progress = Progress::new("exported", Some(total));
        let mut exit = Exit::Ok;
        let mut one = |listed: &Listed| {
            match self.store.view().and_then(|view| view.open(listed.digest)) {
                Ok(opened) => {
                    let key = self.arguments.private_keys.then_some(&opened.key);
                    take(listed, &pem_text(opened.chain.iter().map(|der| &**der), key))?;
                }
                Err(_) => {
                    let names = listed.names.join(", ");
                    info!("{names}: does not open; see: sealane certificates verify");
                    exit = Exit::Failed;
                }
            }
            progress.step(1);
            Ok(())
        };
        for name in &self.arguments.names {
            let found = store.find(name)?;
            if found.is_empty() {
                let path = store.path().display();
                return Err(Refusal::Said(format!("{path}: nothing is served for {name}")));
            }
            found.iter().try_for_each(&mut one)?;
        }
        if self.arguments.names.is_empty() {
            each_by_expiry(store, |listed| one(listed).map(|()| true))?;
        }
        Ok(exit)
    }
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

/// A name that no other certificate of the store has: for a name and a kind of key it has one. `+`
/// stands for the star of a wildcard: it is in no name.
///
/// # Errors
/// The certificate's name can be none of a file.
fn file_name(listed: &Listed) -> Result<String, String> {
    let name = listed.names.first().map(String::as_str).unwrap_or_default();
    // Names of certificates are no paths, but whoever can write to the store can put one there.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.*".contains(&byte);
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_plain) {
        return Err(format!("{name:?}: no host name, so no file is named after it"));
    }
    let key_type = listed.key_type.to_string().to_ascii_lowercase().replace(' ', "-");
    let name = format!("{}.{key_type}.pem", name.replace('*', "+"));
    match name.len() {
        0..=FILE_NAME_BYTES_MAX => Ok(name),
        _ => Err(format!("{name}: is too long for a file; export it by its name, without --to")),
    }
}

/// Linux's limit.
const FILE_NAME_BYTES_MAX: usize = 255;
