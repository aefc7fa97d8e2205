//! When a backend counts as up, and when as down: after so many checks in a row that say so.

/// What checks have found of one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// None before the first check.
    is_up: Option<bool>,
    /// Checks in a row that say the opposite.
    against: usize,
}

impl Standing {
    /// A standing before the first check, of a backend that was up or down by another one, if that
    /// is known.
    pub(super) fn of(is_up: Option<bool>) -> Self {
        Self { is_up, against: 0 }
    }

    /// Takes in the outcome of a check; returns whether the backend is up, if that is new. The
    /// first check decides by itself.
    pub(super) fn note(&mut self, has_passed: bool, rise: usize, fall: usize) -> Option<bool> {
        let needed = match self.is_up {
            None => 1,
            Some(is_up) if is_up == has_passed => {
                self.against = 0;
                return None;
            }
            Some(true) => fall,
            Some(false) => rise,
        };
        self.against += 1;
        if self.against < needed {
            return None;
        }
        *self = Self { is_up: Some(has_passed), against: 0 };
        Some(has_passed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_known_before_holds_until_as_many_checks_have_said_the_opposite() {
        let mut standing = Standing::of(Some(true));
        assert_eq!(standing.note(true, 2, 2), None);
        assert_eq!([false, false].map(|outcome| standing.note(outcome, 2, 2)), [None, Some(false)]);
        let mut standing = Standing::of(Some(false));
        assert_eq!([true, true].map(|outcome| standing.note(outcome, 2, 2)), [None, Some(true)]);
        assert_eq!(Standing::of(None).note(false, 2, 2), Some(false));
    }

    proptest! {
        /// Held against the whole history: what the last checks that agree were, and how many.
        #[test]
        fn so_many_in_a_row_decide(
            outcomes in proptest::collection::vec(any::<bool>(), 1..60),
            rise in 1..4usize,
            fall in 1..4usize,
        ) {
            let (mut standing, mut is_up) = (Standing::default(), None);
            for (index, has_passed) in outcomes.iter().copied().enumerate() {
                let so_far = outcomes[..=index].iter().rev();
                let in_a_row = so_far.take_while(|outcome| **outcome == has_passed).count();
                let needed = if has_passed { rise } else { fall };
                let is_new =
                    is_up.is_none_or(|is_up| is_up != has_passed && in_a_row >= needed);
                let found = standing.note(has_passed, rise, fall);
                prop_assert_eq!(found, is_new.then_some(has_passed));
                if is_new {
                    is_up = Some(has_passed);
                }
            }
        }
    }
}
