//! JavaScript's `Context`: certificates and settings, parsed and validated.

#![expect(clippy::needless_pass_by_value, reason = "the binding hands values over")]

use std::sync::Arc;

use napi::bindgen_prelude::{AsyncTask, Buffer, Uint8Array};
use napi::{Env, Error, Result, Task};
use napi_derive::napi;
use sealane_engine::certificates::{Certificate, KeyEncoding};
use zeroize::Zeroizing;

use crate::failing;
use crate::options::{Built, Mistake, Pem, Written};

/// JavaScript's options of a context. `lib/options.js` has read them before.
#[napi(object, object_to_js = false)]
pub struct ContextOptions {
    /// Chains in PEM.
    pub cert: Option<Vec<Uint8Array>>,
    /// Private keys in PEM.
    pub key: Option<Vec<Uint8Array>>,
    /// Files and directories with both.
    pub directory: Option<Vec<String>>,
    /// Authorities of clients in PEM.
    pub ca: Option<Vec<Uint8Array>>,
    /// Whether clients get the names of those.
    pub ca_named: Option<bool>,
    /// Revocation lists of these authorities, in PEM.
    pub crl: Option<Vec<Uint8Array>>,
    /// Whether clients are asked for a certificate.
    pub request_cert: Option<bool>,
    /// Whether those without a good one are refused.
    pub reject_unauthorized: Option<bool>,
    /// Protocols, a character for each byte.
    pub alpn: Option<Vec<String>>,
    /// The oldest version.
    pub min_version: Option<String>,
    /// The newest version.
    pub max_version: Option<String>,
    /// IANA's names.
    pub suites: Option<Vec<String>>,
    /// IANA's names.
    pub groups: Option<Vec<String>>,
    /// IANA's names.
    pub schemes: Option<Vec<String>>,
    /// Whether the server's order of suites decides.
    pub honor_cipher_order: Option<bool>,
    /// Whether sessions are resumed.
    pub tickets: Option<bool>,
    /// Whether secrets are logged.
    pub key_log: Option<bool>,
    /// Whether a client that asks for an unknown name is refused.
    pub refuse_unknown_names: Option<bool>,
}

/// TLS settings that any number of servers can serve.
#[napi]
pub struct Context {
    built: Built,
}

#[napi]
impl Context {
    /// Parses on the calling thread.
    #[napi(factory)]
    pub fn create(env: Env, options: ContextOptions) -> Result<Self> {
        match Written::from(options).build() {
            Ok(built) => Ok(Self { built }),
            Err(mistakes) => Err(failing::of_mistakes(&env, &mistakes)?),
        }
    }

    /// Parses on a thread of Node's pool.
    #[napi(ts_return_type = "Promise<Context>")]
    pub fn create_async(options: ContextOptions) -> AsyncTask<Parsing> {
        AsyncTask::new(Parsing { written: options.into(), mistakes: Vec::new() })
    }

    /// Names it among all contexts of the process, those that are gone included.
    #[napi(getter)]
    pub fn id(&self) -> f64 {
        self.built.context.id.0 as f64
    }

    /// All chains, as DER.
    #[napi]
    pub fn certificates(&self) -> Vec<Vec<Buffer>> {
        let chain = |certificate: &Arc<Certificate>| {
            certificate.chain().map(|der| Buffer::from(der.to_vec())).collect()
        };
        self.built.context.certificates.iter().map(chain).collect()
    }

    /// The names of all certificates.
    #[napi]
    pub fn names(&self) -> Vec<String> {
        let certificates = self.built.context.certificates.iter();
        certificates.flat_map(|one| one.names().iter().map(ToString::to_string)).collect()
    }

    /// The certificates that serve a name, or no name, with their keys: for sockets that node's own
    /// TLS serves.
    #[napi]
    pub fn identities(&self, server_name: String) -> Vec<Identity> {
        let index = &self.built.context.certificates;
        let found = match index.find(&server_name) {
            [] => index.default_certificates(),
            found => found,
        };
        found.iter().map(|certificate| Identity::of(certificate)).collect()
    }

    /// Oddities of the certificates.
    #[napi]
    pub fn warnings(&self) -> Vec<String> {
        self.built.warnings.clone()
    }

    /// For the lanes.
    pub(crate) fn shared(&self) -> Arc<sealane_engine::context::Context> {
        Arc::clone(&self.built.context)
    }
}

/// A certificate and its key.
#[napi(object, object_from_js = false)]
pub struct Identity {
    /// DER, the server's own first.
    pub chain: Vec<Buffer>,
    /// DER.
    pub key: Buffer,
    /// The form of the key, in the words of Node's `createPrivateKey`.
    pub r#type: &'static str,
    /// Identifies the certificate.
    pub digest: Buffer,
}

impl Identity {
    fn of(certificate: &Certificate) -> Self {
        let key = certificate.key();
        let r#type = match key.encoding() {
            KeyEncoding::Pkcs1 => "pkcs1",
            KeyEncoding::Pkcs8 => "pkcs8",
            KeyEncoding::Sec1 => "sec1",
        };
        Self {
            chain: certificate.chain().map(|der| Buffer::from(der.to_vec())).collect(),
            key: Buffer::from(key.der().to_vec()),
            r#type,
            digest: Buffer::from(certificate.digest().0.to_vec()),
        }
    }
}

/// A context that is parsed on a thread of Node's pool.
pub struct Parsing {
    written: Written,
    mistakes: Vec<Mistake>,
}

impl Task for Parsing {
    type Output = Built;
    type JsValue = Context;

    fn compute(&mut self) -> Result<Built> {
        self.written.build().map_err(|mistakes| {
            self.mistakes = mistakes;
            Error::from_reason("the context's options are wrong")
        })
    }

    fn resolve(&mut self, _env: Env, built: Built) -> Result<Context> {
        Ok(Context { built })
    }

    fn reject(&mut self, env: Env, error: Error) -> Result<Context> {
        if self.mistakes.is_empty() {
            return Err(error);
        }
        Err(failing::of_mistakes(&env, &self.mistakes)?)
    }
}

impl From<ContextOptions> for Written {
    fn from(options: ContextOptions) -> Self {
        Self {
            cert: texts(options.cert),
            key: texts(options.key),
            directory: options.directory.into_iter().flatten().map(Into::into).collect(),
            ca: texts(options.ca),
            ca_named: options.ca_named.unwrap_or(true),
            crl: texts(options.crl),
            request_cert: options.request_cert.unwrap_or(false),
            reject_unauthorized: options.reject_unauthorized.unwrap_or(true),
            alpn: options.alpn.unwrap_or_default(),
            min_version: options.min_version,
            max_version: options.max_version,
            suites: options.suites.unwrap_or_default(),
            groups: options.groups.unwrap_or_default(),
            schemes: options.schemes.unwrap_or_default(),
            honor_cipher_order: options.honor_cipher_order.unwrap_or(true),
            tickets: options.tickets.unwrap_or(true),
            key_log: options.key_log.unwrap_or(false),
            refuse_unknown_names: options.refuse_unknown_names.unwrap_or(false),
        }
    }
}

fn texts(arrays: Option<Vec<Uint8Array>>) -> Vec<Pem> {
    arrays.into_iter().flatten().map(|array| Zeroizing::new(array.to_vec())).collect()
}
