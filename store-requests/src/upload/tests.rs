//! Streams of real certificates into a real store.

use std::sync::Arc;

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use sealane_engine::policy::Group;
use sealane_engine::provider::{ProviderChoice, lane_provider};
use sealane_store::{READ_BYTES_MAX, SealingKeys, Store};
use tempfile::TempDir;

use super::*;
use crate::{Answer, BATCH_MAX, LIMIT_MAX, NAMES_MAX, ReadBack, Refused, Request};

const NOW_S: i64 = 1_800_000_000;

/// A store, and a provider that checks keys.
struct Rig {
    folder: TempDir,
    provider: CryptoProvider,
    store: KeyedStore,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = SealingKeys::from_text(&format!("{}=\n", "A".repeat(43))).unwrap();
        let store = Store::open_or_create(&folder.path().join("store")).unwrap();
        let store = KeyedStore::new(Arc::new(store), keys).unwrap();
        let provider = lane_provider(ProviderChoice::Auto, &Group::ALL).unwrap().crypto;
        Self { folder, provider, store }
    }

    /// The result of a text that is sent in parts of `at_once` bytes. A sender that leaves early
    /// sends no end.
    fn send(&self, text: &str, at_once: usize, is_whole: bool, may: May<'_>) -> Stored {
        let mut upload = Upload::new(&self.store, "test", &self.provider, may);
        let end = pump(&mut upload, text, at_once).and_then(|()| match is_whole {
            true => upload.end(NOW_S).map_err(StreamEnd::NotStored),
            false => Err(StreamEnd::Cut("left".into())),
        });
        upload.answer(end)
    }

    fn put(&self, text: &str) -> Stored {
        self.send(text, 1 << 16, true, &|_| true)
    }

    fn ask(&self, method: &str, query: &[(&str, &str)], may: May<'_>) -> Result<Answer, Refused> {
        request(method, query)?.carry_out(&self.store, may, NOW_S)
    }

    fn get(&self, query: &[(&str, &str)]) -> ReadBack {
        match self.ask("GET", query, &|_| true) {
            Ok(Answer::ReadBack(read)) => read,
            other => panic!("{other:?}"),
        }
    }
}

fn pump(upload: &mut Upload<'_>, text: &str, at_once: usize) -> Result<(), StreamEnd> {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        let space = upload.space();
        let (part, later) = left.split_at(at_once.min(left.len()).min(space.len()));
        space[..part.len()].copy_from_slice(part);
        left = later;
        upload.filled(part.len(), NOW_S).map_err(StreamEnd::NotStored)?;
    }
    Ok(())
}

fn request(method: &str, query: &[(&str, &str)]) -> Result<Request, Refused> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Request::parse(method, &query.iter().map(owned).collect::<Vec<_>>())
}

/// Chains with one key, each for another name.
fn pems(names: impl Iterator<Item = String>) -> Vec<String> {
    let key = KeyPair::generate().unwrap();
    let one = |name: String| {
        let leaf = CertificateParams::new(vec![name]).unwrap().self_signed(&key).unwrap();
        leaf.pem() + &key.serialize_pem()
    };
    names.map(one).collect()
}

#[test]
fn a_stream_is_stored_in_whole_batches_and_what_was_cut_is_as_if_it_never_came() {
    let rig = Rig::new();
    let all = pems((0..=BATCH_MAX).map(|n| format!("n{n}.test")));
    // All certificates that a batch needs, and half of the next one.
    let cut = rig.send(&(all.concat() + "half"), 100_000, false, &|_| true);
    assert_eq!((cut.added, cut.errors), (BATCH_MAX as u64, vec!["left".to_owned()]));
    let again = rig.put(&all.concat());
    assert_eq!((again.unchanged, again.added), (BATCH_MAX as u64, 1));
    assert_eq!(again.errors, Vec::<String>::new());
    assert_eq!(again.generation, rig.store.store().generation().unwrap());
    let nothing = rig.put(" \n");
    assert!(nothing.errors[0].starts_with("nothing in it"), "{nothing:?}");
    assert_eq!(nothing.generation, again.generation, "nothing was written");
}

#[test]
fn a_mistake_leaves_its_batch_out_and_says_where_it_is() {
    let rig = Rig::new();
    let all = pems(["a.test", "b.test"].map(str::to_owned).into_iter());
    let chain = &all[1][..all[1].find("-----BEGIN PRIVATE").unwrap()];
    let stored = rig.put(&[&all[0], chain].concat());
    let line = all[0].lines().count() + 1;
    let expected = format!("test, line {line}: no private key");
    assert!(stored.errors[0].starts_with(&expected), "{stored:?}");
    assert_eq!((stored.certificates(), stored.generation), (0, 0));
    let wrong = rig.put(&"-----BEGIN PRIVATE KEY-----\n".repeat(2 * MISTAKES_TOLD_MAX));
    assert_eq!(wrong.errors.len(), MISTAKES_TOLD_MAX + 1);
    let last = wrong.errors.last().unwrap();
    assert!(last.starts_with("and ") && last.ends_with(" more mistakes"), "{last}");
}

#[test]
fn a_stream_has_an_end() {
    let rig = Rig::new();
    let mut upload = Upload::new(&rig.store, "test", &rig.provider, &|_| true);
    upload.bytes_left = 10;
    assert!(upload.filled(10, NOW_S).is_ok());
    let end = upload.filled(1, NOW_S);
    assert!(matches!(end, Err(NotStored::TooLong)), "{end:?}");
}

#[test]
fn who_may_only_do_some_names_does_nothing_with_others() {
    let rig = Rig::new();
    let all = pems(["a.ours.test", "b.theirs.test"].map(str::to_owned).into_iter());
    let ours = |name: &str| name.ends_with(".ours.test");
    let stored = rig.send(&all.concat(), 1 << 16, true, &ours);
    assert_eq!((stored.certificates(), stored.errors.len()), (0, 1));
    assert!(stored.errors[0].contains("may not store b.theirs.test"), "{stored:?}");
    rig.put(&all.concat());
    let read = |name: &str| rig.ask("GET", &[("name", name)], &ours);
    assert!(
        matches!(read("A.Ours.Test."), Ok(Answer::ReadBack(found)) if found.certificates.len() == 1)
    );
    assert!(matches!(read("b.theirs.test"), Err(Refused::Forbidden(_))));
    let listed = rig.ask("GET", &[], &ours);
    assert!(matches!(listed, Ok(Answer::ReadBack(all)) if all.certificates.len() == 1));
    let both = [("name", "a.ours.test"), ("name", "b.theirs.test")];
    assert!(matches!(rig.ask("DELETE", &both, &ours), Err(Refused::Forbidden(_))));
    assert_eq!(rig.get(&[]).certificates.len(), 2, "nothing of it was removed");
}

#[test]
fn what_is_stored_is_read_back_page_by_page_and_removed() {
    let rig = Rig::new();
    let all = pems((0..5).map(|n| format!("n{n}.test")).chain(["*.w.test".into()]));
    rig.put(&all.concat());
    let mut names = Vec::new();
    let mut page = rig.get(&[("limit", "2")]);
    loop {
        names.extend(page.certificates.iter().flat_map(|each| each.names.clone()));
        let Some(next) = page.next else { break };
        page = rig.get(&[("limit", "2"), ("after", &next)]);
    }
    names.sort();
    assert_eq!(names, ["*.w.test", "n0.test", "n1.test", "n2.test", "n3.test", "n4.test"]);

    let shown = rig.get(&[("name", "x.W.test.")]);
    let [only] = &shown.certificates[..] else { panic!("{shown:?}") };
    assert_eq!((&only.names[0][..], only.chain.len(), only.chain[0].len()), ("*.w.test", 1, 64));
    assert!(only.issuer.contains("rcgen self signed cert"), "{only:?}");
    assert!(!only.serial.is_empty() && only.source.starts_with("test, line "), "{only:?}");
    assert_eq!(rig.get(&[("name", "absent.test")]).certificates, []);

    let removed = rig.ask("DELETE", &[("name", "n0.test"), ("name", "gone.test")], &|_| true);
    let Ok(Answer::Removed(removed)) = removed else { panic!("{removed:?}") };
    assert_eq!((removed.removed_names, removed.removed_certificates), (1, 1));
    assert_eq!((removed.unknown, removed.warnings), (vec!["gone.test".to_owned()], Vec::new()));
    assert_eq!(removed.generation, rig.store.store().generation().unwrap());
    assert!(rig.folder.path().join("store").exists());
}

#[test]
fn requests_that_are_not_in_order_are_refused_with_what_is_wrong() {
    let words = |method: &str, query: &[(&str, &str)]| match request(method, query) {
        Err(refused) => refused.to_string(),
        Ok(request) => panic!("{request:?}"),
    };
    let many: Vec<_> = (0..=NAMES_MAX).map(|_| ("name", "a.test")).collect();
    let over = (LIMIT_MAX + 1).to_string();
    for (method, query, expected) in [
        ("POST", &[][..], "GET shows"),
        ("PUT", &[("name", "a.test")], "name: PUT takes no such parameter; it takes none"),
        ("GET", &[("nam", "a.test")], "it takes after, limit, name"),
        ("DELETE", &[], "?name=NAME"),
        ("DELETE", &many, "at most 100 at once"),
        ("GET", &[("name", "a"), ("name", "b")], "one at a time"),
        ("GET", &[("name", "a"), ("limit", "1")], "nothing beside it"),
        ("GET", &[("limit", "0")], "no number from 1 to 1000"),
        ("GET", &[("limit", &over)], "no number from 1 to 1000"),
        ("GET", &[("limit", "1"), ("limit", "2")], "one of each"),
    ] {
        let said = words(method, query);
        assert!(said.contains(expected), "{method} {query:?}: {said}");
    }
    let rig = Rig::new();
    for after in ["12", "12-zz", "12-+1", "é", &"a".repeat(10_000)] {
        let refused = rig.ask("GET", &[("after", after)], &|_| true).unwrap_err().to_string();
        assert!(refused.ends_with("is not the `next` of an answer"), "{refused}");
        assert!(refused.len() < 200, "{refused}");
    }
}

/// Bytes of an extension that makes a certificate large.
const LARGE: usize = 60 << 10;

#[test]
fn a_list_of_large_chains_ends_early_and_goes_on_where_it_ended() {
    let rig = Rig::new();
    let key = KeyPair::generate().unwrap();
    let large = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 9], vec![4; LARGE]);
    let one = |number: usize| {
        let mut params = CertificateParams::new(vec![format!("{number}.test")]).unwrap();
        params.custom_extensions = vec![large.clone()];
        [params.self_signed(&key).unwrap().pem(), key.serialize_pem()].concat()
    };
    let count = READ_BYTES_MAX / LARGE + 10;
    let all: String = (0..count).map(one).collect();
    let stored = rig.put(&all);
    assert_eq!((stored.added, stored.errors), (count as u64, Vec::new()));
    let limit = LIMIT_MAX.to_string();
    let first = rig.get(&[("limit", &limit)]);
    let listed = first.certificates.len();
    assert!(listed < count && listed >= count - 20, "{listed} of {count}");
    let rest = rig.get(&[("limit", &limit), ("after", &first.next.unwrap())]);
    assert_eq!((rest.certificates.len(), rest.next), (count - listed, None));
}
