//! Certificates that were in order when they were last read, by the files that they come from.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sealane_engine::certificates::{Certificate, CertificateIndex};

use crate::folder::is_given;

/// The certificates of earlier indexes.
pub(crate) struct Known<'k> {
    indexes: &'k [Arc<CertificateIndex>],
    /// Made at the first fault: most reads have none.
    by_label: OnceCell<BTreeMap<&'k str, &'k Arc<Certificate>>>,
}

impl<'k> Known<'k> {
    /// Those of `indexes`.
    pub(crate) fn of(indexes: &'k [Arc<CertificateIndex>]) -> Self {
        Self { indexes, by_label: OnceCell::new() }
    }

    /// The certificate of the file `path`, or those that the folder `path` gives when it is read.
    /// Files in folders below it may be those of other listeners.
    pub(crate) fn at(&self, path: &Path) -> Vec<Arc<Certificate>> {
        let by_label = self.by_label.get_or_init(|| {
            let certificates = self.indexes.iter().flat_map(|index| index.iter());
            certificates.map(|certificate| (certificate.label(), certificate)).collect()
        });
        let path = path.to_string_lossy();
        let path = path.trim_end_matches('/');
        if let Some(certificate) = by_label.get(path) {
            return vec![Arc::clone(certificate)];
        }
        let folder = format!("{path}/");
        let within = by_label.range(folder.as_str()..).take_while(|(l, _)| l.starts_with(&folder));
        let given = within.filter(|(label, _)| is_given(Path::new(&label[folder.len()..])));
        given.map(|(_, certificate)| Arc::clone(certificate)).collect()
    }
}
