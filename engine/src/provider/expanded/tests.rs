//! Expanded keys of a thread, and when it drops them.

use std::collections::HashSet;

use aws_lc_rs::aead::{Aad, Nonce};

use super::*;

#[test]
fn a_key_in_use_is_expanded_once_and_gone_with_its_owner() {
    let mut key = key(Aead::Aes128Gcm, 1);
    assert_eq!(held(), 0, "nothing is expanded before it is used");
    let first = sealed(&mut key);
    let place = key.place;
    for _ in 0..3 {
        assert_eq!(sealed(&mut key), first);
        assert_eq!((held(), key.place), (1, place));
    }
    drop(key);
    assert_eq!(held(), 0);
}

#[test]
fn more_keys_than_places_work_and_places_stay_as_many() {
    let mut keys: Vec<RecordKey> = (0..EXPANDED_KEYS_MAX + 50)
        .map(|number| key(AEADS[number % AEADS.len()], number))
        .collect();
    let first: Vec<_> = keys.iter_mut().map(sealed).collect();
    assert_eq!(first.iter().collect::<HashSet<_>>().len(), keys.len(), "each is its own key");
    for round in 0..3 {
        let again: Vec<_> = keys.iter_mut().map(sealed).collect();
        assert!(again == first, "round {round}");
        assert_eq!(held(), EXPANDED_KEYS_MAX);
    }
    // The last ones have their places, and the first ones of theirs, taken by others.
    for key in keys.drain(..) {
        drop(key);
    }
    assert_eq!(held(), 0);
}

#[test]
fn places_of_dropped_keys_are_taken_before_another_is_cleared() {
    let mut keys: Vec<RecordKey> =
        (0..EXPANDED_KEYS_MAX).map(|number| key(Aead::Aes256Gcm, number)).collect();
    keys.iter_mut().for_each(|key| drop(sealed(key)));
    drop(keys.remove(7));
    assert_eq!(held(), EXPANDED_KEYS_MAX - 1);
    let mut new = key(Aead::Aes256Gcm, 1_000);
    sealed(&mut new);
    assert_eq!(held(), EXPANDED_KEYS_MAX);
    EXPANDED.with_borrow(|expanded| assert!(keys.iter().all(|key| expanded.holds(key))));
}

#[test]
fn a_place_that_another_key_has_is_not_taken_for_ones_own() {
    let mut one = key(Aead::Aes256Gcm, 1);
    let expected = sealed(&mut one);
    for mut other in [key(Aead::Aes256Gcm, 2), key(Aead::ChaCha20Poly1305, 1)] {
        other.place = one.place;
        assert_ne!(sealed(&mut other), expected);
        assert_ne!(other.place, one.place);
    }
    // Nor does a stale place make another key's owner lose it.
    let mut other = key(Aead::Aes256Gcm, 2);
    other.place = one.place;
    drop(other);
    assert_eq!(held(), 1);
}

#[test]
fn on_another_thread_a_key_is_expanded_anew() {
    let mut key = key(Aead::Aes128Gcm, 1);
    let expected = sealed(&mut key);
    let mut key = std::thread::scope(|scope| {
        let expected = &expected;
        let moved = scope.spawn(move || {
            // Another key has the place that this one had where it comes from.
            let mut own = self::key(Aead::Aes128Gcm, 2);
            own.place = key.place;
            sealed(&mut own);
            key.place = own.place;
            assert_eq!(&sealed(&mut key), expected);
            assert_eq!(held(), 2);
            key
        });
        moved.join().unwrap()
    });
    assert_eq!(sealed(&mut key), expected);
}

#[test]
fn a_thread_that_ends_may_still_use_and_drop_keys() {
    struct Last(RefCell<Option<RecordKey>>);
    impl Drop for Last {
        fn drop(&mut self) {
            if let Some(key) = self.0.get_mut() {
                let _ = sealed(key);
            }
        }
    }
    thread_local!(static LAST: Last = const { Last(RefCell::new(None)) });
    std::thread::spawn(|| {
        // Values of a thread are dropped in the order of their first use, or in the reverse one.
        LAST.with(|last| drop(last.0.borrow_mut()));
        let mut key = key(Aead::Aes128Gcm, 1);
        sealed(&mut key);
        LAST.with(|last| *last.0.borrow_mut() = Some(key));
    })
    .join()
    .unwrap();
    std::thread::spawn(|| {
        let mut key = key(Aead::Aes128Gcm, 1);
        sealed(&mut key);
        LAST.with(|last| *last.0.borrow_mut() = Some(key));
    })
    .join()
    .unwrap();
}

fn key(aead: Aead, number: usize) -> RecordKey {
    let mut bytes = [0; KEY_BYTES_MAX];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    let mut key = RecordKey::blank(aead);
    key.fill(&AeadKey::from(bytes));
    key
}

/// The tag of one message, which differs between keys.
fn sealed(key: &mut RecordKey) -> Vec<u8> {
    let tag = key.expanded(|key| {
        let nonce = Nonce::assume_unique_for_key([0; 12]);
        key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut [0; 3]).unwrap()
    });
    tag.unwrap().as_ref().to_vec()
}

/// The count of keys that this thread holds expanded.
fn held() -> usize {
    EXPANDED.with_borrow(|expanded| {
        let held = expanded.places.iter().flatten().count();
        assert_eq!(held + expanded.vacant.len(), EXPANDED_KEYS_MAX);
        held
    })
}

const AEADS: [Aead; 3] = [Aead::Aes128Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305];
