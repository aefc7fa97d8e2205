//! Files that somebody damaged, and what is left in a file of what was deleted.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

use sealane_engine::certificates::StoredCertificate;

use super::*;
use crate::agreement::Examined;
use crate::examine::examine as examine_and_tell;
use crate::pages::{Metas, Use, Visitors, Walk};
use crate::row::Row;
use crate::seal::PROOF_BYTES;
use crate::tables::expiry_key;

fn examine(path: &Path) -> Result<Examined, StoreError> {
    examine_and_tell(path, || ())
}

/// Numbers as they seem to come, the same in each run.
pub(super) struct Chance(pub(super) u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end as u64).unwrap()
    }
}

fn data(folder: &TempDir) -> std::path::PathBuf {
    folder.path().join("store").join(DATA_FILE)
}

fn sealed_keys(store: &KeyedStore, names: &[&str]) -> Vec<Vec<u8>> {
    let bytes = |name: &&str| {
        let record = record_bytes(store, name);
        Record::parse(&record).unwrap().sealed_key.to_vec()
    };
    names.iter().map(bytes).collect()
}

/// How many of `sealed` can be found in a file, whole or but for a cut end.
fn found(file: &[u8], sealed: &[Vec<u8>]) -> usize {
    let is_there = |key: &&Vec<u8>| {
        let (head, tail) = (&key[..PART_BYTES], &key[key.len() - PART_BYTES..]);
        file.windows(PART_BYTES).any(|part| part == head || part == tail)
    };
    sealed.iter().filter(is_there).count()
}

const PART_BYTES: usize = 24;

#[test]
fn what_was_resealed_or_removed_is_nowhere_in_the_folder() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let names: Vec<String> = (0..60).map(|number| format!("n{number}.test")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all: Vec<_> = names.iter().map(|name| certificate(&[name])).collect();
    store.import(&all, NOW_S).unwrap();
    let old = sealed_keys(&store, &names);
    let both = with_keys(&store, &format!("{KEY_2}\n{KEY_1}")).unwrap();
    let mut after = None;
    while let Some(last) = both.reseal(after, 7).unwrap().last {
        after = Some(last);
    }
    let removed = sealed_keys(&both, &names[..20]);
    let gone: Vec<String> = names[..20].iter().map(|name| (*name).to_owned()).collect();
    store.store().remove(&gone, NOW_S).unwrap();
    let file = fs::read(data(&folder)).unwrap();
    assert!(found(&file, &old) > 0 && found(&file, &removed) > 0, "LMDB keeps what was deleted");
    // Behind the last page, as a transaction leaves it that was never committed.
    let end = file.len() as u64;
    File::options().write(true).open(data(&folder)).unwrap().write_all_at(&old[0], end).unwrap();

    store.store().erase_deleted().unwrap();
    for entry in fs::read_dir(folder.path().join("store")).unwrap() {
        let file = fs::read(entry.unwrap().path()).unwrap();
        assert_eq!((found(&file, &old), found(&file, &removed)), (0, 0));
    }
    let new_only = with_keys(&store, KEY_2).unwrap();
    assert_eq!(problems(&new_only), Vec::<String>::new());
    assert_eq!(served(&new_only, names[0]), Ok(None));
    assert_eq!(served(&new_only, names[20]), Ok(leaf(&all[20])));
    drop((both, new_only, store));
    assert_eq!(examine(&folder.path().join("store")).unwrap().certificates, 40);
}

#[test]
fn nothing_is_erased_that_somebody_still_reads() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let all: Vec<_> = (0..40).map(|number| certificate(&[&format!("n{number}.test")])).collect();
    store.import(&all, NOW_S).unwrap();
    let gone: Vec<String> = (0..40).map(|number| format!("n{number}.test")).collect();
    let (is_reading, wait_for_reading) = std::sync::mpsc::channel();
    let (is_erased, wait_for_erased) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // Gone also if an assertion fails, so that the reader ends.
        let (store, is_erased) = (&store, is_erased);
        // A thread has one transaction at a time.
        let reader = scope.spawn(move || {
            let view = store.view().unwrap();
            is_reading.send(()).unwrap();
            wait_for_erased.recv().unwrap();
            let found = view.named("n1.test").unwrap();
            view.open(found[0].digest).is_ok()
        });
        wait_for_reading.recv().unwrap();
        store.store().remove(&gone, NOW_S).unwrap();
        let error = store.store().erase_deleted().unwrap_err().to_string();
        assert!(error.contains(&format!("process {} still reads", std::process::id())), "{error}");
        is_erased.send(()).unwrap();
        assert!(reader.join().unwrap(), "what the view leads to was erased under it");
    });
    store.store().erase_deleted().unwrap();
}

/// Each page of the file is in a tree, or free; so nothing is given back that is needed.
#[test]
fn every_page_that_lmdb_writes_is_understood() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let mut chance = Chance(7);
    for round in 0..25 {
        let many: Vec<_> = (0..6)
            .map(|_| {
                let number = chance.below(60);
                // Some records are too long for a page.
                let names: Vec<String> =
                    (0..1 + number * number / 30).map(|n| format!("n{n}.x{number}.test")).collect();
                certificate(&names.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect();
        store.import(&many, NOW_S).unwrap();
        let name = |chance: &mut Chance| format!("n0.x{}.test", chance.below(60));
        store.store().remove(&[name(&mut chance), name(&mut chance)], NOW_S).unwrap();
        if round % 5 == 0 {
            store.store().erase_deleted().unwrap();
        }
        let file = File::open(data(&folder)).unwrap();
        let metas = Metas::read(&file).unwrap();
        for meta in std::iter::once(&metas.newest).chain(&metas.older) {
            let uses = Walk::run(&file, meta, Visitors::default()).unwrap();
            assert!(!uses.contains(&Use::None), "round {round}");
        }
        assert_eq!(problems(&store), Vec::<String>::new());
    }
}

/// LMDB takes runs of free pages as if numbers fell; it would give out a page that is in use.
#[test]
fn a_list_of_free_pages_that_is_not_in_lmdbs_order_is_refused() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let all: Vec<_> = (0..40).map(|number| certificate(&[&format!("n{number}.test")])).collect();
    store.import(&all, NOW_S).unwrap();
    let gone: Vec<String> = (0..30).map(|number| format!("n{number}.test")).collect();
    store.store().remove(&gone, NOW_S).unwrap();
    drop(store);
    let path = folder.path().join("store");
    examine(&path).unwrap();
    let mut bytes = fs::read(data(&folder)).unwrap();
    let number = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap())).unwrap()
    };
    let place = |bytes: &[u8], at: usize| {
        usize::from(u16::from_ne_bytes(*bytes[at..].first_chunk().unwrap()))
    };
    // The newest meta page leads to the tree of free lists, whose only page holds lists: a header
    // of 8 bytes, a key of 8, a count and numbers.
    let newest = [0, 4096].into_iter().max_by_key(|meta| number(&bytes, meta + 144)).unwrap();
    let page = number(&bytes, newest + 80) * 4096;
    let lists = (page + 16..page + place(&bytes, page + 12)).step_by(2);
    let lists: Vec<usize> = lists.map(|at| page + place(&bytes, at) + 16).collect();
    let list = *lists.iter().find(|list| number(&bytes, **list) > 1).unwrap();
    for at in 8..16 {
        bytes.swap(list + at, list + at + 8);
    }
    fs::write(data(&folder), bytes).unwrap();
    let error = examine(&path).unwrap_err().to_string();
    assert!(error.contains("free pages that is not in order"), "{error}");
}

/// What a check of its pages lets through never ends the process, whatever is done with the store.
#[test]
fn no_damage_that_is_let_through_ends_the_process() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let all: Vec<_> = (0..50).map(|number| certificate(&[&format!("n{number}.test")])).collect();
    store.import(&all, NOW_S).unwrap();
    store.store().remove(&["n3.test".into(), "n7.test".into()], NOW_S).unwrap();
    drop(store);
    let whole = fs::read(data(&folder)).unwrap();
    let more = [certificate(&["n3.test"]), certificate(&["*.n8.test", "n9.test"])];
    let mut chance = Chance(11);
    let (mut refused, mut served) = (0, 0);
    let damages = std::env::var("SEALANE_STORE_ROUNDS").map_or(40, |n| n.parse().unwrap());
    for round in 0..damages {
        let other = TempDir::new().unwrap();
        fs::create_dir(other.path().join("store")).unwrap();
        fs::write(data(&other), damaged(&whole, &mut chance)).unwrap();
        let path = other.path().join("store");
        if examine(&path).is_err() {
            refused += 1;
            continue;
        }
        served += 1;
        let store = Arc::new(Store::open(&path).unwrap());
        let both = keys(&format!("{KEY_2}\n{KEY_1}"));
        // Errors are in order; what must not happen is that this process ends.
        let Ok(store) = KeyedStore::new(store, both) else { continue };
        let _ = store.import(&more, NOW_S);
        let _ = store.reseal(None, 100);
        let _ = store.store().remove(&["n9.test".into(), "n20.test".into()], NOW_S);
        let _ = store.store().erase_deleted();
        let _ = store.verify(None, 100, &provider(), |_| {});
        drop(store);
        // What is written into pages that are in order leaves them in order.
        let after = examine(&path);
        assert!(!format!("{after:?}").contains("page "), "round {round}: {after:?}");
    }
    println!("{damages} damaged files: {refused} refused, {served} used");
    assert!(refused > damages / 10 && served > damages / 10, "{refused} {served}");
}

/// A file in which a few bytes are others, mostly in the headers of pages, or the end is missing.
fn damaged(whole: &[u8], chance: &mut Chance) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    let page_bytes = 4096;
    match chance.below(8) {
        0 => bytes.truncate(chance.below(whole.len())),
        1 => {
            let from = chance.below(whole.len());
            let to = whole.len().min(from + 1 + chance.below(page_bytes));
            bytes[from..to].fill_with(|| u8::try_from(chance.below(256)).unwrap());
        }
        // Any byte of any page.
        2..=4 => {
            let at = chance.below(whole.len());
            bytes[at] = u8::try_from(chance.below(256)).unwrap();
        }
        // The header, and the places of the first nodes.
        _ => {
            let page = chance.below(whole.len() / page_bytes) * page_bytes;
            let at = page + chance.below(64);
            bytes[at] = u8::try_from(chance.below(256)).unwrap();
        }
    }
    bytes
}

#[test]
fn a_file_that_was_cut_is_refused_before_it_is_mapped() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test"])], NOW_S).unwrap();
    drop(store);
    let file = File::options().write(true).open(data(&folder)).unwrap();
    for pages in (1..file.metadata().unwrap().len() / 4096).rev() {
        file.set_len(pages * 4096).unwrap();
        let error = Store::open(&folder.path().join("store")).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{pages} pages: {error}");
    }
}

#[test]
fn a_name_is_led_nowhere_else_by_somebody_without_the_key() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (a, b) = (certificate(&["a.test"]), certificate(&["b.test"]));
    store.import(&[Arc::clone(&a), b], NOW_S).unwrap();
    let tables = &store.store().tables;
    let row = |name: &str| {
        store.store().read(|txn| Ok(tables.names.get(txn, name)?.unwrap().to_vec())).unwrap()
    };
    let write = |name: &str, bytes: &[u8]| {
        store.store().write(|txn| Ok(tables.names.put(txn, name, bytes)?)).unwrap();
    };
    let (row_a, row_b) = (row("a.test"), row("b.test"));
    // The whole row of another name, also with its proof.
    write("a.test", &row_b);
    assert_eq!(served(&store, "a.test"), Err(StoreFailure));
    assert!(problems(&store).iter().any(|problem| problem.contains("led elsewhere")));
    // The certificate of another name under the proof of this one, and each other byte.
    for at in 0..row_a.len() {
        let mut row = row_a.clone();
        row[at] ^= 1;
        write("a.test", &row);
        assert_eq!(served(&store, "a.test"), Err(StoreFailure), "byte {at}");
    }
    // A row of a name that there was not.
    write("c.test", &row_a);
    assert_eq!(served(&store, "c.test"), Err(StoreFailure));
    write("a.test", &row_b);
    store.import(&[Arc::clone(&a)], NOW_S).unwrap();
    assert_eq!(served(&store, "a.test"), Ok(leaf(&a)), "importing again heals it");
    // A row of another store with the same key.
    let other = TempDir::new().unwrap();
    let other = create(&other, KEY_1);
    other.import(&[a], NOW_S).unwrap();
    let foreign = other.store();
    let foreign =
        foreign.read(|txn| Ok(foreign.tables.names.get(txn, "a.test")?.unwrap().to_vec()));
    write("a.test", &foreign.unwrap());
    assert_eq!(served(&store, "a.test"), Err(StoreFailure));
}

#[test]
fn dates_and_names_of_a_record_are_bound_to_its_seal() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test", "b.test"])], NOW_S).unwrap();
    let whole = record_bytes(&store, "a.test");
    let original = Record::parse(&whole).unwrap();
    let changed = [
        Record { not_after_s: original.not_after_s + 1, ..original.clone() },
        Record { not_before_s: original.not_before_s - 1, ..original.clone() },
        Record { imported_s: original.imported_s + 1, ..original.clone() },
        Record { label: "other.pem", ..original.clone() },
        Record { names: vec!["a.test", "c.test"], ..original.clone() },
        Record { key_type: sealane_engine::certificates::KeyType::EcdsaP384, ..original.clone() },
    ];
    for record in changed {
        tamper(&store, "a.test", |bytes| *bytes = record.to_bytes().unwrap());
        assert_eq!(served(&store, "a.test"), Err(StoreFailure), "{record:?}");
    }
    tamper(&store, "a.test", |bytes| bytes.clone_from(&whole));
    // A date in the list alone.
    let (tables, digest) = (&store.store().tables, digest(&store, "a.test"));
    let shown = store.store().by_expiry(None, 1).unwrap();
    assert_eq!(shown.len(), 1);
    store
        .store()
        .write(|txn| {
            tables.expiry.delete(txn, &expiry_key(original.not_after_s, digest))?;
            Ok(tables.expiry.put(txn, &expiry_key(original.not_after_s + 1, digest), &())?)
        })
        .unwrap();
    let error = store.store().by_expiry(None, 1).unwrap_err().to_string();
    assert!(error.contains("not its certificate's"), "{error}");
    assert!(problems(&store).iter().any(|problem| problem.contains("the list by date")));
    drop(store);
    let error = examine(&folder.path().join("store")).unwrap_err().to_string();
    assert!(error.contains("the list by date"), "{error}");
}

#[test]
fn an_older_copy_is_noticed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test"])], NOW_S).unwrap();
    drop(store);
    let before = fs::read(data(&folder)).unwrap();
    let store = create(&folder, KEY_1);
    assert!(store.store().look().unwrap().unwrap().is_ours);
    store.store().remove(&["a.test".into()], NOW_S).unwrap();
    let known = store.store().generation().unwrap();
    assert!(store.store().look().unwrap().unwrap().is_ours);
    drop(store);
    fs::write(data(&folder), before).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::RolledBack { .. }), "{error}");
    assert!(error.to_string().contains("an older copy"), "{error}");
    fs::remove_file(path.join(STATE_FILE)).unwrap();
    let store = Store::open(&path).unwrap();
    assert!(!store.look().unwrap().unwrap().is_ours);
    assert!(matches!(store.refuse_older_than(known), Err(StoreError::RolledBack { .. })));
}

#[test]
fn nobody_writes_to_a_file_whose_place_another_took() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test"])], NOW_S).unwrap();
    let copy = fs::read(data(&folder)).unwrap();
    fs::write(folder.path().join("copy"), copy).unwrap();
    fs::rename(folder.path().join("copy"), data(&folder)).unwrap();
    let error = store.import(&[certificate(&["b.test"])], NOW_S).unwrap_err();
    assert!(matches!(error, StoreError::Replaced { .. }), "{error}");
    assert_eq!(served(&store, "b.test"), Ok(None));
    store.store().withdraw(true);
    assert_eq!(served(&store, "a.test"), Err(StoreFailure));
    assert!(matches!(store.store().summary(), Err(StoreError::Withdrawn { .. })));
    assert!(matches!(store.store().generation(), Err(StoreError::Withdrawn { .. })));
    let error = store.import(&[certificate(&["b.test"])], NOW_S).unwrap_err();
    assert!(matches!(error, StoreError::Withdrawn { .. }), "{error}");
    store.store().withdraw(false);
    assert!(matches!(served(&store, "a.test"), Ok(Some(_))));
}

#[test]
fn a_store_of_format_1_is_refused_and_rewritten_by_its_keys() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store");
    let store = create(&folder, KEY_1);
    let (a, b) = (certificate(&["a.test", "*.a.test"]), certificate(&["b.test"]));
    store.import(&[Arc::clone(&a), Arc::clone(&b)], NOW_S).unwrap();
    to_format_1(&store);
    drop(store);
    let error = Store::open(&path).unwrap_err();
    assert!(error.to_string().contains("sealane certificates reseal"), "{error}");
    assert!(KeyedStore::migrate(&path, keys(KEY_2)).is_err());
    let both = || keys(&format!("{KEY_2}\n{KEY_1}"));
    let (store, rewritten) = KeyedStore::migrate(&path, both()).unwrap();
    assert_eq!(rewritten, Some(2));
    assert_eq!(store.store().summary().unwrap().sealed_with, [(keys(KEY_2).current(), 2)]);
    drop(store);
    let (store, rewritten) = KeyedStore::migrate(&path, keys(KEY_2)).unwrap();
    assert_eq!(rewritten, None);
    for (name, each) in [("x.a.test", &a), ("a.test", &a), ("b.test", &b)] {
        assert_eq!(served(&store, name), Ok(leaf(each)));
    }
    assert_eq!(problems(&store), Vec::<String>::new());
}

/// Writes the store as the version before this one did.
fn to_format_1(store: &KeyedStore) {
    let tables = &store.store().tables;
    let rows: Vec<(String, Vec<StoredCertificate>)> = store
        .store()
        .read(|txn| {
            let rows = tables.names.iter(txn)?.map(|row| {
                let (name, bytes) = row?;
                Ok((name.to_owned(), Row::parse(bytes)?.certificates()?))
            });
            rows.collect()
        })
        .unwrap();
    for (name, certificates) in rows {
        let digest = certificates[0].digest;
        store
            .store()
            .write(|txn| {
                let row = tables.names.get(txn, &name)?.unwrap();
                let unproven = row[..row.len() - PROOF_BYTES].to_vec();
                tables.names.put(txn, &name, &unproven)?;
                let bytes = tables.certificates.get(txn, &digest.0)?.unwrap().to_vec();
                // Another name of one certificate comes here a second time.
                let Ok(record) = Record::parse(&bytes) else { return Ok(()) };
                let key = store.open_key(digest, &record)?;
                let sealed = store.keys().seal_format_1(&key, &digest.0)?;
                let mut bytes = record.with_seal(&sealed).to_bytes()?;
                bytes[0] = 1;
                tables.certificates.put(txn, &digest.0, &bytes)?;
                tables.set_format_1(txn)
            })
            .unwrap();
    }
}
