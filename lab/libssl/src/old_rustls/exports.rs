//! The far side of the lab's `old_rustls`: the root of a small crate that holds one version of
//! rustls behind C functions. `sealane-lab stacks build` compiles it, with the lab's own sources of
//! a scenario, of a stack and of rustls's ends beside it; no other crate does.
//!
//! A function that gives a pointer gives null if it failed, and one that gives a number a negative
//! one; `old_rustls_error` then says why, on that thread. Bytes are given to the caller by a
//! function of his, so that no side frees what the other has allocated.
#![deny(unsafe_op_in_unsafe_fn)]
#![allow(dead_code, reason = "the lab's sources stand here whole, and not all of it is used")]

extern crate self as sealane_lab_harness;
extern crate self as sealane_lab_model;

mod credentials;
mod error;
mod library;
mod scenario;
mod stack;

mod ends {
    pub(crate) mod contexts;
    mod end;
    mod settings;
    mod store;

    /// Older versions lend nobody their buffer.
    mod plaintext {
        use std::io::Read;

        pub(super) fn take(mut reader: rustls::Reader<'_>, plaintext: &mut Vec<u8>) {
            // An error means here: nothing more for now.
            let _ = reader.read_to_end(plaintext);
        }
    }
}

use std::{
    cell::{Cell, RefCell},
    ffi::{c_int, c_void},
    path::PathBuf,
    ptr, slice,
};

#[cfg(feature = "aws_lc_rs")]
use rustls::crypto::aws_lc_rs as cryptography;
#[cfg(feature = "ring")]
use rustls::crypto::ring as cryptography;
use serde::Deserialize;

use crate::{
    credentials::Credentials,
    ends::contexts::{self, Library},
    error::Error,
    scenario::Scenario,
    stack::{Endpoint, Prepared, Progress, Session, Worker},
};

/// What the threads share; also a thread's own, an end of a connection, and a session.
pub struct Contexts(Box<dyn Prepared>);
pub struct Thread(Box<dyn Worker>);
pub struct Connection(Box<dyn Endpoint>);
pub struct Kept(Session);

/// Takes bytes that live through the call, for whoever the first argument stands for.
type Sink = unsafe extern "C" fn(*mut c_void, *const u8, usize);

/// In JSON.
#[derive(Deserialize)]
struct Request {
    scenario: Scenario,
    /// The folder.
    credentials: PathBuf,
}

/// The version of these functions.
#[unsafe(no_mangle)]
pub extern "C" fn old_rustls_interface() -> c_int {
    1
}

/// # Safety
/// `request` is readable for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_prepare(request: *const u8, length: usize) -> *mut Contexts {
    // SAFETY: as demanded.
    let request = unsafe { bytes(request, length) };
    let prepared = serde_json::from_slice(request)
        .map_err(|error| Error::Check(format!("the request: {error}")))
        .and_then(|Request { scenario, credentials }| {
            let library = Library {
                provider: cryptography::default_provider,
                ticketer: cryptography::Ticketer::new,
            };
            contexts::prepare(library, &scenario, &Credentials::at(&credentials))
        });
    given(prepared.map(Contexts))
}

/// # Safety
/// `shared` came from `old_rustls_prepare`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_thread(shared: *const Contexts) -> *mut Thread {
    // SAFETY: as demanded; it is never freed.
    given(unsafe { &(*shared).0 }.worker().map(Thread))
}

/// # Safety
/// `thread` came from `old_rustls_thread` on this thread, and nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_server(thread: *mut Thread) -> *mut Connection {
    // SAFETY: as demanded.
    given(unsafe { &mut (*thread).0 }.server().map(Connection))
}

/// # Safety
/// What is demanded by `old_rustls_server`; `session` is null, or is given away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_client(
    thread: *mut Thread,
    session: *mut Kept,
) -> *mut Connection {
    // SAFETY: as demanded.
    let session = (!session.is_null()).then(|| unsafe { Box::from_raw(session) }.0);
    // SAFETY: as demanded.
    given(unsafe { &mut (*thread).0 }.client(session).map(Connection))
}

/// 1 if the handshake is done, 0 if the peer's next bytes are needed.
///
/// # Safety
/// `end` came from here and nobody else uses it; `incoming` is readable for `length` bytes; `sink`
/// takes `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_handshake(
    end: *mut Connection,
    incoming: *const u8,
    length: usize,
    sink: Sink,
    to: *mut c_void,
) -> c_int {
    // SAFETY: as demanded.
    let (end, incoming) = unsafe { (&mut (*end).0, bytes(incoming, length)) };
    with_buffer(|outgoing| {
        let progress = end.handshake(incoming, outgoing);
        // SAFETY: as demanded. Also on failure: the peer is told.
        unsafe { sink(to, outgoing.as_ptr(), outgoing.len()) };
        told(progress.map(|progress| progress == Progress::Done))
    })
}

/// # Safety
/// What is demanded by `old_rustls_handshake`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_send(
    end: *mut Connection,
    plaintext: *const u8,
    length: usize,
    sink: Sink,
    to: *mut c_void,
) -> c_int {
    // SAFETY: as demanded.
    let (end, plaintext) = unsafe { (&mut (*end).0, bytes(plaintext, length)) };
    with_buffer(|outgoing| {
        let sent = end.send(plaintext, outgoing);
        // SAFETY: as demanded.
        unsafe { sink(to, outgoing.as_ptr(), outgoing.len()) };
        told(sent.map(|()| false))
    })
}

/// 1 if the peer sends no more.
///
/// # Safety
/// What is demanded by `old_rustls_handshake`; `sink` takes both `to` and `plain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_receive(
    end: *mut Connection,
    incoming: *const u8,
    length: usize,
    sink: Sink,
    to: *mut c_void,
    plain: *mut c_void,
) -> c_int {
    // SAFETY: as demanded.
    let (end, incoming) = unsafe { (&mut (*end).0, bytes(incoming, length)) };
    let mut plaintext = Vec::new();
    with_buffer(|outgoing| {
        let ended = end.receive(incoming, &mut plaintext, outgoing);
        // SAFETY: as demanded.
        unsafe {
            sink(to, outgoing.as_ptr(), outgoing.len());
            sink(plain, plaintext.as_ptr(), plaintext.len());
        }
        told(ended)
    })
}

/// What was agreed on, in JSON.
///
/// # Safety
/// What is demanded by `old_rustls_handshake`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_negotiated(
    end: *const Connection,
    sink: Sink,
    to: *mut c_void,
) -> c_int {
    // SAFETY: as demanded.
    let negotiated = unsafe { &(*end).0 }.negotiated().and_then(|negotiated| {
        serde_json::to_vec(&negotiated).map_err(|error| Error::Check(error.to_string()))
    });
    told(negotiated.map(|text| {
        // SAFETY: as demanded.
        unsafe { sink(to, text.as_ptr(), text.len()) };
        false
    }))
}

/// Null without an error: there is none.
///
/// # Safety
/// `end` came from here and nobody else uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_session(end: *mut Connection) -> *mut Kept {
    // SAFETY: as demanded.
    let session = unsafe { &mut (*end).0 }.session();
    session.map_or(ptr::null_mut(), |session| Box::into_raw(Box::new(Kept(session))))
}

/// # Safety
/// `end` came from here and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_end_free(end: *mut Connection) {
    // SAFETY: as demanded.
    drop(unsafe { Box::from_raw(end) });
}

/// # Safety
/// `session` came from here and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_session_free(session: *mut Kept) {
    // SAFETY: as demanded.
    drop(unsafe { Box::from_raw(session) });
}

/// # Safety
/// `thread` came from here and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_thread_free(thread: *mut Thread) {
    // SAFETY: as demanded.
    drop(unsafe { Box::from_raw(thread) });
}

/// Why the last call on this thread failed; 1 if what was asked is not supported.
///
/// # Safety
/// `sink` takes `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn old_rustls_error(sink: Sink, to: *mut c_void) -> c_int {
    let (unsupported, text) = match FAILURE.take() {
        Some(Error::Unsupported(reason)) => (1, reason),
        Some(Error::Check(reason)) => (0, reason),
        Some(other) => (0, other.to_string()),
        None => (0, "failed, and does not say why".to_owned()),
    };
    // SAFETY: as demanded.
    unsafe { sink(to, text.as_ptr(), text.len()) };
    unsupported
}

fn given<T>(made: Result<T, Error>) -> *mut T {
    match made {
        Ok(made) => Box::into_raw(Box::new(made)),
        Err(error) => {
            FAILURE.set(Some(error));
            ptr::null_mut()
        }
    }
}

fn told(done: Result<bool, Error>) -> c_int {
    match done {
        Ok(done) => c_int::from(done),
        Err(error) => {
            FAILURE.set(Some(error));
            -1
        }
    }
}

/// An empty one, which each thread uses again and again.
fn with_buffer<T>(work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        work(buffer)
    })
}

/// # Safety
/// `start` is readable for `length` bytes as long as the result is used; null if there are none.
unsafe fn bytes<'a>(start: *const u8, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: as demanded.
    unsafe { slice::from_raw_parts(start, length) }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static FAILURE: Cell<Option<Error>> = const { Cell::new(None) };
}
