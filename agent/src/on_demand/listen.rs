//! Names that clients ask for, from the sockets of those who serve: [`listen`].

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::HOST;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sealane_operator::value;
use serde::Deserialize;
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, spawn_local};
use tracing::{info, warn};

/// Names that clients have asked for since the last time.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Those with a certificate.
    pub(crate) served: Vec<String>,
    /// Those without one, in turns of their clients.
    pub(crate) wanted: Vec<Wanted>,
}

/// A name without a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The first clients who asked for it.
    pub(crate) from: Vec<IpAddr>,
    pub(crate) name: String,
}

/// Takes the names from one socket, again and again, and tells them. That nobody is there is said
/// once, and that somebody is there again.
pub(crate) async fn listen(socket: PathBuf, tell: impl Fn(Asked)) {
    let mut failed: Option<String> = None;
    let mut served_at: Option<Instant> = None;
    loop {
        let with_served = served_at.is_none_or(|at| at.elapsed() >= SERVED_INTERVAL);
        match take(&socket, with_served).await {
            Ok(asked) => {
                if failed.take().is_some() {
                    info!("on_demand: {}: names are told again", socket.display());
                }
                if with_served {
                    served_at = Some(Instant::now());
                }
                tell(asked);
            }
            Err(error) => {
                let text = format!("on_demand: {}: {error}", socket.display());
                if failed.as_ref() != Some(&text) {
                    warn!("{text}");
                    failed = Some(text);
                }
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn take(socket: &Path, with_served: bool) -> Result<Asked, ListenError> {
    let served = if with_served { noted(socket, "/names/served").await? } else { Vec::new() };
    // What is read is taken: last, because it is the one that nobody tells again.
    let wanted = noted(socket, "/names/wanted").await?;
    let name = |noted: Noted| plain_name(&noted.name);
    let wanted = wanted.into_iter().filter_map(|mut noted| {
        let from = std::mem::take(&mut noted.from);
        name(noted).map(|name| Wanted { from, name })
    });
    Ok(Asked { served: served.into_iter().filter_map(name).collect(), wanted: wanted.collect() })
}

/// A host name that is none of a wildcard.
fn plain_name(text: &str) -> Option<String> {
    value::host_name(text).ok().filter(|name| !name.starts_with('*'))
}

async fn noted(socket: &Path, path: &str) -> Result<Vec<Noted>, ListenError> {
    let whole = async {
        let stream = UnixStream::connect(socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // What it has to say is said of the request.
        let _driven = Task::begin(async move { drop(connection.await) });
        let request = Request::builder().method(Method::POST).uri(path).header(HOST, "localhost");
        let request = request.body(Empty::<Bytes>::new())?;
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| ListenError::Body(error.to_string()))?.to_bytes();
        if parts.status != StatusCode::OK {
            let text = String::from_utf8_lossy(&body).trim().to_owned();
            return Err(ListenError::Refused { status: parts.status, text });
        }
        Ok(serde_json::from_slice::<Told>(&body)?.names)
    };
    tokio::time::timeout(TIMEOUT, whole).await.map_err(|_| ListenError::Silent)?
}

/// A task that ends when this is dropped.
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    /// Begins it.
    pub(crate) fn begin(task: impl Future<Output = ()> + 'static) -> Self {
        Self(spawn_local(task))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[derive(Deserialize)]
struct Told {
    names: Vec<Noted>,
}

#[derive(Debug, Deserialize)]
struct Noted {
    #[serde(default)]
    from: Vec<IpAddr>,
    name: String,
}

/// Why names are not told.
#[derive(Debug, thiserror::Error)]
enum ListenError {
    /// The answer breaks off.
    #[error("its answer broke off: {0}")]
    Body(String),
    /// The socket cannot be reached.
    #[error("{}", unreached(.0))]
    Connect(#[from] io::Error),
    /// Nobody speaks HTTP there.
    #[error("no answer of who serves: {0}")]
    Http(#[from] hyper::Error),
    /// A fault of ours.
    #[error("the request cannot be made: {0}; report it")]
    Request(#[from] http::Error),
    /// Whoever serves says no.
    #[error("{status}: {text}{}", remedy(*.status))]
    Refused { status: StatusCode, text: String },
    /// No answer came.
    #[error("no answer within {} s", TIMEOUT.as_secs())]
    Silent,
    /// The answer is of another version.
    #[error("its answer has no names: {0}; run both of the same version")]
    Text(#[from] serde_json::Error),
}

fn unreached(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("this user may not open it: {error}; {OWN_USER_REMEDY}")
        }
        _ => format!(
            "nobody tells names there: {error}; start sealane serve of this version, with a \
             listener that has on_demand = true and this store"
        ),
    }
}

fn remedy(status: StatusCode) -> String {
    match status {
        StatusCode::FORBIDDEN => format!("; {OWN_USER_REMEDY}"),
        _ => String::new(),
    }
}

/// An admin socket is for the user who serves.
const OWN_USER_REMEDY: &str = "leave admin out of [on_demand], and names are taken in the store's \
                               folder, by whoever may write to the store";
/// Bytes of an answer: as many names as are told at a time.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// How often names without a certificate are asked for.
const INTERVAL: Duration = Duration::from_secs(2);
/// How often names with a certificate are asked for.
const SERVED_INTERVAL: Duration = Duration::from_secs(10);
/// For how long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_is_none() {
        let names = ["one.test", "*.test", "no name", "TWO.test"].map(plain_name);
        assert_eq!(names, [Some("one.test".into()), None, None, Some("two.test".into())]);
    }
}
