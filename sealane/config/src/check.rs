//! How backends are checked while nobody uses them: [`Check`].

use std::time::Duration;

/// How the backends of a listener are checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Check {
    /// From the beginning of one check to that of the next.
    pub every: Duration,
    /// Failed checks in a row after which a backend is down.
    pub fall: usize,
    /// What is checked.
    pub kind: CheckKind,
    /// Passed checks in a row after which a backend is up.
    pub rise: usize,
    /// From being up again to the whole share.
    pub slow_start: Duration,
    /// How long a check may take.
    pub timeout: Duration,
}

/// What a check does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CheckKind {
    /// Sends this, in TLS if the backend speaks it, and waits for that.
    Ask {
        /// May be nothing.
        send: Vec<u8>,
        /// Anywhere in the answer.
        expect: Vec<u8>,
    },
    /// Connects, and no more.
    Connect,
    /// Sends the PROXY header of who only looks, and sees whether the backend takes it.
    Proxy,
    /// Completes a TLS handshake, in which the backend proves its name.
    Tls,
}

impl CheckKind {
    /// The word for it in a configuration, without what is sent.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ask { .. } => "send",
            Self::Connect => "connect",
            Self::Proxy => "proxy",
            Self::Tls => "tls",
        }
    }
}
