//! Each rule of the plan, on its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use sealane_renewal::{
    AWAY_FAILURES, Action, Authority, AuthorityId, CertificateId, Demand, Failing, Failure, Held,
    Limits, NEW_PATIENCE_S, ORDERS_IN_FLIGHT_MAX, OnDemand, Outcome, RENEWAL_ASK_S, RETRY_S_MAX,
    Rate, Schedule, Scope, Settings, Spent, Ticket, UnixSeconds,
};

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 86_400;
const FIRST: AuthorityId = AuthorityId(0);
const SECOND: AuthorityId = AuthorityId(1);

/// An authority without renewal information or limits.
fn plain() -> Authority {
    Authority { has_renewal_info: false, limits: Limits::default() }
}

fn informing() -> Authority {
    Authority { has_renewal_info: true, limits: Limits::default() }
}

fn schedule(authorities: Vec<Authority>) -> Schedule {
    Schedule::new(Settings::new(authorities), 1)
}

fn name(number: u64) -> Vec<String> {
    vec![format!("{number}.example.com")]
}

/// A certificate of the first authority that began days ago and has a life of days.
fn held(began_days_ago: u64, life_days: u64) -> Option<Held> {
    let not_before = UnixSeconds(NOW.0 - began_days_ago * DAY_S);
    let not_after = not_before.plus(life_days * DAY_S);
    Some(Held { not_before, not_after, authority: Some(FIRST) })
}

/// The orders that may be begun now.
fn orders(schedule: &mut Schedule, now: UnixSeconds) -> Vec<(Ticket, CertificateId, AuthorityId)> {
    actions(schedule, now)
        .into_iter()
        .filter_map(|action| match action {
            Action::Order { ticket, id, authority, .. } => Some((ticket, id, authority)),
            _ => None,
        })
        .collect()
}

fn actions(schedule: &mut Schedule, now: UnixSeconds) -> Vec<Action> {
    std::iter::from_fn(|| schedule.next(now)).collect()
}

/// Goes on until the next order, failing at questions for renewal information; its time too.
fn next_order(schedule: &mut Schedule, mut now: UnixSeconds) -> (UnixSeconds, Action) {
    for _ in 0..100_000 {
        while let Some(action) = schedule.next(now) {
            if matches!(action, Action::Order { .. }) {
                return (now, action);
            }
            schedule.happened(now, action.ticket(), Outcome::Failed(Failure::TryLater));
        }
        now = schedule.wake_at(now).unwrap();
    }
    panic!("no order");
}

fn failed(failure: Failure) -> Outcome {
    Outcome::Failed(failure)
}

fn issued(now: UnixSeconds, days: u64) -> Outcome {
    Outcome::Issued { not_before: now, not_after: now.plus(days * DAY_S) }
}

#[test]
fn a_new_certificate_is_ordered_at_once_and_renewed_after_two_thirds() {
    let mut schedule = schedule(vec![plain()]);
    schedule.want(NOW, CertificateId(1), name(1), None);
    let (ticket, ..) = orders(&mut schedule, NOW)[0];
    assert_eq!(schedule.wake_at(NOW), None);
    schedule.happened(NOW, ticket, issued(NOW, 90));
    assert_eq!(schedule.due(CertificateId(1)), Some(NOW.plus(60 * DAY_S)));
    assert_eq!(schedule.wake_at(NOW), Some(NOW.plus(60 * DAY_S)));
    assert!(actions(&mut schedule, NOW.plus(60 * DAY_S - 1)).is_empty());
    assert_eq!(orders(&mut schedule, NOW.plus(60 * DAY_S)).len(), 1);
}

#[test]
fn a_short_life_is_renewed_after_half() {
    let mut schedule = schedule(vec![plain()]);
    schedule.want(NOW, CertificateId(1), name(1), held(0, 6));
    schedule.want(NOW, CertificateId(2), name(2), held(0, 10));
    assert_eq!(schedule.due(CertificateId(1)), Some(NOW.plus(3 * DAY_S)));
    assert_eq!(schedule.due(CertificateId(2)), Some(NOW.plus(10 * DAY_S / 3 * 2)));
}

#[test]
fn never_more_than_five_orders_are_under_way_and_what_runs_out_first_goes_first() {
    let mut schedule = schedule(vec![plain()]);
    for number in 0..100 {
        // The higher the number, the sooner its end.
        let held = held(70 + number % 20, 90)
            .map(|held| Held { not_after: UnixSeconds(held.not_after.0 - number), ..held });
        schedule.want(NOW, CertificateId(number), name(number), held);
    }
    let begun = orders(&mut schedule, NOW);
    let ids: Vec<_> = begun.iter().map(|(_, CertificateId(id), _)| *id).collect();
    assert_eq!(ids, [99, 79, 59, 39, 19]);
    assert_eq!(begun.len(), ORDERS_IN_FLIGHT_MAX);
    schedule.happened(NOW, begun[0].0, issued(NOW, 90));
    assert_eq!(orders(&mut schedule, NOW).len(), 1);
}

#[test]
fn a_new_one_waits_behind_what_runs_out_within_its_patience() {
    let mut schedule = schedule(vec![plain()]);
    schedule.want(NOW, CertificateId(1), name(1), None);
    let soon = NEW_PATIENCE_S / DAY_S - 1;
    schedule.want(NOW, CertificateId(2), name(2), held(90 - soon, 90));
    schedule.want(NOW, CertificateId(3), name(3), held(90 - soon - 2, 90));
    let ids: Vec<_> = orders(&mut schedule, NOW).into_iter().map(|(_, id, _)| id.0).collect();
    assert_eq!(ids, [2, 1, 3]);
}

/// Answers the first question for renewal information; its time.
fn inform(schedule: &mut Schedule, start: UnixSeconds, end: UnixSeconds) -> UnixSeconds {
    let now = schedule.wake_at(NOW).unwrap();
    let asked = actions(schedule, now);
    let [Action::AskRenewalInfo { ticket, authority: FIRST, .. }] = asked[..] else {
        panic!("{asked:?}");
    };
    schedule.happened(now, ticket, Outcome::RenewalInfo { start, end, retry_after_s: None });
    now
}

#[test]
fn an_authority_is_asked_within_six_hours_and_again_as_it_says() {
    for (said, least, most) in [
        (None, RENEWAL_ASK_S, RENEWAL_ASK_S * 21 / 20),
        (Some(7_200), 7_200, 7_560),
        (Some(0), 60, 63),
        (Some(1_000_000), DAY_S, DAY_S * 21 / 20),
    ] {
        let mut schedule = schedule(vec![informing()]);
        schedule.want(NOW, CertificateId(1), name(1), held(1, 90));
        let now = schedule.wake_at(NOW).unwrap();
        assert!(now.since(NOW) <= RENEWAL_ASK_S);
        let ticket = actions(&mut schedule, now)[0].ticket();
        let [start, end] = [50, 52].map(|days| NOW.plus(days * DAY_S));
        let outcome = Outcome::RenewalInfo { start, end, retry_after_s: said };
        schedule.happened(now, ticket, outcome);
        let again = schedule.wake_at(now).unwrap().since(now);
        assert!((least..=most).contains(&again), "{said:?}: {again}");
    }
}

#[test]
fn renewal_is_at_an_even_moment_of_the_window_drawn_once_and_says_what_it_replaces() {
    let [start, end] = [50, 52].map(|days| NOW.plus(days * DAY_S));
    let mut quarters = [0; 4];
    for seed in 0..400 {
        let mut schedule = Schedule::new(Settings::new(vec![informing()]), seed);
        schedule.want(NOW, CertificateId(1), name(1), held(1, 90));
        inform(&mut schedule, start, end);
        let due = schedule.due(CertificateId(1)).unwrap();
        quarters[usize::try_from(due.since(start) * 4 / (end.since(start) + 1)).unwrap()] += 1;
        // The same window again is the same moment.
        inform(&mut schedule, start, end);
        assert_eq!(schedule.due(CertificateId(1)), Some(due));
        // Another window is another moment.
        let later = end.plus(DAY_S);
        inform(&mut schedule, end, later);
        assert!((end..=later).contains(&schedule.due(CertificateId(1)).unwrap()));
    }
    assert!(quarters.iter().all(|count| (60..=140).contains(count)), "{quarters:?}");
    let mut schedule = schedule(vec![informing()]);
    schedule.want(NOW, CertificateId(1), name(1), held(1, 90));
    let (_, order) = next_order(&mut schedule, NOW);
    assert!(matches!(order, Action::Order { replaces: true, .. }));
}

#[test]
fn a_window_in_the_past_means_now_and_one_that_is_none_changes_nothing() {
    let mut revoked = schedule(vec![informing()]);
    revoked.want(NOW, CertificateId(1), name(1), held(1, 90));
    let now = inform(&mut revoked, UnixSeconds(NOW.0 - 9), UnixSeconds(NOW.0 - 1));
    assert_eq!(orders(&mut revoked, now).len(), 1);
    for (start, end) in [(52, 50), (50, 50), (50, 100)] {
        let mut schedule = schedule(vec![informing()]);
        schedule.want(NOW, CertificateId(1), name(1), held(0, 90));
        inform(&mut schedule, NOW.plus(start * DAY_S), NOW.plus(end * DAY_S));
        assert_eq!(schedule.due(CertificateId(1)), Some(NOW.plus(60 * DAY_S)));
    }
}

#[test]
fn what_is_held_of_another_authority_is_neither_asked_about_nor_replaced() {
    let mut schedule = schedule(vec![informing()]);
    let other = held(70, 90).map(|held| Held { authority: None, ..held });
    schedule.want(NOW, CertificateId(1), name(1), other);
    let begun = actions(&mut schedule, NOW);
    assert!(matches!(begun[..], [Action::Order { replaces: false, .. }]), "{begun:?}");
}

#[test]
fn already_replaced_is_ordered_again_without_saying_so() {
    let mut schedule = schedule(vec![informing()]);
    schedule.want(NOW, CertificateId(1), name(1), held(70, 90));
    let ticket = orders(&mut schedule, NOW)[0].0;
    schedule.happened(NOW, ticket, failed(Failure::AlreadyReplaced));
    let begun = actions(&mut schedule, NOW);
    assert!(matches!(begun[..], [Action::Order { replaces: false, .. }]), "{begun:?}");
}

#[test]
fn one_that_says_it_of_an_order_that_replaces_nothing_is_tried_later() {
    let mut schedule = schedule(vec![informing()]);
    schedule.want(NOW, CertificateId(1), name(1), held(70, 90));
    for _ in 0..2 {
        let ticket = orders(&mut schedule, NOW)[0].0;
        schedule.happened(NOW, ticket, failed(Failure::AlreadyReplaced));
    }
    assert_eq!(orders(&mut schedule, NOW), []);
}

#[test]
fn an_authority_that_is_not_well_is_left_alone_until_the_moment_that_it_told() {
    let mut schedule = schedule(vec![plain()]);
    let until = NOW.plus(6 * HOUR_S);
    for number in 1..=6 {
        schedule.want(NOW, CertificateId(number), name(number), None);
    }
    let first = orders(&mut schedule, NOW)[0].0;
    schedule.happened(NOW, first, failed(Failure::Away { until }));
    assert_eq!(orders(&mut schedule, NOW), [], "the sixth waits as well");
    assert_eq!(orders(&mut schedule, UnixSeconds(until.0 - 1)), []);
    assert_eq!(orders(&mut schedule, until).len(), 1);
}

#[test]
fn a_validation_that_failed_for_names_of_nobody_counts_for_all_of_the_certificates() {
    let mut schedule = schedule(vec![plain()]);
    schedule.want(NOW, CertificateId(1), name(1), None);
    let ticket = orders(&mut schedule, NOW)[0].0;
    let names = vec!["else.example.com".to_owned()];
    schedule.happened(NOW, ticket, failed(Failure::Validation { names }));
    let both = vec!["1.example.com".to_owned(), "2.example.com".to_owned()];
    schedule.want(NOW, CertificateId(2), both, None);
    assert_eq!(orders(&mut schedule, NOW), []);
}

#[test]
fn waits_after_failures_double_from_a_minute_to_a_day() {
    let mut schedule = schedule(vec![plain()]);
    schedule.want(NOW, CertificateId(1), name(1), None);
    let mut now = NOW;
    let mut waits = Vec::new();
    for _ in 0..14 {
        let (at, order) = next_order(&mut schedule, now);
        waits.push(at.since(now));
        now = at;
        // A fault of ours does not count against the authority, which is not away then.
        schedule.happened(now, order.ticket(), failed(Failure::Ours));
    }
    for (doublings, wait) in waits[1..].iter().enumerate() {
        let most = (120 << doublings).min(RETRY_S_MAX);
        assert!((most / 2..=most).contains(wait), "{waits:?}");
    }
    let most = |waits: &[u64]| waits.iter().max().copied().unwrap();
    assert!(waits[1] < 120 && most(&waits) > RETRY_S_MAX / 2, "{waits:?}");
}

#[test]
fn what_is_served_and_runs_out_is_not_left_for_long() {
    let mut schedule = schedule(vec![plain()]);
    let held = held(88, 90);
    let end = held.unwrap().not_after;
    schedule.want(NOW, CertificateId(1), name(1), held);
    let (mut now, mut longest) = (NOW, 0);
    for _ in 0..20 {
        let (at, order) = next_order(&mut schedule, now);
        if at >= end {
            break;
        }
        longest = longest.max(at.since(now));
        assert!(at.since(now) <= (end.since(now) / 3).max(HOUR_S));
        now = at;
        schedule.happened(now, order.ticket(), failed(Failure::Ours));
    }
    assert!(longest > 4 * HOUR_S, "{longest}");
}

/// Fails orders of `failing` until it is away.
fn take_away(schedule: &mut Schedule, failing: AuthorityId) {
    for _ in 0..AWAY_FAILURES {
        let (_, order) = next_order(schedule, NOW);
        assert!(matches!(order, Action::Order { authority, .. } if authority == failing));
        schedule.happened(NOW, order.ticket(), failed(Failure::TryLater));
    }
}

#[test]
fn an_authority_that_is_away_is_left_alone_and_then_tried_by_one_order() {
    let mut schedule = schedule(vec![plain()]);
    for number in 0..20 {
        schedule.want(NOW, CertificateId(number), name(number), held(70, 90));
    }
    take_away(&mut schedule, FIRST);
    assert!(orders(&mut schedule, NOW.plus(59)).is_empty());
    let now = schedule.wake_at(NOW).unwrap();
    assert!((60..=120).contains(&now.since(NOW)));
    let tried = orders(&mut schedule, now);
    assert_eq!(tried.len(), 1);
    // It fails: longer. It works: all.
    schedule.happened(now, tried[0].0, failed(Failure::TryLater));
    let (again, tried) = next_order(&mut schedule, now);
    assert!((120..=240).contains(&again.since(now)));
    assert!(orders(&mut schedule, again).is_empty());
    schedule.happened(again, tried.ticket(), issued(again, 90));
    assert_eq!(orders(&mut schedule, again).len(), ORDERS_IN_FLIGHT_MAX);
}

#[test]
fn only_what_has_less_than_a_third_of_its_margin_goes_to_the_next_authority() {
    let mut schedule = schedule(vec![plain(), plain()]);
    for number in 0..AWAY_FAILURES.into() {
        schedule.want(NOW, CertificateId(number), name(number), None);
    }
    take_away(&mut schedule, FIRST);
    // Margins of 30 days: with 11 left, with 9 left, and with 10 and an hour left.
    schedule.want(NOW, CertificateId(11), name(11), held(79, 90));
    schedule.want(NOW, CertificateId(9), name(9), held(81, 90));
    schedule.want(UnixSeconds(NOW.0 - HOUR_S), CertificateId(10), name(10), held(80, 90));
    let moved = orders(&mut schedule, NOW);
    let is_moved =
        |id| moved.iter().any(|(_, moved, by)| *moved == CertificateId(id) && *by == SECOND);
    assert!(is_moved(9) && is_moved(10) && !is_moved(11), "{moved:?}");
    assert!(moved.iter().all(|(_, _, by)| *by == SECOND));
}

#[test]
fn a_certificate_moves_at_the_moment_at_which_it_becomes_urgent() {
    let mut schedule = schedule(vec![plain(), plain()]);
    schedule.want(NOW, CertificateId(1), name(1), held(79, 90));
    let ticket = orders(&mut schedule, NOW)[0].0;
    let until = NOW.plus(5 * DAY_S);
    let scope = Scope::Account;
    schedule.happened(NOW, ticket, failed(Failure::RateLimited { until, scope }));
    let at = schedule.wake_at(NOW).unwrap();
    assert_eq!(at, NOW.plus(DAY_S));
    assert!(orders(&mut schedule, UnixSeconds(at.0 - 1)).is_empty());
    assert_eq!(orders(&mut schedule, at)[0].2, SECOND);
}

#[test]
fn rate_limited_stops_the_account_until_the_moment_told() {
    let mut schedule = schedule(vec![plain()]);
    for number in 0..20 {
        schedule.want(NOW, CertificateId(number), name(number), held(70, 90));
    }
    let begun = orders(&mut schedule, NOW);
    let until = NOW.plus(7_000);
    let scope = Scope::Account;
    schedule.happened(NOW, begun[0].0, failed(Failure::RateLimited { until, scope }));
    // Outcomes of orders that were under way before may still come.
    schedule.happened(NOW, begun[1].0, issued(NOW, 90));
    assert!(orders(&mut schedule, NOW.plus(6_999)).is_empty());
    assert_eq!(schedule.wake_at(NOW), Some(until));
    assert_eq!(orders(&mut schedule, until).len(), ORDERS_IN_FLIGHT_MAX - 3);
}

#[test]
fn rate_limited_about_one_certificate_stops_no_other() {
    let mut schedule = schedule(vec![plain()]);
    schedule.want(NOW, CertificateId(1), name(1), held(70, 90));
    let ticket = orders(&mut schedule, NOW)[0].0;
    let until = NOW.plus(DAY_S);
    let scope = Scope::Certificate;
    schedule.happened(NOW, ticket, failed(Failure::RateLimited { until, scope }));
    schedule.want(NOW, CertificateId(2), name(2), None);
    assert_eq!(orders(&mut schedule, NOW).len(), 1);
    let due = schedule.due(CertificateId(1)).unwrap();
    assert!((until..until.plus(60)).contains(&due));
}

#[test]
fn what_is_refused_goes_to_the_next_authority_and_then_waits_a_day() {
    let mut schedule = schedule(vec![plain(), plain()]);
    schedule.want(NOW, CertificateId(1), name(1), held(70, 90));
    let (ticket, _, by) = orders(&mut schedule, NOW)[0];
    assert_eq!(by, FIRST);
    schedule.happened(NOW, ticket, failed(Failure::Refused));
    let (ticket, _, by) = orders(&mut schedule, NOW)[0];
    assert_eq!(by, SECOND);
    schedule.happened(NOW, ticket, failed(Failure::Refused));
    let (at, order) = next_order(&mut schedule, NOW);
    assert!((DAY_S * 3 / 4..=DAY_S).contains(&at.since(NOW)));
    assert!(matches!(order, Action::Order { authority: FIRST, .. }));
}

#[test]
fn failed_validations_of_a_name_stay_within_the_limit_whatever_certificates_have_it() {
    let limits = Limits { failed_validations: Some(Rate::new(5, HOUR_S)), ..Limits::default() };
    let mut schedule = schedule(vec![Authority { has_renewal_info: false, limits }]);
    let shared = "shared.example.com".to_owned();
    for number in 0..4 {
        let names = vec![shared.clone(), format!("{number}.example.com")];
        schedule.want(NOW, CertificateId(number), names, None);
    }
    let (mut now, mut failures) = (NOW, Vec::new());
    while now < NOW.plus(5 * HOUR_S) {
        for (ticket, ..) in orders(&mut schedule, now) {
            failures.push(now);
            let names = vec![shared.clone()];
            schedule.happened(now, ticket, failed(Failure::Validation { names }));
        }
        now = schedule.wake_at(now).unwrap();
    }
    // A bucket of five, which gets one back every twelve minutes.
    for (before, at) in (0..).zip(&failures) {
        assert!(before < 5 + at.since(NOW) / 720, "{failures:?}");
    }
    assert!(failures.len() > 6, "{failures:?}");
    schedule.want(now, CertificateId(9), vec!["other.example.com".to_owned()], None);
    assert!(orders(&mut schedule, now).iter().any(|(_, id, _)| *id == CertificateId(9)));
}

/// Machines that take a name over one after the other count its failures on, as one machine would.
#[test]
fn failed_validations_are_counted_on_by_whoever_takes_a_name_over() {
    let rate = Some(Rate::new(5, HOUR_S));
    let limits = || Limits { failed_validations: rate, ..Limits::default() };
    let (mut now, mut told, mut failures) = (NOW, Failing::default(), Vec::new());
    while now < NOW.plus(5 * HOUR_S) {
        let mut schedule = schedule(vec![Authority { has_renewal_info: false, limits: limits() }]);
        schedule.learn_failing("a.example.com", told);
        schedule.want(now, CertificateId(1), vec!["a.example.com".to_owned()], None);
        for (ticket, ..) in orders(&mut schedule, now) {
            failures.push(now);
            schedule.happened(now, ticket, failed(Failure::Validation { names: Vec::new() }));
        }
        let next = schedule.failing("a.example.com").unwrap();
        assert!(next.count >= told.count && next.spent >= told.spent);
        told = next;
        now = told.until;
    }
    for (before, at) in (0..).zip(&failures) {
        assert!(before < 5 + at.since(NOW) / 720, "{failures:?}");
    }
    assert!(failures.len() > 6, "{failures:?}");
}

#[test]
fn new_orders_keep_to_the_accounts_limit_and_renewals_do_not_wait_for_them() {
    let limits = Limits {
        orders: Some(Rate::new(300, 3 * HOUR_S)),
        exempts_renewals: true,
        ..Limits::default()
    };
    let mut schedule = schedule(vec![Authority { has_renewal_info: false, limits }]);
    for number in 0..1_000 {
        schedule.want(NOW, CertificateId(number), name(number), None);
    }
    let (mut now, mut ordered) = (NOW, 0);
    while now < NOW.plus(3 * HOUR_S) {
        for (ticket, ..) in orders(&mut schedule, now) {
            ordered += 1;
            schedule.happened(now, ticket, issued(now, 90));
        }
        now = schedule.wake_at(now).unwrap().max(now.plus(1));
    }
    // Nine tenths at once, and the part that comes back before the time is over.
    assert_eq!(ordered, 270 + 299);
    schedule.want(now, CertificateId(5_000), name(5_000), held(70, 90));
    let ids: Vec<_> = orders(&mut schedule, now).into_iter().map(|(_, id, _)| id.0).collect();
    assert!(ids.contains(&5_000), "{ids:?}");
}

#[test]
fn certificates_of_one_registered_domain_get_a_time_each() {
    let limits =
        Limits { certificates_of_domain: Some(Rate::new(50, 7 * DAY_S)), ..Limits::default() };
    let mut schedule = schedule(vec![Authority { has_renewal_info: false, limits }]);
    for number in 0..100 {
        schedule.want(NOW, CertificateId(number), name(number), None);
    }
    schedule.want(NOW, CertificateId(1_000), vec!["www.example.org".to_owned()], None);
    let (mut now, mut of_domain, mut other) = (NOW, Vec::new(), 0);
    while let Some(at) = schedule.wake_at(now).filter(|at| *at < NOW.plus(8 * DAY_S)) {
        now = at;
        for (ticket, id, _) in orders(&mut schedule, now) {
            if id == CertificateId(1_000) {
                other += 1;
            } else {
                of_domain.push(now);
            }
            schedule.happened(now, ticket, issued(now, 90));
        }
    }
    assert_eq!(of_domain.iter().filter(|at| **at == NOW).count(), 45);
    assert_eq!(of_domain.iter().filter(|at| at.since(NOW) < 7 * DAY_S).count(), 45 + 49);
    assert_eq!(other, 1);
}

#[test]
fn no_more_duplicates_than_allowed_and_failures_give_theirs_back() {
    let limits = Limits { duplicates: Some(Rate::new(5, 7 * DAY_S)), ..Limits::default() };
    let mut schedule = schedule(vec![Authority { has_renewal_info: false, limits }]);
    let (mut now, mut failures, mut issues) = (NOW, 0, 0);
    schedule.want(now, CertificateId(1), name(1), None);
    while now < NOW.plus(DAY_S) {
        for (ticket, ..) in orders(&mut schedule, now) {
            if failures < 8 {
                failures += 1;
                schedule.happened(now, ticket, failed(Failure::Ours));
            } else {
                issues += 1;
                schedule.happened(now, ticket, issued(now, 90));
                // The store lost it.
                schedule.want(now, CertificateId(1), name(1), None);
            }
        }
        let Some(at) = schedule.wake_at(now) else { break };
        now = at;
    }
    assert_eq!((failures, issues), (8, 5));
}

#[test]
fn a_lease_of_another_is_waited_for_and_counts_as_no_order() {
    let limits = Limits { orders: Some(Rate::new(1, DAY_S)), ..Limits::default() };
    let mut schedule = schedule(vec![Authority { has_renewal_info: false, limits }]);
    schedule.want(NOW, CertificateId(1), name(1), None);
    let ticket = orders(&mut schedule, NOW)[0].0;
    let until = NOW.plus(60);
    schedule.happened(NOW, ticket, Outcome::HeldByAnother { until });
    let (at, order) = next_order(&mut schedule, NOW);
    assert!((until..until.plus(10)).contains(&at));
    // Meanwhile the other has renewed it.
    let now = at;
    schedule.want(now, CertificateId(1), name(1), held(0, 90));
    schedule.happened(now, order.ticket(), Outcome::HeldByAnother { until: now.plus(60) });
    assert_eq!(schedule.due(CertificateId(1)), Some(NOW.plus(60 * DAY_S)));
}

#[test]
fn what_is_forgotten_is_not_ordered_and_its_outcome_changes_nothing() {
    let mut schedule = schedule(vec![informing()]);
    schedule.want(NOW, CertificateId(1), name(1), None);
    let ticket = orders(&mut schedule, NOW)[0].0;
    schedule.forget(CertificateId(1));
    schedule.happened(NOW, ticket, issued(NOW, 90));
    schedule.happened(NOW, ticket, issued(NOW, 90));
    assert!(schedule.is_empty());
    assert_eq!(schedule.wake_at(NOW), None);
}

#[test]
fn what_is_forgotten_and_wanted_again_is_not_ordered_a_second_time_meanwhile() {
    let mut schedule = schedule(vec![plain()]);
    schedule.want(NOW, CertificateId(1), name(1), None);
    let ticket = orders(&mut schedule, NOW)[0].0;
    schedule.forget(CertificateId(1));
    schedule.want(NOW, CertificateId(1), name(1), None);
    assert!(orders(&mut schedule, NOW).is_empty());
    schedule.happened(NOW, ticket, failed(Failure::Ours));
    let (at, _) = next_order(&mut schedule, NOW);
    assert!(at > NOW);
    assert!(orders(&mut schedule, at).is_empty());
}

#[test]
fn a_name_on_demand_is_asked_about_once_and_ordered_if_allowed() {
    let mut schedule = schedule(vec![plain()]);
    let id = CertificateId(1);
    assert_eq!(schedule.on_demand(NOW, id, "a.example"), Demand::Begun);
    assert_eq!(schedule.on_demand(NOW, id, "a.example"), Demand::UnderWay);
    let begun = actions(&mut schedule, NOW);
    let [Action::AskPermission { ticket, .. }] = begun[..] else { panic!("{begun:?}") };
    assert_eq!(schedule.on_demand(NOW, id, "a.example"), Demand::UnderWay);
    schedule.happened(NOW, ticket, Outcome::Permission { is_given: true });
    let ticket = orders(&mut schedule, NOW)[0].0;
    assert_eq!(schedule.on_demand(NOW, id, "a.example"), Demand::UnderWay);
    schedule.happened(NOW, ticket, issued(NOW, 90));
    assert_eq!(schedule.on_demand(NOW, id, "a.example"), Demand::Held);
}

#[test]
fn a_name_that_is_refused_or_fails_is_left_alone_from_a_minute_to_an_hour() {
    let mut schedule = schedule(vec![plain()]);
    let id = CertificateId(1);
    let mut now = NOW;
    for refusal in 0..10_u32 {
        assert_eq!(schedule.on_demand(now, id, "a.example"), Demand::Begun);
        let ticket = actions(&mut schedule, now)[0].ticket();
        if refusal % 2 == 0 {
            schedule.happened(now, ticket, Outcome::Permission { is_given: false });
        } else {
            schedule.happened(now, ticket, Outcome::Permission { is_given: true });
            let ticket = orders(&mut schedule, now)[0].0;
            schedule.happened(now, ticket, failed(Failure::Validation { names: Vec::new() }));
        }
        assert!(schedule.is_empty());
        let Demand::Refused { until } = schedule.on_demand(now, id, "a.example") else { panic!() };
        let most = (120 << refusal).min(HOUR_S);
        assert!((most / 2..=most).contains(&until.since(now)), "{refusal}: {until:?}");
        now = until;
    }
}

#[test]
fn a_name_of_which_nobody_could_say_anything_is_asked_about_again_after_a_minute_or_two() {
    let mut schedule = schedule(vec![plain()]);
    let id = CertificateId(1);
    let mut now = NOW;
    for _ in 0..10 {
        assert_eq!(schedule.on_demand(now, id, "a.example"), Demand::Begun);
        let ticket = actions(&mut schedule, now)[0].ticket();
        schedule.happened(now, ticket, failed(Failure::TryLater));
        let Demand::Refused { until } = schedule.on_demand(now, id, "a.example") else { panic!() };
        assert!((60..=120).contains(&until.since(now)), "{until:?}");
        now = until;
    }
}

#[test]
fn an_allowed_name_goes_on_after_a_restart_and_is_refused_as_before() {
    let on_demand = OnDemand { waiting_max: 1, ..OnDemand::default() };
    let settings = Settings { on_demand, ..Settings::new(vec![plain()]) };
    let mut schedule = Schedule::new(settings, 1);
    let id = CertificateId(1);
    schedule.resume_demand(NOW, id, "a.example");
    assert_eq!(schedule.on_demand(NOW, id, "a.example"), Demand::UnderWay);
    let another = schedule.on_demand(NOW, CertificateId(2), "b.example");
    assert_eq!(another, Demand::Full, "it is one of those under way");
    let ticket = orders(&mut schedule, NOW)[0].0;
    schedule.happened(NOW, ticket, failed(Failure::Validation { names: Vec::new() }));
    assert!(!schedule.contains(id));
    assert!(matches!(schedule.on_demand(NOW, id, "a.example"), Demand::Refused { .. }));
}

#[test]
fn names_under_way_and_names_remembered_have_a_limit() {
    let rate = Rate::new(1_000, 60);
    let on_demand = OnDemand { waiting_max: 3, refused_max: 2, rate };
    let settings = Settings { on_demand, ..Settings::new(vec![plain()]) };
    let mut schedule = Schedule::new(settings, 1);
    let begin = |schedule: &mut Schedule, number: u64| {
        schedule.on_demand(NOW, CertificateId(number), &format!("{number}.example"))
    };
    assert_eq!([1, 2, 3].map(|number| begin(&mut schedule, number)), [Demand::Begun; 3]);
    assert_eq!(begin(&mut schedule, 4), Demand::Full);
    for action in actions(&mut schedule, NOW) {
        schedule.happened(NOW, action.ticket(), Outcome::Permission { is_given: false });
    }
    let again = [1, 2, 3].map(|number| begin(&mut schedule, number));
    assert_eq!(again.iter().filter(|demand| **demand == Demand::Begun).count(), 1, "{again:?}");
}

#[test]
fn names_on_demand_come_no_faster_than_their_rate() {
    let mut schedule = schedule(vec![plain()]);
    let begun = (0..50).filter(|number| {
        let name = format!("{number}.example");
        schedule.on_demand(NOW, CertificateId(*number), &name) == Demand::Begun
    });
    assert_eq!(begun.count(), 9);
}

#[test]
fn a_rate_keeps_a_tenth_back_and_reserves_one_after_the_other() {
    let rate = Rate::new(10, 1_000);
    let mut spent = Spent::default();
    let taken = (0..20).filter(|_| rate.take(&mut spent, NOW).is_ok()).count();
    assert_eq!(taken, 9);
    assert_eq!(rate.take(&mut spent, NOW), Err(NOW.plus(100)));
    assert_eq!(rate.reserve(&mut spent, NOW), NOW.plus(100));
    assert_eq!(rate.reserve(&mut spent, NOW), NOW.plus(200));
    rate.give_back(&mut spent);
    assert_eq!(rate.free_at(spent, NOW), NOW.plus(200));
    assert!(!spent.is_nothing(NOW) && spent.is_nothing(NOW.plus(1_000)));
}

#[test]
fn renews_at_once_when_asked() {
    let mut schedule = schedule(vec![informing(), plain()]);
    let id = CertificateId(1);
    schedule.want(NOW, id, name(1), held(1, 90));
    assert!(!schedule.renew(NOW, CertificateId(2)), "it looks after no such certificate");
    assert!(schedule.renew(NOW, id));
    let (at, order) = next_order(&mut schedule, NOW);
    assert_eq!(at, NOW);
    schedule.happened(NOW, order.ticket(), failed(Failure::Refused));
    let (_, order) = next_order(&mut schedule, NOW);
    assert!(matches!(order, Action::Order { authority: SECOND, .. }));
    schedule.happened(NOW, order.ticket(), failed(Failure::TryLater));
    assert!(schedule.due(id).is_some_and(|at| at > NOW), "it waits after a failure");
    assert!(schedule.renew(NOW, id));
    let order = orders(&mut schedule, NOW).pop().unwrap();
    assert!(schedule.renew(NOW, id), "one is under way");
    assert!(orders(&mut schedule, NOW).is_empty(), "once");
    schedule.happened(NOW, order.0, Outcome::HeldByAnother { until: NOW.plus(7 * HOUR_S) });
    // Renewal information from the authority does not delay it.
    let ask = actions(&mut schedule, NOW.plus(6 * HOUR_S)).pop().unwrap();
    let (start, end) = (NOW.plus(40 * DAY_S), NOW.plus(41 * DAY_S));
    let answer = Outcome::RenewalInfo { start, end, retry_after_s: None };
    schedule.happened(NOW, ask.ticket(), answer);
    let (at, order) = next_order(&mut schedule, NOW);
    assert!(at < NOW.plus(8 * HOUR_S));
    schedule.happened(at, order.ticket(), issued(at, 90));
    assert!(schedule.due(id).is_some_and(|due| due > at.plus(30 * DAY_S)), "as any other then");
}

#[test]
fn a_renewal_asked_for_goes_first() {
    let mut schedule = schedule(vec![plain()]);
    schedule.want(NOW, CertificateId(1), name(1), held(80, 90));
    schedule.want(NOW, CertificateId(2), name(2), held(1, 90));
    schedule.renew(NOW, CertificateId(2));
    let order: Vec<_> = orders(&mut schedule, NOW).into_iter().map(|(_, id, _)| id).collect();
    assert_eq!(order, [CertificateId(2), CertificateId(1)]);
}
