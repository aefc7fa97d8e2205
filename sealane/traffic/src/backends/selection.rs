//! Which of several backends gets a connection: a pure function of what a lane knows of each.
//!
//! A set of backends is a mask, a bit for each: [`preferred`] finds those that none is better than,
//! [`least_loaded`] those of them with the fewest connections for their weight, and [`take_turn`]
//! one of these, so that each has its share.

/// What a lane knows of one backend when it chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Connections open or being opened.
    pub active: u64,
    /// Connections that it may have.
    pub active_max: u64,
    /// Whether it is for when all others are away.
    pub is_backup: bool,
    /// Whether checks have found it down.
    pub is_down: bool,
    /// Until when failures keep it from being chosen.
    pub backoff_until_ms: u64,
    /// The backend's share beside the weights of others; 0: it gets nothing new.
    pub weight: u64,
}

/// Why no backend can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// All that are left have as many connections as they may.
    Full,
    /// None is left.
    Nobody,
    /// No name of one has led anywhere yet.
    Unresolved,
}

/// The backends among `left` that none is better than, at `now_ms`.
///
/// A backup counts only where no other is well. When none is well, the one that may be soonest is
/// tried all the same, those last that checks have found down: a connection is not refused while
/// something may answer.
///
/// # Errors
/// There is none.
pub(super) fn preferred(
    left: u64,
    now_ms: u64,
    candidate: impl Fn(usize) -> Candidate,
) -> Result<u64, Unavailable> {
    let (mut usable, mut well, mut primary, mut is_full) = (0, 0, 0, false);
    for index in members(left) {
        let Candidate { active, active_max, is_backup, is_down, backoff_until_ms, weight } =
            candidate(index);
        let bit = 1 << index;
        match weight > 0 {
            true if active < active_max => usable |= bit,
            is_wanted => is_full |= is_wanted,
        }
        if !is_down && backoff_until_ms <= now_ms {
            well |= bit;
        }
        if !is_backup {
            primary |= bit;
        }
    }
    let best = [usable & well & primary, usable & well].into_iter().find(|set| *set != 0);
    let soonest = || {
        members(usable).min_by_key(|index| {
            let Candidate { is_backup, is_down, backoff_until_ms, .. } = candidate(*index);
            (is_down, backoff_until_ms, is_backup)
        })
    };
    let none = if is_full { Unavailable::Full } else { Unavailable::Nobody };
    best.or_else(|| soonest().map(|index| 1 << index)).ok_or(none)
}

/// Those among `among` with the fewest connections for their weight.
pub(super) fn least_loaded(among: u64, candidate: impl Fn(usize) -> Candidate) -> u64 {
    let (mut least, mut lowest) = (0, None);
    for index in members(among) {
        let Candidate { active, weight, .. } = candidate(index);
        // Of fractions the products across are compared: nothing is rounded, nothing too large.
        let (active, weight) = (u128::from(active), u128::from(weight));
        let order = lowest.map_or(std::cmp::Ordering::Less, |(a, w): (u128, u128)| {
            (active * w).cmp(&(a * weight))
        });
        match order {
            std::cmp::Ordering::Less => (least, lowest) = (1 << index, Some((active, weight))),
            std::cmp::Ordering::Equal => least |= 1 << index,
            std::cmp::Ordering::Greater => {}
        }
    }
    least
}

/// Whose turn it is among `among`, which are some: each has its share, spread as evenly as can be.
/// `credit` is what each is owed; it is kept from turn to turn.
pub(super) fn take_turn(
    among: u64,
    weight: impl Fn(usize) -> i64,
    credit: impl Fn(usize) -> i64,
    mut set_credit: impl FnMut(usize, i64),
) -> usize {
    let (mut chosen, mut most, mut total) = (0, i64::MIN, 0_i64);
    for index in members(among) {
        let (weight, owed) = (weight(index), credit(index));
        let owed = owed.saturating_add(weight);
        total = total.saturating_add(weight);
        set_credit(index, owed);
        if owed > most {
            (chosen, most) = (index, owed);
        }
    }
    set_credit(chosen, most.saturating_sub(total));
    chosen
}

/// The positions of the bits that are set, the lowest first.
pub(super) fn members(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros();
        set = set.checked_sub(1).map(|less| set & less)?;
        usize::try_from(lowest).ok()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate() -> impl Strategy<Value = Candidate> {
        let flags = (any::<bool>(), any::<bool>());
        (0..4u64, 0..4u64, flags, 0..4u64, 0..4u64).prop_map(
            |(active, active_max, (is_backup, is_down), backoff_until_ms, weight)| Candidate {
                active,
                active_max,
                is_backup,
                is_down,
                backoff_until_ms,
                weight,
            },
        )
    }

    /// How good it is to choose it, the lower the better; none if it may not be.
    fn rank(of: &Candidate, now_ms: u64) -> Option<(u8, bool, u64, bool)> {
        if of.weight == 0 || of.active >= of.active_max {
            return None;
        }
        Some(match (!of.is_down && of.backoff_until_ms <= now_ms, of.is_backup) {
            (true, false) => (0, false, 0, false),
            (true, true) => (1, false, 0, false),
            (false, _) => (2, of.is_down, of.backoff_until_ms, of.is_backup),
        })
    }

    proptest! {
        #[test]
        fn those_are_preferred_that_none_is_better_than(
            candidates in proptest::collection::vec(candidate(), 1..64),
            tried: u64,
            now_ms in 0..4u64,
        ) {
            let left = !tried & ((1 << candidates.len()) - 1);
            let found = preferred(left, now_ms, |index| candidates[index]);
            let ranks = || members(left).map(|index| (index, rank(&candidates[index], now_ms)));
            let best = ranks().filter_map(|(_, rank)| rank).min();
            let Some(best) = best else {
                let is_full = members(left).any(|index| candidates[index].weight > 0);
                let why = if is_full { Unavailable::Full } else { Unavailable::Nobody };
                prop_assert_eq!(found, Err(why));
                return Ok(());
            };
            let found = found.unwrap();
            prop_assert!(found != 0 && found & !left == 0);
            for index in members(found) {
                prop_assert_eq!(rank(&candidates[index], now_ms), Some(best));
            }
            // Of those that are well, all that are equally good share.
            if best.0 < 2 {
                let is_in = |(index, rank)| rank != Some(best) || found & (1_u64 << index) != 0;
                prop_assert!(ranks().all(is_in));
            }
        }

        #[test]
        fn each_has_its_share_of_the_turns_and_waits_for_none_too_long(
            weights in proptest::collection::vec(1..=16i64, 1..=12),
            rounds in 1..4usize,
        ) {
            let among = u64::MAX >> (64 - weights.len());
            let total: i64 = weights.iter().sum();
            let credits: Vec<_> = weights.iter().map(|_| std::cell::Cell::new(0)).collect();
            let mut turns = vec![0; weights.len()];
            for turn in 1..=rounds as i64 * total {
                let chosen = take_turn(
                    among,
                    |index| weights[index],
                    |index| credits[index].get(),
                    |index, credit| credits[index].set(credit),
                );
                turns[chosen] += 1;
                for (weight, turns) in weights.iter().zip(&turns) {
                    // What it should have had by now, to less than one turn for each other.
                    let off = (turns * total - turn * weight).abs();
                    prop_assert!(off < total * weights.len() as i64);
                }
            }
            let expected: Vec<i64> = weights.iter().map(|w| w * rounds as i64).collect();
            prop_assert_eq!(turns, expected);
        }

        #[test]
        fn the_least_loaded_have_the_fewest_connections_for_their_weight(
            candidates in proptest::collection::vec(candidate(), 1..=64),
            among: u64,
        ) {
            let among = among & (u64::MAX >> (64 - candidates.len()));
            let weighed: Vec<_> = candidates
                .iter()
                .map(|each| Candidate { weight: each.weight + 1, ..*each })
                .collect();
            let found = least_loaded(among, |index| weighed[index]);
            prop_assert_eq!(found == 0, among == 0);
            let load = |index: usize| weighed[index].active * 60 / weighed[index].weight;
            let least = members(among).map(load).min();
            let expected = members(among).filter(|index| Some(load(*index)) == least);
            prop_assert_eq!(found, expected.fold(0, |set, index| set | 1 << index));
        }
    }

    #[test]
    fn the_members_of_a_set_are_its_bits() {
        assert_eq!(members(0).count(), 0);
        assert_eq!(members(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert!(members(u64::MAX).eq(0..64));
    }
}
