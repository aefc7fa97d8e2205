//! An older version of rustls, which Cargo cannot hold beside the one that is linked: a library
//! with a few C functions, built from [`EXPORTS`], that does what a stack of the lab does.
//!
//! ```text
//! Library::open(path)    prepare(request)    thread()    server() / client()
//! one per process   ---> Contexts         ---> Thread ---> Connection: handshake, send, receive
//! ```

use std::{
    ffi::{c_int, c_void},
    marker::PhantomData,
    path::{Path, PathBuf},
    ptr,
    sync::OnceLock,
};

use crate::{
    Error, Step,
    api::{functions, objects},
    loader,
};

/// The root of the crate that is compiled with the older version.
pub const EXPORTS: &str = include_str!("old_rustls/exports.rs");

/// A rustls in this process, for as long as the process lives.
pub struct Library {
    api: Api,
    path: PathBuf,
}

/// What threads share. Never freed: a count of who uses it would be one that all threads write.
#[derive(Clone, Copy)]
pub struct Contexts {
    library: &'static Library,
    raw: *mut RawContexts,
}

/// What one thread makes connections with.
pub struct Thread {
    library: &'static Library,
    raw: *mut RawThread,
}

/// One end of one connection.
pub struct Connection {
    library: &'static Library,
    raw: *mut RawConnection,
    /// Not for two threads at once.
    alone: PhantomData<*mut RawConnection>,
}

/// What a client needs to resume.
pub struct Session {
    library: &'static Library,
    raw: *mut RawSession,
}

// SAFETY: what stands behind it is Send and Sync in its own crate.
unsafe impl Send for Contexts {}
// SAFETY: as above.
unsafe impl Sync for Contexts {}
// SAFETY: what stands behind it is Send in its own crate.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Send for Session {}

impl Library {
    /// Loads the library at `path`. The second call in a process gives the same one again.
    ///
    /// # Errors
    /// Those of [`crate::Library::open`]; [`Error::Call`] if it was built by another version of the
    /// lab.
    pub fn open(path: &Path) -> Result<&'static Self, Error> {
        loader::once(path, &LOADED, Self::load)
    }

    fn load(file: &Path) -> Result<Self, Error> {
        let raw = loader::open(file)?;
        let api = Api::load(&raw, file)?;
        std::mem::forget(raw); // never unloaded: `api` points into it
        // SAFETY: takes nothing and gives a number.
        let interface = unsafe { (api.old_rustls_interface)() };
        if interface != INTERFACE {
            let reason = format!(
                "{} has interface {interface}, and this lab has {INTERFACE}: remove its folder \
                 and build it again",
                file.display()
            );
            return Err(Error::Call { call: "old_rustls_interface", reason });
        }
        Ok(Self { api, path: file.to_owned() })
    }

    /// The file that was loaded.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Builds what `request` asks for, in JSON: a `scenario` and the folder of
    /// `credentials`.
    ///
    /// # Errors
    /// [`Error::Refused`] if this version cannot do it, else [`Error::Call`].
    pub fn prepare(&'static self, request: &str) -> Result<Contexts, Error> {
        // SAFETY: reads the request within its length.
        let raw = unsafe { (self.api.old_rustls_prepare)(request.as_ptr(), request.len()) };
        if raw.is_null() {
            return Err(self.error("old_rustls_prepare"));
        }
        Ok(Contexts { library: self, raw })
    }

    /// Why the last call on this thread failed.
    fn error(&self, call: &'static str) -> Error {
        let mut text = Vec::new();
        // SAFETY: `append` takes a vector, which lives through the call.
        let unsupported =
            unsafe { (self.api.old_rustls_error)(append, (&raw mut text).cast()) } == 1;
        let reason = String::from_utf8_lossy(&text).into_owned();
        if unsupported { Error::Refused(reason) } else { Error::Call { call, reason } }
    }
}

impl Contexts {
    /// The calling thread's.
    ///
    /// # Errors
    /// Those of [`Library::prepare`].
    pub fn thread(&self) -> Result<Thread, Error> {
        let Self { library, raw } = *self;
        // SAFETY: `raw` came from the library and is never freed.
        let raw = unsafe { (library.api.old_rustls_thread)(raw) };
        if raw.is_null() {
            return Err(library.error("old_rustls_thread"));
        }
        Ok(Thread { library, raw })
    }
}

impl Thread {
    /// A server at the start of a connection.
    ///
    /// # Errors
    /// In rustls's words.
    pub fn server(&mut self) -> Result<Connection, Error> {
        // SAFETY: `raw` is owned, and `&mut self` keeps others away.
        let raw = unsafe { (self.library.api.old_rustls_server)(self.raw) };
        Connection::new(self.library, raw, "old_rustls_server")
    }

    /// A client at the start of a connection that offers `session`.
    ///
    /// # Errors
    /// In rustls's words.
    pub fn client(&mut self, session: Option<Session>) -> Result<Connection, Error> {
        let session = session.map_or(ptr::null_mut(), |session| {
            let raw = session.raw;
            std::mem::forget(session); // given away
            raw
        });
        // SAFETY: as above; `session` is null or owned, and given away.
        let raw = unsafe { (self.library.api.old_rustls_client)(self.raw, session) };
        Connection::new(self.library, raw, "old_rustls_client")
    }
}

impl Connection {
    fn new(
        library: &'static Library,
        raw: *mut RawConnection,
        call: &'static str,
    ) -> Result<Self, Error> {
        if raw.is_null() {
            return Err(library.error(call));
        }
        Ok(Self { library, raw, alone: PhantomData })
    }

    /// Does what [`crate::Connection::handshake`] does.
    ///
    /// # Errors
    /// In rustls's words.
    pub fn handshake(&mut self, incoming: &[u8], outgoing: &mut Vec<u8>) -> Result<Step, Error> {
        let to = ptr::from_mut(outgoing).cast();
        // SAFETY: `raw` is owned; reads `incoming` within its length; `append` takes a vector.
        let done = unsafe {
            let (start, length) = (incoming.as_ptr(), incoming.len());
            (self.library.api.old_rustls_handshake)(self.raw, start, length, append, to)
        };
        Ok(if self.told(done, "handshake")? { Step::Done } else { Step::Wants })
    }

    /// Does what [`crate::Connection::send`] does.
    ///
    /// # Errors
    /// In rustls's words.
    pub fn send(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        let to = ptr::from_mut(outgoing).cast();
        // SAFETY: as above.
        let done = unsafe {
            let (start, length) = (plaintext.as_ptr(), plaintext.len());
            (self.library.api.old_rustls_send)(self.raw, start, length, append, to)
        };
        self.told(done, "send").map(|_| ())
    }

    /// Does what [`crate::Connection::receive`] does.
    ///
    /// # Errors
    /// In rustls's words.
    pub fn receive(
        &mut self,
        incoming: &[u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let (plain, to) = (ptr::from_mut(plaintext).cast(), ptr::from_mut(outgoing).cast());
        // SAFETY: as above, of both vectors.
        let done = unsafe {
            let (start, length) = (incoming.as_ptr(), incoming.len());
            (self.library.api.old_rustls_receive)(self.raw, start, length, append, to, plain)
        };
        self.told(done, "receive")
    }

    /// What was agreed on, in JSON.
    ///
    /// # Errors
    /// In rustls's words.
    pub fn negotiated(&self) -> Result<String, Error> {
        let mut text = Vec::new();
        // SAFETY: as above.
        let done = unsafe {
            let to = (&raw mut text).cast();
            (self.library.api.old_rustls_negotiated)(self.raw, append, to)
        };
        self.told(done, "negotiated")?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// The newest session that the server gave a client.
    pub fn session(&mut self) -> Option<Session> {
        // SAFETY: as above; what is not null is owned from here on.
        let raw = unsafe { (self.library.api.old_rustls_session)(self.raw) };
        (!raw.is_null()).then(|| Session { library: self.library, raw })
    }

    fn told(&self, done: c_int, call: &'static str) -> Result<bool, Error> {
        if done < 0 { Err(self.library.error(call)) } else { Ok(done == 1) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: owned, and nobody uses it after this.
        unsafe { (self.library.api.old_rustls_end_free)(self.raw) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { (self.library.api.old_rustls_session_free)(self.raw) }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { (self.library.api.old_rustls_thread_free)(self.raw) }
    }
}

/// # Safety
/// `to` is a vector that nobody else uses; `start` is readable for `length` bytes.
unsafe extern "C" fn append(to: *mut c_void, start: *const u8, length: usize) {
    if length > 0 {
        // SAFETY: as demanded.
        let (to, bytes) =
            unsafe { (&mut *to.cast::<Vec<u8>>(), std::slice::from_raw_parts(start, length)) };
        to.extend_from_slice(bytes);
    }
}

type Sink = unsafe extern "C" fn(*mut c_void, *const u8, usize);

objects! { RawConnection RawSession RawContexts RawThread }

functions! {
    /// See [`EXPORTS`].
    struct Api of "an older rustls that the lab built";
    required {
        fn old_rustls_client(*mut RawThread, *mut RawSession) -> *mut RawConnection;
        fn old_rustls_end_free(*mut RawConnection);
        fn old_rustls_error(Sink, *mut c_void) -> c_int;
        fn old_rustls_handshake(*mut RawConnection, *const u8, usize, Sink, *mut c_void) -> c_int;
        fn old_rustls_interface() -> c_int;
        fn old_rustls_negotiated(*const RawConnection, Sink, *mut c_void) -> c_int;
        fn old_rustls_prepare(*const u8, usize) -> *mut RawContexts;
        fn old_rustls_receive(
            *mut RawConnection, *const u8, usize, Sink, *mut c_void, *mut c_void
        ) -> c_int;
        fn old_rustls_send(*mut RawConnection, *const u8, usize, Sink, *mut c_void) -> c_int;
        fn old_rustls_server(*mut RawThread) -> *mut RawConnection;
        fn old_rustls_session(*mut RawConnection) -> *mut RawSession;
        fn old_rustls_session_free(*mut RawSession);
        fn old_rustls_thread(*const RawContexts) -> *mut RawThread;
        fn old_rustls_thread_free(*mut RawThread);
    }
    optional {}
}

/// The version of [`EXPORTS`] as they stand.
const INTERFACE: c_int = 1;

static LOADED: OnceLock<Library> = OnceLock::new();
