//! One end of one TLS connection, in memory: [`Connection`], and how far it is, [`Step`].

use std::{
    ffi::{CStr, CString, c_char, c_int, c_long},
    marker::PhantomData,
    ptr,
};

use crate::{
    Context, Error, Flavour, Library, Session,
    api::{Api, Bio, Ssl, number},
    context::{Side, TLS_1_2},
    session,
};

/// One end of one connection. It moves between threads, and no two use it at once.
pub struct Connection {
    pub(crate) library: &'static Library,
    pub(crate) ssl: *mut Ssl,
    /// Both belong to `ssl`.
    incoming: *mut Bio,
    outgoing: *mut Bio,
    /// Whether tickets wait in the library for the server's first bytes: BoringSSL's way.
    holds_tickets: bool,
    /// What is laid ready at a time for [`receive`](Self::receive).
    feed_bytes_max: usize,
    /// A reference-counted C object behind it is not to be used by two threads.
    alone: PhantomData<*mut Ssl>,
}

/// Whether a handshake is over at this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Application data may be sent.
    Done,
    /// The peer's next bytes are needed.
    Wants,
}

// SAFETY: an SSL and its BIOs keep no state of the thread that made them; they must not be used by
// two threads at once, which `&mut self` and the missing `Sync` see to.
unsafe impl Send for Connection {}

impl Connection {
    /// A client if `name` is given.
    pub(crate) fn new(
        context: &Context,
        name: Option<&CString>,
        session: Option<&Session>,
    ) -> Result<Self, Error> {
        let library = context.library;
        let api = &library.api;
        // SAFETY: the context is alive, and the connection takes a reference to it.
        let ssl = unsafe { (api.SSL_new)(context.raw) };
        if ssl.is_null() {
            return Err(api.error("SSL_new"));
        }
        let (incoming, outgoing) = (memory(api), memory(api));
        // SAFETY: the connection takes both over, null or not, and frees them.
        unsafe { (api.SSL_set_bio)(ssl, incoming, outgoing) };
        // From here on dropping it frees all.
        let holds_tickets = context.side == Side::Server && library.flavour() != Flavour::OpenSsl;
        let alone = PhantomData;
        let feed_bytes_max = feed_bytes_max(library.flavour());
        let mut connection =
            Self { library, ssl, incoming, outgoing, holds_tickets, feed_bytes_max, alone };
        if incoming.is_null() || outgoing.is_null() {
            return Err(api.error("BIO_new"));
        }
        match context.side {
            // SAFETY: `ssl` is new.
            Side::Client => unsafe { (api.SSL_set_connect_state)(ssl) },
            // SAFETY: `ssl` is new.
            Side::Server => unsafe { (api.SSL_set_accept_state)(ssl) },
        }
        if let Some(name) = name {
            connection.ask_for(name)?;
        }
        if let Some(session) = session {
            // SAFETY: both are alive; the connection takes its own reference.
            let set = unsafe { (api.SSL_set_session)(ssl, session.raw) };
            if set != 1 {
                return Err(api.error("SSL_set_session"));
            }
        }
        Ok(connection)
    }

    /// Goes on with the handshake; a client starts it with no bytes. Also on failure, `outgoing`
    /// gets what the peer should be told.
    ///
    /// # Errors
    /// The library's words, and why it did not trust the peer if that was it.
    pub fn handshake(&mut self, incoming: &[u8], outgoing: &mut Vec<u8>) -> Result<Step, Error> {
        self.feed(incoming)?;
        // SAFETY: `ssl` is alive and only used here.
        let result = unsafe { (self.library.api.SSL_do_handshake)(self.ssl) };
        let step = match result {
            1 => {
                self.flush_tickets();
                Ok(Step::Done)
            }
            _ if self.why(result) == number::SSL_ERROR_WANT_READ => Ok(Step::Wants),
            _ => Err(self.refusal("SSL_do_handshake")),
        };
        self.drain(outgoing)?;
        step
    }

    /// Encrypts all of `plaintext` into records behind `outgoing`.
    ///
    /// # Errors
    /// The library's words.
    pub fn send(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        for part in plaintext.chunks(CALL_BYTES_MAX) {
            // SAFETY: reads `part` within its length, which fits a C int.
            let written = unsafe {
                (self.library.api.SSL_write)(self.ssl, part.as_ptr().cast(), length(part))
            };
            // Memory takes everything, so a part is written whole or not at all.
            if written != length(part) {
                return Err(self.refusal("SSL_write"));
            }
        }
        self.drain(outgoing)
    }

    /// Decrypts all of `incoming` behind `plaintext`; takes in tickets too. `true`: the peer has
    /// said that it sends no more.
    ///
    /// # Errors
    /// The library's words.
    pub fn receive(
        &mut self,
        incoming: &[u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let (mut closed, mut rest) = (false, incoming);
        // At least once: what came with the handshake's last flight may wait.
        loop {
            let (part, behind) = rest.split_at(rest.len().min(self.feed_bytes_max));
            self.feed(part)?;
            closed |= self.decrypt(plaintext, outgoing)?;
            rest = behind;
            if rest.is_empty() {
                break;
            }
        }
        self.drain(outgoing)?;
        Ok(closed)
    }

    /// Reads until the library wants more bytes; `true`: the peer has said that it sends no more.
    fn decrypt(&mut self, plaintext: &mut Vec<u8>, outgoing: &mut Vec<u8>) -> Result<bool, Error> {
        loop {
            plaintext.reserve(RECORD_BYTES_MAX);
            let spare = plaintext.spare_capacity_mut();
            let room = c_int::try_from(spare.len()).unwrap_or(c_int::MAX);
            // SAFETY: writes at most `room` bytes to `spare`, and does not read it.
            let result =
                unsafe { (self.library.api.SSL_read)(self.ssl, spare.as_mut_ptr().cast(), room) };
            if let Some(bytes) = usize::try_from(result).ok().filter(|bytes| *bytes > 0) {
                // SAFETY: the library wrote that many bytes, at most the capacity.
                unsafe { plaintext.set_len(plaintext.len() + bytes) };
                continue;
            }
            match self.why(result) {
                number::SSL_ERROR_WANT_READ => return Ok(false),
                number::SSL_ERROR_ZERO_RETURN => return Ok(true),
                _ => {
                    let refusal = self.refusal("SSL_read");
                    self.drain(outgoing)?;
                    return Err(refusal);
                }
            }
        }
    }

    /// The newest session that the server gave a client, if it can be resumed.
    pub fn session(&mut self) -> Option<Session> {
        let api = &self.library.api;
        // SAFETY: `ssl` is alive and only used here; either gives a reference of our own, or null.
        let raw = unsafe {
            let in_slot = self.library.flavour() != Flavour::OpenSsl
                && (api.SSL_version)(self.ssl) != c_int::from(TLS_1_2);
            if in_slot {
                session::take_newest(self.library, self.ssl)
            } else {
                (api.SSL_get1_session)(self.ssl)
            }
        };
        Session::new(self.library, raw)
    }

    /// Lets tickets go that the library holds back until the server writes.
    fn flush_tickets(&mut self) {
        if self.holds_tickets {
            // SAFETY: `ssl` is alive; no bytes are read. That nothing was written is no failure.
            unsafe { (self.library.api.SSL_write)(self.ssl, ptr::null(), 0) };
        }
    }

    fn ask_for(&mut self, name: &CString) -> Result<(), Error> {
        let api = &self.library.api;
        let set = match api.SSL_set_tlsext_host_name {
            // SAFETY: `ssl` is alive; the name is copied.
            Some(function) => unsafe { function(self.ssl, name.as_ptr()).into() },
            // SAFETY: the same; this number takes a kind of name and a name.
            None => unsafe {
                let (number, name) = (number::SSL_CTRL_SET_TLSEXT_HOSTNAME, name.as_ptr());
                let kind = number::TLSEXT_NAMETYPE_HOST_NAME;
                api.control(self.ssl, number, kind, name.cast_mut().cast())
            },
        };
        if set == 1 { Ok(()) } else { Err(api.error("SSL_set_tlsext_host_name")) }
    }

    /// Demands `name`, which is not empty, in the peer's certificate.
    pub(crate) fn demand(&mut self, name: &str) -> Result<(), Error> {
        let api = &self.library.api;
        // SAFETY: the parameters belong to `ssl`, which is alive and copied them from its context;
        // the name is copied by its length, which is not 0: then OpenSSL would look for a zero
        // byte.
        let set = unsafe {
            let parameters = (api.SSL_get0_param)(self.ssl);
            (api.X509_VERIFY_PARAM_set1_host)(parameters, name.as_ptr().cast(), name.len())
        };
        if set == 1 { Ok(()) } else { Err(api.error("X509_VERIFY_PARAM_set1_host")) }
    }

    /// Lays the peer's bytes ready.
    fn feed(&mut self, incoming: &[u8]) -> Result<(), Error> {
        for part in incoming.chunks(CALL_BYTES_MAX) {
            // SAFETY: reads `part` within its length, which fits a C int.
            let taken = unsafe {
                (self.library.api.BIO_write)(self.incoming, part.as_ptr().cast(), length(part))
            };
            if taken != length(part) {
                return Err(self.library.api.error("BIO_write"));
            }
        }
        Ok(())
    }

    /// Appends what is to be sent.
    fn drain(&mut self, outgoing: &mut Vec<u8>) -> Result<(), Error> {
        let api = &self.library.api;
        let mut waiting = pending(api, self.outgoing);
        outgoing.reserve(waiting);
        while waiting > 0 {
            let part = waiting.min(CALL_BYTES_MAX);
            let room = c_int::try_from(part).unwrap_or(c_int::MAX);
            let spare = outgoing.spare_capacity_mut().as_mut_ptr();
            // SAFETY: writes at most `part` bytes, which are reserved, and does not read them.
            let read = unsafe { (api.BIO_read)(self.outgoing, spare.cast(), room) };
            if read != room {
                return Err(api.error("BIO_read"));
            }
            // SAFETY: the library wrote `part` bytes, and no more.
            unsafe { outgoing.set_len(outgoing.len() + part) };
            waiting -= part;
        }
        Ok(())
    }

    /// The kind of the failure that `result` stands for.
    fn why(&self, result: c_int) -> c_int {
        // SAFETY: `ssl` is alive; `result` is what its last call gave.
        unsafe { (self.library.api.SSL_get_error)(self.ssl, result) }
    }

    /// The library's words on a failure, and its verdict on the peer's certificate.
    fn refusal(&self, call: &'static str) -> Error {
        let api = &self.library.api;
        let mut error = api.error(call);
        // SAFETY: `ssl` is alive; the verdict's text is never freed.
        let verdict = unsafe {
            match (api.SSL_get_verify_result)(self.ssl) {
                VERIFIED => String::new(),
                verdict => text((api.X509_verify_cert_error_string)(verdict)),
            }
        };
        if let (Error::Call { reason, .. }, false) = (&mut error, verdict.is_empty()) {
            *reason = format!("{reason} ({verdict})");
        }
        error
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let api = &self.library.api;
        // SAFETY: `ssl` is alive until here, and its BIOs go with it. It is marked as closed by
        // both, or OpenSSL would spoil the session that it leaves behind.
        unsafe {
            if self.library.flavour() != Flavour::OpenSsl {
                let unused = session::take_newest(self.library, self.ssl);
                if !unused.is_null() {
                    (api.SSL_SESSION_free)(unused);
                }
            }
            (api.SSL_set_shutdown)(self.ssl, number::SSL_SENT_AND_RECEIVED_SHUTDOWN);
            (api.SSL_free)(self.ssl);
        }
    }
}

/// A place for bytes that grows; null if there is no memory.
fn memory(api: &Api) -> *mut Bio {
    // SAFETY: makes an object from a static method table.
    unsafe { (api.BIO_new)((api.BIO_s_mem)()) }
}

fn pending(api: &Api, bio: *mut Bio) -> usize {
    // SAFETY: `bio` is alive; this number takes nothing and changes nothing.
    let bytes = unsafe { (api.BIO_ctrl)(bio, number::BIO_CTRL_PENDING, 0, ptr::null_mut()) };
    usize::try_from(bytes).unwrap_or(0)
}

/// # Safety
/// `raw` is null or a string that lives through the call.
pub(crate) unsafe fn text(raw: *const c_char) -> String {
    if raw.is_null() {
        return String::new();
    }
    // SAFETY: as demanded.
    unsafe { CStr::from_ptr(raw) }.to_string_lossy().into_owned()
}

/// BoringSSL's memory moves all that is left in it forward at each read, twice per record: what is
/// left must be little, or the lab would measure that.
fn feed_bytes_max(flavour: Flavour) -> usize {
    match flavour {
        Flavour::BoringSsl => MOVED_BYTES_MAX,
        Flavour::AwsLc | Flavour::OpenSsl => CALL_BYTES_MAX,
    }
}

/// The length of a slice that is at most [`CALL_BYTES_MAX`] long.
fn length(part: &[u8]) -> c_int {
    c_int::try_from(part.len()).unwrap_or(c_int::MAX)
}

/// What one call of C's takes at most: its length is an int.
const CALL_BYTES_MAX: usize = 1 << 30;
/// Little beside a record; four calls make one.
const MOVED_BYTES_MAX: usize = 4_096;
/// Plaintext of one record.
const RECORD_BYTES_MAX: usize = 16_384;

pub(crate) const VERIFIED: c_long = 0;
