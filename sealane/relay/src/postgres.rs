//! PostgreSQL's way into TLS: a client asks for it, is told yes, and begins; and so do we with a
//! backend. Messages: the chapter "Frontend/Backend Protocol" of PostgreSQL's documentation.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use sealane_lanes::cause::Cause;
use sealane_lanes::service::Preamble;

/// Asks for TLS: the length, and the number that stands for it.
pub(super) const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// Says yes to that.
pub(super) const YES: &[u8] = b"S";
/// Asks for encryption by Kerberos.
const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];
const NO: &[u8] = b"N";
/// The number of a request to cancel the query of another connection. Its length is before that,
/// the process and its key are behind it.
const CANCEL: [u8; 4] = [4, 210, 22, 46];
/// Bytes of such a request: a key has 4 to 256.
const CANCEL_BYTES: RangeInclusive<u32> = 16..=268;
/// Begins a ClientHello, of a client that needs no asking (`sslnegotiation=direct`).
const TLS_HANDSHAKE: u8 = 22;
/// An error that libpq shows: its length, and fields, each behind its letter.
const SSL_REQUIRED: &[u8] = b"E\0\0\0\x66SFATAL\0VFATAL\0C28000\0\
MSSL required: this server takes no connection without TLS; sslmode=require\0\0";

/// What comes of a client's first `bytes`; `asked_gss` is whether it has asked for that already.
pub(super) fn preamble(bytes: &[u8], asked_gss: &mut bool) -> Preamble {
    if bytes.first() == Some(&TLS_HANDSHAKE) {
        return Preamble::through(0);
    }
    let Some((request, rest)) = bytes.split_first_chunk::<8>() else {
        return Preamble::Unfinished;
    };
    if let Some(len) = cancel_len(bytes) {
        return match bytes.len().cmp(&len) {
            Ordering::Less => Preamble::Unfinished,
            Ordering::Equal => Preamble::Clear,
            Ordering::Greater => Preamble::refused(Cause::ProtocolError),
        };
    }
    let (answer, is_through) = match *request {
        SSL_REQUEST => (YES, true),
        GSS_REQUEST if !*asked_gss => (NO, false),
        _ => return Preamble::Refused { cause: Cause::NotTls, answer: SSL_REQUIRED.into() },
    };
    // What comes before the answer was not sent in TLS, whoever sent it: CVE-2021-23214.
    if !rest.is_empty() {
        return Preamble::refused(Cause::ProtocolError);
    }
    *asked_gss |= !is_through;
    Preamble::Read { len: request.len(), answer: answer.into(), is_through, is_probe: false }
}

/// The whole length of the request to cancel a query that `bytes` begin with, if they do.
pub(super) fn cancel_len(bytes: &[u8]) -> Option<usize> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let len = u32::from_be_bytes(*len);
    if !rest.starts_with(&CANCEL) || !CANCEL_BYTES.contains(&len) {
        return None;
    }
    usize::try_from(len).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_begins_with_leads_to_tls_or_nowhere() {
        let through = |answer: &'static [u8], len, is_through| Preamble::Read {
            len,
            answer: answer.into(),
            is_through,
            is_probe: false,
        };
        let refused = Preamble::Refused { cause: Cause::NotTls, answer: SSL_REQUIRED.into() };
        let cancel = [&[0, 0, 0, 16][..], &CANCEL, b"pid key!"].concat();
        let long = [&[0, 0, 1, 12][..], &CANCEL, &[7; 260]].concat();
        let too_long = [&[0, 0, 1, 13][..], &CANCEL, &[7; 261]].concat();
        let startup = [&[0, 0, 0, 20, 0, 3, 0, 0][..], b"user\0me\0\0\0\0"].concat();
        for (bytes, asked, expected) in [
            (&[][..], false, Preamble::Unfinished),
            (&SSL_REQUEST[..7], false, Preamble::Unfinished),
            (&SSL_REQUEST, true, through(YES, 8, true)),
            (&GSS_REQUEST, false, through(NO, 8, false)),
            (&GSS_REQUEST, true, refused.clone()),
            (&[TLS_HANDSHAKE, 3, 1], false, through(b"", 0, true)),
            (&startup, false, refused.clone()),
            (&cancel[..15], true, Preamble::Unfinished),
            (&cancel, false, Preamble::Clear),
            (&[&cancel[..], b"x"].concat(), false, Preamble::refused(Cause::ProtocolError)),
            (&long, false, Preamble::Clear),
            (&too_long, false, refused),
            (&[&SSL_REQUEST[..], b"x"].concat(), false, Preamble::refused(Cause::ProtocolError)),
        ] {
            let mut asked_gss = asked;
            assert_eq!(preamble(bytes, &mut asked_gss), expected, "{bytes:?}");
            assert_eq!(asked_gss, asked || expected == through(NO, 8, false));
        }
    }

    #[test]
    fn the_error_is_as_long_as_it_says() {
        let len = u32::from_be_bytes(SSL_REQUIRED[1..5].try_into().unwrap());
        assert_eq!(len as usize, SSL_REQUIRED.len() - 1);
    }
}
