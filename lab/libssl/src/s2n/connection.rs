//! One end of one connection of s2n-tls, in memory: [`Connection`], and what a client keeps,
//! [`Session`].

use std::{
    ffi::{CString, c_int, c_long, c_uint, c_void},
    ptr,
};

use super::{Context, Library, Raw, Ticket};
use crate::{Agreed, Error, Side, Step, agreed::named, connection::text};

/// One end of one connection. It moves between threads, and no two use it at once.
pub struct Connection {
    library: &'static Library,
    raw: *mut Raw,
    /// Owned, and known to `raw`, whose callbacks use it.
    wire: *mut Wire,
    side: Side,
}

/// A ticket and its secrets, as s2n-tls writes them.
pub struct Session(Vec<u8>);

/// Where the bytes of one connection come from and go to.
struct Wire {
    /// What has come and not been read, from `read` on.
    incoming: Vec<u8>,
    read: usize,
    /// Where it is to go; null between calls.
    outgoing: *mut Vec<u8>,
    /// The newest one that the server gave.
    session: Vec<u8>,
}

// SAFETY: the library keeps no state of the thread that made a connection, and `wire` is owned. It
// must not be used by two threads at once, which `&mut self` and the missing `Sync` see to.
unsafe impl Send for Connection {}

impl Connection {
    pub(super) fn new(
        context: &'static Context,
        name: Option<&CString>,
        session: Option<Session>,
    ) -> Result<Self, Error> {
        let (library, api) = (context.library, &context.library.api);
        let mode = if context.side == Side::Server { SERVER } else { CLIENT };
        // SAFETY: makes an object.
        let raw = unsafe { (api.s2n_connection_new)(mode) };
        if raw.is_null() {
            return Err(library.error("s2n_connection_new"));
        }
        let wire = Wire { incoming: vec![], read: 0, outgoing: ptr::null_mut(), session: vec![] };
        let wire = Box::into_raw(Box::new(wire));
        // From here on dropping it frees both.
        let connection = Self { library, raw, wire, side: context.side };
        let place = wire.cast();
        // SAFETY: `raw` is alive, and so is `wire` as long as it; the callbacks take it as what it
        // is.
        unsafe {
            let set = [
                ((api.s2n_connection_set_config)(raw, context.raw), "s2n_connection_set_config"),
                (
                    (api.s2n_connection_set_blinding)(raw, SELF_SERVICE),
                    "s2n_connection_set_blinding",
                ),
                // Its records are half as large as everybody else's otherwise.
                ((api.s2n_connection_prefer_throughput)(raw), "s2n_connection_prefer_throughput"),
                ((api.s2n_connection_set_ctx)(raw, place), "s2n_connection_set_ctx"),
                (
                    (api.s2n_connection_set_recv_cb)(raw, Some(receive)),
                    "s2n_connection_set_recv_cb",
                ),
                ((api.s2n_connection_set_recv_ctx)(raw, place), "s2n_connection_set_recv_ctx"),
                (
                    (api.s2n_connection_set_send_cb)(raw, Some(transmit)),
                    "s2n_connection_set_send_cb",
                ),
                ((api.s2n_connection_set_send_ctx)(raw, place), "s2n_connection_set_send_ctx"),
            ];
            for (result, call) in set {
                library.must(result, call)?;
            }
        }
        if let Some(name) = name {
            // SAFETY: `raw` is alive; the name is copied.
            let set = unsafe { (api.s2n_set_server_name)(raw, name.as_ptr()) };
            library.must(set, "s2n_set_server_name")?;
        }
        if let Some(Session(bytes)) = session {
            // SAFETY: `raw` is alive; reads the bytes by their length.
            let set = unsafe { (api.s2n_connection_set_session)(raw, bytes.as_ptr(), bytes.len()) };
            library.must(set, "s2n_connection_set_session")?;
        }
        Ok(connection)
    }

    /// Does what [`crate::Connection::handshake`] does.
    ///
    /// # Errors
    /// The library's words.
    pub fn handshake(&mut self, incoming: &[u8], outgoing: &mut Vec<u8>) -> Result<Step, Error> {
        self.with(incoming, outgoing, |it| {
            let mut blocked = 0;
            // SAFETY: `raw` is alive and only used here; `blocked` is written to.
            let result = unsafe { (it.library.api.s2n_negotiate)(it.raw, &raw mut blocked) };
            match result {
                0 => Ok(Step::Done),
                _ if it.waits() => Ok(Step::Wants),
                _ => Err(it.library.error("s2n_negotiate")),
            }
        })
    }

    /// Does what [`crate::Connection::send`] does.
    ///
    /// # Errors
    /// The library's words.
    pub fn send(&mut self, plaintext: &[u8], outgoing: &mut Vec<u8>) -> Result<(), Error> {
        self.with(&[], outgoing, |it| {
            let mut rest = plaintext;
            while !rest.is_empty() {
                let (mut blocked, length) =
                    (0, c_long::try_from(rest.len()).unwrap_or(c_long::MAX));
                // SAFETY: reads `rest` by its length; `blocked` is written to.
                let sent = unsafe {
                    let bytes = rest.as_ptr().cast();
                    (it.library.api.s2n_send)(it.raw, bytes, length, &raw mut blocked)
                };
                match usize::try_from(sent) {
                    Ok(sent) if sent > 0 => rest = &rest[sent.min(rest.len())..],
                    _ => return Err(it.library.error("s2n_send")),
                }
            }
            Ok(())
        })
    }

    /// Does what [`crate::Connection::receive`] does.
    ///
    /// # Errors
    /// The library's words.
    pub fn receive(
        &mut self,
        incoming: &[u8],
        plaintext: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        self.with(incoming, outgoing, |it| {
            loop {
                plaintext.reserve(RECORD_BYTES_MAX);
                let spare = plaintext.spare_capacity_mut();
                let room = c_long::try_from(spare.len()).unwrap_or(c_long::MAX);
                let mut blocked = 0;
                // SAFETY: writes at most `room` bytes to `spare`; `blocked` is written to.
                let got = unsafe {
                    let place = spare.as_mut_ptr().cast();
                    (it.library.api.s2n_recv)(it.raw, place, room, &raw mut blocked)
                };
                match usize::try_from(got) {
                    Ok(0) => return Ok(true),
                    // SAFETY: the library wrote that many bytes, at most the capacity.
                    Ok(got) => unsafe { plaintext.set_len(plaintext.len() + got) },
                    Err(_) if it.waits() => return Ok(false),
                    Err(_) => return Err(it.library.error("s2n_recv")),
                }
            }
        })
    }

    /// Does what [`crate::Connection::agreed`] does.
    #[must_use]
    pub fn agreed(&self) -> Agreed {
        let api = &self.library.api;
        let (mut first, mut second, mut group) = (0, 0, ptr::null());
        // SAFETY: `raw` is alive; the calls read it and write to the three places; the group's
        // name is never freed.
        let (version, resumed, shown, group) = unsafe {
            (api.s2n_connection_get_cipher_iana_value)(self.raw, &raw mut first, &raw mut second);
            let told = (api.s2n_connection_get_key_exchange_group)(self.raw, &raw mut group);
            (
                (api.s2n_connection_get_actual_protocol_version)(self.raw),
                (api.s2n_connection_is_session_resumed)(self.raw) == 1,
                (api.s2n_connection_client_cert_used)(self.raw) == 1,
                if told == 0 { text(group) } else { String::new() },
            )
        };
        let number = u16::from_be_bytes([first, second]);
        let group = GROUPS.iter().find(|(_, name)| name.eq_ignore_ascii_case(&group));
        let version = VERSIONS.iter().find(|(own, _)| *own == version).map_or(0, |(_, iana)| *iana);
        Agreed {
            version,
            suite: named(number),
            group: group.map(|(iana, _)| *iana).filter(|_| !(resumed && version == 0x0303)),
            resumed,
            // A client of s2n-tls that is done has verified the server.
            peer_verified: !resumed && (self.side == Side::Client || shown),
        }
    }

    /// The newest session that the server gave a client; in TLS 1.2, where a server need not give
    /// another one, the one that was resumed.
    pub fn session(&mut self) -> Option<Session> {
        let api = &self.library.api;
        // SAFETY: `wire` is owned, and no call is under way.
        let newest = unsafe { std::mem::take(&mut (*self.wire).session) };
        // SAFETY: `raw` is alive and only read.
        let version = unsafe { (api.s2n_connection_get_actual_protocol_version)(self.raw) };
        if !newest.is_empty() || version != VERSIONS[0].0 {
            return (!newest.is_empty()).then_some(Session(newest));
        }
        // SAFETY: as above; writes at most as many bytes as there are.
        unsafe {
            let length = (api.s2n_connection_get_session_length)(self.raw);
            let mut bytes = vec![0; usize::try_from(length).ok().filter(|length| *length > 0)?];
            let (place, room) = (bytes.as_mut_ptr(), bytes.len());
            let written = (api.s2n_connection_get_session)(self.raw, place, room);
            bytes.truncate(usize::try_from(written).unwrap_or(0));
            (!bytes.is_empty()).then_some(Session(bytes))
        }
    }

    /// Gives back the buffers that hold nothing.
    pub fn release(&mut self) {
        // SAFETY: `raw` is alive; it refuses if something waits, which is no failure here.
        unsafe { (self.library.api.s2n_connection_release_buffers)(self.raw) };
        // SAFETY: `wire` is owned, and no call is under way.
        unsafe {
            if (*self.wire).incoming.is_empty() {
                (*self.wire).incoming = Vec::new();
            }
        }
    }

    /// Lays `incoming` ready and lets `work` send to `outgoing`.
    fn with<T>(
        &mut self,
        incoming: &[u8],
        outgoing: &mut Vec<u8>,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let wire = self.wire;
        // SAFETY: `wire` is owned, and the callbacks run within `work` only.
        unsafe {
            (*wire).incoming.extend_from_slice(incoming);
            (*wire).outgoing = outgoing;
        }
        let result = work(self);
        // SAFETY: as above; `outgoing` is not kept beyond this call.
        unsafe {
            (*wire).outgoing = ptr::null_mut();
            if (*wire).read == (*wire).incoming.len() {
                (*wire).incoming.clear();
                (*wire).read = 0;
            }
        }
        result
    }

    /// Whether the last call failed because the peer's next bytes are needed.
    fn waits(&self) -> bool {
        let api = &self.library.api;
        // SAFETY: reads this thread's error.
        unsafe { (api.s2n_error_get_type)(*(api.s2n_errno_location)()) == BLOCKED }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: both are owned, and nobody uses them after this.
        unsafe {
            (self.library.api.s2n_connection_free)(self.raw);
            drop(Box::from_raw(self.wire));
        }
    }
}

/// # Safety
/// s2n-tls calls it within one of the calls above, with the wire of that connection and a place of
/// `length` bytes.
unsafe extern "C" fn receive(wire: *mut c_void, place: *mut u8, length: u32) -> c_int {
    let wire = wire.cast::<Wire>();
    // SAFETY: as demanded; at most `length` bytes are written, and those that wait are read.
    unsafe {
        let waiting = &(&(*wire).incoming)[(*wire).read..];
        let taken = waiting.len().min(length as usize);
        if taken == 0 {
            *__errno_location() = AGAIN;
            return -1;
        }
        ptr::copy_nonoverlapping(waiting.as_ptr(), place, taken);
        (*wire).read += taken;
        c_int::try_from(taken).unwrap_or(c_int::MAX)
    }
}

/// # Safety
/// What [`receive`] demands.
unsafe extern "C" fn transmit(wire: *mut c_void, bytes: *const u8, length: u32) -> c_int {
    let wire = wire.cast::<Wire>();
    // SAFETY: as demanded; `outgoing` is the caller's while a call is under way, else null.
    unsafe {
        let Some(outgoing) = (*wire).outgoing.as_mut() else {
            *__errno_location() = AGAIN;
            return -1;
        };
        outgoing.extend_from_slice(std::slice::from_raw_parts(bytes, length as usize));
        c_int::try_from(length).unwrap_or(c_int::MAX)
    }
}

/// Keeps a ticket in the connection's wire.
///
/// # Safety
/// s2n-tls calls it within one of the calls above, with a live connection and ticket.
pub(super) unsafe extern "C" fn keep_newest(
    raw: *mut Raw,
    _: *mut c_void,
    ticket: *mut Ticket,
) -> c_int {
    let Some(library) = super::LOADED.get() else { return -1 };
    let api = &library.api;
    // SAFETY: the connection's own wire; the ticket is written to as many bytes as it says.
    unsafe {
        let wire = (api.s2n_connection_get_ctx)(raw).cast::<Wire>();
        let mut length = 0;
        if wire.is_null() || (api.s2n_session_ticket_get_data_len)(ticket, &raw mut length) != 0 {
            return -1;
        }
        let mut bytes = vec![0; length];
        let got = (api.s2n_session_ticket_get_data)(ticket, length, bytes.as_mut_ptr());
        (*wire).session = bytes;
        got
    }
}

/// Plaintext of one record.
const RECORD_BYTES_MAX: usize = 16_384;
/// Numbers of s2n-tls, from its header.
const SERVER: c_uint = 0;
const CLIENT: c_uint = 1;
const SELF_SERVICE: c_uint = 1;
const BLOCKED: c_int = 3;
const VERSIONS: [(c_int, u16); 2] = [(33, 0x0303), (34, 0x0304)];
/// `EAGAIN` of Linux.
const AGAIN: c_int = 11;

const GROUPS: [(u16, &str); 4] =
    [(0x0017, "secp256r1"), (0x0018, "secp384r1"), (0x001d, "x25519"), (0x11ec, "X25519MLKEM768")];

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}
