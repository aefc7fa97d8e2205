//! How the agent speaks HTTPS to authorities: [`Https`], whose roots are the operator's to choose.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use httpdate::HttpDate;
use hyper::body::Body;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient, Problem};
use rustls::ClientConfig;
use sealane_engine::session::SessionError;

use crate::settings::RootSource;
use crate::trust::{TrustError, client_config};

/// A client of HTTPS for one authority, which bounds each request in time and size.
#[derive(Clone)]
pub(crate) struct Https {
    client: Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>,
    told: Arc<Told>,
}

impl Https {
    /// A client that trusts whom `roots` name.
    ///
    /// # Errors
    /// Roots cannot be read, or none are there.
    pub(crate) fn trusting(roots: &[RootSource]) -> Result<Self, TrustError> {
        let client = client(client_config(roots, None)?, false, IDLE_TIMEOUT);
        Ok(Self { client, told: Arc::default() })
    }

    /// Until when the authority has asked to be left alone, if its last answer is a refusal that
    /// says so, and that is to come.
    pub(crate) fn told_until(&self) -> Option<SystemTime> {
        self.told.to_come(true)
    }

    /// When the authority would like to be asked again, if its last answer is none and says so, and
    /// that is to come.
    pub(crate) fn asked_again_at(&self) -> Option<SystemTime> {
        self.told.to_come(false)
    }
}

/// A client over TLS of these settings, and in clear where a URL says so and it `may_be_plain`; it
/// keeps connections open for so long after what was asked on them last.
pub(crate) fn client<B>(
    config: ClientConfig,
    may_be_plain: bool,
    idle: Duration,
) -> Client<HttpsConnector<HttpConnector>, B>
where
    B: Body + Send,
    B::Data: Send,
{
    let builder = HttpsConnectorBuilder::new().with_tls_config(config);
    let builder = if may_be_plain { builder.https_or_http() } else { builder.https_only() };
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(idle)
        .pool_timer(TokioTimer::new())
        .build(builder.enable_http1().build())
}

/// What an authority told in a header of its last answer, which the library above does not pass on.
/// All orders run on one thread, and each looks before it waits for anything else: it sees what its
/// own answer told.
#[derive(Debug, Default)]
struct Told(Mutex<Option<Noted>>);

#[derive(Clone, Copy, Debug)]
struct Noted {
    at: SystemTime,
    is_refusal: bool,
}

impl Told {
    fn note(&self, answer: Option<(StatusCode, &HeaderMap)>) {
        let noted = answer.and_then(|(status, headers)| {
            let is_refusal = status.is_client_error() || status.is_server_error();
            Some(Noted { at: retry_after(headers)?, is_refusal })
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = noted;
    }

    fn to_come(&self, is_refusal: bool) -> Option<SystemTime> {
        let noted = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = noted.filter(|noted| noted.is_refusal == is_refusal);
        noted.map(|noted| noted.at).filter(|at| *at > SystemTime::now())
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        mut request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(OUR_NAME));
        let host = request.uri().host().unwrap_or_default().to_owned();
        let response = self.client.request(request);
        let told = Arc::clone(&self.told);
        Box::pin(async move {
            let whole = async {
                let (mut parts, body) = response.await.map_err(|error| other(&error))?.into_parts();
                bound_retry_after(&mut parts.headers);
                let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
                let body = problem_of(parts.status, body.map_err(Error::Other)?.to_bytes());
                Ok(BytesResponse::from(Response::from_parts(parts, Full::new(body))))
            };
            let came = tokio::time::timeout(REQUEST_TIMEOUT, whole).await;
            let came = came.unwrap_or_else(|_| {
                let limit_s = REQUEST_TIMEOUT.as_secs();
                Err(Error::Other(format!("{host}: no answer within {limit_s} s").into()))
            });
            let answer = came.as_ref().ok();
            told.note(answer.map(|BytesResponse { parts, .. }| (parts.status, &parts.headers)));
            came
        })
    }
}

/// An error and all that caused it, the deepest cause last.
pub(crate) fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |each| {
        // An error within one of the system's is no source of it.
        let within = each.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        within.map(|within| within as _).or_else(|| each.source())
    })
    .take(CAUSES_MAX)
}

/// An error with its causes, because the first alone is vague, and a remedy if it is known.
fn other(error: &hyper_util::client::legacy::Error) -> Error {
    let mut text = error.to_string();
    let mut before = text.clone();
    for cause in causes(error).skip(1).map(in_words) {
        // The system's errors print the one within.
        if cause != before {
            text = format!("{text}: {cause}");
        }
        before = cause;
    }
    let tls = causes(error).find_map(|each| each.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(_)) = tls {
        text += "; its server's certificate is not trusted here: name the CA's root in roots of \
                 [[authority]], or see that directory is right";
    }
    Error::Other(text.into())
}

/// A cause as text; errors of TLS have the engine's words.
fn in_words(cause: &(dyn std::error::Error + 'static)) -> String {
    let tls = |error: &(dyn std::error::Error + 'static)| {
        error.downcast_ref::<rustls::Error>().map(|tls| SessionError::Tls(tls.clone()).to_string())
    };
    let within = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    tls(cause).or_else(|| tls(within?)).unwrap_or_else(|| cause.to_string())
}

/// Makes of a wait that is too long the longest: the library above adds it to a moment, and panics
/// where there is none such.
fn bound_retry_after(headers: &mut HeaderMap) {
    let Some(text) = headers.get(RETRY_AFTER) else { return };
    let text = text.to_str().unwrap_or_default().trim();
    let latest = SystemTime::now() + Duration::from_secs(RETRY_AFTER_S_MAX);
    let is_bounded = match text.parse::<u64>() {
        Ok(seconds) => seconds <= RETRY_AFTER_S_MAX,
        Err(_) => HttpDate::from_str(text).is_ok_and(|at| SystemTime::from(at) <= latest),
    };
    // A number that is too long for its type is a long wait too; other text is none at all.
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_bounded && (is_number || HttpDate::from_str(text).is_ok()) {
        headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S_MAX));
    }
}

/// The body of an answer: of a refusal a problem document with the answer's own status, also where
/// something on the way has said it in other words, as that nothing is there.
fn problem_of(status: StatusCode, body: Bytes) -> Bytes {
    if !status.is_client_error() && !status.is_server_error() {
        return body;
    }
    let is_problem = serde_json::from_slice::<Problem>(&body).is_ok();
    let told = serde_json::from_slice(&body).ok().filter(|_| is_problem);
    let mut problem = match told {
        Some(serde_json::Value::Object(problem)) => problem,
        _ => serde_json::Map::from_iter([("detail".to_owned(), status.to_string().into())]),
    };
    problem.insert("status".to_owned(), status.as_u16().into());
    serde_json::Value::Object(problem).to_string().into()
}

/// The moment in `Retry-After` (RFC 9110, 10.2.3).
fn retry_after(headers: &HeaderMap) -> Option<SystemTime> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse::<u64>() {
        Ok(seconds) => SystemTime::now().checked_add(Duration::from_secs(seconds)),
        Err(_) => HttpDate::from_str(text).ok().map(SystemTime::from),
    }
}

/// Bytes of an answer: a chain, or a problem with a hundred identifiers.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Causes of an error that are looked at.
const CAUSES_MAX: usize = 16;
/// For how long a connection that nothing is asked on stays open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
/// For how long one answer is waited for.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest that an authority is left alone, whatever it asks for.
const RETRY_AFTER_S_MAX: u64 = 7 * 86_400;
/// How authorities see us: RFC 8555, 6.1, asks for the client and the library under it.
const OUR_NAME: &str = concat!("sealane-agent/", env!("CARGO_PKG_VERSION"), " instant-acme/0.8");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_that_an_authority_tells_is_that_of_its_last_answer() {
        let told = Told::default();
        let note = |status, text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            told.note(Some((status, &headers)));
        };
        let left_s = |is_refusal| {
            let at = told.to_come(is_refusal)?;
            Some(at.duration_since(SystemTime::now()).unwrap_or_default().as_secs())
        };
        let is_about =
            |found: Option<u64>, seconds| found.is_some_and(|f| f.abs_diff(seconds) < 60);
        note(StatusCode::TOO_MANY_REQUESTS, " 86400 ");
        assert!(is_about(left_s(true), 86_400));
        assert_eq!(left_s(false), None);
        note(StatusCode::OK, "3600");
        assert!(is_about(left_s(false), 3_600));
        assert_eq!(left_s(true), None, "of an answer before");
        let later = SystemTime::now() + Duration::from_secs(7_200);
        note(StatusCode::SERVICE_UNAVAILABLE, &httpdate::fmt_http_date(later));
        assert!(is_about(left_s(true), 7_200));
        told.note(Some((StatusCode::BAD_REQUEST, &HeaderMap::new())));
        assert_eq!(left_s(true), None, "this one said nothing");
        note(StatusCode::TOO_MANY_REQUESTS, "60");
        told.note(None);
        assert_eq!(left_s(true), None, "nobody answered");
        note(StatusCode::TOO_MANY_REQUESTS, "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(left_s(true), None);
    }

    #[test]
    fn no_wait_is_longer_than_a_week_or_past_the_end_of_time() {
        let bounded = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            bound_retry_after(&mut headers);
            headers[RETRY_AFTER].to_str().unwrap().to_owned()
        };
        let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(700_000));
        for text in ["18446744073709551615", "99999999999999999999", "604801", date.as_str()] {
            assert_eq!(bounded(text), "604800", "{text}");
        }
        for text in ["604800", "5", "Sun, 06 Nov 1994 08:49:37 GMT", "soon", ""] {
            assert_eq!(bounded(text), text);
        }
    }

    #[test]
    fn a_refusal_is_a_problem_with_its_own_status_whatever_its_body() {
        let problem = |status, body: &'static str| -> Problem {
            serde_json::from_slice(&problem_of(status, Bytes::from_static(body.as_bytes())))
                .unwrap()
        };
        for body in ["<html>gone</html>", "", "[]", "{\"type\":7}"] {
            let said = problem(StatusCode::GONE, body);
            assert_eq!(said.status, Some(410), "{body}");
            assert_eq!(said.detail.as_deref(), Some("410 Gone"), "{body}");
        }
        let said = problem(StatusCode::NOT_FOUND, "{\"type\":\"a\",\"status\":200}");
        assert_eq!((said.r#type.as_deref(), said.status), (Some("a"), Some(404)));
        let order = Bytes::from_static(b"{\"status\":\"valid\"}");
        assert_eq!(problem_of(StatusCode::OK, order.clone()), order);
    }
}
