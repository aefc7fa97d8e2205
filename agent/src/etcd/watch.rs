//! Changes of the cluster's store as they happen: [`Watch`].

#[cfg(test)]
mod tests;

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::Instant;

use super::failure::EtcdError;
use super::wire::{Entry, Watched};

/// A stream of changes, each told once, in the order of their revisions.
pub(crate) struct Watch {
    endpoint: String,
    body: Incoming,
    /// What has come of the message that is not whole yet.
    gathered: Vec<u8>,
    /// How much of it has no end of a line.
    searched: usize,
    /// When the last of it came.
    heard: Instant,
}

/// What a watch has seen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Entries by their keys, in the order in which they were put, or deleted, which has none; and
    /// the revision up to which these are all.
    Changes { events: Vec<(String, Option<Entry>)>, revision: i64 },
    /// Old revisions are gone: the changes between are lost, and everything has to be listed.
    Compacted,
}

impl Watch {
    pub(super) fn new(endpoint: String, body: Incoming) -> Self {
        Self { endpoint, body, gathered: Vec::new(), searched: 0, heard: Instant::now() }
    }

    /// The endpoint that sends the changes.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// For how long nothing has come.
    pub(crate) fn silence(&self) -> Duration {
        self.heard.elapsed()
    }

    /// Notes that nothing has come for so long.
    #[cfg(test)]
    pub(crate) fn fall_silent(&mut self, silence: Duration) {
        self.heard = Instant::now().checked_sub(silence).unwrap_or_else(Instant::now);
    }

    /// What happens next; may be dropped and called again.
    ///
    /// # Errors
    /// The stream ended, or is not as it should be.
    pub(crate) async fn next(&mut self) -> Result<Seen, EtcdError> {
        loop {
            if let Some(line) = self.line()
                && let Some(seen) = self.seen(&line)?
            {
                return Ok(seen);
            }
            if self.searched < self.gathered.len() {
                continue;
            }
            let frame = tokio::time::timeout_at(self.heard + SILENCE_MAX, self.body.frame()).await;
            let frame = frame.map_err(|_| EtcdError::late(&self.endpoint, SILENCE_MAX))?;
            let frame = match frame {
                None => return Err(EtcdError::ended(&self.endpoint)),
                Some(Err(error)) => return Err(EtcdError::unheard(&self.endpoint, &error)),
                Some(Ok(frame)) => frame,
            };
            self.heard = Instant::now();
            if let Some(data) = frame.data_ref() {
                if self.gathered.len() + data.len() > MESSAGE_BYTES_MAX {
                    return Err(EtcdError::endless(&self.endpoint, MESSAGE_BYTES_MAX));
                }
                self.gathered.extend_from_slice(data);
            }
        }
    }

    /// The next whole line, taken out.
    fn line(&mut self) -> Option<Vec<u8>> {
        let unsearched = self.gathered.get(self.searched..).unwrap_or_default();
        let Some(end) = unsearched.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.gathered.len();
            return None;
        };
        let rest = self.gathered.split_off(self.searched + end + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.gathered, rest))
    }

    fn seen(&self, line: &[u8]) -> Result<Option<Seen>, EtcdError> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let message: Watched = serde_json::from_slice(line)
            .map_err(|error| EtcdError::senseless(&self.endpoint, "watch", &error))?;
        let events = match (message.result, message.error) {
            (Some(events), _) => events,
            (None, error) => {
                let text = error.unwrap_or_default().to_string();
                return Err(EtcdError::said(&self.endpoint, &text));
            }
        };
        if events.compact_revision > 0 {
            return Ok(Some(Seen::Compacted));
        }
        if events.canceled {
            return Err(EtcdError::said(&self.endpoint, &events.cancel_reason));
        }
        // The header has the store's revision, which what comes late is behind.
        let revision = match events.events.last() {
            Some(last) => last.kv.mod_revision - i64::from(events.fragment),
            None if events.created => 0,
            None => events.header.revision,
        };
        let events = events.events.into_iter().map(|event| {
            let entry = Entry::from(event.kv);
            let is_deleted = event.kind == "DELETE";
            (entry.key.clone(), (!is_deleted).then_some(entry))
        });
        Ok(Some(Seen::Changes { events: events.collect(), revision }))
    }
}

/// Bytes of one message; etcd sends parts of 1.5 MiB and a change.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The longest silence of a watch. Machines write a heartbeat after ten seconds of silence, and
/// then watch at another server.
const SILENCE_MAX: Duration = Duration::from_secs(25);
