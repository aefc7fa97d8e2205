//! What had to hold, and whether it did.

use sealane_lab_harness::strategies::check;
use sealane_lab_model::document::StrategyCheck;

use crate::{
    clock::{DAY, START},
    load,
    plan::Plan,
    tally::Tally,
    tickets::Counts,
};

/// The checks, from what was counted.
pub(crate) fn checks(plan: &Plan, tally: &Tally, tickets: Counts) -> Vec<StrategyCheck> {
    vec![
        served(tally),
        once(tally),
        limits(plan, tally),
        revocation(plan, tally),
        check(
            "L5",
            "every machine opens every machine's ticket at the same instant, and within its \
             lifetime less what two clocks differ by",
            (tickets.opened > 0)
                .then_some(tickets.not_opened + tickets.not_made + tickets.refused == 0),
            format!(
                "{} of {} not opened, {} of {} not made, {} clocks refused",
                tickets.not_opened, tickets.opened, tickets.not_made, tickets.made, tickets.refused
            ),
        ),
        load(plan, tally),
    ]
}

fn load(plan: &Plan, tally: &Tally) -> StrategyCheck {
    let over = load::hours_over(&tally.hours);
    let most = tally.hours.iter().map(|hour| hour.heard).max().unwrap_or(0);
    check(
        "L6",
        "what a machine hears of etcd is bounded by orders and by machines that come or go, and \
         does not grow with the number of machines",
        Some(over == 0),
        format!(
            "{over} hours of {} over the bound; at most {most} changes in an hour on each of {} \
             machines",
            load::hours(plan),
            plan.machines
        ),
    )
}

fn served(tally: &Tally) -> StrategyCheck {
    let unexplained = tally.expired - tally.expired_in_absence;
    let left = tally.least_left.map_or_else(
        || "none was renewed".to_owned(),
        |left| format!("{:.1} days were left at least", left as f64 / DAY as f64),
    );
    check(
        "L1",
        "no certificate is served after its end, unless the authority was away for longer than the \
         margin",
        Some(unexplained == 0 && tally.missing == 0),
        format!(
            "{} expired, {} of them in an absence longer than the margin; {left}; {} names are \
             without one at the end that no limit delays",
            tally.expired, tally.expired_in_absence, tally.missing
        ),
    )
}

fn once(tally: &Tally) -> StrategyCheck {
    check(
        "L2",
        "no name is ordered twice: no certificate for one that is replaced already, and nothing \
         written without the lease",
        (tally.worst_moments > 0).then_some(tally.ordered_twice + tally.written_late == 0),
        format!(
            "{} issued twice, {} written late; machines died or stopped within {} orders, {} \
             orders were taken over, {} writes fenced off",
            tally.ordered_twice,
            tally.written_late,
            tally.worst_moments,
            tally.resumed,
            tally.fenced
        ),
    )
}

fn limits(plan: &Plan, tally: &Tally) -> StrategyCheck {
    check(
        "L3",
        "orders stay within the authority's limits: it refuses none for its rate",
        (tally.orders_counted > 0).then_some(tally.refused_for_rate == [0; 4]),
        format!(
            "{} refused for the account, {} for a registered domain, {} for duplicates, {} for \
             failed validations; {} orders counted, at most {} in 3 h of {} and what comes back \
             meanwhile; all others are renewals, which are exempt",
            tally.refused_for_rate[3],
            tally.refused_for_rate[2],
            tally.refused_for_rate[1],
            tally.refused_for_rate[0],
            tally.orders_counted,
            tally.counted_in_3_h_max,
            plan.orders
        ),
    )
}

fn revocation(plan: &Plan, tally: &Tally) -> StrategyCheck {
    let happened = plan.revocation().to <= START + u64::from(plan.days) * DAY;
    check(
        "L4",
        "what the authority revokes is replaced before it does, a day after it says so",
        happened.then_some(tally.revoked_served == 0),
        format!("{} of about {} served revoked", tally.revoked_served, tally.revoked),
    )
}
