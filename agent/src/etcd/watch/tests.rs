//! What a watch makes of what comes, byte for byte.

use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use super::*;
use crate::etcd::Etcd;
use crate::etcd::fake::FakeEtcd;
use crate::settings::{EtcdSettings, RootSource};

#[test]
fn a_message_says_how_far_it_goes_whatever_the_store_is_at() {
    watched(async |told, mut watch| {
        let seen = async |watch: &mut Watch| match watch.next().await.unwrap() {
            Seen::Changes { events, revision } => (events.len(), revision),
            Seen::Compacted => panic!("nothing was compacted"),
        };
        told.send(line(&json!({ "created": true, "header": at(90) }))).await.unwrap();
        assert_eq!(seen(&mut watch).await, (0, 0), "nothing has come yet");
        // What comes late has the header of a store that is far ahead.
        let late = json!({ "header": at(90), "events": [put("a", 6), put("b", 7)] });
        told.send(line(&late)).await.unwrap();
        assert_eq!(seen(&mut watch).await, (2, 7));
        // Of a message in parts, the last revision may go on in the next one.
        let part = json!({ "header": at(90), "fragment": true, "events": [put("a", 9)] });
        told.send(line(&part)).await.unwrap();
        assert_eq!(seen(&mut watch).await, (1, 8));
        told.send(line(&json!({ "header": at(90), "events": [put("b", 9)] }))).await.unwrap();
        assert_eq!(seen(&mut watch).await, (1, 9));
        // Word that there was nothing else.
        told.send(line(&json!({ "header": at(91) }))).await.unwrap();
        assert_eq!(seen(&mut watch).await, (0, 91));
        told.send(line(&json!({ "header": at(95), "compact_revision": "92" }))).await.unwrap();
        assert_eq!(watch.next().await.unwrap(), Seen::Compacted);
    });
}

#[test]
fn a_message_comes_in_pieces_and_several_at_once() {
    watched(async |told, mut watch| {
        let text = line(&json!({ "header": at(8), "events": [put("a", 7)] }))
            + "\n"
            + &line(&json!({ "header": at(8), "events": [put("b", 8)] }));
        let (first, rest) = text.split_at(40);
        let (second, third) = rest.split_at(rest.len() - 10);
        let mut keys = Vec::new();
        for piece in [first, second, third] {
            told.send(piece.to_owned()).await.unwrap();
            // Whoever does not wait any longer loses nothing.
            let wait = Duration::from_millis(50);
            while let Ok(seen) = tokio::time::timeout(wait, watch.next()).await {
                let Seen::Changes { events, .. } = seen.unwrap() else { panic!() };
                keys.extend(events.into_iter().map(|(key, _)| key));
            }
        }
        assert_eq!(keys, ["a", "b"]);
    });
}

/// The replica asks it for a moment at a time.
#[test]
fn a_watch_that_is_silent_is_given_up_however_often_it_is_asked() {
    watched(async |told, mut watch| {
        watch.fall_silent(SILENCE_MAX - Duration::from_millis(200));
        let wait = Duration::from_millis(100);
        let mut given_up = None;
        for _ in 0..50 {
            given_up = given_up.or(tokio::time::timeout(wait, watch.next()).await.ok());
        }
        let error = given_up.expect("its silence is noticed").unwrap_err();
        assert!(error.is_of_endpoint(), "another one is asked: {error}");
        drop(told);
    });
}

/// Otherwise one message is as long as all that has come while this machine was away.
#[test]
fn messages_are_asked_for_in_parts() {
    let asked = watched(async |_, _| {});
    assert_eq!(asked["create_request"]["fragment"], true);
    assert_eq!(asked["create_request"]["start_revision"], "5");
}

/// Runs a test on a watch and what it is told, and returns what was asked for.
fn watched(test: impl AsyncFnOnce(mpsc::Sender<String>, Watch)) -> serde_json::Value {
    let folder = tempfile::tempdir().unwrap();
    let root = rcgen::generate_simple_self_signed(["ca.test".to_owned()]).unwrap();
    std::fs::write(folder.path().join("roots"), root.cert.pem()).unwrap();
    let run = async {
        let fake = FakeEtcd::start().await;
        let settings = EtcdSettings {
            endpoints: vec![fake.endpoint.clone()],
            identity: None,
            login: None,
            roots: vec![RootSource::File(folder.path().join("roots"))],
        };
        let watch =
            Etcd::new(&settings).unwrap().watch(("/sealane/", "/sealane0"), 5).await.unwrap();
        test(fake.watch().unwrap(), watch).await;
        fake.asked("watch").pop().unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(LocalSet::new().run_until(run))
}

fn line(result: &serde_json::Value) -> String {
    json!({ "result": result }).to_string() + "\n"
}

fn at(revision: i64) -> serde_json::Value {
    json!({ "revision": revision.to_string() })
}

fn put(key: &str, revision: i64) -> serde_json::Value {
    json!({ "kv": { "key": BASE64_STANDARD.encode(key), "mod_revision": revision.to_string() } })
}
