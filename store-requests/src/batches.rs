//! A stream of certificates with their keys, checked and counted out for transactions:
//! [`Batches`].

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{
    Certificate, CertificateError, CertificateWarning, DefaultCertificate, IndexBuilder,
};

use crate::bundles::Bundles;

/// Whether the client may store, remove and read certificates of a name.
pub type May<'m> = &'m (dyn Fn(&str) -> bool + Send + Sync);

/// Certificates of a stream, in groups that go into one transaction.
pub struct Batches<'p> {
    bundles: Bundles,
    may: May<'p>,
    provider: &'p CryptoProvider,
    /// The name of the stream in errors.
    source: &'p str,
    gathered: Option<Gathered<'p>>,
}

/// The certificates of a batch, with their errors and warnings.
struct Gathered<'p> {
    builder: IndexBuilder<'p>,
    bytes: usize,
    count: usize,
}

/// Certificates that were checked, all of them with their keys.
#[derive(Debug)]
pub struct Batch {
    /// The certificates, those that came later behind.
    pub certificates: Vec<Arc<Certificate>>,
    /// Warnings about certificates that can be stored, but are probably not meant.
    pub warnings: Vec<String>,
}

impl<'p> Batches<'p> {
    /// A stream that is called `source`; `provider` checks the keys.
    pub fn new(source: &'p str, provider: &'p CryptoProvider, may: May<'p>) -> Self {
        Self { bundles: Bundles::default(), may, provider, source, gathered: None }
    }

    /// Room for the next bytes. It is not empty after [`Self::next`] returned none.
    pub fn space(&mut self) -> &mut [u8] {
        self.bundles.space()
    }

    /// Notes that `count` bytes have come into the space.
    pub fn filled(&mut self, count: usize) {
        self.bundles.filled(count);
    }

    /// The stream has ended.
    pub fn end(&mut self) {
        self.bundles.end();
    }

    /// The next certificates; none if more has to come, or at the end of the stream.
    ///
    /// `now_s` is Unix time.
    ///
    /// # Errors
    /// Everything that is wrong with those that would have been next.
    pub fn next(&mut self, now_s: i64) -> Result<Option<Batch>, Mistakes> {
        loop {
            let is_at_end = self.bundles.is_at_end();
            let Some(bundle) = self.bundles.next() else {
                let gathered = self.gathered.take_if(|_| is_at_end);
                return gathered.map(|gathered| self.check(gathered)).transpose();
            };
            let provider = self.provider;
            let gathered = self.gathered.get_or_insert_with(|| Gathered {
                builder: IndexBuilder::new(provider, now_s),
                bytes: 0,
                count: 0,
            });
            let label = format!("{}, line {}", self.source, bundle.line);
            gathered.builder.add(&label, bundle.text);
            gathered.bytes += bundle.text.len();
            gathered.count += 1;
            if gathered.count == BATCH_MAX || gathered.bytes >= BATCH_BYTES {
                let gathered = self.gathered.take();
                return gathered.map(|gathered| self.check(gathered)).transpose();
            }
        }
    }

    fn check(&self, gathered: Gathered<'_>) -> Result<Batch, Mistakes> {
        let indexed = gathered.builder.finish(DefaultCertificate::Absent);
        let mut mistakes: Vec<String> =
            indexed.errors.into_iter().map(|error| self.in_stream(error).to_string()).collect();
        for certificate in &indexed.index {
            mistakes.extend(self.mistakes_in(certificate));
        }
        if !mistakes.is_empty() {
            return Err(Mistakes(mistakes));
        }
        // Of two for one name the later one is served, as if each had come by itself.
        let is_clash =
            |warning: &&CertificateWarning| matches!(warning, CertificateWarning::Clash { .. });
        let warnings = indexed.warnings.iter().filter(|warning| !is_clash(warning));
        Ok(Batch {
            certificates: indexed.index.iter().map(Arc::clone).collect(),
            warnings: warnings.map(ToString::to_string).collect(),
        })
    }

    /// The same error with the line of the stream, where it has one of its bundle.
    fn in_stream(&self, error: CertificateError) -> CertificateError {
        match error {
            CertificateError::BrokenPem { label, line, damage } => {
                let first = label.rsplit_once(' ').and_then(|(_, first)| first.parse().ok());
                let line = first.unwrap_or(1) + line - 1;
                CertificateError::BrokenPem { label: self.source.to_owned(), line, damage }
            }
            other => other,
        }
    }

    fn mistakes_in(&self, certificate: &Certificate) -> Vec<String> {
        let label = certificate.label();
        let mut mistakes = Vec::new();
        if certificate.names().is_empty() {
            mistakes.push(format!("{label}: no host name in it; a store serves by name"));
        }
        let others = certificate.names().iter().filter(|name| !(self.may)(name));
        mistakes.extend(others.map(|name| {
            format!("{label}: who sends it may not store {name}; send what is for other names")
        }));
        // Of many, the index compared public halves only.
        mistakes.extend(certificate.verify(self.provider).err().map(|error| error.to_string()));
        mistakes
    }
}

/// Errors in certificates, because of which none of their batch is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Mistakes(pub Vec<String>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

/// Bytes of text in one transaction, about: as much as is in memory at once.
pub const BATCH_BYTES: usize = 16 << 20;
/// Certificates in one transaction: enough that the disk is not waited for often, and few enough
/// that other writers do not wait long.
pub const BATCH_MAX: usize = 1_000;
