//! The room of the fleet: the command `fleet`, which simulates machines that renew the certificates
//! of a million names, with the core that the agent runs.
//!
//! ```text
//! Plan --> World: events by time                           Ratchet: a lane's tickets on each
//!          machines, each a sealane_renewal::Schedule       machine, by its own clock
//!          Store: leases, tokens, orders   Authority: limits, windows, absence
//!            '--> Tally --> checks L1 to L6, orders and questions of each hour
//! ```
//!
//! Nothing is measured here but counts: equal seeds give equal documents.
#![forbid(unsafe_code)]
// Numbers of machines and names are indices; they have 32 bits, and so has `usize` at least.
mod authority;
mod clock;
mod judge;
mod load;
mod members;
mod plan;
mod store;
mod tally;
#[cfg(test)]
mod tests;
mod tickets;
mod world;

use std::{env, fmt::Write as _, io, io::Write as _};

use sealane_lab_harness::{
    interrupt::Interrupt, journal::Journal, options::Json, progress::Progress,
};
use sealane_lab_model::{
    document::{Fleet, FleetFigure, FleetHour, FleetMoment, StrategyCheck},
    error::Error,
};

use clock::{DAY, HOUR, START};
use plan::Plan;
use tally::Tally;
use tickets::{Counts, Ratchet};
use world::World;

/// The arguments of `fleet`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// Machines
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    machines: u32,
    /// Names, a certificate each
    #[arg(long, default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(100..=5_000_000))]
    names: u32,
    /// Days
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    days: u32,
    /// Days for which the authority is away, from the 40th on
    #[arg(long, default_value_t = 3, value_name = "DAYS",
        value_parser = clap::value_parser!(u32).range(0..=40))]
    away_days: u32,
    /// New orders that the authority gives the account in 3 hours
    #[arg(long, default_value_t = 300, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..))]
    orders: u32,
    /// What chance goes by: equal seeds give equal fleets
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    json: Json,
}

/// `true` if every check holds.
///
/// # Errors
/// What stopped it.
pub fn run(arguments: &Arguments) -> Result<bool, Error> {
    let interrupt = Interrupt::catch()?;
    let mut journal = Journal::begin(env::args().collect(), arguments.json.path());
    let plan = Plan {
        seed: arguments.seed,
        machines: arguments.machines,
        names: arguments.names,
        days: arguments.days,
        orders: arguments.orders,
        away_days: arguments.away_days,
        breach: None,
    };
    let mut progress = Progress::new(plan.days.into());
    let (tally, counts) = simulate(&plan, |day| {
        progress.step(&format!("day {} of {}", day + 1, plan.days));
        if day > 0 {
            progress.done();
        }
        if interrupt.is_pressed() { Err(Error::Interrupted) } else { Ok(()) }
    })?;
    progress.done();
    drop(progress);
    let fleet = document(&plan, &tally, judge::checks(&plan, &tally, counts));
    let holds = fleet.checks.iter().all(|check| check.holds != Some(false));
    let text = text(&fleet);
    journal.run.fleet = Some(fleet);
    journal.save(true)?;
    io::stdout().write_all(text.as_bytes()).map_err(Error::io("standard output"))?;
    Ok(holds)
}

/// Runs all days; `each` is called before each of them.
fn simulate(
    plan: &Plan,
    mut each: impl FnMut(u32) -> Result<(), Error>,
) -> Result<(Tally, Counts), Error> {
    let mut world = World::new(plan.clone());
    let mut ratchet = Ratchet::new(plan.seed, &world.skews())
        .ok_or_else(|| Error::Check("no ticket root could be made".to_owned()))?;
    for day in 0..plan.days {
        each(day)?;
        world.run_day(day);
        load::run_day(plan, START + u64::from(day) * DAY, &mut world.tally);
        ratchet.run_day(START + u64::from(day) * DAY);
    }
    Ok((world.tally, ratchet.counts))
}

fn document(plan: &Plan, tally: &Tally, checks: Vec<StrategyCheck>) -> Fleet {
    let moment = |name: &str, from: u64, to: u64| FleetMoment {
        name: name.to_owned(),
        from_day: (from - START) as f64 / DAY as f64,
        to_day: (to - START) as f64 / DAY as f64,
    };
    let [store, authority, revocation] =
        [plan.store_away(), plan.authority_away(), plan.revocation()];
    let moments = [
        moment("names imported", plan.import_at(), plan.import_at()),
        moment("store away", store.from, store.to),
        moment("authority away", authority.from, authority.to),
        moment("revocation", revocation.from, revocation.to),
    ];
    let days = f64::from(plan.days);
    let hour = |hour: &tally::Hour| FleetHour {
        orders: hour.orders,
        issued: hour.issued,
        asks: hour.asks,
    };
    Fleet {
        machines: plan.machines,
        names: plan.names,
        days: plan.days,
        seed: plan.seed,
        orders_in_3_h: plan.orders,
        hours: tally.hours.iter().map(hour).collect(),
        moments: moments.into_iter().filter(|moment| moment.from_day < days).collect(),
        figures: figures(plan, tally),
        checks,
    }
}

/// Counts by name, in the order in which they are told.
fn figures(plan: &Plan, tally: &Tally) -> Vec<FleetFigure> {
    let most = |of: fn(&tally::Hour) -> u32| tally.hours.iter().map(of).max().unwrap_or(0);
    let sum =
        |of: fn(&tally::Hour) -> u32| tally.hours.iter().map(|hour| f64::from(of(hour))).sum();
    let count = |value: u64| value as f64;
    let heard = tally.hours.iter().map(|hour| hour.heard);
    let asked = tally.hours.iter().map(|hour| load::asked(plan, hour));
    let in_a_second = |sum: u64| count(sum) / (load::hours(plan) * HOUR) as f64;
    let figures: [(&str, f64); 19] = [
        ("certificates issued", sum(|hour| hour.issued)),
        ("orders", sum(|hour| hour.orders)),
        ("most orders in an hour", most(|hour| hour.orders).into()),
        ("questions for renewal information", sum(|hour| hour.asks)),
        ("most questions in an hour", most(|hour| hour.asks).into()),
        ("most orders under way", tally.in_flight_max as f64),
        ("orders that the account's limit counts", count(tally.orders_counted)),
        ("longest wait of a new name in hours", count(tally.first_wait_max) / HOUR as f64),
        ("deaths of machines", count(tally.deaths)),
        ("names that moved to another machine", count(tally.moved)),
        ("orders taken over", count(tally.resumed)),
        ("leases that another had", count(tally.conflicts)),
        ("writes fenced off", count(tally.fenced)),
        ("orders replaced already", count(tally.replaced_already)),
        ("requests without an answer", count(tally.unanswered)),
        ("validations that failed", count(tally.validations_failed)),
        ("changes of etcd that a machine hears in a second", in_a_second(heard.clone().sum())),
        ("most changes of etcd that a machine hears in an hour", count(heard.max().unwrap_or(0))),
        ("requests to etcd in a second", in_a_second(asked.sum())),
    ];
    figures.map(|(name, value)| FleetFigure { name: name.to_owned(), value }).into()
}

/// What a terminal shows.
fn text(fleet: &Fleet) -> String {
    let Fleet { machines, names, days, seed, .. } = fleet;
    let mut text =
        format!("{machines} machines, {names} names, {days} days, by the seed {seed}\n\n");
    for FleetFigure { name, value } in &fleet.figures {
        let _ = writeln!(text, "{name:<44}{:>14}", sealane_lab_model::number::number(*value));
    }
    text.push('\n');
    for StrategyCheck { id, claim, holds, shown } in &fleet.checks {
        let word = match holds {
            None => "not decided here",
            Some(false) => "FAILS",
            Some(true) => "holds",
        };
        let _ = writeln!(text, "{id} {word}: {claim}: {shown}");
    }
    text
}
