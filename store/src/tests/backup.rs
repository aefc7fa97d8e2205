//! Copies of a store, and what comes back from them.

use std::fs::File;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::*;

/// A copy of `store` in a folder of its own, found in order.
pub(super) fn copy(store: &KeyedStore, folder: &TempDir) -> Store {
    let path = folder.path().join("copy");
    std::fs::create_dir(&path).unwrap();
    store.store().back_up(&path.join(DATA_FILE)).unwrap();
    let summary = store.store().summary().unwrap();
    let found = examine(&path, || {}).unwrap();
    assert_eq!((found.certificates, found.names), (summary.certificates, summary.names));
    Store::open(&path).unwrap()
}

#[test]
fn what_a_copy_holds_comes_back_and_what_it_does_not_hold_leaves() {
    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let (a, b) = (certificate(&["a.test"]), certificate(&["b.test"]));
    store.import(&[Arc::clone(&a), Arc::clone(&b)], NOW_S).unwrap();
    let copy = copy(&store, &folder);
    store.store().remove(&["a.test".into()], NOW_S).unwrap();
    store.import(&[certificate(&["b.test"]), certificate(&["c.test"])], NOW_S).unwrap();
    let (newer_b, c) = (digest(&store, "b.test"), digest(&store, "c.test"));
    let before = store.view().unwrap().gone_since(None).unwrap().last;
    let changes = store.store().generation().unwrap();

    let kept = folder.path().join("kept");
    let keep = || {
        // What is kept must be what is replaced: nobody writes in between.
        let store_folder = File::open(store.store().path()).unwrap();
        let other = rustix::fs::flock(&store_folder, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(other, Err(Errno::WOULDBLOCK));
        store.store().back_up(&kept)
    };
    assert!(store.store().replace(&copy, keep).unwrap());
    assert_eq!(served(&store, "a.test"), Ok(leaf(&a)));
    assert_eq!(served(&store, "b.test"), Ok(leaf(&b)));
    assert_eq!(served(&store, "c.test"), Ok(None));
    assert_eq!(problems(&store), Vec::<String>::new());
    assert!(kept.exists());
    // Else a lane would keep their keys, and a process that saw it before would call it older.
    let mut gone = store.view().unwrap().gone_since(Some(before)).unwrap().digests.unwrap();
    gone.sort_by_key(|digest| digest.0);
    let mut expected = [newer_b, c];
    expected.sort_by_key(|digest| digest.0);
    assert_eq!(gone, expected);
    assert!(store.store().generation().unwrap() > changes);
    let path = store.store().path().to_owned();
    drop(store);
    examine(&path, || {}).unwrap();
}

#[test]
fn nothing_is_replaced_by_a_copy_of_another_store_or_before_what_was_there_is_kept() {
    let [folder, other] = [(); 2].map(|()| TempDir::new().unwrap());
    let store = create(&folder, KEY_1);
    store.import(&[certificate(&["a.test"])], NOW_S).unwrap();
    let of_another = copy(&create(&other, KEY_1), &other);
    let keep = || -> Result<(), StoreError> { panic!("nothing is replaced") };
    assert!(!store.store().replace(&of_another, keep).unwrap());
    let copy = copy(&store, &folder);
    store.import(&[certificate(&["b.test"])], NOW_S).unwrap();
    let full = || Err(StoreError::Full { path: folder.path().into() });
    store.store().replace(&copy, full).unwrap_err();
    assert!(store.store().covers("b.test").unwrap());
}

#[test]
fn a_copy_leaves_out_what_was_deleted_and_is_for_its_owner_alone() {
    use std::os::unix::fs::MetadataExt as _;

    let folder = TempDir::new().unwrap();
    let store = create(&folder, KEY_1);
    let names: Vec<String> = (0..40).map(|number| format!("n{number}.test")).collect();
    let certificates: Vec<_> = names.iter().map(|name| certificate(&[name])).collect();
    store.import(&certificates, NOW_S).unwrap();
    store.store().remove(&names[1..], NOW_S).unwrap();
    let copy = copy(&store, &folder);
    let facts = |store: &Store| std::fs::metadata(store.path().join(DATA_FILE)).unwrap();
    assert!(facts(&copy).len() < facts(store.store()).len() / 2);
    assert_eq!(facts(&copy).mode() & 0o777, 0o600);
    // What is withdrawn may be damaged: nothing is read from it.
    store.store().withdraw(true);
    let other = folder.path().join("of-withdrawn");
    let withdrawn = store.store().back_up(&other).unwrap_err();
    assert!(matches!(withdrawn, StoreError::Withdrawn { .. }), "{withdrawn}");
    assert!(!other.exists());
    store.store().withdraw(false);
    // One that is there already stays.
    let again = store.store().back_up(&copy.path().join(DATA_FILE)).unwrap_err().to_string();
    assert!(again.contains("File exists"), "{again}");
}
