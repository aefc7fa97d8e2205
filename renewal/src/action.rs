//! The actions that a schedule asks for, and their outcomes.

use crate::{AuthorityId, CertificateId, UnixSeconds};

/// One thing to do. Its caller always answers it by
/// [`Schedule::happened`](crate::Schedule::happened) with its ticket, so each action needs a time
/// limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask the operator's service whether there may be a certificate for a name; the answer is an
    /// [`Outcome::Permission`].
    AskPermission {
        /// To answer with.
        ticket: Ticket,
        /// The certificate that there would be.
        id: CertificateId,
        /// The name that a client asked for.
        name: String,
    },
    /// Ask an authority when the certificate in the store is to be renewed; the answer is an
    /// [`Outcome::RenewalInfo`].
    AskRenewalInfo {
        /// To answer with.
        ticket: Ticket,
        /// The certificate.
        id: CertificateId,
        /// The authority that issued it.
        authority: AuthorityId,
    },
    /// Order a certificate; the answer is an [`Outcome::Issued`] once it is in the store.
    Order {
        /// To answer with.
        ticket: Ticket,
        /// The certificate.
        id: CertificateId,
        /// The names to be in it.
        names: Vec<String>,
        /// The authority to order from.
        authority: AuthorityId,
        /// The order names the certificate in the store as the one that it replaces (RFC 9773,
        /// section 5): no limit of Let's Encrypt counts it then.
        replaces: bool,
    },
}

impl Action {
    /// The ticket to answer with.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        match self {
            Self::AskPermission { ticket, .. }
            | Self::AskRenewalInfo { ticket, .. }
            | Self::Order { ticket, .. } => *ticket,
        }
    }
}

/// The number of an action, for its answer. A number is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The action, of any kind, failed.
    Failed(Failure),
    /// Another machine of the fleet has the lease, or the fleet has no order left; to look again
    /// at a moment. For an order.
    HeldByAnother {
        /// The time when the lease ends if it is not kept, or when the fleet has an order left.
        until: UnixSeconds,
    },
    /// The new certificate is in the store. For an order.
    Issued {
        /// The first second at which it is valid.
        not_before: UnixSeconds,
        /// The last second at which it is valid.
        not_after: UnixSeconds,
    },
    /// The service's answer. For a question for permission.
    Permission {
        /// There may be a certificate for the name.
        is_given: bool,
    },
    /// The authority's answer. For a question for renewal information.
    RenewalInfo {
        /// The start of the suggested window.
        start: UnixSeconds,
        /// The end of the suggested window.
        end: UnixSeconds,
        /// The value of `Retry-After`, in seconds from now.
        retry_after_s: Option<u64>,
    },
}

/// The kind of a failure. It decides when the action is retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Another order replaces the certificate already (`alreadyReplaced`). It is ordered again,
    /// without `replaces`.
    AlreadyReplaced,
    /// The authority is not well, or asked too much, and named the moment until which it is to be
    /// left alone: a status of 503 or 429 with `Retry-After`.
    Away {
        /// The moment that the authority named.
        until: UnixSeconds,
    },
    /// A fault of this machine, such as a store that is full. It does not count against the
    /// authority.
    Ours,
    /// The authority counted too much (`rateLimited`).
    RateLimited {
        /// The moment that the authority named.
        until: UnixSeconds,
        /// The orders that it stops.
        scope: Scope,
    },
    /// The authority will never do it: `rejectedIdentifier`, `caa`, `unsupportedIdentifier`,
    /// `badCSR` and the like.
    Refused,
    /// No answer, or one that may be another later: the network, a status of 5xx, `badNonce` after
    /// its retries, a time limit.
    TryLater,
    /// The authority looked for a challenge and did not find it.
    Validation {
        /// The names that failed; all of the certificate's if empty.
        names: Vec<String>,
    },
}

/// The orders that a `rateLimited` stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything ordered with the account. Also the default if the authority's text names no
    /// scope.
    Account,
    /// This certificate alone: its names, its registered domain, or its set of names.
    Certificate,
}
