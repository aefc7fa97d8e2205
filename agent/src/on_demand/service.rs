//! The operator's service that knows which names may have a certificate: [`Service`].

use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Empty;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::process::Command;

use crate::http::client;
use crate::settings::Permission;
use crate::trust::{TrustError, client_config};

/// A service, or a command in its stead.
pub(crate) enum Service {
    Command(Vec<String>),
    /// In the clear, on this machine.
    Http {
        client: Client<HttpConnector, Empty<Bytes>>,
        url: String,
    },
    Https {
        client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
        url: String,
    },
}

impl Service {
    /// The one that settings name.
    ///
    /// # Errors
    /// The roots of the service cannot be read.
    pub(crate) fn new(permission: &Permission) -> Result<Self, TrustError> {
        Ok(match permission {
            Permission::Command(command) => Self::Command(command.clone()),
            Permission::Service { roots, url } if url.starts_with("https:") => {
                let client = client(client_config(roots, None)?, false, Duration::ZERO);
                Self::Https { client, url: url.clone() }
            }
            Permission::Service { url, .. } => {
                let mut builder = Client::builder(TokioExecutor::new());
                let client = builder.pool_max_idle_per_host(0).build(HttpConnector::new());
                Self::Http { client, url: url.clone() }
            }
        })
    }

    /// Reads the same files as [`Self::new`].
    ///
    /// # Errors
    /// The roots of the service cannot be used.
    pub(crate) fn check(permission: &Permission) -> Result<(), TrustError> {
        match permission {
            Permission::Service { roots, url } if url.starts_with("https:") => {
                client_config(roots, None).map(drop)
            }
            Permission::Command(_) | Permission::Service { .. } => Ok(()),
        }
    }

    /// Whether there may be a certificate for `name`, which is a host name.
    ///
    /// # Errors
    /// Nobody could say, and why.
    pub(crate) async fn ask(&self, name: &str) -> Result<bool, String> {
        let (what, asked) = match self {
            Self::Command(command) => {
                let program = command.first().map(String::as_str).unwrap_or_default();
                let asked = tokio::time::timeout(TIMEOUT, run(command, name)).await;
                (format!("ask_command {program}"), asked)
            }
            Self::Http { client, url } => {
                (without_query(url), tokio::time::timeout(TIMEOUT, get(client, url, name)).await)
            }
            Self::Https { client, url } => {
                (without_query(url), tokio::time::timeout(TIMEOUT, get(client, url, name)).await)
            }
        };
        let asked = asked.unwrap_or_else(|_| Err(format!("no answer in {} s", TIMEOUT.as_secs())));
        asked.map_err(|why| format!("{name}: {what}: {why}; asked again when a client comes again"))
    }
}

/// A URL as the log may have it: a query may be a secret.
fn without_query(url: &str) -> String {
    url.split('?').next().unwrap_or_default().to_owned()
}

async fn get<C>(client: &Client<C, Empty<Bytes>>, url: &str, name: &str) -> Result<bool, String>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    let separator = if url.contains('?') { '&' } else { '?' };
    // A host name needs no escape.
    let url: http::Uri =
        format!("{url}{separator}name={name}").parse().map_err(|error| format!("{error}"))?;
    let answer = client.get(url).await.map_err(|error| with_causes(&error))?;
    match answer.status() {
        StatusCode::OK => Ok(true),
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Ok(false),
        status => Err(format!("{status}, which is neither 200 nor 403 or 404")),
    }
}

/// Runs the command without a shell: 0 allows, 1 refuses.
async fn run(command: &[String], name: &str) -> Result<bool, String> {
    let program = command.first().map(String::as_str).unwrap_or_default();
    let status = Command::new(program)
        .args(command.iter().skip(1))
        .arg(name)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .map_err(|error| format!("cannot be started: {error}"))?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => Err(format!("{status}, which is neither 0 nor 1")),
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(under) = cause {
        text = format!("{text}: {under}");
        cause = under.source();
    }
    text
}

/// For how long an answer is waited for.
const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::RootSource;

    /// A service on this machine is asked in the clear, and no root is needed for that.
    #[test]
    fn plain_service_needs_no_roots() {
        let url = "http://127.0.0.1:1/ask".to_owned();
        let plain = Permission::Service { roots: Vec::new(), url };
        assert!(matches!(Service::new(&plain), Ok(Service::Http { .. })));
        let url = "https://service.test/ask".to_owned();
        assert!(Service::new(&Permission::Service { roots: Vec::new(), url }).is_err());
    }

    /// `sealane-agent check` refuses each thing that a start refuses.
    #[test]
    fn check_reads_the_roots_of_a_service() {
        let roots = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(roots.path(), "<html>").unwrap();
        let roots = vec![RootSource::File(roots.path().to_owned())];
        let [tls, plain] = ["https", "http"].map(|scheme| {
            let url = format!("{scheme}://service.test/ask");
            Permission::Service { roots: roots.clone(), url }
        });
        assert!(Service::check(&tls).is_err() && Service::check(&plain).is_ok());
    }

    #[test]
    fn a_command_says_yes_no_or_nothing() {
        let ask = |script: &str| {
            let command = ["sh", "-c", script, "sh"].map(str::to_owned).to_vec();
            let service = Service::new(&Permission::Command(command)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(service.ask("a.test"))
        };
        assert_eq!(ask("[ $1 = a.test ]"), Ok(true));
        assert_eq!(ask("[ $1 = b.test ]"), Ok(false));
        assert!(ask("exit 7").unwrap_err().contains("neither 0 nor 1"));
        assert!(ask("kill -9 $$").unwrap_err().starts_with("a.test: ask_command sh: "));
    }
}
