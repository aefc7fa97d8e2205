//! What a listener's clients speak.

use serde::Serialize;

/// What a listener's clients speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Spoken {
    /// PostgreSQL's request to begin with TLS, and then TLS.
    Postgres,
    /// HTTP in the clear, of which every request is sent to HTTPS, but for challenges of ACME.
    Redirect,
    /// Whatever it is, in the clear; backends are spoken to in TLS.
    Relay,
    /// TLS, from the first byte on.
    #[default]
    Tls,
}

impl Spoken {
    /// Whether it is TLS, sooner or later.
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Postgres | Self::Tls)
    }
}
