//! What is asked and what is answered: [`Request`] and [`Response`].

use crate::proxy_header;

use super::Body;

/// What a client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request<'a> {
    /// What it is.
    pub method: Method,
    /// The path, without the query.
    pub path: &'a str,
    /// What follows the first question mark.
    pub query: Option<&'a str>,
    /// The media types that it takes.
    pub accept: Option<&'a str>,
    /// What came before the request, on a server that [`serve_proxied`](super::serve_proxied) made.
    pub proxy_header: Option<proxy_header::Facts<'a>>,
    /// Whether this process's user or root asks; known only on a server that
    /// [`serve_orders`](super::serve_orders) made.
    pub is_owners: bool,
}

/// What a request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Something shall be removed; only [`serve_orders`](super::serve_orders) takes it.
    Delete,
    /// Something shall be shown; HEAD is one without the body.
    #[default]
    Get,
    /// Something shall be done; only [`serve_orders`](super::serve_orders) takes it.
    Post,
    /// Something comes behind the head and shall be kept; only
    /// [`serve_orders`](super::serve_orders) takes it.
    Put,
}

/// What becomes of a request.
pub enum Answer {
    /// The response.
    Now(Response),
    /// What makes the response, and may take a while: it is called on a thread of its own.
    Later(Box<dyn FnOnce() -> Response + Send>),
    /// The same, which reads the body of the request.
    WithBody(Box<dyn FnOnce(Body) -> Response + Send>),
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Now(response)
    }
}

/// What it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// How the request went.
    pub status: Status,
    /// What the body is.
    pub content_type: ContentType,
    /// The body.
    pub body: Vec<u8>,
    /// What a page may do, as a Content-Security-Policy.
    pub policy: Option<&'static str>,
}

impl Response {
    /// A response with any kind of body.
    pub fn new(status: Status, content_type: ContentType, body: impl Into<Vec<u8>>) -> Self {
        Self { status, content_type, body: body.into(), policy: None }
    }

    /// The same, for a page that may do no more than this.
    pub fn with_policy(self, policy: &'static str) -> Self {
        Self { policy: Some(policy), ..self }
    }

    /// A line of plain text.
    pub fn text(status: Status, line: impl std::fmt::Display) -> Self {
        Self::new(status, ContentType::Text, format!("{line}\n"))
    }

    pub(super) fn encode(self, with_body: bool) -> Vec<u8> {
        let mut bytes = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{}\
             X-Content-Type-Options: nosniff\r\n\
             Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            self.status.line(),
            self.content_type.name(),
            self.body.len(),
            self.status.more(),
            self.policy
                .map(|policy| format!("Content-Security-Policy: {policy}\r\n"))
                .unwrap_or_default(),
        )
        .into_bytes();
        if with_body {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// Status codes that we answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 400: that was not HTTP.
    BadRequest,
    /// 409: it is refused, and nothing has changed.
    Conflict,
    /// 413: more than is taken at once.
    ContentTooLarge,
    /// 405: a path that takes DELETE, GET and PUT.
    DeleteGetPutOnly,
    /// 403: not for this user.
    Forbidden,
    /// 504: whoever should do it has not answered.
    GatewayTimeout,
    /// 431: more than [`HEAD_BYTES_MAX`](super::HEAD_BYTES_MAX) or
    /// [`HEADERS_MAX`](super::HEADERS_MAX).
    HeadTooLarge,
    /// 500: a fault of ours.
    InternalError,
    /// 411: neither how long the body is, nor chunks.
    LengthRequired,
    /// 421: the server is not asked for by this name.
    Misdirected,
    /// 405: neither GET nor HEAD.
    MethodNotAllowed,
    /// 404: no such path.
    NotFound,
    /// 200.
    Ok,
    /// 405: an order, which takes POST.
    PostOnly,
    /// 408: it does not come.
    RequestTimeout,
    /// 503: not now.
    ServiceUnavailable,
    /// 422: not all of what came is in order.
    Unprocessable,
}

impl Status {
    /// Code and reason as in a status line.
    pub fn line(self) -> &'static str {
        match self {
            Self::BadRequest => "400 Bad Request",
            Self::Conflict => "409 Conflict",
            Self::Forbidden => "403 Forbidden",
            Self::GatewayTimeout => "504 Gateway Timeout",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::InternalError => "500 Internal Server Error",
            Self::ContentTooLarge => "413 Content Too Large",
            Self::LengthRequired => "411 Length Required",
            Self::Misdirected => "421 Misdirected Request",
            Self::DeleteGetPutOnly | Self::MethodNotAllowed | Self::PostOnly => {
                "405 Method Not Allowed"
            }
            Self::NotFound => "404 Not Found",
            Self::Ok => "200 OK",
            Self::RequestTimeout => "408 Request Timeout",
            Self::ServiceUnavailable => "503 Service Unavailable",
            Self::Unprocessable => "422 Unprocessable Content",
        }
    }

    /// A header that belongs to it.
    fn more(self) -> &'static str {
        match self {
            Self::DeleteGetPutOnly => "Allow: DELETE, GET, HEAD, PUT\r\n",
            Self::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            Self::PostOnly => "Allow: POST\r\n",
            _ => "",
        }
    }
}

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentType {
    /// A page.
    Html,
    /// JSON.
    Json,
    /// The text format of Prometheus.
    Metrics,
    /// Plain text.
    Text,
}

impl ContentType {
    /// The media type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/json",
            Self::Metrics => "text/plain; version=0.0.4; charset=utf-8",
            Self::Text => "text/plain; charset=utf-8",
        }
    }
}
