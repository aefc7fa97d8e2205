//! One loaded libssl: [`Library`], which says what it is ([`Flavour`]).

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::{
    Error,
    api::{self, Api},
    loader,
};

/// A libssl in this process, for as long as the process lives.
pub struct Library {
    pub(crate) api: Api,
    flavour: Flavour,
    path: PathBuf,
    libcrypto: PathBuf,
}

/// Whose libssl it is, as far as its functions differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Amazon's fork of BoringSSL.
    AwsLc,
    /// Google's fork of OpenSSL.
    BoringSsl,
    /// OpenSSL, or a fork that kept its interface.
    OpenSsl,
}

impl Library {
    /// Loads the libssl at `path`, its libcrypto first if that lies beside it. The second call in
    /// a process gives the same library again.
    ///
    /// # Errors
    /// [`Error::Load`] if there is no such file or it is no library, [`Error::Symbol`] if it is no
    /// libssl, [`Error::Second`] if the process holds another one, [`Error::OtherCrypto`] if the
    /// dynamic linker bound it to a foreign libcrypto.
    pub fn open(path: &Path) -> Result<&'static Self, Error> {
        loader::once(path, &LOADED, |file| Self::load(path, file))
    }

    fn load(path: &Path, file: &Path) -> Result<Self, Error> {
        let beside = loader::libcrypto_beside(file).or_else(|| loader::libcrypto_beside(path));
        // First, so that libssl's need of that name is met by this file and no other.
        let libcrypto = beside.as_deref().map(loader::open).transpose()?;
        let libssl = loader::open(file)?;
        let library = Self::new(&libssl, file)?;
        if let Some(beside) = beside.and_then(|path| path.canonicalize().ok())
            && beside != library.libcrypto
        {
            let (libssl, libcrypto) = (file.to_owned(), library.libcrypto);
            return Err(Error::OtherCrypto { libssl, libcrypto, beside });
        }
        std::mem::forget((libssl, libcrypto)); // never unloaded: `api` points into them
        Ok(library)
    }

    /// The one in this process.
    pub(crate) fn loaded() -> Option<&'static Self> {
        LOADED.get()
    }

    /// The file of the system's libssl, where the dynamic linker looks for it.
    ///
    /// # Errors
    /// [`Error::Load`] if it finds none, [`Error::Second`] if this process has loaded another one
    /// before it first looked: that one would answer to the name.
    pub fn of_the_system() -> Result<PathBuf, Error> {
        if let Some(found) = SYSTEM.get() {
            return Ok(found.clone());
        }
        if let Some(loaded) = loader::claimed() {
            return Err(Error::Second { loaded, asked: PathBuf::from("the system's libssl") });
        }
        let found = Self::look_for_the_systems()?;
        Ok(SYSTEM.get_or_init(|| found).clone())
    }

    fn look_for_the_systems() -> Result<PathBuf, Error> {
        let mut first = None;
        for name in SYSTEM_NAMES {
            match loader::open(Path::new(name)) {
                Ok(library) => {
                    // SAFETY: the address alone is used, to ask where it lies.
                    let symbol = unsafe { library.get::<unsafe extern "C" fn()>(b"SSL_new") };
                    if let Some(file) =
                        symbol.ok().and_then(|f| loader::file_of(*f as *const c_void))
                    {
                        return Ok(file);
                    }
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| Error::Load {
            path: SYSTEM_NAMES[0].to_owned(),
            reason: "it has no SSL_new".to_owned(),
        }))
    }

    /// Whose it is.
    #[must_use]
    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    /// The file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file that its cryptography comes from, as the dynamic linker bound it.
    #[must_use]
    pub fn libcrypto(&self) -> &Path {
        &self.libcrypto
    }

    /// The library's name and version, in its own words.
    #[must_use]
    pub fn version(&self) -> String {
        version_text(&self.api, VERSION)
    }

    /// Whether it is OpenBSD's fork of OpenSSL, which resumes no session of TLS 1.3.
    #[must_use]
    pub fn is_libressl(&self) -> bool {
        self.version().starts_with("LibreSSL")
    }

    /// The compiler flags it was built with, in its own words; empty if it does not tell.
    #[must_use]
    pub fn build_flags(&self) -> String {
        let text = version_text(&self.api, BUILD_FLAGS);
        if text.ends_with("n/a") { String::new() } else { text }
    }

    fn new(libssl: &libloading::os::unix::Library, path: &Path) -> Result<Self, Error> {
        if let Some(version) = api::version_before_1_1(libssl) {
            return Err(Error::Older { path: path.display().to_string(), version });
        }
        let api = api::load(libssl, path)?;
        let version = version_text(&api, VERSION);
        let flavour = if version.starts_with("BoringSSL") {
            Flavour::BoringSsl
        } else if version.starts_with("AWS-LC") {
            Flavour::AwsLc
        } else {
            Flavour::OpenSsl
        };
        if flavour == Flavour::OpenSsl && api.SSL_CTX_set_ciphersuites.is_none() {
            return Err(Error::Symbol {
                path: path.display().to_string(),
                symbol: "SSL_CTX_set_ciphersuites",
                wanted: "a libssl",
            });
        }
        let libcrypto = loader::file_of(api.OpenSSL_version as *const c_void).unwrap_or_default();
        Ok(Self { api, flavour, path: path.to_owned(), libcrypto })
    }
}

fn version_text(api: &Api, what: c_int) -> String {
    // SAFETY: takes a number, gives a string that is never freed.
    let text: *const c_char = unsafe { (api.OpenSSL_version)(what) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, ended with a zero byte, lives as long as the library.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

// Read by every connection that gets a ticket: no lock.
static LOADED: OnceLock<Library> = OnceLock::new();

static SYSTEM: OnceLock<PathBuf> = OnceLock::new();

/// Newest first; a distribution has one of them.
const SYSTEM_NAMES: [&str; 4] = ["libssl.so.4", "libssl.so.3", "libssl.so.1.1", "libssl.so"];

const VERSION: c_int = 0;
const BUILD_FLAGS: c_int = 1;
