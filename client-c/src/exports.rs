//! The functions of `sealane_client.h`, which documents each of them. Nothing unwinds out of them.
#![expect(unsafe_code, reason = "C hands over pointers, and asks for functions by their names")]

use std::ffi::c_char;
use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice, str};

use crate::client::{Client, Contexts};
use crate::failure::{Error, Failure, Status};
use crate::options::Options;
use crate::session::Session;
use crate::waiting::Waiting;

/// Counts of a table of contexts: `sealane_counts`.
#[repr(C)]
pub struct Counts {
    /// Contexts built.
    pub built: u64,
    /// Contexts freed, each behind its last client and session.
    pub freed: u64,
    /// Authorities parsed for them.
    pub roots_parsed: u64,
}

/// A table of contexts, or null.
#[unsafe(no_mangle)]
pub extern "C" fn sealane_contexts_new() -> *mut Contexts {
    boxed(ptr::null_mut(), || Ok(Contexts::default()))
}

/// Counts of a table of contexts.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_contexts_counts(
    contexts: *const Contexts,
    counts: *mut Counts,
    error: *mut Error,
) -> Status {
    status(error, || {
        // SAFETY: the header: null, or one that was made and not freed.
        let contexts = unsafe { contexts.as_ref() }.ok_or_else(|| Failure::null("contexts"))?;
        if counts.is_null() {
            return Err(Failure::null("counts"));
        }
        let now = contexts.counts()?;
        let told =
            Counts { built: now.built, freed: now.freed, roots_parsed: now.certificates_parsed };
        // SAFETY: the header: null, or room for it.
        unsafe { counts.write(told) };
        Ok(())
    })
}

/// The end of the caller's hold on the table.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_contexts_free(contexts: *mut Contexts) {
    // SAFETY: the header: null, or one that was made and is freed once.
    unsafe { free(contexts) }
}

/// A client under the context for `options`, or null.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_client_new(
    contexts: *const Contexts,
    options: *const Options,
    error: *mut Error,
) -> *mut Client {
    boxed(error, || {
        // SAFETY: the header: null, or one that was made and not freed.
        let contexts = unsafe { contexts.as_ref() }.ok_or_else(|| Failure::null("contexts"))?;
        // SAFETY: the header has the same rules for options and the pointers in them.
        contexts.client(&unsafe { Options::read(options)? })
    })
}

/// Another context for the sessions that a client will begin.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_client_swap(
    client: *const Client,
    options: *const Options,
    error: *mut Error,
) -> Status {
    status(error, || {
        // SAFETY: the header: null, or one that was made and not freed.
        let client = unsafe { client.as_ref() }.ok_or_else(|| Failure::null("client"))?;
        // SAFETY: the header has the same rules for options and the pointers in them.
        client.swap(&unsafe { Options::read(options)? })
    })
}

/// The end of a client. Its sessions go on.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_client_free(client: *mut Client) {
    // SAFETY: the header: null, or one that was made and is freed once.
    unsafe { free(client) }
}

/// A session with the server `server_name`, or null.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_new(
    client: *const Client,
    server_name: *const c_char,
    error: *mut Error,
) -> *mut Session {
    boxed(error, || {
        // SAFETY: the header: null, or one that was made and not freed.
        let client = unsafe { client.as_ref() }.ok_or_else(|| Failure::null("client"))?;
        // SAFETY: the header: null, or a text that ends with a zero.
        client.begin(unsafe { text("server_name", server_name, NAME_BYTES_MAX)? })
    })
}

/// Ciphertext of the peer.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_receive(
    session: *mut Session,
    ciphertext: *const u8,
    len: usize,
    taken: *mut usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the header: null, or a session that no other thread uses now, `len` bytes, a place.
    unsafe {
        on_session(session, error, |session| {
            take("ciphertext", ciphertext, len, taken, |bytes| session.receive(bytes))
        })
    }
}

/// Plaintext of the peer.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_read(
    session: *mut Session,
    plaintext: *mut u8,
    room: usize,
    len: *mut usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the header: null, or a session that no other thread uses now, `room` bytes, a place.
    unsafe {
        on_session(session, error, |session| {
            give("plaintext", &mut session.plain, plaintext, room, len)
        })
    }
}

/// Plaintext for the peer.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_write(
    session: *mut Session,
    plaintext: *const u8,
    len: usize,
    taken: *mut usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the header: null, or a session that no other thread uses now, `len` bytes, a place.
    unsafe {
        on_session(session, error, |session| {
            take("plaintext", plaintext, len, taken, |bytes| session.write(bytes))
        })
    }
}

/// Ciphertext for the peer.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_transmit(
    session: *mut Session,
    ciphertext: *mut u8,
    room: usize,
    len: *mut usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the header: null, or a session that no other thread uses now, `room` bytes, a place.
    unsafe {
        on_session(session, error, |session| {
            give("ciphertext", &mut session.wire, ciphertext, room, len)
        })
    }
}

/// The state of a session, as bits, or 0 for a null pointer.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_state(session: *const Session) -> u32 {
    // SAFETY: the header: null, or a session that no other thread uses now.
    let session = unsafe { session.as_ref() };
    guarded(ptr::null_mut(), || Ok(session.map_or(0, Session::state))).unwrap_or(0)
}

/// The protocol that was agreed on, or nothing if there is none.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_alpn(
    session: *mut Session,
    protocol: *mut u8,
    room: usize,
    len: *mut usize,
    error: *mut Error,
) -> Status {
    // SAFETY: the header: null, or a session that no other thread uses now, `room` bytes, a place.
    unsafe {
        on_session(session, error, |session| {
            let mut agreed = Waiting::default();
            agreed.append(session.alpn());
            if agreed.front().len() > room {
                let text = format!("protocol: {} bytes of room are needed", agreed.front().len());
                return Err(Failure::new(Status::InvalidArgument, text));
            }
            give("protocol", &mut agreed, protocol, room, len)
        })
    }
}

/// The end of this side's data.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_close(session: *mut Session, error: *mut Error) -> Status {
    // SAFETY: the header: null, or a session that no other thread uses now.
    unsafe { on_session(session, error, Session::close) }
}

/// The end of the transport, as its reader saw it.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_ended(session: *mut Session, error: *mut Error) -> Status {
    // SAFETY: the header: null, or a session that no other thread uses now.
    unsafe { on_session(session, error, Session::ended) }
}

/// The end of a session.
///
/// # Safety
/// See the header's rules for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sealane_session_free(session: *mut Session) {
    // SAFETY: the header: null, or one that was made and is freed once.
    unsafe { free(session) }
}

/// The `len` bytes at `start`, which is null only if there are none.
///
/// # Safety
/// `start` is null or points to `len` bytes that are not written for as long as they are used.
pub(crate) unsafe fn bytes<'a>(
    argument: &str,
    start: *const u8,
    len: usize,
) -> Result<&'a [u8], Failure> {
    if start.is_null() {
        return if len == 0 { Ok(&[]) } else { Err(Failure::null(argument)) };
    }
    if isize::try_from(len).is_err() {
        let text = format!("{argument}: {len} bytes are more than memory has");
        return Err(Failure::new(Status::InvalidArgument, text));
    }
    // SAFETY: not null, as long as the caller promises, and no longer than a slice may be.
    Ok(unsafe { slice::from_raw_parts(start, len) })
}

/// The text at `start`, at most `bytes_max` long.
///
/// # Safety
/// `start` is null, or points to bytes of which one is zero, or to more than `bytes_max`. They are
/// not written for as long as they are used.
pub(crate) unsafe fn text<'a>(
    argument: &str,
    start: *const c_char,
    bytes_max: usize,
) -> Result<&'a str, Failure> {
    if start.is_null() {
        return Err(Failure::null(argument));
    }
    // SAFETY: each byte is looked at only if none before it was the zero that ends the text.
    let len = (0..=bytes_max).find(|index| unsafe { *start.add(*index) } == 0);
    let Some(len) = len else {
        let text = format!("{argument}: longer than {bytes_max} bytes");
        return Err(Failure::new(Status::InvalidArgument, text));
    };
    // SAFETY: these `len` bytes before the zero were just read.
    let bytes = unsafe { slice::from_raw_parts(start.cast(), len) };
    str::from_utf8(bytes)
        .map_err(|_| Failure::new(Status::InvalidArgument, format!("{argument}: not UTF-8")))
}

/// Lets `body` take of the `len` bytes at `start`, and sets `taken` to their count.
unsafe fn take(
    argument: &str,
    start: *const u8,
    len: usize,
    taken: *mut usize,
    body: impl FnOnce(&[u8]) -> Result<usize, Failure>,
) -> Result<(), Failure> {
    if taken.is_null() {
        return Err(Failure::null("taken"));
    }
    // SAFETY: not null, so there is room for a number.
    unsafe { taken.write(0) };
    // SAFETY: as the caller promises.
    let count = body(unsafe { bytes(argument, start, len)? })?;
    // SAFETY: as before.
    unsafe { taken.write(count) };
    Ok(())
}

/// Moves waiting bytes to the `room` bytes at `start`, and sets `len` to their count.
unsafe fn give(
    argument: &str,
    waiting: &mut Waiting,
    start: *mut u8,
    room: usize,
    len: *mut usize,
) -> Result<(), Failure> {
    if len.is_null() {
        return Err(Failure::null("len"));
    }
    // SAFETY: not null, so there is room for a number.
    unsafe { len.write(0) };
    if start.is_null() && room > 0 {
        return Err(Failure::null(argument));
    }
    let count = waiting.front().len().min(room);
    if count > 0 {
        // SAFETY: room for as many was promised, in memory of the caller's own; a byte at a time,
        // because it may not have been written before.
        unsafe { ptr::copy_nonoverlapping(waiting.front().as_ptr(), start, count) };
    }
    waiting.consume(count);
    // SAFETY: as before.
    unsafe { len.write(count) };
    Ok(())
}

/// Calls `body` with the session, which is over if it panics.
///
/// # Safety
/// `session` is null, or one that was made and not freed, and that no other thread uses now.
unsafe fn on_session(
    session: *mut Session,
    error: *mut Error,
    body: impl FnOnce(&mut Session) -> Result<(), Failure>,
) -> Status {
    // SAFETY: as the caller promises.
    let Some(session) = (unsafe { session.as_mut() }) else {
        return status(error, || Err(Failure::null("session")));
    };
    let ended = status(error, || body(session));
    if ended == Status::Internal {
        session.break_off();
    }
    ended
}

/// Hands the value of `body` to C, which owns it until it frees it. Null if `body` fails.
fn boxed<T>(error: *mut Error, body: impl FnOnce() -> Result<T, Failure>) -> *mut T {
    let made = guarded(error, || body().map(|made| Box::into_raw(Box::new(made))));
    made.unwrap_or(ptr::null_mut())
}

/// Drops a value that C owned.
///
/// # Safety
/// `owned` is null, or came from [`boxed`] and is not used any more.
unsafe fn free<T>(owned: *mut T) {
    if !owned.is_null() {
        // SAFETY: it came out of a box, once.
        let owned = unsafe { Box::from_raw(owned) };
        let _ = guarded(ptr::null_mut(), || {
            drop(owned);
            Ok(())
        });
    }
}

fn status(error: *mut Error, body: impl FnOnce() -> Result<(), Failure>) -> Status {
    guarded(error, body).err().unwrap_or(Status::Ok)
}

/// Calls `body`, and stops a panic here, because C cannot handle one.
fn guarded<T>(error: *mut Error, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Status> {
    // A value that was left halfway is not used again: a session is over, a table's lock is
    // poisoned.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(failure)) => failure,
        Err(payload) => {
            // Dropping any payload could panic again.
            forget(payload);
            Failure::panicked()
        }
    };
    if !error.is_null() {
        // SAFETY: the header requires room for an error. The bytes there may be anything, so they
        // are not looked at, and all of them are written.
        unsafe { error.write(failure.to_error()) };
    }
    Err(failure.status)
}

/// Bytes of a server's name.
const NAME_BYTES_MAX: usize = 253;

#[cfg(test)]
mod tests {
    use sealane_engine::client::{ClientOptions, Roots, Verification};

    use super::*;
    use crate::session::{CIPHERTEXT_WAITS, FAILED};

    #[test]
    fn a_panic_is_a_status_and_ends_the_session() {
        let mut error = Error { status: Status::Ok, text: [1; _] };
        let made: *mut Client = boxed(&raw mut error, || panic!("by the test"));
        assert!(made.is_null());
        assert_eq!(error.status, Status::Internal);

        let options = ClientOptions {
            verification: Verification::DangerousNone,
            ..ClientOptions::trusting(Roots::none())
        };
        let client = Contexts::default().client(&options).unwrap();
        let mut session = client.begin("localhost").unwrap();
        // SAFETY: both are this test's own.
        let ended =
            unsafe { on_session(&raw mut session, &raw mut error, |_| panic!("by the test")) };
        assert_eq!(ended, Status::Internal);
        assert_eq!(session.state(), CIPHERTEXT_WAITS | FAILED);
        assert_eq!(session.write(b"x").unwrap_err().status, Status::Internal);
    }
}
