//! etcd over its JSON gateway: [`Etcd`].
//!
//! The gateway carries the same calls as gRPC, over HTTP/1.1 with JSON, in which numbers are text
//! and bytes are base64. It takes nobody's name from a client's certificate (etcd's documentation,
//! "gRPC gateway"), so who may do what is told by a user and a password.

mod failure;
#[cfg(test)]
pub(crate) mod fake;
mod watch;
mod wire;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Collected, Full, LengthLimitError, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use zeroize::Zeroizing;

use crate::http::client;
use crate::settings::{EtcdLogin, EtcdSettings};
use crate::trust::{TrustError, client_config};

pub(crate) use failure::EtcdError;
pub(crate) use watch::{Seen, Watch};
pub(crate) use wire::{Change, Compare, Entry, Page};
use wire::{Granted, Kept, Ranged, Token, Transacted, bytes_text, end_of_prefix};

/// A client of one cluster, which bounds each request in time and size.
pub(crate) struct Etcd {
    access: RefCell<Rc<Access>>,
    endpoints: Vec<String>,
    /// The endpoint that answered last.
    first: Cell<usize>,
    /// Entries that are asked for at once.
    page: Cell<usize>,
    /// What the cluster knows this client by, until it forgets.
    token: RefCell<Option<String>>,
}

/// The access to a cluster, read from files: roots, this machine's certificate, and a password.
struct Access {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    login: Option<Login>,
}

struct Login {
    user: String,
    password: Zeroizing<String>,
}

#[derive(Serialize)]
struct Credentials<'c> {
    name: &'c str,
    password: &'c str,
}

impl Etcd {
    /// A client of the cluster that `settings` name.
    ///
    /// # Errors
    /// Certificates or the password cannot be read.
    pub(crate) fn new(settings: &EtcdSettings) -> Result<Self, TrustError> {
        Ok(Self {
            access: RefCell::new(Rc::new(Access::read(settings)?)),
            endpoints: settings.endpoints.clone(),
            first: Cell::new(0),
            page: Cell::new(PAGE),
            token: RefCell::new(None),
        })
    }

    /// Reads the files in `settings` again, for all requests from now on.
    ///
    /// # Errors
    /// As for [`Self::new`]; then the files as read before stay in use.
    pub(crate) fn reread(&self, settings: &EtcdSettings) -> Result<(), TrustError> {
        self.access.replace(Rc::new(Access::read(settings)?));
        self.token.replace(None);
        Ok(())
    }

    fn access(&self) -> Rc<Access> {
        Rc::clone(&self.access.borrow())
    }

    /// The entries whose keys begin with `prefix`, behind the key `after`, at most [`PAGE`], as
    /// they were at a revision; 0 is now. Keys that are no text are left out. Where values are so
    /// large that an answer takes too much, fewer are asked for; one that is alone too large comes
    /// without its value.
    pub(crate) async fn page(
        &self,
        prefix: &str,
        after: Option<&str>,
        revision: i64,
    ) -> Result<Page, EtcdError> {
        if after.is_none() {
            self.page.set(PAGE);
        }
        let behind = |key: &[u8]| [key, b"\0"].concat();
        let mut from =
            after.map_or_else(|| prefix.as_bytes().to_vec(), |after| behind(after.as_bytes()));
        let (mut revision, mut is_without_values) = (revision, false);
        loop {
            let limit = self.page.get();
            let asked = json!({
                "key": bytes_text(&from),
                "range_end": bytes_text(&end_of_prefix(prefix)),
                "limit": limit.to_string(),
                "revision": revision.to_string(),
                "keys_only": is_without_values,
            });
            match self.call::<Ranged>("kv/range", &asked).await.map(Page::from) {
                Err(error) if error.is_of_size() && limit > 1 => self.page.set(limit / 2),
                Err(error) if error.is_of_size() && !is_without_values => is_without_values = true,
                Ok(Page { entries, has_more: true, last: Some(last), revision: at, .. })
                    if entries.is_empty() =>
                {
                    // The least key behind one is that with a zero byte more.
                    from = behind(&last);
                    revision = if revision == 0 { at } else { revision };
                }
                answer => return answer,
            }
        }
    }

    /// One entry.
    pub(crate) async fn get(&self, key: &str) -> Result<Option<Entry>, EtcdError> {
        let asked = json!({ "key": bytes_text(key.as_bytes()) });
        let page: Page = self.call::<Ranged>("kv/range", &asked).await?.into();
        Ok(page.entries.into_iter().next())
    }

    /// Those of these entries that are there, 128 at most.
    pub(crate) async fn all_of(&self, keys: &[&str]) -> Result<Vec<Entry>, EtcdError> {
        let ranges: Vec<_> = keys
            .iter()
            .map(|key| json!({ "request_range": { "key": bytes_text(key.as_bytes()) } }))
            .collect();
        let asked = json!({ "success": ranges });
        let answer: Transacted = self.call("kv/txn", &asked).await?;
        let pages = answer.responses.into_iter().filter_map(|one| one.range).map(Page::from);
        Ok(pages.flat_map(|page| page.entries).collect())
    }

    /// The number of entries with keys that begin with `prefix`.
    pub(crate) async fn count(&self, prefix: &str) -> Result<u64, EtcdError> {
        let asked = json!({
            "key": bytes_text(prefix.as_bytes()),
            "range_end": bytes_text(&end_of_prefix(prefix)),
            "count_only": true,
        });
        Ok(u64::try_from(self.call::<Ranged>("kv/range", &asked).await?.count).unwrap_or(0))
    }

    /// How many entries below `prefix` have changed after a revision, and the cluster's own.
    pub(crate) async fn changed_since(
        &self,
        prefix: &str,
        revision: i64,
    ) -> Result<(u64, Page), EtcdError> {
        let asked = json!({
            "key": bytes_text(prefix.as_bytes()),
            "range_end": bytes_text(&end_of_prefix(prefix)),
            "min_mod_revision": revision.saturating_add(1).to_string(),
            "limit": "1",
            "keys_only": true,
        });
        let page: Page = self.call::<Ranged>("kv/range", &asked).await?.into();
        Ok((page.entries.len() as u64, page))
    }

    /// Makes `changes` if all of `compares` hold, all at one revision, which it returns; none if
    /// one does not hold.
    pub(crate) async fn change_if(
        &self,
        compares: &[Compare<'_>],
        changes: &[Change<'_>],
    ) -> Result<Option<i64>, EtcdError> {
        let compares: Vec<_> = compares.iter().map(Compare::json).collect();
        let changes: Vec<_> = changes.iter().map(Change::json).collect();
        let asked = json!({ "compare": compares, "success": changes });
        let answer: Transacted = self.call("kv/txn", &asked).await?;
        Ok(answer.succeeded.then_some(answer.header.revision))
    }

    /// Makes `changes` at one revision.
    pub(crate) async fn change(&self, changes: &[Change<'_>]) -> Result<i64, EtcdError> {
        // A comparison with nothing always holds.
        Ok(self.change_if(&[], changes).await?.unwrap_or_default())
    }

    /// A lease that ends so long after the last word of it.
    pub(crate) async fn grant(&self, lifetime: Duration) -> Result<i64, EtcdError> {
        let asked = json!({ "TTL": lifetime.as_secs().to_string() });
        Ok(self.call::<Granted>("lease/grant", &asked).await?.id)
    }

    /// Keeps a lease alive; whether it was alive still.
    pub(crate) async fn keep_alive(&self, lease: i64) -> Result<bool, EtcdError> {
        let asked = json!({ "ID": lease.to_string() });
        Ok(self.call::<Kept>("lease/keepalive", &asked).await?.result.ttl > 0)
    }

    /// Ends a lease, and all that hangs on it.
    pub(crate) async fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        let asked = json!({ "ID": lease.to_string() });
        self.call::<serde_json::Value>("lease/revoke", &asked).await.map(drop)
    }

    /// Asks another endpoint first from now on.
    pub(crate) fn avoid(&self, endpoint: &str) {
        let first = self.first.get();
        if self.endpoints.get(first).is_some_and(|at| at == endpoint) {
            self.first.set((first + 1) % self.endpoints.len());
        }
    }

    /// All changes of the keys from `first` to the one before `end`, from a revision on.
    pub(crate) async fn watch(
        &self,
        (first, end): (&str, &str),
        from: i64,
    ) -> Result<Watch, EtcdError> {
        let asked = json!({ "create_request": {
            "key": bytes_text(first.as_bytes()),
            "range_end": bytes_text(end.as_bytes()),
            "start_revision": from.to_string(),
            "fragment": true,
            "progress_notify": true,
        }});
        let text = asked.to_string();
        let opening = |endpoint: String| {
            let text = &text;
            async move {
                let response = self.send(&endpoint, "watch", text).await?;
                match response.status().is_success() {
                    true => Ok(Watch::new(endpoint, response.into_body())),
                    false => Err(self.refusal(&endpoint, response).await),
                }
            }
        };
        self.anywhere(opening).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        what: &str,
        asked: &impl Serialize,
    ) -> Result<T, EtcdError> {
        let text = Zeroizing::new(serde_json::to_string(asked).unwrap_or_default());
        let text = &text;
        self.anywhere(|endpoint| async move { self.once(&endpoint, what, text).await }).await
    }

    /// Asks the endpoint that answered last; if it is that one that is at fault, the others.
    async fn anywhere<T, F>(&self, ask: impl Fn(String) -> F) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let (first, count) = (self.first.get(), self.endpoints.len());
        let mut last = EtcdError::nowhere();
        for number in 0..count {
            let at = (first + number) % count;
            let Some(endpoint) = self.endpoints.get(at) else { break };
            last = match self.logged_in(endpoint, &ask).await {
                Err(error) if error.is_of_endpoint() => {
                    // Of a token that is newer than its state, as after a snapshot was restored, an
                    // endpoint says nothing at all: it waits until its state is as new.
                    self.token.replace(None);
                    error
                }
                answer => {
                    self.first.set(at);
                    return answer;
                }
            };
        }
        Err(last)
    }

    /// Asks one endpoint, with a token that it knows.
    async fn logged_in<T, F>(
        &self,
        endpoint: &str,
        ask: &impl Fn(String) -> F,
    ) -> Result<T, EtcdError>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let has_login = self.access().login.is_some();
        if has_login && self.token.borrow().is_none() {
            self.log_in(endpoint).await?;
        }
        match ask(endpoint.to_owned()).await {
            // It forgets one that was not used for minutes.
            Err(error) if error.is_of_token() && has_login => {
                self.log_in(endpoint).await?;
                ask(endpoint.to_owned()).await
            }
            answer => answer,
        }
    }

    async fn log_in(&self, endpoint: &str) -> Result<(), EtcdError> {
        let access = self.access();
        let Some(Login { user, password }) = &access.login else { return Ok(()) };
        self.token.replace(None);
        let asked = Credentials { name: user, password };
        let asked = Zeroizing::new(serde_json::to_string(&asked).unwrap_or_default());
        let Token { token } = self.once(endpoint, "auth/authenticate", &asked).await?;
        self.token.replace(Some(token));
        Ok(())
    }

    async fn once<T: DeserializeOwned>(
        &self,
        endpoint: &str,
        what: &str,
        text: &str,
    ) -> Result<T, EtcdError> {
        let whole = async {
            let response = self.send(endpoint, what, text).await?;
            if !response.status().is_success() {
                return Err(self.refusal(endpoint, response).await);
            }
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => EtcdError::endless(endpoint, ANSWER_BYTES_MAX),
                false => EtcdError::unheard(endpoint, &*error),
            });
            let body = body?.to_bytes();
            serde_json::from_slice(&body)
                .map_err(|error| EtcdError::senseless(endpoint, what, &error))
        };
        let came = tokio::time::timeout(REQUEST_TIMEOUT, whole).await;
        came.unwrap_or_else(|_| Err(EtcdError::late(endpoint, REQUEST_TIMEOUT)))
    }

    async fn send(
        &self,
        endpoint: &str,
        what: &str,
        text: &str,
    ) -> Result<Response<hyper::body::Incoming>, EtcdError> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{endpoint}/v3/{what}"))
            .header(CONTENT_TYPE, "application/json");
        if let Some(token) = &*self.token.borrow() {
            let token = HeaderValue::from_str(token).map(|mut token| {
                token.set_sensitive(true);
                token
            });
            let token = token.map_err(|error| EtcdError::unheard(endpoint, &error))?;
            request = request.header(AUTHORIZATION, token);
        }
        let request =
            request.body(Full::new(Bytes::from_owner(Zeroizing::new(text.as_bytes().to_vec()))));
        let request = request.map_err(|error| EtcdError::unheard(endpoint, &error))?;
        let asked = self.access().client.request(request);
        let sent = tokio::time::timeout(REQUEST_TIMEOUT, asked).await;
        let response = sent.map_err(|_| EtcdError::late(endpoint, REQUEST_TIMEOUT))?;
        response.map_err(|error| EtcdError::unheard(endpoint, &error))
    }

    /// What a refusal says.
    async fn refusal(
        &self,
        endpoint: &str,
        response: Response<hyper::body::Incoming>,
    ) -> EtcdError {
        let status = response.status();
        let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect();
        let body = tokio::time::timeout(REQUEST_TIMEOUT, body).await;
        let body = body.ok().and_then(Result::ok).map(Collected::to_bytes);
        let access = self.access();
        let user = access.login.as_ref().map(|login| login.user.as_str());
        EtcdError::refused(endpoint, status, &body.unwrap_or_default(), user)
    }
}

impl Access {
    fn read(settings: &EtcdSettings) -> Result<Self, TrustError> {
        let config = client_config(&settings.roots, settings.identity.as_ref())?;
        let login = settings.login.as_ref().map(|EtcdLogin { user, password }| {
            let password = sealane_operator::secret_text(password)?;
            let password = Zeroizing::new(password.trim_end_matches(['\r', '\n']).to_owned());
            Ok::<_, TrustError>(Login { user: user.clone(), password })
        });
        Ok(Self { client: client(config, true, IDLE_TIMEOUT), login: login.transpose()? })
    }
}

/// Entries of a page.
pub(crate) const PAGE: usize = 1_000;
/// Bytes of an answer: a page of certificates, each with a chain, in base64, has half of it.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// For how long a connection that nothing is asked on stays open.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a refusal.
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// For how long one answer is waited for; a cluster elects a leader within seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
