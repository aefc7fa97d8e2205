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
use crate::certificate::KnownAs;
use crate::clock::now;
use crate::http::Https;
use crate::ledger::{Record, id_of};
use crate::settings::{Challenge, KeyKind, RootSource};

const AT: &str = "https://ca.test";

/// An authority whose orders are all in one state, and which remembers the paths that it was asked
/// for.
#[derive(Clone, Default)]
struct FakeAuthority {
    authorization: serde_json::Value,
    asked: Arc<Mutex<Vec<String>>>,
    order: serde_json::Value,
    certificate: String,
}

impl FakeAuthority {
    fn answer(&self, path: &str) -> String {
        let at = |name: &str| format!("{AT}/{name}");
        match path {
            "/dir" => json!({
                "newNonce": at("nonce"), "newAccount": at("account"), "newOrder": at("new"),
                "renewalInfo": at("ari"),
            })
            .to_string(),
            "/certificate" => self.certificate.clone(),
            "/authorization" => self.authorization.to_string(),
            "/challenge" => challenge("t", "processing").to_string(),
            _ => self.order.to_string(),
        }
    }

    fn count(&self, path: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|asked| *asked == path).count()
    }
}

impl HttpClient for FakeAuthority {
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

fn challenge(token: &str, status: &str) -> serde_json::Value {
    json!({
        "type": "dns-01", "url": format!("{AT}/challenge"), "token": token, "status": status,
    })
}

/// An authority that asks whose `name` is.
fn asking(name: &str, token: &str) -> FakeAuthority {
    let authorization = json!({
        "identifier": { "type": "dns", "value": name }, "status": "pending",
        "challenges": [challenge(token, "pending")],
    });
    let mut order = order("pending");
    order["authorizations"] = json!([format!("{AT}/authorization")]);
    FakeAuthority { authorization, order, ..FakeAuthority::default() }
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

async fn opened(authority: &FakeAuthority, folder: &Path) -> Opened {
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
        held_put_s: i64::MIN,
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
            let authority =
                FakeAuthority { order: order("valid"), certificate, ..FakeAuthority::default() };
            let opened = opened(&authority, folder.path()).await;
            let wanted = wanted();
            let carried = Carried::begun(&wanted, &opened, &ledger, None, now).await.unwrap();
            assert!(ledger.order(wanted.id).unwrap().is_some());
            let failed = carried.carry_out().await.unwrap_err();
            assert!(failed.ends_order, "{}", failed.text);
            assert!(ledger.order(wanted.id).unwrap().is_none(), "the next one is a new one");
        }
        // Nor one whose certificate is nowhere.
        let mut order = order("valid");
        order["certificate"] = serde_json::Value::Null;
        let authority = FakeAuthority { order, ..FakeAuthority::default() };
        let opened = opened(&authority, folder.path()).await;
        let wanted = wanted();
        let carried = Carried::begun(&wanted, &opened, &ledger, None, now).await.unwrap();
        assert!(carried.carry_out().await.unwrap_err().ends_order);
    });
}

/// An authority that issues for more names than were ordered takes none from other certificates.
#[test]
fn refuses_certificate_with_names_not_ordered() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let ledger = Ledger::new(Arc::clone(&store));
    let wanted = wanted();
    block_on(async {
        for (names, is_taken) in [
            (&["a.test", "b.test"][..], false),
            (&["*.bank.test", "a.test"], false),
            (&["a.test", "*.a.test"], false),
            (&["A.test"], true),
        ] {
            let opened_by = opened(&FakeAuthority::default(), folder.path()).await;
            let carried = Carried::begun(&wanted, &opened_by, &ledger, None, now).await.unwrap();
            let key = PrivatePkcs8KeyDer::from(carried.entry.key.0.as_slice());
            let key = KeyPair::try_from(&key).unwrap();
            let all: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let issued = rcgen::CertificateParams::new(all).unwrap().self_signed(&key).unwrap();
            let certificate = issued.pem();
            let authority =
                FakeAuthority { order: order("valid"), certificate, ..FakeAuthority::default() };
            let opened = opened(&authority, folder.path()).await;
            let mut carried = Carried::begun(&wanted, &opened, &ledger, None, now).await.unwrap();
            carried.entry.url = Some(format!("{AT}/order"));
            let came = carried.carry_out().await;
            assert_eq!(came.is_ok(), is_taken, "{names:?}");
            if let Err(failed) = came {
                assert!(failed.ends_order, "{}", failed.text);
                assert!(failed.text.contains("which was not ordered"), "{}", failed.text);
            }
            assert_eq!(store.store().covers("a.test").unwrap(), is_taken);
            assert!(!store.store().covers("b.test").unwrap(), "nor any other name");
        }
    });
}

#[test]
fn an_authority_that_keeps_nothing_of_what_is_replaced_is_asked_for_a_plain_order() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    block_on(async {
        let authority = FakeAuthority { order: order("pending"), ..FakeAuthority::default() };
        let opened = opened(&authority, folder.path()).await;
        let known_as = KnownAs { authority: "AA".into(), serial: "AQ".into() };
        let wanted = Wanted { replaces: Some(known_as), ..wanted() };
        let mut carried = Carried::begun(&wanted, &opened, &ledger, None, now).await.unwrap();
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
        let authority = FakeAuthority::default();
        let opened = opened(&authority, folder.path()).await;
        let wanted = wanted();
        let mut carried = Carried::begun(&wanted, &opened, &ledger, None, now).await.unwrap();
        carried.entry.records.push(Record {
            name: "_acme-challenge.a.test".into(),
            value: "v".into(),
            command: command.map(str::to_owned).to_vec(),
            is_made: true,
        });
        carried.keep().unwrap();
        let of_another = Wanted { directory: "https://other.test/dir".into(), ..wanted.clone() };
        let carried = Carried::begun(&of_another, &opened, &ledger, None, now).await.unwrap();
        assert!(carried.entry.records.is_empty());
        let said = std::fs::read_to_string(&calls).unwrap();
        assert_eq!(said, "cleanup _acme-challenge.a.test\n");
    });
}

#[test]
fn what_was_not_ordered_and_what_is_no_token_are_not_answered() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    let long = "t".repeat(129);
    block_on(async {
        for (name, token, words) in [
            ("other.test", "t", "wants to know whose other.test is"),
            ("\u{1b}a.test", "t", "wants to know whose \\u{1b}a.test is"),
            ("a.test", "../t", "the CA's token ../t is no token"),
            ("a.test", "", "the CA's token  is no token"),
            ("a.test", long.as_str(), "is no token"),
        ] {
            let authority = asking(name, token);
            let opened = opened(&authority, folder.path()).await;
            let challenge = Challenge::Dns01(vec!["true".into()]);
            let wanted = Wanted { challenge, ..wanted() };
            let mut carried = Carried::begun(&wanted, &opened, &ledger, None, now).await.unwrap();
            let mut order = carried.create().await.map_err(|failed| failed.text).unwrap();
            let failed = authorization::show_all(&mut carried, &mut order).await.unwrap_err();
            assert!(failed.ends_order && failed.text.contains(words), "{}", failed.text);
            assert_eq!(authority.count("/challenge"), 0);
        }
        let mut authority = asking("a.test", "t");
        authority.order["authorizations"] = json!([AT, AT]);
        let opened = opened(&authority, folder.path()).await;
        let wanted = wanted();
        let mut carried = Carried::begun(&wanted, &opened, &ledger, None, now).await.unwrap();
        let mut order = carried.create().await.map_err(|failed| failed.text).unwrap();
        let failed = authorization::show_all(&mut carried, &mut order).await.unwrap_err();
        assert!(failed.text.contains("wants 2 authorizations for 1 names"), "{}", failed.text);
    });
}

#[test]
fn a_record_that_was_made_is_not_made_again_by_an_order_that_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = ledger(folder.path());
    let calls = folder.path().join("calls");
    let command = ["sh", "-c", "echo $2 $3 >> $1", "sh", calls.to_str().unwrap()];
    block_on(async {
        let authority = asking("a.test", "t");
        let opened = opened(&authority, folder.path()).await;
        let challenge = Challenge::Dns01(command.map(str::to_owned).to_vec());
        let wanted = Wanted { challenge, ..wanted() };
        for _ in 0..2 {
            let mut carried = Carried::begun(&wanted, &opened, &ledger, None, now).await.unwrap();
            let order = carried.known().await.map_err(|failed| failed.text).unwrap();
            let mut order = match order {
                Some(order) => order,
                None => carried.create().await.map_err(|failed| failed.text).unwrap(),
            };
            let shown = authorization::show_all(&mut carried, &mut order).await;
            shown.map_err(|failed| failed.text).unwrap();
        }
        assert_eq!(authority.count("/challenge"), 2);
        let said = std::fs::read_to_string(&calls).unwrap();
        assert_eq!(said, "present _acme-challenge.a.test\n");
    });
}
