//! Roots that are announced: the keys of each epoch, and their use by lanes.

use super::*;

#[test]
fn all_change_to_an_announced_root_at_one_second_and_tickets_from_before_still_open() {
    let machine = Machine::new();
    let mut root = machine.root.clone();
    root.announce(Epoch(EPOCH + 2), |bytes| bytes.fill(9)).unwrap();
    let lanes = [1, 2].map(|_| machine.lane(root.clone(), START));
    let unaware = machine.lane(machine.root.clone(), START);
    let new_alone = {
        let mut root = root.clone();
        root.advance_to(Epoch(EPOCH + 2)).unwrap();
        machine.lane(root, START)
    };
    let mut before = None;
    for (later_s, is_new) in [
        (0, false),
        (2 * LIFETIME_S - 1, false),
        (2 * LIFETIME_S, true),
        (3 * LIFETIME_S - 1, true),
        (5 * LIFETIME_S, true),
    ] {
        let now = UnixSeconds(START.0 + later_s);
        for lane in lanes.iter().chain([&unaware, &new_alone]) {
            lane.clock.set(now);
        }
        for (lane, other) in [(&lanes[0], &lanes[1]), (&lanes[1], &lanes[0])] {
            let ticket = lane.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
            assert_eq!(other.ticketer(POLICY).open(&LEAF, &ticket).unwrap(), b"session");
            let opens = |lane: &Lane| lane.ticketer(POLICY).open(&LEAF, &ticket).is_some();
            assert_eq!((opens(&unaware), opens(&new_alone)), (!is_new, is_new), "{later_s}");
            if let Some(ticket) = before.replace(ticket)
                && later_s == 2 * LIFETIME_S
            {
                assert!(other.ticketer(POLICY).open(&LEAF, &ticket).is_some(), "of the old root");
            }
        }
        // A lane without the announcement seals and opens its own.
        let ticket = unaware.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
        assert!(unaware.ticketer(POLICY).open(&LEAF, &ticket).is_some());
    }
}

#[test]
fn a_machine_that_hears_late_opens_what_the_others_have_sealed_meanwhile() {
    let machine = Machine::new();
    let mut root = machine.root.clone();
    root.announce(Epoch(EPOCH + 1), |bytes| bytes.fill(9)).unwrap();
    let now = UnixSeconds(START.0 + LIFETIME_S);
    let [aware, late] = [root.clone(), machine.root.clone()].map(|root| machine.lane(root, now));
    let ticket = aware.ticketer(POLICY).seal(&LEAF, b"session").unwrap();
    assert!(late.ticketer(POLICY).open(&LEAF, &ticket).is_none());
    late.tickets.replace(root);
    assert!(late.ticketer(POLICY).open(&LEAF, &ticket).is_some());
}

#[test]
fn a_root_that_is_announced_replaces_those_for_then_and_later() {
    let mut root = Machine::new().root;
    for (epoch, expected) in [(9, &[9][..]), (7, &[7]), (11, &[7, 11]), (11, &[7, 11]), (6, &[6])] {
        root.announce(Epoch(EPOCH + epoch), |bytes| bytes.fill(9)).unwrap();
        let announced: Vec<u64> = root.announced().map(|epoch| epoch.0 - EPOCH).collect();
        assert_eq!(announced, expected);
    }
    let refused = root.announce(root.epoch(), |_| ()).unwrap_err();
    assert_eq!(refused, TicketRootError::Order);
    for epoch in 7..5 + ROOTS_MAX as u64 {
        root.announce(Epoch(EPOCH + epoch), |bytes| bytes.fill(9)).unwrap();
    }
    let before = root.to_text().unwrap();
    assert_eq!(before.len(), TicketRoot::from_text(&before).unwrap().to_text().unwrap().len());
    assert_eq!(root.announce(Epoch(EPOCH + 99), |_| ()).unwrap_err(), TicketRootError::Roots);
    assert_eq!(root.to_text().unwrap(), before);
    let shared = TicketRoot::shared(&[[1; 48]], 600).unwrap().announce(Epoch(9), |_| ());
    assert_eq!(shared.unwrap_err(), TicketRootError::SharedText);
}

proptest! {
    #[test]
    fn the_key_of_an_epoch_is_of_the_youngest_root_that_holds_by_then(
        first in 1_u64..20,
        gaps in prop::collection::vec(1_u64..6, 0..ROOTS_MAX),
        advanced in 0_u64..60,
    ) {
        // Each root by itself, and all of them as one.
        let mut at = first;
        let mut lone = vec![lone_root(first, 0)];
        let mut root = lone_root(first, 0);
        for (number, gap) in (1..).zip(&gaps) {
            at += gap;
            lone.push(lone_root(at, number));
            root.announce(Epoch(at), |bytes| bytes.fill(number)).unwrap();
        }
        let whole = root.clone();
        root.advance_to(Epoch(advanced)).unwrap();
        prop_assert!(root.agrees_with(&whole) && whole.agrees_with(&root));
        let read = TicketRoot::from_text(&root.to_text().unwrap()).unwrap();
        prop_assert_eq!(root.epoch(), Epoch(advanced.max(first)));
        for epoch in 0..70 {
            let holds = lone.iter().rev().find(|root| root.epoch() <= Epoch(epoch));
            let expected = holds.filter(|_| epoch >= advanced).map(|root| key(root, epoch));
            prop_assert_eq!(key(&root, epoch), expected.clone().flatten(), "{}", epoch);
            prop_assert_eq!(key(&read, epoch), expected.flatten(), "{}", epoch);
        }
        // Roots that no accepted epoch needs are gone.
        prop_assert!(root.announced().all(|epoch| epoch.0 > advanced.max(first)));
        let [eldest, youngest] = [lone.first(), lone.last()].map(Option::unwrap);
        prop_assert!(root.agrees_with(youngest));
        prop_assert_eq!(root.agrees_with(eldest), gaps.is_empty());
    }
}

fn lone_root(epoch: u64, fill: u8) -> TicketRoot {
    let now = UnixSeconds(epoch * LIFETIME_S);
    TicketRoot::generate(Duration::from_secs(LIFETIME_S), now, |bytes| bytes.fill(fill)).unwrap()
}

fn key(root: &TicketRoot, epoch: u64) -> Option<secret::Secret> {
    root.key(Epoch(epoch), 0, &POLICY).unwrap()
}
