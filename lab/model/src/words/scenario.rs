//! Scenarios in the words of every table and page: [`short`], [`whole`], [`negotiated`].

use crate::scenario::{Cipher, Group, Key, Kind, Negotiated, Scenario, Share, Version};

/// What tells a scenario from others at a glance: `TLS 1.3, full handshake, ECDSA P-256`.
pub fn short(scenario: &Scenario) -> String {
    let kind = match scenario.kind {
        Kind::Full => "full handshake",
        Kind::SessionId => "resumed by session id",
        Kind::Ticket => "resumed by ticket",
    };
    format!("{}, {kind}, {}", version(scenario.version), key(scenario.key))
}

/// Everything that a scenario says.
pub fn whole(scenario: &Scenario) -> String {
    let tickets = match (scenario.version, scenario.tickets) {
        (Version::Tls12, _) => String::new(),
        (Version::Tls13, 1) => ", 1 ticket per handshake".to_owned(),
        (Version::Tls13, many) => format!(", {many} tickets per handshake"),
    };
    let chain = match scenario.chain {
        0 | 1 => String::new(),
        many => format!(", {many} certificates of the server"),
    };
    let client =
        if scenario.client_certificate { "client certificate" } else { "no client certificate" };
    let share = match scenario.share {
        Share::Context => "one context shared by all threads",
        Share::Session => "one context and one client session shared by all threads",
        Share::Thread => "a context per thread",
    };
    format!(
        "{}, {}, {}, {client}{chain}{tickets}, {share}",
        short(scenario),
        group(scenario.group),
        cipher(scenario.cipher),
    )
}

/// What both ends read back.
pub fn negotiated(is: &Negotiated) -> String {
    let group = is.group.map_or("group not told", group);
    let resumed = if is.resumed { "resumed" } else { "not resumed" };
    let certificate =
        if is.peer_certificate { "peer's certificate verified" } else { "no peer's certificate" };
    format!("{}, {}, {group}, {resumed}, {certificate}", version(is.version), is.suite)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_that_differ_do_so_in_words() {
        let plain = Scenario::default();
        assert_eq!(
            whole(&plain),
            "TLS 1.3, full handshake, ECDSA P-256, X25519, AES-128-GCM, no client certificate, \
             2 tickets per handshake, one context shared by all threads"
        );
        let others = [
            Scenario { kind: Kind::Ticket, ..plain.clone() },
            Scenario { version: Version::Tls12, ..plain.clone() },
            Scenario { cipher: Cipher::Aes256Gcm, ..plain.clone() },
            Scenario { group: Group::P256, ..plain.clone() },
            Scenario { key: Key::Rsa2048, ..plain.clone() },
            Scenario { client_certificate: true, ..plain.clone() },
            Scenario { chain: 2, ..plain.clone() },
            Scenario { tickets: 1, ..plain.clone() },
            Scenario { share: Share::Thread, ..plain.clone() },
        ];
        for other in others {
            assert_ne!(whole(&other), whole(&plain));
        }
    }
}
