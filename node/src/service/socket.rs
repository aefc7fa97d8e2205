//! The hand-over by a pair of sockets: a relay between the client and JavaScript's end.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sealane_engine::buffer::Buffer;
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Kernel;
use sealane_lanes::link::{Arrivals, Link, Received};

use crate::bridged::Bridged;
use crate::message::Then;
use crate::settings::Settings;

/// Attaches one end of a new pair; returns JavaScript's.
pub(super) fn attach<K: Kernel>(link: &mut Link<'_, K>) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    link.attach_socket(ours.into())?;
    Ok(theirs)
}

/// Passes on the client's bytes, as far as JavaScript's end takes them.
pub(super) fn send<K: Kernel>(
    bridged: &mut Bridged,
    link: &mut Link<'_, K>,
    plain: &mut Buffer,
) -> Result<(), Cause> {
    while !plain.is_empty() {
        match link.send_attached(plain.filled()) {
            Ok(taken) => {
                bridged.note_sent(taken);
                plain.consume(taken);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // JavaScript has closed its end, and takes nothing more. Bytes that it sent before are
            // still read.
            Err(_) => {
                plain.clear();
                if link.has_finished() {
                    link.abandon_client();
                }
            }
        }
    }
    Ok(())
}

/// Passes on the client's end.
pub(super) fn end<K: Kernel>(link: &mut Link<'_, K>) {
    // It fails if JavaScript has closed its end. Bytes that it sent before are still read.
    let _ = link.end_attached();
}

/// Passes on JavaScript's bytes.
pub(super) fn receive<K: Kernel>(
    bridged: &mut Bridged,
    link: &mut Link<'_, K>,
    arrivals: &mut Arrivals<'_>,
    settings: &Settings,
) -> Result<(), Cause> {
    let outcome = match link.receive_attached(arrivals) {
        Ok(Received::Bytes { last }) => {
            let bytes = arrivals.filled();
            let sent = if last { link.finish(bytes) } else { link.send(bytes) };
            sent.map(|()| last)
        }
        Ok(Received::End) => link.finish(&[]).map(|()| true),
        Ok(Received::Nothing) => Ok(false),
        // It was closed with bytes in it that JavaScript had not read.
        Err(_) if link.has_finished() => Ok(false),
        Err(_) => link.finish(&[]).map(|()| {
            link.abandon_client();
            true
        }),
    };
    if outcome? {
        bridged.finishing = Some(Then::Wait);
        bridged.has_moved(link);
        link.set_deadline(settings.shutdown_timeout);
    }
    Ok(())
}
