//! Where certificates come from: files, directories, pairs of files, and certificate stores.

use std::path::PathBuf;

use sealane_certificate_files::CertificateSource;
use sealane_operator::mistake::Problem;
use sealane_operator::reader::{Table, Value};

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

/// Files and directories with certificates of one listener.
const SOURCES_MAX: usize = 10_000;

/// A listener has one store at most, so that there is one answer to who serves a name.
pub(crate) const STORES_REMEDY: &str = "import into one store, or use two listeners";
