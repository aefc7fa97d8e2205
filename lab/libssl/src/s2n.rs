//! s2n-tls by its path: [`Library`], [`Context`] and [`Connection`] as of a libssl, over functions
//! of its own.
//!
//! s2n-tls has policies by name where others have settings: a [`Settings::policy`] stands for
//! versions, suites and groups, and what came of it must be read back from a connection.

mod connection;

use std::{
    ffi::{CString, c_char, c_int, c_long, c_uint, c_void},
    fs,
    io::Read,
    path::{Path, PathBuf},
    ptr,
    sync::OnceLock,
};

pub use connection::{Connection, Session};

use crate::{Error, Identification, Side, api::functions, loader};

/// An s2n-tls in this process, for as long as the process lives.
pub struct Library {
    api: Api,
    path: PathBuf,
    libcrypto: PathBuf,
}

/// Everything that connections of one side have in common. Threads may share it.
///
/// A context is never freed: s2n-tls does not count who uses a config, and a count of our own would
/// be one that all threads write.
pub struct Context {
    library: &'static Library,
    raw: *mut Config,
    /// Belongs to no config: s2n-tls leaves it to its maker.
    shown: *mut CertChainAndKey,
    side: Side,
    name: CString,
}

/// What a [`Context`] is built from.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Whose end it is.
    pub side: Side,
    /// The name of a policy.
    pub policy: &'a str,
    /// What this end shows; a server must.
    pub identification: Option<Identification<'a>>,
    /// The PEM file of the root that the peer's chain must lead to; without one, a server asks for
    /// no certificate.
    pub root: Option<&'a Path>,
    /// The server's name: a client asks for it and demands it in the certificate.
    pub name: &'a str,
    /// Whether tickets are sent and taken.
    pub tickets: Option<u8>,
}

impl Library {
    /// Loads the s2n-tls at `path`. The second call in a process gives the same library again.
    ///
    /// # Errors
    /// Those of [`crate::Library::open`].
    pub fn open(path: &Path) -> Result<&'static Self, Error> {
        loader::once(path, &LOADED, Self::load)
    }

    fn load(file: &Path) -> Result<Self, Error> {
        let beside = file.with_file_name("libcrypto.so");
        // First, so that s2n-tls's need of that name is met by this file and no other.
        let libcrypto = beside.exists().then(|| loader::open(&beside)).transpose()?;
        let raw = loader::open(file)?;
        let api = Api::load(&raw, file)?;
        std::mem::forget((raw, libcrypto)); // never unloaded: `api` points into them
        let libcrypto = loader::file_of(api.OpenSSL_version as *const c_void).unwrap_or_default();
        let library = Self { api, path: file.to_owned(), libcrypto };
        let api = &library.api;
        // SAFETY: before s2n_init, as demanded; the four functions keep to what they promise. It
        // does not clean up when the process ends, because threads may still use it then.
        let ready = unsafe {
            (api.s2n_mem_set_callbacks)(Some(ready), Some(ready), Some(allocate), Some(release))
                == 0
                && (api.s2n_disable_atexit)() == 0
                && (api.s2n_init)() == 0
        };
        if !ready {
            return Err(library.error("s2n_init"));
        }
        Ok(library)
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

    /// The name and version of its libcrypto; of itself, s2n-tls tells none.
    #[must_use]
    pub fn libcrypto_version(&self) -> String {
        // SAFETY: takes a number, gives a string that is never freed.
        unsafe { crate::connection::text((self.api.OpenSSL_version)(0)) }
    }

    /// The library's words on the failure of `call`, on this thread.
    fn error(&self, call: &'static str) -> Error {
        // SAFETY: reads this thread's error, and gives a string that is never freed.
        let reason = unsafe {
            let number = *(self.api.s2n_errno_location)();
            crate::connection::text((self.api.s2n_strerror)(number, ENGLISH.as_ptr()))
        };
        Error::Call { call, reason }
    }

    fn must(&self, result: c_int, call: &'static str) -> Result<(), Error> {
        if result == 0 { Ok(()) } else { Err(self.error(call)) }
    }
}

// SAFETY: a config is only read once it is built; `leak` gives it away finished.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Builds one that stays.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a policy that the library does not have, [`Error::Call`] with
    /// the library's own words for a file that it refuses.
    pub fn leak(
        library: &'static Library,
        settings: &Settings<'_>,
    ) -> Result<&'static Self, Error> {
        let api = &library.api;
        let name = c_string(settings.name)?;
        // SAFETY: makes an object.
        let raw = unsafe { (api.s2n_config_new)() };
        if raw.is_null() {
            return Err(library.error("s2n_config_new"));
        }
        let side = settings.side;
        // Until it is whole, dropping it frees it.
        let mut context = Self { library, raw, shown: ptr::null_mut(), side, name };
        let policy = c_string(settings.policy)?;
        // SAFETY: `raw` is not shared yet; the name is only compared.
        if unsafe { (api.s2n_config_set_cipher_preferences)(raw, policy.as_ptr()) } != 0 {
            let what = format!("policy {}", settings.policy);
            return Err(Error::Unsupported { library: "s2n-tls".to_owned(), what });
        }
        context.identify(settings)?;
        context.verify(settings)?;
        context.issue_tickets(settings)?;
        Ok(Box::leak(Box::new(context)))
    }

    /// A server at the start of a connection.
    ///
    /// # Errors
    /// If the library cannot make it.
    pub fn accept(&'static self) -> Result<Connection, Error> {
        Connection::new(self, None, None)
    }

    /// A client at the start of a connection that offers `session`.
    ///
    /// # Errors
    /// If the library cannot make it, or refuses the session.
    pub fn connect(&'static self, session: Option<Session>) -> Result<Connection, Error> {
        Connection::new(self, Some(&self.name), session)
    }

    fn identify(&mut self, settings: &Settings<'_>) -> Result<(), Error> {
        let Some(Identification { certificate, key }) = settings.identification else {
            return Ok(());
        };
        let (certificate, key) = (pem(certificate)?, pem(key)?);
        let (library, api) = (self.library, &self.library.api);
        // SAFETY: `raw` is not shared yet; both texts are copied; the pair lives as long as it.
        unsafe {
            self.shown = (api.s2n_cert_chain_and_key_new)();
            let (chain, key) = (certificate.as_ptr(), key.as_ptr());
            let loaded = (api.s2n_cert_chain_and_key_load_pem)(self.shown, chain, key);
            library.must(loaded, "s2n_cert_chain_and_key_load_pem")?;
            let added = (api.s2n_config_add_cert_chain_and_key_to_store)(self.raw, self.shown);
            library.must(added, "s2n_config_add_cert_chain_and_key_to_store")
        }
    }

    fn verify(&self, settings: &Settings<'_>) -> Result<(), Error> {
        let Some(root) = settings.root else { return Ok(()) };
        let (library, api) = (self.library, &self.library.api);
        let path = c_string(&root.display().to_string())?;
        // SAFETY: `raw` is not shared yet; the path lives through the call; no folder is given.
        unsafe {
            // It begins with the system's roots.
            library
                .must((api.s2n_config_wipe_trust_store)(self.raw), "s2n_config_wipe_trust_store")?;
            let set =
                (api.s2n_config_set_verification_ca_location)(self.raw, path.as_ptr(), ptr::null());
            library.must(set, "s2n_config_set_verification_ca_location")?;
            if settings.side == Side::Server || settings.identification.is_some() {
                let set = (api.s2n_config_set_client_auth_type)(self.raw, REQUIRED);
                library.must(set, "s2n_config_set_client_auth_type")?;
            }
        }
        Ok(())
    }

    fn issue_tickets(&self, settings: &Settings<'_>) -> Result<(), Error> {
        let Some(count) = settings.tickets else { return Ok(()) };
        let (library, api) = (self.library, &self.library.api);
        // SAFETY: `raw` is not shared yet.
        let set = unsafe { (api.s2n_config_set_session_tickets_onoff)(self.raw, 1) };
        library.must(set, "s2n_config_set_session_tickets_onoff")?;
        if settings.side == Side::Client {
            let (callback, none) = (connection::keep_newest, ptr::null_mut());
            // SAFETY: the callback keeps to what the library demands of it, see there.
            let set =
                unsafe { (api.s2n_config_set_session_ticket_cb)(self.raw, Some(callback), none) };
            return library.must(set, "s2n_config_set_session_ticket_cb");
        }
        let mut key = [0_u8; TICKET_KEY_BYTES as usize];
        let random = Path::new("/dev/urandom");
        let read = fs::File::open(random).and_then(|mut file| file.read_exact(&mut key));
        read.map_err(|error| Error::Call { call: "read /dev/urandom", reason: error.to_string() })?;
        // SAFETY: the same; name and key are copied by their lengths; 0 begins its use now.
        unsafe {
            let (name, name_bytes) = (TICKET_KEY_NAME.as_ptr(), TICKET_KEY_NAME_BYTES);
            let (bytes, length) = (key.as_mut_ptr(), TICKET_KEY_BYTES);
            let add = api.s2n_config_add_ticket_crypto_key;
            let added = add(self.raw, name, name_bytes, bytes, length, 0);
            library.must(added, "s2n_config_add_ticket_crypto_key")?;
            let set = (api.s2n_config_set_initial_ticket_count)(self.raw, count);
            library.must(set, "s2n_config_set_initial_ticket_count")
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let api = &self.library.api;
        // SAFETY: one that was never whole, which no connection has seen.
        unsafe {
            (api.s2n_config_free)(self.raw);
            if !self.shown.is_null() {
                (api.s2n_cert_chain_and_key_free)(self.shown);
            }
        }
    }
}

/// A PEM file as C takes it.
fn pem(path: &Path) -> Result<CString, Error> {
    let text = fs::read_to_string(path).map_err(|error| Error::Call {
        call: "read a certificate or key",
        reason: format!("{}: {error}", path.display()),
    })?;
    c_string(&text)
}

fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::ZeroByte(text.to_owned()))
}

/// s2n-tls would lock its memory by pages; it shall take it as all others do.
unsafe extern "C" fn allocate(place: *mut *mut c_void, wanted: u32, given: *mut u32) -> c_int {
    // SAFETY: s2n-tls hands two places to write to; what malloc gives, `release` takes back.
    unsafe {
        *place = malloc(wanted as usize);
        *given = wanted;
        if (*place).is_null() { -1 } else { 0 }
    }
}

unsafe extern "C" fn release(pointer: *mut c_void, _: u32) -> c_int {
    // SAFETY: came from `allocate`.
    unsafe { free(pointer) };
    0
}

extern "C" fn ready() -> c_int {
    0
}

crate::api::objects! { CertChainAndKey Config Raw Ticket }

/// A client's answer to a ticket.
type TicketCallback = unsafe extern "C" fn(*mut Raw, *mut c_void, *mut Ticket) -> c_int;
type Receive = unsafe extern "C" fn(*mut c_void, *mut u8, u32) -> c_int;
type Transmit = unsafe extern "C" fn(*mut c_void, *const u8, u32) -> c_int;
type Allocate = unsafe extern "C" fn(*mut *mut c_void, u32, *mut u32) -> c_int;
type Release = unsafe extern "C" fn(*mut c_void, u32) -> c_int;
type Ready = extern "C" fn() -> c_int;

functions! {
    /// What is used of s2n-tls, and one function of the libcrypto below it.
    struct Api of "an s2n-tls";
    required {
        fn OpenSSL_version(c_int) -> *const c_char;
        fn s2n_cert_chain_and_key_free(*mut CertChainAndKey) -> c_int;
        fn s2n_cert_chain_and_key_load_pem(
            *mut CertChainAndKey, *const c_char, *const c_char
        ) -> c_int;
        fn s2n_cert_chain_and_key_new() -> *mut CertChainAndKey;
        fn s2n_config_add_cert_chain_and_key_to_store(
            *mut Config, *mut CertChainAndKey
        ) -> c_int;
        fn s2n_config_add_ticket_crypto_key(
            *mut Config, *const u8, u32, *mut u8, u32, u64
        ) -> c_int;
        fn s2n_config_free(*mut Config) -> c_int;
        fn s2n_config_new() -> *mut Config;
        fn s2n_config_set_cipher_preferences(*mut Config, *const c_char) -> c_int;
        fn s2n_config_set_client_auth_type(*mut Config, c_uint) -> c_int;
        fn s2n_config_set_initial_ticket_count(*mut Config, u8) -> c_int;
        fn s2n_config_set_session_ticket_cb(
            *mut Config, Option<TicketCallback>, *mut c_void
        ) -> c_int;
        fn s2n_config_set_session_tickets_onoff(*mut Config, u8) -> c_int;
        fn s2n_config_set_verification_ca_location(
            *mut Config, *const c_char, *const c_char
        ) -> c_int;
        fn s2n_config_wipe_trust_store(*mut Config) -> c_int;
        fn s2n_connection_client_cert_used(*mut Raw) -> c_int;
        fn s2n_connection_free(*mut Raw) -> c_int;
        fn s2n_connection_get_actual_protocol_version(*mut Raw) -> c_int;
        fn s2n_connection_get_cipher_iana_value(*mut Raw, *mut u8, *mut u8) -> c_int;
        fn s2n_connection_get_ctx(*mut Raw) -> *mut c_void;
        fn s2n_connection_get_key_exchange_group(*mut Raw, *mut *const c_char) -> c_int;
        fn s2n_connection_get_session(*mut Raw, *mut u8, usize) -> c_int;
        fn s2n_connection_get_session_length(*mut Raw) -> c_int;
        fn s2n_connection_is_session_resumed(*mut Raw) -> c_int;
        fn s2n_connection_new(c_uint) -> *mut Raw;
        fn s2n_connection_prefer_throughput(*mut Raw) -> c_int;
        fn s2n_connection_release_buffers(*mut Raw) -> c_int;
        fn s2n_connection_set_blinding(*mut Raw, c_uint) -> c_int;
        fn s2n_connection_set_config(*mut Raw, *mut Config) -> c_int;
        fn s2n_connection_set_ctx(*mut Raw, *mut c_void) -> c_int;
        fn s2n_connection_set_recv_cb(*mut Raw, Option<Receive>) -> c_int;
        fn s2n_connection_set_recv_ctx(*mut Raw, *mut c_void) -> c_int;
        fn s2n_connection_set_send_cb(*mut Raw, Option<Transmit>) -> c_int;
        fn s2n_connection_set_send_ctx(*mut Raw, *mut c_void) -> c_int;
        fn s2n_connection_set_session(*mut Raw, *const u8, usize) -> c_int;
        fn s2n_disable_atexit() -> c_int;
        fn s2n_errno_location() -> *mut c_int;
        fn s2n_error_get_type(c_int) -> c_int;
        fn s2n_init() -> c_int;
        fn s2n_mem_set_callbacks(
            Option<Ready>, Option<Ready>, Option<Allocate>, Option<Release>
        ) -> c_int;
        fn s2n_negotiate(*mut Raw, *mut c_uint) -> c_int;
        fn s2n_recv(*mut Raw, *mut c_void, c_long, *mut c_uint) -> c_long;
        fn s2n_send(*mut Raw, *const c_void, c_long, *mut c_uint) -> c_long;
        fn s2n_session_ticket_get_data(*mut Ticket, usize, *mut u8) -> c_int;
        fn s2n_session_ticket_get_data_len(*mut Ticket, *mut usize) -> c_int;
        fn s2n_set_server_name(*mut Raw, *const c_char) -> c_int;
        fn s2n_strerror(c_int, *const c_char) -> *const c_char;
    }
    optional {}
}

static LOADED: OnceLock<Library> = OnceLock::new();

const ENGLISH: &std::ffi::CStr = c"EN";
/// `S2N_CERT_AUTH_REQUIRED`.
const REQUIRED: c_uint = 1;
const TICKET_KEY_BYTES: u32 = 32;
const TICKET_KEY_NAME: &[u8; TICKET_KEY_NAME_BYTES as usize] = b"sealane-lab";
const TICKET_KEY_NAME_BYTES: u32 = 11;

unsafe extern "C" {
    fn free(pointer: *mut c_void);
    fn malloc(bytes: usize) -> *mut c_void;
}
