//! Roots of shared secrets: processes that have the same ones open each other's tickets.

use super::*;

#[test]
fn independent_roots_of_the_same_secrets_resume_each_others_sessions() {
    for version in VERSIONS {
        let machine = Machine::new();
        let [first, second] = [(); 2].map(|()| machine.lane(shared(&[A], HOUR_S), START));
        let mut client = Client::new(&first.certificate, version);
        assert_eq!(client.connect(&first, POLICY, "a.test"), FULL, "{version:?}");
        for lane in [&second, &first] {
            assert_eq!(client.connect(lane, POLICY, "a.test"), RESUMED, "{version:?}");
        }
        let other = machine.lane(shared(&[B], HOUR_S), START);
        assert_eq!(client.connect(&other, POLICY, "a.test"), FULL, "{version:?}");
    }
}

#[test]
fn a_ticket_opens_in_the_epochs_beside_its_own_and_in_no_other() {
    let machine = Machine::new();
    let sealing = machine.lane(shared(&[A], HOUR_S), START);
    let ticket = sealing.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
    let opening = machine.lane(shared(&[A], HOUR_S), START);
    let hour = u64::from(HOUR_S);
    // Forward and back: nothing is erased for good.
    for (epochs, opens) in [(0, true), (1, true), (2, false), (1, true), (0, true)] {
        opening.clock.set(UnixSeconds(START.0 + epochs * hour));
        assert_eq!(opening.tickets.rotate(), Ok(()));
        assert_eq!(opening.ticketer(POLICY).open(&LEAF, &ticket).is_some(), opens, "{epochs}");
    }
    for (epochs, opens) in [(1, true), (2, false)] {
        opening.clock.set(UnixSeconds(START.0 - epochs * hour));
        assert_eq!(opening.ticketer(POLICY).open(&LEAF, &ticket).is_some(), opens, "-{epochs}");
    }
    let far = UnixSeconds(START.0 + 2 * RATCHET_STEPS_MAX * hour);
    opening.clock.set(far);
    let ticket = opening.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
    assert_eq!(opening.ticketer(POLICY).open(&LEAF, &ticket).unwrap(), b"session");
}

#[test]
fn the_first_secret_seals_and_each_opens() {
    let machine = Machine::new();
    let lane = |secrets: &[[u8; 48]]| machine.lane(shared(secrets, HOUR_S), START);
    let opens = |lane: &Lane, ticket: &[u8]| lane.ticketer(POLICY).open(&LEAF, ticket).is_some();
    let (old, both, new) = (lane(&[A]), lane(&[B, A]), lane(&[B]));
    let before = old.ticketer(POLICY).seal(&LEAF, b"before").unwrap();
    let after = both.ticketer(POLICY).seal(&LEAF, b"after").unwrap();
    assert_eq!([&old, &both, &new].map(|lane| opens(lane, &before)), [true, true, false]);
    assert_eq!([&old, &both, &new].map(|lane| opens(lane, &after)), [false, true, true]);
    // As many secrets as there may be, each with the key of another policy.
    let most: Vec<_> = (0..SHARED_KEYS_MAX).map(|n| [u8::try_from(n).unwrap(); 48]).collect();
    let all = lane(&most);
    for secret in &most {
        for policy in 0..8 {
            let policy = PolicyDigest([policy; 32]);
            let ticket = lane(&[*secret]).ticketer(policy).seal(&LEAF, b"session").unwrap();
            assert_eq!(all.ticketer(policy).open(&LEAF, &ticket).unwrap(), b"session");
            assert!(all.ticketer(POLICY_OF_NOBODY).open(&LEAF, &ticket).is_none());
        }
    }
}

#[test]
fn replacing_reaches_ticketers_that_are_there_already() {
    for version in VERSIONS {
        let machine = Machine::new();
        let [lane, _] = machine.lanes(START);
        let ticketer = lane.ticketer(POLICY);
        let own = ticketer.seal(&LEAF, b"own").unwrap();
        assert_eq!(ticketer.lifetime(), LIFETIME_DEFAULT_S);

        lane.tickets.replace(shared(&[A], HOUR_S));
        assert_eq!(ticketer.lifetime(), HOUR_S);
        assert_eq!(lane.tickets.rotates_at(), UnixSeconds(START.0 + u64::from(HOUR_S)));
        assert!(ticketer.open(&LEAF, &own).is_none());
        let ticket = ticketer.seal(&LEAF, b"session").unwrap();
        let mut client = Client::new(&lane.certificate, version);
        client.connect(&lane, POLICY, "a.test");

        lane.tickets.replace(shared(&[B, A], HOUR_S));
        assert_eq!(ticketer.open(&LEAF, &ticket).unwrap(), b"session");
        assert_eq!(client.connect(&lane, POLICY, "a.test"), RESUMED, "{version:?}");
        lane.tickets.replace(shared(&[B], HOUR_S));
        assert!(ticketer.open(&LEAF, &ticket).is_none());
        // The ticket of the connection before was sealed with the new one.
        assert_eq!(client.connect(&lane, POLICY, "a.test"), RESUMED, "{version:?}");
        lane.tickets.replace(machine.root.clone());
        assert_eq!(ticketer.open(&LEAF, &own).unwrap(), b"own");
    }
}

#[test]
fn what_makes_no_shared_root_is_said() {
    let error = |count, lifetime_s| TicketRoot::shared(&vec![A; count], lifetime_s).unwrap_err();
    assert_eq!(error(0, HOUR_S), TicketRootError::SharedCount { count: 0 });
    let count = SHARED_KEYS_MAX + 1;
    assert_eq!(error(count, HOUR_S), TicketRootError::SharedCount { count });
    for lifetime_s in [0, LIFETIME_S_MAX + 1] {
        assert_eq!(error(1, lifetime_s), TicketRootError::SharedLifetime { lifetime_s });
    }
    for lifetime_s in [1, LIFETIME_S_MAX] {
        assert_eq!(shared(&[A], lifetime_s).lifetime_s(), lifetime_s);
    }
}

#[test]
fn a_shared_root_shows_nothing_and_is_not_written() {
    let mut root = shared(&[A], HOUR_S);
    assert_eq!(root.to_text().unwrap_err(), TicketRootError::SharedText);
    assert_eq!(format!("{root:?}"), "TicketRoot { epoch: Epoch(0), lifetime_s: 3600, .. }");
    root.advance_to(Epoch(u64::MAX)).unwrap();
    assert_eq!(root.epoch(), Epoch(0));
}

proptest! {
    #[test]
    fn who_has_the_secret_opens_and_nobody_else(
        ours in prop::collection::vec(any::<[u8; 16]>(), 1..=SHARED_KEYS_MAX),
        theirs in prop::collection::vec(any::<[u8; 16]>(), 1..=SHARED_KEYS_MAX),
        common in any::<Option<prop::sample::Index>>(),
        lifetime_s in 1..=LIFETIME_S_MAX,
        now in 0_u64..1 << 40,
        later in 0_u64..3,
        plain in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let long = |secrets: &[[u8; 16]]| -> Vec<[u8; 48]> {
            secrets.iter().map(|secret| [*secret; 3].concat().try_into().unwrap()).collect()
        };
        let mut theirs = long(&theirs);
        let ours = long(&ours);
        if let Some(common) = common {
            let at = common.index(theirs.len());
            theirs[at] = ours[0];
        }
        let machine = Machine::new();
        let sealing = machine.lane(shared(&ours, lifetime_s), UnixSeconds(now));
        let ticket = sealing.ticketer(POLICY).seal(&LEAF, &plain).unwrap();
        let then = UnixSeconds(now + later * u64::from(lifetime_s));
        let opening = machine.lane(shared(&theirs, lifetime_s), then);
        let opened = opening.ticketer(POLICY).open(&LEAF, &ticket);
        let expected = later < 2 && theirs.contains(&ours[0]);
        prop_assert_eq!(opened, expected.then_some(plain));
        prop_assert!(opening.ticketer(POLICY_OF_NOBODY).open(&LEAF, &ticket).is_none());
    }

    #[test]
    fn a_changed_ticket_of_a_shared_root_opens_nothing(
        plain in prop::collection::vec(any::<u8>(), 0..300),
        at in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        let lane = Machine::new().lane(shared(&[B, A], HOUR_S), START);
        let mut ticket = lane.ticketer(POLICY).seal(&LEAF, &plain).unwrap();
        let at = at.index(ticket.len());
        ticket[at] ^= 1_u8 << bit;
        prop_assert!(lane.ticketer(POLICY).open(&LEAF, &ticket).is_none());
    }
}

fn shared(secrets: &[[u8; 48]], lifetime_s: u32) -> TicketRoot {
    TicketRoot::shared(secrets, lifetime_s).unwrap()
}

const A: [u8; 48] = [0xa; 48];
const B: [u8; 48] = [0xb; 48];
const HOUR_S: u32 = 3_600;
const POLICY_OF_NOBODY: PolicyDigest = PolicyDigest([0xff; 32]);
