//! Properties of every plan: drawn certificates, outcomes and pauses.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use sealane_renewal::{
    Action, Authority, AuthorityId, CertificateId, Failure, Held, Limits, MachineId,
    ORDERS_IN_FLIGHT_MAX, Outcome, RETRY_S_MIN, Rate, Schedule, Scope, Settings, Spent, Ticket,
    UnixSeconds, keeper,
};

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
const DAY_S: u64 = 86_400;

/// Something that happens to a plan.
#[derive(Clone, Debug)]
enum Step {
    /// The oldest order under way ends so.
    End(u8),
    Forget(u64),
    /// Time passes, up to the moment at which the plan wants to be woken.
    Pass(u64),
    Want(u64, Option<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u8..9).prop_map(Step::End),
        (0_u64..40).prop_map(Step::Forget),
        (1_u64..3 * DAY_S).prop_map(Step::Pass),
        (0_u64..40, proptest::option::of(0_u64..90)).prop_map(|(id, age)| Step::Want(id, age)),
    ]
}

fn outcome(kind: u8, now: UnixSeconds) -> Outcome {
    let until = now.plus(7_200);
    match kind {
        0 => Outcome::Failed(Failure::TryLater),
        1 => Outcome::Failed(Failure::Ours),
        2 => Outcome::Failed(Failure::Refused),
        3 => Outcome::Failed(Failure::Validation { names: Vec::new() }),
        4 => Outcome::Failed(Failure::RateLimited { until, scope: Scope::Account }),
        5 => Outcome::Failed(Failure::AlreadyReplaced),
        6 => Outcome::HeldByAnother { until },
        _ => Outcome::Issued { not_before: now, not_after: now.plus(90 * DAY_S) },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_plan_ends_its_turns_and_never_begins_what_is_under_way(
        steps in proptest::collection::vec(step(), 1..200),
        seed in 0_u64..1_000,
    ) {
        let authority = Authority::lets_encrypt();
        let mut schedule = Schedule::new(Settings::new(vec![authority.clone(), authority]), seed);
        let (mut now, mut under_way) = (NOW, Vec::<(Ticket, CertificateId)>::new());
        let mut tickets = HashSet::new();
        for step in steps {
            match step {
                Step::End(kind) => if !under_way.is_empty() {
                    let (ticket, _) = under_way.remove(0);
                    schedule.happened(now, ticket, outcome(kind, now));
                },
                Step::Forget(id) => schedule.forget(CertificateId(id)),
                Step::Pass(most) => {
                    let wake = schedule.wake_at(now).unwrap_or(now.plus(most));
                    now = wake.min(now.plus(most)).max(now.plus(1));
                }
                Step::Want(id, age) => {
                    let held = age.map(|days| {
                        let not_before = UnixSeconds(now.0 - days * DAY_S);
                        let not_after = not_before.plus(90 * DAY_S);
                        Held { not_before, not_after, authority: Some(AuthorityId(0)) }
                    });
                    let name = format!("{id}.example{}.com", id % 5);
                    schedule.want(now, CertificateId(id), vec![name], held);
                }
            }
            let mut turns = 0;
            while let Some(action) = schedule.next(now) {
                prop_assert!(tickets.insert(action.ticket()), "a ticket is used once");
                turns += 1;
                prop_assert!(turns < 1_000, "a turn without end");
                if let Action::Order { ticket, id, .. } = action {
                    prop_assert!(under_way.iter().all(|(_, other)| *other != id), "{id:?} twice");
                    under_way.push((ticket, id));
                } else {
                    let failed = Outcome::Failed(Failure::TryLater);
                    schedule.happened(now, action.ticket(), failed);
                }
            }
            prop_assert!(under_way.len() <= ORDERS_IN_FLIGHT_MAX);
            // Nothing is left that could be begun now.
            prop_assert!(schedule.wake_at(now).is_none_or(|at| at > now));
        }
        // All that is wanted comes in the end, once all goes well.
        for (ticket, _) in under_way {
            schedule.happened(now, ticket, outcome(8, now));
        }
        let mut issued = HashMap::new();
        let end = now.plus(80 * DAY_S);
        while let Some(at) = schedule.wake_at(now).filter(|at| *at < end) {
            now = at;
            while let Some(action) = schedule.next(now) {
                let well = if let Action::Order { id, .. } = action {
                    *issued.entry(id).or_insert(0) += 1;
                    outcome(8, now)
                } else {
                    Outcome::Failed(Failure::TryLater)
                };
                schedule.happened(now, action.ticket(), well);
            }
        }
        for id in (0..40).map(CertificateId) {
            let due = schedule.due(id);
            prop_assert!(due.is_none_or(|due| due > now), "{id:?} {due:?}");
        }
        prop_assert!(issued.values().all(|count| *count <= 3), "{issued:?}");
    }

    #[test]
    fn equal_seeds_and_calls_make_equal_plans(count in 1_u64..60, seed in any::<u64>()) {
        let run = || {
            let settings = Settings::new(vec![Authority::lets_encrypt()]);
            let mut schedule = Schedule::new(settings, seed);
            for id in 0..count {
                let not_before = UnixSeconds(NOW.0 - id * DAY_S);
                let not_after = not_before.plus(90 * DAY_S);
                let held = Held { not_before, not_after, authority: Some(AuthorityId(0)) };
                schedule.want(NOW, CertificateId(id), vec![format!("{id}.example")], Some(held));
            }
            let (mut now, mut actions) = (NOW, Vec::new());
            while actions.len() < 200 {
                while let Some(action) = schedule.next(now) {
                    schedule.happened(now, action.ticket(), Outcome::Failed(Failure::TryLater));
                    actions.push((now, action));
                }
                now = schedule.wake_at(now).unwrap();
            }
            actions
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn a_rate_never_gives_more_than_it_has(
        count in 1_u32..500, period in 60_u64..1_000_000,
        pauses in proptest::collection::vec(0_u64..100_000, 1..300),
    ) {
        let rate = Rate::new(count, period);
        let (mut spent, mut now, mut taken) = (Spent::default(), NOW, Vec::new());
        for pause in pauses {
            now = now.plus(pause);
            while rate.take(&mut spent, now).is_ok() {
                taken.push(now);
            }
            let free_at = rate.free_at(spent, now);
            prop_assert!(free_at > now);
            // A bucket of `count` that gets one back every so often.
            let elapsed = now.since(NOW) as u128 * u128::from(count) / u128::from(period);
            prop_assert!(taken.len() as u128 <= u128::from(count) + elapsed + 1);
        }
    }

    #[test]
    fn a_machine_that_goes_moves_only_what_it_kept(
        machines in proptest::collection::hash_set(any::<u64>(), 2..20),
        certificates in proptest::collection::vec(any::<u64>(), 1..100),
    ) {
        let machines: Vec<_> = machines.into_iter().map(MachineId).collect();
        let (gone, left) = (machines[0], &machines[1..]);
        for id in certificates.into_iter().map(CertificateId) {
            let before = keeper(id, machines.iter().copied()).unwrap();
            let after = keeper(id, left.iter().copied()).unwrap();
            prop_assert!(before == after || before == gone);
            let turned = keeper(id, machines.iter().rev().copied());
            prop_assert_eq!(turned, Some(before));
        }
    }
}

#[test]
fn what_is_not_due_is_not_looked_at() {
    // 100,000 turns of 20,000 that are due in two months: hours if each went through all.
    let plain = Authority { has_renewal_info: false, limits: Limits::default() };
    let mut schedule = Schedule::new(Settings::new(vec![plain]), 1);
    let not_after = NOW.plus(90 * DAY_S);
    let held = Some(Held { not_before: NOW, not_after, authority: Some(AuthorityId(0)) });
    for id in 0..20_000 {
        schedule.want(NOW, CertificateId(id), vec![format!("{id}.example")], held);
    }
    for second in 0..100_000 {
        assert_eq!(schedule.next(NOW.plus(second)), None);
    }
    assert!(schedule.wake_at(NOW).unwrap().since(NOW) > RETRY_S_MIN);
}
