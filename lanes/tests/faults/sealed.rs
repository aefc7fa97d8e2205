//! Backends that speak TLS: what is said to them, what they may do wrong, and that no end of theirs
//! or ours looks like another.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustls::pki_types::PrivateKeyDer;
use rustls::{
    AlertDescription, ClientConfig, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};
use sealane_lanes::cause::Cause;
use sealane_lanes::kernel::Address;

use crate::backend::{Backend, Got, RESET, reset};
use crate::client::{Client, Seen, Server, VERSIONS, pattern, seen};
use crate::kernel::{Fault, Plan};
use crate::rig::{PATIENCE, Rig, Wanted, alone, among_others, provider};
use crate::service::{BACKEND_NAME, Behaviour};

/// A backend's certificate, and what the lane believes.
pub(crate) struct Identity {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Identity {
    /// A good one.
    pub(crate) fn good(version: &'static SupportedProtocolVersion) -> Self {
        Self::new(version, BACKEND_NAME, |_| {})
    }

    fn new(
        version: &'static SupportedProtocolVersion,
        name: &str,
        change: impl FnOnce(&mut rcgen::CertificateParams),
    ) -> Self {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        // Another name than every other authority: otherwise its signatures would be found wrong.
        let serial = NUMBER.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("authority {serial}"));
        change(&mut params);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        Self { server: Arc::new(server), client: trusting(version, roots) }
    }

    /// A backend of this identity that serves each connection with `serve`.
    pub(crate) fn backend(
        &self,
        serve: impl Fn(Server) -> Got + Clone + Send + 'static,
    ) -> Backend {
        let config = Arc::clone(&self.server);
        Backend::start(move |socket| {
            let tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut server = Server { tls, socket };
            match server.handshake() {
                Ok(()) => serve(server),
                Err(error) => (Vec::new(), seen(&error)),
            }
        })
    }

    /// Takes everything up to the end and then sends `answer` and the end, if it was a clean one.
    pub(crate) fn answering(&self, answer: Vec<u8>) -> Backend {
        self.backend(move |mut server| {
            let got = server.read_to_end();
            if got.1 == Seen::Clean {
                // The lane may be gone by now; the client's view of it is what counts.
                let _ = server.send(&answer).and_then(|()| server.finish());
            }
            got
        })
    }

    /// A lane that relays to these backends in turn and believes this identity alone.
    pub(crate) fn relay(&self, backends: &[&Backend]) -> Wanted {
        let addresses = backends.iter().map(|backend| Address::Tcp(backend.address)).collect();
        let backend_tls = Some(Arc::clone(&self.client));
        Wanted { backend_tls, ..Wanted::new(Behaviour::Relay(addresses)) }
    }
}

fn trusting(version: &'static SupportedProtocolVersion, roots: RootCertStore) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Whether all of `expected` came, and a clean end behind it.
fn assert_same((bytes, seen): Got, expected: &[u8], rig: &Rig) {
    let ends = rig.ends.lock().unwrap();
    assert_eq!((bytes.len(), seen), (expected.len(), Seen::Clean), "{ends:?}");
    assert!(bytes == expected, "the bytes differ");
}

/// The client's view of a conversation for which no backend is left.
fn assert_refused(rig: &Rig, version: &'static SupportedProtocolVersion) {
    let client = Client::connect(rig, version);
    let seen = client.map(|mut client| client.read_to_end().1);
    assert!(matches!(seen, Ok(Seen::Failed(_) | Seen::Truncated) | Err(_)), "{seen:?}");
}

#[test]
fn whole_streams_pass_in_both_directions_and_end_apart() {
    let _others = among_others();
    for version in VERSIONS {
        let (request, answer) = (pattern(1, 700_000), pattern(2, 900_000));
        let identity = Identity::good(version);
        let backend = identity.answering(answer.clone());
        let rig = Rig::start(identity.relay(&[&backend]));
        let mut client = Client::connect(&rig, version).unwrap();
        client.send(&request).unwrap();
        client.finish().unwrap();
        assert_same(client.read_to_end(), &answer, &rig);
        assert_same(backend.got(), &request, &rig);
        rig.await_end(Cause::Clean, 1);
        rig.settle();
        rig.stop();
    }
}

#[test]
fn a_backend_that_speaks_and_ends_first_still_gets_what_the_client_sends() {
    let _others = among_others();
    for version in VERSIONS {
        let (early, late) = (pattern(1, 70_000), pattern(2, 300_000));
        let answer = early.clone();
        let identity = Identity::good(version);
        let backend = identity.backend(move |mut server| {
            server.send(&answer).unwrap();
            server.finish().unwrap();
            server.read_to_end()
        });
        let rig = Rig::start(identity.relay(&[&backend]));
        let mut client = Client::connect(&rig, version).unwrap();
        assert_eq!(client.read_to_end(), (early, Seen::Clean));
        client.send(&late).unwrap();
        client.finish().unwrap();
        assert_eq!(backend.got(), (late, Seen::Clean));
        rig.await_end(Cause::Clean, 1);
        rig.stop();
    }
}

#[test]
fn an_end_without_a_byte_is_passed_on() {
    let _others = among_others();
    for version in VERSIONS {
        let identity = Identity::good(version);
        let backend = identity.answering(Vec::new());
        let rig = Rig::start(identity.relay(&[&backend]));
        let mut client = Client::connect(&rig, version).unwrap();
        client.finish().unwrap();
        assert_eq!(client.read_to_end(), (Vec::new(), Seen::Clean));
        assert_eq!(backend.got(), (Vec::new(), Seen::Clean));
        rig.await_end(Cause::Clean, 1);
        rig.stop();
    }
}

#[test]
fn a_backend_without_close_notify_never_looks_clean() {
    let _others = among_others();
    for version in VERSIONS {
        let identity = Identity::good(version);
        let part = pattern(3, 50_000);
        let answer = part.clone();
        let backend = identity.backend(move |mut server| {
            server.send(&answer).unwrap();
            let mut word = [0; 4];
            word.copy_from_slice(&server.receive(4).unwrap());
            server.socket.shutdown(Shutdown::Write).unwrap();
            (word.to_vec(), server.read_to_end().1)
        });
        let rig = Rig::start(identity.relay(&[&backend]));
        let mut client = Client::connect(&rig, version).unwrap();
        assert_eq!(client.receive(part.len()).unwrap(), part);
        client.send(b"end!").unwrap();
        assert_eq!(client.read_to_end(), (Vec::new(), RESET));
        rig.await_end(Cause::BackendTruncated, 1);
        assert_eq!(backend.got(), (b"end!".to_vec(), RESET));
        rig.settle();
        rig.stop();
    }
}

#[test]
fn a_backend_that_dies_or_lies_mid_answer_never_looks_clean() {
    let _others = among_others();
    for version in VERSIONS {
        for lies in [false, true] {
            let identity = Identity::good(version);
            let backend = identity.backend(move |mut server| {
                server.send(b"part").unwrap();
                server.receive(4).unwrap();
                if lies {
                    server.socket.write_all(&[23, 3, 3, 0, 32]).unwrap();
                    server.socket.write_all(&[7; 32]).unwrap();
                    return server.read_to_end();
                }
                reset(server.socket);
                (Vec::new(), RESET)
            });
            let rig = Rig::start(identity.relay(&[&backend]));
            let mut client = Client::connect(&rig, version).unwrap();
            assert_eq!(client.receive(4).unwrap(), b"part");
            client.send(b"die!").unwrap();
            assert_eq!(client.read_to_end(), (Vec::new(), RESET));
            let cause = if lies { Cause::BackendProtocolError } else { Cause::BackendReset };
            rig.await_end(cause, 1);
            rig.settle();
            rig.stop();
        }
    }
}

#[test]
fn a_client_that_is_cut_never_looks_clean_to_the_backend() {
    let _others = among_others();
    for version in VERSIONS {
        for resets in [false, true] {
            let identity = Identity::good(version);
            let backend = identity.backend(|mut server| server.read_to_end());
            let rig = Rig::start(identity.relay(&[&backend]));
            let mut client = Client::connect(&rig, version).unwrap();
            client.send(b"hello").unwrap();
            if resets {
                reset(client.socket);
            } else {
                client.socket.shutdown(Shutdown::Write).unwrap();
            }
            assert_ne!(backend.got().1, Seen::Clean);
            let cause = if resets { Cause::ClientReset } else { Cause::ClientTruncated };
            rig.await_end(cause, 1);
            rig.stop();
        }
    }
}

#[test]
fn a_backend_that_is_not_the_right_one_hears_why_and_gets_no_byte() {
    let _others = among_others();
    let yesterday = |params: &mut rcgen::CertificateParams| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    };
    for version in VERSIONS {
        let good = Identity::good(version);
        let answering = good.answering(b"answer".to_vec());
        for (identity, believes, cause, alert) in [
            (
                Identity::good(version),
                None,
                Cause::BackendCertificateUntrusted,
                AlertDescription::UnknownCA,
            ),
            (
                Identity::new(version, "other.test", |_| {}),
                Some(()),
                Cause::BackendCertificateName,
                AlertDescription::BadCertificate,
            ),
            (
                Identity::new(version, BACKEND_NAME, yesterday),
                Some(()),
                Cause::BackendCertificateExpired,
                AlertDescription::CertificateExpired,
            ),
        ] {
            let wrong = identity.answering(b"stolen".to_vec());
            let client = if believes.is_some() { &identity.client } else { &good.client };
            let with = |backends: &[&Backend]| Wanted {
                backend_tls: Some(Arc::clone(client)),
                ..identity.relay(backends)
            };
            let rig = Rig::start(with(&[&wrong]));
            assert_refused(&rig, version);
            rig.await_end(cause, 1);
            assert_eq!(wrong.got(), (Vec::new(), Seen::Alert(alert)), "{cause:?}");
            rig.settle();
            rig.stop();
        }
        // A wrong one is passed over, and what the client has sent by then goes to the right one.
        let wrong = Identity::good(version).answering(b"stolen".to_vec());
        let rig = Rig::start(good.relay(&[&wrong, &answering]));
        let mut client = Client::connect(&rig, version).unwrap();
        client.send(b"secret").unwrap();
        client.finish().unwrap();
        assert_eq!(client.read_to_end(), (b"answer".to_vec(), Seen::Clean));
        assert_eq!(answering.got(), (b"secret".to_vec(), Seen::Clean));
        assert_eq!(wrong.got().0, b"");
        rig.settle();
        rig.stop();
    }
}

#[test]
fn a_backend_that_fails_the_handshake_is_passed_over() {
    let _others = among_others();
    type Failure = fn(TcpStream) -> Got;
    /// What a backend does with the start of a ClientHello.
    const FAILURES: [(&str, Failure); 4] = [
        ("resets", |mut socket| {
            socket.read_exact(&mut [0; 5]).unwrap();
            reset(socket);
            (Vec::new(), RESET)
        }),
        ("leaves", |mut socket| {
            socket.read_exact(&mut [0; 5]).unwrap();
            socket.shutdown(Shutdown::Write).unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
            (Vec::new(), Seen::Clean)
        }),
        ("speaks no TLS", |mut socket| {
            socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
            let _ = socket.read_to_end(&mut Vec::new());
            (Vec::new(), Seen::Clean)
        }),
        ("is silent", |mut socket| {
            let _ = socket.read_to_end(&mut Vec::new());
            (Vec::new(), Seen::Clean)
        }),
    ];
    for version in VERSIONS {
        let identity = Identity::good(version);
        let good = identity.answering(b"answer".to_vec());
        for (what, fail) in FAILURES {
            let bad = Backend::start(fail);
            let connect_timeout =
                if what == "is silent" { Duration::from_millis(50) } else { PATIENCE };
            let wanted =
                |backends: &[&Backend]| Wanted { connect_timeout, ..identity.relay(backends) };
            let rig = Rig::start(wanted(&[&bad]));
            assert_refused(&rig, version);
            rig.await_end(Cause::BackendHandshakeFailed, 1);
            rig.stop();
            let rig = Rig::start(wanted(&[&bad, &good]));
            let mut client = Client::connect(&rig, version).unwrap();
            client.send(b"request").unwrap();
            client.finish().unwrap();
            assert_eq!(client.read_to_end(), (b"answer".to_vec(), Seen::Clean), "{what}");
            assert_eq!(good.got(), (b"request".to_vec(), Seen::Clean), "{what}");
            rig.settle();
            rig.stop();
        }
    }
}

#[test]
fn when_both_directions_are_full_neither_loses_a_byte() {
    let _others = among_others();
    for version in VERSIONS {
        let (request, answer) = (pattern(1, 8 << 20), pattern(2, 4 << 20));
        let identity = Identity::good(version);
        let reply = answer.clone();
        let backend = identity.backend(move |mut server| {
            // It sends its whole answer before it reads anything more.
            let mut got = server.receive(100_000).unwrap();
            server.send(&reply).unwrap();
            let (rest, seen) = server.read_to_end();
            server.finish().unwrap();
            got.extend(rest);
            (got, seen)
        });
        let rig = Rig::start(identity.relay(&[&backend]));
        let mut client = Client::connect(&rig, version).unwrap();
        client.send(&request[..100_000]).unwrap();
        // Neither side reads for a while.
        std::thread::sleep(Duration::from_millis(50));
        assert_same((client.receive(answer.len()).unwrap(), Seen::Clean), &answer, &rig);
        client.send(&request[100_000..]).unwrap();
        client.finish().unwrap();
        assert_eq!(client.read_to_end(), (Vec::new(), Seen::Clean));
        assert_same(backend.got(), &request, &rig);
        rig.settle();
        rig.stop();
    }
}

/// Both ends have arrived, but not everything before the second has left.
#[test]
fn what_a_backend_does_not_take_at_once_outlives_both_ends() {
    let _alone = alone();
    for version in VERSIONS {
        let request = pattern(1, 20_000);
        let identity = Identity::good(version);
        let backend = identity.backend(move |mut server| {
            server.finish().unwrap();
            server.read_to_end()
        });
        let rig = Rig::start(identity.relay(&[&backend]));
        let converse = |plan: Plan| {
            rig.script.set(plan);
            let mut client = Client::connect(&rig, version).unwrap();
            assert_eq!(client.read_to_end(), (Vec::new(), Seen::Clean), "{plan:?}");
            client.send(&request).unwrap();
            client.finish().unwrap();
            assert_same(backend.got(), &request, &rig);
            rig.settle();
        };
        converse(Plan::Never);
        for call in 0..rig.script.calls() + 4 {
            for fault in [Fault::Interrupted, Fault::Short, Fault::WouldBlock] {
                converse(Plan::At(call, fault));
            }
        }
        rig.stop();
    }
}

/// Tells the authorities of this process apart.
static NUMBER: AtomicU32 = AtomicU32::new(0);

#[test]
fn a_backend_that_leaves_after_its_answer_does_not_cut_it() {
    let _others = among_others();
    for version in VERSIONS {
        let identity = Identity::good(version);
        let backend = identity.backend(|mut server| {
            let request = server.receive(7).unwrap();
            server.send(b"answer").unwrap();
            server.finish().unwrap();
            (request, Seen::Clean)
        });
        let rig = Rig::start(identity.relay(&[&backend]));
        let mut client = Client::connect(&rig, version).unwrap();
        client.send(b"request").unwrap();
        assert_eq!(client.read_to_end(), (b"answer".to_vec(), Seen::Clean));
        // The lane tells the client's end to a peer that is gone.
        client.finish().unwrap();
        rig.settle();
        assert_eq!(rig.ends.lock().unwrap().as_slice(), [Cause::Clean]);
        rig.stop();
    }
}
