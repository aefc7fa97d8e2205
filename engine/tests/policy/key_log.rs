//! The key log, compared with the client's own.

use std::sync::{Arc, Mutex};

use rustls::KeyLog;
use rustls::version::{TLS12, TLS13};
use sealane_engine::policy::Policy;
use sealane_engine::provider::ProviderChoice;

use crate::ED25519;
use crate::rig::{Client, Server};

#[test]
fn the_secrets_of_each_session_are_taken_once_and_are_the_clients() {
    let mut server = Server::new(ProviderChoice::Auto, Policy::default(), &ED25519);
    server.context = server.context_of(Policy::default(), true).unwrap();
    for (version, lines) in [(&TLS12, 1), (&TLS13, 5)] {
        let logged = Arc::new(Lines::default());
        let mut config = (*server.client(&Client::default(), version)).clone();
        let log: Arc<Lines> = Arc::clone(&logged);
        config.key_log = log;
        let config = Arc::new(config);
        for _ in 0..2 {
            server.meet(&config, "a.test").unwrap();
            let taken = String::from_utf8(server.context.take_key_log()).unwrap();
            // A server of rustls logs it for each session that resumes, the client if it uses it.
            let is_unused = |line: &&str| line.starts_with("CLIENT_EARLY_TRAFFIC_SECRET");
            let mut taken: Vec<_> =
                taken.lines().filter(|line| !is_unused(line)).map(str::to_owned).collect();
            let mut expected = std::mem::take(&mut *logged.0.lock().unwrap());
            taken.sort_unstable();
            expected.sort_unstable();
            assert_eq!(taken, expected);
            assert_eq!(taken.len(), lines, "{version:?}");
        }
        assert_eq!(server.context.take_key_log(), b"");
    }
}

#[test]
fn without_the_wish_nothing_is_kept() {
    let server = Server::new(ProviderChoice::Auto, Policy::default(), &ED25519);
    server.accept(&Client::default(), "a.test", &TLS13).unwrap();
    assert_eq!(server.context.take_key_log(), b"");
}

#[derive(Debug, Default)]
struct Lines(Mutex<Vec<String>>);

impl KeyLog for Lines {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let line = format!("{label} {} {}", hex(client_random), hex(secret));
        self.0.lock().unwrap().push(line);
    }
}
