//! The certificates of a run, each a leaf and two authorities with RSA-4096: written once,
//! [`write()`], and read by every trial as one [`Generation`] or the next, in which some are
//! replaced.

use std::{
    collections::{BTreeMap, HashSet},
    fmt, fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use sealane_engine::{
    certificates::{DefaultCertificate, IndexBuilder},
    context::{Context, ContextId},
    policy::{Group, Policy, UnknownNames, Versions},
    provider::{ProviderChoice, lane_provider},
};
use sealane_lab_harness::authority::Authority;
use sealane_lab_model::{error::Error, scenario::Key};

/// Makes a certificate for each of `names`, and once more those of every [`REPLACED_EVERY`]th.
///
/// # Errors
/// A file cannot be written.
pub(super) fn write(folder: &Path, names: &[String]) -> Result<(), Error> {
    let root = Authority::root("Sealane lab root of many", Key::Rsa4096)?;
    let issuing = root.below("Sealane lab authority of many", Key::Rsa4096)?;
    let authorities = issuing.pem() + &root.pem();
    for part in [BEFORE, AFTER] {
        let part = folder.join(part);
        fs::create_dir_all(&part).map_err(Error::file(part))?;
    }
    for (number, name) in names.iter().enumerate() {
        let is_replaced = number.is_multiple_of(REPLACED_EVERY as usize);
        for part in if is_replaced { &[BEFORE, AFTER][..] } else { &[BEFORE] } {
            let path = folder.join(part).join(name);
            let pem = issuing.leaf(name)? + &authorities;
            fs::write(&path, pem).map_err(Error::file(&path))?;
        }
    }
    let path = names_file(folder);
    fs::write(&path, names.join("\n")).map_err(Error::file(&path))?;
    let path = root_file(folder);
    fs::write(&path, root.pem()).map_err(Error::file(&path))
}

/// The root that all chains end in, PEM.
pub(super) fn root_file(folder: &Path) -> PathBuf {
    folder.join("root.pem")
}

/// All names in the order in which they were given, one on a line.
pub(super) fn names_file(folder: &Path) -> PathBuf {
    folder.join("names")
}

/// The certificate that was first made for `name`, with its chain and key.
pub(super) fn file_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(BEFORE).join(name)
}

/// All certificates at one time.
pub(super) struct Generation {
    /// The context as Sealane's lanes are given it: an index of names and encoded keys, of which
    /// each lane decodes what it is asked for.
    pub(super) context: Arc<Context>,
    chains: BTreeMap<String, Arc<Encoded>>,
}

/// One certificate's chain and its key, as they are stored.
pub(super) struct Encoded {
    /// Chain and key as they lie in their file, PEM.
    pub(super) text: Vec<u8>,
    /// What a client must be shown, the leaf first.
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Generation {
    /// Those that [`write()`] made first.
    ///
    /// # Errors
    /// A file cannot be read, or a certificate in it.
    pub(super) fn first(folder: &Path) -> Result<Self, Error> {
        Self::read(&names_in(&folder.join(BEFORE))?, |_| folder.join(BEFORE))
    }

    /// The same with every [`REPLACED_EVERY`]th replaced, and the names of those.
    ///
    /// # Errors
    /// The same as those of [`first`](Self::first).
    pub(super) fn next(folder: &Path) -> Result<(Self, Vec<String>), Error> {
        let replaced = names_in(&folder.join(AFTER))?;
        let place = |name: &String| {
            folder.join(if replaced.binary_search(name).is_ok() { AFTER } else { BEFORE })
        };
        Ok((Self::read(&names_in(&folder.join(BEFORE))?, place)?, replaced))
    }

    fn read(names: &[String], folder: impl Fn(&String) -> PathBuf) -> Result<Self, Error> {
        let policy = Policy {
            groups: vec![Group::X25519],
            unknown_names: UnknownNames::ServeDefault,
            versions: Versions::Tls13,
            ..Policy::default()
        };
        let provider = ProviderChoice::Auto;
        let crypto = lane_provider(provider, &policy.groups).map_err(|error| wrong(&error))?.crypto;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let mut builder = IndexBuilder::new(&crypto, now_s.cast_signed());
        let mut chains = BTreeMap::new();
        for name in names {
            let encoded = Encoded::read(&folder(name).join(name))?;
            builder.add(name, &encoded.text);
            chains.insert(name.clone(), Arc::new(encoded));
        }
        let indexed = builder.finish(DefaultCertificate::First);
        if let Some(error) = indexed.errors.first() {
            return Err(wrong(error));
        }
        let certificates = Arc::new(indexed.index);
        let (key_log, store, tickets) = (false, None, 0);
        let id = ContextId::fresh();
        let context =
            Arc::new(Context { id, policy, certificates, key_log, provider, store, tickets });
        Ok(Self { context, chains })
    }

    /// What is stored for `name`.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Encoded>> {
        self.chains.get(name)
    }

    /// All names, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.chains.keys()
    }

    /// Certificates that the engine keeps for all lanes together: each leaf, and each authority
    /// once, however many chains it is in. It parsed each of them once, when it made its index.
    pub(super) fn indexed(&self) -> usize {
        let index = &self.context.certificates;
        let authorities = index.iter().flat_map(|certificate| certificate.chain().skip(1));
        index.len() + authorities.map(<[u8]>::as_ptr).collect::<HashSet<_>>().len()
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Generation")
            .field("certificates", &self.chains.len())
            .finish_non_exhaustive()
    }
}

impl Encoded {
    /// The one in the file `path`.
    ///
    /// # Errors
    /// The file cannot be read, or what it holds.
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let text = fs::read(path).map_err(Error::file(path))?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.map_err(|error| wrong(&error))?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| wrong(&error))?;
        Ok(Self { text, chain, key })
    }
}

/// The names of the files in `folder`, in their order.
fn names_in(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file(folder))?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    Ok(names)
}

fn wrong(error: &dyn fmt::Display) -> Error {
    Error::Check(format!("the lab's own certificates: {error}"))
}

/// In each chain: a leaf, and two authorities that all have in common.
pub(super) const CHAIN_CERTIFICATES: u32 = 3;
/// So 10% of the names are replaced.
pub(super) const REPLACED_EVERY: u32 = 10;
const BEFORE: &str = "before";
const AFTER: &str = "after";
