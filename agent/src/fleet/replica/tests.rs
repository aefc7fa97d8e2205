//! What a replica does where a cluster does what a real one does seldom.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sealane_store::SealingKeys;
use serde_json::{Value, json};

use super::offers::RESEALED_AT_ONCE;
use super::*;
use crate::fleet::tests::{Machine, certificate, with_machine};

fn nobody(_: Vec<Names>) {}

#[test]
fn what_no_watch_has_told_of_is_noticed() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        let look = async |replica: &mut Replica<'_>| {
            replica.reported.looked = Instant::now().checked_sub(2 * LOOK_BEHIND).unwrap();
            replica.look_behind().await
        };
        look(&mut replica).await.unwrap();
        let place = format!("{}0", fleet.places.certificates());
        let revision = fake.put_unheard(&place, b"junk");
        look(&mut replica).await.expect("it may be under way");
        let error = look(&mut replica).await.expect_err("it never came");
        assert!(error.to_string().contains("the watch has missed something"), "{error}");
        // What has come since is missed by nobody.
        replica.owed = 0;
        replica.revision = revision;
        look(&mut replica).await.unwrap();
        look(&mut replica).await.unwrap();
    });
}

/// A key that changes without a pause, each change before the last one has been waited for.
#[test]
fn a_key_that_changes_all_the_time_keeps_a_machine_from_nothing() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        let mut watch = replica.watch().await.unwrap();
        let told = fake.watch().unwrap();
        let (key, first) = (base64(&fleet.places.entry("tickets/junk")), replica.revision + 1);
        tokio::task::spawn_local(async move {
            for revision in first.. {
                let kv = json!({ "key": key, "value": "", "mod_revision": revision.to_string() });
                let line = json!({ "result": { "events": [{ "kv": kv }] } });
                if told.send(line.to_string() + "\n").await.is_err() {
                    return;
                }
            }
        });
        let turn = replica.turn(&mut watch, &nobody);
        tokio::time::timeout(Duration::from_secs(60), turn).await.expect("it ends").unwrap();
        assert!(fake.entry(&fleet.places.status("m0")).is_some(), "it tells of itself");
    });
}

/// A server that hangs sends nothing, and its connection stays open.
#[test]
fn moves_a_silent_watch_to_another_server() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        let mut watch = replica.watch().await.unwrap();
        let told = fake.watch().unwrap();
        let watches = || fake.asked("watch");
        replica.mind_silence(&mut watch).await.unwrap();
        assert!(fake.entry(&fleet.places.heartbeat()).is_none(), "it was heard just now");
        // Every machine of a fleet with nothing to hear would be silent for ever.
        watch.fall_silent(replica.patience);
        replica.mind_silence(&mut watch).await.unwrap();
        assert!(fake.entry(&fleet.places.heartbeat()).is_some());
        assert_eq!(watches().len(), 1);
        watch.fall_silent(ELSEWHERE_AFTER);
        replica.revision += 7;
        let first = watches()[0]["create_request"]["start_revision"].clone();
        replica.mind_silence(&mut watch).await.unwrap();
        assert_eq!(watches().len(), 2);
        let from = (replica.revision + 1).to_string();
        assert_eq!(watches()[1]["create_request"]["start_revision"], from, "and not {first}");
        assert!(watch.silence() < HEARTBEAT_AFTER);
        drop(told);
    });
}

/// Entries that all machines write at regular times are not watched: with a thousand machines that
/// would be a million changes in seconds.
#[test]
fn regular_writes_are_not_watched() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        let _watch = replica.watch().await.unwrap();
        let asked = fake.asked("watch").pop().unwrap();
        let key = |name: &str| {
            let text = asked["create_request"][name].as_str().unwrap();
            String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap()
        };
        let is_watched = |place: &str| (key("key")..key("range_end")).contains(&place.to_owned());
        let places = &fleet.places;
        assert!(!is_watched(&places.status("m0")) && !is_watched(&(places.answered(7) + "m0")));
        let id = sealane_renewal::CertificateId(1);
        for place in [
            places.certificates(),
            places.claim(id),
            places.entries(),
            places.heartbeat(),
            places.machine("m0"),
            places.order(id),
            places.removals(),
        ] {
            assert!(is_watched(&(place.clone() + "x")), "{place}");
        }
        // It is there once, and that is all that the others hear of it.
        let mut none = BTreeSet::new();
        for _ in 0..3 {
            replica.reported.renew(fleet, 0, &mut none).await.unwrap();
        }
        assert_eq!(fake.asked("kv/txn").len(), 2, "that it is there, and how it is");
    });
}

#[test]
fn one_that_another_was_first_with_keeps_no_other_from_the_cluster() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        let places = ["a.test", "b.test", "c.test"].map(|name| machine.import(name, 0));
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        fake.put_unheard(&places[1], b"another's");
        replica.offer_changes(&nobody).await.unwrap();
        assert!(fake.entry(&places[0]).is_some());
        assert_eq!(fake.entry(&places[1]).unwrap().0, b"another's", "the watch brings it");
        assert!(fake.entry(&places[2]).is_some());
    });
}

/// Another machine of the fleet may know more, which has a key that this one has not yet.
#[test]
fn what_another_sealing_key_sealed_is_left_alone_and_junk_is_not() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        let places = ["a.test", "b.test"].map(|name| machine.import(name, 1_000));
        let (theirs, _) = SealingKeys::generate().unwrap();
        let their = certificate(fleet, "a.test");
        let (rank, parts) = (Rank::of(&their, now_s()), (their.chain(), their.key()));
        let sealed = sealed::seal(&places[0], rank, "push", parts, &theirs).unwrap();
        fake.put_unheard(&places[0], &sealed);
        fake.put_unheard(&places[1], b"junk");
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        replica.offer_changes(&nobody).await.unwrap();
        let is_there = |place: &str, value: &[u8]| fake.entry(place).unwrap().0 == value;
        assert!(is_there(&places[0], &sealed));
        assert!(!is_there(&places[1], b"junk"));
    });
}

/// While its agent was stopped, or etcd away, nobody put what is imported then into the place of
/// what cannot be opened.
#[test]
fn what_was_imported_since_this_machine_has_followed_takes_the_place_of_what_no_key_opens() {
    with_machine(async |machine| {
        let Machine { fleet, fake, store, .. } = &machine;
        store.store().note_behind(now_s() - 500).unwrap();
        let places = [("a.test", 1_000), ("b.test", 100)];
        let places = places.map(|(name, ago_s)| machine.import(name, ago_s));
        let (theirs, _) = SealingKeys::generate().unwrap();
        for place in &places {
            fake.put_unheard(place, &theirs.seal_for(place, b"junk").unwrap());
        }
        let there = || places.each_ref().map(|place| fake.entry(place).unwrap().0);
        let before = there();
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        replica.offer_changes(&nobody).await.unwrap();
        let after = there();
        assert_eq!(after[0], before[0], "it may be newer than what is here");
        assert!(fleet.keys.is_current(&after[1]));
        // What comes once it follows is newer than what is here by then.
        let later = theirs.seal_for(&places[1], b"junk").unwrap();
        let mod_revision = fake.put_unheard(&places[1], &later);
        let (key, value) = (places[1].clone(), later);
        let entry = Entry { key, value, create_revision: 1, mod_revision, lease: 0 };
        replica.take(vec![entry], Vec::new(), &nobody).unwrap();
        replica.offer_changes(&nobody).await.unwrap();
        assert!(!fleet.keys.is_current(&there()[1]));
    });
}

#[test]
fn store_stays_behind_while_its_machine_leaves() {
    with_machine(async |machine| {
        let Machine { fleet, store, .. } = &machine;
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        replica.offer_changes(&nobody).await.unwrap();
        assert!(!store.store().is_behind().unwrap());
        fleet.leave().await;
        assert!(store.store().is_behind().unwrap());
        // The loop that shares goes on until the process ends.
        replica.scan().await.unwrap();
        replica.offer_changes(&nobody).await.unwrap();
        assert!(store.store().is_behind().unwrap());
    });
}

/// Machines with the same keys in another order would do that to each other for ever.
#[test]
fn what_an_older_key_sealed_is_sealed_anew_once_but_for_answers() {
    with_machine(async |machine| {
        let Machine { fleet, fake, older, .. } = &machine;
        let waits = (0..2 * RESEALED_AT_ONCE).map(|number| format!("acme/wait/names/{number}"));
        let others = ["acme/account/0", "acme/demand/a.test"].map(str::to_owned);
        let kept = waits.chain(others).map(|name| fleet.places.entry(&name));
        let kept: Vec<String> = kept.collect();
        let answer = fleet.places.entry("challenge/http-01/a");
        for place in kept.iter().chain([&answer]) {
            fake.put_unheard(place, &older.seal_for(place, b"1").unwrap());
        }
        let newer = fleet.places.entry("acme/demand/b.test");
        let sealed = fleet.keys.seal_for(&newer, b"1").unwrap();
        fake.put_unheard(&newer, &sealed);
        let is_current = |place: &String| fleet.keys.is_current(&fake.entry(place).unwrap().0);
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        for done in [RESEALED_AT_ONCE, 2 * RESEALED_AT_ONCE, kept.len(), kept.len()] {
            replica.offer_changes(&nobody).await.unwrap();
            assert_eq!(kept.iter().filter(|place| is_current(place)).count(), done);
        }
        for place in &kept {
            let opened = fleet.keys.open_at(place, &fake.entry(place).unwrap().0);
            assert_eq!(*opened.unwrap(), b"1");
        }
        assert!(!is_current(&answer), "whose lease would be lost");
        assert_eq!(fake.entry(&newer).unwrap().0, sealed);
        let place = &kept[0];
        let value = older.seal_for(place, b"2").unwrap();
        let mod_revision = fake.put_unheard(place, &value);
        let (key, create_revision) = (place.clone(), 1);
        let entry = Entry { key, value, create_revision, mod_revision, lease: 0 };
        replica.take(vec![entry], Vec::new(), &nobody).unwrap();
        replica.offer_changes(&nobody).await.unwrap();
        assert!(!is_current(place));
    });
}

/// Another machine writes in the moment between look and change.
#[test]
fn what_changes_while_it_is_sealed_anew_stays_and_the_others_are_sealed() {
    with_machine(async |machine| {
        let Machine { fleet, fake, older, .. } = &machine;
        let places = ["a", "b", "c"].map(|name| fleet.places.entry(&format!("acme/wait/{name}")));
        for place in &places {
            fake.put_unheard(place, &older.seal_for(place, b"1").unwrap());
        }
        let mut replica = Replica::listed(fleet, &nobody).await.unwrap();
        let theirs = older.seal_for(&places[1], b"2").unwrap();
        fake.put_before_compares(&places[1], &theirs);
        replica.offer_changes(&nobody).await.unwrap();
        let value = |place: &String| fake.entry(place).unwrap().0;
        assert_eq!(value(&places[1]), theirs);
        assert!([&places[0], &places[2]].iter().all(|place| fleet.keys.is_current(&value(place))));
    });
}

/// What changes meanwhile comes by the watch, behind all that was there before.
#[test]
fn all_pages_of_a_list_are_of_one_moment() {
    with_machine(async |machine| {
        let Machine { fleet, fake, .. } = &machine;
        for number in 0..3 {
            fake.put_unheard(&format!("{}{number}", fleet.places.certificates()), b"junk");
        }
        fake.shorten_pages(1);
        let replica = Replica::listed(fleet, &nobody).await.unwrap();
        assert_eq!(replica.revision, 103);
        let asked = fake.asked("kv/range");
        assert!(asked.len() >= 5, "three of certificates, and others: {}", asked.len());
        let revisions: Vec<&Value> = asked.iter().map(|page| &page["revision"]).collect();
        assert_eq!(revisions[0], "0");
        assert!(revisions[1..].iter().all(|revision| *revision == "103"), "{revisions:?}");
    });
}

fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}
