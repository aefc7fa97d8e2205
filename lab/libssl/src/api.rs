//! The C functions of a libssl, by name: [`Api`]. What is a macro in one library and a function in
//! another is optional here; its caller falls back to the control number of OpenSSL's headers.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libloading::os::unix::Library;

use crate::Error;

/// Opaque objects of C.
macro_rules! objects {
    ($($name:ident)*) => {
        $(
            #[repr(C)]
            pub(crate) struct $name([u8; 0]);
        )*
    };
}

objects! {
    Bio BioMethod Cipher EcGroup EcKey Pkey
    Ssl SslCtx SslMethod SslSession Stack VerifyParam X509 X509Store
}

/// A struct of function pointers, and the function that fills it by looking each name up.
macro_rules! functions {
    (
        $(#[$doc:meta])* $visible:vis struct $api:ident of $wanted:literal;
        required { $(fn $name:ident($($argument:ty),*) $(-> $result:ty)?;)* }
        optional { $(fn $maybe:ident($($maybe_argument:ty),*) $(-> $maybe_result:ty)?;)* }
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "C's names, so that they are found in C's manuals")]
        $visible struct $api {
            $($visible $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            $($visible $maybe: Option<unsafe extern "C" fn($($maybe_argument),*)
                $(-> $maybe_result)?>,)*
        }

        impl $api {
            /// Looks every name up in `library` and in what it depends on.
            $visible fn load(
                library: &libloading::os::unix::Library,
                path: &std::path::Path,
            ) -> Result<Self, $crate::Error> {
                Ok(Self {
                    $($name: {
                        let symbol = stringify!($name);
                        // SAFETY: the type is that of the function in its C header; the pointer
                        // outlives its use, because the library is never closed.
                        let found = unsafe { library.get(symbol.as_bytes()) };
                        *found.map_err(|_| $crate::Error::Symbol {
                            path: path.display().to_string(),
                            symbol,
                            wanted: $wanted,
                        })?
                    },)*
                    $($maybe: {
                        // SAFETY: as above; `None` where the library has no such function.
                        unsafe { library.get(stringify!($maybe).as_bytes()) }.ok().map(|f| *f)
                    },)*
                })
            }
        }
    };
}

functions! {
    /// What every libssl has, and what only some have.
    ///
    /// Where C's types differ between libraries in width only (`uint32_t` for `unsigned long`),
    /// the wider one stands here: a 64-bit calling convention passes both in one register, and
    /// what comes back is cut to the narrow one by the caller.
    pub(crate) struct Api of "a libssl";
    required {
        fn BIO_ctrl(*mut Bio, c_int, c_long, *mut c_void) -> c_long;
        fn BIO_new(*const BioMethod) -> *mut Bio;
        fn BIO_read(*mut Bio, *mut c_void, c_int) -> c_int;
        fn BIO_s_mem() -> *const BioMethod;
        fn BIO_write(*mut Bio, *const c_void, c_int) -> c_int;
        fn ERR_clear_error();
        fn ERR_error_string_n(c_ulong, *mut c_char, usize);
        fn ERR_get_error() -> c_ulong;
        fn OpenSSL_version(c_int) -> *const c_char;
        fn SSL_CIPHER_get_id(*const Cipher) -> c_ulong;
        fn SSL_CTX_check_private_key(*const SslCtx) -> c_int;
        fn SSL_CTX_free(*mut SslCtx);
        fn SSL_CTX_get0_param(*mut SslCtx) -> *mut VerifyParam;
        fn SSL_CTX_load_verify_locations(*mut SslCtx, *const c_char, *const c_char) -> c_int;
        fn SSL_CTX_new(*const SslMethod) -> *mut SslCtx;
        fn SSL_CTX_sess_set_new_cb(
            *mut SslCtx, Option<unsafe extern "C" fn(*mut Ssl, *mut SslSession) -> c_int>
        );
        fn SSL_CTX_set_cipher_list(*mut SslCtx, *const c_char) -> c_int;
        fn SSL_CTX_set_ex_data(*mut SslCtx, c_int, *mut c_void) -> c_int;
        fn SSL_CTX_set_num_tickets(*mut SslCtx, usize) -> c_int;
        fn SSL_CTX_set_session_id_context(*mut SslCtx, *const u8, c_uint) -> c_int;
        fn SSL_CTX_set_verify(*mut SslCtx, c_int, *const c_void);
        fn SSL_CTX_use_PrivateKey_file(*mut SslCtx, *const c_char, c_int) -> c_int;
        fn SSL_CTX_use_certificate_chain_file(*mut SslCtx, *const c_char) -> c_int;
        fn SSL_SESSION_free(*mut SslSession);
        fn SSL_SESSION_is_resumable(*const SslSession) -> c_int;
        fn SSL_do_handshake(*mut Ssl) -> c_int;
        fn SSL_free(*mut Ssl);
        fn SSL_get0_param(*mut Ssl) -> *mut VerifyParam;
        fn SSL_get1_session(*mut Ssl) -> *mut SslSession;
        fn SSL_get_current_cipher(*const Ssl) -> *const Cipher;
        fn SSL_get_error(*const Ssl, c_int) -> c_int;
        fn SSL_get_ex_data(*const Ssl, c_int) -> *mut c_void;
        fn SSL_get_verify_result(*const Ssl) -> c_long;
        fn SSL_new(*mut SslCtx) -> *mut Ssl;
        fn SSL_read(*mut Ssl, *mut c_void, c_int) -> c_int;
        fn SSL_set_accept_state(*mut Ssl);
        fn SSL_set_bio(*mut Ssl, *mut Bio, *mut Bio);
        fn SSL_set_connect_state(*mut Ssl);
        fn SSL_set_ex_data(*mut Ssl, c_int, *mut c_void) -> c_int;
        fn SSL_set_session(*mut Ssl, *mut SslSession) -> c_int;
        fn SSL_set_shutdown(*mut Ssl, c_int);
        fn SSL_version(*const Ssl) -> c_int;
        fn SSL_write(*mut Ssl, *const c_void, c_int) -> c_int;
        fn TLS_method() -> *const SslMethod;
        fn X509_VERIFY_PARAM_set1_host(*mut VerifyParam, *const c_char, usize) -> c_int;
        fn X509_free(*mut X509);
        fn X509_verify_cert_error_string(c_long) -> *const c_char;
    }
    optional {
        fn CRYPTO_get_ex_new_index(
            c_int, c_long, *mut c_void, *mut c_void, *mut c_void, Option<ExFree>
        ) -> c_int;
        fn EC_GROUP_get_curve_name(*const EcGroup) -> c_int;
        fn EC_KEY_get0_group(*const EcKey) -> *const EcGroup;
        fn EVP_PKEY_free(*mut Pkey);
        fn EVP_PKEY_get0_EC_KEY(*mut Pkey) -> *const EcKey;
        fn EVP_PKEY_id(*const Pkey) -> c_int;
        fn OPENSSL_sk_num(*const Stack) -> c_int;
        fn SSL_CIPHER_standard_name(*const Cipher) -> *const c_char;
        fn SSL_SESSION_get_id(*const SslSession, *mut c_uint) -> *const u8;
        fn SSL_CTX_ctrl(*mut SslCtx, c_int, c_long, *mut c_void) -> c_long;
        fn SSL_CTX_get_cert_store(*const SslCtx) -> *mut X509Store;
        fn SSL_CTX_get_ex_new_index(
            c_long, *mut c_void, *mut c_void, *mut c_void, Option<ExFree>
        ) -> c_int;
        fn SSL_CTX_set1_groups_list(*mut SslCtx, *const c_char) -> c_int;
        fn SSL_CTX_set1_tls13_ciphers(*mut SslCtx, *const u16, *const u32, usize) -> c_int;
        fn SSL_CTX_set_ciphersuites(*mut SslCtx, *const c_char) -> c_int;
        fn SSL_CTX_set_max_proto_version(*mut SslCtx, u16) -> c_int;
        fn SSL_CTX_set_min_proto_version(*mut SslCtx, u16) -> c_int;
        fn SSL_CTX_set_mode(*mut SslCtx, c_ulong) -> c_ulong;
        fn SSL_CTX_set_options(*mut SslCtx, c_ulong) -> c_ulong;
        fn SSL_CTX_set_session_cache_mode(*mut SslCtx, c_int) -> c_int;
        fn SSL_CTX_set_verify_algorithm_prefs(*mut SslCtx, *const u16, usize) -> c_int;
        fn SSL_ctrl(*mut Ssl, c_int, c_long, *mut c_void) -> c_long;
        fn SSL_get1_peer_certificate(*const Ssl) -> *mut X509;
        fn SSL_get_group_id(*const Ssl) -> u16;
        fn SSL_get_peer_certificate(*const Ssl) -> *mut X509;
        fn SSL_session_reused(*const Ssl) -> c_int;
        fn SSL_set_tlsext_host_name(*mut Ssl, *const c_char) -> c_int;
        fn X509_STORE_get0_objects(*const X509Store) -> *const Stack;
        fn sk_num(*const Stack) -> c_int;
    }
}

/// What a library calls when it frees an object to which something was attached.
pub(crate) type ExFree =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, c_int, c_long, *mut c_void);

impl Api {
    /// Sets something of a context by its number in OpenSSL's headers.
    ///
    /// # Safety
    /// `context` is alive and not yet used by other threads; `number` means what `long` and
    /// `pointer` are.
    pub(crate) unsafe fn context_control(
        &self,
        context: *mut SslCtx,
        number: c_int,
        long: c_long,
        pointer: *mut c_void,
    ) -> c_long {
        // SAFETY: as this function demands.
        self.SSL_CTX_ctrl.map_or(0, |control| unsafe { control(context, number, long, pointer) })
    }

    /// Sets something of a connection, as [`context_control`](Self::context_control) of a context.
    ///
    /// # Safety
    /// `ssl` is alive and no other thread's; `number` means what `long` and `pointer` are.
    pub(crate) unsafe fn control(
        &self,
        ssl: *mut Ssl,
        number: c_int,
        long: c_long,
        pointer: *mut c_void,
    ) -> c_long {
        // SAFETY: as this function demands.
        self.SSL_ctrl.map_or(0, |control| unsafe { control(ssl, number, long, pointer) })
    }

    /// What the library has to say about the failure of `call`, on this thread; empties its queue.
    pub(crate) fn error(&self, call: &'static str) -> Error {
        let mut lines = Vec::new();
        for _ in 0..QUEUE_LINES_MAX {
            // SAFETY: takes one code from this thread's queue.
            let code = unsafe { (self.ERR_get_error)() } & 0xffff_ffff;
            if code == 0 {
                break;
            }
            let mut text = [0_u8; QUEUE_LINE_BYTES_MAX];
            // SAFETY: `text` is writable for its length; the library ends it with a zero byte.
            unsafe {
                (self.ERR_error_string_n)(code, text.as_mut_ptr().cast(), text.len());
            }
            let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            lines.push(String::from_utf8_lossy(&text[..length]).into_owned());
        }
        // SAFETY: empties this thread's queue.
        unsafe { (self.ERR_clear_error)() };
        if lines.is_empty() {
            lines.push("failed, and the library does not say why".to_owned());
        }
        Error::Call { call, reason: lines.join("; ") }
    }
}

/// The functions that `library` answers for; a library that is none gives the first one missing.
pub(crate) fn load(library: &Library, path: &std::path::Path) -> Result<Api, Error> {
    Api::load(library, path)
}

/// What an OpenSSL from before 1.1.0 calls itself; `None` if `library` is none.
pub(crate) fn version_before_1_1(library: &Library) -> Option<String> {
    type Version = unsafe extern "C" fn(c_int) -> *const c_char;
    // SAFETY: the type is that of the function in its C header; LibreSSL has both.
    let [old, new] = unsafe {
        [&b"SSLeay_version"[..], b"OpenSSL_version"].map(|name| library.get::<Version>(name).ok())
    };
    let function = old.filter(|_| new.is_none())?;
    // SAFETY: takes a number, gives a string that is never freed.
    Some(unsafe { crate::connection::text(function(0)) })
}

const QUEUE_LINES_MAX: usize = 8;
const QUEUE_LINE_BYTES_MAX: usize = 256;

/// Numbers of `<openssl/ssl.h>`: 1.1.1 to 4.0 agree on all of these.
pub(crate) mod number {
    use std::ffi::{c_int, c_long, c_ulong};

    pub(crate) const BIO_CTRL_PENDING: c_int = 10;
    pub(crate) const CRYPTO_EX_INDEX_SSL_CTX: c_int = 1;
    pub(crate) const SSL_CTRL_GET_NEGOTIATED_GROUP: c_int = 134;
    pub(crate) const SSL_CTRL_GET_PEER_TMP_KEY: c_int = 109;
    pub(crate) const SSL_CTRL_GET_SESSION_REUSED: c_int = 8;
    pub(crate) const SSL_CTRL_MODE: c_int = 33;
    pub(crate) const SSL_CTRL_OPTIONS: c_int = 32;
    pub(crate) const SSL_CTRL_SET_GROUPS_LIST: c_int = 92;
    pub(crate) const SSL_CTRL_SET_MAX_PROTO_VERSION: c_int = 124;
    pub(crate) const SSL_CTRL_SET_MIN_PROTO_VERSION: c_int = 123;
    pub(crate) const SSL_CTRL_SET_SESS_CACHE_MODE: c_int = 44;
    pub(crate) const SSL_CTRL_SET_TLSEXT_HOSTNAME: c_int = 55;
    pub(crate) const SSL_ERROR_WANT_READ: c_int = 2;
    pub(crate) const SSL_ERROR_ZERO_RETURN: c_int = 6;
    pub(crate) const SSL_FILETYPE_PEM: c_int = 1;
    pub(crate) const SSL_MODE_RELEASE_BUFFERS: c_ulong = 0x10;
    pub(crate) const SSL_OP_NO_TICKET: c_ulong = 0x4000;
    pub(crate) const SSL_SENT_AND_RECEIVED_SHUTDOWN: c_int = 3;
    pub(crate) const SSL_SESS_CACHE_CLIENT: c_int = 1;
    pub(crate) const SSL_SESS_CACHE_NO_INTERNAL: c_int = 0x300;
    pub(crate) const SSL_SESS_CACHE_OFF: c_int = 0;
    pub(crate) const SSL_SESS_CACHE_SERVER: c_int = 2;
    pub(crate) const SSL_VERIFY_FAIL_IF_NO_PEER_CERT: c_int = 2;
    pub(crate) const SSL_VERIFY_PEER: c_int = 1;
    pub(crate) const TLSEXT_NAMETYPE_HOST_NAME: c_long = 0;
}
