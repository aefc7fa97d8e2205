//! Whom a listener lets in: lists of networks, those of files included, and limits that are divided
//! among lanes.

use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use super::{Material, Reading, Survey};
use crate::config;
use crate::config::network::{Network, network};
use crate::config::{ListenerLimits, NETWORKS_MAX, NetworkSource, PerClient, Steering};
use crate::networks::{Access, NetworkSet};

pub(super) const MATERIAL: Material = Material { files, read };

fn files(listener: &config::Listener) -> Vec<PathBuf> {
    listener.limits.files().cloned().collect()
}

fn read(survey: &mut Survey<'_>, reading: &mut Reading<'_, '_>) {
    let limits = &survey.listener.limits;
    let lanes = reading.config.lanes;
    if limits.steering == Steering::Core && !reading.config.pin_lanes {
        let text = "steer: \"core\" needs lanes that are tied to one; set pin_lanes = true";
        survey.errors.push(text.into());
    }
    survey.warn(loose_bounds(limits, lanes));
    let allow = networks("allow", &limits.allow, &mut survey.errors);
    let deny = networks("deny", &limits.deny, &mut survey.errors);
    if !limits.allow.is_empty() && allow.is_empty() {
        let text = "allow: its files have no network, so nobody could come; write one, or remove \
                    the key";
        survey.errors.push(text.into());
    }
    if !limits.deny.is_empty() && deny.is_empty() {
        survey.warn(["deny: its files have no network, so nobody is kept out".to_owned()]);
    }
    let allow = (!limits.allow.is_empty()).then(|| NetworkSet::from_iter(allow));
    survey.access = Access { allow, deny: NetworkSet::from_iter(deny) };
}

/// Says what a client really gets where that is more than is asked for.
fn loose_bounds(limits: &ListenerLimits, lanes: NonZeroUsize) -> Vec<String> {
    let per_client = match limits.steering {
        Steering::Client => PerClient::default(),
        Steering::Connection | Steering::Core => limits.per_client,
    };
    [
        ("connections_per_client", per_client.connections_max, ""),
        ("handshakes_per_client", per_client.handshakes_per_s, " a second"),
    ]
    .into_iter()
    .filter_map(|(key, whole, unit)| {
        let whole = whole.filter(|whole| *whole < lanes)?;
        Some(format!(
            "{key}: {whole} is less than the {lanes} lanes, each of which counts for itself: a \
             client can have 1{unit} on each, {lanes}{unit} in all"
        ))
    })
    .collect()
}

/// All networks of a list; what is wrong with it is put down.
fn networks(key: &str, sources: &[NetworkSource], errors: &mut Vec<String>) -> Vec<Network> {
    let mut networks = Vec::new();
    for source in sources {
        match source {
            NetworkSource::File(path) => match lines(path) {
                Ok(text) => parse(key, path, &text, &mut networks, errors),
                Err(problem) => errors.push(format!("{key}: {}: {problem}", path.display())),
            },
            NetworkSource::Network(network) => networks.push(*network),
        }
    }
    if networks.len() > NETWORKS_MAX {
        errors.push(format!(
            "{key}: has {} networks; write at most {NETWORKS_MAX}, join neighbours",
            networks.len()
        ));
        networks.clear();
    }
    networks
}

fn lines(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|f| f.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(format!("cannot be read: {error}")),
        Ok(len) if len as u64 > FILE_BYTES_MAX => {
            Err(format!("is larger than {FILE_BYTES_MAX} bytes; join networks"))
        }
        Ok(_) => Ok(text),
    }
}

/// One network on each line; what follows a `#` is for people.
fn parse(
    key: &str,
    path: &Path,
    text: &str,
    networks: &mut Vec<Network>,
    errors: &mut Vec<String>,
) {
    let mut wrong = 0;
    for (index, line) in text.lines().enumerate() {
        let written = line.split_once('#').map_or(line, |(written, _)| written).trim();
        if written.is_empty() {
            continue;
        }
        match network(written) {
            Ok(network) => networks.push(network),
            Err(problem) => {
                wrong += 1;
                if wrong <= MISTAKES_SHOWN_MAX {
                    let place = format!("{}:{}", path.display(), index + 1);
                    errors.push(format!("{key}: {place}: {problem}"));
                }
            }
        }
    }
    if let Some(more @ 1..) = wrong.checked_sub(MISTAKES_SHOWN_MAX) {
        errors.push(format!("{key}: {}: … and {more} more lines", path.display()));
    }
}

/// Room for [`NETWORKS_MAX`] of the longest, with something for people on each line.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Mistakes of one file that are told.
const MISTAKES_SHOWN_MAX: usize = 20;
