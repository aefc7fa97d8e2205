//! What a client keeps to resume: [`Session`].

use std::ffi::c_int;

use crate::{
    Library,
    api::{Ssl, SslSession},
};

/// A session that a server gave, for as many connections as offer it: each takes a reference of its
/// own. Freed when dropped and the last of them is gone.
pub struct Session {
    pub(crate) library: &'static Library,
    pub(crate) raw: *mut SslSession,
}

// SAFETY: SSL_SESSION counts its references atomically, and is read only once it is whole.
unsafe impl Send for Session {}
// SAFETY: as above; what a shared one is used for is SSL_set_session, which takes a reference.
unsafe impl Sync for Session {}

impl Session {
    /// `raw` is null, or one reference that this value owns from here on.
    pub(crate) fn new(library: &'static Library, raw: *mut SslSession) -> Option<Self> {
        if raw.is_null() {
            return None;
        }
        let session = Self { library, raw };
        session.is_resumable().then_some(session)
    }

    /// Whether a server may take it. LibreSSL says of every session that it is not; there one that
    /// can be offered has a number, made up where it came as a ticket.
    fn is_resumable(&self) -> bool {
        let api = &self.library.api;
        if let (true, Some(number)) = (self.library.is_libressl(), api.SSL_SESSION_get_id) {
            let mut bytes = 0;
            // SAFETY: `raw` is alive, and only the length is read of what it tells.
            unsafe { number(self.raw, &raw mut bytes) };
            return bytes > 0;
        }
        // SAFETY: `raw` is alive.
        unsafe { (api.SSL_SESSION_is_resumable)(self.raw) == 1 }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: the one reference that this value owns.
        unsafe { (self.library.api.SSL_SESSION_free)(self.raw) }
    }
}

/// For libraries that hand a session to a callback only: keeps the newest in the connection's own
/// slot for applications.
///
/// # Safety
/// A libssl calls it, with a live connection and one reference to a session.
pub(crate) unsafe extern "C" fn keep_newest(ssl: *mut Ssl, session: *mut SslSession) -> c_int {
    let Some(library) = Library::loaded() else { return REFUSED };
    let api = &library.api;
    // SAFETY: `ssl` is alive in its own callback; the slot holds what this function put there, one
    // reference, or null.
    unsafe {
        let older = (api.SSL_get_ex_data)(ssl, SLOT).cast::<SslSession>();
        if (api.SSL_set_ex_data)(ssl, SLOT, session.cast()) != 1 {
            return REFUSED;
        }
        if !older.is_null() {
            (api.SSL_SESSION_free)(older);
        }
    }
    TAKEN
}

/// What `keep_newest` kept, or null; the caller owns it.
///
/// # Safety
/// `ssl` is alive and no other thread's.
pub(crate) unsafe fn take_newest(library: &Library, ssl: *mut Ssl) -> *mut SslSession {
    // SAFETY: as demanded; the slot is emptied, so that nobody else frees what was in it.
    unsafe {
        let newest = (library.api.SSL_get_ex_data)(ssl, SLOT).cast::<SslSession>();
        if !newest.is_null() {
            (library.api.SSL_set_ex_data)(ssl, SLOT, std::ptr::null_mut());
        }
        newest
    }
}

/// Index 0 is the application's in every libssl.
const SLOT: c_int = 0;
/// The callback's answers: whether it keeps the reference.
const REFUSED: c_int = 0;
const TAKEN: c_int = 1;
