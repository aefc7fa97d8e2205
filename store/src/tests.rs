//! Tests of the store as a whole, over real certificates and a real database in a folder.

mod backup;
mod damage;
mod kept;
mod removal;

use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};
use rustls::crypto::CryptoProvider;
use sealane_engine::certificates::{
    AskedName, Certificate, CertificateDigest, CertificateStore, DefaultCertificate, IndexBuilder,
    StoreFailure,
};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use tempfile::TempDir;

use super::*;
use crate::record::Record;

const NOW_S: i64 = 1_800_000_000;

fn provider() -> CryptoProvider {
    lane_provider(ProviderChoice::Auto, &Group::ALL).unwrap().crypto
}

fn certificate_of(algorithm: &'static SignatureAlgorithm, names: &[&str]) -> Arc<Certificate> {
    certificate_until(algorithm, names, 4096)
}

/// A certificate that expired before [`NOW_S`].
fn expired(names: &[&str]) -> Arc<Certificate> {
    certificate_until(&PKCS_ECDSA_P256_SHA256, names, 2026)
}

fn certificate_until(
    algorithm: &'static SignatureAlgorithm,
    names: &[&str],
    year: i32,
) -> Arc<Certificate> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate_for(algorithm).unwrap();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let leaf = params.self_signed(&key).unwrap();
    // Another self-signed certificate stands for an intermediate, the same one in every chain.
    let text =
        leaf.pem() + include_str!("../../testdata/certificates/p384.crt") + &key.serialize_pem();
    let provider = provider();
    let mut builder = IndexBuilder::new(&provider, NOW_S);
    builder.add("test.pem", text.as_bytes());
    let indexed = builder.finish(DefaultCertificate::First);
    assert_eq!(indexed.errors, []);
    Arc::clone(indexed.index.iter().next().unwrap())
}

fn certificate(names: &[&str]) -> Arc<Certificate> {
    certificate_of(&PKCS_ECDSA_P256_SHA256, names)
}

fn keys(text: &str) -> SealingKeys {
    SealingKeys::from_text(text).unwrap()
}

fn create(folder: &TempDir, text: &str) -> KeyedStore {
    let store = Store::open_or_create(&folder.path().join("store")).unwrap();
    KeyedStore::new(Arc::new(store), keys(text)).unwrap()
}

/// The same database with other keys.
fn with_keys(store: &KeyedStore, text: &str) -> Result<KeyedStore, StoreError> {
    KeyedStore::new(Arc::clone(store.store()), keys(text))
}

/// The leaf of what a lane would serve for `name`, its key opened and seen to fit.
fn served(store: &KeyedStore, name: &str) -> Result<Option<Vec<u8>>, StoreFailure> {
    let view = store.view()?;
    let mut name = AskedName::new(name).unwrap();
    let exact = view.named(name.exact())?;
    let found = match name.wildcard() {
        Some(wildcard) if exact.is_empty() => view.named(wildcard)?,
        _ => exact,
    };
    let Some(first) = found.first() else { return Ok(None) };
    let opened = view.open(first.digest)?;
    let certified = opened.decode(name.exact(), &provider()).unwrap();
    Ok(Some(certified.cert[0].to_vec()))
}

fn leaf(certificate: &Certificate) -> Option<Vec<u8>> {
    certificate.chain().next().map(<[u8]>::to_vec)
}

fn digest(store: &KeyedStore, name: &str) -> CertificateDigest {
    store.view().unwrap().named(name).unwrap()[0].digest
}

#[test]
fn what_is_imported_is_served_by_name_and_wildcard() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (exact, wild) = (certificate(&["www.a.test", "b.test"]), certificate(&["*.a.test"]));
    let imported = store.import(&[Arc::clone(&exact), Arc::clone(&wild)], NOW_S).unwrap();
    assert_eq!(imported, Imported { added: 2, ..Imported::default() });
    for (name, expected) in [
        ("www.a.test", leaf(&exact)),
        ("WWW.A.test.", leaf(&exact)),
        ("b.test", leaf(&exact)),
        ("x.a.test", leaf(&wild)),
        ("y.x.a.test", None),
        ("a.test", None),
        ("c.test", None),
    ] {
        assert_eq!(served(&store, name), Ok(expected), "{name}");
        assert_eq!(store.store().covers(name).unwrap(), served(&store, name) != Ok(None));
    }
    let summary = store.store().summary().unwrap();
    assert_eq!((summary.certificates, summary.names), (2, 3));
}

#[test]
fn import_of_what_is_there_writes_nothing() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let [a, b] = [certificate(&["a.test"]), certificate(&["b.test"])];
    store.import(&[Arc::clone(&a)], NOW_S).unwrap();
    let generation = store.store().generation().unwrap();
    let again = store.import(&[Arc::clone(&a)], NOW_S + 1).unwrap();
    assert_eq!(again, Imported { unchanged: 1, ..Imported::default() });
    assert_eq!(store.store().generation().unwrap(), generation, "no commit");
    let both = store.import(&[a, b], NOW_S + 2).unwrap();
    assert_eq!(both, Imported { added: 1, unchanged: 1, ..Imported::default() });
    assert_eq!(store.store().generation().unwrap(), generation + 1);
}

#[test]
fn resealed_certificate_is_not_added() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let a = certificate(&["a.test"]);
    store.import(&[Arc::clone(&a)], NOW_S).unwrap();
    let store = with_keys(&store, &[KEY_2, KEY_1].join("\n")).unwrap();
    let imported = store.import(&[Arc::clone(&a)], NOW_S).unwrap();
    assert_eq!(imported, Imported { unchanged: 1, ..Imported::default() });
    let found = store.store().find("a.test").unwrap();
    assert_eq!(found[0].sealing_key, store.current_key());
}

#[test]
fn removal_of_unknown_names_writes_nothing() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test"])], NOW_S).unwrap();
    let generation = store.store().generation().unwrap();
    let removed = store.store().remove(&["B.test.".into()], NOW_S).unwrap();
    assert_eq!((removed.names, &*removed.unknown), (0, &["b.test".to_owned()][..]));
    assert_eq!(store.store().generation().unwrap(), generation);
    assert!(!store.store().is_erasure_due());
    store.store().remove(&["a.test".into()], NOW_S).unwrap();
    assert!(store.store().is_erasure_due(), "a process may end before it erases");
    store.store().erase_deleted().unwrap();
    assert!(!store.store().is_erasure_due());
}

#[test]
fn chains_come_back_whole_and_intermediates_are_kept_once() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (a, b) = (certificate(&["a.test"]), certificate(&["b.test"]));
    assert_eq!(a.chain().count(), 2);
    store.import(&[Arc::clone(&a), Arc::clone(&b)], NOW_S).unwrap();
    let intermediates = |store: &KeyedStore| {
        store.store().read(|txn| store.store().tables.intermediate_count(txn)).unwrap()
    };
    assert_eq!(intermediates(&store), 1);
    let placed = digest(&store, "a.test");
    let opened = store.view().unwrap().open(placed).unwrap();
    assert!(opened.chain.iter().map(|der| &**der).eq(a.chain()));
    let read = store.store().read_back("A.test.").unwrap();
    assert_eq!((read.generation, read.served.len()), (1, 1));
    assert!(read.served[0].chain.iter().map(Vec::as_slice).eq(a.chain()));
    let list =
        |after, count_max| store.store().read_back_by_expiry(after, count_max, &|_| true).unwrap();
    let all = list(None, 9);
    assert_eq!((all.served.len(), all.next), (2, None));
    let first = list(None, 1);
    assert_eq!(list(first.next, 9).served, all.served[1..]);
    for wanted in ["a.test", "b.test"] {
        let is_wanted = |names: &[String]| names == [wanted];
        let found = store.store().read_back_by_expiry(None, 1, &is_wanted).unwrap().served;
        assert_eq!((found.len(), &*found[0].listed.names), (1, &[wanted.to_owned()][..]));
    }
    store.store().remove(&["a.test".into()], NOW_S).unwrap();
    assert_eq!(intermediates(&store), 1);
    let placed = digest(&store, "b.test");
    let opened = store.view().unwrap().open(placed).unwrap();
    assert!(opened.chain.iter().map(|der| &**der).eq(b.chain()));
    store.store().remove(&["b.test".into()], NOW_S).unwrap();
    assert_eq!(intermediates(&store), 0);
}

#[test]
fn the_later_certificate_is_served_and_the_earlier_one_leaves_with_its_last_name() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (old, new) = (certificate(&["a.test", "b.test"]), certificate(&["a.test"]));
    store.import(&[Arc::clone(&old)], NOW_S).unwrap();
    let gone = store.view().unwrap().gone_since(None).unwrap();
    let old_digest = digest(&store, "a.test");
    let imported = store.import(&[Arc::clone(&new)], NOW_S).unwrap();
    assert_eq!(imported, Imported { replaced: 1, ..Imported::default() });
    assert_eq!(served(&store, "a.test"), Ok(leaf(&new)));
    assert_eq!(served(&store, "b.test"), Ok(leaf(&old)));
    assert_eq!(store.view().unwrap().gone_since(Some(gone.last)).unwrap().digests, Some(vec![]));
    let again = store.import(&[Arc::clone(&new)], NOW_S + 1).unwrap();
    assert_eq!(again, Imported { unchanged: 1, ..Imported::default() });

    store.import(&[certificate(&["b.test"])], NOW_S).unwrap();
    let gone = store.view().unwrap().gone_since(Some(gone.last)).unwrap();
    assert_eq!(gone.digests, Some(vec![old_digest]));
    assert_eq!(store.store().summary().unwrap().certificates, 2);
    // A certificate that was pushed out comes back by being imported again.
    store.import(&[Arc::clone(&old)], NOW_S).unwrap();
    assert_eq!(served(&store, "a.test"), Ok(leaf(&old)));
}

#[test]
fn expired_import_does_not_replace_valid_one() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (valid, expired) = (certificate(&["a.test"]), expired(&["a.test", "b.test"]));
    store.import(&[Arc::clone(&valid)], NOW_S).unwrap();
    let imported = store.import(&[Arc::clone(&expired)], NOW_S).unwrap();
    assert_eq!((imported.added, imported.replaced), (1, 0), "for its other name");
    assert_eq!(served(&store, "a.test").unwrap(), leaf(&valid));
    assert_eq!(served(&store, "b.test").unwrap(), leaf(&expired));
    let again = self::expired(&["a.test"]);
    let imported = store.import(&[again], NOW_S).unwrap();
    assert_eq!((imported.added, imported.replaced, imported.unchanged), (0, 0, 1));
    assert_eq!(store.store().summary().unwrap().certificates, 2);
    let newer = certificate(&["b.test"]);
    store.import(&[Arc::clone(&newer)], NOW_S).unwrap();
    assert_eq!(served(&store, "b.test").unwrap(), leaf(&newer));
}

#[test]
fn kinds_of_key_stand_side_by_side_cheapest_first() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (ed25519, p256) = (certificate_of(&PKCS_ED25519, &["a.test"]), certificate(&["a.test"]));
    store.import(&[Arc::clone(&ed25519), Arc::clone(&p256)], NOW_S).unwrap();
    let found = store.store().find("a.test").unwrap();
    let kinds: Vec<_> = found.iter().map(|each| each.key_type).collect();
    assert_eq!(kinds, [p256.key_type(), ed25519.key_type()]);
}

#[test]
fn what_is_removed_is_gone() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test", "b.test"])], NOW_S).unwrap();
    let old = digest(&store, "a.test");
    let removed = store.store().remove(&["A.test.".into(), "c.test".into()], NOW_S).unwrap();
    let expected = Removed { certificates: 0, names: 1, unknown: vec!["c.test".into()] };
    assert_eq!(removed, expected);
    assert_eq!(served(&store, "a.test"), Ok(None));
    assert_eq!(store.store().remove(&["b.test".into()], NOW_S).unwrap().certificates, 1);
    assert_eq!(store.view().unwrap().open(old).unwrap_err(), StoreFailure);
    let summary = store.store().summary().unwrap();
    assert_eq!((summary.certificates, summary.names, summary.sealed_with), (0, 0, vec![]));
    assert_eq!(store.store().by_expiry(None, 10).unwrap(), []);
}

#[test]
fn a_store_without_the_key_to_all_of_it_does_not_open() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    // An empty store has no seal yet.
    assert!(with_keys(&store, KEY_2).is_ok());
    store.import(&[certificate(&["a.test"])], NOW_S).unwrap();
    let error = with_keys(&store, KEY_2).unwrap_err();
    assert!(matches!(error, StoreError::KeyMissing { count: 1, .. }), "{error}");
    assert!(!error.to_string().contains(KEY_1) && !format!("{store:?}").contains(KEY_1));
    assert!(with_keys(&store, &format!("{KEY_2}\n{KEY_1}")).is_ok());
}

#[test]
fn resealing_goes_on_where_it_was_interrupted_and_serves_meanwhile() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let names = ["a.test", "b.test", "c.test", "d.test", "e.test"];
    let all: Vec<_> = names.iter().map(|name| certificate(&[name])).collect();
    store.import(&all, NOW_S).unwrap();
    let both = with_keys(&store, &format!("{KEY_2}\n{KEY_1}")).unwrap();
    let first = both.reseal(None, 2).unwrap();
    assert_eq!((first.resealed, first.seen), (2, 2));
    assert!(with_keys(&store, KEY_2).is_err() && with_keys(&store, KEY_1).is_err());
    // Interrupted, and begun again.
    let (mut after, mut resealed) = (None, 0);
    loop {
        let done = both.reseal(after, 2).unwrap();
        resealed += done.resealed;
        for (name, each) in names.iter().zip(&all) {
            assert_eq!(served(&both, name), Ok(leaf(each)));
        }
        after = done.last;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(resealed, 3);
    let new_only = with_keys(&store, KEY_2).unwrap();
    assert_eq!(served(&new_only, "a.test"), Ok(leaf(&all[0])));
    assert_eq!(store.store().summary().unwrap().sealed_with, [(keys(KEY_2).current(), 5)]);
}

/// Writes over the record of `name`.
fn tamper(store: &KeyedStore, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let digest = digest(store, name);
    let tables = &store.store().tables;
    let mut bytes = store
        .store()
        .read(|txn| Ok(tables.certificates.get(txn, &digest.0)?.unwrap().to_vec()))
        .unwrap();
    change(&mut bytes);
    store.store().write(|txn| Ok(tables.certificates.put(txn, &digest.0, &bytes)?)).unwrap();
}

fn problems(store: &KeyedStore) -> Vec<String> {
    let mut problems = Vec::new();
    store.verify(None, 100, &provider(), |problem| problems.push(problem)).unwrap();
    problems
}

#[test]
fn swapped_records_and_swapped_keys_are_refused() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test"]), certificate(&["b.test"])], NOW_S).unwrap();
    assert_eq!(problems(&store), Vec::<String>::new());
    let mut of_b = Vec::new();
    tamper(&store, "b.test", |bytes| of_b.clone_from(bytes));
    let original = {
        let mut of_a = Vec::new();
        // The whole record of b in the place of a's.
        tamper(&store, "a.test", |bytes| of_a = std::mem::replace(bytes, of_b.clone()));
        of_a
    };
    let view = store.view().unwrap();
    let placed = view.named("a.test").unwrap()[0].digest;
    assert_eq!(view.open(placed).unwrap_err(), StoreFailure);
    drop(view);
    // Nor is shown what no lane would serve.
    assert!(matches!(store.store().read_back("a.test"), Err(StoreError::Damaged { .. })));
    assert_eq!(problems(&store).len(), 1);
    // The sealed key of b beside the chain of a.
    let a_with_key_of_b = {
        let (a, b) = (Record::parse(&original).unwrap(), Record::parse(&of_b).unwrap());
        Record { nonce: b.nonce, sealed_key: b.sealed_key, ..a }.to_bytes().unwrap()
    };
    store
        .store()
        .write(|txn| Ok(store.store().tables.certificates.put(txn, &placed.0, &a_with_key_of_b)?))
        .unwrap();
    assert_eq!(store.view().unwrap().open(placed).unwrap_err(), StoreFailure);
    assert!(problems(&store)[0].contains("seal is broken"), "{:?}", problems(&store));
    // The leaf of b beside the sealed key of a.
    let a_with_leaf_of_b = {
        let (a, b) = (Record::parse(&original).unwrap(), Record::parse(&of_b).unwrap());
        Record { leaf: b.leaf, ..a }.to_bytes().unwrap()
    };
    store
        .store()
        .write(|txn| {
            Ok(store.store().tables.certificates.put(txn, &placed.0, &a_with_leaf_of_b)?)
        })
        .unwrap();
    assert_eq!(store.view().unwrap().open(placed).unwrap_err(), StoreFailure);
    assert!(problems(&store)[0].contains("a chain is not the one"), "{:?}", problems(&store));
}

#[test]
fn a_damaged_record_is_an_error_and_importing_again_heals_it() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (a, b) = (certificate(&["a.test"]), certificate(&["b.test"]));
    store.import(&[Arc::clone(&a), Arc::clone(&b)], NOW_S).unwrap();
    let len = record_bytes(&store, "a.test").len();
    for at in [0, 1, 30, 60, 90, len / 2, len - 1] {
        tamper(&store, "a.test", |bytes| bytes[at] ^= 1);
        let result = served(&store, "a.test");
        assert!(result.is_err() || result == Ok(leaf(&a)), "byte {at}");
        tamper(&store, "a.test", |bytes| bytes[at] ^= 1);
    }
    let sealed = Record::parse(&record_bytes(&store, "a.test")).unwrap().sealed_key.to_vec();
    let whole = record_bytes(&store, "a.test");
    let at = whole.windows(sealed.len()).position(|part| part == sealed).unwrap();
    tamper(&store, "a.test", |bytes| bytes[at] ^= 1);
    assert_eq!(served(&store, "a.test"), Err(StoreFailure));
    assert_eq!(served(&store, "b.test"), Ok(leaf(&b)), "the others go on");
    assert_eq!(store.import(&[Arc::clone(&a)], NOW_S).unwrap().unchanged, 0);
    assert_eq!(served(&store, "a.test"), Ok(leaf(&a)));
    // So that it does not even look like a record.
    tamper(&store, "a.test", |bytes| bytes[0] = 0);
    assert!(problems(&store)[0].contains("a.test"), "{:?}", problems(&store));
    let summary = store.store().summary().unwrap();
    store.import(&[Arc::clone(&a)], NOW_S).unwrap();
    assert_eq!(served(&store, "a.test"), Ok(leaf(&a)));
    assert_eq!(problems(&store), Vec::<String>::new());
    assert_eq!(store.store().summary().unwrap(), summary);
    assert_eq!(store.store().by_expiry(None, 10).unwrap().len(), 2);
}

fn record_bytes(store: &KeyedStore, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    tamper(store, name, |record| bytes.clone_from(record));
    bytes
}

#[test]
fn importing_again_heals_every_part_of_a_record_and_what_counts_it() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (a, b) = (certificate(&["a.test", "x.a.test"]), certificate(&["b.test"]));
    store.import(&[Arc::clone(&a), Arc::clone(&b)], NOW_S).unwrap();
    let whole = record_bytes(&store, "a.test");
    let (summary, listed) = (store.store().summary(), store.store().by_expiry(None, 10));
    let (summary, listed) = (summary.unwrap(), listed.unwrap());
    let imported_s = 1 + 3 + 2 * 8;
    let label = whole.windows(8).position(|part| part == b"test.pem").unwrap();
    // All but the hashes of intermediates, in whose damage those stay counted that nothing is in.
    for at in (0..whole.len() - 32).step_by(5) {
        if (imported_s..imported_s + 8).contains(&at) || (label..label + 8).contains(&at) {
            continue;
        }
        tamper(&store, "a.test", |bytes| bytes[at] ^= 1);
        store.import(&[Arc::clone(&a)], NOW_S).unwrap();
        assert_eq!(served(&store, "a.test"), Ok(leaf(&a)), "byte {at}");
        assert_eq!(store.store().summary().unwrap(), summary, "byte {at}");
        assert_eq!(store.store().by_expiry(None, 10).unwrap(), listed, "byte {at}");
    }
    // A damaged intermediate, which both chains have.
    let tables = &store.store().tables;
    let hash = Record::parse(&whole).unwrap().intermediates[0];
    tables.damage_intermediate(store.store(), hash);
    assert_eq!(served(&store, "b.test"), Err(StoreFailure));
    assert_eq!(store.import(&[Arc::clone(&b)], NOW_S).unwrap().unchanged, 0);
    assert_eq!(served(&store, "b.test"), Ok(leaf(&b)));
    assert_eq!(served(&store, "a.test"), Ok(leaf(&a)));
}

#[test]
fn what_is_damaged_stays_until_no_name_leads_to_it() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test", "b.test"])], NOW_S).unwrap();
    tamper(&store, "a.test", |bytes| bytes[0] = 0);
    store.store().remove(&["a.test".into()], NOW_S).unwrap();
    assert!(problems(&store)[0].contains("b.test"), "{:?}", problems(&store));
    assert_eq!(store.store().remove(&["b.test".into()], NOW_S).unwrap().certificates, 1);
    assert_eq!(problems(&store), Vec::<String>::new());
    assert_eq!(store.store().summary().unwrap().sealed_with, []);
}

#[test]
fn opening_leaves_other_databases_alone() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let store = create(&folder, KEY_1);
    assert!(matches!(Store::open(&path), Err(StoreError::OpenAlready { .. })));
    drop(store);
    // An LMDB database of somebody else's, as far as can be told.
    let other = folder.path().join("other");
    std::fs::create_dir(&other).unwrap();
    drop(tables::Tables::open(&other).unwrap());
    let before = std::fs::read(other.join("data.mdb")).unwrap();
    assert!(matches!(Store::open(&other), Err(StoreError::Absent { .. })));
    assert_eq!(std::fs::read(other.join("data.mdb")).unwrap(), before);
}

#[test]
fn names_that_no_certificate_can_have_are_unknown() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    for name in ["", ".", "..", ".a.test", &"x".repeat(300)] {
        assert!(!store.store().covers(name).unwrap(), "{name:?}");
        assert_eq!(
            store.store().remove(&[name.into()], NOW_S).unwrap().unknown.len(),
            1,
            "{name:?}"
        );
    }
    assert_eq!(served(&store, "."), Ok(None));
}

#[test]
fn the_list_of_what_left_is_bounded() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let two = [certificate(&["a.test"]), certificate(&["a.test"])];
    for _ in 0..=GONE_REMEMBERED_MAX / 2 + 1 {
        store.import(&two, NOW_S).unwrap();
    }
    let view = store.view().unwrap();
    let last = view.gone_since(None).unwrap().last;
    assert!(last > GONE_REMEMBERED_MAX);
    let known = view.gone_since(Some(last - GONE_REMEMBERED_MAX)).unwrap().digests.unwrap();
    assert_eq!(known.len() as u64, GONE_REMEMBERED_MAX);
    assert_eq!(view.gone_since(Some(last - GONE_REMEMBERED_MAX - 1)).unwrap().digests, None);
    assert_eq!(view.gone_since(Some(last)).unwrap().digests, Some(vec![]));
}

#[test]
fn lists_go_on_where_they_stopped_soonest_first() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let names = ["a.test", "b.test", "c.test"];
    let all: Vec<_> = names.iter().map(|name| certificate(&[name])).collect();
    store.import(&all, NOW_S).unwrap();
    let mut listed = store.store().by_expiry(None, 2).unwrap();
    listed.extend(store.store().by_expiry(listed.last(), 2).unwrap());
    assert!(listed.is_sorted_by_key(|each| each.not_after_s));
    let mut listed: Vec<_> = listed.into_iter().flat_map(|each| each.names).collect();
    listed.sort();
    assert_eq!(listed, names);
}

#[test]
fn what_is_no_store_is_said_so() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    assert!(matches!(Store::open(&path), Err(StoreError::Absent { .. })));
    assert!(!path.exists(), "to look makes nothing");
    assert!(matches!(
        Store::open_or_create(Path::new("/proc/none")),
        Err(StoreError::System { .. })
    ));
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("data.mdb"), [7; 8192]).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[test]
fn sealing_keys_are_read_as_they_are_written_and_mistakes_quote_nothing() {
    let (generated, text) = SealingKeys::generate().unwrap();
    assert_eq!(keys(&text).current(), generated.current());
    let hex = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
    assert_eq!(keys(&format!("# made by hand\n\n  {hex}\n")).current(), keys(hex).current());
    assert_eq!(keys(&format!("{hex}\n{KEY_1}")).current(), keys(hex).current());
    let short = "c2hvcnQ=";
    for (text, expected) in [
        ("", SealingKeyError::None),
        ("# none\n", SealingKeyError::None),
        (short, SealingKeyError::NotAKey { line: 1 }),
        (&format!("{hex}\n{hex}"), SealingKeyError::Twice { line: 2 }),
        (&"x".repeat(100_000), SealingKeyError::TooLong),
    ] {
        let error = SealingKeys::from_text(text).unwrap_err();
        assert_eq!(error, expected);
        assert!(!error.to_string().contains(short));
    }
    assert!(!format!("{generated:?}").contains(text.trim()));
}

const KEY_1: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
const KEY_2: &str = "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=";
