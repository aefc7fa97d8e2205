//! TLS settings of one side, built once: [`Context`], from [`Settings`].

use std::{
    ffi::{CString, c_char, c_int, c_long, c_void},
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
};

use crate::{
    Connection, Error, Flavour, Library, Session,
    api::{SslCtx, number},
    census, session,
};

/// Everything that connections of one side have in common. Threads may share it.
pub struct Context {
    pub(crate) library: &'static Library,
    pub(crate) raw: *mut SslCtx,
    pub(crate) side: Side,
    name: CString,
}

/// What a [`Context`] is built from: one version, one suite, one group.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Whose end it is.
    pub side: Side,
    /// The only version, as on the wire: `0x0303` or `0x0304`.
    pub version: u16,
    /// The only suite, by its IANA name.
    pub suite: &'a str,
    /// The only group, by its IANA number.
    pub group: u16,
    /// The curve of the certificates' keys, if they have one: TLS 1.2 counts it among the groups,
    /// so that who verifies a certificate offers it too, behind the one group.
    pub key_curve: Option<u16>,
    /// What this end shows; a server must.
    pub identification: Option<Identification<'a>>,
    /// The PEM file of the root that the peer's chain must lead to; without one, a server asks for
    /// no certificate.
    pub root: Option<&'a Path>,
    /// The server's name: a client asks for it and demands it in the certificate, so that it must
    /// not be empty.
    pub name: &'a str,
    /// How sessions are resumed.
    pub resumption: Resumption,
    /// TLS 1.3 tickets that a server sends.
    pub tickets: u8,
    /// Whether certificates are signed with Ed25519, which BoringSSL's clients refuse by default.
    pub ed25519: bool,
    /// Whether a connection without traffic gives its record buffers back.
    pub release_buffers: bool,
}

/// A certificate and its key.
#[derive(Clone, Copy, Debug)]
pub struct Identification<'a> {
    /// PEM, the leaf first.
    pub certificate: &'a Path,
    /// PEM.
    pub key: &'a Path,
}

/// How a client comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resumption {
    /// The client does not; a TLS 1.3 server sends its tickets all the same.
    None,
    /// By the session's number in the server's cache, TLS 1.2.
    SessionId,
    /// By a ticket that holds the session.
    Ticket,
}

/// Whose end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client's.
    Client,
    /// The server's.
    Server,
}

// SAFETY: an SSL_CTX may be used by threads at once as soon as nobody changes its settings any
// more; `new` is the only one who does, and gives it away finished.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Builds one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a suite, group or version that the library does not have,
    /// [`Error::Call`] with the library's own words for a file that it refuses,
    /// [`Error::NoName`] for a client without a server's name.
    pub fn new(library: &'static Library, settings: &Settings<'_>) -> Result<Self, Error> {
        let api = &library.api;
        let name = match settings.side {
            Side::Client => server_name(settings.name)?,
            Side::Server => c_string(settings.name)?,
        };
        // SAFETY: makes an object from a static method table.
        let raw = unsafe { (api.SSL_CTX_new)((api.TLS_method)()) };
        if raw.is_null() {
            return Err(api.error("SSL_CTX_new"));
        }
        // From here on dropping it frees it.
        let context = Self { library, raw, side: settings.side, name };
        census::built(library, raw)?;
        context.agree(settings)?;
        context.identify(settings)?;
        context.verify(settings)?;
        context.resume(settings)?;
        context.release_buffers(settings.release_buffers);
        // SAFETY: empties this thread's queue, so that SSL_get_error is not misled later.
        unsafe { (api.ERR_clear_error)() };
        Ok(context)
    }

    /// A server at the start of a connection.
    ///
    /// # Errors
    /// If the library cannot make it.
    pub fn accept(&self) -> Result<Connection, Error> {
        Connection::new(self, None, None)
    }

    /// A client at the start of a connection that offers `session`.
    ///
    /// # Errors
    /// If the library cannot make it, or refuses the session.
    pub fn connect(&self, session: Option<&Session>) -> Result<Connection, Error> {
        Connection::new(self, Some(&self.name), session)
    }

    /// A client at the start of a connection to `name`, which it asks for and demands in the
    /// certificate in place of the context's name: connections to many servers share a context.
    ///
    /// # Errors
    /// If the library cannot make it, or refuses the name; [`Error::NoName`] if it is empty.
    pub fn connect_to(&self, name: &str) -> Result<Connection, Error> {
        let mut connection = Connection::new(self, Some(&server_name(name)?), None)?;
        connection.demand(name)?;
        Ok(connection)
    }

    /// Version, suite and group.
    fn agree(&self, settings: &Settings<'_>) -> Result<(), Error> {
        let api = &self.library.api;
        let Settings { version, suite, group, .. } = *settings;
        let versions = [
            (api.SSL_CTX_set_min_proto_version, number::SSL_CTRL_SET_MIN_PROTO_VERSION),
            (api.SSL_CTX_set_max_proto_version, number::SSL_CTRL_SET_MAX_PROTO_VERSION),
        ];
        for (function, control) in versions {
            let set = match function {
                // SAFETY: `raw` is alive and not shared yet.
                Some(function) => unsafe { function(self.raw, version).into() },
                // SAFETY: the same; this number takes a version as its long.
                None => unsafe { self.control(control, version.into(), ptr::null_mut()) },
            };
            self.must(set, || format!("TLS version {version:#06x}"))?;
        }
        self.choose_suite(version, suite)?;
        // Whoever verifies must know the key's curve; the one group is named first by both.
        let verifies = version == TLS_1_2 && settings.root.is_some();
        let curve = settings.key_curve.filter(|curve| verifies && *curve != group);
        let names = [Some(group), curve].into_iter().flatten().filter_map(group_name);
        let names = names.collect::<Vec<_>>().join(":");
        let list = c_string(&names)?;
        let set = match api.SSL_CTX_set1_groups_list {
            // SAFETY: `raw` is not shared yet, `list` lives through the call.
            Some(function) => unsafe { function(self.raw, list.as_ptr()).into() },
            // SAFETY: the same; this number takes a list as its pointer, and copies it.
            None => unsafe {
                let list = list.as_ptr().cast_mut().cast();
                self.control(number::SSL_CTRL_SET_GROUPS_LIST, 0, list)
            },
        };
        self.must(set, || format!("group {names} ({group:#06x})"))?;
        if settings.ed25519
            && let Some(function) = api.SSL_CTX_set_verify_algorithm_prefs
        {
            // SAFETY: reads the array, which lives through the call.
            let set = unsafe { function(self.raw, ED25519.as_ptr(), ED25519.len()) };
            self.must(set.into(), || "Ed25519 signatures".to_owned())?;
        }
        Ok(())
    }

    fn choose_suite(&self, version: u16, suite: &str) -> Result<(), Error> {
        let api = &self.library.api;
        let none = || Error::Unsupported {
            library: self.library.version(),
            what: format!("suite {suite} in TLS version {version:#06x}"),
        };
        if version == TLS_1_2 {
            let (_, name) = SUITES_1_2.iter().find(|(iana, _)| *iana == suite).ok_or_else(none)?;
            let name = c_string(name)?;
            // SAFETY: `raw` is not shared yet, `name` lives through the call.
            let set = unsafe { (api.SSL_CTX_set_cipher_list)(self.raw, name.as_ptr()) };
            return self.must(set.into(), || format!("suite {suite}"));
        }
        if let Some(function) = api.SSL_CTX_set_ciphersuites {
            let name = c_string(suite)?;
            // SAFETY: as above.
            let set = unsafe { function(self.raw, name.as_ptr()) };
            return self.must(set.into(), || format!("suite {suite}"));
        }
        // BoringSSL's own function; before it had one, it let nobody choose.
        let found = SUITES_1_3.iter().find(|(iana, _)| *iana == suite);
        match api.SSL_CTX_set1_tls13_ciphers {
            Some(function) => {
                let (_, number) = found.ok_or_else(none)?;
                // SAFETY: `raw` is not shared yet; reads one number, and no flags.
                let set = unsafe { function(self.raw, number, ptr::null(), 1) };
                self.must(set.into(), || format!("suite {suite}"))
            }
            None if suite == SUITES_1_3[0].0 => Ok(()),
            None => Err(none()),
        }
    }

    fn identify(&self, settings: &Settings<'_>) -> Result<(), Error> {
        let Some(Identification { certificate, key }) = settings.identification else {
            return Ok(());
        };
        let api = &self.library.api;
        let (certificate, key) = (c_path(certificate)?, c_path(key)?);
        // SAFETY: `raw` is not shared yet; the paths live through the calls.
        unsafe {
            if (api.SSL_CTX_use_certificate_chain_file)(self.raw, certificate.as_ptr()) != 1 {
                return Err(api.error("SSL_CTX_use_certificate_chain_file"));
            }
            let pem = number::SSL_FILETYPE_PEM;
            if (api.SSL_CTX_use_PrivateKey_file)(self.raw, key.as_ptr(), pem) != 1 {
                return Err(api.error("SSL_CTX_use_PrivateKey_file"));
            }
            if (api.SSL_CTX_check_private_key)(self.raw) != 1 {
                return Err(api.error("SSL_CTX_check_private_key"));
            }
        }
        Ok(())
    }

    fn verify(&self, settings: &Settings<'_>) -> Result<(), Error> {
        let Some(root) = settings.root else { return Ok(()) };
        let api = &self.library.api;
        let file = c_path(root)?;
        // SAFETY: `raw` is not shared yet; the path lives through the call; no folder is given.
        let loaded =
            unsafe { (api.SSL_CTX_load_verify_locations)(self.raw, file.as_ptr(), ptr::null()) };
        if loaded != 1 {
            return Err(api.error("SSL_CTX_load_verify_locations"));
        }
        census::read_roots(self.library, self.raw);
        let mode = match settings.side {
            Side::Client => number::SSL_VERIFY_PEER,
            Side::Server => number::SSL_VERIFY_PEER | number::SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
        };
        // SAFETY: the same; no callback, so the library's own verdict stands.
        unsafe { (api.SSL_CTX_set_verify)(self.raw, mode, ptr::null()) };
        if settings.side == Side::Client {
            let name = settings.name;
            // SAFETY: the parameters belong to the context; the name is copied by its length, which
            // is not 0: then OpenSSL would look for a zero byte.
            let set = unsafe {
                let parameters = (api.SSL_CTX_get0_param)(self.raw);
                let text: *const c_char = name.as_ptr().cast();
                (api.X509_VERIFY_PARAM_set1_host)(parameters, text, name.len())
            };
            if set != 1 {
                return Err(api.error("X509_VERIFY_PARAM_set1_host"));
            }
        }
        Ok(())
    }

    /// Caches and tickets: what the resumption asked for needs, and nothing else.
    fn resume(&self, settings: &Settings<'_>) -> Result<(), Error> {
        let api = &self.library.api;
        let Settings { side, version, resumption, tickets, .. } = *settings;
        // In TLS 1.2 every library has the session at the connection.
        let callback = side == Side::Client
            && (version, resumption) == (TLS_1_3, Resumption::Ticket)
            && self.library.flavour() != Flavour::OpenSsl;
        let mode = match (side, resumption) {
            (Side::Server, Resumption::SessionId) => number::SSL_SESS_CACHE_SERVER,
            // OpenSSL's clients take their session from the connection, so that there is no cache
            // to lock; the others call back only where there is one.
            _ if callback => number::SSL_SESS_CACHE_CLIENT | number::SSL_SESS_CACHE_NO_INTERNAL,
            _ => number::SSL_SESS_CACHE_OFF,
        };
        match api.SSL_CTX_set_session_cache_mode {
            // SAFETY: `raw` is not shared yet. The answer is the mode before.
            Some(function) => unsafe { function(self.raw, mode).into() },
            // SAFETY: the same; this number takes the mode as its long.
            None => unsafe {
                let set = number::SSL_CTRL_SET_SESS_CACHE_MODE;
                self.control(set, mode.into(), ptr::null_mut())
            },
        };
        if callback {
            // SAFETY: the callback keeps to what the library demands of it, see there.
            unsafe { (api.SSL_CTX_sess_set_new_cb)(self.raw, Some(session::keep_newest)) };
        }
        if version == TLS_1_2 && resumption != Resumption::Ticket {
            let options = number::SSL_OP_NO_TICKET;
            match api.SSL_CTX_set_options {
                // SAFETY: `raw` is not shared yet.
                Some(function) => unsafe {
                    function(self.raw, options);
                },
                // SAFETY: the same; this number takes options as its long.
                None => unsafe {
                    let options = options as c_long;
                    self.control(number::SSL_CTRL_OPTIONS, options, ptr::null_mut());
                },
            }
        }
        if side == Side::Server {
            // SAFETY: the same; the bytes are copied.
            let (count, context) = unsafe {
                let count = (api.SSL_CTX_set_num_tickets)(self.raw, tickets.into());
                let (bytes, length) = (SESSION_CONTEXT.as_ptr(), SESSION_CONTEXT_BYTES);
                (count, (api.SSL_CTX_set_session_id_context)(self.raw, bytes, length))
            };
            self.must(count.into(), || format!("{tickets} tickets"))?;
            if context != 1 {
                return Err(api.error("SSL_CTX_set_session_id_context"));
            }
        }
        Ok(())
    }

    fn release_buffers(&self, release: bool) {
        let mode = number::SSL_MODE_RELEASE_BUFFERS;
        // The forks always do, and have no such bit.
        if !release || self.library.flavour() != Flavour::OpenSsl {
            return;
        }
        match self.library.api.SSL_CTX_set_mode {
            // SAFETY: `raw` is not shared yet.
            Some(function) => unsafe {
                function(self.raw, mode);
            },
            // SAFETY: the same; this number takes the mode as its long.
            None => unsafe {
                self.control(number::SSL_CTRL_MODE, mode as c_long, ptr::null_mut());
            },
        }
    }

    /// # Safety
    /// What is demanded by [`Api::context_control`](crate::api::Api::context_control).
    unsafe fn control(&self, number: c_int, long: c_long, pointer: *mut c_void) -> c_long {
        // SAFETY: as demanded.
        unsafe { self.library.api.context_control(self.raw, number, long, pointer) }
    }

    /// A setting that the library refuses is one that it does not have.
    fn must(&self, set: c_long, what: impl FnOnce() -> String) -> Result<(), Error> {
        if set == 1 {
            return Ok(());
        }
        // SAFETY: empties this thread's queue.
        unsafe { (self.library.api.ERR_clear_error)() };
        Err(Error::Unsupported { library: self.library.version(), what: what() })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the one reference that this value owns; connections hold their own.
        unsafe { (self.library.api.SSL_CTX_free)(self.raw) }
    }
}

fn group_name(iana: u16) -> Option<&'static str> {
    GROUPS.iter().find(|(number, _)| *number == iana).map(|(_, name)| *name)
}

/// What a client demands of a certificate; with no bytes, OpenSSL would demand nothing.
fn server_name(name: &str) -> Result<CString, Error> {
    if name.is_empty() { Err(Error::NoName) } else { c_string(name) }
}

fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::ZeroByte(text.to_owned()))
}

fn c_path(path: &Path) -> Result<CString, Error> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::ZeroByte(path.display().to_string()))
}

pub(crate) const TLS_1_2: u16 = 0x0303;
const TLS_1_3: u16 = 0x0304;

/// IANA number and the name that all libraries take in a list.
pub(crate) const GROUPS: [(u16, &str); 4] =
    [(0x0017, "P-256"), (0x0018, "P-384"), (0x001d, "X25519"), (0x11ec, "X25519MLKEM768")];

/// IANA name and OpenSSL's name.
const SUITES_1_2: [(&str, &str); 6] = [
    ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
    ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
    ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
];

/// IANA name and number; the first is what two ends choose whose processors have AES.
const SUITES_1_3: [(&str, u16); 3] = [
    ("TLS_AES_128_GCM_SHA256", 0x1301),
    ("TLS_AES_256_GCM_SHA384", 0x1302),
    ("TLS_CHACHA20_POLY1305_SHA256", 0x1303),
];

/// The signature schemes' IANA numbers.
const ED25519: [u16; 1] = [0x0807];

/// Sessions are this program's own.
const SESSION_CONTEXT: &[u8; SESSION_CONTEXT_BYTES as usize] = b"sealane-lab";
const SESSION_CONTEXT_BYTES: u32 = 11;
