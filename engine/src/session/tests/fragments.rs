//! Handshake messages spread over records, which rustls' own client never sends: records are made
//! by hand from its keys.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use rustls::version::TLS13;

use super::*;
use crate::record::{APPLICATION_DATA, HANDSHAKE};

/// A KeyUpdate that asks for one in return.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 1];

/// One direction's keys under TLS 1.3.
pub(crate) struct Keys {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Keys {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Self {
        let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else {
            panic!("another suite");
        };
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap());
        Self { key, iv: iv.as_ref().try_into().unwrap(), sequence }
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= sequence;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    pub(crate) fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let len = u16::try_from(content.len() + 1 + 16).unwrap().to_be_bytes();
        let header = [APPLICATION_DATA, 3, 3, len[0], len[1]];
        let mut sealed = [content, &[kind]].concat();
        let nonce = self.nonce();
        self.key.seal_in_place_append_tag(nonce, Aad::from(header), &mut sealed).unwrap();
        [&header[..], &sealed].concat()
    }

    /// Opens the first record; returns its kind, its content and how long it was.
    pub(super) fn open(&mut self, wire: &[u8]) -> (u8, Vec<u8>, usize) {
        let len = usize::from(u16::from_be_bytes([wire[3], wire[4]]));
        let (header, rest) = wire.split_at(5);
        let mut sealed = rest[..len].to_vec();
        let nonce = self.nonce();
        let plain = self.key.open_in_place(nonce, Aad::from(header), &mut sealed).unwrap();
        let (kind, content) = plain.split_last().unwrap();
        (*kind, content.to_vec(), 5 + len)
    }
}

/// An established server for each that may read its records, and its client's keys: to send with,
/// and to read with.
pub(crate) fn established(world: &World) -> impl Iterator<Item = (Server, Keys, Keys)> {
    let config = world.context.admit(&Hello::default()).unwrap();
    let servers = subject::by_reader(config).into_iter().map(ServerSession::new);
    servers.map(|server| established_with(world, Lent::to(server.unwrap())))
}

fn established_with(world: &World, mut server: Server) -> (Server, Keys, Keys) {
    let mut client = client(&Arc::new(world.client_config(&TLS13)));
    shake_hands(&mut client, &mut server);
    server.session.release_held(&mut server.wire);
    deliver(&mut client, server.wire.filled());
    server.wire.clear();
    let secrets = client.dangerous_extract_secrets().unwrap();
    (server, Keys::new(secrets.tx), Keys::new(secrets.rx))
}

#[test]
fn sending_amid_a_fragmented_message_neither_panics_nor_loses_it() {
    let world = World::new();
    let cuts = (1..KEY_UPDATE.len()).flat_map(|cut| established(&world).map(move |all| (cut, all)));
    for (cut, (mut server, mut tx, mut rx)) in cuts {
        let fed = server.feed(&tx.record(HANDSHAKE, &KEY_UPDATE[..cut])).unwrap();
        assert!(!fed.records, "the fragment is kept");
        // Twice, for it must survive being shown to rustls.
        for _ in 0..2 {
            assert_eq!(server.session.seal(b"meanwhile", &mut server.wire).unwrap(), 9);
            let (kind, content, len) = rx.open(server.wire.filled());
            assert_eq!((kind, content), (APPLICATION_DATA, b"meanwhile".to_vec()));
            assert_eq!(server.wire.len(), len);
            server.wire.clear();
        }
        server.feed(&tx.record(HANDSHAKE, &KEY_UPDATE[cut..])).unwrap();
        assert_eq!(server.session.partial_len(), 0);
        server.session.seal(b"under new keys", &mut server.wire).unwrap();
        let (kind, content, _) = rx.open(server.wire.filled());
        assert_eq!((kind, content), (HANDSHAKE, vec![24, 0, 0, 1, 0]), "our own KeyUpdate");
    }
}

#[test]
fn closing_amid_a_fragmented_message_does_not_panic() {
    let world = World::new();
    for (mut server, mut tx, mut rx) in established(&world) {
        server.feed(&tx.record(HANDSHAKE, &KEY_UPDATE[..1])).unwrap();
        server.session.close(&mut server.wire).unwrap();
        let (kind, content, _) = rx.open(server.wire.filled());
        assert_eq!((kind, content), (21, vec![1, 0]));
    }
}

#[test]
fn a_record_cut_after_a_fragment_is_kept_with_it() {
    let world = World::new();
    for (mut server, mut tx, _) in established(&world) {
        let first = tx.record(HANDSHAKE, &KEY_UPDATE[..2]);
        let second = tx.record(HANDSHAKE, &KEY_UPDATE[2..]);
        let stream = [first, second].concat();
        for byte in &stream {
            server.feed(&[*byte]).unwrap();
            server.wire.clear();
            server.session.seal(b"x", &mut server.wire).unwrap();
        }
        assert_eq!(server.session.partial_len(), 0);
    }
}

#[test]
fn data_amid_a_fragmented_message_ends_the_session_without_a_panic() {
    let world = World::new();
    for (mut server, mut tx, _) in established(&world) {
        server.feed(&tx.record(HANDSHAKE, &KEY_UPDATE[..1])).unwrap();
        assert!(server.feed(&tx.record(APPLICATION_DATA, b"data")).is_err());
    }
    for (mut server, mut tx, _) in established(&world) {
        server.feed(&tx.record(HANDSHAKE, &KEY_UPDATE[..1])).unwrap();
        let mut bad = tx.record(HANDSHAKE, &KEY_UPDATE[1..]);
        bad[9] ^= 1;
        assert!(server.feed(&bad).is_err());
    }
}

#[test]
fn an_endless_message_is_cut_off() {
    let world = World::new();
    for (mut server, mut tx, _) in established(&world) {
        // Announces the longest message that rustls takes, one byte per record.
        let mut next: &[u8] = &[24, 0, 0xff, 0xff];
        let outcome = (0..80_000).find_map(|_| {
            let record = tx.record(HANDSHAKE, std::mem::replace(&mut next, &[0]));
            server.feed(&record).err()
        });
        assert!(outcome.is_some(), "it goes on for ever");
        assert!(server.session.partial_len() <= PARTIAL_BYTES_MAX);
    }
}
