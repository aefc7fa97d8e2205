//! Answers to clients that push.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

/// An answer with its body.
pub(super) type Answer = Response<Full<Bytes>>;

/// A line of text.
pub(super) fn text(status: StatusCode, words: String) -> Answer {
    answer(status, "text/plain; charset=utf-8", (words + "\n").into_bytes())
}

pub(super) fn answer(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
