//! What etcd's gateway writes and reads: numbers as text, bytes as base64, and what is zero not at
//! all.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, json};

/// An entry of the cluster's store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) value: Vec<u8>,
    /// The revision at which it was made.
    pub(crate) create_revision: i64,
    /// The revision at which it was changed last.
    pub(crate) mod_revision: i64,
    /// The lease that it hangs on; 0 if it stays.
    pub(crate) lease: i64,
}

/// Entries in the order of their keys, and when that was so.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) cluster: String,
    pub(crate) entries: Vec<Entry>,
    pub(crate) has_more: bool,
    /// The last key, though it be no text.
    pub(super) last: Option<Vec<u8>>,
    pub(crate) revision: i64,
}

/// A condition of a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Compare<'c> {
    /// The entry was made at this revision; 0: there is none.
    Created(&'c str, i64),
    /// The entry was changed last at this revision; 0: there is none.
    Modified(&'c str, i64),
}

impl Compare<'_> {
    pub(super) fn json(&self) -> Value {
        let (key, target, field, revision) = match self {
            Self::Created(key, revision) => (key, "CREATE", "create_revision", revision),
            Self::Modified(key, revision) => (key, "MOD", "mod_revision", revision),
        };
        json!({
            "key": bytes_text(key.as_bytes()),
            "target": target,
            "result": "EQUAL",
            field: revision.to_string(),
        })
    }
}

/// A change of entries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'c> {
    Delete(&'c str),
    /// All entries with keys that begin with this prefix.
    DeleteBelow(&'c str),
    /// An entry with its value and its lease; 0: without a lease.
    Put(&'c str, &'c [u8], i64),
}

impl Change<'_> {
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Delete(key) => {
                json!({ "request_delete_range": { "key": bytes_text(key.as_bytes()) } })
            }
            Self::DeleteBelow(prefix) => json!({ "request_delete_range": {
                "key": bytes_text(prefix.as_bytes()),
                "range_end": bytes_text(&end_of_prefix(prefix)),
            }}),
            Self::Put(key, value, lease) => json!({ "request_put": {
                "key": bytes_text(key.as_bytes()),
                "value": bytes_text(value),
                "lease": lease.to_string(),
            }}),
        }
    }
}

/// The end of the range of all keys that begin with `prefix`.
pub(super) fn end_of_prefix(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if let Some(next) = last.checked_add(1) {
            end.push(next);
            return end;
        }
    }
    // Every key, by etcd's convention.
    vec![0]
}

pub(super) fn bytes_text(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Header {
    #[serde(default, deserialize_with = "text")]
    pub(super) cluster_id: String,
    #[serde(default, deserialize_with = "number")]
    pub(super) revision: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Ranged {
    #[serde(default, deserialize_with = "number")]
    pub(super) count: i64,
    #[serde(default)]
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
    #[serde(default)]
    more: bool,
}

impl From<Ranged> for Page {
    fn from(Ranged { header, kvs, more, .. }: Ranged) -> Self {
        Self {
            cluster: header.cluster_id,
            last: kvs.last().map(|last| last.key.clone()),
            // A key that is no text is nobody's of ours, and none is to be taken for the one that
            // it would be as text.
            entries: kvs
                .into_iter()
                .filter(|one| str::from_utf8(&one.key).is_ok())
                .map(Entry::from)
                .collect(),
            has_more: more,
            revision: header.revision,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct KeyValue {
    #[serde(default, deserialize_with = "bytes")]
    key: Vec<u8>,
    #[serde(default, deserialize_with = "bytes")]
    value: Vec<u8>,
    #[serde(default, deserialize_with = "number")]
    create_revision: i64,
    #[serde(default, deserialize_with = "number")]
    pub(super) mod_revision: i64,
    #[serde(default, deserialize_with = "number")]
    lease: i64,
}

impl From<KeyValue> for Entry {
    fn from(KeyValue { key, value, create_revision, mod_revision, lease }: KeyValue) -> Self {
        // A key that is no text is nobody's of ours, and equal to none of ours.
        let key = String::from_utf8_lossy(&key).into_owned();
        Self { key, value, create_revision, mod_revision, lease }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Transacted {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    pub(super) responses: Vec<Responded>,
}

/// What came of one part of a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct Responded {
    #[serde(rename = "response_range")]
    pub(super) range: Option<Ranged>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Granted {
    #[serde(rename = "ID", deserialize_with = "number")]
    pub(super) id: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Kept {
    pub(super) result: Left,
}

#[derive(Debug, Deserialize)]
pub(super) struct Left {
    #[serde(rename = "TTL", default, deserialize_with = "number")]
    pub(super) ttl: i64,
}

#[derive(Deserialize)]
pub(super) struct Token {
    pub(super) token: String,
}

/// A message of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct Watched {
    pub(super) result: Option<Events>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Events {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) canceled: bool,
    #[serde(default)]
    pub(super) created: bool,
    /// More of the same comes in the next message.
    #[serde(default)]
    pub(super) fragment: bool,
    #[serde(default, deserialize_with = "number")]
    pub(super) compact_revision: i64,
    #[serde(default)]
    pub(super) cancel_reason: String,
    #[serde(default)]
    pub(super) events: Vec<Event>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Event {
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    pub(super) kv: KeyValue,
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    match Value::deserialize(from)? {
        Value::String(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        _ => Err(de::Error::custom("no number")),
    }
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<i64, D::Error> {
    text(from)?.parse().map_err(de::Error::custom)
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    BASE64_STANDARD.decode(text).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_least_key_behind_all_that_begin_with_it() {
        assert_eq!(end_of_prefix("/sealane/"), b"/sealane0");
        assert_eq!(end_of_prefix("\u{7f}"), b"\x80");
        assert_eq!(end_of_prefix(""), [0]);
    }
}
