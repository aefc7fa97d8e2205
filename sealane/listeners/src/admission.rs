//! Whom a listener lets in: lists of networks, those of files included, and limits that are divided
//! among lanes.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealane_certificate_files::{TextError, read_text};
use sealane_config as config;
use sealane_config::network::{EXAMPLES, Network, network};
use sealane_config::networks::{Access, NetworkSet};
use sealane_config::{ListenerLimits, NETWORKS_MAX, NetworkSource, PerClient, Steering};

use super::{Found, Material, Reading, Survey};

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
    let allow = networks("allow", &limits.allow, survey, reading);
    let deny = networks("deny", &limits.deny, survey, reading);
    if !limits.deny.is_empty() && deny.as_ref().is_ok_and(Vec::is_empty) {
        survey.warn(["deny: its files have no network, so it denies no client".to_owned()]);
    }
    let allow = (!limits.allow.is_empty()).then_some(allow);
    survey.access = match deny {
        Ok(deny) => Access {
            // Networks of a file that cannot be read are not allowed.
            allow: allow.map(|allow| NetworkSet::from_iter(allow.unwrap_or_else(|known| known))),
            deny: NetworkSet::from_iter(deny),
        },
        // A network that is to be denied may be anywhere.
        Err(_) => Access { allow: Some(NetworkSet::default()), deny: NetworkSet::default() },
    };
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

/// All networks of a list; notes its faults.
///
/// # Errors
/// A file has no last good state; with the networks of the others.
fn networks(
    key: &str,
    sources: &[NetworkSource],
    survey: &mut Survey<'_>,
    reading: &mut Reading<'_, '_>,
) -> Result<Vec<Network>, Vec<Network>> {
    let (mut networks, mut files) = (Vec::new(), Vec::new());
    for source in sources {
        match source {
            NetworkSource::File(path) => files.push((path, read_file(path))),
            NetworkSource::Network(network) => networks.push(*network),
        }
    }
    let is_empty =
        |read: &Result<Arc<[Network]>, String>| read.as_ref().is_ok_and(|n| n.is_empty());
    if key == ALLOW && networks.is_empty() && files.iter().all(|(_, read)| is_empty(read)) {
        let wrong = "has no network, so no client could come; write one, or remove the key";
        files
            .iter_mut()
            .for_each(|(path, read)| *read = Err(format!("{}: {wrong}", path.display())));
    }
    let mut is_whole = true;
    for (path, read) in files {
        let left = NETWORKS_MAX.saturating_sub(networks.len());
        let read = read.and_then(|found| match found.len() {
            count if count > left => Err(format!(
                "{}: has {count} networks; write at most {NETWORKS_MAX} in all, join neighbours",
                path.display()
            )),
            _ => Ok(found),
        });
        let settled = reading.settle(|good| &mut good.networks, path, read);
        // A last good state that does not fit any more is no state to go on with.
        let fits = settled.value.as_ref().is_some_and(|found| found.len() <= left);
        networks.extend(settled.value.iter().flat_map(|found| found.iter().copied()).take(left));
        is_whole &= fits;
        if let Some(error) = settled.error {
            let (is_kept, path, source) = (settled.is_kept && fits, path.clone(), path.clone());
            let without = if key == ALLOW { WITHOUT_ALLOW } else { WITHOUT_DENY };
            let text = format!("{key}: {error}");
            survey.note(reading, Found { is_kept, path, source, text, without });
        }
    }
    if is_whole { Ok(networks) } else { Err(networks) }
}

/// The networks of a file. No error quotes a line: the file may be another than was meant.
fn read_file(path: &Path) -> Result<Arc<[Network]>, String> {
    let wrong = |what: String| format!("{}: {what}", path.display());
    match read_text(path, FILE_BYTES_MAX) {
        Ok(text) => parse(path, &text),
        Err(error @ TextError::TooLarge(_)) => Err(wrong(format!("{error}; join networks"))),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// One network on each line; what follows a `#` is for people.
fn parse(path: &Path, text: &str) -> Result<Arc<[Network]>, String> {
    let (mut networks, mut first, mut more) = (Vec::new(), None, 0);
    for (index, line) in text.lines().enumerate() {
        let written = line.split_once('#').map_or(line, |(written, _)| written).trim();
        match network(written) {
            _ if written.is_empty() => {}
            Ok(network) => networks.push(network),
            Err(_) if first.is_some() => more += 1,
            Err(_) => first = Some(index + 1),
        }
    }
    let Some(line) = first else { return Ok(networks.into()) };
    let more = if more == 0 { String::new() } else { format!(", as {more} more lines") };
    Err(format!("{}:{line}: not a network{more}; {EXAMPLES}", path.display()))
}

/// Room for [`NETWORKS_MAX`] of the longest, with something for people on each line.
const FILE_BYTES_MAX: usize = 16 << 20;
const ALLOW: &str = "allow";
const WITHOUT_ALLOW: &str = "its networks are not allowed";
const WITHOUT_DENY: &str = "every client of the listener is refused";
