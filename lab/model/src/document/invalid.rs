//! Why a measurement does not count: [`Invalid`], of a round, and [`NoVerdict`], of a server's
//! result. In JSON both are words; those of a later version are kept as they are.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a round does not count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Invalid {
    /// A time that does not add up: a mistake of the lab, where the others are disturbances.
    Accounting,
    /// Threads were kept from their processors.
    Preempted,
    /// Threads did not begin at the same time.
    Start,
    /// A thread came to do nothing.
    Starved,
    /// The hypervisor took processors.
    Steal,
    /// What only a later version of the lab knows.
    #[serde(untagged)]
    Unknown(String),
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accounting => "accounting",
            Self::Preempted => "preempted",
            Self::Start => "start",
            Self::Starved => "starved",
            Self::Steal => "steal",
            Self::Unknown(word) => word,
        })
    }
}

/// Why rate and latency are no verdict on a server: who set them instead, and how that showed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct NoVerdict {
    by: Bottleneck,
    words: String,
}

/// Who set a rate, if not the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bottleneck {
    /// The client.
    Client,
    /// Client, backend or others: the server was not at its limit.
    Elsewhere,
    /// The hypervisor, which took processors.
    Hypervisor,
    /// What only a later version of the lab knows.
    Unknown,
}

impl NoVerdict {
    /// One that this version knows, with what showed it.
    #[must_use]
    pub fn new(by: Bottleneck, shown: &str) -> Self {
        Self { by, words: format!("{}: {shown}", by.word()) }
    }

    /// Who set the rate.
    #[must_use]
    pub fn by(&self) -> Bottleneck {
        self.by
    }
}

impl fmt::Display for NoVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl From<String> for NoVerdict {
    fn from(words: String) -> Self {
        let by = KNOWN.into_iter().find(|by| words.starts_with(by.word()));
        Self { by: by.unwrap_or(Bottleneck::Unknown), words }
    }
}

impl From<NoVerdict> for String {
    fn from(of: NoVerdict) -> Self {
        of.words
    }
}

impl Bottleneck {
    /// How the document's words begin.
    fn word(self) -> &'static str {
        match self {
            Self::Client => "client-bound",
            Self::Elsewhere => "server not at its limit",
            Self::Hypervisor => "steal",
            Self::Unknown => "unknown",
        }
    }
}

const KNOWN: [Bottleneck; 3] = [Bottleneck::Client, Bottleneck::Elsewhere, Bottleneck::Hypervisor];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_written_as_they_are_known_or_not() {
        let known = [
            ("accounting", Invalid::Accounting),
            ("preempted", Invalid::Preempted),
            ("start", Invalid::Start),
            ("starved", Invalid::Starved),
            ("steal", Invalid::Steal),
            ("thermal", Invalid::Unknown("thermal".into())),
        ];
        for (word, cause) in known {
            let json = format!("\"{word}\"");
            assert_eq!(serde_json::from_str::<Invalid>(&json).unwrap(), cause);
            assert_eq!(serde_json::to_string(&cause).unwrap(), json);
            assert_eq!(cause.to_string(), word);
        }
    }

    #[test]
    fn a_bottleneck_is_known_by_how_its_words_begin() {
        for (words, by) in [
            ("client-bound", Bottleneck::Client),
            ("client-bound: its threads ran 95% of the time", Bottleneck::Client),
            ("server not at its limit: it ran 60% of the time", Bottleneck::Elsewhere),
            ("steal: the hypervisor took 2.0%", Bottleneck::Hypervisor),
            ("backend-bound: it ran 95% of the time", Bottleneck::Unknown),
        ] {
            let json = format!("\"{words}\"");
            let read: NoVerdict = serde_json::from_str(&json).unwrap();
            assert_eq!(read.by(), by, "{words}");
            assert_eq!(serde_json::to_string(&read).unwrap(), json);
        }
        let made = NoVerdict::new(Bottleneck::Hypervisor, "it took 2.0%");
        assert_eq!(made.to_string(), "steal: it took 2.0%");
        assert_eq!(NoVerdict::from(made.to_string()), made);
    }
}
