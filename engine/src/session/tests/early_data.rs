//! Clients that resume with a ticket of another server, and have sent early data to us.

use std::io::Write;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::ServerSessionMemoryCache;
use rustls::version::TLS13;
use rustls::{
    AlertDescription, ClientConfig, ClientConnection, Error, ServerConfig, ServerConnection,
};

use super::*;
use crate::context::EARLY_DATA_SKIPPED_MAX;
use crate::hello::{Peek, RECORD_HEADER_LEN, peek};
use crate::session::SHOWN;

/// A client's settings, and a server's that is not ours and takes early data.
pub(crate) struct Foreign {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Foreign {
    /// `groups` are the client's, in its order.
    pub(crate) fn new(world: &World, groups: &[Group]) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["one.test".to_owned()]).unwrap();
        let provider = Arc::new(lane_provider(ProviderChoice::AwsLc, groups).unwrap().crypto);
        let mut roots = world.roots.clone();
        roots.add(made.cert.der().clone()).unwrap();
        let mut client =
            ClientConfig::builder_with_details(Arc::clone(&provider), Arc::new(Stopped))
                .with_protocol_versions(&[&TLS13])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        client.enable_early_data = true;
        client.resumption = Resumption::in_memory_sessions(8);
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut server = ServerConfig::builder_with_details(provider, Arc::new(Stopped))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        server.max_early_data_size = 4 * EARLY_DATA_SKIPPED_MAX;
        server.session_storage = ServerSessionMemoryCache::new(8);
        Self { client: Arc::new(client), server: Arc::new(server) }
    }

    /// A client that has a ticket of the other server, and its first flight to us with `len` bytes
    /// of early data.
    pub(crate) fn client(&self, len: usize) -> (ClientConnection, Vec<u8>) {
        let mut before = client(&self.client);
        let mut server = ServerConnection::new(Arc::clone(&self.server)).unwrap();
        for _ in 0..4 {
            let mut bytes = Vec::new();
            while before.wants_write() {
                before.write_tls(&mut bytes).unwrap();
            }
            let mut bytes = &bytes[..];
            while !bytes.is_empty() {
                server.read_tls(&mut bytes).unwrap();
                server.process_new_packets().unwrap();
            }
            let mut answer = Vec::new();
            while server.wants_write() {
                server.write_tls(&mut answer).unwrap();
            }
            deliver(&mut before, &answer);
        }
        let mut client = client(&self.client);
        let mut early = client.early_data().expect("a ticket that allows early data");
        early.write_all(&vec![7; len]).unwrap();
        let flight = flight(&mut client);
        (client, flight)
    }
}

/// A session for the hello that `flight` begins with.
pub(crate) fn answering(world: &World, flight: &[u8]) -> Server {
    let Peek::Hello(hello) = peek(flight, 1 << 14) else { panic!("a whole hello") };
    assert!(hello.offers_early_data);
    let config = world.context.admit(&hello).unwrap();
    Lent::to(ServerSession::new(config).unwrap().awaiting(Awaited::new(false, true)))
}

/// Hands all that the client sends to the server in pieces, until neither has more to send.
fn meet(
    client: &mut ClientConnection,
    server: &mut Server,
    first: &[u8],
    piece: usize,
) -> Result<(), SessionError> {
    let mut bytes = first.to_vec();
    while !bytes.is_empty() {
        for piece in bytes.chunks(piece) {
            server.feed(piece)?;
            deliver(client, server.wire.filled());
            server.wire.clear();
        }
        bytes = flight(client);
    }
    Ok(())
}

/// The server supports X25519 alone: the second client is asked for another share.
const GROUPS: [&[Group]; 2] = [&[Group::X25519], &[Group::Secp256r1, Group::X25519]];

#[test]
fn early_data_under_a_foreign_key_is_skipped_however_it_arrives() {
    let world = World::new();
    for groups in GROUPS {
        let foreign = Foreign::new(&world, groups);
        for (len, piece) in [(1, 1), (8_000, 100), (8_000, 1 << 20), (40_000, 1_000)]
            .into_iter()
            .chain([(120_000, 1_400), (120_000, 20_000), (120_000, 1 << 20)])
        {
            let what = format!("{groups:?}, {len} bytes in pieces of {piece}");
            let (mut client, first) = foreign.client(len);
            let mut server = answering(&world, &first);
            meet(&mut client, &mut server, &first, piece).expect(&what);
            assert!(server.session.is_established(), "{what}");
            assert!(!client.is_early_data_accepted() && !server.session.resumed(), "{what}");
            assert!(server.plain.is_empty(), "{what}: early data has come through");
            client.writer().write_all(b"and again").unwrap();
            server.feed(&flight(&mut client)).unwrap();
            assert_eq!(server.plain.filled(), b"and again", "{what}");
        }
    }
}

#[test]
fn each_record_of_early_data_counts_once_up_to_the_limit() {
    let world = World::new();
    for (groups, refused) in GROUPS
        .into_iter()
        .zip([AlertDescription::BadRecordMac, AlertDescription::UnexpectedMessage])
    {
        let foreign = Foreign::new(&world, groups);
        // A record carries 16 KiB, its type and a tag.
        let fits = (EARLY_DATA_SKIPPED_MAX / (16_384 + 17) * 16_384) as usize;
        for (len, is_skipped) in [(fits, true), (fits + 16_384, false)] {
            let (mut client, first) = foreign.client(len);
            let mut server = answering(&world, &first);
            match server.feed(&first) {
                Ok(_) => {
                    assert!(is_skipped, "{groups:?}: {len}");
                    deliver(&mut client, server.wire.filled());
                    server.wire.clear();
                    server.feed(&flight(&mut client)).unwrap();
                }
                Err(_) => {
                    assert!(!is_skipped, "{groups:?}: {len}");
                    let mut wire = server.wire.filled();
                    client.read_tls(&mut wire).unwrap();
                    let error = client.process_new_packets().unwrap_err();
                    assert_eq!(error, Error::AlertReceived(refused), "{groups:?}: {len}");
                }
            }
        }
    }
}

/// Records that do not open are dropped at once, also if their header has another type. If they
/// were kept, all later bytes would be shown with them, again and again.
#[test]
fn what_does_not_open_is_not_shown_again_whatever_it_calls_itself() {
    let world = World::new();
    for groups in GROUPS {
        let foreign = Foreign::new(&world, groups);
        for odd in [&[22, 3, 3, 0, 1, 0][..], &[22, 3, 3, 0, 20], &[23, 3, 3, 0, 1, 9], &[]] {
            let (_, first) = foreign.client(1);
            let hello_len = usize::from(u16::from_be_bytes([first[3], first[4]]));
            let mut sent = first[..RECORD_HEADER_LEN + hello_len].to_vec();
            sent.extend(odd);
            sent.resize(sent.len() + if odd.last() == Some(&20) { 20 } else { 0 }, 1);
            sent.extend([23, 3, 3, 0, 0].repeat(2_000));
            let mut server = answering(&world, &sent);
            SHOWN.set(0);
            let outcome = server.feed(&sent).map(drop);
            // The hello is shown once more before its answer is written.
            let most = 3 * sent.len() + 4 * hello_len;
            assert!(SHOWN.get() <= most, "{groups:?} {odd:?} {outcome:?}: {}", SHOWN.get());
        }
    }
}
