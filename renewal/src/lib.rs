//! The renewal plan of one machine: when a certificate is renewed, by which authority, and when to
//! retry. It is a function of time and of past outcomes.
//!
//! ```text
//!   the store's certificates --want-->  +----------+  --next-->  Order, AskRenewalInfo,
//!   a hello without one --on_demand-->  | Schedule |             AskPermission, each a ticket
//!   outcome of a ticket ---happened-->  +----------+  --wake_at--> when to ask for more
//! ```
//!
//! [`Schedule`] has no socket, no clock, no file and no thread: time is an argument, and chance
//! comes from a seed. Its caller does each [`Action`], and reports it with its [`Ticket`] and an
//! [`Outcome`]. So an agent process and a simulation of a thousand machines run the same code.
//!
//! ```
//! use sealane_renewal::{
//!     Action, Authority, CertificateId, Outcome, Schedule, Settings, UnixSeconds,
//! };
//!
//! let settings = Settings::new(vec![Authority::lets_encrypt()]);
//! let mut schedule = Schedule::new(settings, 7);
//! let mut now = UnixSeconds(1_800_000_000);
//! schedule.want(now, CertificateId(1), vec!["www.example.com".to_owned()], None);
//!
//! while let Some(action) = schedule.next(now) {
//!     if let Action::Order { ticket, .. } = action {
//!         // ... minutes at the authority later ...
//!         let issued = Outcome::Issued { not_before: now, not_after: now.plus(90 * 86_400) };
//!         now = now.plus(120);
//!         schedule.happened(now, ticket, issued);
//!     }
//! }
//! // The authority is asked for a window within six hours; without one it would be two months.
//! assert!(schedule.wake_at(now).is_some_and(|at| at <= now.plus(6 * 3_600)));
//! assert!(schedule.due(CertificateId(1)).is_some_and(|at| at >= now.plus(59 * 86_400)));
//! ```
//!
//! # Time of renewal
//! - An authority with renewal information (ARI, RFC 9773) is asked within six hours. It is asked
//!   again after its `Retry-After`, at least a minute and at most a day later. Renewal is at a
//!   moment of the window that is drawn once for each window, evenly. A window in the past means
//!   now. A window that ends before it begins, or after the certificate, counts as none.
//! - Without a window: after two thirds of the lifetime, or after half of one under ten days.
//! - Due certificates are ordered by how soon they expire. A missing certificate counts as if it
//!   expired in [`NEW_PATIENCE_S`]. Never more than [`ORDERS_IN_FLIGHT_MAX`] orders are under way:
//!   100,000 certificates at start go by their own dates, and those overdue one by one.
//! - After a failure, a retry comes after a minute or two, then twice as long each time, up to a
//!   day, with chance in it. While the certificate in the store is still good, the wait is never
//!   longer than a third of its remaining life, or an hour. A name that failed its validation
//!   counts for every certificate with it.
//!
//! # Choice of an authority
//! Authorities are in order of preference. One is **away** after [`AWAY_FAILURES`] failures in a
//! row that are its own or the network's. It is away for a minute, then twice as long up to an
//! hour. Then one order tries it.
//!
//! While it is away, or has asked for a pause, a certificate with more than a third of its margin
//! left waits for it. The margin is the time from the moment it was due to its end. A certificate
//! with less margin, or a missing one, fails over to the next authority. So a short absence moves
//! nothing, and a long one moves certificates while two tries are left at the worst of waits. A
//! certificate that an authority refuses for good goes to the next at once. If all refuse it, it is
//! retried in a day.
//!
//! # Limits
//! Each authority has [`Limits`], as Let's Encrypt publishes them. An order that names the
//! certificate that it `replaces` is exempt. So it names it whenever the authority has renewal
//! information and issued the certificate in the store. `rateLimited` stops the whole account until
//! the moment in the answer, or the certificate alone where the authority limits it to that. A
//! refusal of any other kind that names a moment stops the account until then too, and counts as a
//! failure.
//!
//! # Fleets
//! On one machine there is no other that could order. In a fleet each certificate has one
//! [`keeper()`] among the machines that are alive. The machine that gets an [`Action::Order`] takes
//! a lease of the fleet's store first. If another has it the answer is [`Outcome::HeldByAnother`].
//!
//! A schedule counts its own orders, and learns the limits that other machines ran into
//! ([`Schedule::learn_told`], [`Schedule::learn_failing`]). The agent leaves it at that. To keep an
//! account's limits without being refused, a caller has a [`Spent`] for each in the fleet's store,
//! changed by compare and swap. It answers the same where that leaves no order, as the simulation
//! does.
//!
//! # Cost
//! Certificates that are not due are not looked at. [`Schedule::next`] takes time for the actions
//! that it returns and the certificates that became due since the last call, each with the
//! logarithm of all.
#![forbid(unsafe_code)]

mod action;
mod authority;
mod dates;
mod demand;
mod keeper;
mod rate;
mod retry;
mod schedule;

pub use action::{Action, Failure, Outcome, Scope, Ticket};
pub use authority::{AWAY_FAILURES, AWAY_S_MAX, Authority, AuthorityId, Limits};
pub use dates::{Held, Window};
pub use demand::{Demand, OnDemand, REFUSED_S_MAX, REFUSED_S_MIN};
pub use keeper::{MachineId, keeper};
pub use rate::{Rate, Spent};
pub use retry::{RETRY_S_MAX, RETRY_S_MIN};
pub use schedule::{CertificateId, Failing, Schedule, Settings};

/// Seconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnixSeconds(pub u64);

impl UnixSeconds {
    /// The time this many seconds later.
    #[must_use]
    pub fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// The seconds since an earlier time; of a later one 0.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Orders under way at the same time, at all authorities together.
pub const ORDERS_IN_FLIGHT_MAX: usize = 5;
/// Questions for renewal information under way at the same time.
pub const RENEWAL_ASKS_IN_FLIGHT_MAX: usize = 5;
/// Questions to the operator's service under way at the same time.
pub const PERMISSION_ASKS_IN_FLIGHT_MAX: usize = 5;
/// The longest time that a missing certificate may wait behind those that expire sooner.
pub const NEW_PATIENCE_S: u64 = 3 * DAY_S;
/// The time until an authority is asked for renewal information again, if it names none.
pub const RENEWAL_ASK_S: u64 = 6 * HOUR_S;
/// The soonest that an authority may be asked for renewal information again.
pub const RENEWAL_ASK_S_MIN: u64 = 60;
/// The latest that an authority is asked for renewal information again, independent of its answer.
pub const RENEWAL_ASK_S_MAX: u64 = DAY_S;

const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 86_400;
