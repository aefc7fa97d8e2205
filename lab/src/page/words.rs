//! Scenarios and units in the words of the page.

use crate::scenario::{Cipher, Group, Key, Kind, Negotiated, Scenario, Share, Version};

/// What tells a scenario from others at a glance: `TLS 1.3, full handshake`.
pub(crate) fn short(scenario: &Scenario) -> String {
    let kind = match scenario.kind {
        Kind::Full => "full handshake",
        Kind::SessionId => "resumed by session id",
        Kind::Ticket => "resumed by ticket",
    };
    format!("{}, {kind}, {}", version(scenario.version), key(scenario.key))
}

/// Everything that a scenario says.
pub(crate) fn whole(scenario: &Scenario) -> String {
    let tickets = match scenario.tickets {
        1 => "1 ticket".to_owned(),
        many => format!("{many} tickets"),
    };
    let client =
        if scenario.client_certificate { "client certificate" } else { "no client certificate" };
    let share = match scenario.share {
        Share::Context => "one context shared by all threads",
        Share::Session => "one context and one client session shared by all threads",
        Share::Thread => "a context per thread",
    };
    format!(
        "{}, {}, {}, {client}, {tickets} per handshake, {share}",
        short(scenario),
        group(scenario.group),
        cipher(scenario.cipher),
    )
}

/// What both ends read back.
pub(crate) fn negotiated(is: &Negotiated) -> String {
    let group = is.group.map_or("group not told", group);
    let resumed = if is.resumed { "resumed" } else { "not resumed" };
    let certificate =
        if is.peer_certificate { "peer's certificate verified" } else { "no peer's certificate" };
    format!("{}, {}, {group}, {resumed}, {certificate}", version(is.version), is.suite)
}

/// A key of a map, such as `server_idle`, as words: `server, idle`.
pub(crate) fn spaced(key: &str) -> String {
    match key.split_once('_') {
        Some((side, state)) => format!("{side}, {}", state.replace('_', " ")),
        None => key.to_owned(),
    }
}

/// A unit from a document, with its sign for micro.
pub(crate) fn unit(text: &str) -> String {
    text.strip_prefix("us ").map_or_else(|| text.to_owned(), |rest| format!("\u{b5}s {rest}"))
}

/// `1 thread`, `2 threads`.
pub(crate) fn count(number: usize, one: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}s") }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::Tls12 => "TLS 1.2",
        Version::Tls13 => "TLS 1.3",
    }
}

fn key(key: Key) -> &'static str {
    match key {
        Key::Ed25519 => "Ed25519",
        Key::P256 => "ECDSA P-256",
        Key::P384 => "ECDSA P-384",
        Key::Rsa2048 => "RSA-2048",
        Key::Rsa4096 => "RSA-4096",
    }
}

fn group(group: Group) -> &'static str {
    match group {
        Group::P256 => "group P-256",
        Group::P384 => "group P-384",
        Group::X25519 => "X25519",
        Group::X25519MlKem768 => "X25519MLKEM768",
    }
}

fn cipher(cipher: Cipher) -> &'static str {
    match cipher {
        Cipher::Aes128Gcm => "AES-128-GCM",
        Cipher::Aes256Gcm => "AES-256-GCM",
        Cipher::Chacha20Poly1305 => "ChaCha20-Poly1305",
    }
}
