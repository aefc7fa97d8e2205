//! Where certificates come from: files, directories, pairs of files, and certificate stores.

use std::path::{Path, PathBuf};

use sealane_certificate_files::CertificateSource;
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};
use sealane_store::NAMES_SOCKET;

use crate::claims::Claims;
use crate::value;

/// Files and directories, and a store if there is one.
pub(crate) fn certificates(
    table: &mut Table<'_>,
    needs_none: bool,
) -> Option<(Vec<CertificateSource>, Option<PathBuf>)> {
    if needs_none && table.value("certificates").is_none() {
        return Some((Vec::new(), None));
    }
    let example = "certificates = [\"/etc/sealane/certificates\"]";
    let written = table.required("certificates", example)?;
    let mut store = None;
    let mut files = Vec::new();
    let sources = written.set(SOURCES_MAX, |v| match store_path(v) {
        None => certificate_source(v).map(|source| (Some(source), None)),
        Some(path) => Some((None, Some(path?))),
    })?;
    for (file, path) in sources {
        files.extend(file);
        if store.is_some() && path.is_some() {
            written.wrong(Problem::new("two stores are named", STORES_REMEDY));
        }
        store = store.or(path);
    }
    Some((files, store))
}

/// The folder in `store:PATH`; the outer none for what is no store, the inner one for a mistake.
pub(crate) fn store_path(written: &Value<'_>) -> Option<Option<PathBuf>> {
    let text = written.as_text()?.strip_prefix("store:")?;
    Some(written.path_of(text))
}

pub(crate) fn certificate_source(written: &Value<'_>) -> Option<CertificateSource> {
    if !written.is_table() {
        return written.path().map(CertificateSource::Path);
    }
    written.table(|table| {
        let chain = table.required("chain", "chain = \"FILE\"").and_then(|v| v.path());
        let key = table.required("key", "key = \"FILE\"").and_then(|v| v.path());
        Some(CertificateSource::Pair { chain: chain?, key: key? })
    })
}

/// Certificates on demand come by a store, in whose folder their names are told.
pub(crate) fn on_demand(table: &mut Table<'_>, store: Option<&Path>, claims: &mut Claims) -> bool {
    let Some(written) = table.value("on_demand") else { return false };
    let on_demand = written.boolean().unwrap_or(false);
    match store.filter(|_| on_demand) {
        None if on_demand => written.wrong(Problem::new(
            "means nothing without a certificate store, by which such certificates come",
            "write certificates = [\"store:PATH\"] too, or remove it",
        )),
        None => {}
        Some(store) => {
            let socket = store.join(NAMES_SOCKET);
            let bytes = socket.as_os_str().len();
            if bytes > value::UNIX_PATH_BYTES_MAX {
                let what =
                    format!("{} is where names are told, and has {bytes} bytes", socket.display());
                let max = value::UNIX_PATH_BYTES_MAX;
                let remedy = format!("choose a store whose socket has at most {max}");
                written.wrong(Problem::new(what, remedy));
            }
            claims.on_demand(store, &written);
        }
    }
    on_demand
}

/// Files and directories with certificates of one listener.
const SOURCES_MAX: usize = 10_000;

/// A listener has one store at most, so that there is one answer to who serves a name.
pub(crate) const STORES_REMEDY: &str = "import into one store, or use two listeners";
