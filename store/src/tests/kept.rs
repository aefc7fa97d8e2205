//! What is kept in a store beside certificates.

use super::*;

fn entries(store: &KeyedStore, prefix: &str) -> Vec<(String, Vec<u8>)> {
    let found = store.kept_under(prefix, None, usize::MAX).unwrap();
    found.into_iter().map(|(name, value)| (name, value.to_vec())).collect()
}

#[test]
fn entries_come_and_go_with_the_certificates_of_one_transaction() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let first = [("acme/order/1", Some(&b"one"[..])), ("acme/order/2", Some(b"two"))];
    store.keep(&[], NOW_S, &first).unwrap();
    assert_eq!(store.kept("acme/order/1").unwrap().unwrap().as_slice(), b"one");
    assert_eq!(store.kept("acme/order/3").unwrap(), None);
    assert!(with_keys(&store, KEY_2).is_err(), "a sealing key that only an entry needs");

    let a = certificate(&["a.test"]);
    let then = [("acme/order/1", None), ("acme/order/2", Some(&b"2"[..])), ("absent", None)];
    let imported = store.keep(&[Arc::clone(&a)], NOW_S, &then).unwrap();
    assert_eq!((imported.added, served(&store, "a.test")), (1, Ok(leaf(&a))));
    assert_eq!(entries(&store, ""), [("acme/order/2".into(), b"2".to_vec())]);

    // Nothing of it is done if not all can be.
    let long = vec![0; KEPT_BYTES_MAX + 1];
    let name = "n".repeat(KEPT_NAME_BYTES_MAX + 1);
    for wrong in [("acme/account", Some(&long[..])), (name.as_str(), Some(b"")), ("", None)] {
        let b = certificate(&["b.test"]);
        let changes = [("acme/order/2", None), wrong];
        let error = store.keep(&[b], NOW_S, &changes).unwrap_err();
        assert!(matches!(error, StoreError::KeptTooLong { .. }), "{error}");
    }
    store.keep(&[], NOW_S, &[(&name[1..], Some(&long[1..]))]).unwrap();
    assert_eq!((entries(&store, "").len(), served(&store, "b.test")), (2, Ok(None)));
    let summary = store.store().summary().unwrap();
    assert_eq!((summary.certificates, summary.names), (1, 1), "an entry is no certificate");
    assert_eq!(summary.sealed_with, [(keys(KEY_1).current(), 3)]);
    let path = store.store().path().to_owned();
    drop(store);
    examine(&path, || {}).unwrap();
}

#[test]
fn entries_are_told_in_order_page_by_page() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let names = ["a/1", "a/2", "a/3", "b/1"];
    let changes = names.map(|name| (name, Some(name.as_bytes())));
    store.keep(&[], NOW_S, &changes).unwrap();
    let names = |prefix: &str, after: Option<&str>, count_max: usize| -> Vec<String> {
        let found = store.kept_under(prefix, after, count_max).unwrap();
        found.into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(names("a/", None, 2), ["a/1", "a/2"]);
    assert_eq!(names("a/", Some("a/2"), 2), ["a/3"]);
    assert_eq!(names("a/", Some("a/3"), 2), <[&str; 0]>::default());
    assert_eq!(names("", None, 9).len(), 4);
}

#[test]
fn an_entry_opens_under_its_name_in_its_store_and_as_it_was_written() {
    let [folder, other] = [(); 2].map(|()| TempDir::new().unwrap());
    let (store, other) = (create(&folder, KEY_1), create(&other, KEY_1));
    store.keep(&[], NOW_S, &[("a", Some(b"secret"))]).unwrap();
    let tables = |store: &KeyedStore| Arc::clone(store.store());
    let sealed = |store: &KeyedStore| {
        let store = tables(store);
        store.read(|txn| Ok(store.tables.kept_entry(txn, "a")?.unwrap().to_vec())).unwrap()
    };
    let bytes = sealed(&store);
    assert!(!bytes.windows(6).any(|part| part == b"secret"));
    let put = |into: &KeyedStore, name: &str, bytes: &[u8]| {
        let store = tables(into);
        store.write(|txn| store.tables.put_kept(txn, name, Some(bytes))).unwrap();
        into.kept(name).map(|found| found.map(|value| value.to_vec()))
    };
    assert_eq!(put(&store, "a", &bytes).unwrap(), Some(b"secret".to_vec()));
    for (into, name, bytes) in [
        (&store, "b", bytes.clone()),
        (&other, "a", bytes.clone()),
        (&store, "a", bytes[..bytes.len() - 1].to_vec()),
        (&store, "a", bytes[..20].to_vec()),
        (&store, "a", bytes.iter().map(|byte| byte ^ 1).collect()),
    ] {
        let error = put(into, name, &bytes).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}

#[test]
fn entries_go_over_to_a_new_sealing_key_and_into_a_copy_and_back() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test"])], NOW_S).unwrap();
    store.keep(&[], NOW_S, &[("a", Some(b"1")), ("b", Some(b"2"))]).unwrap();
    let both = with_keys(&store, &format!("{KEY_2}\n{KEY_1}")).unwrap();
    assert_eq!(both.reseal(None, 1).unwrap().resealed, 3);
    assert_eq!(both.reseal(None, 1).unwrap().resealed, 0);
    drop(store);
    let new = with_keys(&both, KEY_2).unwrap();
    assert_eq!(entries(&new, "").len(), 2);

    let copy = backup::copy(&new, &folder);
    new.keep(&[], NOW_S, &[("a", None), ("b", Some(b"3")), ("c", Some(b"4"))]).unwrap();
    assert!(new.store().replace(&copy, || Ok::<_, StoreError>(())).unwrap());
    let expected = [("a", b"1"), ("b", b"2")].map(|(name, value)| (name.into(), value.to_vec()));
    assert_eq!(entries(&new, ""), expected);
    assert_eq!(new.store().summary().unwrap().sealed_with, [(keys(KEY_2).current(), 3)]);
}

#[test]
fn a_challenge_is_answered_with_the_certificate_that_is_kept_for_its_name() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let pem = made.cert.pem() + &made.signing_key.serialize_pem();
    let name = format!("{TLS_ALPN_01}a.test");
    store.keep(&[], NOW_S, &[(&name, Some(pem.as_bytes()))]).unwrap();
    let view = store.view().unwrap();
    let opened = view.challenge("a.test").unwrap().unwrap();
    let certified = opened.decode("a.test", &provider()).unwrap();
    assert_eq!(certified.cert[0], *made.cert.der());
    for absent in ["b.test", "", &"n".repeat(600)] {
        assert!(view.challenge(absent).unwrap().is_none(), "{absent}");
    }
    drop(view);
    assert_eq!(served(&store, "a.test"), Ok(None), "it is served to nobody else");
    store.keep(&[], NOW_S, &[(&name, Some(b"no PEM"))]).unwrap();
    assert!(store.view().unwrap().challenge("a.test").is_err());
}
