//! Orders of an authority that is made up, for what a real one does not do.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use instant_acme::{Account, BodyWrapper, BytesResponse, HttpClient};
use rcgen::KeyPair;
use rustls::pki_types::PrivatePkcs8KeyDer;
use sealane_operator::{KeySource, create_key_file, sealing_keys};
use sealane_store::{KeyedStore, Store};
use serde_json::json;

use super::*;
use crate::agent::now;
use crate::http::Https;
use crate::ledger::{Record, id_of};
use crate::settings::RootSource;

const AT: &str = "https://ca.test";

/// An authority whose orders are all in one state, and which remembers the paths that it was asked
/// for.
#[derive(Clone, Default)]
struct MadeUp {
    asked: Arc<Mutex<Vec<String>>>,
    order: serde_json::Value,
    certificate: String,
}

impl MadeUp {
    fn answer(&self, path: &str) -> String {
        let at = |name: &str| format!("{AT}/{name}");
        match path {
            "/dir" => json!({
                "newNonce": at("nonce"), "newAccount": at("account"), "newOrder": at("new"),
                "renewalInfo": at("ari"),
            })
            .to_string(),
            "/certificate" => self.certificate.clone(),
            _ => self.order.to_string(),
        }
    }

    fn count(&self, path: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == path).count()
    }
}

impl HttpClient for MadeUp {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let path = request.uri().path().to_owned();
        let body = Full::new(Bytes::from(self.answer(&path)));
        self.asked.lock().unwrap().push(path);
        let response = Response::builder()
            .header("Replay-Nonce", "n")
            .header("Location", format!("{AT}/order"))
            .body(body)
            .unwrap();
        Box::pin(async move { Ok(BytesResponse::from(response)) })
    }
}

fn order(status: &str) -> serde_json::Value {
    json!({
        "status": status, "authorizations": [], "finalize": format!("{AT}/finalize"),
        "certificate": format!("{AT}/certificate"),
    })
}

/// A ledger in a folder.
fn ledger(folder: &Path) -> Ledger {
    Ledger::new(store(folder))
}

fn store(folder: &Path) -> Arc<KeyedStore> {
    create_key_file(&folder.join("key")).unwrap();
    let keys = sealing_keys(&KeySource::File(folder.join("key"))).unwrap();
    let store = Store::open_or_create(&folder.join("store")).unwrap();
    Arc::new(KeyedStore::new(Arc::new(store), keys).unwrap())
}

async fn opened(authority: &MadeUp, folder: &Path) -> Opened {
    let root = rcgen::generate_simple_self_signed(["ca.test".to_owned()]).unwrap();
    std::fs::write(folder.join("roots"), root.cert.pem()).unwrap();
    let https = Https::trusting(&[RootSource::File(folder.join("roots"))]).unwrap();
    let key = KeyPair::generate().unwrap().serialize_der();
    let account = Account::builder_with_http(Box::new(authority.clone()))
        .from_parts(
            format!("{AT}/me"),
            PrivatePkcs8KeyDer::from(key.as_slice()),
            format!("{AT}/dir"),
        )
        .await
        .unwrap();
    Opened { account, https }
}

fn wanted() -> Wanted {
    let names = vec!["a.test".to_owned()];
    Wanted {
        challenge: Challenge::Http01,
        directory: format!("{AT}/dir"),
        id: id_of(&names),
        key: KeyKind::P256,
        names,
        profile: None,
        replaces: None,
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn an_order_whose_certificate_is_of_no_use_is_ended() {
    let other = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    block_on(async {
        for certificate in [other.cert.pem(), "none".to_owned()] {
            let authority = MadeUp { order: order("valid"), certificate, ..MadeUp::default() };
            let opened = opened(&authority, folder.path()).await;
            let wanted = wanted();
            let carried = Carried::begun(&wanted, &opened, &ledger, now).await.unwrap();
            assert!(ledger.order(wanted.id).unwrap().is_some());
            let failed = carried.carry_out().await.unwrap_err();
            assert!(failed.ends_order, "{}", failed.text);
            assert!(ledger.order(wanted.id).unwrap().is_none(), "the next one is a new one");
        }
        // Nor one whose certificate is nowhere.
        let mut order = order("valid");
        order["certificate"] = serde_json::Value::Null;
        let authority = MadeUp { order, ..MadeUp::default() };
        let opened = opened(&authority, folder.path()).await;
        let wanted = wanted();
        let carried = Carried::begun(&wanted, &opened, &ledger, now).await.unwrap();
        assert!(carried.carry_out().await.unwrap_err().ends_order);
    });
}

#[test]
fn an_authority_that_keeps_nothing_of_what_is_replaced_is_asked_for_a_plain_order() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    block_on(async {
        let authority = MadeUp { order: order("pending"), ..MadeUp::default() };
        let opened = opened(&authority, folder.path()).await;
        let known_as = KnownAs { authority: "AA".into(), serial: "AQ".into() };
        let wanted = Wanted { replaces: Some(known_as), ..wanted() };
        let mut carried = Carried::begun(&wanted, &opened, &ledger, now).await.unwrap();
        carried.create().await.map(drop).map_err(|failed| failed.text).unwrap();
        assert_eq!(authority.count("/new"), 2);
        let kept = ledger.order(wanted.id).unwrap().unwrap();
        assert_eq!(kept.url.as_deref(), Some("https://ca.test/order"));
    });
}

/// One of another authority is not gone on with, and leaves no record.
#[test]
fn what_a_command_made_for_another_authority_is_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    let calls = folder.path().join("calls");
    let command = ["sh", "-c", "echo $2 $3 >> $1", "sh", calls.to_str().unwrap()];
    block_on(async {
        let authority = MadeUp::default();
        let opened = opened(&authority, folder.path()).await;
        let wanted = wanted();
        let mut carried = Carried::begun(&wanted, &opened, &ledger, now).await.unwrap();
        carried.entry.records.push(Record {
            name: "_acme-challenge.a.test".into(),
            value: "v".into(),
            command: command.map(str::to_owned).to_vec(),
        });
        carried.keep().unwrap();
        let of_another = Wanted { directory: "https://other.test/dir".into(), ..wanted.clone() };
        let carried = Carried::begun(&of_another, &opened, &ledger, now).await.unwrap();
        assert!(carried.entry.records.is_empty());
        let said = std::fs::read_to_string(&calls).unwrap();
        assert_eq!(said, "cleanup _acme-challenge.a.test\n");
    });
}
