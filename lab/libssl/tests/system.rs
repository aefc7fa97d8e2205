//! The system's OpenSSL, loaded by its path: what it agrees on, and what it refuses.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use sealane_libssl::{
    Agreed, Connection, Context, Error, Flavour, Identification, Library, Resumption, Session,
    Settings, Side, Step,
};

/// A root, and a leaf of each side, made by the same OpenSSL's program.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(algorithm: &[&str]) -> Self {
        let files = Self { folder: tempfile::tempdir().unwrap() };
        files.request("root", algorithm, &[]);
        for (side, name) in [("server", "localhost"), ("client", "somebody")] {
            let name = format!("subjectAltName=DNS:{name}");
            let leaf = ["-CA", "root.pem", "-CAkey", "root.key", "-addext", &name];
            let end = ["-addext", "basicConstraints=critical,CA:FALSE"];
            files.request(side, algorithm, &[&leaf[..], &end[..]].concat());
        }
        files
    }

    fn request(&self, side: &str, algorithm: &[&str], more: &[&str]) {
        let output = Command::new("openssl")
            .current_dir(self.folder.path())
            .args(["req", "-x509", "-nodes", "-days", "2", "-subj"])
            .arg(format!("/CN={side}"))
            .args(["-keyout", &format!("{side}.key"), "-out", &format!("{side}.pem")])
            .args(algorithm)
            .args(more)
            .output()
            .expect("the program openssl, of the package openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

const P256: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const X25519: u16 = 0x001d;

/// What both ends are to do; the parts that tests change.
#[derive(Clone)]
struct Plan {
    version: u16,
    suite: &'static str,
    server_group: u16,
    client_group: u16,
    resumption: Resumption,
    tickets: u8,
    client_certificate: bool,
    client_shows: bool,
    name: &'static str,
    client_root: PathBuf,
}

impl Plan {
    fn new(files: &Files) -> Self {
        Self {
            version: 0x0304,
            suite: "TLS_AES_128_GCM_SHA256",
            server_group: X25519,
            client_group: X25519,
            resumption: Resumption::None,
            tickets: 2,
            client_certificate: false,
            client_shows: false,
            name: "localhost",
            client_root: files.file("root.pem"),
        }
    }

    fn tls12(files: &Files) -> Self {
        let suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256";
        Self { version: 0x0303, suite, ..Self::new(files) }
    }

    fn context(&self, files: &Files, side: Side) -> Result<Context, Error> {
        let own = if side == Side::Server { "server" } else { "client" };
        let (certificate, key) =
            (files.file(&format!("{own}.pem")), files.file(&format!("{own}.key")));
        let root = match side {
            Side::Client => self.client_root.clone(),
            Side::Server => files.file("root.pem"),
        };
        let shows = side == Side::Server || self.client_shows;
        let settings = Settings {
            side,
            version: self.version,
            suite: self.suite,
            group: if side == Side::Server { self.server_group } else { self.client_group },
            key_curve: Some(0x0017),
            identification: shows
                .then_some(Identification { certificate: &certificate, key: &key }),
            root: (side == Side::Client || self.client_certificate).then_some(&root),
            name: self.name,
            resumption: self.resumption,
            tickets: self.tickets,
            ed25519: false,
            release_buffers: true,
        };
        Context::new(system(), &settings)
    }

    fn contexts(&self, files: &Files) -> [Context; 2] {
        [Side::Server, Side::Client].map(|side| self.context(files, side).unwrap())
    }
}

fn system() -> &'static Library {
    Library::open(&Library::of_the_system().unwrap()).unwrap()
}

/// Both ends, done, with the tickets taken in; `touch` sees what the server sends.
fn shake_hands(
    [server, client]: &[Context; 2],
    session: Option<&Session>,
    mut touch: impl FnMut(&mut Vec<u8>),
) -> Result<[Connection; 2], Error> {
    let (mut server, mut client) = (server.accept()?, client.connect(session)?);
    let (mut inward, mut outward, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    let mut done = [false; 2];
    for _ in 0..6 {
        inward.clear();
        if done[1] {
            client.receive(&outward, &mut plain, &mut inward)?;
        } else {
            done[1] = client.handshake(&outward, &mut inward)? == Step::Done;
        }
        outward.clear();
        if done[0] {
            server.receive(&inward, &mut plain, &mut outward)?;
        } else {
            done[0] = server.handshake(&inward, &mut outward)? == Step::Done;
        }
        touch(&mut outward);
    }
    assert_eq!(done, [true; 2], "stuck");
    assert!(plain.is_empty());
    Ok([server, client])
}

fn refusal(plan: &Plan, files: &Files) -> String {
    let refused = shake_hands(&plan.contexts(files), None, |_| ()).err();
    refused.expect("a handshake that must fail").to_string()
}

#[test]
fn it_says_what_it_is() {
    let library = system();
    assert_eq!(library.flavour(), Flavour::OpenSsl);
    assert!(library.version().starts_with("OpenSSL "), "{}", library.version());
    assert!(library.build_flags().contains("compiler"), "{}", library.build_flags());
    assert!(library.path().is_absolute());
    let libcrypto = library.libcrypto().file_name().unwrap().to_str().unwrap();
    assert!(libcrypto.starts_with("libcrypto.so"), "{libcrypto}");
}

#[test]
fn both_ends_tell_what_they_agreed_on() {
    let files = Files::new(&P256);
    for (plan, group) in [
        (Plan::new(&files), X25519),
        (Plan { server_group: 0x0018, client_group: 0x0018, ..Plan::new(&files) }, 0x0018),
        (Plan { suite: "TLS_CHACHA20_POLY1305_SHA256", ..Plan::new(&files) }, X25519),
        (Plan::tls12(&files), X25519),
        (Plan { server_group: 0x0017, client_group: 0x0017, ..Plan::tls12(&files) }, 0x0017),
    ] {
        let ends = shake_hands(&plan.contexts(&files), None, |_| ()).unwrap();
        let agreed = |peer_verified| Agreed {
            version: plan.version,
            suite: plan.suite.to_owned(),
            group: Some(group),
            resumed: false,
            peer_verified,
        };
        assert_eq!(ends[0].agreed(), agreed(false));
        assert_eq!(ends[1].agreed(), agreed(true));
    }
}

#[test]
fn bytes_come_as_they_went_through_whatever_pieces() {
    let files = Files::new(&P256);
    for plan in [Plan::new(&files), Plan::tls12(&files)] {
        let mut ends = shake_hands(&plan.contexts(&files), None, |_| ()).unwrap();
        let sent: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        for (from, to) in [(0, 1), (1, 0)] {
            let (mut wire, mut got, mut answer) = (Vec::new(), vec![7], Vec::new());
            ends[from].send(&sent, &mut wire).unwrap();
            for part in wire.chunks(7_001) {
                let closed = ends[to].receive(part, &mut got, &mut answer).unwrap();
                assert!(!closed);
            }
            assert!(got[0] == 7 && got[1..] == sent, "what came is not what was sent");
        }
    }
}

#[test]
fn sessions_are_resumed_by_ticket_and_by_id() {
    let files = Files::new(&P256);
    for plan in [
        Plan { resumption: Resumption::Ticket, ..Plan::new(&files) },
        Plan { resumption: Resumption::Ticket, ..Plan::tls12(&files) },
        Plan { resumption: Resumption::SessionId, ..Plan::tls12(&files) },
    ] {
        let contexts = plan.contexts(&files);
        let mut session = None;
        for round in 0..4 {
            let [server, mut client] = shake_hands(&contexts, session.as_ref(), |_| ()).unwrap();
            assert_eq!(server.agreed().resumed, round > 0);
            assert_eq!(client.agreed().resumed, round > 0);
            session = client.session();
            assert!(session.is_some());
        }
        // Another server knows nothing of it.
        let server = plan.context(&files, Side::Server).unwrap();
        let client = plan.context(&files, Side::Client).unwrap();
        let [server, _] = shake_hands(&[server, client], session.as_ref(), |_| ()).unwrap();
        assert!(!server.agreed().resumed);
    }
}

#[test]
fn without_tickets_there_is_no_session_in_tls_1_3() {
    let files = Files::new(&P256);
    let plan = Plan { tickets: 0, ..Plan::new(&files) };
    let [_, mut client] = shake_hands(&plan.contexts(&files), None, |_| ()).unwrap();
    assert!(client.session().is_none());
}

#[test]
fn a_client_shows_its_certificate_or_is_refused() {
    let files = Files::new(&P256);
    for plan in [Plan::new(&files), Plan::tls12(&files)] {
        let plan = Plan { client_certificate: true, client_shows: true, ..plan };
        let [server, client] = shake_hands(&plan.contexts(&files), None, |_| ()).unwrap();
        assert!(server.agreed().peer_verified && client.agreed().peer_verified);
        let refused = refusal(&Plan { client_shows: false, ..plan }, &files);
        assert!(refused.contains("peer did not return a certificate"), "{refused}");
    }
}

#[test]
fn a_wrong_root_a_wrong_name_and_a_wrong_group_are_refused() {
    let (files, others) = (Files::new(&P256), Files::new(&P256));
    let refused =
        refusal(&Plan { client_root: others.file("root.pem"), ..Plan::new(&files) }, &files);
    assert!(refused.contains("certificate verify failed"), "{refused}");
    let refused = refusal(&Plan { name: "elsewhere", ..Plan::new(&files) }, &files);
    assert!(refused.to_lowercase().contains("hostname mismatch"), "{refused}");
    for plan in [Plan::new(&files), Plan::tls12(&files)] {
        let refused = refusal(&Plan { client_group: 0x0018, ..plan }, &files);
        assert!(refused.starts_with("SSL_do_handshake: error:"), "{refused}");
    }
}

#[test]
fn a_client_demands_a_name() {
    let files = Files::new(&P256);
    let plan = Plan::new(&files);
    let nameless = Plan { name: "", ..plan.clone() };
    assert!(matches!(nameless.context(&files, Side::Client).err(), Some(Error::NoName)));
    assert!(nameless.context(&files, Side::Server).is_ok(), "a server demands none");
    let client = plan.context(&files, Side::Client).unwrap();
    assert!(matches!(client.connect_to("").err(), Some(Error::NoName)));
}

#[test]
fn a_corrupted_byte_is_refused_in_the_handshake_and_after_it() {
    let files = Files::new(&P256);
    let plan = Plan::new(&files);
    let corrupt = |wire: &mut Vec<u8>| {
        let middle = wire.len() / 2;
        if let Some(byte) = wire.get_mut(middle) {
            *byte ^= 1;
        }
    };
    let refused = shake_hands(&plan.contexts(&files), None, corrupt).err();
    assert!(matches!(refused, Some(Error::Call { call: "SSL_do_handshake", .. })), "{refused:?}");
    let [mut server, mut client] = shake_hands(&plan.contexts(&files), None, |_| ()).unwrap();
    let (mut wire, mut got, mut answer) = (Vec::new(), Vec::new(), Vec::new());
    server.send(b"hello", &mut wire).unwrap();
    corrupt(&mut wire);
    let refused = client.receive(&wire, &mut got, &mut answer).unwrap_err();
    assert!(refused.to_string().contains("decryption failed"), "{refused}");
    assert!(got.is_empty() && !answer.is_empty(), "the peer is told, the application is not");
    // The error is gone from the thread's queue: the next connection does not see it.
    shake_hands(&plan.contexts(&files), None, |_| ()).unwrap();
}

#[test]
fn what_the_library_does_not_have_is_unsupported() {
    let files = Files::new(&P256);
    for plan in [
        Plan { suite: "TLS_NO_SUCH_SUITE", ..Plan::new(&files) },
        Plan { suite: "TLS_AES_128_GCM_SHA256", ..Plan::tls12(&files) },
        Plan { server_group: 0xfafa, ..Plan::new(&files) },
    ] {
        let refused = plan.context(&files, Side::Server).err();
        assert!(matches!(refused, Some(Error::Unsupported { .. })), "{refused:?}");
    }
    let plan = Plan { client_root: PathBuf::from("/no/such/file"), ..Plan::new(&files) };
    let refused = plan.context(&files, Side::Client).err().unwrap().to_string();
    assert!(refused.contains("No such file"), "{refused}");
}

#[test]
fn two_threads_share_contexts() {
    let files = Files::new(&P256);
    let plan = Plan { resumption: Resumption::Ticket, ..Plan::new(&files) };
    let contexts = plan.contexts(&files);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut session = None;
                for round in 0..10 {
                    let [server, mut client] =
                        shake_hands(&contexts, session.as_ref(), |_| ()).unwrap();
                    assert_eq!(server.agreed().resumed, round > 0);
                    session = client.session();
                }
            });
        }
    });
}

#[test]
fn a_path_with_a_link_in_it_is_the_same_library() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("libssl.so");
    std::os::unix::fs::symlink(system().path(), &link).unwrap();
    assert!(std::ptr::eq(Library::open(&link).unwrap(), system()));
    assert!(Library::open(Path::new("/no/such/libssl.so")).is_err());
}
