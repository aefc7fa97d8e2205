//! How many contexts of a library this process has built and freed, and the roots that they read:
//! [`Census`], counted where it happens.
//!
//! A context outlives its [`Context`](crate::Context) while a connection holds it, and only the
//! library knows when the last one let go: it then calls [`freed`], by way of the value that every
//! context is given here.

use std::{
    ffi::{c_int, c_long, c_void},
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use crate::{
    Error, Library,
    api::{Api, SslCtx, number},
};

/// Contexts of this process so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Those that were made, finished or not.
    pub built: u64,
    /// Those that the library has freed, after their last connection.
    pub freed: u64,
    /// Root certificates that were read into them.
    pub roots: u64,
}

impl Census {
    /// What was counted until now.
    #[must_use]
    pub fn now() -> Self {
        Self { built: BUILT.load(Relaxed), freed: FREED.load(Relaxed), roots: ROOTS.load(Relaxed) }
    }
}

/// Counts `context`, which is new, and makes the library tell when it frees it.
pub(crate) fn built(library: &'static Library, context: *mut SslCtx) -> Result<(), Error> {
    let api = &library.api;
    let index = *INDEX.get_or_init(|| index(api));
    let counted: *mut c_void = ptr::from_ref(&BUILT).cast_mut().cast();
    // SAFETY: `context` is alive and not shared yet; the value is an address that is never read or
    // written through, only compared with null.
    let set = index >= 0 && unsafe { (api.SSL_CTX_set_ex_data)(context, index, counted) } == 1;
    if !set {
        return Err(api.error("SSL_CTX_set_ex_data"));
    }
    BUILT.fetch_add(1, Relaxed);
    Ok(())
}

/// Counts the roots that `context`, which is not shared yet, holds; a library that does not tell
/// has none.
pub(crate) fn read_roots(library: &'static Library, context: *mut SslCtx) {
    let api = &library.api;
    let (Some(store), Some(objects)) = (api.SSL_CTX_get_cert_store, api.X509_STORE_get0_objects)
    else {
        return;
    };
    let Some(length) = api.OPENSSL_sk_num.or(api.sk_num) else { return };
    // SAFETY: the context is alive, nobody else adds to its store, and neither is freed here.
    let held = unsafe { length(objects(store(context))) };
    ROOTS.fetch_add(u64::try_from(held).unwrap_or(0), Relaxed);
}

/// A place for a value in each context, with what is to be called at its end; negative if the
/// library has none left. OpenSSL has a macro where its forks have a function.
fn index(api: &Api) -> c_int {
    let (class, none) = (number::CRYPTO_EX_INDEX_SSL_CTX, ptr::null_mut());
    match (api.SSL_CTX_get_ex_new_index, api.CRYPTO_get_ex_new_index) {
        // SAFETY: takes a function that keeps to its contract, see there, and no argument for it.
        (Some(function), _) => unsafe { function(0, none, none, none, Some(freed)) },
        // SAFETY: as above.
        (None, Some(function)) => unsafe { function(class, 0, none, none, none, Some(freed)) },
        (None, None) => -1,
    }
}

/// What the library calls at the end of a context; `counted` is null for one that is not of here.
unsafe extern "C" fn freed(
    _context: *mut c_void,
    counted: *mut c_void,
    _data: *mut c_void,
    _index: c_int,
    _number: c_long,
    _argument: *mut c_void,
) {
    if !counted.is_null() {
        FREED.fetch_add(1, Relaxed);
    }
}

static BUILT: AtomicU64 = AtomicU64::new(0);
static FREED: AtomicU64 = AtomicU64::new(0);
static ROOTS: AtomicU64 = AtomicU64::new(0);
/// One library per process, so one place.
static INDEX: OnceLock<c_int> = OnceLock::new();
