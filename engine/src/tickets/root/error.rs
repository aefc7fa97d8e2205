//! Errors in a root: [`TicketRootError`].

use super::text::{TEXT_BYTES_MAX, TEXT_TITLE, TEXT_VERSION};
use super::{Epoch, LIFETIME_S_MAX, LIFETIME_S_MIN, RATCHET_STEPS_MAX, ROOTS_MAX, SHARED_KEYS_MAX};

/// An error in a ticket root, or in the clock that it is used under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketRootError {
    /// The machine's clock is too far ahead of the root: a wrong clock, or a root long unused.
    #[error(
        "ticket root: it is of epoch {}, the clock asks for epoch {}, more than \
         {RATCHET_STEPS_MAX} ahead; no tickets until the clock is set right or the root is \
         replaced by a new one",
        root.0, clock.0
    )]
    ClockAhead {
        /// The root's epoch.
        root: Epoch,
        /// The epoch that the clock asks for.
        clock: Epoch,
    },
    /// The machine's clock is behind the root: a wrong clock now, or when the root was advanced.
    #[error(
        "ticket root: it is of epoch {}, the clock says epoch {}, whose keys are erased; no \
         tickets until the clock is set right or the root is replaced by a new one",
        root.0, clock.0
    )]
    ClockBehind {
        /// The root's epoch.
        root: Epoch,
        /// The clock's epoch.
        clock: Epoch,
    },
    /// The operator's text has an epoch that is no number.
    #[error("ticket root: field 4, the epoch, is not a whole number; write the root anew")]
    Epoch,
    /// The operator's text has too many or too few fields.
    #[error(
        "ticket root: expected five fields, `{TEXT_TITLE} {TEXT_VERSION} <lifetime_s> <epoch> \
         <hex>`; write the root anew"
    )]
    Fields,
    /// The operator's text has a lifetime, or the caller gave one, that is out of range.
    #[error(
        "ticket root: the lifetime (field 3) must be {LIFETIME_S_MIN} to {LIFETIME_S_MAX} whole \
         seconds"
    )]
    Lifetime,
    /// The operator's text has roots that disagree on how long an epoch lasts.
    #[error("ticket root: its lines have different lifetimes (field 3); write all of them anew")]
    Lifetimes,
    /// A root is announced for an epoch that is not after those before it.
    #[error(
        "ticket root: the epoch (field 4) of a root that is announced must be after that of the \
         root before it; put the lines in their order"
    )]
    Order,
    /// There are too many roots.
    #[error("ticket root: more than {ROOTS_MAX} roots; wait until those announced hold")]
    Roots,
    /// The caller shares no secret, or too many.
    #[error("ticket root: {count} shared secrets; give 1 to {SHARED_KEYS_MAX}, the newest first")]
    SharedCount {
        /// Secrets given.
        count: usize,
    },
    /// The caller's lifetime for a shared root is out of range.
    #[error("ticket root: a lifetime of {lifetime_s} s; it must be 1 to {LIFETIME_S_MAX} s")]
    SharedLifetime {
        /// The invalid lifetime.
        lifetime_s: u32,
    },
    /// The text form of a root of shared secrets: a fault of the caller.
    #[error("ticket root: a shared one has no text form; keep its secrets where they came from")]
    SharedText,
    /// The operator's text has a secret that is not 64 hexadecimal digits.
    #[error("ticket root: field 5, the secret, is not 64 hexadecimal digits; write the root anew")]
    Secret,
    /// The operator's text is something else.
    #[error("ticket root: it does not begin with `{TEXT_TITLE}`; is it another file?")]
    Title,
    /// The operator's text is longer than any root.
    #[error("ticket root: longer than {TEXT_BYTES_MAX} bytes; is it another file?")]
    TooLong,
    /// The operator's text was written by another version of the program.
    #[error("ticket root: field 2, the version, is not {TEXT_VERSION}; write the root anew")]
    Version,
}
