//! One ping as Redis and MongoDB know it: the bytes of a [`request`], and whether an answer is the
//! right one, [`is_answered`].

use sealane_lab_model::error::Error;

use crate::contexts::target::Protocol;

/// What is sent; empty for a protocol that has none.
pub(super) fn request(protocol: Protocol) -> Vec<u8> {
    match protocol {
        Protocol::Mongodb => message(&ping_document()),
        Protocol::Redis => b"*1\r\n$4\r\nPING\r\n".to_vec(),
        Protocol::Tls => Vec::new(),
    }
}

/// Whether `answer` is whole, and right: `false` if more bytes must come.
///
/// # Errors
/// The server answers something else.
pub(super) fn is_answered(protocol: Protocol, answer: &[u8]) -> Result<bool, Error> {
    match protocol {
        Protocol::Mongodb => is_ok(answer),
        Protocol::Redis if answer.len() < PONG.len() && PONG.starts_with(answer) => Ok(false),
        Protocol::Redis if answer == PONG => Ok(true),
        Protocol::Redis => Err(wrong("Redis", answer)),
        Protocol::Tls => Ok(true),
    }
}

/// `{ping: 1, $db: "test"}` in BSON.
fn ping_document() -> Vec<u8> {
    let mut elements = Vec::new();
    elements.push(INT32);
    elements.extend(b"ping\0");
    elements.extend(1_u32.to_le_bytes());
    elements.push(STRING);
    elements.extend(b"$db\0");
    elements.extend(5_u32.to_le_bytes());
    elements.extend(b"test\0");
    let length = 4 + elements.len() + 1;
    let mut document = u32::try_from(length).unwrap_or(0).to_le_bytes().to_vec();
    document.extend(elements);
    document.push(0);
    document
}

/// An OP_MSG with one body section.
fn message(document: &[u8]) -> Vec<u8> {
    let length = HEADER_BYTES + FLAGS_AND_KIND_BYTES + document.len();
    let fields = [u32::try_from(length).unwrap_or(0), REQUEST_ID, 0, OP_MSG, 0];
    let mut message: Vec<u8> = fields.into_iter().flat_map(u32::to_le_bytes).collect();
    message.push(BODY);
    message.extend(document);
    message
}

/// Whether `answer` is a whole OP_MSG to our request whose `ok` is 1.
fn is_ok(answer: &[u8]) -> Result<bool, Error> {
    let Some(length) = number(answer, 0) else { return Ok(false) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > ANSWER_BYTES_MAX {
        return Err(wrong("MongoDB", answer));
    }
    if answer.len() < length {
        return Ok(false);
    }
    let ours = number(answer, 8) == Some(REQUEST_ID) && number(answer, 12) == Some(OP_MSG);
    let body = answer.get(HEADER_BYTES + FLAGS_AND_KIND_BYTES..).unwrap_or_default();
    let kind = answer.get(HEADER_BYTES + FLAGS_AND_KIND_BYTES - 1);
    if answer.len() == length && ours && kind == Some(&BODY) && ok_of(body) == Some(1.0) {
        return Ok(true);
    }
    Err(wrong("MongoDB", answer))
}

/// The number called `ok` in a BSON document; elements before it may be of the few kinds whose
/// length is known here.
fn ok_of(document: &[u8]) -> Option<f64> {
    let mut rest = document.get(4..)?;
    loop {
        let (kind, named) = rest.split_first()?;
        let end = named.iter().position(|byte| *byte == 0)?;
        let (name, value) = (named.get(..end)?, named.get(end + 1..)?);
        let length = match *kind {
            BOOLEAN => 1,
            DATE | DOUBLE | INT64 | TIMESTAMP => 8,
            DOCUMENT => usize::try_from(number(value, 0)?).ok()?,
            INT32 => 4,
            STRING => usize::try_from(number(value, 0)?).ok()?.checked_add(4)?,
            _ => return None,
        };
        let (value, behind) = value.split_at_checked(length)?;
        if name == b"ok" {
            return match *kind {
                DOUBLE => Some(f64::from_le_bytes(value.try_into().ok()?)),
                INT32 => Some(f64::from(number(value, 0)?)),
                _ => None,
            };
        }
        rest = behind;
    }
}

/// The little-endian number at `at`.
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

fn wrong(server: &str, answer: &[u8]) -> Error {
    let shown = &answer[..answer.len().min(ANSWER_BYTES_SHOWN)];
    Error::Check(format!("{server} answers a ping with {:?}", String::from_utf8_lossy(shown)))
}

const PONG: &[u8] = b"+PONG\r\n";

const REQUEST_ID: u32 = 1;
const OP_MSG: u32 = 2013;
/// Length, request, the request it answers, operation.
const HEADER_BYTES: usize = 16;
/// Before the document of an OP_MSG.
const FLAGS_AND_KIND_BYTES: usize = 5;
/// The kind of a section that is one document.
const BODY: u8 = 0;

const DOUBLE: u8 = 1;
const STRING: u8 = 2;
const DOCUMENT: u8 = 3;
const BOOLEAN: u8 = 8;
const DATE: u8 = 9;
const INT32: u8 = 16;
const TIMESTAMP: u8 = 17;
const INT64: u8 = 18;

/// No answer to a ping is as long.
const ANSWER_BYTES_MAX: usize = 1 << 16;
/// Bytes shown of an answer that is wrong.
const ANSWER_BYTES_SHOWN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer with these elements before `ok: 1.0`.
    fn answer(elements: &[u8], ok: f64) -> Vec<u8> {
        let mut document = vec![0; 4];
        document.extend(elements);
        document.extend(b"\x01ok\0");
        document.extend(ok.to_le_bytes());
        document.push(0);
        let mut message = message(&document);
        message[8] = 1;
        message
    }

    #[test]
    fn a_ping_is_the_message_that_the_manual_shows() {
        let bytes = request(Protocol::Mongodb);
        assert_eq!(number(&bytes, 0), Some(u32::try_from(bytes.len()).unwrap()));
        assert_eq!(number(&bytes, 21), Some(u32::try_from(bytes.len() - 21).unwrap()));
        assert_eq!(&bytes[25..], b"\x10ping\0\x01\0\0\0\x02$db\0\x05\0\0\0test\0\0");
    }

    #[test]
    fn an_answer_is_right_whole_or_waited_for() {
        let others = b"\x09at\0\0\0\0\0\0\0\0\0\x08fine\0\x01\x02of\0\x02\0\0\0a\0";
        let whole = answer(others, 1.0);
        for length in 0..whole.len() {
            assert!(!is_answered(Protocol::Mongodb, &whole[..length]).unwrap(), "{length}");
        }
        assert!(is_answered(Protocol::Mongodb, &whole).unwrap());
        let foreign = [&whole[..8], &[2], &whole[9..]].concat();
        for bad in [answer(b"", 0.0), foreign, vec![0xff; 64], [&whole[..], b"x"].concat()] {
            assert!(is_answered(Protocol::Mongodb, &bad).is_err(), "{bad:?}");
        }
        assert!(!is_answered(Protocol::Redis, b"+PO").unwrap());
        assert!(is_answered(Protocol::Redis, b"+PONG\r\n").unwrap());
        for bad in [&b"-NOAUTH\r\n"[..], b"+PONG\r\n+PONG\r\n", b"+PUNG"] {
            assert!(is_answered(Protocol::Redis, bad).is_err(), "{bad:?}");
        }
    }
}
