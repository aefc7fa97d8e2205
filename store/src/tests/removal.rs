//! What other machines have, and what was removed: in any order, with one outcome.

use proptest::prelude::*;

use super::*;

/// What each name is served by, in the end.
fn outcome(store: &KeyedStore) -> Vec<Result<Option<Vec<u8>>, StoreFailure>> {
    NAMES.iter().map(|name| served(store, name)).collect()
}

fn digest_of(one: &Certificate) -> CertificateDigest {
    chain_digest(one.chain())
}

/// Something that happens on one machine and comes to the others.
#[derive(Clone, Debug)]
enum Event {
    /// A certificate for some of the names, with when it was put.
    Put(Vec<usize>, i64),
    Removed(usize, i64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let names = prop::collection::btree_set(0..NAMES.len(), 1..=NAMES.len());
    let put =
        (names, 0_i64..6).prop_map(|(names, at_s)| Event::Put(names.into_iter().collect(), at_s));
    let removed = (0..NAMES.len(), 0_i64..6).prop_map(|(name, at_s)| Event::Removed(name, at_s));
    prop::collection::vec(prop_oneof![3 => put, 1 => removed], 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn machines_agree_in_whatever_order_they_hear(
        events in events(),
        seed in any::<u64>(),
    ) {
        let all: Vec<_> = events
            .iter()
            .map(|event| match event {
                Event::Put(names, at_s) => {
                    let names: Vec<_> = names.iter().map(|name| NAMES[*name]).collect();
                    (Some((certificate(&names), *at_s)), None)
                }
                Event::Removed(name, at_s) => (None, Some(removal(NAMES[*name], *at_s))),
            })
            .collect();
        let mut order: Vec<usize> = (0..all.len()).collect();
        let mut outcomes = Vec::new();
        let mut random = seed;
        for round in 0..4 {
            let folder = TempDir::new().unwrap();
            let store = create(&folder, KEY_1);
            for place in &order {
                let (put, removed) = &all[*place];
                store.take_over(put.as_slice(), removed.as_slice(), &[]).unwrap();
                // Whoever hears something twice goes on as before.
                if round % 2 == 1 {
                    store.take_over(put.as_slice(), removed.as_slice(), &[]).unwrap();
                }
            }
            outcomes.push(outcome(&store));
            let path = store.store().path().to_owned();
            drop(store);
            examine(&path, || {}).unwrap();
            for at in (1..order.len()).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                order.swap(at, usize::try_from(random >> 33).unwrap() % (at + 1));
            }
        }
        // By the rule, said in another way: of what was put after the last removal, the greatest.
        let expected: Vec<_> = (0..NAMES.len())
            .map(|name| {
                let removed_s = events.iter().filter_map(|event| match event {
                    Event::Removed(removed, at_s) if *removed == name => Some(*at_s),
                    _ => None,
                });
                let removed_s = removed_s.max().unwrap_or(-1);
                let puts = all.iter().filter_map(|(put, _)| put.as_ref());
                let puts = puts.filter(|(one, at_s)| {
                    *at_s > removed_s && one.names().iter().any(|each| **each == *NAMES[name])
                });
                let last = puts.max_by_key(|(one, at_s)| (*at_s, digest_of(one).0));
                Ok(last.and_then(|(one, _)| leaf(one)))
            })
            .collect();
        for outcome in outcomes {
            prop_assert_eq!(&outcome, &expected);
        }
    }
}

#[test]
fn what_is_put_now_holds_whatever_the_clock_says() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (old, new) = (certificate(&["a.test"]), certificate(&["a.test"]));
    store.take_over(&[(Arc::clone(&old), NOW_S + 900)], &[], &[]).unwrap();
    store.import(&[Arc::clone(&new)], NOW_S).unwrap();
    let put_s = |one: &Certificate| {
        store.store().certificate(digest_of(one)).unwrap().map(|listed| listed.imported_s)
    };
    assert_eq!((put_s(&old), put_s(&new)), (None, Some(NOW_S + 901)));
    // Who hears of both in the other order agrees.
    let unserved = store.take_over(&[(Arc::clone(&old), NOW_S + 900)], &[], &[]).unwrap();
    assert_eq!((unserved, put_s(&old)), (vec![digest_of(&old)], None));
    // What was removed may be put again at once; that it was put is the later word.
    store.store().remove(&["a.test".into()], NOW_S).unwrap();
    let word = store.store().removals(None, 9).unwrap();
    assert_eq!(word[0].at_s, NOW_S + 901);
    store.import(&[Arc::clone(&new)], NOW_S).unwrap();
    assert_eq!(put_s(&new), Some(NOW_S + 902));
    store.take_over(&[], &word, &[]).unwrap();
    assert_eq!(served(&store, "a.test"), Ok(leaf(&new)));
}

#[test]
fn of_equal_certificates_the_later_time_is_kept() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let a = certificate(&["a.test", "b.test"]);
    let listed = || store.store().certificate(digest_of(&a)).unwrap().unwrap();
    for (put_s, kept_s) in [(5, 5), (9, 9), (7, 9)] {
        store.take_over(&[(Arc::clone(&a), put_s)], &[], &[]).unwrap();
        assert_eq!(listed().imported_s, kept_s);
    }
    // Also where it is served for some of its names alone.
    store.take_over(&[(certificate(&["b.test"]), 10)], &[], &[]).unwrap();
    store.take_over(&[(Arc::clone(&a), 7)], &[], &[]).unwrap();
    assert_eq!(listed().imported_s, 9);
    store.import(&[Arc::clone(&a)], NOW_S).unwrap();
    assert_eq!(store.import(&[Arc::clone(&a)], NOW_S + 1).unwrap().unchanged, 1);
}

#[test]
fn what_is_removed_leaves_alone_what_is_beside_it() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (a, other) = (certificate(&["a.test", "b.test"]), certificate(&["c.test"]));
    let ed25519 = certificate_of(&PKCS_ED25519, &["a.test"]);
    store.import(&[Arc::clone(&a), other], NOW_S).unwrap();
    store.import(&[Arc::clone(&ed25519)], NOW_S + 5).unwrap();
    store.take_over(&[], &[removal("a.test", NOW_S)], &[]).unwrap();
    assert_eq!(served(&store, "a.test"), Ok(leaf(&ed25519)));
    assert_eq!(served(&store, "b.test"), Ok(leaf(&a)));
    assert!(served(&store, "c.test").unwrap().is_some());
    store.take_over(&[], &[removal("b.test", NOW_S)], &[]).unwrap();
    assert_eq!(store.store().summary().unwrap().certificates, 2);
    let path = store.store().path().to_owned();
    drop(store);
    examine(&path, || {}).unwrap();
}

#[test]
fn words_are_told_page_by_page_and_forgotten_when_nothing_is_left() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test", "b.test", "c.test"])], NOW_S).unwrap();
    let removed = store.store().remove(&["c.test".into(), "B.test.".into()], NOW_S).unwrap();
    assert_eq!((removed.names, removed.certificates), (2, 0));
    let names = |after: Option<&str>, count| {
        let words = store.store().removals(after, count).unwrap();
        words.into_iter().map(|word| word.name).collect::<Vec<_>>()
    };
    assert_eq!(names(None, 9), ["b.test", "c.test"]);
    assert_eq!(
        (names(None, 1), names(Some("b.test"), 9)),
        (vec!["b.test".into()], vec!["c.test".to_owned()])
    );
    // As long as the longest certificate of what it removed is good, and 400 days at least.
    let until_s = store.store().removals(None, 1).unwrap()[0].until_s;
    assert!(until_s >= NOW_S + 400 * 86_400, "{until_s}");
    store.store().forget_removals(until_s).unwrap();
    assert_eq!(names(None, 9).len(), 2);
    store.store().forget_removals(until_s + 1).unwrap();
    assert_eq!(names(None, 9), Vec::<String>::new());
}

#[test]
fn a_copy_that_is_put_back_has_the_words_of_its_time() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test"]), certificate(&["b.test"])], NOW_S).unwrap();
    store.store().remove(&["b.test".into()], NOW_S).unwrap();
    let copy = TempDir::new().unwrap();
    store.store().back_up(&copy.path().join(DATA_FILE)).unwrap();
    store.store().remove(&["a.test".into()], NOW_S).unwrap();
    let copy = Store::open(copy.path()).unwrap();
    assert!(store.store().replace(&copy, || Ok::<_, StoreError>(())).unwrap());
    assert!(served(&store, "a.test").unwrap().is_some());
    let words = store.store().removals(None, 9).unwrap();
    assert_eq!(words.iter().map(|word| &*word.name).collect::<Vec<_>>(), ["b.test"]);
}

/// What was removed meanwhile, and is not known here yet, was removed before it was imported.
#[test]
fn what_is_imported_into_a_store_that_may_lack_something_is_put_anew() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (a, b) = (certificate(&["a.test"]), certificate(&["b.test"]));
    store.import(&[Arc::clone(&a), Arc::clone(&b)], NOW_S).unwrap();
    let put_s = |name: &str| store.store().find(name).unwrap()[0].imported_s;
    let again = |now_s| store.import(&[Arc::clone(&a)], now_s).unwrap();
    let unchanged = Imported { unchanged: 1, ..Imported::default() };
    assert_eq!((again(NOW_S + 1), put_s("a.test")), (unchanged, NOW_S));
    // A copy of a machine of no fleet lacks nothing.
    let copy = TempDir::new().unwrap();
    store.store().back_up(&copy.path().join(DATA_FILE)).unwrap();
    let put_back = || {
        let copy = Store::open(copy.path()).unwrap();
        assert!(store.store().replace(&copy, || Ok::<_, StoreError>(())).unwrap());
    };
    put_back();
    store.store().note_put_back().unwrap();
    assert_eq!((again(NOW_S + 2), put_s("a.test")), (unchanged, NOW_S));
    store.keep(&[], 0, &[(FLEET_CLUSTER, Some(b"7 1"))]).unwrap();
    assert_eq!((again(NOW_S + 3), put_s("a.test")), (unchanged, NOW_S));
    // Of one it may, also if it was none at the time of the copy.
    put_back();
    assert!(store.store().is_behind().unwrap());
    assert_eq!((again(NOW_S + 4), put_s("a.test")), (unchanged, NOW_S + 4));
    assert_eq!(put_s("b.test"), NOW_S, "it was not imported");
    store.take_over(&[], &[removal("a.test", NOW_S + 3)], &[]).unwrap();
    assert_eq!(served(&store, "a.test"), Ok(leaf(&a)));
    // Not once it has all, unless it has changed since that was so.
    let before = store.store().generation().unwrap();
    again(NOW_S + 5);
    store.store().note_abreast(before).unwrap();
    assert_eq!((again(NOW_S + 6), put_s("a.test")), (unchanged, NOW_S + 6));
    store.store().note_abreast(store.store().generation().unwrap()).unwrap();
    assert_eq!((again(NOW_S + 7), put_s("a.test")), (unchanged, NOW_S + 6));
    // A whole folder that comes from a copy.
    store.keep(&[], 0, &[(FLEET_CLUSTER, Some(b"7 1"))]).unwrap();
    store.store().note_put_back().unwrap();
    assert!(store.store().is_behind().unwrap());
    let path = store.store().path().to_owned();
    drop(store);
    examine(&path, || {}).unwrap();
}

/// Rows that nobody with a sealing key wrote are not proven by a removal beside them.
#[test]
fn a_removal_proves_no_row_that_somebody_else_wrote() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let ed25519 = certificate_of(&PKCS_ED25519, &["a.test"]);
    store.import(&[certificate(&["a.test"]), ed25519, certificate(&["b.test"])], NOW_S).unwrap();
    store
        .store()
        .write(|txn| {
            let tables = &store.store().tables;
            let row = tables.names.get(txn, "b.test")?.unwrap().to_vec();
            Ok(tables.names.put(txn, "a.test", &row)?)
        })
        .unwrap();
    store.take_over(&[], &[removal("a.test", NOW_S - 9)], &[]).unwrap();
    assert_eq!(served(&store, "a.test"), Ok(None));
}

/// Whoever can write the file has no sealing key: times that nobody proves set none ahead that is
/// sealed.
#[test]
fn a_time_to_come_that_nobody_proves_counts_for_nothing() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let put_s = |name: &str| store.store().find(name).unwrap()[0].imported_s;
    let word = Removal { at_s: i64::MAX - 1, ..removal("a.test", 0) };
    store.take_over(&[], &[word], &[]).unwrap();
    store.import(&[certificate(&["a.test"]), certificate(&["b.test"])], NOW_S).unwrap();
    assert_eq!(put_s("a.test"), NOW_S);
    let forged = store.store().find("b.test").unwrap()[0].digest;
    let forge = |txn: &mut heed::RwTxn<'_>| {
        let tables = &store.store().tables;
        let bytes = tables.certificates.get(txn, &forged.0)?.unwrap().to_vec();
        let mut record = Record::parse(&bytes).unwrap();
        record.imported_s = i64::MAX - 1;
        Ok(tables.certificates.put(txn, &forged.0, &record.to_bytes()?)?)
    };
    store.store().write(forge).unwrap();
    store.import(&[certificate(&["b.test"])], NOW_S + 5).unwrap();
    assert_eq!(put_s("b.test"), NOW_S + 5);
    // A word of removal takes no such time over either.
    store.take_over(&[(certificate(&["c.test"]), i64::MAX - 1)], &[], &[]).unwrap();
    store.store().remove(&["c.test".into()], NOW_S).unwrap();
    assert_eq!(store.store().removal("c.test").unwrap().unwrap().at_s, NOW_S);
}

fn removal(name: &str, at_s: i64) -> Removal {
    Removal { name: name.to_owned(), at_s, until_s: NOW_S + 1 }
}

const NAMES: [&str; 3] = ["a.test", "b.test", "c.test"];
