//! Certificates that change while they are served: the interface of a certificate store.
//!
//! The store itself has files, so it is above the engine and implements [`CertificateStore`]. A
//! lane takes a [`StoreView`] for one hello and drops it before it turns to anything else.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;

use super::{
    AskedName, CertificateDigest, CertificateError, EncodedKey, Inventory, KeyType, RSA_BITS_MAX,
    decode,
};

/// Certificates found by name again for each hello, with their keys sealed until one is needed.
///
/// Lanes share it: a view must write nothing that another lane reads, and must never wait.
pub trait CertificateStore: fmt::Debug + Send + Sync {
    /// Identifies this store, also after a restart.
    fn id(&self) -> StoreId;

    /// The present content of the store. It stays the same for as long as the view lives.
    ///
    /// # Errors
    /// The store cannot be read.
    fn view(&self) -> Result<Box<dyn StoreView + '_>, StoreFailure>;

    /// Counts of the store's certificates and names, with the first `entries_max` to expire. For
    /// people, and not on the path of a hello.
    ///
    /// # Errors
    /// The store cannot be read, with the reason.
    fn inventory(&self, entries_max: usize) -> Result<Inventory, InventoryFailure>;
}

/// A store at one moment.
pub trait StoreView {
    /// Grows with every change of the store.
    fn version(&self) -> u64;

    /// The certificates for exactly `name`, which is in lower case. A wildcard begins with `*.`.
    /// One of each kind of key, the cheapest first. Empty for an unknown name.
    ///
    /// # Errors
    /// The entry cannot be read.
    fn named(&self, name: &str) -> Result<Vec<StoredCertificate>, StoreFailure>;

    /// Unseals the key of a certificate that [`Self::named`] found.
    ///
    /// # Errors
    /// It is gone, damaged, or sealed with a key that is not at hand.
    fn open(&self, digest: CertificateDigest) -> Result<OpenedCertificate, StoreFailure>;

    /// The certificate that answers an authority's validation of `name` now (`tls-alpn-01`, RFC
    /// 8737), with its key unsealed. The agent puts it there.
    ///
    /// # Errors
    /// It is damaged, or sealed with a key that is not at hand.
    fn challenge(&self, name: &str) -> Result<Option<OpenedCertificate>, StoreFailure>;

    /// The certificates that left the store after the one numbered `seen`; without `seen`, only the
    /// number of the last one.
    ///
    /// # Errors
    /// The list cannot be read.
    fn gone_since(&self, seen: Option<u64>) -> Result<Gone, StoreFailure>;
}

/// A certificate as a look-up of a name returns it: enough to choose by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredCertificate {
    /// Identifies the certificate.
    pub digest: CertificateDigest,
    /// The kind of key.
    pub key_type: KeyType,
}

/// A certificate taken out of a store, with its key unsealed and still encoded.
#[derive(Debug)]
pub struct OpenedCertificate {
    /// The chain, the server's own certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key.
    pub key: EncodedKey,
}

impl OpenedCertificate {
    /// Decodes the key and checks that it fits; `label` names the certificate in errors.
    ///
    /// # Errors
    /// The key does not belong to the certificate, is too slow, or `provider` does not take it.
    pub fn decode(
        self,
        label: &str,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, CertificateError> {
        // A key that was stored by an earlier version may be larger.
        if let Some(KeyType::Rsa { bits }) = self.key.public_half().map(|half| half.key_type)
            && usize::from(bits) > RSA_BITS_MAX
        {
            let (label, bits) = (label.into(), bits.into());
            return Err(CertificateError::RsaKeySize { label, bits, bits_max: RSA_BITS_MAX });
        }
        decode(label, self.chain, &self.key, provider)
    }
}

/// Certificates that left a store.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone {
    /// Those that left, or none if the store no longer knows all of them.
    pub digests: Option<Vec<CertificateDigest>>,
    /// The number of the last one; 0 if none ever left.
    pub last: u64,
}

/// The identity of a store, given to it by chance when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreId(pub [u8; 16]);

/// A store, or an entry in it, cannot be read. The type has no reason, because a lane only counts
/// these failures. `sealane certificates verify` prints the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate store cannot be read; `sealane certificates verify` says why")]
pub struct StoreFailure;

/// The reason why the inventory of a store cannot be read, in the store's own words.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct InventoryFailure(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// A store as one listener uses it.
#[derive(Clone, Debug)]
pub struct ListenerStore {
    /// The certificates.
    pub certificates: Arc<dyn CertificateStore>,
    /// The name that has the default certificate for names that no certificate covers, if there is
    /// one.
    pub default_name: Option<Box<str>>,
    /// Whether lanes note which requested names have a certificate, for an agent that orders
    /// certificates on demand: [`LaneContext::has_own`].
    ///
    /// [`LaneContext::has_own`]: crate::context::LaneContext::has_own
    pub on_demand: bool,
}

impl ListenerStore {
    /// The name of the default certificate, if the store has no certificate for it yet.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn missing_default(&self) -> Result<Option<&str>, StoreFailure> {
        let found = self.default_of(&*self.certificates.view()?)?;
        Ok(self.default_name.as_deref().filter(|_| found.is_empty()))
    }

    /// The default certificates for names that no certificate covers.
    pub(super) fn default_of(
        &self,
        view: &dyn StoreView,
    ) -> Result<Vec<StoredCertificate>, StoreFailure> {
        let Some(mut name) = self.default_name.as_deref().and_then(AskedName::new) else {
            return Ok(Vec::new());
        };
        let exact = view.named(name.exact())?;
        match name.wildcard() {
            Some(wildcard) if exact.is_empty() => view.named(wildcard),
            _ => Ok(exact),
        }
    }
}
