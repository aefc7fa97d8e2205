//! What it costs to move a contended cache line from one processor to another, here or on a machine
//! that somebody else measured: [`profile`]. It is the one figure that [`replay`](crate::replay)
//! has to know of a machine: `s`.
//!
//! Two threads on two processors add to two lines in turn, in opposite order, so that each finds
//! the line it wants in the other's cache, nearly every time. With one line, a thread adds many
//! times before the line is taken from it, and the cost comes out too low (on a Xeon in 2026: 17.6
//! ns per addition of both threads together, 35 ns of each). `s` is what an addition costs each
//! thread more than it costs a thread alone: that is what a thread of the replay waits, and how
//! long it keeps the next one waiting.

mod ping_pong;
mod profiles;

use fastrand::Rng;
use sealane_lab_harness::{interrupt::Interrupt, machine};
use sealane_lab_model::{
    document::{Machine, Profile},
    error::Error,
    statistics::Spread,
};

use crate::transfer::ping_pong::Meter;

/// What a forecast assumes of a machine: `measured` is this one.
///
/// # Errors
/// Nobody knows a machine of that name; there is one processor only, they were never free, or
/// Ctrl-C.
pub fn profile(name: &str, stop: &Interrupt) -> Result<Profile, Error> {
    if name == MEASURED {
        return measure(&machine::describe(), stop);
    }
    profiles::profile(name).ok_or_else(|| {
        let known = profiles::names().collect::<Vec<_>>().join(", ");
        Error::Check(format!("--profile {name}: there is {MEASURED} (this machine), {known}"))
    })
}

/// Measures pairs of this machine's processors, of which there must be two.
fn measure(machine: &Machine, stop: &Interrupt) -> Result<Profile, Error> {
    let processors = cores(machine);
    if processors.len() < 2 {
        return Err(Error::Unsupported(format!(
            "a line moves between two processors, and this process may run on {} only; give it \
             more, or take the figure of a machine you know: --profile {}",
            processors.len(),
            profiles::names().collect::<Vec<_>>().join(", ")
        )));
    }
    let all = pairs(&processors);
    let pairs_in_all = all.len();
    let mut meters: Vec<Meter> = sample(all).into_iter().map(Meter::new).collect();
    for _ in 0..ROUNDS {
        for meter in &mut meters {
            if stop.is_pressed() {
                return Err(Error::Interrupted);
            }
            meter.round()?;
        }
    }
    let pairs = meters.iter().map(Meter::transfer_ns).collect::<Result<Vec<_>, _>>()?;
    let Spread { median, min, max } = middle(&pairs)?;
    Ok(Profile {
        name: MEASURED.to_owned(),
        transfer_ns: median,
        source: format!(
            "measured here, {}: two threads add to two lines in turn; median of {} of \
             {pairs_in_all} pairs of processors, single windows {min:.0} to {max:.0} ns",
            machine.processor,
            pairs.len()
        ),
    })
}

/// The middle pair's, and the ends of all windows.
fn middle(pairs: &[Spread]) -> Result<Spread, Error> {
    let figures =
        |figure: fn(&Spread) -> f64| Spread::of(&pairs.iter().map(figure).collect::<Vec<_>>());
    match (figures(|of| of.median), figures(|of| of.min), figures(|of| of.max)) {
        (Some(Spread { median, .. }), Some(least), Some(most)) if median > 0.0 => {
            Ok(Spread { median, min: least.min, max: most.max })
        }
        _ => Err(Error::Check(
            "two threads that write the same lines were not slower than one: the processors are \
             not real ones, or something else was measured; take a machine you know: --profile NAME"
                .into(),
        )),
    }
}

/// One processor per core: siblings share a cache, and a replay's threads have a core each. If
/// there is one core, its siblings.
fn cores(machine: &Machine) -> Vec<usize> {
    let order = &machine.pin_order;
    let cores = order.len().div_ceil(machine.threads_per_core.max(1));
    order.iter().copied().take(if cores > 1 { cores } else { order.len() }).collect()
}

fn pairs(processors: &[usize]) -> Vec<[usize; 2]> {
    let others = |first: usize| processors[first + 1..].iter().copied();
    (0..processors.len())
        .flat_map(|first| others(first).map(move |second| [processors[first], second]))
        .collect()
}

/// Not more than [`PAIRS_MAX`], always the same ones.
fn sample(mut pairs: Vec<[usize; 2]>) -> Vec<[usize; 2]> {
    if pairs.len() > PAIRS_MAX {
        Rng::with_seed(SAMPLE_SEED).shuffle(&mut pairs);
        pairs.truncate(PAIRS_MAX);
        pairs.sort_unstable();
    }
    pairs
}

/// The profile that is this machine.
pub const MEASURED: &str = "measured";
/// Pairs that are measured; all, up to 12 processors.
const PAIRS_MAX: usize = 66;
const SAMPLE_SEED: u64 = 1;
/// Over all pairs, so that what changes meanwhile is not one pair's.
const ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_figure() {
        let machine = machine::describe();
        if machine.pin_order.len() < 2 {
            return;
        }
        let profile = measure(&machine, &Interrupt::default()).expect("a figure");
        assert!(profile.transfer_ns > 0.0 && profile.transfer_ns.is_finite(), "{profile:?}");
        let all = pairs(&cores(&machine)).len();
        let told = format!("median of {} of {all} pairs", all.min(PAIRS_MAX));
        assert!(profile.source.contains(&told), "{profile:?}");
    }

    #[test]
    fn one_processor_is_refused_with_what_to_do() {
        let machine = Machine { pin_order: vec![3], threads_per_core: 1, ..Machine::default() };
        let error = measure(&machine, &Interrupt::default()).expect_err("one").to_string();
        assert!(error.contains("may run on 1 only"), "{error}");
        assert!(error.contains("--profile altra"), "{error}");
    }

    #[test]
    fn ctrl_c_ends_it() {
        let stop = Interrupt::default();
        stop.press();
        let machine = Machine { pin_order: vec![0, 1], ..Machine::default() };
        let error = measure(&machine, &stop).expect_err("it was stopped");
        assert!(matches!(error, Error::Interrupted), "{error}");
    }

    #[test]
    fn a_machine_nobody_knows_is_answered_with_those_that_are_known() {
        let error = profile("cray", &Interrupt::default()).expect_err("unknown").to_string();
        for name in profiles::names().chain([MEASURED]) {
            assert!(error.contains(name), "{name} is not in {error}");
        }
    }

    #[test]
    fn siblings_take_no_part_unless_there_is_nothing_else() {
        let machine = |threads_per_core, order: &[usize]| Machine {
            threads_per_core,
            pin_order: order.into(),
            ..Machine::default()
        };
        assert_eq!(cores(&machine(2, &[0, 1, 2, 3])), [0, 1]);
        assert_eq!(cores(&machine(2, &[0, 1])), [0, 1]);
        assert_eq!(cores(&machine(1, &[4, 5, 6])), [4, 5, 6]);
    }

    #[test]
    fn many_processors_are_sampled() {
        assert_eq!(pairs(&[0, 1, 2]), [[0, 1], [0, 2], [1, 2]]);
        let many = pairs(&(0..256).collect::<Vec<_>>());
        let sampled = sample(many.clone());
        assert_eq!((many.len(), sampled.len()), (32_640, PAIRS_MAX));
        assert_eq!(sampled, sample(many));
        assert!(sampled.iter().any(|pair| pair[1] > 200), "{sampled:?}");
    }
}
