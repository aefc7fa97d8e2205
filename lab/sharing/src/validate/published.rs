//! Published curves as data, [`Published`]: the files in `lab/published/`, with their sources.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use sealane_lab_model::{
    error::Error,
    recording::Part,
    scenario::{Cipher, Key, Kind, Scenario, Share, Version},
};
use serde::Deserialize;

/// Curves of one report, as they were read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    /// The publication's title.
    pub(super) title: String,
    /// When it was published.
    pub(super) date: String,
    /// Where it stands.
    pub(super) address: String,
    /// How the figures were read.
    pub(super) read: String,
    /// The processor.
    pub(super) machine: String,
    /// The machine's cores: points beyond are not compared.
    pub(super) cores: u32,
    /// Record protection.
    cipher: Cipher,
    /// The server's key.
    key: Key,
    /// Certificates of a full handshake; who resumes sends none.
    chain: u8,
    /// What was changed of the model while looking at these curves; of curves that are held out,
    /// nothing.
    #[serde(default)]
    pub(super) revisions: Vec<String>,
    /// The curves.
    #[serde(rename = "curve")]
    pub(super) curves: Vec<PublishedCurve>,
}

/// One curve, and what recording a forecast of it is made from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishedCurve {
    /// In tables.
    pub(super) name: String,
    /// The stack that was measured, with its version.
    pub(super) published: String,
    /// The recording's file is called so, with `.json.gz`.
    pub(super) recording: String,
    /// The stack that is recorded.
    pub(super) stack: String,
    /// How the handshake goes.
    pub(super) kind: Kind,
    /// The protocol version.
    pub(super) tls: Version,
    /// What threads share.
    pub(super) share: Share,
    /// What the report's clock saw.
    pub(super) timed: Vec<Part>,
    /// The ratio of client to server, in [`Ratios`]; without one, both take as long as where they
    /// were recorded.
    #[serde(default)]
    pub(super) client: String,
    /// What the client takes beyond that ratio.
    #[serde(default)]
    pub(super) client_extra_ns: f64,
    /// The transfer cost was fitted on this one.
    #[serde(default)]
    pub(super) fitted: bool,
    /// The curve of the same stack before a change that the report tells of.
    pub(super) before: Option<String>,
    /// Threads, and handshakes per second and thread.
    #[serde(default)]
    rates: Vec<(u32, f64)>,
    /// The fewest threads, where no rate is published.
    relative_to: Option<u32>,
    /// Threads, and rate over the rate at the fewest threads.
    efficiencies: Vec<(u32, f64)>,
    /// Where it falls below 70%, if it does.
    pub(super) knee: Option<u32>,
}

/// Time in the client over time in the server, of a single thread.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ratios {
    /// The curve's title.
    pub(super) title: String,
    /// When it was published.
    pub(super) date: String,
    /// Where it stands.
    pub(super) address: String,
    /// How the figures were read.
    pub(super) read: String,
    /// The processor.
    pub(super) machine: String,
    /// By library and case.
    pub(super) client_over_server: BTreeMap<String, f64>,
}

impl Published {
    /// The one that forecasts are judged by.
    ///
    /// # Errors
    /// The file is broken.
    pub(super) fn shipped() -> Result<Self, Error> {
        parse("rustls-threading-2024-11-28.toml", THREADING)
    }

    /// The one that is held out.
    ///
    /// # Errors
    /// The file is broken.
    pub(super) fn held_out() -> Result<Self, Error> {
        parse("haproxy-2454-2024-09-16.toml", HAPROXY)
    }

    /// Each curve after a change, with the one before.
    pub(super) fn changes(&self) -> impl Iterator<Item = (&PublishedCurve, &PublishedCurve)> {
        self.curves.iter().filter_map(|after| {
            let name = after.before.as_ref()?;
            Some((after, self.curves.iter().find(|before| before.name == *name)?))
        })
    }

    /// What both the report and the recording did: its certificates and suites.
    pub(super) fn scenario(&self, curve: &PublishedCurve) -> Scenario {
        Scenario {
            kind: curve.kind,
            version: curve.tls,
            cipher: self.cipher,
            key: self.key,
            share: curve.share,
            chain: self.chain(curve),
            ..Scenario::default()
        }
    }

    fn chain(&self, curve: &PublishedCurve) -> u8 {
        if curve.kind == Kind::Full { self.chain } else { 1 }
    }

    /// The command that makes a curve's recording, in the repository's root, with `folder` to write
    /// to.
    pub(super) fn command(&self, curve: &PublishedCurve, folder: &Path) -> String {
        format!(
            "sealane-lab count --stack {} --kind {} --tls {} --share {} --cipher {} --key {} \
             --group x25519 --tickets 2 --chain {} --record {}",
            curve.stack,
            word(&curve.kind),
            word(&curve.tls),
            word(&curve.share),
            word(&self.cipher),
            word(&self.key),
            self.chain(curve),
            curve.file(folder).display()
        )
    }

    /// Points compared of one curve, at most.
    pub(super) fn points_max(&self) -> u64 {
        self.curves.iter().map(|curve| curve.points(self.cores).len()).max().unwrap_or(0) as u64
    }

    /// In a line.
    pub(super) fn source(&self) -> String {
        let Self { title, date, address, read, machine, .. } = self;
        format!("{title}, {date}, {address} ({machine}); {read}")
    }
}

impl Ratios {
    /// The one that is shipped.
    ///
    /// # Errors
    /// The file is broken.
    pub(super) fn shipped() -> Result<Self, Error> {
        parse("rustls-arm64-2024-10-31.toml", ARM64)
    }

    /// In a line.
    pub(super) fn source(&self) -> String {
        let Self { title, date, address, read, machine, .. } = self;
        format!("{title}, {date}, {address} ({machine}); {read}")
    }
}

impl PublishedCurve {
    /// The point that all others are relative to: the fewest threads, and the time in ns, if it is
    /// published.
    pub(super) fn first(&self) -> Option<(u32, Option<f64>)> {
        let first = self.rates.iter().copied().min_by_key(|(threads, _)| *threads);
        match first {
            Some((threads, rate)) => Some((threads, Some(1e9 / rate))),
            None => Some((self.relative_to?, None)),
        }
    }

    /// Efficiencies by threads, from the second point on and up to `cores`, ascending.
    pub(super) fn points(&self, cores: u32) -> Vec<(u32, f64)> {
        let Some((fewest, first_ns)) = self.first() else {
            return Vec::new();
        };
        let second = 1e9 / first_ns.unwrap_or(1e9);
        let rates = self.rates.iter().map(|(threads, rate)| (*threads, rate / second));
        let mut points: Vec<(u32, f64)> = rates
            .chain(self.efficiencies.iter().copied())
            .filter(|(threads, _)| *threads > fewest && *threads <= cores)
            .collect();
        points.sort_by_key(|(threads, _)| *threads);
        points
    }

    /// The recording, below `folder`.
    pub(super) fn file(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.json.gz", self.recording))
    }
}

/// The value as it is written on the command line.
fn word(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|word| word.get_name().to_owned()).unwrap_or_default()
}

fn parse<T: for<'a> Deserialize<'a>>(file: &str, text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| Error::Document {
        file: format!("lab/published/{file}"),
        reason: format!("{error}; the lab was built with it: correct the file and build again"),
    })
}

const THREADING: &str = include_str!("../../../published/rustls-threading-2024-11-28.toml");
const HAPROXY: &str = include_str!("../../../published/haproxy-2454-2024-09-16.toml");
const ARM64: &str = include_str!("../../../published/rustls-arm64-2024-10-31.toml");
